//! The client's end of a session.
//!
//! When the server dies and a keeper starts another, the client attaches to that by itself, with
//! the same memory. Each thread keeps its question until it is answered, and asks it again with
//! [`word::AGAIN`]; the server finds out whether the call has been made (`resent`).

use crate::client::Link;
use crate::hello::{self, KeptWelcome, Ticket, Welcome};
use crate::lane::{self, Door, FREE};
use crate::memory::{CLOSED_MAX, LANES, Memory, ROOM};
use crate::parking::{Next, Parking};
use crate::peer::peer_of;
use crate::place::links;
use crate::shown::Shown;
use crate::waiting::Wait;
use crate::wire::{Reader, Take, Writer};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::thread::futex;
use shoal_base::fork::Origin;
use shoal_base::sync::shard;
use shoal_base::{Code, Error, Result};
use shoal_engine::Caller;
use std::cell::Cell;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// Words of a lane's head.
pub mod word {
    /// The state.
    pub const STATE: usize = 0;
    /// Number of the call, or of a part of one; see [`super::PART`].
    pub const NUMBER: usize = 1;
    /// Bytes of the question.
    pub const LEN: usize = 2;
    /// The caller: 0 is the session's, others are made known before.
    pub const WHO: usize = 3;
    /// The caller's umask.
    pub const UMASK: usize = 4;
    /// Number of the call among those of the lane.
    pub const CALL: usize = 5;
    /// 1: a server before this one has been asked the same.
    pub const AGAIN: usize = 6;
    /// 0: the answer is the result; 1: an error.
    pub const FAILED: usize = 8;
    /// Bytes of the answer.
    pub const ANSWER: usize = 9;
    /// Bytes of it that are still to be asked for.
    pub const MORE: usize = 10;
}

/// Set in the number of a call: more of the question follows.
pub const PART: u32 = 1 << 31;
/// Number of the call that asks for the rest of an answer.
pub const REST: u32 = 1 << 30;
/// Number of the call that makes another caller known; its result is the caller's number.
pub const BECOME: u32 = REST + 1;

/// Time for which a client looks for its answer before it lets others run.
const LOOK: Duration = Duration::from_micros(3);
/// Time after which it sleeps.
const YIELD: Duration = Duration::from_micros(60);
/// Looks between two looks at the clock.
const LOOKS: usize = 16;
/// A sleeping client looks at its server's life after the first time, and then each time after
/// twice as long, up to the second one.
const LIFE: Duration = Duration::from_millis(5);
const LIFE_MAX: Duration = Duration::from_millis(200);
/// Longest wait for the next server. A keeper that gives up ends the wait before: so this is only
/// for a recovery that takes very long, and as long as a server waits for its clients
/// ([`crate::server`]).
pub(crate) const ATTACH_MAX: Duration = Duration::from_mins(1);
/// Pause between two looks for the next server, doubled up to the second one.
const LOOK_AGAIN: Duration = Duration::from_micros(500);
const LOOK_AGAIN_MAX: Duration = Duration::from_millis(20);
/// Memory of a thread for messages that it keeps.
const KEPT: usize = 256 << 10;

/// A session.
#[derive(Debug)]
pub struct Session {
    memory: Memory,
    /// The memory's file, for the next server.
    file: OwnedFd,
    /// The place of the server's socket.
    place: PathBuf,
    /// The way to the server.
    way: RwLock<Arc<Way>>,
    volume: [u8; 16],
    device: u64,
    origin: Origin,
    /// A bit for each lane in use.
    used: AtomicU32,
    /// Number of the last call of each lane.
    calls: [AtomicU32; LANES],
    /// The threads that wait for the next server.
    parking: Parking,
    /// The callers that the server knows beside the session's own, by their numbers.
    callers: Mutex<Vec<(u32, Caller)>>,
    /// The session's own caller.
    own: Caller,
    /// A server in this thread instead of one that has bells.
    beside: Option<Box<dyn Beside>>,
}

/// A server that answers when it is called, before the call returns: of a session without a
/// connection, whose runs depend on no other thread.
pub(crate) trait Beside: std::fmt::Debug + Send + Sync {
    /// Answers what waits.
    fn called(&self);
}

thread_local! {
    static SCRATCH: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// The way to a server.
#[derive(Debug)]
struct Way {
    socket: OwnedFd,
    bells: Vec<OwnedFd>,
    /// The server's user.
    uid: u32,
    /// Of a session that outlives its server.
    kept: Option<Outliving>,
}

/// The parts of the way to a server which this session outlives.
#[derive(Debug)]
struct Outliving {
    ticket: Ticket,
    life: OwnedFd,
    state: Shown,
}

/// A call of a lane, as it is sent.
#[derive(Clone, Copy)]
struct Sent {
    lane: usize,
    call: u32,
    again: bool,
}

/// The reason why a call has no answer.
enum Unanswered {
    /// There is one, and it is an error. Or it cannot be read.
    Refused(Error),
    /// The server has ended.
    Lost,
}

impl From<Error> for Unanswered {
    fn from(error: Error) -> Unanswered {
        Unanswered::Refused(error)
    }
}

/// Connects to the server behind a socket, with this memory.
fn dial(path: &Path, memory: &OwnedFd, ticket: Option<Ticket>) -> Result<(Way, Welcome)> {
    let place = |why: &dyn std::fmt::Display| {
        let message = format!("session {}: {why}", path.display());
        Error::refused(Code::NotFound, message)
    };
    let address = SocketAddrUnix::new(path).map_err(|e| place(&e))?;
    let flags = SocketFlags::CLOEXEC;
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let socket = rustix::net::socket_with(family, kind, flags, None).map_err(|e| place(&e))?;
    rustix::net::connect(&socket, &address).map_err(|e| match e {
        rustix::io::Errno::CONNREFUSED => place(&"no server listens: it has ended"),
        e => place(&e),
    })?;
    let uid = peer_of(&socket).map_err(|e| place(&e))?.uid;
    let mut welcome = hello::ask(&socket, memory, ticket)?;
    let (bells, kept) = (std::mem::take(&mut welcome.bells), welcome.kept.take());
    let bells = bells.into_iter().map(raised).collect();
    let outliving = |KeptWelcome { ticket, life, state }| -> Result<Outliving> {
        Ok(Outliving { ticket, life: raised(life), state: Shown::of_server(state)? })
    };
    let kept = kept.map(outliving).transpose()?;
    Ok((Way { socket: raised(socket), bells, uid, kept }, welcome))
}

/// The lowest number that a descriptor of a session may have.
static LOWEST: AtomicI32 = AtomicI32::new(0);

/// Keeps the descriptors of this process's sessions at numbers from `lowest` on, as far as its
/// limit allows: for a library in programs that expect to have the low ones to themselves.
pub fn keep_descriptors_from(lowest: RawFd) {
    LOWEST.store(lowest, Ordering::Relaxed);
}

/// Moves a descriptor to where those of sessions are kept.
fn raised(file: OwnedFd) -> OwnedFd {
    let lowest = LOWEST.load(Ordering::Relaxed);
    match file.as_raw_fd() < lowest {
        true => rustix::io::fcntl_dupfd_cloexec(&file, lowest).unwrap_or(file),
        false => file,
    }
}

impl Session {
    /// Connects to the server behind a socket.
    ///
    /// # Errors
    /// `ENOENT` if nobody serves there, and what the server says.
    pub fn connect(path: &Path) -> Result<Session> {
        let (memory, file) = Memory::make()?;
        let file = raised(file);
        let (way, welcome) = dial(path, &file, None)?;
        let groups = rustix::process::getgroups().unwrap_or_default();
        let own = Caller {
            groups: groups.into_iter().map(|group| group.as_raw()).collect(),
            ..Caller::user(rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
        };
        Ok(Session {
            memory,
            file,
            // The client may change its working directory.
            place: std::path::absolute(path).unwrap_or_else(|_| path.to_owned()),
            way: RwLock::new(Arc::new(way)),
            volume: welcome.volume,
            device: welcome.device,
            origin: Origin::here(),
            used: AtomicU32::new(0),
            calls: std::array::from_fn(|_| AtomicU32::new(0)),
            parking: Parking::default(),
            callers: Mutex::default(),
            own,
            beside: None,
        })
    }

    /// Connects to the server of a mount, by the number of its filesystem (`st_dev`); `none` says
    /// that it has no socket.
    ///
    /// # Errors
    /// `ENOENT` if it has no socket here, and those of [`Session::connect`].
    pub fn of_mount(device: u64, none: impl FnOnce() -> String) -> Result<Session> {
        let mut refused = None;
        for link in links(device).filter(|link| link.exists()) {
            match Session::connect(&link) {
                // A link that a killed server has left may lead to another mount by now.
                Ok(session) if session.device() == device => return Ok(session),
                Ok(_) => {}
                Err(error) => refused = Some(error),
            }
        }
        Err(refused.unwrap_or_else(|| Error::refused(Code::NotFound, none())))
    }

    /// A session of the superuser with a server that never looks by itself. `socket` is its
    /// connection, of which only the other end's life is looked at; `memory` comes with its file.
    pub(crate) fn beside(
        (memory, file): (Memory, OwnedFd),
        socket: OwnedFd,
        server: Box<dyn Beside>,
    ) -> Session {
        let way = Way { socket, bells: Vec::new(), uid: 0, kept: None };
        Session {
            memory,
            file,
            place: PathBuf::new(),
            way: RwLock::new(Arc::new(way)),
            volume: [0; 16],
            device: 0,
            origin: Origin::here(),
            used: AtomicU32::new(0),
            calls: std::array::from_fn(|_| AtomicU32::new(0)),
            parking: Parking::default(),
            callers: Mutex::default(),
            own: Caller::root(),
            beside: Some(server),
        }
    }

    /// The volume that the server serves.
    pub fn volume(&self) -> [u8; 16] {
        self.volume
    }

    /// Number of the filesystem of the server's mount (`st_dev`); 0 if it has none.
    pub fn device(&self) -> u64 {
        self.device
    }

    fn way(&self) -> Arc<Way> {
        self.way.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The descriptors of this connection: what a program must not close, and a child of `fork`
    /// must, so that the server sees the end of the session. Others take their places when the
    /// next server is attached to.
    pub fn descriptors(&self) -> Vec<RawFd> {
        let way = self.way();
        let kept = way.kept.as_ref().map(|kept| kept.life.as_raw_fd());
        let bells = way.bells.iter().map(AsRawFd::as_raw_fd);
        let own = [self.file.as_raw_fd(), way.socket.as_raw_fd()];
        own.into_iter().chain(bells).chain(kept).collect()
    }

    /// Returns whether the server has ended for good: no call is answered any more.
    pub fn is_lost(&self) -> bool {
        self.parking.has_ended()
    }

    /// The number of the volume's state: copies that have it ([`Calls::copies`]) hold, as long as
    /// it is the same. `None`: the session cannot know.
    ///
    /// [`Calls::copies`]: crate::Calls::copies
    pub fn state(&self) -> Option<u64> {
        let way = self.way.read().unwrap_or_else(PoisonError::into_inner);
        way.kept.as_ref().map(|kept| kept.state.number())
    }

    /// The user for whom the server makes calls.
    pub fn caller(&self) -> &Caller {
        &self.own
    }

    /// Takes a lane. As many calls as there are lanes may be under way.
    #[inline]
    fn lane(&self) -> usize {
        let mut lane = shard() % LANES;
        let begun = std::sync::OnceLock::new();
        let mut tried = 0;
        loop {
            let bit = 1 << lane;
            if self.used.load(Ordering::Relaxed) & bit == 0
                && self.used.fetch_or(bit, Ordering::SeqCst) & bit == 0
            {
                return lane;
            }
            lane = (lane + 1) % LANES;
            tried += 1;
            if tried % LANES == 0 {
                match begun.get_or_init(Instant::now).elapsed() < YIELD {
                    true => std::thread::yield_now(),
                    false => std::thread::sleep(YIELD),
                }
            }
        }
    }

    /// Returns the number by which the server knows a caller.
    #[inline]
    fn who(&self, sent: Sent, who: &Caller, era: u32) -> Result<u32, Unanswered> {
        match same(who, &self.own) {
            true => Ok(0),
            false => self.become_another(sent, who, era),
        }
    }

    fn callers(&self) -> std::sync::MutexGuard<'_, Vec<(u32, Caller)>> {
        self.callers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cold]
    fn become_another(&self, sent: Sent, who: &Caller, era: u32) -> Result<u32, Unanswered> {
        if let Some((number, _)) = self.callers().iter().find(|(_, known)| same(known, who)) {
            return Ok(*number);
        }
        // Without the lock: others must be able to wait for the next server.
        let mut message = Vec::new();
        let mut out = Writer::new(&mut message);
        crate::wire::put_caller(who, &mut out);
        self.send(sent, BECOME, (0, 0), &message, era)?;
        self.await_answer(sent.lane, era)?;
        self.answer(sent, &mut message, era)?;
        let number = u32::take(&mut Reader::new(&message))?;
        let mut callers = self.callers();
        if !callers.iter().any(|(_, known)| same(known, who)) {
            callers.push((number, who.clone()));
        }
        Ok(number)
    }

    /// Writes a question into a lane, and asks it.
    #[inline]
    fn send(
        &self,
        sent: Sent,
        number: u32,
        who: (u32, u32),
        message: &[u8],
        era: u32,
    ) -> Result<(), Unanswered> {
        let mut rest = message;
        while rest.len() > ROOM {
            let (part, after) = rest.split_at(ROOM);
            self.ask(sent, number | PART, who, part);
            self.await_answer(sent.lane, era)?;
            self.answer(sent, &mut Vec::new(), era)?;
            rest = after;
        }
        self.ask(sent, number, who, rest);
        Ok(())
    }

    #[inline]
    fn ask(&self, sent: Sent, number: u32, (who, umask): (u32, u32), message: &[u8]) {
        let Sent { lane, call, again } = sent;
        let head = |at, value| self.memory.lane(lane, at).store(value, Ordering::Relaxed);
        self.memory.write(lane, message);
        head(word::NUMBER, number);
        head(word::LEN, message.len() as u32);
        head(word::WHO, who);
        head(word::UMASK, umask);
        head(word::CALL, call);
        head(word::AGAIN, u32::from(again));
        if self.door().ask(lane as u32, self.memory.lane(lane, word::STATE)) {
            self.ring();
            // It runs on this processor, as soon as this thread lets it.
            std::thread::yield_now();
        }
    }

    fn door(&self) -> Door<'_, AtomicU32> {
        Door {
            waiting: self.memory.waiting(),
            closing: self.memory.closing(),
            watched: self.memory.watched(),
        }
    }

    /// Calls a server that sleeps.
    #[cold]
    fn ring(&self) {
        if let Some(server) = &self.beside {
            return server.called();
        }
        // Held while it rings: a way that is replaced meanwhile is rung by whoever replaces it.
        let way = self.way.read().unwrap_or_else(PoisonError::into_inner);
        let bell = &way.bells[rustix::thread::sched_getcpu() % way.bells.len()];
        // A bell that is full has been rung.
        let _ = rustix::io::write(bell, &hello::RING);
    }

    /// Notes a node as closed, without waiting for the server; `false`: there is no room.
    fn note_closed(&self, node: u64) -> bool {
        let Ok(node) = u32::try_from(node) else { return false };
        let begin = shard();
        let free = (0..CLOSED_MAX).any(|n| {
            let place = self.memory.closed((begin + n) % CLOSED_MAX);
            place.load(Ordering::Relaxed) == 0
                && place.compare_exchange(0, node, Ordering::Release, Ordering::Relaxed).is_ok()
        });
        if free && self.door().close() {
            self.ring();
        }
        free
    }

    /// Waits for the answer in a lane.
    #[inline]
    fn await_answer(&self, lane: usize, era: u32) -> Result<(), Unanswered> {
        let state = self.memory.lane(lane, word::STATE);
        let mut wait = Wait::begin();
        loop {
            for _ in 0..LOOKS {
                if lane::is_answered(state) {
                    return Ok(());
                }
                std::hint::spin_loop();
            }
            if !wait.moment(LOOK, YIELD) {
                break;
            }
        }
        let mut life = LIFE;
        while lane::will_sleep(state) {
            if self.parking.era() != era {
                return Err(Unanswered::Lost);
            }
            let at_most = Timespec { tv_sec: 0, tv_nsec: life.subsec_nanos().into() };
            let slept = futex::wait(state, futex::Flags::empty(), lane::ASLEEP, Some(&at_most));
            if slept == Err(rustix::io::Errno::TIMEDOUT) {
                // What was answered before the server ended is there.
                if self.has_ended() && lane::will_sleep(state) {
                    return Err(Unanswered::Lost);
                }
                life = (life * 2).min(LIFE_MAX);
            }
        }
        Ok(())
    }

    /// Returns whether the server has closed its end.
    fn has_ended(&self) -> bool {
        hangs_up(&self.way().socket, PollFlags::RDHUP)
    }

    /// Copies the answer.
    ///
    /// # Errors
    /// The one that was answered.
    #[inline]
    fn answer(&self, sent: Sent, into: &mut Vec<u8>, era: u32) -> Result<(), Unanswered> {
        let head = |at| self.memory.lane(sent.lane, at).load(Ordering::Relaxed);
        let (failed, len, more) = (head(word::FAILED), head(word::ANSWER), head(word::MORE));
        if failed == 0 && more != 0 {
            return self.long_answer(sent, into, era);
        }
        into.clear();
        self.memory.read(sent.lane, (len as usize).min(ROOM), into);
        match failed {
            0 => Ok(()),
            _ => Err(Error::take(&mut Reader::new(into))?.into()),
        }
    }

    /// The same for an answer that does not fit into a lane. The question stays until all of it is
    /// there: the next server may have to be asked.
    #[cold]
    fn long_answer(&self, sent: Sent, into: &mut Vec<u8>, era: u32) -> Result<(), Unanswered> {
        let mut whole = Vec::new();
        loop {
            let head = |at| self.memory.lane(sent.lane, at).load(Ordering::Relaxed);
            let (failed, len, more) = (head(word::FAILED), head(word::ANSWER), head(word::MORE));
            if failed != 0 {
                whole.clear();
            }
            self.memory.read(sent.lane, (len as usize).min(ROOM), &mut whole);
            if failed != 0 {
                return Err(Error::take(&mut Reader::new(&whole))?.into());
            }
            if more == 0 {
                *into = whole;
                return Ok(());
            }
            self.ask(sent, REST, (0, 0), &[]);
            self.await_answer(sent.lane, era)?;
        }
    }

    /// Asks a question in a lane, and again at the next server if this one dies.
    #[inline]
    fn converse(
        &self,
        lane: usize,
        number: u16,
        who: &Caller,
        message: &mut Vec<u8>,
    ) -> Result<()> {
        let call = self.calls[lane].load(Ordering::Relaxed).wrapping_add(1);
        self.calls[lane].store(call, Ordering::Relaxed);
        let mut sent = Sent { lane, call, again: false };
        loop {
            let era = self.parking.era();
            if Parking::has_server(era) {
                let answered = self.who(sent, who, era).and_then(|number_of| {
                    self.send(sent, number.into(), (number_of, who.umask), message, era)?;
                    self.await_answer(lane, era)?;
                    self.answer(sent, message, era)
                });
                match answered {
                    Ok(()) => return Ok(()),
                    Err(Unanswered::Refused(error)) => return Err(error),
                    // It may have been carried out.
                    Err(Unanswered::Lost) => sent.again = true,
                }
            }
            self.wait_for_next(era)?;
        }
    }

    /// Waits for the next server, and attaches to it if no other thread does.
    #[cold]
    fn wait_for_next(&self, era: u32) -> Result<()> {
        match self.parking.park(era) {
            Next::Ask => Ok(()),
            Next::Fail => Err(gone()),
            Next::Attach => {
                let attached = self.attach();
                self.parking.finish(attached.is_ok());
                if attached.is_ok() {
                    // Nodes may have been noted as closed while there was no server.
                    self.ring();
                }
                attached
            }
        }
    }

    /// Attaches to the next server.
    fn attach(&self) -> Result<()> {
        let end = Instant::now() + ATTACH_MAX;
        let before = self.way();
        let Some(kept) = &before.kept else { return Err(gone()) };
        let is_over = || {
            self.memory.ended().load(Ordering::SeqCst) != 0
                || hangs_up(&kept.life, PollFlags::empty())
                || Instant::now() >= end
        };
        // Threads that sleep need not find out by themselves.
        let wake = || {
            for lane in (0..LANES).filter(|lane| self.used.load(Ordering::SeqCst) & 1 << lane != 0)
            {
                let state = self.memory.lane(lane, word::STATE);
                let _ = futex::wake(state, futex::Flags::empty(), 1);
            }
            std::thread::sleep(LOOK_AGAIN);
            Instant::now() < end
        };
        if !self.parking.gather(|| self.used.load(Ordering::SeqCst).count_ones(), wake) {
            return Err(gone());
        }
        let mut pause = LOOK_AGAIN;
        loop {
            if is_over() {
                return Err(gone());
            }
            self.memory.begin_anew();
            match dial(&self.place, &self.file, Some(kept.ticket)) {
                // Who is asked for a ticket must be as trusted as before.
                Ok((way, _)) if way.uid == before.uid && way.kept.is_some() => {
                    self.callers().clear();
                    *self.way.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(way);
                    return Ok(());
                }
                Ok(_) => return Err(gone()),
                // None listens yet, or it has died again.
                Err(e) if matches!(e.code(), Code::NotFound | Code::Io | Code::Again) => {}
                Err(error) => {
                    tracing::debug!(%error, "the next server does not go on with the session");
                    return Err(gone());
                }
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(LOOK_AGAIN_MAX);
        }
    }
}

/// Returns whether the other end of a descriptor has been closed.
fn hangs_up(file: &OwnedFd, flags: PollFlags) -> bool {
    let mut polled = [PollFd::new(file, flags)];
    let found = rustix::event::poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
    found.is_ok_and(|n| n > 0)
}

/// Returns whether two callers may do the same.
fn same(one: &Caller, other: &Caller) -> bool {
    (one.uid, one.gid, one.checked) == (other.uid, other.gid, other.checked)
        && one.groups == other.groups
}

#[cold]
fn gone() -> Error {
    Error::refused(Code::Io, "the server of the session has ended: connect anew")
}

impl Link for Session {
    #[inline]
    fn call<T>(
        &self,
        number: u16,
        who: &Caller,
        put: impl FnOnce(&mut Writer<'_>),
        take: impl FnOnce(&mut Reader<'_>) -> Result<T>,
    ) -> Result<T> {
        self.origin.check()?;
        if self.parking.has_ended() {
            return Err(gone());
        }
        // A call that is made while another one's answer is read has a message of its own; so has
        // one of a thread that ends.
        let mut message = SCRATCH.try_with(Cell::take).unwrap_or_default();
        message.clear();
        put(&mut Writer::new(&mut message));
        let lane = self.lane();
        let answered = self.converse(lane, number, who, &mut message);
        self.memory.lane(lane, word::STATE).store(FREE, Ordering::Relaxed);
        self.used.fetch_and(!(1 << lane), Ordering::Release);
        let result = answered.and_then(|()| {
            let mut reader = Reader::new(&message);
            let result = take(&mut reader)?;
            reader.end()?;
            Ok(result)
        });
        if message.capacity() <= KEPT {
            let _ = SCRATCH.try_with(|scratch| scratch.set(message));
        }
        result
    }

    fn room(&self) -> usize {
        ROOM
    }

    #[inline]
    fn close(&self, node: u64) -> bool {
        self.origin.is_here() && !self.parking.has_ended() && self.note_closed(node)
    }
}
