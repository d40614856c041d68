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
//! waits.
//!
//! *Death.* A client that dies closes its socket, and all that it had open is given back. A client
//! that finds its server dead learns it from the same socket.

use crate::hello::{self, BELLS_MAX};
use crate::memory::Memory;
use crate::peer::{groups_of, peer_of};
use crate::serve::Host;
use crate::served::{Looked, Served, Whose, Work};
use crate::waiting::Wait;
use parking_lot::{Condvar, Mutex, RwLock};
use rustix::event::{EventfdFlags, Timespec, epoll};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::thread::CpuSet;
use shoal_base::{Code, Error, Result};
use shoal_engine::Caller;
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
/// Rounds of looking between two looks at the clock.
const LOOKS: usize = 16;
const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
/// Longest wait for calls under way, when the server ends.
const END_MAX: Duration = Duration::from_secs(10);
/// Data of events that are of no session.
const LISTENER: u64 = u64::MAX;
const END: u64 = u64::MAX - 1;

/// A server of sessions, until it is dropped.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    /// The socket's file is this server's to remove.
    path: PathBuf,
}

/// A session, as `shoal top` shows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Load {
    /// The process that has connected; 0 in another pid namespace.
    pub pid: u32,
    /// Its user.
    pub uid: u32,
    /// Questions that were answered.
    pub answered: u64,
    /// Files and directories that it has open.
    pub open: usize,
}

struct Shared {
    host: Arc<dyn Host>,
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
        let listener = listen(path)?;
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let lookers = (0..processors.min(BELLS_MAX)).map(|_| {
            let events = epoll::create(epoll::CreateFlags::CLOEXEC);
            let events = events.map_err(|e| failed("no events", e))?;
            let bell = bell()?;
            watch(&events, &bell, END, epoll::EventFlags::IN)?;
            Ok(Looker { events, bell })
        });
        let shared = Arc::new(Shared {
            host,
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
        let mut server =
            Server { shared: shared.clone(), threads: Vec::new(), path: path.to_owned() };
        for number in 0..shared.lookers.len() {
            let shared = shared.clone();
            server.spawn(format!("shoal-look-{number}"), move || shared.look(number))?;
        }
        server.spawn("shoal-door".to_owned(), move || {
            if let Err(error) = shared.accept(&listener) {
                tracing::error!(%error, "no more sessions are accepted");
            }
        })?;
        Ok(server)
    }

    fn spawn(&mut self, name: String, work: impl FnOnce() + Send + 'static) -> Result<()> {
        let thread = std::thread::Builder::new().name(name).spawn(work);
        self.threads.push(thread.map_err(|e| failed("no thread", e))?);
        Ok(())
    }

    /// The sessions, in the order of their beginning.
    pub fn loads(&self) -> Vec<Load> {
        let sessions = self.shared.sessions.read();
        let mut all: Vec<_> = sessions.values().collect();
        all.sort_unstable_by_key(|session| session.id);
        let load = |session: &&Arc<Served>| Load {
            pid: session.peer.pid,
            uid: session.peer.uid,
            answered: session.answered.load(Ordering::Relaxed),
            open: session.open_nodes(),
        };
        all.iter().map(load).collect()
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
        self.shared.crew.end();
        let sessions = std::mem::take(&mut *self.shared.sessions.write());
        for session in sessions.into_values() {
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
        while !self.ended.load(Ordering::SeqCst) {
            found.clear();
            match epoll::wait(&self.door, rustix::buffer::spare_capacity(&mut found), None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(failed("no events", e)),
            }
            for event in &found {
                match event.data.u64() {
                    END => {}
                    LISTENER => self.connected(listener, &mut pending),
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

    /// Begins a session.
    fn welcome(self: &Arc<Self>, id: u64, socket: OwnedFd) -> Result<()> {
        let (memory, whose) = match self.admit(&socket) {
            Ok(admitted) => admitted,
            Err(error) => {
                // What has not been taken is thrown away, and its descriptors with it: closed with
                // it, the socket would lose the reason.
                let flags = rustix::net::RecvFlags::DONTWAIT;
                let _ = rustix::net::recv(&socket, &mut [0u8; 16], flags);
                // A client that has gone needs no reason.
                let _ = hello::answer(&socket, Err(&error));
                return Err(error);
            }
        };
        let volume = self.host.calls().volume_id(&Caller::root())?;
        let bells: Vec<OwnedFd> = self.lookers.iter().map(|_| bell()).collect::<Result<_>>()?;
        for (looker, bell) in self.lookers.iter().zip(&bells) {
            // Each ring is told once, and the bell is never read: a client may make that wait.
            let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
            watch(&looker.events, bell, id, flags)?;
        }
        let parts = (socket, memory, bells);
        let session = Arc::new(Served::new(id, self.host.clone(), whose, parts));
        self.sessions.write().insert(id, session.clone());
        let data = epoll::EventData::new_u64(id);
        let flags = epoll::EventFlags::RDHUP | epoll::EventFlags::HUP;
        let watched = epoll::modify(&self.door, &session.socket, data, flags);
        let bells: Vec<_> = session.bells.iter().map(AsFd::as_fd).collect();
        let told = watched.and_then(|()| {
            hello::answer(&session.socket, Ok((volume, self.host.device(), &bells)))
        });
        if told.is_err() {
            self.farewell(id);
        }
        told.map_err(|e| failed("a connection", e))
    }

    /// Decides who may have a session.
    fn admit(&self, socket: &OwnedFd) -> Result<(Memory, Whose)> {
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
        let memory = self.memory_of(socket, peer.uid)?;
        Ok((memory, (peer, groups, of_user)))
    }

    /// Takes the memory of a client.
    fn memory_of(&self, socket: &OwnedFd, uid: u32) -> Result<Memory> {
        if self.closing.lock().get(&uid).is_some_and(|threads| *threads >= CLOSING_MAX) {
            let message = format!("what user {uid} has sent before is still being closed");
            return Err(Error::refused(Code::Again, message));
        }
        let mut others = Vec::new();
        let memory = hello::take(socket, &mut others).and_then(|file| {
            let memory = Memory::of_client(file.as_fd());
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
                self.crew.give(mine.swap_remove(at), Work::Forget);
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
        let mut wait = Wait::begin();
        while !mine.is_empty() {
            let mut some = false;
            for _ in 0..LOOKS {
                let mut now = false;
                for session in &*mine {
                    match session.look(memory) {
                        Looked::Nothing => {}
                        Looked::Answered => now = true,
                        Looked::Waits(work) => {
                            now = true;
                            self.crew.give(session.clone(), work);
                        }
                    }
                }
                match now {
                    true => some = true,
                    false => std::hint::spin_loop(),
                }
            }
            if some {
                wait = Wait::begin();
            } else if !wait.moment(LOOK, YIELD) {
                return;
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
    waiting: VecDeque<(Arc<Served>, Work)>,
    threads: usize,
    idle: usize,
    ended: bool,
}

impl Crew {
    fn give(self: &Arc<Self>, session: Arc<Served>, work: Work) {
        let mut queue = self.queue.lock();
        queue.waiting.push_back((session, work));
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
                && let Some((session, work)) = self.take()
            {
                session.work(work);
            }
        }
    }

    fn take(&self) -> Option<(Arc<Served>, Work)> {
        self.queue.lock().waiting.pop_front()
    }

    fn run(&self) {
        if let Some(processors) = &self.processors {
            // Without it, it is slower.
            let _ = rustix::thread::sched_setaffinity(None, processors);
        }
        let mut queue = self.queue.lock();
        loop {
            if let Some((session, work)) = queue.waiting.pop_front() {
                drop(queue);
                // One that panics leaves its question without an answer, and the others alone.
                let _ = catch_unwind(AssertUnwindSafe(|| session.work(work)));
                drop(session);
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
