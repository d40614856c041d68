//! The server's end: who may connect, and the threads that look for questions and answer them.
//!
//! *Waiting.* To wake a processor that has halted takes ten times as long as an answer. So a thread
//! that has answered a question looks for the next one before it sleeps, first alone and then
//! letting others run, and so does the client for its answer. When nothing comes, both sleep. There
//! is a thread for each of the first processors, bound to it: a client that finds the server asleep
//! rings the bell of the thread on its own processor, and lets it run there.
//!
//! *Turns.* A thread looks at its sessions in turn and answers one question of each. It never waits
//! for the device or for another thread: a call that would is made again by a thread that may
//! ([`at_once`](shoal_engine::at_once)), as on a mount. So nobody's call is behind another's that
//! waits. While several sessions ask it, it lets others run after a few questions: the client of
//! one may wait for this processor with its answer there. Parts of listings are shorter then.
//!
//! *Death.* A client that dies closes its socket, and all that it had open is given back. A client
//! that finds its server dead learns it from the same socket.
//!
//! *The next server* of a volume with a keeper finds what the sessions of the dead one had
//! ([`Restored`]), holds it, and waits for their clients: each as long as its process lives and has
//! the session's memory, or for ten minutes if that cannot be seen.

use crate::calls::{Calls, Node};
use crate::connect::ATTACH_MAX;
use crate::hello::{self, BELLS_MAX, Ticket};
use crate::kept::{Asked, Found, KeptSessions, Slot, parse};
use crate::memory::Memory;
use crate::nodes::{Nodes, release};
use crate::peer::{Peer, groups_of, peer_of};
use crate::serve::{Host, serve_beside};
use crate::served::{Before, Looked, Served, Whose, Work};
use crate::waiting::Wait;
use parking_lot::{Condvar, Mutex, RwLock};
use rustix::event::{EventfdFlags, Timespec, epoll};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::thread::CpuSet;
use shoal_base::{Code, Error, Result};
use shoal_engine::{Caller, Generation, Ino, Left};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::os::fd::{AsFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Sessions of one user who is not the volume's owner, and of all.
const OF_USER_MAX: usize = 1024;
const SESSIONS_MAX: usize = 8192;
/// Time for which a thread looks for the next question before it lets others run, and in all.
const LOOK: Duration = Duration::from_micros(5);
const YIELD: Duration = Duration::from_micros(80);
/// A thread that is busy looks this often for sessions that ring.
const HEAR: Duration = Duration::from_micros(20);
/// Threads that close what one user has sent, at most.
const CLOSING_MAX: usize = 4;
/// Connections that have not said what they want, at most.
const PENDING_MAX: usize = 256;
/// Threads that may wait, at most, and how long one without work stays.
const CREW_MAX: usize = 1024;
const CREW_STAYS: Duration = Duration::from_secs(10);
/// Rounds of looking between two looks at the clock, and before others are let run while several
/// sessions ask.
const LOOKS: usize = 16;
const TURN_LOOKS: usize = 4;
const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
/// Questions in a row before which a thread has let others run, from which on another thread is to
/// look for the rest: on its processor may be room. Doubled each time, up to the second one.
const HANDED_OVER: u32 = 32;
const HANDED_OVER_MAX: u32 = 1 << 14;
/// Longest wait for calls under way, when the server ends.
const END_MAX: Duration = Duration::from_secs(10);
/// Data of events that are of no session.
const LISTENER: u64 = u64::MAX;
const END: u64 = u64::MAX - 1;
/// Set in the number of a session of a server before this one, in the data of an event.
const DORMANT: u64 = 1 << 63;
/// A client that does not come is looked at after the first time, and then each time after twice as
/// long, up to the second one: it may have closed its session while there was no server.
const LOOK_AFTER: Duration = Duration::from_secs(1);
const LOOK_AFTER_MAX: Duration = Duration::from_mins(1);
/// Time for which a session is kept whose client has not come, and whose process cannot be seen:
/// one that makes a call looks for the server for [`ATTACH_MAX`].
const UNSEEN_MAX: Duration = Duration::from_mins(10);
const _: () = assert!(UNSEEN_MAX.as_secs() > 2 * ATTACH_MAX.as_secs());

/// A server of sessions, until it is dropped.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    /// The socket's file is this server's to remove.
    path: PathBuf,
}

/// The sessions of a server before this one. What they have open is held, and must be given back
/// if no server goes on with them ([`Restored::give_back`]).
#[derive(Debug)]
#[must_use = "what sessions have open is held"]
pub struct Restored {
    kept: Arc<KeptSessions>,
    sessions: Vec<Dormant>,
}

/// A session whose client has not come yet.
#[derive(Debug)]
struct Dormant {
    slot: Arc<Slot>,
    nodes: Nodes,
    calls: Vec<(Asked, u8, Left)>,
    /// Readable when its process has ended; `None`: that cannot be seen.
    process: Option<OwnedFd>,
}

impl Restored {
    /// For a volume whose sessions begin with this server.
    pub fn none(kept: Arc<KeptSessions>) -> Restored {
        Restored { kept, sessions: Vec::new() }
    }

    /// Finds the sessions that a server before this one has left. `hold` takes a reference to an
    /// inode of a generation, or fails if there is none: to be done before anything can be freed.
    pub fn find(
        kept: Arc<KeptSessions>,
        calls: &dyn Calls,
        hold: &dyn Fn(Ino, Generation) -> Result<Node>,
    ) -> Restored {
        let mut noted: HashMap<u32, Vec<(Asked, u8, Left)>> = HashMap::new();
        for left in kept.ring().calls_left() {
            if let Some((slot, asked, step)) = parse(left.unique) {
                noted.entry(slot).or_default().push((asked, step, left));
            }
        }
        let restore = |(slot, chunks): Found| {
            let (nodes, closing) = Nodes::restored(slot.clone(), &chunks, hold);
            closing.into_iter().for_each(|open| release(calls, open));
            let calls = noted.remove(&slot.number()).unwrap_or_default();
            let process = process_of(slot.peer(), slot.begun());
            Dormant { slot, nodes, calls, process }
        };
        let sessions = kept.find().into_iter().map(restore).collect();
        // Of sessions that have ended.
        noted.into_values().flatten().for_each(|(_, _, left)| left.answered());
        Restored { kept, sessions }
    }

    /// Ends all of them.
    pub fn give_back(self, calls: &dyn Calls) {
        self.sessions.into_iter().for_each(|session| session.give_back(calls));
    }
}

/// Opens a process that has the number of a peer and began when that did. If it has ended since,
/// the result is of another process or of none, and says that the peer is gone.
fn process_of(peer: Peer, begun: u64) -> Option<OwnedFd> {
    let pid = rustix::process::Pid::from_raw(peer.pid.cast_signed())?;
    if begun == 0 {
        return None;
    }
    let opened = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty());
    // After it has been opened: it is the same process as long as it is there.
    match opened {
        Ok(process) if peer.begun() == begun => Some(process),
        Ok(_) | Err(rustix::io::Errno::SRCH) => ended_process(),
        Err(_) => None,
    }
}

/// A descriptor that is readable, as that of a process that has ended.
fn ended_process() -> Option<OwnedFd> {
    rustix::event::eventfd(1, EventfdFlags::CLOEXEC).ok()
}

impl Dormant {
    fn give_back(self, calls: &dyn Calls) {
        self.calls.into_iter().for_each(|(_, _, left)| left.answered());
        self.nodes.close_all(calls);
    }
}

struct Shared {
    host: Arc<dyn Host>,
    /// Memory for the next server.
    kept: Option<Arc<KeptSessions>>,
    /// Sessions of the server before this one whose clients have not come yet, by their slots.
    dormant: Mutex<HashMap<u32, Dormant>>,
    sessions: RwLock<HashMap<u64, Arc<Served>>>,
    next: AtomicU64,
    lookers: Vec<Looker>,
    crew: Arc<Crew>,
    /// Events of the thread that accepts connections.
    door: OwnedFd,
    /// Wakes that thread.
    end: OwnedFd,
    /// Sessions at most.
    sessions_max: usize,
    /// By user, threads that close descriptors which no session can have.
    closing: Arc<Mutex<HashMap<u32, usize>>>,
    ended: AtomicBool,
    /// Another server goes on.
    leaves: AtomicBool,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Shared({} sessions)", self.sessions.read().len())
    }
}

/// A thread that looks for questions.
struct Looker {
    events: OwnedFd,
    /// Wakes it to look after its sessions, of which some have gone, or to end.
    bell: OwnedFd,
    /// It looks for questions of some session.
    is_busy: AtomicBool,
}

fn failed(what: &str, error: impl std::fmt::Display) -> Error {
    Error::refused(Code::Io, format!("sessions are not served: {what}: {error}"))
}

fn bell() -> Result<OwnedFd> {
    let made = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
    made.map_err(|e| failed("no bell", e))
}

fn ring(bell: &OwnedFd) {
    // A bell that is full has been rung.
    let _ = rustix::io::write(bell, &hello::RING);
}

fn hear(bell: &OwnedFd) {
    // One that nobody has rung says so.
    let _ = rustix::io::read(bell, &mut [0; 8]);
}

fn watch(events: &OwnedFd, of: impl AsFd, id: u64, flags: epoll::EventFlags) -> Result<()> {
    let data = epoll::EventData::new_u64(id);
    epoll::add(events, of, data, flags).map_err(|e| failed("no events", e))
}

impl Server {
    /// Serves sessions at a socket, which is made; one that nobody serves any more is replaced.
    ///
    /// # Errors
    /// `EBUSY` if another process serves there; those of making a socket.
    pub fn start(path: &Path, host: Arc<dyn Host>) -> Result<Server> {
        Server::begin(path, host, (None, Vec::new())).map_err(|(error, _)| error)
    }

    /// As [`Server::start`], for sessions that outlive their server. Those that a server before
    /// this one has left go on.
    ///
    /// # Errors
    /// As [`Server::start`]; the sessions have been given back then.
    pub fn keep(path: &Path, host: Arc<dyn Host>, restored: Restored) -> Result<Server> {
        let Restored { kept, sessions } = restored;
        let begun = Server::begin(path, host.clone(), (Some(kept), sessions));
        begun.map_err(|(error, sessions)| {
            sessions.into_iter().for_each(|session| session.give_back(host.calls()));
            error
        })
    }

    fn begin(
        path: &Path,
        host: Arc<dyn Host>,
        (kept, sessions): (Option<Arc<KeptSessions>>, Vec<Dormant>),
    ) -> Result<Server, (Error, Vec<Dormant>)> {
        let (listener, shared) = match Shared::new(path, host, kept) {
            Ok(made) => made,
            Err(error) => return Err((error, sessions)),
        };
        let mut server = Server { shared, threads: Vec::new(), path: path.to_owned() };
        if let Some(kept) = &server.shared.kept {
            let (shown, first) = kept.shown();
            let shown = shown.clone();
            server.shared.host.tell_states(first, Box::new(move |number| shown.raise(number)));
        }
        // From here on they end with the server.
        let by_slot = sessions.into_iter().map(|session| (session.slot.number(), session));
        *server.shared.dormant.lock() = by_slot.collect();
        server.run(listener).map_err(|error| (error, Vec::new()))?;
        Ok(server)
    }

    fn run(&mut self, listener: OwnedFd) -> Result<()> {
        let shared = self.shared.clone();
        for number in 0..shared.lookers.len() {
            let shared = shared.clone();
            self.spawn(format!("shoal-look-{number}"), move || shared.look(number))?;
        }
        self.spawn("shoal-door".to_owned(), move || {
            if let Err(error) = shared.accept(&listener) {
                tracing::error!(%error, "no more sessions are accepted");
            }
        })
    }

    /// Ends this server so that another one can go on with its sessions: calls in work are
    /// answered, and nothing is given back. Sessions that do not outlive their server end.
    pub fn leave(self) {
        if let Some(kept) = &self.shared.kept {
            self.shared.leaves.store(true, Ordering::SeqCst);
            tracing::debug!(?kept, "sessions are left to the next server");
        }
    }
}

impl Shared {
    fn new(
        path: &Path,
        host: Arc<dyn Host>,
        kept: Option<Arc<KeptSessions>>,
    ) -> Result<(OwnedFd, Arc<Shared>)> {
        let listener = listen(path)?;
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let lookers = (0..processors.min(BELLS_MAX)).map(|_| {
            let events = epoll::create(epoll::CreateFlags::CLOEXEC);
            let events = events.map_err(|e| failed("no events", e))?;
            let bell = bell()?;
            watch(&events, &bell, END, epoll::EventFlags::IN)?;
            Ok(Looker { events, bell, is_busy: AtomicBool::new(false) })
        });
        let shared = Arc::new(Shared {
            host,
            kept,
            dormant: Mutex::default(),
            leaves: AtomicBool::new(false),
            sessions: RwLock::default(),
            next: AtomicU64::new(0),
            lookers: lookers.collect::<Result<_>>()?,
            crew: Arc::new(Crew {
                processors: rustix::thread::sched_getaffinity(None).ok(),
                ..Crew::default()
            }),
            door: epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|e| failed("no events", e))?,
            end: bell()?,
            sessions_max: sessions_max(processors.min(BELLS_MAX)),
            closing: Arc::default(),
            ended: AtomicBool::new(false),
        });
        Ok((listener, shared))
    }
}

impl Server {
    fn spawn(&mut self, name: String, work: impl FnOnce() + Send + 'static) -> Result<()> {
        let thread = std::thread::Builder::new().name(name).spawn(work);
        self.threads.push(thread.map_err(|e| failed("no thread", e))?);
        Ok(())
    }

    /// Number of sessions.
    pub fn sessions(&self) -> usize {
        self.shared.sessions.read().len()
    }

    /// The place of the socket.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        let _ = std::fs::remove_file(&self.path);
        ring(&self.shared.end);
        self.shared.lookers.iter().for_each(|looker| ring(&looker.bell));
        for thread in self.threads.drain(..) {
            // One that has panicked has said so.
            let _ = thread.join();
        }
        self.shared.sessions.read().values().for_each(|session| session.stop());
        let leaves = self.shared.leaves.load(Ordering::SeqCst);
        self.shared.crew.end();
        if let Some(kept) = self.shared.kept.as_ref().filter(|_| leaves) {
            kept.leave();
        }
        let dormant = std::mem::take(&mut *self.shared.dormant.lock());
        if !leaves {
            let calls = self.shared.host.calls();
            dormant.into_values().for_each(|session| session.give_back(calls));
        }
        let sessions = std::mem::take(&mut *self.shared.sessions.write());
        for session in sessions.into_values() {
            if !leaves {
                session.say_end();
            }
            // Its client learns it also if a call that hangs keeps the session.
            let _ = rustix::net::shutdown(&session.socket, rustix::net::Shutdown::Both);
        }
    }
}

/// Returns how many sessions there may be: their descriptors are at most half of those that this
/// process may have.
fn sessions_max(bells: usize) -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let descriptors = limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX);
    (descriptors / 2 / (bells + 1)).clamp(2, SESSIONS_MAX)
}

/// Makes a secret; `None`: the system has no random bytes.
fn secret() -> Option<[u64; 2]> {
    let mut bytes = [0; 16];
    let read = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    let (words, _) = bytes.as_chunks::<8>();
    let secret = [u64::from_le_bytes(words[0]), u64::from_le_bytes(words[1])];
    (read == Ok(bytes.len())).then_some(secret)
}

/// Makes the socket.
fn listen(path: &Path) -> Result<OwnedFd> {
    let at = |what: &str, e: rustix::io::Errno| failed(&format!("{what} {}", path.display()), e);
    let address = SocketAddrUnix::new(path).map_err(|e| at("name of socket", e))?;
    let socket = || {
        let kind = SocketType::SEQPACKET;
        rustix::net::socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)
    };
    let probe = socket().map_err(|e| at("socket", e))?;
    match rustix::net::connect(&probe, &address) {
        Ok(()) => {
            let message = format!("another process serves sessions at {}", path.display());
            return Err(Error::refused(Code::Busy, message));
        }
        Err(rustix::io::Errno::CONNREFUSED) => {
            std::fs::remove_file(path).map_err(|e| failed("a stale socket stays", e))?;
        }
        Err(_) => {}
    }
    let listener = socket().map_err(|e| at("socket", e))?;
    rustix::net::bind(&listener, &address).map_err(|e| at("socket", e))?;
    // Who may enter is decided by user, not by the file's permissions.
    let everybody = rustix::fs::Mode::from_raw_mode(0o666);
    rustix::fs::chmod(path, everybody).map_err(|e| at("permissions of socket", e))?;
    rustix::net::listen(&listener, 1024).map_err(|e| at("socket", e))?;
    Ok(listener)
}

/// Connections.
impl Shared {
    /// Accepts connections, and ends the sessions of clients that have gone.
    fn accept(self: &Arc<Self>, listener: &OwnedFd) -> Result<()> {
        watch(&self.door, listener, LISTENER, epoll::EventFlags::IN)?;
        watch(&self.door, &self.end, END, epoll::EventFlags::IN)?;
        let mut found = Vec::with_capacity(64);
        // Connections whose question has not come. The oldest goes when there are too many.
        let mut pending: BTreeMap<u64, OwnedFd> = BTreeMap::new();
        let (begun, mut look) = (Instant::now(), (Instant::now() + LOOK_AFTER, LOOK_AFTER));
        self.watch_dormant()?;
        while !self.ended.load(Ordering::SeqCst) {
            found.clear();
            let at_most = self.look_after(begun, &mut look);
            let space = rustix::buffer::spare_capacity(&mut found);
            match epoll::wait(&self.door, space, at_most.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(failed("no events", e)),
            }
            for event in &found {
                match event.data.u64() {
                    END => {}
                    LISTENER => self.connected(listener, &mut pending),
                    id if id & DORMANT != 0 => self.give_up((id & !DORMANT) as u32),
                    id => match pending.remove(&id) {
                        Some(socket) => {
                            if let Err(error) = self.welcome(id, socket) {
                                tracing::info!(%error, "a session was refused");
                            }
                        }
                        None => self.farewell(id),
                    },
                }
            }
        }
        Ok(())
    }

    /// Watches the processes of sessions whose clients have not come yet.
    fn watch_dormant(&self) -> Result<()> {
        for (slot, session) in &*self.dormant.lock() {
            if let Some(process) = &session.process {
                let id = DORMANT | u64::from(*slot);
                watch(&self.door, process, id, epoll::EventFlags::IN)?;
            }
        }
        Ok(())
    }

    /// Gives up sessions whose clients will not come. `look`: when, and after how long, to look at
    /// them. Returns how long to wait until the next time.
    fn look_after(&self, begun: Instant, look: &mut (Instant, Duration)) -> Option<Timespec> {
        let now = Instant::now();
        if now >= look.0 {
            let is_over = |session: &Dormant| match session.process {
                Some(_) => !Memory::is_in(session.slot.peer().pid, session.slot.memory()),
                None => now - begun >= UNSEEN_MAX,
            };
            let over: Vec<u32> = {
                let dormant = self.dormant.lock();
                dormant.iter().filter(|(_, it)| is_over(it)).map(|(slot, _)| *slot).collect()
            };
            over.into_iter().for_each(|slot| self.give_up(slot));
            look.1 = (look.1 * 2).min(LOOK_AFTER_MAX);
            look.0 = now + look.1;
        }
        if self.dormant.lock().is_empty() {
            return None;
        }
        let left = look.0.saturating_duration_since(now);
        let tv_sec = i64::try_from(left.as_secs()).unwrap_or(i64::MAX);
        Some(Timespec { tv_sec, tv_nsec: left.subsec_nanos().into() })
    }

    /// Ends a session whose client will not come.
    fn give_up(&self, slot: u32) {
        let Some(session) = self.dormant.lock().remove(&slot) else { return };
        let peer = session.slot.peer();
        tracing::info!(pid = peer.pid, uid = peer.uid, "a session's client has not come again");
        // Others would wait while all that it had open is closed.
        self.crew.give(Job::GiveUp(session, self.host.clone()));
    }

    /// A client has connected: its question is waited for.
    fn connected(&self, listener: &OwnedFd, pending: &mut BTreeMap<u64, OwnedFd>) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let accepted = rustix::net::accept_with(listener, flags);
        let watched = accepted.map_err(|e| failed("a connection", e)).and_then(|socket| {
            let flags = epoll::EventFlags::IN | epoll::EventFlags::RDHUP;
            watch(&self.door, &socket, id, flags).map(|()| socket)
        });
        match watched {
            Ok(socket) => {
                pending.insert(id, socket);
                if pending.len() > PENDING_MAX {
                    pending.pop_first();
                }
            }
            Err(error) => {
                tracing::warn!(%error, "a session was not accepted");
                // Without descriptors the connection stays, and is reported again at once.
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }

    /// Begins a session, or goes on with one.
    fn welcome(self: &Arc<Self>, id: u64, socket: OwnedFd) -> Result<()> {
        let ((memory, ino), ticket, whose) = match self.admit(&socket) {
            Ok(admitted) => admitted,
            Err(error) => return self.refuse(&socket, error),
        };
        let volume = self.host.calls().volume_id(&Caller::root())?;
        let bells: Vec<OwnedFd> = self.lookers.iter().map(|_| bell()).collect::<Result<_>>()?;
        let (before, ticket) = match self.before(whose.0, ticket) {
            Ok(before) => before,
            Err(error) => return self.refuse(&socket, error),
        };
        before.slot.iter().for_each(|slot| slot.set_memory(ino));
        let parts = (socket, memory, bells);
        let session = Arc::new(Served::new(self.host.clone(), whose, parts, before));
        // What was noted before comes first: the numbers of its nodes are used again.
        session.close();
        for (looker, bell) in self.lookers.iter().zip(&session.bells) {
            // Each ring is told once, and the bell is never read: a client may make that wait.
            let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
            watch(&looker.events, bell, id, flags)?;
        }
        self.sessions.write().insert(id, session.clone());
        let data = epoll::EventData::new_u64(id);
        let flags = epoll::EventFlags::RDHUP | epoll::EventFlags::HUP;
        let watched = epoll::modify(&self.door, &session.socket, data, flags);
        let bells: Vec<_> = session.bells.iter().map(AsFd::as_fd).collect();
        let with = session.slot().map(|slot| [slot.kept().life(), slot.kept().state()]);
        let told = watched.and_then(|()| {
            let kept = ticket.zip(with);
            hello::answer(&session.socket, Ok((volume, self.host.device(), &bells, kept)))
        });
        if told.is_err() {
            self.farewell(id);
        }
        told.map_err(|e| failed("a connection", e))
    }

    /// Tells a client why it has no session.
    fn refuse(&self, socket: &OwnedFd, error: Error) -> Result<()> {
        // What has not been taken is thrown away, and its descriptors with it: closed with it, the
        // socket would lose the reason.
        let flags = rustix::net::RecvFlags::DONTWAIT;
        let _ = rustix::net::recv(socket, &mut [0u8; 16], flags);
        // A client that has gone needs no reason.
        let _ = hello::answer(socket, Err(&error));
        Err(error)
    }

    /// Finds what a session has from servers before this one, and its ticket for the next.
    fn before(&self, peer: Peer, ticket: Option<Ticket>) -> Result<(Before, Option<Ticket>)> {
        let Some(ticket) = ticket else { return Ok(self.place(peer)) };
        let mut dormant = self.dormant.lock();
        let is_its = |session: &Dormant| session.slot.is_of(peer, ticket.secret);
        if !dormant.get(&ticket.slot).is_some_and(is_its) {
            let message = "this server has no session of this ticket and process: connect anew";
            return Err(Error::refused(Code::Stale, message));
        }
        let found = dormant.remove(&ticket.slot).ok_or(Code::Stale)?;
        drop(dormant);
        if let Some(process) = &found.process {
            let _ = epoll::delete(&self.door, process);
        }
        found.slot.attach();
        let Dormant { slot, nodes, calls, .. } = found;
        Ok((Before { slot: Some(slot), nodes, calls }, Some(ticket)))
    }

    /// Finds a place for a new session in memory that outlives the server. Without one, it ends
    /// with this server.
    fn place(&self, peer: Peer) -> (Before, Option<Ticket>) {
        let place = self.kept.as_ref().and_then(|kept| {
            let secret = secret()?;
            Some((kept.claim(peer, secret)?, secret))
        });
        let Some((slot, secret)) = place else { return (Before::default(), None) };
        let ticket = Ticket { slot: slot.number(), secret };
        let nodes = Nodes::kept(slot.clone());
        (Before { slot: Some(slot), nodes, calls: Vec::new() }, Some(ticket))
    }

    /// Decides who may have a session.
    fn admit(&self, socket: &OwnedFd) -> Result<((Memory, u64), Option<Ticket>, Whose)> {
        let peer = peer_of(socket).map_err(|e| failed("who has connected", e))?;
        let groups = groups_of(socket).map_err(|e| failed("who has connected", e))?;
        // Before anything is taken that the client has sent.
        if !self.host.may_enter(peer.uid) {
            let message = format!(
                "user {} may not enter this volume (mount it with -o allow_other, or serve it with \
                 --allow-other)",
                peer.uid
            );
            return Err(Error::refused(Code::Access, message));
        }
        if peer.uid == 0 && !peer.has_rights_of_superuser() {
            let message = "user 0 without the superuser's capabilities gets no session: use the \
                           mount";
            return Err(Error::refused(Code::NotPermitted, message));
        }
        let of_user = {
            let sessions = self.sessions.read();
            let of_user = || sessions.values().filter(|it| it.peer.uid == peer.uid);
            let of_user_max = OF_USER_MAX.min(self.sessions_max / 2);
            let is_full = sessions.len() >= self.sessions_max;
            if is_full || !peer.is_trusted() && of_user().count() >= of_user_max {
                let message = format!("user {} has too many sessions: close some", peer.uid);
                return Err(Error::refused(Code::Again, message));
            }
            of_user().next().map(|other| other.of_user.clone()).unwrap_or_default()
        };
        let (memory, ticket) = self.memory_of(socket, peer.uid)?;
        Ok((memory, ticket, (peer, groups, of_user)))
    }

    /// Takes the memory of a client.
    fn memory_of(&self, socket: &OwnedFd, uid: u32) -> Result<((Memory, u64), Option<Ticket>)> {
        if self.closing.lock().get(&uid).is_some_and(|threads| *threads >= CLOSING_MAX) {
            let message = format!("what user {uid} has sent before is still being closed");
            return Err(Error::refused(Code::Again, message));
        }
        let mut others = Vec::new();
        let memory = hello::take(socket, &mut others).and_then(|(file, ticket)| {
            let memory = Memory::of_client(file.as_fd()).map(|memory| (memory, ticket));
            // That of a session is closed without waiting for anybody.
            if memory.is_err() {
                others.push(file);
            }
            memory
        });
        if !others.is_empty() {
            self.close_apart(uid, others);
        }
        memory
    }

    /// Closes descriptors that a client has sent: it takes as long as their filesystem likes, which
    /// may be the client's own.
    fn close_apart(&self, uid: u32, files: Vec<OwnedFd>) {
        *self.closing.lock().entry(uid).or_default() += 1;
        let closing = self.closing.clone();
        let close = move || {
            drop(files);
            let mut closing = closing.lock();
            if let Some(threads) = closing.get_mut(&uid) {
                *threads -= 1;
                if *threads == 0 {
                    closing.remove(&uid);
                }
            }
        };
        if let Err(error) = std::thread::Builder::new().name("shoal-close".to_owned()).spawn(close)
        {
            // They have been closed here; the user may send no more of them than others.
            tracing::warn!(%error, "descriptors of a client were closed by the door's thread");
        }
    }

    /// Ends a session.
    fn farewell(&self, id: u64) {
        let Some(session) = self.sessions.write().remove(&id) else { return };
        session.gone.store(true, Ordering::SeqCst);
        // Its end would be told again and again, as long as a call keeps the session.
        let _ = epoll::delete(&self.door, &session.socket);
        session.stop();
        for (looker, bell) in self.lookers.iter().zip(&session.bells) {
            // The client may have given its bells to another process: they would stay.
            let _ = epoll::delete(&looker.events, bell);
        }
        // Whoever looks for its questions lets it go.
        let watcher = session.watcher.load(Ordering::SeqCst);
        if let Some(looker) = watcher.checked_sub(1).and_then(|at| self.lookers.get(at as usize)) {
            ring(&looker.bell);
        }
    }
}

/// Looking for questions.
impl Shared {
    fn look(self: &Arc<Self>, number: usize) {
        self.bind(number);
        let mut mine: Vec<Arc<Served>> = Vec::new();
        let mut memory = (Vec::new(), Vec::new());
        let mut found = Vec::with_capacity(64);
        while !self.ended.load(Ordering::SeqCst) {
            self.answer(number, &mut mine, &mut memory, &mut found);
            self.forget(&mut mine);
            // Nothing has come for a while.
            mine.retain(|session| session.watch().stays(number as u32));
            self.lookers[number].is_busy.store(!mine.is_empty(), Ordering::Relaxed);
            // A session that always has a question, or says so, hides no bell.
            let at_most = if mine.is_empty() { None } else { Some(&AT_ONCE) };
            if !self.hear(number, at_most, &mut mine, &mut found) {
                break;
            }
        }
        for session in mine {
            session.door().leave();
        }
    }

    /// Lets go of sessions whose clients have gone. All that they had open is closed elsewhere:
    /// others would wait.
    fn forget(&self, mine: &mut Vec<Arc<Served>>) {
        let mut at = 0;
        while at < mine.len() {
            if mine[at].gone.load(Ordering::SeqCst) {
                self.crew.give(Job::Session(mine.swap_remove(at), Work::Forget));
            } else {
                at += 1;
            }
        }
    }

    /// Takes the sessions that ring, and waits for one at most `at_most`, or as long as it takes.
    /// Returns `false` if there is no hearing any more.
    fn hear(
        &self,
        number: usize,
        at_most: Option<&Timespec>,
        mine: &mut Vec<Arc<Served>>,
        found: &mut Vec<epoll::Event>,
    ) -> bool {
        let looker = &self.lookers[number];
        found.clear();
        let space = rustix::buffer::spare_capacity(found);
        if let Err(e) = epoll::wait(&looker.events, space, at_most)
            && e != rustix::io::Errno::INTR
        {
            tracing::error!(error = %e, "a thread of sessions hears nothing any more");
            return false;
        }
        for event in &*found {
            match event.data.u64() {
                END => hear(&looker.bell),
                id => self.called(number, id, mine),
            }
        }
        true
    }

    /// A client has rung: its questions are looked for from now on.
    fn called(&self, number: usize, id: u64, mine: &mut Vec<Arc<Served>>) {
        let Some(session) = self.sessions.read().get(&id).cloned() else { return };
        if session.watch().come(number as u32) {
            mine.push(session);
            self.lookers[number].is_busy.store(true, Ordering::Relaxed);
        }
    }

    /// Answers questions, as long as some come.
    fn answer(
        self: &Arc<Self>,
        number: usize,
        mine: &mut Vec<Arc<Served>>,
        memory: &mut (Vec<u8>, Vec<u8>),
        found: &mut Vec<epoll::Event>,
    ) {
        let mut heard = Instant::now();
        let (mut wait, mut shared) = (Wait::begin(), 0);
        while !mine.is_empty() {
            let mut some = false;
            let is_shared = mine.len() > 1;
            let looks = if is_shared { TURN_LOOKS } else { LOOKS };
            serve_beside(is_shared);
            for _ in 0..looks {
                let mut now = false;
                for session in &*mine {
                    match session.look(memory) {
                        Looked::Nothing => {}
                        Looked::Answered => now = true,
                        Looked::Waits(work) => {
                            now = true;
                            self.crew.give(Job::Session(session.clone(), work));
                        }
                    }
                }
                match now {
                    true => some = true,
                    false => std::hint::spin_loop(),
                }
            }
            if some {
                shared = if wait.is_shared() && !is_shared { shared + 1 } else { 0 };
                if shared >= HANDED_OVER && self.hand_over(number, shared, mine) {
                    return;
                }
                wait = Wait::begin();
            } else if !wait.moment(LOOK, YIELD) {
                return;
            }
            if some && is_shared {
                // The client of one may wait for this processor, with its answer there. It would
                // be let run at the end of this thread's slice: after 3 ms.
                std::thread::yield_now();
            }
            if heard.elapsed() >= HEAR {
                heard = Instant::now();
                self.forget(mine);
                if self.ended.load(Ordering::Relaxed)
                    || !self.hear(number, Some(&AT_ONCE), mine, found)
                {
                    return;
                }
            }
        }
    }

    /// Leaves the one session that this thread looks after to another thread, if one is idle. The
    /// client runs on this processor, or a program that computes: each answer waits until that has
    /// let this thread run, and the kernel moves neither of them, as both are awake all the time.
    fn hand_over(&self, number: usize, shared: u32, mine: &mut Vec<Arc<Served>>) -> bool {
        let others = (1..self.lookers.len()).map(|n| (number + n) % self.lookers.len());
        let mut idle = others.filter(|n| !self.lookers[*n].is_busy.load(Ordering::Relaxed));
        let (Some(other), [session]) = (idle.next(), &mine[..]) else { return false };
        if !session.hands_over(shared, HANDED_OVER, HANDED_OVER_MAX) {
            return false;
        }
        session.watch().hand_over();
        ring(&session.bells[other]);
        mine.clear();
        true
    }

    /// Binds the calling thread to its processors.
    fn bind(&self, number: usize) {
        let Ok(allowed) = rustix::thread::sched_getaffinity(None) else { return };
        let mut own = CpuSet::new();
        let mine = (0..CpuSet::MAX_CPU)
            .filter(|cpu| allowed.is_set(*cpu) && cpu % self.lookers.len() == number);
        mine.for_each(|cpu| own.set(cpu));
        if own.count() > 0 {
            // Without it, it runs anywhere, and answers later.
            let _ = rustix::thread::sched_setaffinity(None, &own);
        }
    }
}

/// Work for a thread that may wait.
enum Job {
    /// Of a session.
    Session(Arc<Served>, Work),
    /// The end of a session whose client has not come.
    GiveUp(Dormant, Arc<dyn Host>),
}

impl Job {
    fn make(self) {
        match self {
            Job::Session(session, work) => session.work(work),
            Job::GiveUp(session, host) => session.give_back(host.calls()),
        }
    }
}

/// Threads that may wait.
#[derive(Default)]
struct Crew {
    queue: Mutex<Queue>,
    work: Condvar,
    /// Processors that they may use: they are started by threads that are bound to one.
    processors: Option<CpuSet>,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Job>,
    threads: usize,
    idle: usize,
    ended: bool,
}

impl Crew {
    fn give(self: &Arc<Self>, job: Job) {
        let mut queue = self.queue.lock();
        queue.waiting.push_back(job);
        if queue.idle >= queue.waiting.len() {
            self.work.notify_one();
            return;
        }
        if queue.threads == CREW_MAX {
            return;
        }
        queue.threads += 1;
        drop(queue);
        // Of the volume it holds what its work does, and nothing when that is done.
        let inner = self.clone();
        let work = move || inner.run();
        let started = std::thread::Builder::new().name("shoal-wait".to_owned()).spawn(work);
        if started.is_err() {
            self.queue.lock().threads -= 1;
            // Without any other, this thread has to wait.
            if self.queue.lock().threads == 0
                && let Some(job) = self.take()
            {
                job.make();
            }
        }
    }

    fn take(&self) -> Option<Job> {
        self.queue.lock().waiting.pop_front()
    }

    fn run(&self) {
        if let Some(processors) = &self.processors {
            // Without it, it is slower.
            let _ = rustix::thread::sched_setaffinity(None, processors);
        }
        let mut queue = self.queue.lock();
        loop {
            if let Some(job) = queue.waiting.pop_front() {
                drop(queue);
                // One that panics leaves its question without an answer, and the others alone.
                let _ = catch_unwind(AssertUnwindSafe(|| job.make()));
                queue = self.queue.lock();
                continue;
            }
            if queue.ended {
                break;
            }
            queue.idle += 1;
            let waited = self.work.wait_for(&mut queue, CREW_STAYS);
            queue.idle -= 1;
            if waited.timed_out() && queue.waiting.is_empty() {
                break;
            }
        }
        queue.threads -= 1;
        self.work.notify_all();
    }

    /// Waits until all questions are answered, but not for ever: a device may hang.
    fn end(&self) {
        let end = Instant::now() + END_MAX;
        let mut queue = self.queue.lock();
        queue.ended = true;
        self.work.notify_all();
        while queue.threads > 0 {
            if self.work.wait_until(&mut queue, end).timed_out() {
                tracing::warn!("calls of sessions take long: they are left behind");
                return;
            }
        }
    }
}
