//! Memory of the sessions of a volume that outlives its server.
//!
//! Problem: a server that dies takes along what its clients have open, and nobody knows which of
//! their calls it has made. A client cannot be believed in either.
//!
//! Rule: what the next server must know of a session lies in memory that only servers have, and the
//! keeper holds: who the client is and the secret by which it is known again, the open nodes, and
//! the outcomes of the last calls. A place is written by ordinary stores, the one that makes it
//! count last.
//!
//! | bytes | content |
//! | --- | --- |
//! | 4096 | head: magic, and how many slots and chunks were ever in use |
//! | `SLOTS` × `SLOT_BYTES` | slots, one for each session |
//! | `CHUNKS` × `CHUNK_BYTES` | chunks of open nodes, each of one session |
//!
//! Pages that were never touched take no memory.
//!
//! **Calls.** A call has a number of its own among those of its lane, which the client gives it. A
//! thread that makes a change first notes the call in its cell beside the journal's ring
//! ([`shoal_engine::CallNote`]) by `unique`, which no request of a kernel has. When the call has
//! returned, its outcome is stored here before the cell is left. So after a death a call was
//!
//! | cell | slot | the call |
//! | --- | --- | --- |
//! | | its outcome | was made, with that outcome |
//! | done | | was made, and its outcome is what is there now (`resent`) |
//! | undone, or none | | was not made |
//!
//! A call in two steps (`put`) has a cell for each, and an outcome of its own for the first.
//!
//! *A client that lies* about the number of a call gets the answer to another call of its own lane.

use crate::memory::{LANES, Mapping};
use crate::peer::Peer;
use crate::shown::Shown;
use parking_lot::Mutex;
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::pipe::PipeFlags;
use shoal_base::{Code, Error, Result};
use shoal_engine::{Generation, Ino, RingMemory};
use std::collections::BTreeSet;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Sessions at a time.
pub(crate) const SLOTS: usize = 8192;
/// Bytes of a slot.
const SLOT_BYTES: usize = 1024;
/// Chunks of all sessions.
const CHUNKS: usize = 8192;
/// Bytes of a chunk.
const CHUNK_BYTES: usize = 4096;
/// Open nodes of a chunk.
pub(crate) const CHUNK_NODES: usize = (CHUNK_BYTES - CHUNK_HEAD) / NODE_BYTES;
const CHUNK_HEAD: usize = 64;
const NODE_WORDS: usize = 3;
const NODE_BYTES: usize = NODE_WORDS * WORD;
const WORD: usize = size_of::<u64>();
const HEAD_BYTES: usize = 4096;
const FILE_BYTES: usize = HEAD_BYTES + SLOTS * SLOT_BYTES + CHUNKS * CHUNK_BYTES;

/// Identifies the memory, with the version of its layout in the lowest byte.
const MAGIC: u64 = 0x5348_4f41_4c53_4b01;

/// Words of the head.
const USED_SLOTS: usize = 1;
const USED_CHUNKS: usize = 2;
/// Words of a slot.
const STATE: usize = 0;
const SECRET: usize = 1;
const WHO: usize = 3;
const CLOSING: usize = 4;
const ATTACHED: usize = 5;
const BEGUN: usize = 6;
const MEMORY: usize = 7;
const OUTCOMES: usize = 8;
/// Words of an outcome: the call and the code, and two of a result.
const OUTCOME_WORDS: usize = 3;

const _: () = assert!((OUTCOMES + LANES * OUTCOME_WORDS) * WORD <= SLOT_BYTES);
const _: () = assert!(SLOTS <= 1 << 14 && LANES <= 1 << 8);

/// Code of a call of which the first step has been made. Others are error numbers and one; 1: it
/// has succeeded.
const STEPPED: u32 = u32::MAX;

/// Bit in the number of a call of a session. No request of a kernel has it.
pub const OF_SESSIONS: u64 = 1 << 62;

/// A call of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Asked {
    /// Its lane.
    pub lane: usize,
    /// Its number among those of the lane.
    pub call: u32,
}

impl Asked {
    /// Mark of a node that the call has opened. Never 0.
    pub(crate) fn mark(self) -> u64 {
        1 << 63 | (self.lane as u64) << 32 | u64::from(self.call)
    }
}

/// Returns the number of a step of a call for the cells beside the ring.
pub(crate) fn unique(slot: u32, asked: Asked, step: u8) -> u64 {
    let Asked { lane, call } = asked;
    OF_SESSIONS
        | u64::from(slot) << 48
        | (lane as u64) << 40
        | u64::from(step) << 32
        | u64::from(call)
}

/// Reads what [`unique`] returns: slot, call and step; `None` for a request of a kernel.
pub(crate) fn parse(unique: u64) -> Option<(u32, Asked, u8)> {
    let asked = Asked { lane: (unique >> 40) as usize & 0xff, call: unique as u32 };
    let is_ours = unique & OF_SESSIONS != 0 && asked.lane < LANES;
    is_ours.then_some(((unique >> 48) as u32 & 0x3fff, asked, (unique >> 32) as u8))
}

/// The stored outcome of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Made {
    /// Its first step has been made.
    Step,
    /// It has succeeded, with two numbers of its result.
    Done(u64, u64),
    /// It has failed, with this error number.
    Failed(i32),
}

impl Made {
    /// The outcome of a call that has returned.
    #[inline]
    pub(crate) fn of(outcome: &Result<(u64, u64)>) -> Made {
        match outcome {
            Ok((first, second)) => Made::Done(*first, *second),
            Err(error) => Made::Failed(error.errno()),
        }
    }
}

/// An open node of a session, as the next server finds it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NodeEntry {
    /// The inode.
    pub ino: Ino,
    /// Its generation.
    pub generation: Generation,
    /// Uses that may be made of it, as bits of [`crate::nodes`].
    pub rights: u32,
    /// [`Asked::mark`] of the call that has opened it.
    pub mark: u64,
}

/// Memory of the sessions of a volume that outlives its server.
#[derive(Debug)]
pub struct KeptSessions {
    words: Mapping,
    file: OwnedFd,
    /// A pipe: who has its second end serves, or will start a server.
    life: [OwnedFd; 2],
    shown: Arc<Shown>,
    /// The first number of the volume's state at this server.
    first: u64,
    /// The page of that, to be read by clients, and to be written.
    state: [OwnedFd; 2],
    ring: Arc<RingMemory>,
    free: Mutex<Free>,
    /// Another server goes on: nothing is changed any more.
    left: AtomicBool,
}

/// A session of a server before this one, and its chunks: the number of the first node, and the
/// chunk.
pub(crate) type Found = (Arc<Slot>, Vec<(u32, u32)>);

/// Free places, the lowest first.
#[derive(Debug, Default)]
struct Free {
    slots: BTreeSet<u32>,
    chunks: BTreeSet<u32>,
}

/// Number of descriptors that the next server needs.
pub const FILES: usize = 4;
/// The same of servers before there were copies of directories.
pub const FILES_BEFORE: usize = 3;

fn failed(what: &str, error: impl std::fmt::Display) -> Error {
    Error::refused(Code::NoMemory, format!("memory of sessions: {what}: {error}"))
}

impl KeptSessions {
    /// Makes memory for the sessions of a volume that is open with this ring.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn make(ring: Arc<RingMemory>) -> Result<Arc<KeptSessions>> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create("shoal-sessions", flags);
        let file = file.map_err(|os| failed("none", os))?;
        rustix::fs::ftruncate(&file, FILE_BYTES as u64).map_err(|os| failed("none", os))?;
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&file, seals).map_err(|os| failed("none", os))?;
        let life = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(|os| failed("pipe", os))?;
        let kept = KeptSessions::map([file, life.0, life.1, Shown::make()?], ring)?;
        kept.words.words(0, 1)[0].store(MAGIC, Ordering::Release);
        Ok(Arc::new(kept))
    }

    /// Maps the memory that a server before this one has left.
    ///
    /// # Errors
    /// `EINVAL` for that of another version.
    pub fn of(files: [OwnedFd; FILES], ring: Arc<RingMemory>) -> Result<Arc<KeptSessions>> {
        let strange = || Error::refused(Code::Invalid, "memory of sessions of another version");
        let found = rustix::fs::fstat(&files[0]).map_err(|os| failed("unknown", os))?;
        if found.st_size != FILE_BYTES as i64 {
            return Err(strange());
        }
        let kept = KeptSessions::map(files, ring)?;
        match kept.words.words(0, 1)[0].load(Ordering::Acquire) {
            MAGIC => Ok(Arc::new(kept)),
            _ => Err(strange()),
        }
    }

    fn map(files: [OwnedFd; FILES], ring: Arc<RingMemory>) -> Result<KeptSessions> {
        let [file, read, write, state] = files;
        let words = Mapping::of(&file, FILE_BYTES, false)?;
        let (shown, first) = Shown::begin(&state)?;
        let (shown, state) = (Arc::new(shown), [Shown::to_read(state.as_fd())?, state]);
        let free =
            Free { slots: (0..SLOTS as u32).collect(), chunks: (0..CHUNKS as u32).collect() };
        let (life, free, left) = ([read, write], Mutex::new(free), AtomicBool::new(false));
        Ok(KeptSessions { words, file, life, shown, first, state, ring, free, left })
    }

    /// The descriptors that the next server needs.
    pub fn files(&self) -> [BorrowedFd<'_>; FILES] {
        let [_, state] = &self.state;
        [self.file.as_fd(), self.life[0].as_fd(), self.life[1].as_fd(), state.as_fd()]
    }

    /// The page with the number of the volume's state, and the number that this server begins with.
    pub(crate) fn shown(&self) -> (&Arc<Shown>, u64) {
        (&self.shown, self.first)
    }

    /// A descriptor of that page, for clients.
    pub(crate) fn state(&self) -> BorrowedFd<'_> {
        self.state[0].as_fd()
    }

    /// A descriptor that hangs up when nobody serves, or will start a server.
    pub(crate) fn life(&self) -> BorrowedFd<'_> {
        self.life[0].as_fd()
    }

    /// The ring beside which calls are noted.
    pub(crate) fn ring(&self) -> &Arc<RingMemory> {
        &self.ring
    }

    /// Leaves everything to the next server.
    pub(crate) fn leave(&self) {
        self.left.store(true, Ordering::SeqCst);
    }

    /// Returns whether another server goes on.
    pub(crate) fn is_left(&self) -> bool {
        self.left.load(Ordering::SeqCst)
    }

    fn slot_words(&self, slot: u32) -> &[AtomicU64] {
        assert!((slot as usize) < SLOTS);
        self.words.words(HEAD_BYTES + slot as usize * SLOT_BYTES, SLOT_BYTES / WORD)
    }

    fn chunk_words(&self, chunk: u32) -> &[AtomicU64] {
        assert!((chunk as usize) < CHUNKS);
        let at = HEAD_BYTES + SLOTS * SLOT_BYTES + chunk as usize * CHUNK_BYTES;
        self.words.words(at, CHUNK_BYTES / WORD)
    }

    fn node_words(&self, chunk: u32, at: usize) -> &[AtomicU64] {
        assert!(at < CHUNK_NODES);
        &self.chunk_words(chunk)[CHUNK_HEAD / WORD + at * NODE_WORDS..][..NODE_WORDS]
    }

    /// Records that a place is in use, so that the next server looks at it.
    fn reach(&self, word: usize, number: u32) {
        let high = &self.words.words(0, 3)[word];
        if high.load(Ordering::Relaxed) <= u64::from(number) {
            high.store(u64::from(number) + 1, Ordering::Release);
        }
    }

    /// Claims a slot for a session; `None` if all are in use.
    pub(crate) fn claim(self: &Arc<Self>, peer: Peer, secret: [u64; 2]) -> Option<Arc<Slot>> {
        let number = {
            let mut free = self.free.lock();
            let number = free.slots.pop_first()?;
            self.reach(USED_SLOTS, number);
            number
        };
        let words = self.slot_words(number);
        words[OUTCOMES..].iter().for_each(|word| word.store(0, Ordering::Relaxed));
        words[SECRET].store(secret[0], Ordering::Relaxed);
        words[SECRET + 1].store(secret[1], Ordering::Relaxed);
        words[WHO].store(who(peer), Ordering::Relaxed);
        words[CLOSING].store(0, Ordering::Relaxed);
        words[ATTACHED].store(0, Ordering::Relaxed);
        words[BEGUN].store(peer.begun(), Ordering::Relaxed);
        words[STATE].store(1, Ordering::Release);
        Some(Arc::new(Slot { kept: self.clone(), number }))
    }

    /// Finds the sessions that a server before this one has left. To be called once, before a slot
    /// is claimed.
    pub(crate) fn find(self: &Arc<Self>) -> Vec<Found> {
        let used = |word: usize, most: usize| {
            let used = self.words.words(0, 3)[word].load(Ordering::Acquire);
            used.min(most as u64) as u32
        };
        let mut free = self.free.lock();
        let live = |slot: &u32| self.slot_words(*slot)[STATE].load(Ordering::Acquire) == 1;
        let slots: Vec<u32> = (0..used(USED_SLOTS, SLOTS)).filter(live).collect();
        let mut found: Vec<_> = slots.iter().map(|slot| (*slot, Vec::new())).collect();
        for chunk in 0..used(USED_CHUNKS, CHUNKS) {
            let owner = self.chunk_words(chunk)[0].load(Ordering::Acquire);
            let (slot, first) = ((owner as u32).wrapping_sub(1), (owner >> 32) as u32);
            if let Ok(at) = slots.binary_search(&slot) {
                found[at].1.push((first, chunk));
                free.chunks.remove(&chunk);
            } else if owner != 0 {
                // Its session has ended while it was given back.
                self.clear(chunk);
            }
        }
        free.slots.retain(|slot| slots.binary_search(slot).is_err());
        let slot = |number| Arc::new(Slot { kept: self.clone(), number });
        found.into_iter().map(|(number, chunks)| (slot(number), chunks)).collect()
    }

    fn clear(&self, chunk: u32) {
        for at in 0..CHUNK_NODES {
            self.node_words(chunk, at)[2].store(0, Ordering::Relaxed);
        }
        self.chunk_words(chunk)[0].store(0, Ordering::Release);
    }
}

fn who(peer: Peer) -> u64 {
    u64::from(peer.pid) << 32 | u64::from(peer.uid)
}

/// The place of a session.
#[derive(Debug)]
pub(crate) struct Slot {
    kept: Arc<KeptSessions>,
    number: u32,
}

impl Slot {
    /// Its number.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// The memory that it is in.
    pub(crate) fn kept(&self) -> &Arc<KeptSessions> {
        &self.kept
    }

    fn words(&self) -> &[AtomicU64] {
        self.kept.slot_words(self.number)
    }

    /// Returns whether it is the session of a client that has this secret, and is this process.
    pub(crate) fn is_of(&self, peer: Peer, secret: [u64; 2]) -> bool {
        let is = |word: usize, value| self.words()[word].load(Ordering::Acquire) == value;
        // All of them: the time says nothing about the secret.
        is(SECRET, secret[0]) & is(SECRET + 1, secret[1]) & is(WHO, who(peer))
    }

    /// The process of its client, and its user; without the group.
    pub(crate) fn peer(&self) -> Peer {
        let who = self.words()[WHO].load(Ordering::Acquire);
        Peer { pid: (who >> 32) as u32, uid: who as u32, gid: 0 }
    }

    /// When the process of its client began ([`Peer::begun`]).
    pub(crate) fn begun(&self) -> u64 {
        self.words()[BEGUN].load(Ordering::Acquire)
    }

    /// Records the inode number of the client's memory.
    pub(crate) fn set_memory(&self, ino: u64) {
        self.words()[MEMORY].store(ino, Ordering::Release);
    }

    /// Inode number of the client's memory.
    pub(crate) fn memory(&self) -> u64 {
        self.words()[MEMORY].load(Ordering::Acquire)
    }

    /// Counts a server to which its client attaches.
    pub(crate) fn attach(&self) {
        self.words()[ATTACHED].fetch_add(1, Ordering::AcqRel);
    }

    /// Servers to which its client has attached after the first.
    pub(crate) fn attached(&self) -> u32 {
        self.words()[ATTACHED].load(Ordering::Acquire) as u32 & 0x7fff
    }

    fn outcome(&self, lane: usize) -> &[AtomicU64] {
        assert!(lane < LANES);
        &self.words()[OUTCOMES + lane * OUTCOME_WORDS..][..OUTCOME_WORDS]
    }

    /// Stores the outcome of a call.
    #[inline]
    pub(crate) fn made(&self, asked: Asked, made: Made) {
        let (code, numbers) = match made {
            Made::Step => (STEPPED, (0, 0)),
            Made::Done(first, second) => (1, (first, second)),
            Made::Failed(errno) => (errno.cast_unsigned().wrapping_add(1), (0, 0)),
        };
        let words = self.outcome(asked.lane);
        // Of another call before this one it must not be taken for the result.
        words[0].store(0, Ordering::Relaxed);
        words[1].store(numbers.0, Ordering::Release);
        words[2].store(numbers.1, Ordering::Release);
        words[0].store(u64::from(asked.call) << 32 | u64::from(code), Ordering::Release);
    }

    /// Returns the stored outcome of a call.
    pub(crate) fn outcome_of(&self, asked: Asked) -> Option<Made> {
        let words = self.outcome(asked.lane);
        let word = words[0].load(Ordering::Acquire);
        if word >> 32 != u64::from(asked.call) {
            return None;
        }
        match word as u32 {
            0 => None,
            STEPPED => Some(Made::Step),
            1 => {
                Some(Made::Done(words[1].load(Ordering::Acquire), words[2].load(Ordering::Acquire)))
            }
            code => Some(Made::Failed(code.wrapping_sub(1).cast_signed())),
        }
    }

    /// Records that a node is being closed; `None`: none is.
    #[inline]
    pub(crate) fn set_closing(&self, node: Option<u32>) {
        self.words()[CLOSING].store(node.map_or(0, |node| u64::from(node) + 1), Ordering::Release);
    }

    /// The node that was being closed.
    pub(crate) fn closing(&self) -> Option<u32> {
        let word = self.words()[CLOSING].load(Ordering::Acquire);
        word.checked_sub(1).map(|node| node as u32)
    }

    /// Claims a chunk for the nodes from `first` on; `None` if all are in use.
    pub(crate) fn chunk(&self, first: u32) -> Option<u32> {
        let mut free = self.kept.free.lock();
        let chunk = free.chunks.pop_first()?;
        self.kept.reach(USED_CHUNKS, chunk);
        drop(free);
        let owner = u64::from(first) << 32 | u64::from(self.number + 1);
        self.kept.chunk_words(chunk)[0].store(owner, Ordering::Release);
        Some(chunk)
    }

    /// Records an open node.
    #[inline]
    pub(crate) fn opened(&self, chunk: u32, at: usize, node: &NodeEntry) {
        let words = self.kept.node_words(chunk, at);
        words[0].store(node.ino.0, Ordering::Relaxed);
        let more = u64::from(node.generation.0) << 32 | u64::from(node.rights);
        words[1].store(more, Ordering::Relaxed);
        words[2].store(node.mark, Ordering::Release);
    }

    /// Records that a node is open no more.
    #[inline]
    pub(crate) fn closed(&self, chunk: u32, at: usize) {
        self.kept.node_words(chunk, at)[2].store(0, Ordering::Release);
    }

    /// Returns an open node.
    pub(crate) fn node(&self, chunk: u32, at: usize) -> Option<NodeEntry> {
        let words = self.kept.node_words(chunk, at);
        let mark = words[2].load(Ordering::Acquire);
        let more = words[1].load(Ordering::Relaxed);
        let generation = Generation((more >> 32) as u32);
        let ino = Ino(words[0].load(Ordering::Relaxed));
        (mark != 0).then_some(NodeEntry { ino, generation, rights: more as u32, mark })
    }

    /// Gives the slot back, with its chunks. Unless another server goes on.
    pub(crate) fn give_back(&self, chunks: impl Iterator<Item = u32>) {
        if self.kept.is_left() {
            return;
        }
        // First, so that the next server does not wait for its client.
        self.words()[STATE].store(0, Ordering::Release);
        let chunks: Vec<u32> = chunks.inspect(|chunk| self.kept.clear(*chunk)).collect();
        let mut free = self.kept.free.lock();
        free.chunks.extend(chunks);
        free.slots.insert(self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: Peer = Peer { pid: 5, uid: 6, gid: 7 };

    fn kept() -> Arc<KeptSessions> {
        KeptSessions::make(Arc::new(RingMemory::without_name().unwrap())).unwrap()
    }

    /// The memory as the next server maps it.
    fn next(kept: &KeptSessions) -> Arc<KeptSessions> {
        let files = kept.files().map(|file| file.try_clone_to_owned().unwrap());
        KeptSessions::of(files, kept.ring().clone()).unwrap()
    }

    #[test]
    fn the_next_server_finds_what_was_there() {
        let kept = kept();
        let slots: Vec<_> = (0..3).map(|n| kept.claim(PEER, [n, 9]).unwrap()).collect();
        let node = |n: u32| NodeEntry {
            ino: Ino(u64::MAX - u64::from(n)),
            generation: Generation(n),
            rights: 5,
            mark: Asked { lane: 31, call: n }.mark(),
        };
        let chunk = slots[1].chunk(0).unwrap();
        (0..CHUNK_NODES).for_each(|at| slots[1].opened(chunk, at, &node(at as u32)));
        slots[1].closed(chunk, 7);
        slots[1].set_closing(Some(0));
        let far = slots[2].chunk(CHUNK_NODES as u32).unwrap();
        slots[2].opened(far, 1, &node(1));
        slots[0].give_back(std::iter::empty());
        slots[2].made(Asked { lane: 3, call: 8 }, Made::Done(10, 11));

        let again = next(&kept);
        let found = again.find();
        let numbers: Vec<_> = found.iter().map(|(slot, _)| slot.number()).collect();
        assert_eq!(numbers, [1, 2]);
        let (slot, chunks) = &found[0];
        assert_eq!((slot.closing(), &chunks[..]), (Some(0), &[(0, chunk)][..]));
        let nodes = (0..CHUNK_NODES).map(|at| slot.node(chunk, at));
        assert!(nodes.enumerate().all(|(at, it)| it == (at != 7).then(|| node(at as u32))));
        let (slot, chunks) = &found[1];
        assert_eq!((slot.closing(), &chunks[..]), (None, &[(CHUNK_NODES as u32, far)][..]));
        assert_eq!(slot.outcome_of(Asked { lane: 3, call: 8 }), Some(Made::Done(10, 11)));
        assert_eq!(slot.outcome_of(Asked { lane: 3, call: 9 }), None);
        assert_eq!(slot.outcome_of(Asked { lane: 4, call: 8 }), None);
        // What is free is given out again, and nothing else.
        assert_eq!(again.claim(PEER, [0, 0]).unwrap().number(), 0);
        assert_eq!(again.claim(PEER, [0, 0]).unwrap().number(), 3);
        assert_eq!(slot.chunk(0), Some(2));
        slot.give_back([far].into_iter());
        assert_eq!((slot.chunk(0), slot.node(far, 1)), (Some(far), None));
        assert_eq!(next(&again).find().len(), 3);
    }

    #[test]
    fn a_client_is_known_by_its_secret_and_its_process() {
        let slot = kept().claim(PEER, [1, 2]).unwrap();
        assert!(slot.is_of(PEER, [1, 2]));
        assert!(!slot.is_of(PEER, [1, 3]) && !slot.is_of(PEER, [0, 2]));
        assert!(!slot.is_of(Peer { uid: 0, ..PEER }, [1, 2]));
        assert!(!slot.is_of(Peer { pid: 6, ..PEER }, [1, 2]));
        assert_eq!((slot.peer().pid, slot.peer().uid), (5, 6));
    }

    #[test]
    fn outcomes_come_back_as_they_were_stored() {
        let slot = kept().claim(PEER, [1, 2]).unwrap();
        let asked = Asked { lane: LANES - 1, call: u32::MAX };
        for made in [Made::Step, Made::Done(u64::MAX, 0), Made::Failed(5), Made::Failed(0)] {
            slot.made(asked, made);
            let expected = if made == Made::Failed(0) { Made::Done(0, 0) } else { made };
            assert_eq!(slot.outcome_of(asked), Some(expected));
        }
        for (lane, step) in [(0, 0), (LANES - 1, 255)] {
            let asked = Asked { lane, call: 77 };
            let number = unique(SLOTS as u32 - 1, asked, step);
            assert_eq!(parse(number), Some((SLOTS as u32 - 1, asked, step)));
            assert_eq!(parse(number & !OF_SESSIONS), None);
        }
    }

    #[test]
    fn what_is_left_is_not_changed() {
        let kept = kept();
        let slot = kept.claim(PEER, [1, 2]).unwrap();
        kept.leave();
        slot.give_back(std::iter::empty());
        assert_eq!(next(&kept).find().len(), 1);
        let files = kept.files().map(|file| file.try_clone_to_owned().unwrap());
        let [_, read, write, state] = files;
        let other = rustix::fs::memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
        assert!(KeptSessions::of([other, read, write, state], kept.ring().clone()).is_err());
    }
}
