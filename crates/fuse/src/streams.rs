//! Control files that are open, and the questions that they have been asked
//! ([`crate::protocol::question`]).
//!
//! Each LOOKUP of a control file's name makes a node of its own, so that two programs never share
//! one. A node lives as long as the kernel has references to it: they end with the last descriptor,
//! also when its program is killed, because the name is not kept.
//!
//! A node holds no part of an answer: each read lists what fits into its own buffer, and the
//! question keeps the place. So a program that stops reading costs one question. Limits:
//!
//! | of | at most | beyond |
//! | --- | --- | --- |
//! | nodes | as many as the kernel has inodes | |
//! | questions of a user, without root's | [`USER_QUESTIONS_MAX`] | `EAGAIN` |
//! | questions of all | [`QUESTIONS_MAX`] | `EAGAIN` |
//! | reads under way | [`READS_MAX`], of a user other than root half of them | `EAGAIN` |
//! | answers about changes of a user, without root's | [`USER_FEEDS_MAX`] | the user's oldest ends: `ECANCELED` |
//! | answers about changes | [`FEEDS_MAX`] | the oldest ends, of another user than root unless root asks |
//!
//! Only the answers about changes keep more than a place: a reader of the volume's feed. *Why the
//! oldest ends*: a program that stops reading would otherwise keep others out for ever.

use crate::changing::Running;
use crate::feeds::Feed;
use crate::protocol::question::{QUESTION, Question};
use crate::protocol::{CONTROL, Errno};
use parking_lot::Mutex;
use shoal::raw::{Caller, Generation, Ino};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Most questions of a user that wait to be read. A program has one for each of its threads.
const USER_QUESTIONS_MAX: usize = 256;
/// Most questions that wait.
const QUESTIONS_MAX: usize = 16 << 10;
/// Most reads under way: fewer than a ring has slots, and than there are threads to answer them.
const READS_MAX: usize = 24;
/// Most answers about changes of a user.
const USER_FEEDS_MAX: usize = 2;
/// Most answers about changes.
const FEEDS_MAX: usize = 8;

const _: () = assert!(QUESTIONS_MAX * QUESTION <= 64 << 20);

/// Returns whether a node is a control file.
#[inline]
pub(crate) fn is_control(node: Ino) -> bool {
    node.0 & CONTROL == CONTROL
}

/// A question that has been asked, and how far it is answered.
pub(crate) struct Asked {
    /// The question.
    pub question: Question,
    /// User who has asked.
    pub who: Caller,
    /// Number of the next directory.
    pub at: usize,
    /// The place in it.
    pub cookie: u64,
    /// Entries of it that were returned.
    pub entries: usize,
    /// State of an answer about changes, or of a change.
    pub work: Work,
    /// Number of the question.
    number: u64,
}

/// State of an answer that is more than a place.
pub(crate) enum Work {
    /// None yet.
    None,
    /// Changes are being told.
    Feed(Box<Feed>),
    /// Too many others are.
    Ended,
    /// A change is being made.
    Change(Arc<Running>),
}

/// A control file.
struct Node {
    dir: Ino,
    generation: Generation,
    /// References of the kernel.
    lookups: u64,
    asked: Option<Box<Asked>>,
    /// Number of the last question; 0: none yet, or its answer is not wanted.
    number: u64,
    /// The last change that it was asked for.
    change: Option<Arc<Running>>,
}

/// The control files of a mount.
#[derive(Default)]
pub(crate) struct Streams(Mutex<State>);

#[derive(Default)]
struct State {
    nodes: HashMap<u64, Node>,
    /// Number of nodes made, ever.
    made: u64,
    /// Number of questions, ever.
    asked: u64,
    /// Questions by user, with those that are being answered.
    questions: HashMap<u32, usize>,
    /// Their number.
    total: usize,
    /// Reads under way.
    reads: Vec<Reader>,
    /// Answers about changes: questions with their files and users, that read last at the end.
    feeds: Vec<FeedOf>,
}

/// An answer about changes.
#[derive(Clone, Copy)]
struct FeedOf {
    /// Number of the question.
    number: u64,
    /// Its file.
    id: u64,
    uid: u32,
}

/// A read under way.
struct Reader {
    uid: u32,
    /// Number of its request.
    request: u64,
    stop: Arc<AtomicBool>,
}

impl Streams {
    /// Keeps the numbers of files apart from those of a server before this one, which are `ESTALE`.
    pub(crate) fn inherit(&self) {
        self.0.lock().made = crate::calls::first_number();
    }

    /// Makes the control file of a directory, with one reference of the kernel.
    pub(crate) fn make(&self, dir: Ino, generation: Generation) -> Ino {
        let state = &mut *self.0.lock();
        state.made += 1;
        let id = CONTROL | state.made;
        let node = Node { dir, generation, lookups: 1, asked: None, number: 0, change: None };
        state.nodes.insert(id, node);
        Ino(id)
    }

    /// Drops `n` references of the kernel.
    pub(crate) fn forget(&self, id: Ino, n: u64) {
        let state = &mut *self.0.lock();
        let Some(node) = state.nodes.get_mut(&id.0) else { return };
        node.lookups = node.lookups.saturating_sub(n);
        if node.lookups == 0
            && let Some(node) = state.nodes.remove(&id.0)
        {
            state.dropped(node.asked);
        }
    }

    /// Returns the directory of a control file.
    pub(crate) fn dir(&self, id: Ino) -> Option<(Ino, Generation)> {
        self.0.lock().nodes.get(&id.0).map(|node| (node.dir, node.generation))
    }

    /// Takes a question, in place of an earlier one.
    pub(crate) fn ask(&self, id: Ino, question: Question, who: Caller) -> Result<(), Errno> {
        let state = &mut *self.0.lock();
        let node = state.nodes.get_mut(&id.0).ok_or(Errno::ESTALE)?;
        let before = node.asked.take();
        state.dropped(before);
        let own = state.questions.get(&who.uid).copied().unwrap_or(0);
        if who.uid != 0 && (own >= USER_QUESTIONS_MAX || state.total >= QUESTIONS_MAX) {
            return Err(Errno::EAGAIN);
        }
        state.asked += 1;
        state.total += 1;
        *state.questions.entry(who.uid).or_default() += 1;
        let number = state.asked;
        let asked = Asked { question, who, at: 0, cookie: 0, entries: 0, work: Work::None, number };
        if let Some(node) = state.nodes.get_mut(&id.0) {
            (node.asked, node.number) = (Some(Box::new(asked)), number);
        }
        Ok(())
    }

    /// Makes room for an answer about changes to this question of a file, which is being read.
    ///
    /// # Errors
    /// `EAGAIN`: all others are being read, or are root's.
    pub(crate) fn admit(&self, id: Ino, asked: &Asked) -> Result<(), Errno> {
        let state = &mut *self.0.lock();
        let uid = asked.who.uid;
        let own = state.feeds.iter().filter(|feed| feed.uid == uid).count();
        if uid != 0 && own >= USER_FEEDS_MAX {
            state.end_feed(|feed| feed.uid == uid)?;
        } else if state.feeds.len() >= FEEDS_MAX {
            state.end_feed(|feed| uid == 0 || feed.uid != 0)?;
        }
        state.feeds.push(FeedOf { number: asked.number, id: id.0, uid });
        Ok(())
    }

    /// Records the change that a file was asked for.
    pub(crate) fn changes(&self, id: Ino, change: Arc<Running>) {
        if let Some(node) = self.0.lock().nodes.get_mut(&id.0) {
            node.change = Some(change);
        }
    }

    /// Cancels the change that a file was asked for.
    ///
    /// # Errors
    /// `EPERM`: it is another user's; `EINVAL`: there is none.
    pub(crate) fn cancel(&self, id: Ino, uid: u32) -> Result<(), Errno> {
        let state = self.0.lock();
        let node = state.nodes.get(&id.0).ok_or(Errno::ESTALE)?;
        let change = node.change.as_ref().ok_or(Errno::EINVAL)?;
        if !change.is_of(uid) {
            return Err(Errno::EPERM);
        }
        change.cancel();
        Ok(())
    }

    /// Gives up the question of a file.
    pub(crate) fn give_up(&self, id: Ino) {
        let state = &mut *self.0.lock();
        let Some(node) = state.nodes.get_mut(&id.0) else { return };
        node.number = 0;
        let asked = node.asked.take();
        state.dropped(asked);
    }

    /// Records that the caller of a request has been interrupted.
    pub(crate) fn interrupt(&self, request: u64) {
        let state = self.0.lock();
        if let Some(reader) = state.reads.iter().find(|reader| reader.request == request) {
            reader.stop.store(true, Ordering::Relaxed);
        }
    }

    /// Takes the question of a file, to be answered further by the request of that number.
    ///
    /// # Errors
    /// `ESTALE`: no such file; `EINVAL`: it was asked nothing, or another read is under way;
    /// `EAGAIN`: too many reads are.
    pub(crate) fn begin(&self, id: Ino, request: u64) -> Result<Reading<'_>, Errno> {
        let state = &mut *self.0.lock();
        let node = state.nodes.get_mut(&id.0).ok_or(Errno::ESTALE)?;
        let uid = node.asked.as_ref().ok_or(Errno::EINVAL)?.who.uid;
        let own = state.reads.iter().filter(|reader| reader.uid == uid).count();
        if state.reads.len() >= READS_MAX || uid != 0 && own >= READS_MAX / 2 {
            return Err(Errno::EAGAIN);
        }
        let asked = node.asked.take().ok_or(Errno::EINVAL)?;
        let stop = Arc::<AtomicBool>::default();
        state.reads.push(Reader { uid, request, stop: stop.clone() });
        Ok(Reading { streams: self, id, stop, asked: Some(asked) })
    }
}

impl State {
    /// Ends the oldest of these answers about changes that is not being read.
    fn end_feed(&mut self, may_end: impl Fn(&FeedOf) -> bool) -> Result<(), Errno> {
        for (at, feed) in self.feeds.iter().enumerate() {
            let waiting = self.nodes.get_mut(&feed.id).and_then(|node| node.asked.as_mut());
            if may_end(feed)
                && let Some(asked) = waiting.filter(|asked| asked.number == feed.number)
            {
                asked.work = Work::Ended;
                self.feeds.remove(at);
                return Ok(());
            }
        }
        Err(Errno::EAGAIN)
    }

    /// Counts a question no longer.
    fn dropped(&mut self, asked: Option<Box<Asked>>) {
        let Some(asked) = asked else { return };
        self.feeds.retain(|feed| feed.number != asked.number);
        self.total -= 1;
        if let Some(own) = self.questions.get_mut(&asked.who.uid) {
            *own -= 1;
            if *own == 0 {
                self.questions.remove(&asked.who.uid);
            }
        }
    }
}

/// A read under way.
pub(crate) struct Reading<'a> {
    streams: &'a Streams,
    id: Ino,
    stop: Arc<AtomicBool>,
    asked: Option<Box<Asked>>,
}

impl Reading<'_> {
    /// Returns the mark that the caller has been interrupted.
    pub(crate) fn stop(&self) -> Arc<AtomicBool> {
        self.stop.clone()
    }

    /// Returns the question.
    pub(crate) fn asked(&mut self) -> Option<&mut Asked> {
        self.asked.as_deref_mut()
    }

    /// Keeps the question for the next read, unless there is a newer one.
    pub(crate) fn goes_on(mut self) {
        let state = &mut *self.streams.0.lock();
        if let Some(node) = state.nodes.get_mut(&self.id.0)
            && self.asked.as_ref().is_some_and(|asked| asked.number == node.number)
        {
            if let Some(at) = state.feeds.iter().position(|feed| feed.number == node.number) {
                // The newest.
                state.feeds[at..].rotate_left(1);
            }
            node.asked = self.asked.take();
        }
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        let state = &mut *self.streams.0.lock();
        if let Some(at) =
            state.reads.iter().position(|reader| Arc::ptr_eq(&reader.stop, &self.stop))
        {
            state.reads.swap_remove(at);
        }
        state.dropped(self.asked.take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::question::Kind;

    fn question() -> Question {
        Question::new(Kind::Totals, 0, b"")
    }

    fn user(uid: u32) -> Caller {
        Caller { uid, ..Caller::root() }
    }

    impl Streams {
        fn is_empty(&self) -> bool {
            let state = self.0.lock();
            let (nodes, questions) = (state.nodes.len(), state.questions.len());
            [nodes, questions, state.total, state.reads.len(), state.feeds.len()] == [0; 5]
        }
    }

    #[test]
    fn a_file_lives_as_long_as_its_references() {
        let streams = Streams::default();
        let first = streams.make(Ino(7), Generation(1));
        let second = streams.make(Ino(7), Generation(1));
        assert!(is_control(first) && is_control(second) && first != second);
        assert_eq!(streams.dir(first), Some((Ino(7), Generation(1))));
        streams.ask(first, question(), user(5)).unwrap();
        streams.ask(second, question(), user(5)).unwrap();
        streams.ask(second, question(), user(6)).unwrap();
        streams.forget(first, 1);
        assert_eq!(streams.dir(first), None);
        assert_eq!(streams.ask(first, question(), user(5)), Err(Errno::ESTALE));
        assert_eq!(streams.begin(first, 2).err(), Some(Errno::ESTALE));
        streams.give_up(second);
        assert_eq!(streams.begin(second, 2).err(), Some(Errno::EINVAL));
        streams.forget(second, u64::MAX);
        streams.forget(second, 1);
        assert!(streams.is_empty());
    }

    #[test]
    fn a_question_is_kept_until_it_is_answered_or_replaced() {
        let streams = Streams::default();
        let id = streams.make(Ino(7), Generation(1));
        assert_eq!(streams.begin(id, 2).err(), Some(Errno::EINVAL), "nothing asked");
        streams.ask(id, question(), user(5)).unwrap();
        let mut reading = streams.begin(id, 2).unwrap();
        reading.asked().unwrap().cookie = 77;
        assert_eq!(streams.begin(id, 2).err(), Some(Errno::EINVAL), "another read is under way");
        reading.goes_on();
        let mut reading = streams.begin(id, 2).unwrap();
        assert_eq!(reading.asked().unwrap().cookie, 77);
        streams.ask(id, question(), user(5)).unwrap();
        reading.goes_on();
        let mut reading = streams.begin(id, 2).unwrap();
        assert_eq!(reading.asked().unwrap().cookie, 0, "the newer one");
        // The file is closed during the read.
        streams.forget(id, 1);
        reading.goes_on();
        assert!(streams.is_empty());
        let id = streams.make(Ino(7), Generation(1));
        streams.ask(id, question(), user(5)).unwrap();
        let reading = streams.begin(id, 2).unwrap();
        streams.give_up(id);
        reading.goes_on();
        assert_eq!(streams.begin(id, 2).err(), Some(Errno::EINVAL), "given up during the read");
        streams.forget(id, 1);
        assert!(streams.is_empty());
    }

    #[test]
    fn an_interrupted_read_is_told() {
        let streams = Streams::default();
        let [first, second] = [7, 8].map(|dir| streams.make(Ino(dir), Generation(1)));
        for id in [first, second] {
            streams.ask(id, question(), user(5)).unwrap();
        }
        let (one, other) = (streams.begin(first, 10).unwrap(), streams.begin(second, 12).unwrap());
        streams.interrupt(12);
        streams.interrupt(14);
        let is_told = |reading: &Reading<'_>| reading.stop().load(Ordering::Relaxed);
        assert_eq!((is_told(&one), is_told(&other)), (false, true));
        // The question can be read again.
        other.goes_on();
        assert!(streams.begin(second, 16).is_ok_and(|again| !is_told(&again)));
    }

    #[test]
    fn users_have_limits_and_root_has_none() {
        let streams = Streams::default();
        let files: Vec<Ino> =
            (0..USER_QUESTIONS_MAX + 10).map(|_| streams.make(Ino(7), Generation(1))).collect();
        for id in &files[..USER_QUESTIONS_MAX] {
            streams.ask(*id, question(), user(5)).unwrap();
        }
        let last = files[USER_QUESTIONS_MAX];
        assert_eq!(streams.ask(last, question(), user(5)), Err(Errno::EAGAIN));
        streams.ask(last, question(), user(6)).unwrap();
        streams.ask(last, question(), user(0)).unwrap();
        let mine: Vec<_> = files[..READS_MAX / 2].iter().map(|id| streams.begin(*id, 2)).collect();
        assert!(mine.iter().all(Result::is_ok));
        assert_eq!(streams.begin(files[READS_MAX], 2).err(), Some(Errno::EAGAIN));
        let other = streams.begin(last, 2).unwrap();
        drop(mine);
        drop(other);
        // What was begun has been answered.
        assert_eq!(streams.begin(files[0], 2).err(), Some(Errno::EINVAL));
        assert!(streams.begin(files[READS_MAX], 2).is_ok());
        for id in &files {
            streams.ask(*id, question(), user(0)).unwrap();
        }
        let reads: Vec<_> = files.iter().map(|id| streams.begin(*id, 2)).collect();
        assert_eq!(reads.iter().filter(|read| read.is_ok()).count(), READS_MAX);
        drop(reads);
        files.iter().for_each(|id| streams.forget(*id, 1));
        assert!(streams.is_empty());
    }
}
