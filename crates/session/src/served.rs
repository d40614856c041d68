//! A session at its server: the lanes of a client, and what is under way in them.

use crate::calls::{Node, OR_KERNEL, number as row};
use crate::connect::{BECOME, PART, REST, word};
use crate::feeds::Feeds;
use crate::kept::{Asked, Made, Slot};
use crate::lane::{self, Door, Watch};
use crate::memory::{CLOSED_MAX, LANES, Memory, ROOM};
use crate::nodes::Nodes;
use crate::noting;
use crate::peer::Peer;
use crate::resent::Resent;
use crate::serve::{Client, Counted, Host, Numbers, Owed, is_noted, is_slow, panicked};
use crate::trees::Trees;
use crate::wire::{Put, Reader, Writer, take_caller};
use parking_lot::Mutex;
use rustix::thread::futex;
use shoal_base::{Code, Error, Result};
use shoal_engine::{AtOnce, Caller, Left, at_once};
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::Instant;

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

/// Feeds and changes of trees that a session may have begun at one server, at most: their numbers
/// begin anew behind those at the server before.
const BEGUN_MAX: u32 = 1 << 16;

/// The process that has connected, its groups, and the bytes that all sessions of its user hold.
pub(crate) type Whose = (Peer, Vec<u32>, Arc<AtomicUsize>);

/// The state of a session that comes from servers before this one.
#[derive(Default)]
pub(crate) struct Before {
    /// Its place in memory that outlives the server.
    pub slot: Option<Arc<Slot>>,
    /// Its open nodes.
    pub nodes: Nodes,
    /// Calls that were not answered, as the cells beside the ring have them: with their steps.
    pub calls: Vec<(Asked, u8, Left)>,
}

/// A session.
pub(crate) struct Served {
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
    /// Questions in a row before which others have run, from which on another thread is to look.
    patience: AtomicU32,
    client: Client,
    memory: Memory,
    lanes: [Lane; LANES],
    /// A bit for each lane with a call that a server before this one has not answered.
    unanswered: AtomicU32,
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
    /// The call that a server before this one has not answered.
    left: Mutex<Option<(Asked, u8, Left)>>,
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
    call: u32,
    /// A server before this one has been asked the same.
    again: bool,
    bytes: Vec<u8>,
    /// How many of them came in parts.
    parts: usize,
}

impl Question {
    fn asked(&self) -> Asked {
        Asked { lane: self.lane, call: self.call }
    }
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
        host: Arc<dyn Host>,
        (peer, groups, of_user): Whose,
        (socket, memory, bells): (OwnedFd, Memory, Vec<OwnedFd>),
        before: Before,
    ) -> Served {
        let first = before.slot.as_ref().map_or(0, |slot| slot.attached() * BEGUN_MAX);
        let lanes: [Lane; LANES] = std::array::from_fn(|_| Lane::default());
        let mut unanswered = 0;
        for (asked, step, left) in before.calls {
            unanswered |= 1 << asked.lane;
            lanes[asked.lane].keep(asked, step, left);
        }
        let own = Caller { groups: groups.into(), ..Caller::user(peer.uid, peer.gid) };
        let is_owner = peer.is_trusted();
        Served {
            peer,
            socket,
            bells,
            watcher: AtomicU32::new(0),
            gone: AtomicBool::new(false),
            patience: AtomicU32::new(0),
            client: Client {
                host,
                nodes: before.nodes,
                feeds: Feeds::from(first),
                trees: Trees::from(first),
                is_owner,
                slot: before.slot,
            },
            memory,
            lanes,
            unanswered: AtomicU32::new(unanswered),
            todo: AtomicU32::new(0),
            callers: Mutex::new(vec![own]),
            held: AtomicUsize::new(0),
            of_user,
        }
    }

    /// Returns whether another thread is to look for its questions, as others have run on this
    /// one's processor before `shared` of them in a row: at first from `least` on, and then each
    /// time from twice as many on, up to `most`.
    pub(crate) fn hands_over(&self, shared: u32, least: u32, most: u32) -> bool {
        let patience = self.patience.load(Ordering::Relaxed).max(least);
        let hands_over = shared >= patience;
        if hands_over {
            self.patience.store((patience * 2).min(most), Ordering::Relaxed);
        }
        hands_over
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

    /// Says that there will be no other server.
    pub(crate) fn say_end(&self) {
        self.memory.ended().store(1, Ordering::SeqCst);
    }

    /// Its place in memory that outlives the server.
    pub(crate) fn slot(&self) -> Option<&Arc<Slot>> {
        self.client.slot.as_ref()
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
    pub(crate) fn close(&self) {
        for place in 0..CLOSED_MAX {
            let place = self.memory.closed(place);
            let node = place.load(Ordering::Acquire);
            if node != 0 {
                // A client that has written another number has the first one closed.
                let taken = || {
                    place.swap(0, Ordering::Acquire);
                };
                self.client.close_noted(Node(node.into()), taken);
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
        let (call, again) = (head(word::CALL), head(word::AGAIN) != 0);
        question.clear();
        self.memory.read(lane, len.min(ROOM), question);
        let copy = |question: &mut Vec<u8>| {
            let bytes = std::mem::take(question);
            Question { lane, number, who, umask, call, again, bytes, parts: 0 }
        };
        let is_plain = u16::try_from(number).is_ok();
        if !is_plain || self.held.load(Ordering::Relaxed) > 0 {
            return self.special(copy(question));
        }
        if is_slow(number as u16) || len > LONG || again {
            return self.hand_out(copy(question));
        }
        answer.clear();
        let asked = Asked { lane, call };
        let (number, whom) = (number as u16, (who, umask));
        let begun = self.client.host.is_watched().then(Instant::now);
        match at_once(|| self.call(number, whom, asked, question, answer)) {
            AtOnce::Done(outcome) => {
                self.count(begun, number, (question.len(), answer.len()));
                let outcome = self.settle(number, asked, outcome);
                match self.client.host.owed() {
                    None => {
                        self.reply(lane, outcome, answer);
                        Looked::Answered
                    }
                    Some(owed) => {
                        let answer = std::mem::take(answer);
                        Looked::Waits(Work::Answer { lane, outcome, answer, owed })
                    }
                }
            }
            AtOnce::Refused { .. } => {
                // Nothing has been made.
                self.client.host.refused();
                noting::end();
                self.hand_out(copy(question))
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
            Work::Question(question) => {
                let mut answer = Vec::new();
                let (asked, whom) = (question.asked(), (question.who, question.umask));
                let (number, again) = (question.number as u16, question.again);
                let Question { lane, bytes, parts, .. } = question;
                let begun = self.client.host.is_watched().then(Instant::now);
                let outcome = match again {
                    true => self.call_again(number, whom, asked, &bytes, &mut answer),
                    false => {
                        let outcome = self.call(number, whom, asked, &bytes, &mut answer);
                        self.settle(number, asked, outcome)
                    }
                };
                self.count(begun, number, (bytes.len(), answer.len()));
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

    /// Counts a call, if somebody watches: `begun` is when it began.
    #[inline]
    fn count(&self, begun: Option<Instant>, number: u16, (asked, answered): (usize, usize)) {
        let Some(begun) = begun else { return };
        let (read, written) = match number {
            row::read | row::get => (answered, 0),
            row::write | row::put => (0, asked),
            _ => (0, 0),
        };
        let Peer { pid, uid, .. } = self.peer;
        let (took, read, written) = (begun.elapsed(), read as u64, written as u64);
        self.client.host.count(&Counted { pid, uid, took, read, written });
    }

    fn caller(&self, (who, umask): (u32, u32)) -> Result<Caller> {
        self.client.host.may_refuse(umask & OR_KERNEL != 0);
        let known = self.callers.lock().get(who as usize).cloned();
        Ok(Caller { umask: umask & 0o777, ..known.ok_or(Code::Invalid)? })
    }

    /// Makes a call. If it changes anything, its outcome is to be settled.
    #[inline]
    fn call(
        &self,
        number: u16,
        whom: (u32, u32),
        asked: Asked,
        question: &[u8],
        answer: &mut Vec<u8>,
    ) -> Result<Numbers> {
        let caller = self.caller(whom)?;
        if is_noted(number) {
            if self.unanswered.load(Ordering::Relaxed) & 1 << asked.lane != 0 {
                self.forget_left(asked.lane);
            }
            self.client.note(asked, 0, None);
        }
        let call = || self.client.answer((number, asked), &caller, question, answer);
        catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|_| Err(panicked(number)))
    }

    /// The client has gone on since the call that was not answered.
    #[cold]
    fn forget_left(&self, lane: usize) {
        if let Some((_, _, left)) = self.take_left(lane) {
            left.answered();
        }
    }

    fn take_left(&self, lane: usize) -> Option<(Asked, u8, Left)> {
        self.unanswered.fetch_and(!(1 << lane), Ordering::Relaxed);
        self.lanes[lane].left.lock().take()
    }

    /// Stores the outcome of a call for the next server.
    #[inline]
    fn settle(&self, number: u16, asked: Asked, outcome: Result<Numbers>) -> Result<()> {
        if is_noted(number) {
            self.client.settle(asked, Made::of(&outcome));
        }
        outcome.map(drop)
    }

    /// Makes a call that a server before this one may have made.
    #[cold]
    fn call_again(
        &self,
        number: u16,
        whom: (u32, u32),
        asked: Asked,
        question: &[u8],
        answer: &mut Vec<u8>,
    ) -> Result<()> {
        let who = &self.caller(whom)?;
        let mut cell = match self.take_left(asked.lane) {
            Some((of, step, left)) if of == asked => Some((step, left)),
            other => {
                other.into_iter().for_each(|(_, _, left)| left.answered());
                None
            }
        };
        let resent = Resent { number, asked, who, question };
        let call = || self.client.answer_again(resent, &mut cell, answer);
        let called = catch_unwind(AssertUnwindSafe(call));
        let outcome = called.unwrap_or_else(|_| Err(panicked(number)));
        let outcome = self.settle(number, asked, outcome);
        // Not before its outcome is stored: a further server must find it.
        cell.into_iter().for_each(|(_, left)| left.answered());
        outcome
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
        if self.client.is_left() {
            // The next server has the lane.
            return;
        }
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
        // Before the client knows: its next question in this lane may come at once.
        self.lanes[lane].busy.store(false, Ordering::Release);
        let state = self.memory.lane(lane, word::STATE);
        if lane::answered(state) {
            // Nobody there has been woken by something else.
            let _ = futex::wake(state, futex::Flags::empty(), 1);
        }
    }
}

impl Lane {
    /// Keeps a call that was not answered. Of two the later step counts: the other one is from a
    /// server that has died while it made the call again.
    fn keep(&self, asked: Asked, step: u8, left: Left) {
        let mut kept = self.left.lock();
        match &*kept {
            Some((_, other, _)) if *other >= step => left.answered(),
            _ => {
                let before = kept.replace((asked, step, left));
                before.into_iter().for_each(|(_, _, left)| left.answered());
            }
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if !self.client.is_left() {
            // Its client has gone: nobody will ask.
            (0..LANES).for_each(|lane| self.forget_left(lane));
        }
        self.client.nodes.close_all(self.client.host.calls());
        // Questions in parts whose last part never came.
        self.of_user.fetch_sub(*self.held.get_mut(), Ordering::Relaxed);
    }
}
