//! Finding out whether an inode is below a directory, by the parents of its directories.
//!
//! The result for each directory is memoised, so that a directory is looked at once however many
//! inodes are below it. The memo is a cache, bounded by [`MEMO_MAX`] directories: about 40 MB.
//!
//! Directories may be renamed meanwhile. A directory that stays where it is, and all of whose
//! ancestors do, has the right result; for others it is that of some mixture of moments. Such a
//! climb can run in a circle. It is begun again, and in the end with transactions quiesced, when
//! only damage can be a circle.

use super::Bulk;
use shoal_base::sync::{Mutex, thread};
use shoal_base::{Code, Error, Ino, Result};
use shoal_format::inode::Inode;
use std::collections::HashMap;

/// Directories whose results are kept.
pub(super) const MEMO_MAX: usize = 1 << 20;
/// Locks of the memo: more than threads.
const SHARDS: usize = 32;
/// Climbs that may run in a circle before transactions are quiesced for one.
const TRIES: usize = 64;
/// Result of a directory that is not below.
const OUTSIDE: u64 = 0;

/// Results of climbs to one directory.
pub(super) struct Memo {
    top: Ino,
    is_by_child: bool,
    shard_max: usize,
    /// By directory: its branch, or [`OUTSIDE`].
    shards: [Mutex<HashMap<u64, u64>>; SHARDS],
}

impl Memo {
    /// For everything below `top`. The branch of an inode is `top` or, if `is_by_child`, the entry
    /// of `top` that it is below. At most `most` results are kept.
    pub(super) fn new(top: Ino, is_by_child: bool, most: usize) -> Memo {
        let shards = std::array::from_fn(|_| Mutex::new(HashMap::new()));
        Memo { top, is_by_child, shard_max: most / SHARDS, shards }
    }

    fn shard(&self, dir: Ino) -> &Mutex<HashMap<u64, u64>> {
        &self.shards[dir.0 as usize % SHARDS]
    }

    fn get(&self, dir: Ino) -> Option<u64> {
        self.shard(dir).lock().get(&dir.0).copied()
    }

    fn put(&self, dir: Ino, branch: u64) {
        let mut shard = self.shard(dir).lock();
        if shard.len() >= self.shard_max {
            shard.clear();
        }
        shard.insert(dir.0, branch);
    }
}

impl Bulk<'_> {
    /// Returns the branch of a directory; `None` if it is not below the memo's directory.
    pub(super) fn branch_of(self, memo: &Memo, dir: Ino) -> Result<Option<Ino>> {
        let mut climbed = None;
        for _ in 0..TRIES {
            climbed = self.climb(memo, dir)?;
            if climbed.is_some() {
                break;
            }
            thread::yield_now();
        }
        let climbed = match climbed {
            Some(branch) => Some(branch),
            None => self.0.store.checkpoints().quiesced(|_| self.climb(memo, dir))?,
        };
        let circle = || {
            let object = format!("directory {dir}");
            Error::corrupt(object, None, "its parents do not lead to the top")
        };
        let branch = climbed.ok_or_else(circle)?;
        Ok((branch != OUTSIDE).then_some(Ino(branch)))
    }

    /// Returns the branch or [`OUTSIDE`]; `None` if the climb ran in a circle.
    fn climb(self, memo: &Memo, dir: Ino) -> Result<Option<u64>> {
        if let Some(known) = memo.get(dir) {
            return Ok(Some(known));
        }
        let root = self.0.root(memo.top)?;
        // A path is not longer than the number of directories.
        let longest = root.inodes() + 1;
        let (mut at, mut path) = (dir, Vec::new());
        // The circle is noticed when it has come back to the last power of two (Brent).
        let mut mark = None;
        let branch = loop {
            if at == memo.top {
                let child = path.last().copied().filter(|_| memo.is_by_child);
                break child.unwrap_or(at).0;
            }
            if at == root.top() || at.root() != memo.top.root() {
                break OUTSIDE;
            }
            if let Some(known) = memo.get(at) {
                break known;
            }
            if mark == Some(at) || path.len() as u64 > longest {
                return Ok(None);
            }
            path.push(at);
            if path.len().is_power_of_two() {
                mark = Some(at);
            }
            match self.parent_now(at)? {
                Some(parent) => at = parent,
                None => break OUTSIDE,
            }
        };
        path.iter().for_each(|dir| memo.put(*dir, branch));
        Ok(Some(branch))
    }

    /// Returns the parent of a directory; `None` if it has been removed.
    fn parent_now(self, dir: Ino) -> Result<Option<Ino>> {
        let parent = |inode: &Inode| {
            let core = &inode.core;
            let is_there = core.in_use() && core.is_dir() && core.nlink > 0;
            is_there.then_some(Ino(core.parent_or_rdev))
        };
        match self.0.root(dir)?.table.look(dir, parent) {
            // Its block is not used any more.
            Err(e) if e.is(Code::Stale) => Ok(None),
            found => found,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Caller, MemDevice, MkfsOptions, OpenOptions, Volume, mkfs_on};
    use std::sync::Arc;

    #[test]
    fn a_full_memo_forgets_and_the_results_are_the_same() {
        let device = Arc::new(MemDevice::new(64 << 20));
        mkfs_on(device.clone(), &MkfsOptions::default()).expect("mkfs");
        let options = OpenOptions { background: false, ..OpenOptions::default() };
        let (volume, who) = (Volume::open_on(device, &options).expect("open"), Caller::root());
        let mkdir = |dir, name: &str| {
            volume.namespace().mkdir(&who, dir, name.as_bytes(), 0o755).expect("mkdir").ino
        };
        let (top, outside) = (mkdir(Ino::ROOT, "top"), mkdir(Ino::ROOT, "outside"));
        let (mut dirs, mut child) = (vec![(Ino::ROOT, None), (top, Some(top))], top);
        let (mut below, mut beside) = (top, outside);
        for n in 0..200 {
            (below, beside) = (mkdir(if n % 50 == 0 { top } else { below }, &format!("d{n}")), {
                mkdir(beside, "d")
            });
            child = if n % 50 == 0 { below } else { child };
            dirs.extend([(below, Some(child)), (beside, None)]);
        }
        for most in [MEMO_MAX, SHARDS, 2 * SHARDS] {
            let by_child = Memo::new(top, true, most);
            let whole = Memo::new(top, false, most);
            for (dir, expected) in dirs.iter().rev().chain(&dirs) {
                let found = volume.bulk().branch_of(&by_child, *dir).expect("climb");
                assert_eq!(found, *expected, "directory {dir}, {most} kept");
                let found = volume.bulk().branch_of(&whole, *dir).expect("climb");
                assert_eq!(found, expected.map(|_| top), "directory {dir}, {most} kept");
            }
            let kept: usize = by_child.shards.iter().map(|shard| shard.lock().len()).sum();
            assert!(kept <= most && (kept == 401) == (most == MEMO_MAX), "{kept} of {most} kept");
        }
    }
}
