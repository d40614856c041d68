//! Parallel execution of a check's passes.
//!
//! Problem: one thread with one read in progress leaves processors and device idle. But the report
//! must not depend on the number of threads.
//!
//! Rule: a pass is partitioned into pieces: runs of adjacent leaves of a tree, with the inode
//! blocks that they point to. The partition depends only on the volume. A [`Worker`] processes one
//! piece and keeps its results. The results are merged in the order of the pieces (`sum.rs`), which
//! also checks the boundaries between pieces. During a pass, the workers share the volume, which
//! does not change, and the census, in which they increment counters.
//!
//! Proof: the result of a piece depends only on the volume and on the census of earlier passes.
//! Counters of the census are read after the pass, and addition commutes. One thread processes the
//! same pieces, so it reports the same problems in the same order.
//!
//! Cost: a thread that finishes its piece early waits until the pieces before it are merged. The
//! leaves of the next pieces are announced to the device, so that it reads while the threads
//! compute.

use super::object::Objects;
use super::sets::{Seed, Set};
use super::{PROBLEMS_MAX, census::Block, census::Dir};
use crate::check::Inspection;
use crate::types::{CheckReport, Problem};
use shoal_base::sync::crew::{Steps, in_order};
use shoal_base::{Addr, Epoch, Error, Ino, Result, RootId};
use shoal_device::Device;
use shoal_format::Ptr;
use shoal_format::extent::Extent;
use shoal_format::node::{Key, TreeId};
use shoal_itable::ProjectUse;
use shoal_tree::Part;
use shoal_txn::Root;
use std::collections::{BTreeMap, VecDeque};

/// Maximum leaves of a piece: 1 MiB. Two in tests, so that small volumes have many pieces.
pub(super) const LEAVES: usize = if cfg!(debug_assertions) { 2 } else { 64 };
/// Pieces per thread that are announced to the device in advance.
const AHEAD: usize = 2;
/// Maximum gap in bytes between two nodes that are announced together.
const GAP: u64 = 64 << 10;

/// Processor time of a check for an inode, a directory entry, and a KiB of data, in nanoseconds.
/// Only the estimate of the time left depends on them.
pub(super) const WORK_INODE: u64 = 300;
pub(super) const WORK_ENTRY: u64 = 350;
pub(super) const WORK_KIB: u64 = 400;

/// Consecutive extent records of one file in a piece.
pub(super) struct Owner {
    pub ino: Ino,
    /// Type of the inode; `None` if it is free.
    pub kind: Option<u8>,
    /// The inode's core has no extents in the tree.
    pub is_wrong: bool,
    pub first: Extent,
    /// End of the last extent in the file, in bytes.
    pub end: u64,
    pub records: u64,
    pub bytes: u64,
}

/// Results of one piece.
#[derive(Default)]
pub(super) struct Found {
    pub report: CheckReport,
    /// Subvolume of the piece; set by the inode pass.
    pub root: Option<RootId>,
    pub names: Set,
    pub pointers: Set,
    pub doubt: bool,
    pub broken: bool,
    pub lost: Vec<(RootId, u64, u64)>,
    pub data: Vec<(u64, u32)>,
    /// Live bytes by segment: segment, data, metadata.
    pub live: Vec<(usize, u64, u64)>,
    pub prealloc: u64,
    /// Bytes of extents by inode: those in its core, minus those found.
    pub bytes: Vec<(Ino, i128)>,
    pub owners: Vec<Owner>,
    /// Key of the first directory entry, and the key required after the last one, if that is
    /// chained.
    pub chain: Option<(RootId, Key, Option<Key>)>,
    /// Results of the inode pass: blocks, inodes with many links, directories.
    pub blocks: Vec<Block>,
    pub many_links: Vec<(Ino, u32)>,
    pub dirs: Vec<Dir>,
    /// Use of projects, by number.
    pub projects: BTreeMap<u32, ProjectUse>,
    /// Work done, in nanoseconds.
    pub done: u64,
}

/// Processes one piece.
pub(super) struct Worker<'v> {
    pub volume: Inspection<'v>,
    pub seed: Seed,
    pub found: Found,
    /// Data objects still to be read.
    pub objects: Objects,
    /// Scratch space for hashes.
    pub buffer: Vec<u8>,
    /// The volume has quotas.
    pub has_quotas: bool,
}

impl<'v> Worker<'v> {
    pub(super) fn new(volume: Inspection<'v>, seed: Seed) -> Worker<'v> {
        let (found, objects) = (Found::default(), Objects::default());
        let has_quotas = !volume.0.quotas.table.lock().rows.is_empty();
        Worker { volume, seed, found, objects, buffer: Vec::new(), has_quotas }
    }

    pub(super) fn finish(mut self) -> Result<Found> {
        self.read_objects()?;
        Ok(self.found)
    }

    /// Counts the leaves of a part.
    pub(super) fn begin(&mut self, tree: TreeId, part: &Part) {
        self.found.report.leaves[tree as usize] += part.leaves as u64;
    }

    pub(super) fn problem(&mut self, rule: &'static str, message: String) {
        if self.found.report.problems.len() < PROBLEMS_MAX {
            self.found.report.problems.push(Problem { rule, message });
        }
    }

    /// Reports nodes of a tree that cannot be read.
    pub(super) fn lost_nodes(&mut self, root: &Root, tree: TreeId, nodes: Vec<(Error, Key, Key)>) {
        for (error, low, high) in nodes {
            let volume = self.volume;
            let whose = volume.whose(root.id, tree, low, high);
            self.found.broken = true;
            self.problem(tree.name(), format!("{error}{whose}"));
            volume.affected(root, tree, low, high, &mut |_, rule, text| self.problem(rule, text));
        }
    }

    /// Turns damage of an inode's data or attributes into a problem. Returns other errors: a
    /// missing device ends the check.
    pub(super) fn damage_of<T>(
        &mut self,
        ino: Ino,
        rule: &'static str,
        step: Result<T>,
    ) -> Result<Option<T>> {
        match step {
            Err(e) if e.is_damage() || matches!(e, Error::Code(_)) => {
                let message = format!("{e}: {}", self.who(ino));
                self.problem(rule, message);
                Ok(None)
            }
            other => other.map(Some),
        }
    }

    /// Returns the inode's number and paths, for messages.
    pub(super) fn who(&self, ino: Ino) -> String {
        format!("inode {ino}{}", self.volume.path_hint(ino))
    }

    /// Adds an extent of data to the sums.
    pub(super) fn add_data(&mut self, extent: &Extent) {
        let (addr, share) = (extent.data_addr(), extent.share());
        self.add_live(addr, u64::from(extent.stored_len()), 0);
        // A part of a compressed object may have no stored byte of its own.
        if !share.is_empty() {
            self.found.data.push((addr.0, share.end - share.start));
        }
    }

    /// Adds a metadata object to the sums.
    pub(super) fn add_meta(&mut self, ptr: Ptr) {
        self.add_live(ptr.addr, 0, u64::from(ptr.len));
        self.born(&ptr);
    }

    /// Checks that an object's birth is not in the future, because incremental readers rely on it.
    pub(super) fn born(&mut self, ptr: &Ptr) {
        if let Some(problem) = future(ptr, self.volume.0.store.epoch()) {
            self.problem("birth", problem);
        }
    }

    fn add_live(&mut self, addr: Addr, data: u64, meta: u64) {
        let seg = self.volume.0.store.geometry().segment_of(addr).0 as usize;
        match self.found.live.last_mut() {
            Some(last) if last.0 == seg => *last = (seg, last.1 + data, last.2 + meta),
            _ => self.found.live.push((seg, data, meta)),
        }
    }
}

/// Returns the problem if a pointer's birth is later than `epoch`.
pub(super) fn future(ptr: &Ptr, epoch: Epoch) -> Option<String> {
    (ptr.birth > epoch).then(|| {
        let (birth, addr) = (ptr.birth, ptr.addr.0);
        format!("object at byte {addr}: birth {birth}, but the current epoch is {epoch}")
    })
}

/// Runs `work` for each piece on `threads` threads, and `add` for each result in the order of the
/// pieces.
pub(super) fn spread<P: Send, F: Send>(
    threads: usize,
    mut pieces: impl Iterator<Item = Result<P>> + Send,
    work: impl Fn(P) -> Result<F> + Sync,
    mut add: impl FnMut(F) -> Result<()> + Send,
) -> Result<()> {
    let steps = Steps {
        take: || pieces.next(),
        prepare: |piece: Result<P>| work(piece?).map(Some),
        place: |found: &mut Option<F>| found.take().map_or(Ok(()), &mut add),
        finish: |_: Option<F>| Ok(()),
    };
    in_order(threads.max(1), steps)
}

/// Iterator over the parts of one tree of each subvolume in `roots`.
pub(super) struct Parts<'v, R> {
    roots: R,
    tree: TreeId,
    leaves: usize,
    device: &'v dyn Device,
    /// Subvolume and lowest key of the next part.
    next: Option<(&'v Root, Key)>,
    ahead: VecDeque<Result<(&'v Root, Part)>>,
    ahead_max: usize,
}

impl<'v, R: Iterator<Item = &'v Root>> Parts<'v, R> {
    /// Returns parts of at most `leaves` leaves each.
    pub(super) fn new(
        volume: Inspection<'v>,
        roots: R,
        tree: TreeId,
        leaves: usize,
    ) -> Parts<'v, R> {
        let (device, ahead_max) =
            (volume.0.store.device(), AHEAD * volume.0.options.threads.max(1));
        Parts { roots, tree, leaves, device, next: None, ahead: VecDeque::new(), ahead_max }
    }

    fn find(&mut self) -> Option<Result<(&'v Root, Part)>> {
        let (root, from) = match self.next.take() {
            Some(next) => next,
            None => (self.roots.next()?, Key::MIN),
        };
        let part = match root.tree(self.tree).part(from, self.leaves) {
            Ok(part) => part,
            Err(e) => return Some(Err(e)),
        };
        self.next = (part.high < Key::MAX).then_some((root, part.high));
        announce(self.device, &part.unread);
        Some(Ok((root, part)))
    }
}

impl<'v, R: Iterator<Item = &'v Root>> Iterator for Parts<'v, R> {
    type Item = Result<(&'v Root, Part)>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.ahead.len() <= self.ahead_max {
            let Some(part) = self.find() else { break };
            self.ahead.push_back(part);
        }
        self.ahead.pop_front()
    }
}

/// Announces to the device which nodes will be read.
fn announce(device: &dyn Device, nodes: &[Ptr]) {
    let mut span = 0..0;
    for ptr in nodes {
        if ptr.addr.0 < span.end || ptr.addr.0 - span.end > GAP {
            device.will_read(span.start, span.end - span.start);
            span = ptr.addr.0..ptr.addr.0;
        }
        span.end = ptr.addr.0.saturating_add(u64::from(ptr.len));
    }
    device.will_read(span.start, span.end - span.start);
}
