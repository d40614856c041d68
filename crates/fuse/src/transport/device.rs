//! The ordinary transport: one `read` of `/dev/fuse` is one request, one `write` is its reply.
//!
//! Several threads read, each through a descriptor of its own (a clone, with a queue of its own
//! for what it has read): a single one halves the throughput even for a single caller, since the
//! kernel can hand the next request over while the last reply is still being written.

use super::crew::{Crew, Relief};
use super::pause::Pause;
use super::uring::Live;
use super::{Threads, apart};
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
}

/// Descriptors of a connection that outlives the server. What was read through one of them is sent
/// again only if another process holds it too: so threads use these, and make no others.
pub(crate) struct Kept {
    /// Those that no thread uses. Threads beyond their number share the connection's own.
    pub clones: Mutex<Vec<OwnedFd>>,
    /// Stops the threads.
    pub pause: Pause,
}

/// State shared by the threads of a mount.
struct Server<S: Serve> {
    task: Task<S>,
    crew: Crew,
    threads: Threads,
}

/// Starts the threads that serve a mount.
pub(crate) fn start<S: Serve>(task: Task<S>, threads: &Threads) -> io::Result<()> {
    let (count, crew) = (task.threads, Crew::new(task.threads));
    let server = Arc::new(Server { task, crew, threads: threads.clone() });
    tell_kernel(&server)?;
    for _ in 0..count {
        if let Err(error) = hire(&server, false) {
            // Threads that run already end with the connection, when the caller unmounts.
            server.crew.close();
            server.end();
            return Err(error);
        }
    }
    Ok(())
}

impl<S: Serve> Server<S> {
    /// The connection has ended.
    fn end(&self) {
        S::ended(&self.task.shared);
        if let Some(notices) = S::notices(&self.task.shared) {
            notices.close();
        }
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
fn hire<S: Serve>(server: &Arc<Server<S>>, spare: bool) -> io::Result<()> {
    let main = &server.task.device;
    let fd = match &server.task.kept {
        Some(kept) => kept.clones.lock().pop().map_or_else(|| main.try_clone(), Ok)?,
        None => clone(main.as_fd()).or_else(|error| {
            tracing::debug!(%error, "no cloned descriptor: sharing one");
            main.try_clone()
        })?,
    };
    let name = format!("shoal-fuse-{}", server.threads.count());
    let inner = server.clone();
    server.threads.start(name, move || serve(&inner, &fd, spare))
}

/// Runs a thread.
fn serve<S: Serve>(server: &Arc<Server<S>>, fd: &OwnedFd, spare: bool) {
    let mut buffer = vec![0u8; server.task.max_write as usize + HEADROOM];
    let kept = server.task.kept.as_ref();
    let reading = kept.map(|kept| kept.pause.join());
    if kept.is_some() {
        // All pages are there: if one had to be made while the process is killed, the kernel would
        // end the request that it copies there.
        buffer.fill(1);
    }
    let mut worker = S::new(server.task.shared.clone());
    while !spare || server.crew.rest() {
        let filled = match rustix::io::read(fd, &mut buffer[..]) {
            Ok(filled) => filled,
            // A signal, or a request that was interrupted before it was read.
            Err(Os::INTR | Os::AGAIN | Os::NOENT) => continue,
            // Unmounted, or aborted, which some kernels tell by an error of its own.
            Err(Os::NODEV | Os::CONNABORTED) => break,
            Err(error) => {
                tracing::error!(%error, "reading requests failed");
                break;
            }
        };
        if reading.as_ref().is_some_and(|reading| !reading.begin()) {
            // The next server gets the request. The connection goes on.
            return;
        }
        let goes_on = serve_one(server, fd.as_fd(), &mut worker, &mut buffer, filled);
        if let Some(reading) = &reading {
            reading.end();
        }
        if !goes_on {
            break;
        }
    }
    server.crew.close();
    server.end();
    if let Some(rings) = &server.task.rings {
        rings.end();
    }
}

/// Answers the request in the first `filled` bytes of `buffer`; `false` when the mount is gone.
#[inline]
fn serve_one<S: Serve>(
    server: &Arc<Server<S>>,
    fd: BorrowedFd<'_>,
    worker: &mut S,
    buffer: &mut [u8],
    filled: usize,
) -> bool {
    let (mut request, start) = match Request::split(buffer, filled) {
        Ok(split) => split,
        Err(errno) => return refuse(fd, buffer, filled, errno),
    };
    let (unique, op) = (request.header.unique, request.opcode);
    let blocks = worker.may_block(&request);
    if blocks {
        relieve(server);
        request.let_wait();
    }
    let reply = worker.handle(&mut request);
    if blocks {
        server.crew.step_in();
    }
    let (len, error) = match reply {
        Reply::Silent => {
            if server.task.idle {
                std::thread::sleep(PAUSE);
            }
            return true;
        }
        Reply::Body(len) => (len, 0),
        Reply::Error(errno) => (0, -errno.0),
    };
    // The reply's header goes right in front of its body, over the request.
    let head = OutHeader { len: (OUT + len) as u32, error, unique };
    buffer[start - OUT..start].copy_from_slice(head.as_bytes());
    let sent = send(fd, &buffer[start - OUT..start + len]);
    worker.answered();
    let Err(os) = sent else { return true };
    worker.undo(op, &mut buffer[start..start + len]);
    not_sent(&head, os)
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

/// Makes sure that another thread serves while this one blocks.
fn relieve<S: Serve>(server: &Arc<Server<S>>) {
    if server.crew.step_out() == Relief::Hire
        && let Err(error) = hire(server, true)
    {
        tracing::debug!(%error, "no spare thread");
        server.crew.hire_failed();
    }
}

/// Handles a reply that did not reach its caller. `false` when the mount is gone.
#[cold]
fn not_sent(head: &OutHeader, os: Os) -> bool {
    match os {
        // Its caller is gone.
        Os::NOENT => true,
        Os::NODEV => false,
        // The kernel has refused the reply and told the caller EIO: our mistake.
        os => {
            tracing::error!(unique = head.unique, len = head.len, error = %os, "reply refused");
            true
        }
    }
}

/// Answers a malformed request, if it has a number.
#[cold]
fn refuse(fd: BorrowedFd<'_>, buffer: &[u8], filled: usize, errno: Errno) -> bool {
    tracing::error!(bytes = filled, "malformed request");
    let request = buffer.get(..filled).unwrap_or_default();
    let Ok((header, _)) = InHeader::read_from_prefix(request) else { return true };
    if Opcode::from_number(header.opcode).is_some_and(Opcode::is_silent) {
        return true;
    }
    let head = OutHeader { len: OUT as u32, error: -errno.0, unique: header.unique };
    !matches!(send(fd, head.as_bytes()), Err(Os::NODEV))
}
