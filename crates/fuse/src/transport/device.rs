//! The ordinary transport: one `read` of `/dev/fuse` is one request, one `write` is its reply.
//!
//! Several threads read, each through a descriptor of its own (a clone, with a queue of its own
//! for what it has read). Of those that wait one looks for the next request ([`super::next`]);
//! where nobody looks, the kernel can hand it to one thread while another still writes a reply,
//! which doubles the throughput even for a single caller.

use super::crew::{Crew, Relief, Work};
use super::next::{Place, Waiter};
use super::pause::{Pause, Reading};
use super::uring::Live;
use super::waiting::Waiting;
use super::{Threads, apart, readers};
use crate::look::Looking;
use crate::notices::{self, Notices};
use crate::protocol::wire::{InHeader, OutHeader};
use crate::protocol::{Errno, Opcode, Reply, Request};
use crate::service::Serve;
use parking_lot::Mutex;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno as Os;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;
use zerocopy::{FromBytes, IntoBytes};

/// Device of the kernel's FUSE client.
pub(crate) const DEVICE: &str = "/dev/fuse";
/// Room for the header and the operation's structure in front of the largest write.
pub(crate) const HEADROOM: usize = 4096;
/// Pause between reads beside rings, so that a read gets many FORGETs at once instead of one with a
/// wake-up each. Nobody waits for their answer.
const PAUSE: Duration = Duration::from_millis(2);
/// `FUSE_DEV_IOC_CLONE`: makes a fresh descriptor serve the connection of another.
const IOC_CLONE: rustix::ioctl::Opcode = 0x8004_e500;
/// Bytes of a reply's header.
const OUT: usize = size_of::<OutHeader>();

/// Opens the device.
pub(crate) fn open() -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(DEVICE, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?)
}

/// Opens another descriptor of the same connection.
pub(crate) fn clone(of: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let new = open()?;
    // SAFETY: the ioctl reads a u32 through its pointer argument, which is what a setter passes.
    let request = unsafe { rustix::ioctl::Setter::<IOC_CLONE, u32>::new(of.as_raw_fd() as u32) };
    // SAFETY: both descriptors are open; the request changes nothing in this process's memory.
    unsafe { rustix::ioctl::ioctl(&new, request)? };
    Ok(new)
}

/// Configuration of a server of this transport.
pub(crate) struct Task<S: Serve> {
    /// State shared by its workers.
    pub shared: Arc<S::Shared>,
    /// The connection, whose handshake is done.
    pub device: OwnedFd,
    /// The largest write agreed upon.
    pub max_write: u32,
    /// Threads that read requests.
    pub threads: usize,
    /// Rings of the same connection.
    pub rings: Option<Live>,
    /// Everything but FORGET and INTERRUPT comes through the rings.
    pub idle: bool,
    /// Descriptors of a connection that outlives the server.
    pub kept: Option<Kept>,
    /// Threads look for requests before they sleep.
    pub looks: bool,
}

/// Descriptors of a connection that outlives the server. What was read through one of them is sent
/// again only if another process holds it too: so threads use these, and make no others.
pub(crate) struct Kept {
    /// Those that no thread uses. Threads beyond their number share the connection's own.
    pub clones: Mutex<Vec<OwnedFd>>,
    /// Stops the threads.
    pub pause: Pause,
}

/// A request that must wait, in memory of its own.
struct Apart {
    /// Descriptor through which it was read, and must be answered.
    device: Arc<OwnedFd>,
    request: Vec<u8>,
    /// Bytes that it needs with its reply.
    room: usize,
    unique: u64,
    /// It waits for the device; others are those that always may wait.
    at_device: bool,
}

/// State shared by the threads of a mount.
struct Server<S: Serve> {
    task: Task<S>,
    looking: Arc<Looking>,
    crew: Crew<Place, Apart>,
    waiting: Arc<Waiting>,
    threads: Threads,
}

/// Starts the threads that serve a mount.
pub(crate) fn start<S: Serve>(task: Task<S>, threads: &Threads) -> io::Result<()> {
    let places: io::Result<Vec<Place>> = (0..task.threads).map(|_| place(&task)).collect();
    let (count, crew) = (task.threads, Crew::new(places?));
    let waiting = task.rings.as_ref().map(Live::waiting).unwrap_or_default();
    let looking = Arc::new(Looking::new(task.looks));
    S::waits_by(&task.shared, &looking);
    let threads_of = threads.clone();
    let server = Arc::new(Server { task, looking, crew, waiting, threads: threads_of });
    tell_kernel(&server)?;
    for _ in 0..count {
        if let Err(error) = hire(&server) {
            // Threads that run already end with the connection, when the caller unmounts.
            server.crew.close();
            server.end();
            return Err(error);
        }
    }
    Ok(())
}

/// Makes a place.
fn place<S: Serve>(task: &Task<S>) -> io::Result<Place> {
    let main = &task.device;
    let device = match &task.kept {
        Some(kept) => kept.clones.lock().pop().map_or_else(|| main.try_clone(), Ok)?,
        None => clone(main.as_fd()).or_else(|error| {
            tracing::debug!(%error, "no cloned descriptor: sharing one");
            main.try_clone()
        })?,
    };
    let mut buffer = vec![0u8; task.max_write as usize + HEADROOM];
    if task.kept.is_some() {
        // All pages are there: if one had to be made while the process is killed, the kernel would
        // end the request that it copies there.
        buffer.fill(1);
    }
    Ok(Place::new(device, buffer))
}

impl<S: Serve> Server<S> {
    /// The connection has ended.
    fn end(&self) {
        self.waiting.close();
        self.looking.watch.close();
        S::ended(&self.task.shared);
        if let Some(notices) = S::notices(&self.task.shared) {
            notices.close();
        }
        if let Some(rings) = &self.task.rings {
            rings.end();
        }
    }

    /// Notes a request that must wait: it is answered when its caller is killed.
    fn set_apart(
        &self,
        device: &Arc<OwnedFd>,
        request: Vec<u8>,
        (room, at_device): (usize, bool),
    ) -> Apart {
        // It was parsed before.
        let header =
            InHeader::read_from_prefix(&request).map_or_else(|_| <_>::default(), |it| it.0);
        let InHeader { unique, pid, .. } = header;
        let by = device.clone();
        let release = move || {
            let head = OutHeader { len: OUT as u32, error: -Errno::EINTR.0, unique };
            // It may have been answered, or the mount be gone.
            let _ = send(by.as_fd(), head.as_bytes());
        };
        self.waiting.begin(unique, pid, Box::new(release), &self.threads);
        Apart { device: device.clone(), request, room, unique, at_device }
    }
}

/// Starts the threads that deliver notices to the kernel.
fn tell_kernel<S: Serve>(server: &Arc<Server<S>>) -> io::Result<()> {
    let Some(notices) = S::notices(&server.task.shared).cloned() else { return Ok(()) };
    let main = &server.task.device;
    notices.open(sender(main.try_clone()?));
    let start = |name, deliver: fn(&Notices, &notices::Send)| {
        let (notices, device) = (notices.clone(), main.try_clone()?);
        let deliver = move |device| deliver(&notices, &*sender(device));
        match server.task.kept {
            Some(_) => apart::start(&server.threads, name, device, deliver),
            None => server.threads.start(str::to_owned(name), move || deliver(device)),
        }
    };
    start("shoal-notices", Notices::deliver)?;
    start("shoal-pages", Notices::deliver_pages)
}

/// Returns a function that sends notices through `device`.
fn sender(device: OwnedFd) -> Box<notices::Send> {
    Box::new(move |message| match send(device.as_fd(), message) {
        // An entry that the kernel does not know need not be forgotten.
        Ok(()) | Err(Os::NOENT) => {}
        Err(error) => tracing::debug!(%error, code = message[4], "a notice was not taken"),
    })
}

/// Starts a thread.
fn hire<S: Serve>(server: &Arc<Server<S>>) -> io::Result<()> {
    let name = format!("{}{}", readers::NAME, server.threads.count());
    let inner = server.clone();
    server.threads.start(name, move || serve(&inner))
}

/// Runs a thread.
fn serve<S: Serve>(server: &Arc<Server<S>>) {
    let worker = S::new(server.task.shared.clone());
    let reading = server.task.kept.as_ref().map(|kept| kept.pause.join());
    let waiter = Waiter::new(&server.looking);
    let mut thread = Thread { server, worker, reading, waiter };
    loop {
        let next = match server.crew.next() {
            Work::Read(place) => thread.read(place),
            Work::Answer(apart) if thread.begin() => thread.wait(apart),
            Work::Answer(_) | Work::End => Next::Leave,
        };
        match next {
            Next::GoOn => {}
            Next::Leave => return,
            Next::End => break,
        }
    }
    if server.crew.close() {
        server.end();
    }
}

/// The next step of a thread.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    GoOn,
    /// It ends: it is not needed, or the next server gets what it has read.
    Leave,
    /// The mount is gone.
    End,
}

/// The outcome of a request.
enum Answered {
    Yes,
    /// The mount is gone.
    Gone,
    /// It must wait, and needs so many bytes for itself and its reply.
    Later {
        room: usize,
        at_device: bool,
    },
}

/// A thread of a mount.
struct Thread<'s, S: Serve> {
    server: &'s Arc<Server<S>>,
    worker: S,
    reading: Option<Reading>,
    waiter: Waiter,
}

impl<S: Serve> Thread<'_, S> {
    /// Notes that a request is in work. `false`: the next server gets it.
    #[inline]
    fn begin(&self) -> bool {
        self.reading.as_ref().is_none_or(Reading::begin)
    }

    #[inline]
    fn end(&self) {
        if let Some(reading) = &self.reading {
            reading.end();
        }
    }

    /// Reads requests and answers them, until it has given its place away.
    fn read(&mut self, mut place: Place) -> Next {
        loop {
            let filled = match self.waiter.next(&self.server.looking, &mut place) {
                Ok(filled) => filled,
                // A signal, or a request that was interrupted before it was read.
                Err(Os::INTR | Os::AGAIN | Os::NOENT) => continue,
                // Unmounted, or aborted, which some kernels tell by an error of its own.
                Err(Os::NODEV | Os::CONNABORTED) => return Next::End,
                Err(error) => {
                    tracing::error!(%error, "reading requests failed");
                    return Next::End;
                }
            };
            if !self.begin() {
                return Next::Leave;
            }
            relieve(self.server, self.server.crew.see_to());
            match self.answer(&place.device, &mut place.buffer, filled, false) {
                Answered::Yes => {}
                Answered::Gone => return Next::End,
                Answered::Later { room, at_device } => {
                    let (device, request) = (&place.device, place.buffer[..filled].to_vec());
                    let apart = self.server.set_apart(device, request, (room, at_device));
                    let crew = &self.server.crew;
                    let apart =
                        if at_device { crew.begin_device(apart, filled) } else { Some(apart) };
                    // Unless there are too many of them.
                    if let Some(apart) = apart {
                        self.server.looking.watch.relieve();
                        relieve(self.server, self.server.crew.give(place));
                        return self.wait(apart);
                    }
                }
            }
            self.end();
        }
    }

    /// Answers a request that must wait.
    #[cold]
    fn wait(&mut self, apart: Apart) -> Next {
        let Apart { device, request: mut buffer, room, unique, at_device } = apart;
        let filled = buffer.len();
        let mut next = Next::GoOn;
        // Else its caller was killed before.
        if self.server.waiting.is_waiting(unique) {
            buffer.resize(room.max(filled), 0);
            if let Answered::Gone = self.answer(&device, &mut buffer, filled, true) {
                next = Next::End;
            }
        }
        if at_device {
            self.server.crew.has_left_device();
        }
        self.end();
        next
    }

    /// Answers the request in the first `filled` bytes of `buffer`.
    #[inline]
    fn answer(
        &mut self,
        device: &Arc<OwnedFd>,
        buffer: &mut [u8],
        filled: usize,
        may_wait: bool,
    ) -> Answered {
        let (server, worker) = (self.server, &mut self.worker);
        let (mut request, start) = match Request::split(buffer, filled) {
            Ok(split) => split,
            Err(errno) => return refuse(device.as_fd(), buffer, filled, errno),
        };
        let (unique, op) = (request.header.unique, request.opcode);
        if op == Some(Opcode::Interrupt)
            && let Ok(interrupted) = request.arg()
        {
            server.waiting.interrupt(interrupted, &server.threads);
        }
        if may_wait {
            request.let_wait();
        } else if worker.may_block(&request) {
            return Answered::Later { room: start + request.reply_max(), at_device: false };
        }
        let reply = worker.handle(&mut request);
        let (len, error) = match reply {
            Reply::Silent => {
                if server.task.idle {
                    std::thread::sleep(PAUSE);
                }
                return Answered::Yes;
            }
            Reply::Later { device } => {
                return Answered::Later { room: start + request.reply_max(), at_device: device };
            }
            Reply::Body(len) => (len, 0),
            Reply::Error(errno) => (0, -errno.0),
        };
        // The reply's header goes right in front of its body, over the request.
        let head = OutHeader { len: (OUT + len) as u32, error, unique };
        buffer[start - OUT..start].copy_from_slice(head.as_bytes());
        let sent = match may_wait && !server.waiting.end(unique) {
            // Its caller is gone.
            true => Err(Os::NOENT),
            false => send(device.as_fd(), &buffer[start - OUT..start + len]),
        };
        worker.answered();
        let Err(os) = sent else { return Answered::Yes };
        worker.undo(op, &mut buffer[start..start + len]);
        not_sent(&head, os)
    }
}

/// Sends one reply.
#[inline]
fn send(fd: BorrowedFd<'_>, reply: &[u8]) -> Result<(), Os> {
    loop {
        match rustix::io::write(fd, reply) {
            Ok(_) => return Ok(()),
            Err(Os::INTR | Os::AGAIN) => {}
            Err(os) => return Err(os),
        }
    }
}

/// Starts a thread, if one is needed.
#[inline]
fn relieve<S: Serve>(server: &Arc<Server<S>>, relief: Relief) {
    if relief == Relief::Hire
        && let Err(error) = hire(server)
    {
        tracing::debug!(%error, "no further thread");
        server.crew.hire_failed();
    }
}

/// Handles a reply that did not reach its caller.
#[cold]
fn not_sent(head: &OutHeader, os: Os) -> Answered {
    match os {
        // Its caller is gone.
        Os::NOENT => Answered::Yes,
        Os::NODEV => Answered::Gone,
        // The kernel has refused the reply and told the caller EIO: our mistake.
        os => {
            tracing::error!(unique = head.unique, len = head.len, error = %os, "reply refused");
            Answered::Yes
        }
    }
}

/// Answers a malformed request, if it has a number.
#[cold]
fn refuse(fd: BorrowedFd<'_>, buffer: &[u8], filled: usize, errno: Errno) -> Answered {
    tracing::error!(bytes = filled, "malformed request");
    let request = buffer.get(..filled).unwrap_or_default();
    let Ok((header, _)) = InHeader::read_from_prefix(request) else { return Answered::Yes };
    if Opcode::from_number(header.opcode).is_some_and(Opcode::is_silent) {
        return Answered::Yes;
    }
    let head = OutHeader { len: OUT as u32, error: -errno.0, unique: header.unique };
    match send(fd, head.as_bytes()) {
        Err(Os::NODEV) => Answered::Gone,
        _ => Answered::Yes,
    }
}
