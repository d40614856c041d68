//! The client's end of a session.

use crate::client::Link;
use crate::hello::{self, Welcome};
use crate::lane::{self, Door, FREE};
use crate::memory::{CLOSED_MAX, LANES, Memory, ROOM};
use crate::waiting::Wait;
use crate::wire::{Reader, Take, Writer};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::thread::futex;
use shoal_base::fork::Origin;
use shoal_base::sync::shard;
use shoal_base::{Code, Error, Result};
use shoal_engine::Caller;
use std::cell::RefCell;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
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
/// A sleeping client looks at its server's life this often.
const LIFE: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
/// Memory of a thread for messages that it keeps.
const KEPT: usize = 256 << 10;

/// A session.
#[derive(Debug)]
pub struct Session {
    memory: Memory,
    socket: OwnedFd,
    welcome: Welcome,
    origin: Origin,
    /// A bit for each lane in use.
    used: AtomicU32,
    /// The server has gone.
    gone: AtomicBool,
    /// The callers that the server knows, beginning with the session's own.
    callers: Mutex<Vec<Caller>>,
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
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl Session {
    /// Connects to the server behind a socket.
    ///
    /// # Errors
    /// `ENOENT` if nobody serves there, and what the server says.
    pub fn connect(path: &Path) -> Result<Session> {
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
        let (memory, file) = Memory::make()?;
        let welcome = hello::ask(&socket, &file)?;
        let groups = rustix::process::getgroups().unwrap_or_default();
        let own = Caller {
            groups: groups.into_iter().map(|group| group.as_raw()).collect(),
            ..Caller::user(rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
        };
        Ok(Session {
            memory,
            socket,
            welcome,
            origin: Origin::here(),
            used: AtomicU32::new(0),
            gone: AtomicBool::new(false),
            callers: Mutex::new(vec![own.clone()]),
            own,
            beside: None,
        })
    }

    /// A session of the superuser with a server that never looks by itself. `socket` is its
    /// connection, of which only the other end's life is looked at.
    pub(crate) fn beside(memory: Memory, socket: OwnedFd, server: Box<dyn Beside>) -> Session {
        let own = Caller::root();
        Session {
            memory,
            socket,
            welcome: Welcome { volume: [0; 16], device: 0, bells: Vec::new() },
            origin: Origin::here(),
            used: AtomicU32::new(0),
            gone: AtomicBool::new(false),
            callers: Mutex::new(vec![own.clone()]),
            own,
            beside: Some(server),
        }
    }

    /// The volume that the server serves.
    pub fn volume(&self) -> [u8; 16] {
        self.welcome.volume
    }

    /// Number of the filesystem of the server's mount (`st_dev`); 0 if it has none.
    pub fn device(&self) -> u64 {
        self.welcome.device
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
                && self.used.fetch_or(bit, Ordering::Acquire) & bit == 0
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
    fn who(&self, lane: usize, who: &Caller) -> Result<u32> {
        match same(who, &self.own) {
            true => Ok(0),
            false => self.become_another(lane, who),
        }
    }

    #[cold]
    fn become_another(&self, lane: usize, who: &Caller) -> Result<u32> {
        let mut callers = self.callers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = callers.iter().position(|known| same(known, who)) {
            return Ok(known as u32);
        }
        let mut message = Vec::new();
        let mut out = Writer::new(&mut message);
        crate::wire::put_caller(who, &mut out);
        self.send(lane, BECOME, (0, 0), &message)?;
        self.await_answer(lane)?;
        self.answer(lane, &mut message)?;
        let number = u32::take(&mut Reader::new(&message))?;
        if callers.len() == number as usize {
            callers.push(who.clone());
        }
        Ok(number)
    }

    /// Writes a question into a lane, and asks it.
    #[inline]
    fn send(&self, lane: usize, number: u32, who: (u32, u32), message: &[u8]) -> Result<()> {
        let mut rest = message;
        while rest.len() > ROOM {
            let (part, after) = rest.split_at(ROOM);
            self.ask(lane, number | PART, who, part);
            self.await_answer(lane)?;
            self.answer(lane, &mut Vec::new())?;
            rest = after;
        }
        self.ask(lane, number, who, rest);
        Ok(())
    }

    #[inline]
    fn ask(&self, lane: usize, number: u32, (who, umask): (u32, u32), message: &[u8]) {
        let head = |at, value| self.memory.lane(lane, at).store(value, Ordering::Relaxed);
        self.memory.write(lane, message);
        head(word::NUMBER, number);
        head(word::LEN, message.len() as u32);
        head(word::WHO, who);
        head(word::UMASK, umask);
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
    #[allow(clippy::host_endian_bytes, reason = "the kernel reads a number of its own")]
    fn ring(&self) {
        if let Some(server) = &self.beside {
            return server.called();
        }
        let bells = &self.welcome.bells;
        let bell = &bells[rustix::thread::sched_getcpu() % bells.len()];
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
    ///
    /// # Errors
    /// `EIO` when the server has gone.
    #[inline]
    fn await_answer(&self, lane: usize) -> Result<()> {
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
        while lane::will_sleep(state) {
            let slept = futex::wait(state, futex::Flags::empty(), lane::ASLEEP, Some(&LIFE));
            if slept == Err(rustix::io::Errno::TIMEDOUT) && self.has_ended() {
                self.gone.store(true, Ordering::Relaxed);
                return Err(gone());
            }
        }
        Ok(())
    }

    /// Returns whether the server has closed its end.
    fn has_ended(&self) -> bool {
        let mut polled = [PollFd::new(&self.socket, PollFlags::RDHUP)];
        let found = rustix::event::poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
        found.is_ok_and(|n| n > 0)
    }

    /// Copies the answer.
    ///
    /// # Errors
    /// The one that was answered.
    #[inline]
    fn answer(&self, lane: usize, into: &mut Vec<u8>) -> Result<()> {
        into.clear();
        loop {
            let head = |at| self.memory.lane(lane, at).load(Ordering::Relaxed);
            let (failed, len, more) = (head(word::FAILED), head(word::ANSWER), head(word::MORE));
            self.memory.read(lane, (len as usize).min(ROOM), into);
            if failed != 0 {
                return Err(Error::take(&mut Reader::new(into))?);
            }
            if more == 0 {
                return Ok(());
            }
            self.ask(lane, REST, (0, 0), &[]);
            self.await_answer(lane)?;
        }
    }
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
        if self.gone.load(Ordering::Relaxed) {
            return Err(gone());
        }
        SCRATCH.with(|scratch| {
            // A call that is made while another one's answer is read has a message of its own.
            let mut own = Vec::new();
            let mut borrowed = scratch.try_borrow_mut();
            let message = borrowed.as_deref_mut().unwrap_or(&mut own);
            message.clear();
            put(&mut Writer::new(message));
            let lane = self.lane();
            let answered = self.who(lane, who).and_then(|number_of| {
                self.send(lane, number.into(), (number_of, who.umask), message)?;
                self.await_answer(lane)?;
                self.answer(lane, message)
            });
            self.memory.lane(lane, word::STATE).store(FREE, Ordering::Relaxed);
            self.used.fetch_and(!(1 << lane), Ordering::Release);
            answered?;
            let mut reader = Reader::new(message);
            let result = take(&mut reader)?;
            reader.end()?;
            if message.capacity() > KEPT {
                *message = Vec::new();
            }
            Ok(result)
        })
    }

    fn room(&self) -> usize {
        ROOM
    }

    #[inline]
    fn close(&self, node: u64) -> bool {
        self.origin.is_here() && !self.gone.load(Ordering::Relaxed) && self.note_closed(node)
    }
}
