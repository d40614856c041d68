//! Merges the results of a check's pieces, in the order of the pieces (`work.rs`).

use super::PROBLEMS_MAX;
use super::census::{Bytes, DIRECTORY};
use super::sets::Set;
use super::spill::Spill;
use super::work::{Found, Owner, WORK_ENTRY, WORK_INODE, WORK_KIB};
use crate::check::Inspection;
use crate::types::{CheckReport, Problem, Progress};
use shoal_base::limits::INODES_PER_BLOCK;
use shoal_base::{Ino, Result, RootId};
use shoal_format::dirent::SUFFIX_MASK;
use shoal_format::node::Key;
use shoal_itable::ProjectUse;
use std::collections::{BTreeMap, BTreeSet};

/// Work between two calls of the progress callback, in nanoseconds.
const TELL: u64 = 5_000_000;

/// Totals of a check.
pub(super) struct Sum<'v> {
    volume: Inspection<'v>,
    pub report: CheckReport,
    /// Subvolumes with problems in their inodes.
    pub wrong: BTreeSet<RootId>,
    /// Names, and parent pointers, as sets.
    pub names: Set,
    pub pointers: Set,
    /// A parent pointer was unreadable, or their number differs from the link count.
    pub doubt: bool,
    /// A metadata block is unreadable, so sums cannot be compared.
    pub broken: bool,
    /// Unreadable inode blocks: subvolume, first, one past the last.
    pub lost: Vec<(RootId, u64, u64)>,
    /// Addresses of file data, for the space pass.
    pub data: Spill,
    /// Live bytes found in each segment: data, metadata.
    pub live: Vec<(u64, u64)>,
    pub prealloc: u64,
    pub bytes: Bytes,
    /// Use of projects, by number.
    pub projects: BTreeMap<u32, ProjectUse>,
    /// Subvolume of the last directory entry, and the key that must follow it, if it is chained.
    chained: (RootId, Option<Key>),
    /// File of the last extent record. The next piece may have more of its records.
    owner: Option<Owner>,
    /// Name of the current pass, for progress.
    pub stage: String,
    progress: Progress<'v>,
    done: u64,
    told: u64,
    total: u64,
}

impl<'v> Sum<'v> {
    pub(super) fn new(volume: Inspection<'v>, is_random: bool, progress: Progress<'v>) -> Sum<'v> {
        let space = volume.0.store.space();
        let data = space.counts().live_bytes().saturating_sub(space.counts().meta_bytes());
        let inodes = volume.0.store.roots().inodes().saturating_mul(WORK_INODE + WORK_ENTRY);
        Sum {
            volume,
            report: CheckReport::default(),
            wrong: BTreeSet::new(),
            names: Set::default(),
            pointers: Set::default(),
            doubt: !is_random,
            broken: false,
            lost: Vec::new(),
            data: Spill::default(),
            live: vec![(0, 0); volume.0.store.geometry().segments as usize],
            prealloc: 0,
            bytes: Bytes::default(),
            projects: BTreeMap::new(),
            chained: (RootId(0), None),
            owner: None,
            stage: String::new(),
            progress,
            done: 0,
            told: 0,
            total: inodes.saturating_add(data / 1024 * WORK_KIB),
        }
    }

    pub(super) fn problem(&mut self, rule: &'static str, message: String) {
        if self.report.problems.len() < PROBLEMS_MAX {
            self.report.problems.push(Problem { rule, message });
        }
    }

    /// Merges the results of the next piece.
    pub(super) fn add(&mut self, found: Found) -> Result<()> {
        if let Some((root, first, last)) = found.chain {
            self.chain_root(root);
            self.chain(first);
            self.chained.1 = last;
        }
        for owner in found.owners {
            self.add_owner(owner);
        }
        let Found { report, .. } = found;
        if !report.problems.is_empty() {
            self.wrong.extend(found.root);
        }
        let room = PROBLEMS_MAX.saturating_sub(self.report.problems.len());
        self.report.problems.extend(report.problems.into_iter().take(room));
        self.report.inodes += report.inodes;
        self.report.dirents += report.dirents;
        self.report.extents += report.extents;
        self.report.attributes += report.attributes;
        self.report.parents += report.parents;
        self.report.data_bytes += report.data_bytes;
        self.report.blocks += report.blocks;
        for (sum, leaves) in self.report.leaves.iter_mut().zip(report.leaves) {
            *sum += leaves;
        }
        self.names.add(found.names);
        self.pointers.add(found.pointers);
        self.doubt |= found.doubt;
        self.broken |= found.broken;
        self.lost.extend(found.lost);
        for (addr, len) in found.data {
            self.data.push(addr, len)?;
        }
        for (seg, data, meta) in found.live {
            if let Some(sum) = self.live.get_mut(seg) {
                *sum = (sum.0 + data, sum.1 + meta);
            }
        }
        self.prealloc += found.prealloc;
        for (project, used) in found.projects {
            let sum = self.projects.entry(project).or_default();
            sum.inodes += used.inodes;
            sum.bytes = sum.bytes.saturating_add(used.bytes);
        }
        found.bytes.into_iter().for_each(|(ino, bytes)| self.bytes.add(ino, bytes));
        self.did(found.done);
        Ok(())
    }

    fn did(&mut self, work: u64) {
        self.done += work;
        if self.done - self.told >= TELL {
            self.told = self.done;
            (self.progress)(&self.stage, self.done, self.total.max(self.done));
        }
    }

    /// Ends the chain of the previous subvolume, if `root` is another one.
    pub(super) fn chain_root(&mut self, root: RootId) {
        if self.chained.0 != root {
            self.chain(Key::MIN);
            self.chained = (root, None);
        }
    }

    /// Ends the chain of the last subvolume.
    pub(super) fn end_chain(&mut self) {
        self.chain(Key::MIN);
        self.chained.1 = None;
    }

    /// Checks the first entry of a piece against the last entry of the piece before.
    fn chain(&mut self, key: Key) {
        if let Err(problem) = follows(self.chained.0, self.chained.1, key) {
            self.problem("dirent-chain", problem);
        }
    }

    fn add_owner(&mut self, next: Owner) {
        match &mut self.owner {
            Some(owner) if owner.ino == next.ino => {
                let end = owner.end;
                owner.end = next.end;
                owner.records += next.records;
                owner.bytes += next.bytes;
                if next.first.offset < end {
                    let (who, text) = (self.who(next.ino), next.first.to_text());
                    self.problem("extent-overlap", format!("{who}: {text} begins before {end}"));
                }
            }
            _ => {
                self.end_owner();
                self.owner = Some(next);
            }
        }
    }

    /// Checks the totals of the last file in the extent trees.
    pub(super) fn end_owner(&mut self) {
        let Some(owner) = self.owner.take() else { return };
        let Owner { ino, records, .. } = owner;
        if owner.is_wrong {
            let who = self.who(ino);
            self.problem(
                "extent-owner",
                format!("{who}: {records} unexpected records in the tree"),
            );
        }
        if owner.kind.is_some_and(|kind| kind != DIRECTORY) {
            self.bytes.add(ino, -i128::from(owner.bytes));
        }
    }

    fn who(&self, ino: Ino) -> String {
        format!("inode {ino}{}", self.volume.path_hint(ino))
    }

    /// Returns whether an inode is in a block that cannot be read.
    pub(super) fn is_unreadable(lost: &[(RootId, u64, u64)], ino: Ino) -> bool {
        let number = ino.index() / INODES_PER_BLOCK as u64;
        let in_block = |(root, from, to): &(RootId, u64, u64)| {
            *root == ino.root() && (*from..*to).contains(&number)
        };
        lost.iter().any(in_block)
    }
}

/// Checks the chain of entries with one hash: they must be consecutive, and all but the last marked
/// as chained. `next` is the required key, if the entry before is chained. Returns the problem, if
/// any.
pub(super) fn follows(root: RootId, next: Option<Key>, key: Key) -> Result<(), String> {
    let good = match next {
        Some(next) => key == next,
        None => key.lo & SUFFIX_MASK == 0,
    };
    let at = next.unwrap_or(key);
    let dir = at.ino(root);
    let said = || format!("chain of entries broken at {:#x} in directory {dir}", at.lo);
    if good { Ok(()) } else { Err(said()) }
}
