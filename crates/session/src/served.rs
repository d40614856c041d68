//! A session at its server: the lanes of a client, and what is under way in them.

use crate::calls::Node;
use crate::connect::{BECOME, PART, REST, word};
use crate::feeds::Feeds;
use crate::lane::{self, Door, Watch};
use crate::memory::{CLOSED_MAX, LANES, Memory, ROOM};
use crate::nodes::Nodes;
use crate::peer::Peer;
use crate::serve::{Client, Host, Owed, is_slow, panicked};
use crate::trees::Trees;
use crate::wire::{Put, Reader, Writer, take_caller};
use parking_lot::Mutex;
use rustix::thread::futex;
use shoal_base::{Code, Error, Result};
use shoal_engine::{AtOnce, Caller, at_once};
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Bytes of questions in parts and of answers that wait, of one session. A batch of as many bytes
/// takes about a second.
const HELD_MAX: usize = 256 << 20;
/// Bytes of questions in parts and of those that wait for a thread, of all sessions of one user who
/// is not the volume's owner.
const HELD_OF_USER_MAX: usize = 1 << 30;
/// Bytes of a question that is worth a thread of its own: others would wait for it.
const LONG: usize = 128 << 10;
/// Callers that a session may act for.
const CALLERS_MAX: usize = 4096;

/// The process that has connected, its groups, and the bytes that all sessions of its user hold.
pub(crate) type Whose = (Peer, Vec<u32>, Arc<AtomicUsize>);

/// A session.
pub(crate) struct Served {
    /// Its number at this server.
    pub id: u64,
    /// The process that has connected.
    pub peer: Peer,
    /// The connection: closed by the client's death.
    pub socket: OwnedFd,
    /// A bell for each thread that looks.
    pub bells: Vec<OwnedFd>,
    /// The thread that looks for its questions, by number and one; 0: none, it must be called.
    pub watcher: AtomicU32,
    /// The client has gone.
    pub gone: AtomicBool,
    /// Questions that were answered.
    pub answered: AtomicU64,
    client: Client,
    memory: Memory,
    lanes: [Lane; LANES],
    /// Lanes whose questions were taken and not yet looked at.
    todo: AtomicU32,
    callers: Mutex<Vec<Caller>>,
    /// Bytes of questions in parts.
    held: AtomicUsize,
    /// Bytes that all sessions of its user hold.
    pub of_user: Arc<AtomicUsize>,
}

/// The server's part of a lane.
#[derive(Default)]
struct Lane {
    /// A question is in work. A client that asks another one meanwhile breaks the protocol.
    busy: AtomicBool,
    /// Parts of a question, and the rest of an answer.
    parts: Mutex<Parts>,
}

#[derive(Default)]
struct Parts {
    question: Vec<u8>,
    answer: Vec<u8>,
    /// How much of the answer the client has.
    told: usize,
}

/// A question that was copied.
pub(crate) struct Question {
    lane: usize,
    number: u32,
    who: u32,
    umask: u32,
    bytes: Vec<u8>,
    /// How many of them came in parts.
    parts: usize,
}

/// The outcome of a look for a question.
pub(crate) enum Looked {
    /// There was none.
    Nothing,
    /// It is answered.
    Answered,
    /// The rest is for a thread that may wait.
    Waits(Work),
}

/// Work for a thread that may wait.
pub(crate) enum Work {
    /// A question.
    Question(Question),
    /// The call has been made, and is not to be answered before this.
    Answer {
        /// Its lane.
        lane: usize,
        /// Its outcome.
        outcome: Result<()>,
        /// Its result.
        answer: Vec<u8>,
        /// Work that comes before the answer.
        owed: Owed,
    },
    /// The client has gone: to close all that it had open takes a while.
    Forget,
}

impl Served {
    /// Begins a session.
    pub(crate) fn new(
        id: u64,
        host: Arc<dyn Host>,
        (peer, groups, of_user): Whose,
        (socket, memory, bells): (OwnedFd, Memory, Vec<OwnedFd>),
    ) -> Served {
        let own = Caller { groups: groups.into(), ..Caller::user(peer.uid, peer.gid) };
        let is_owner = peer.is_trusted();
        Served {
            id,
            peer,
            socket,
            bells,
            watcher: AtomicU32::new(0),
            gone: AtomicBool::new(false),
            answered: AtomicU64::new(0),
            client: Client {
                host,
                nodes: Nodes::default(),
                feeds: Feeds::default(),
                trees: Trees::default(),
                is_owner,
            },
            memory,
            lanes: std::array::from_fn(|_| Lane::default()),
            todo: AtomicU32::new(0),
            callers: Mutex::new(vec![own]),
            held: AtomicUsize::new(0),
            of_user,
        }
    }

    /// Its words beside the lanes.
    pub(crate) fn door(&self) -> Door<'_, AtomicU32> {
        Door {
            waiting: self.memory.waiting(),
            closing: self.memory.closing(),
            watched: self.memory.watched(),
        }
    }

    /// The threads that may look for its questions.
    pub(crate) fn watch(&self) -> Watch<'_, AtomicU32> {
        Watch { door: self.door(), watcher: &self.watcher }
    }

    /// Number of files that it has open.
    pub(crate) fn open_nodes(&self) -> usize {
        self.client.nodes.len()
    }

    /// Stops what would go on without the client.
    pub(crate) fn stop(&self) {
        self.client.trees.end();
    }

    /// Answers at most one question, so that sessions take turns. Quick ones at once, in memory of
    /// the calling thread; others are handed out.
    #[inline]
    pub(crate) fn look(&self, memory: &mut (Vec<u8>, Vec<u8>)) -> Looked {
        if self.door().has_closed() {
            self.close();
        }
        let taken = self.door().take();
        let todo = match taken {
            0 => self.todo.load(Ordering::Relaxed),
            new => self.todo.fetch_or(new, Ordering::Relaxed) | new,
        };
        let mut rest = todo;
        while rest != 0 {
            let lane = rest.trailing_zeros() as usize;
            rest &= rest - 1;
            self.todo.fetch_and(!(1 << lane), Ordering::Relaxed);
            match self.begin(lane, memory) {
                // A lane without a question breaks the protocol, and must not hide another one:
                // nothing is left in `todo` when there is nothing to do.
                Looked::Nothing => {}
                found => return found,
            }
        }
        Looked::Nothing
    }

    /// Gives back what the client has noted as closed. What is not open is ignored.
    fn close(&self) {
        for place in 0..CLOSED_MAX {
            let place = self.memory.closed(place);
            if place.load(Ordering::Relaxed) != 0 {
                let node = place.swap(0, Ordering::Acquire);
                self.client.close(Node(node.into()));
            }
        }
    }

    fn begin(&self, lane: usize, (question, answer): &mut (Vec<u8>, Vec<u8>)) -> Looked {
        let state = self.memory.lane(lane, word::STATE);
        if self.lanes[lane].busy.swap(true, Ordering::Acquire) {
            return Looked::Nothing;
        }
        if !lane::is_asked(state) {
            self.lanes[lane].busy.store(false, Ordering::Release);
            return Looked::Nothing;
        }
        // Each word once: the client may change it at any moment.
        let head = |at| self.memory.lane(lane, at).load(Ordering::Relaxed);
        let (number, len, who, umask) =
            (head(word::NUMBER), head(word::LEN) as usize, head(word::WHO), head(word::UMASK));
        question.clear();
        self.memory.read(lane, len.min(ROOM), question);
        let is_plain = u16::try_from(number).is_ok();
        if !is_plain || self.held.load(Ordering::Relaxed) > 0 {
            return self.special(Question {
                lane,
                number,
                who,
                umask,
                bytes: std::mem::take(question),
                parts: 0,
            });
        }
        let waits = |question: &mut Vec<u8>| {
            let bytes = std::mem::take(question);
            self.hand_out(Question { lane, number, who, umask, bytes, parts: 0 })
        };
        if is_slow(number as u16) || len > LONG {
            return waits(question);
        }
        answer.clear();
        match at_once(|| self.call(number as u16, (who, umask), question, answer)) {
            AtOnce::Done(outcome) => match self.client.host.owed() {
                None => {
                    self.reply(lane, outcome, answer);
                    Looked::Answered
                }
                Some(owed) => {
                    let answer = std::mem::take(answer);
                    Looked::Waits(Work::Answer { lane, outcome, answer, owed })
                }
            },
            AtOnce::Refused { .. } => {
                self.client.host.refused();
                waits(question)
            }
        }
    }

    /// Hands a question out to a thread that may wait, unless its user has too many bytes there.
    fn hand_out(&self, question: Question) -> Looked {
        let more = question.bytes.len() - question.parts;
        let all = self.of_user.fetch_add(more, Ordering::Relaxed) + more;
        if self.client.is_owner || all <= HELD_OF_USER_MAX {
            return Looked::Waits(Work::Question(question));
        }
        self.of_user.fetch_sub(more, Ordering::Relaxed);
        self.let_go(question.parts);
        let message = format!("a user's calls hold at most {} MiB", HELD_OF_USER_MAX >> 20);
        self.reply(question.lane, Err(Error::refused(Code::Again, message)), &mut Vec::new());
        Looked::Answered
    }

    /// Counts bytes of a question in parts; `false`: they are too many.
    fn hold(&self, more: usize) -> bool {
        let own = self.held.fetch_add(more, Ordering::Relaxed) + more;
        let all = self.of_user.fetch_add(more, Ordering::Relaxed) + more;
        let may = own <= HELD_MAX && (self.client.is_owner || all <= HELD_OF_USER_MAX);
        if !may {
            self.let_go(more);
        }
        may
    }

    fn let_go(&self, bytes: usize) {
        self.held.fetch_sub(bytes, Ordering::Relaxed);
        self.of_user.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Does what is left, on a thread that may wait.
    pub(crate) fn work(&self, work: Work) {
        match work {
            Work::Question(Question { lane, number, who, umask, bytes, parts }) => {
                let mut answer = Vec::new();
                let outcome = self.call(number as u16, (who, umask), &bytes, &mut answer);
                self.let_go(parts);
                self.of_user.fetch_sub(bytes.len() - parts, Ordering::Relaxed);
                drop(bytes);
                if let Some(owed) = self.client.host.owed() {
                    owed();
                }
                self.reply(lane, outcome, &mut answer);
                self.client.run_trees();
            }
            Work::Answer { lane, outcome, mut answer, owed } => {
                owed();
                self.reply(lane, outcome, &mut answer);
            }
            Work::Forget => {}
        }
    }

    fn call(
        &self,
        number: u16,
        (who, umask): (u32, u32),
        question: &[u8],
        answer: &mut Vec<u8>,
    ) -> Result<()> {
        let caller = {
            let callers = self.callers.lock();
            let known = callers.get(who as usize).cloned();
            Caller { umask: umask & 0o777, ..known.ok_or(Code::Invalid)? }
        };
        let call = || self.client.answer(number, &caller, question, answer);
        catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|_| Err(panicked(number)))
    }

    /// A question in parts, the rest of an answer, another caller.
    #[cold]
    fn special(&self, mut question: Question) -> Looked {
        let lane = question.lane;
        let mut parts = self.lanes[lane].parts.lock();
        let outcome = match question.number {
            REST => {
                drop(parts);
                self.tell_rest(lane);
                return Looked::Answered;
            }
            BECOME => self.other_caller(&question.bytes).map(|number| {
                let mut answer = Vec::new();
                number.put(&mut Writer::new(&mut answer));
                answer
            }),
            number if number & PART != 0 => {
                match self.hold(question.bytes.len()) {
                    true => {
                        parts.question.append(&mut question.bytes);
                        Ok(Vec::new())
                    }
                    // The question is refused as a whole: the next one begins anew.
                    false => {
                        self.let_go(std::mem::take(&mut parts.question).len());
                        let message =
                            format!("a session holds at most {} MiB of questions", HELD_MAX >> 20);
                        Err(Error::refused(Code::TooBig, message))
                    }
                }
            }
            number if u16::try_from(number).is_ok() => {
                question.parts = parts.question.len();
                if question.parts > 0 {
                    let whole = std::mem::take(&mut parts.question);
                    let last = std::mem::replace(&mut question.bytes, whole);
                    question.bytes.extend_from_slice(&last);
                }
                drop(parts);
                return self.hand_out(question);
            }
            _ => Err(Code::NotSupported.into()),
        };
        drop(parts);
        let (outcome, mut answer) = match outcome {
            Ok(answer) => (Ok(()), answer),
            Err(error) => (Err(error), Vec::new()),
        };
        self.reply(lane, outcome, &mut answer);
        Looked::Answered
    }

    /// Makes a caller known for whom the client wants to act. Only the superuser may.
    fn other_caller(&self, question: &[u8]) -> Result<u32> {
        if !self.client.is_owner {
            let message = "only the superuser may act for others: connect as the user";
            return Err(Error::refused(Code::NotPermitted, message));
        }
        let mut args = Reader::new(question);
        let caller = take_caller(&mut args)?;
        args.end()?;
        let mut callers = self.callers.lock();
        if callers.len() == CALLERS_MAX {
            let message = format!("a session acts for at most {CALLERS_MAX} users");
            return Err(Error::refused(Code::NoMemory, message));
        }
        callers.push(caller);
        Ok((callers.len() - 1) as u32)
    }

    /// Writes an answer into its lane, and tells the client.
    fn reply(&self, lane: usize, outcome: Result<()>, answer: &mut Vec<u8>) {
        let failed = outcome.is_err();
        if let Err(error) = outcome {
            answer.clear();
            error.put(&mut Writer::new(answer));
        }
        let mut more = 0;
        if answer.len() > ROOM {
            more = answer.len() - ROOM;
            let mut parts = self.lanes[lane].parts.lock();
            (parts.answer, parts.told) = (std::mem::take(answer), ROOM);
            self.memory.write(lane, &parts.answer[..ROOM]);
        } else {
            self.memory.write(lane, answer);
        }
        let len = if more > 0 { ROOM } else { answer.len() };
        self.tell(lane, failed, len, more);
    }

    #[cold]
    fn tell_rest(&self, lane: usize) {
        let mut parts = self.lanes[lane].parts.lock();
        let rest = &parts.answer[parts.told..];
        let (now, more) = (rest.len().min(ROOM), rest.len().saturating_sub(ROOM));
        self.memory.write(lane, &rest[..now]);
        parts.told += now;
        if more == 0 {
            (parts.answer, parts.told) = (Vec::new(), 0);
        }
        drop(parts);
        self.tell(lane, false, now, more);
    }

    #[inline]
    fn tell(&self, lane: usize, failed: bool, len: usize, more: usize) {
        let head = |at, value| self.memory.lane(lane, at).store(value, Ordering::Relaxed);
        head(word::FAILED, u32::from(failed));
        head(word::ANSWER, len as u32);
        head(word::MORE, more.min(u32::MAX as usize) as u32);
        self.answered.fetch_add(1, Ordering::Relaxed);
        // Before the client knows: its next question in this lane may come at once.
        self.lanes[lane].busy.store(false, Ordering::Release);
        let state = self.memory.lane(lane, word::STATE);
        if lane::answered(state) {
            // Nobody there has been woken by something else.
            let _ = futex::wake(state, futex::Flags::empty(), 1);
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.client.nodes.close_all(self.client.host.calls());
        // Questions in parts whose last part never came.
        self.of_user.fetch_sub(*self.held.get_mut(), Ordering::Relaxed);
    }
}
