//! Names that were removed, for the change feed: a window of the newest ones, in memory.
//!
//! Problem: a name that is removed is in no image any more. A reader who wants to know which names
//! are gone since an earlier moment would have to compare all directories.
//!
//! Rule: while the window is on, a transaction that removes a name adds it to the window under the
//! LSN of its record, before the record is complete; replay adds the names of the records that it
//! applies. So a reader who has seen everything up to an LSN durable finds all names removed before
//! it. The window is bounded: its oldest part is dropped, and [`RemovedNames::complete_from`] tells
//! from which LSN on it has all names. The engine stores it when the volume is closed
//! (`engine/src/changes/window.rs`).
//!
//! The names are kept encoded, in chunks of at most [`CHUNK_MAX`] bytes, so that the bound is one
//! of bytes, and a chunk is stored as it is:
//!
//! | bytes | contents, little-endian |
//! | --- | --- |
//! | 8 | LSN of the record |
//! | 8, 4 | directory: inode number, generation |
//! | 8, 4 | inode: number, generation; 0 if not known |
//! | 1 | 1: the inode got another name in the same record; otherwise 0 |
//! | 1 | bytes of the name, 1 to 255 |
//! | … | the name |

use shoal_base::sync::{AtomicBool, Mutex};
use shoal_base::{Epoch, Generation, Ino, Lsn};
use shoal_format::bytes::{Put, Reader};
use shoal_format::dirent::Dirent;
use shoal_format::item::Item;
use shoal_format::node::TreeId;
use std::collections::VecDeque;
use std::sync::atomic::Ordering;

/// Bytes of a name in a chunk, without the name.
const ENTRY: usize = 8 + 8 + 4 + 8 + 4 + 1 + 1;
/// Maximum bytes of a chunk.
pub const CHUNK_MAX: usize = 48 << 10;
/// Maximum number of chunks: 3 MiB, about 60,000 names.
pub const CHUNKS: usize = 64;

/// A name that was removed from a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemovedName {
    /// LSN of the record that removed it.
    pub lsn: Lsn,
    /// The directory.
    pub dir: Ino,
    /// Its generation.
    pub dir_generation: Generation,
    /// The inode that had the name.
    pub ino: Ino,
    /// Its generation; 0 if not known.
    pub generation: Generation,
    /// The inode got another name in the same record: it was renamed.
    pub moved: bool,
    /// The name.
    pub name: Vec<u8>,
}

impl RemovedName {
    fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.lsn.0);
        out.put_u64(self.dir.0);
        out.put_u32(self.dir_generation.0);
        out.put_u64(self.ino.0);
        out.put_u32(self.generation.0);
        out.put_u8(self.moved.into());
        out.put_u8(self.name.len() as u8);
        out.put_bytes(&self.name);
    }

    /// Decodes the next name.
    fn decode(r: &mut Reader<'_>) -> Option<RemovedName> {
        let removed = RemovedName {
            lsn: Lsn(r.u64()?),
            dir: Ino(r.u64()?),
            dir_generation: Generation(r.u32()?),
            ino: Ino(r.u64()?),
            generation: Generation(r.u32()?),
            moved: flag(r)?,
            name: {
                let len = r.u8()?;
                r.take(len.into())?.to_vec()
            },
        };
        (!removed.name.is_empty()).then_some(removed)
    }
}

fn flag(r: &mut Reader<'_>) -> Option<bool> {
    r.u8().filter(|byte| *byte <= 1).map(|byte| byte == 1)
}

/// Returns the inodes that a record gives a name.
pub(crate) fn inodes_named(record: &[u8]) -> Vec<Ino> {
    let (mut named, mut r) = (Vec::new(), Reader::new(record));
    while !r.is_empty()
        && let Some(item) = Item::decode(&mut r)
    {
        let child = match item {
            Item::Named { entry, .. } => Some(entry.child),
            Item::TreePut { root, tree: TreeId::Dirents, value, .. } => {
                Dirent::decode(root, value).map(|entry| entry.child)
            }
            Item::TreePut { tree: TreeId::Imap | TreeId::Extents | TreeId::Attrs, .. }
            | Item::TreeDel { .. }
            | Item::TreeDelRange { .. }
            | Item::Core { .. }
            | Item::DataFork { .. }
            | Item::AttrFork { .. }
            | Item::DirTouch { .. }
            | Item::Links { .. }
            | Item::Free { .. }
            | Item::OrphanAdd { .. }
            | Item::OrphanDel { .. }
            | Item::IntentLog { .. }
            | Item::IntentProgress { .. }
            | Item::IntentDone { .. }
            | Item::Root { .. }
            | Item::Unnamed { .. }
            | Item::Moved { .. } => None,
        };
        named.extend(child);
    }
    named
}

/// Names in the order in which they came, and a number that tells which part of the window it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RemovedChunk {
    /// Number of the chunk, ascending.
    pub number: u64,
    /// The largest LSN of its names.
    newest: Lsn,
    bytes: Vec<u8>,
    /// Bytes that are stored.
    stored: usize,
}

impl RemovedChunk {
    /// Decodes a stored chunk. `None` if that is none.
    pub fn decode(number: u64, bytes: Vec<u8>) -> Option<RemovedChunk> {
        if bytes.len() > CHUNK_MAX {
            return None;
        }
        let (mut r, mut newest) = (Reader::new(&bytes), Lsn(0));
        while !r.is_empty() {
            newest = newest.max(RemovedName::decode(&mut r)?.lsn);
        }
        let stored = bytes.len();
        Some(RemovedChunk { number, newest, bytes, stored })
    }

    /// Its bytes, to be stored.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns whether it has names that are not stored.
    pub fn is_new(&self) -> bool {
        self.stored < self.bytes.len()
    }

    /// Calls `each` with the names whose LSN is at least `since`.
    fn for_each(&self, since: Lsn, each: &mut dyn FnMut(RemovedName)) {
        let mut r = Reader::new(&self.bytes);
        while self.newest >= since
            && let Some(removed) = RemovedName::decode(&mut r)
        {
            if removed.lsn >= since {
                each(removed);
            }
        }
    }
}

/// State of the window, as it is stored.
///
/// | bytes | contents, little-endian |
/// | --- | --- |
/// | 1, 1 | version 1; 1 if removed names are kept, otherwise 0 |
/// | 4 | series of the marks |
/// | 8 | number of the checkpoint with which the chunks were stored; 0: none |
/// | 8 | LSN from which on they have all names |
/// | 8, 4 | number of the first chunk, number of chunks |
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RemovedHeader {
    /// Removed names are kept.
    pub on: bool,
    /// Replaced by a repair: marks of an earlier series are too old.
    pub series: u32,
    /// Number of the checkpoint with which the chunks were stored; 0: none.
    pub epoch: Epoch,
    /// The chunks have all names removed from this LSN on.
    pub complete_from: Lsn,
    /// Number of the first chunk.
    pub first: u64,
    /// Number of chunks.
    pub chunks: u32,
}

impl RemovedHeader {
    const VERSION: u8 = 1;

    /// The state without names.
    pub fn new(on: bool, series: u32) -> RemovedHeader {
        RemovedHeader { on, series, epoch: 0, complete_from: Lsn(0), first: 0, chunks: 0 }
    }

    /// Returns its bytes.
    pub fn to_bytes(self) -> Vec<u8> {
        let mut out = vec![Self::VERSION, self.on.into()];
        out.put_u32(self.series);
        out.put_u64(self.epoch);
        out.put_u64(self.complete_from.0);
        out.put_u64(self.first);
        out.put_u32(self.chunks);
        out
    }

    /// Reads it; `None` for other bytes.
    pub fn from_bytes(bytes: &[u8]) -> Option<RemovedHeader> {
        let mut r = Reader::new(bytes);
        r.u8().filter(|version| *version == Self::VERSION)?;
        let header = RemovedHeader {
            on: flag(&mut r)?,
            series: r.u32()?,
            epoch: r.u64()?,
            complete_from: Lsn(r.u64()?),
            first: r.u64()?,
            chunks: r.u32()?,
        };
        let possible = header.chunks as usize <= CHUNKS && header.first < 1 << 60;
        (r.is_empty() && possible).then_some(header)
    }
}

#[derive(Default)]
struct Window {
    /// The window has all names removed from this LSN on.
    complete_from: Lsn,
    chunks: VecDeque<RemovedChunk>,
}

impl Window {
    fn add(&mut self, removed: &RemovedName) {
        let len = ENTRY + removed.name.len();
        if self.chunks.back().is_none_or(|last| last.bytes.len() + len > CHUNK_MAX) {
            let number = self.chunks.back().map_or(0, |last| last.number + 1);
            self.push(RemovedChunk { number, ..RemovedChunk::default() });
        }
        if let Some(last) = self.chunks.back_mut() {
            last.newest = last.newest.max(removed.lsn);
            removed.encode(&mut last.bytes);
        }
    }

    fn push(&mut self, chunk: RemovedChunk) {
        if self.chunks.len() == CHUNKS
            && let Some(oldest) = self.chunks.pop_front()
        {
            self.complete_from = self.complete_from.max(Lsn(oldest.newest.0 + 1));
        }
        self.chunks.push_back(chunk);
    }
}

/// The window of removed names of a volume.
#[derive(Default)]
pub struct RemovedNames {
    on: AtomicBool,
    window: Mutex<Window>,
}

impl RemovedNames {
    /// Returns whether removed names are kept.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    /// Begins an empty window. Names removed from `lsn` on must be added.
    pub fn start(&self, lsn: Lsn) {
        *self.window.lock() = Window { complete_from: lsn, chunks: VecDeque::new() };
        self.on.store(true, Ordering::Relaxed);
    }

    /// Drops the window. Names are no longer kept.
    pub fn stop(&self) {
        self.on.store(false, Ordering::Relaxed);
        *self.window.lock() = Window::default();
    }

    /// Puts stored chunks before those of the window: they have all names that were removed from
    /// `complete_from` to the beginning of the window.
    pub fn put_before(&self, stored: Vec<RemovedChunk>, complete_from: Lsn) {
        let mut window = self.window.lock();
        let replayed = std::mem::take(&mut *window);
        window.complete_from = complete_from;
        stored.into_iter().for_each(|chunk| window.push(chunk));
        for chunk in &replayed.chunks {
            chunk.for_each(Lsn(0), &mut |removed| window.add(&removed));
        }
        window.complete_from = match replayed.chunks.front() {
            // It has lost names itself.
            Some(first) if first.number > 0 => window.complete_from.max(replayed.complete_from),
            _ => window.complete_from,
        };
    }

    /// Adds a name.
    pub(crate) fn add(&self, removed: &RemovedName) {
        if self.is_on() && (1..=255).contains(&removed.name.len()) {
            self.window.lock().add(removed);
        }
    }

    /// Returns the LSN from which on the window has all removed names; `None` if it has none.
    pub fn complete_from(&self) -> Option<Lsn> {
        let window = self.window.lock();
        self.is_on().then_some(window.complete_from)
    }

    /// Returns the names removed at `since` or later, by LSN, and the LSN from which on these are
    /// all. `None` if the window is off.
    pub fn since(&self, since: Lsn) -> Option<(Vec<RemovedName>, Lsn)> {
        let window = self.window.lock();
        if !self.is_on() {
            return None;
        }
        let mut names = Vec::new();
        window.chunks.iter().for_each(|c| c.for_each(since, &mut |name| names.push(name)));
        let complete_from = window.complete_from;
        drop(window);
        // Threads add theirs in any order.
        names.sort_by_key(|removed| removed.lsn);
        Some((names, complete_from))
    }

    /// Returns the chunks, oldest first.
    pub fn chunks(&self) -> Vec<RemovedChunk> {
        self.window.lock().chunks.iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn removed(lsn: u64, len: usize) -> RemovedName {
        RemovedName {
            lsn: Lsn(lsn),
            dir: Ino(1),
            dir_generation: Generation(2),
            ino: Ino(lsn),
            generation: Generation(3),
            moved: lsn.is_multiple_of(2),
            name: vec![b'n'; len],
        }
    }

    #[test]
    fn the_window_drops_its_oldest_names_and_says_so() {
        let names = RemovedNames::default();
        assert_eq!(names.since(Lsn(0)), None);
        names.start(Lsn(10));
        let each = CHUNK_MAX / (ENTRY + 255);
        for lsn in 10..10 + (each * CHUNKS) as u64 {
            names.add(&removed(lsn, 255));
        }
        assert_eq!(names.complete_from(), Some(Lsn(10)));
        names.add(&removed(9_000_000, 255));
        let from = 10 + each as u64;
        assert_eq!(names.complete_from(), Some(Lsn(from)));
        let (kept, complete) = names.since(Lsn(0)).expect("on");
        assert_eq!((complete, kept[0].lsn), (Lsn(from), Lsn(from)));
        assert_eq!(kept.len(), each * (CHUNKS - 1) + 1);
        assert_eq!(names.since(Lsn(9_000_000)).expect("on").0, [removed(9_000_000, 255)]);
        let bytes: usize = names.chunks().iter().map(|chunk| chunk.bytes.len()).sum();
        assert!(bytes <= CHUNKS * CHUNK_MAX);
        names.stop();
        assert_eq!((names.complete_from(), names.chunks().len()), (None, 0));
    }

    #[test]
    fn stored_chunks_come_before_the_replayed_names() {
        let names = RemovedNames::default();
        names.start(Lsn(10));
        (10..2000).for_each(|lsn| names.add(&removed(lsn, 20)));
        let chunks = names.chunks();
        let stored = chunks.iter().map(|chunk| {
            assert!(chunk.is_new());
            RemovedChunk::decode(chunk.number, chunk.bytes().to_vec()).expect("a chunk")
        });
        let stored: Vec<RemovedChunk> = stored.collect();
        assert!(stored.len() > 1 && stored.iter().all(|chunk| !chunk.is_new()));
        let again = RemovedNames::default();
        again.start(Lsn(2000));
        again.add(&removed(2000, 20));
        again.put_before(stored, Lsn(10));
        let (all, complete) = again.since(Lsn(0)).expect("on");
        assert_eq!((complete, all.len()), (Lsn(10), 1991));
        assert!(all.is_sorted_by_key(|removed| removed.lsn));
        assert_eq!(again.chunks().iter().filter(|chunk| chunk.is_new()).count(), 1);
    }

    #[test]
    fn bytes_that_are_no_chunk_are_refused() {
        let mut bytes = Vec::new();
        removed(7, 5).encode(&mut bytes);
        assert!(RemovedChunk::decode(0, bytes.clone()).is_some());
        for len in 1..bytes.len() {
            assert_eq!(RemovedChunk::decode(0, bytes[..len].to_vec()), None, "{len} bytes");
        }
        assert_eq!(RemovedChunk::decode(0, vec![0; CHUNK_MAX + 1]), None);
        bytes[ENTRY - 2] = 2;
        assert_eq!(RemovedChunk::decode(0, bytes), None);
    }
}
