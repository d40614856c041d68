//! Totals of everything below a directory: files, directories, bytes, newest change.
//!
//! Problem: a walk looks up every entry of every directory, and its time is that of the names.
//!
//! Rule: all inodes of the subvolume are scanned in the order of their numbers, each block once. An
//! inode names its directory itself (parent pointers), and whether a directory is below is found
//! by its parents (`climb.rs`). As the scan is of the whole subvolume whatever the directory, a
//! walk comes first, and is given up when it has found more than a part of the subvolume.

use super::Bulk;
use super::climb::{MEMO_MAX, Memo};
use crate::permissions::{EXEC, READ};
use crate::stat::attr_of;
use crate::types::{Attr, Caller, ChildTotals, DirEntry, FileKind, InodeScan, Totals, TotalsScan};
use shoal_base::sync::Mutex;
use shoal_base::timing::Call;
use shoal_base::{Code, Error, Ino, Result};
use shoal_format::checkpoint::RootState;
use shoal_format::inode::Inode;
use std::collections::{BTreeMap, HashSet};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Part of a subvolume's inodes that a walk may find before it is given up. With everything in
/// memory a walk takes about twice as long for an inode as a scan, so a walk that was in vain makes
/// a scan a quarter longer.
const WALK_PART: u64 = 8;
/// Entries that a walk may find in any case: a few milliseconds.
const WALK_MIN: u64 = 1024;
/// Inodes of a subvolume that are worth a further thread.
const THREAD_WORTH: u64 = 8192;
/// Links that are read at a time.
const LINKS: usize = 256;
/// Directories, and files with several links, that a walk for an ordinary user may find: each takes
/// some 40 bytes.
const SEEN_MAX: usize = if cfg!(test) { 1 << 10 } else { 1 << 20 };
/// As many from which on a walk is a large one.
const SEEN_LARGE: usize = if cfg!(test) { 1 << 6 } else { 1 << 16 };
/// Large walks for ordinary users in this process at a time.
const LARGE_MAX: usize = 4;

/// Large walks.
static LARGE: AtomicUsize = AtomicUsize::new(0);

/// A large walk that goes on until this is dropped.
struct LargeWalk;

impl LargeWalk {
    fn begin() -> Option<LargeWalk> {
        let begun = LARGE.fetch_add(1, Ordering::Relaxed);
        // Given back at once if there are too many.
        let walk = LargeWalk;
        (begun < LARGE_MAX).then_some(walk)
    }
}

impl Drop for LargeWalk {
    fn drop(&mut self) {
        LARGE.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Totals by branch: the directory itself or, of calls that want them, the entries of it.
#[derive(Default)]
struct Sums(BTreeMap<Ino, Totals>);

impl Sums {
    fn add(&mut self, branch: Ino, totals: &Totals) {
        self.0.entry(branch).or_default().merge(totals);
    }

    fn total(&self) -> Totals {
        let mut total = Totals::default();
        self.0.values().for_each(|totals| total.merge(totals));
        total
    }
}

/// A walk in progress.
struct Walk {
    sums: Sums,
    /// Directories to list, with their branches.
    stack: Vec<(Ino, Ino)>,
    /// Directories, and files with several links, that were found.
    seen: HashSet<Ino>,
    /// Entries that may still be found.
    left: u64,
    /// It is for an ordinary user, who must not have all memory.
    is_bounded: bool,
    large: Option<LargeWalk>,
}

impl Walk {
    /// Refuses to go on if it remembers too much.
    fn check(&mut self) -> Result<()> {
        if !self.is_bounded || self.seen.len() < SEEN_LARGE {
            return Ok(());
        }
        if self.seen.len() > SEEN_MAX {
            let message = format!(
                "more than {SEEN_MAX} directories and files with several links: add up the \
                 directories below one by one"
            );
            return Err(Error::refused(Code::TooBig, message));
        }
        if self.large.is_none() {
            let busy = || Error::refused(Code::Busy, "other large trees are being added up now");
            self.large = Some(LargeWalk::begin().ok_or_else(busy)?);
        }
        Ok(())
    }
}

/// An inode of a scan, with its directory if the inode itself has that information; of a directory
/// the directory itself.
type Found = (Option<Ino>, Attr);

impl Bulk<'_> {
    /// Returns the totals of a directory. An unprivileged caller must be able to list and search
    /// all directories below, which are walked. For a privileged one it is a walk of a small
    /// directory, and for a larger one a scan of the subvolume, whose time is that of all its
    /// inodes and whose memory is bounded: at most about 40 MB.
    ///
    /// A file with several links is counted once, if one of them is below. What stays in place with
    /// all directories above it is counted exactly once, as it was at some moment of the call. What
    /// is made, removed or moved out of or into the directory meanwhile is counted or not; a walk
    /// may also count a file twice that is moved. Unlinked files that are open do not count.
    ///
    /// # Errors
    /// `ENOTDIR`; `ENOENT` if the directory is removed; `ESTALE` if it does not exist; `EACCES` if
    /// the caller may not list or search a directory; for an unprivileged caller `E2BIG` if there
    /// are more than a million directories and files with several links, and `EBUSY` if large trees
    /// are being added up for several others; those of the device, and damage.
    pub fn totals(self, who: &Caller, scan: TotalsScan) -> Result<Totals> {
        Ok(self.sums(who, scan, false, &|| false)?.total())
    }

    /// As [`Bulk::totals`], but gives up soon after `stop` returns `true`, which it must do from
    /// then on: `None`.
    ///
    /// # Errors
    /// Those of [`Bulk::totals`].
    pub fn totals_until(
        self,
        who: &Caller,
        scan: TotalsScan,
        stop: &(dyn Fn() -> bool + Sync),
    ) -> Result<Option<Totals>> {
        let sums = self.sums(who, scan, false, stop);
        if stop() { Ok(None) } else { Ok(Some(sums?.total())) }
    }

    /// As [`Bulk::totals`], with those of each immediate subdirectory, by name in the order of the
    /// directory. A file with links in several of them counts for one of these.
    ///
    /// # Errors
    /// Those of [`Bulk::totals`].
    pub fn totals_of_children(
        self,
        who: &Caller,
        scan: TotalsScan,
    ) -> Result<(Totals, Vec<ChildTotals>)> {
        let sums = self.sums(who, scan, true, &|| false)?;
        let mut rows = Vec::new();
        self.directories().readdir(scan.dir, 2, &mut |entry| {
            if let (FileKind::Directory, Some(totals)) = (entry.kind, sums.0.get(&entry.ino)) {
                rows.push(ChildTotals { name: entry.name.to_vec(), totals: *totals });
            }
            true
        })?;
        Ok((sums.total(), rows))
    }

    /// Returns the sums, of a part only if `stop` has returned `true`.
    fn sums(
        self,
        who: &Caller,
        scan: TotalsScan,
        is_by_child: bool,
        stop: &(dyn Fn() -> bool + Sync),
    ) -> Result<Sums> {
        self.0.measured(Call::Totals, || self.count(who, scan, is_by_child, stop))
    }

    fn count(
        self,
        who: &Caller,
        scan: TotalsScan,
        is_by_child: bool,
        stop: &(dyn Fn() -> bool + Sync),
    ) -> Result<Sums> {
        let own = self.0.attr(scan.dir)?;
        if own.kind != FileKind::Directory {
            return Err(Error::Code(Code::NotDirectory));
        }
        if own.nlink == 0 {
            return Err(Error::Code(Code::NotFound));
        }
        let walk_max = match self.0.parents && who.bypasses() {
            true => scan.walk_max.map_or_else(|| self.walk_max(scan.dir), Ok)?,
            // The sums are those of names that the caller could find.
            false => u64::MAX,
        };
        let walked = match walk_max {
            0 => None,
            _ => self.walk(who, &scan, is_by_child, (walk_max, stop))?,
        };
        match walked {
            Some(sums) => Ok(sums),
            None => self.scan(&scan, is_by_child, stop),
        }
    }

    fn walk_max(self, dir: Ino) -> Result<u64> {
        let root = self.0.root(dir)?;
        // Below the top is everything.
        Ok(if dir == root.top() { 0 } else { WALK_MIN.max(root.inodes() / WALK_PART) })
    }

    /// Returns `None` if there are more than `most` entries.
    fn walk(
        self,
        who: &Caller,
        scan: &TotalsScan,
        is_by_child: bool,
        (most, stop): (u64, &(dyn Fn() -> bool + Sync)),
    ) -> Result<Option<Sums>> {
        let top = scan.dir;
        let mut walk = Walk {
            sums: Sums::default(),
            stack: vec![(top, top)],
            seen: HashSet::from([top]),
            left: most,
            is_bounded: !who.bypasses(),
            large: None,
        };
        let mut own = Totals::default();
        own.add(&self.0.attr(top)?);
        walk.sums.add(top, &own);
        while let Some((dir, branch)) = walk.stack.pop() {
            if stop() {
                break;
            }
            let by_child = is_by_child && dir == top;
            match self.walk_dir(who, scan, &mut walk, (dir, branch), by_child) {
                Ok(true) => {}
                Ok(false) => return Ok(None),
                // Removed since it was found.
                Err(e) if e.is(Code::Stale) && dir != top => {}
                Err(e) => return Err(e),
            }
        }
        Ok(Some(walk.sums))
    }

    /// Counts the entries of a directory. Returns `false` if there are too many.
    fn walk_dir(
        self,
        who: &Caller,
        scan: &TotalsScan,
        walk: &mut Walk,
        (dir, branch): (Ino, Ino),
        by_child: bool,
    ) -> Result<bool> {
        self.check_list(who, dir)?;
        let mut here = Totals::default();
        let mut each = |attr: &Attr| {
            if walk.left == 0 {
                return Ok(false);
            }
            walk.check()?;
            walk.left -= 1;
            let is_dir = attr.kind == FileKind::Directory;
            let is_below = scan.subvolumes || attr.ino.root() == dir.root();
            if !is_below || (is_dir || attr.nlink > 1) && !walk.seen.insert(attr.ino) {
                return Ok(true);
            }
            if is_dir {
                walk.stack.push((attr.ino, if by_child { attr.ino } else { branch }));
            }
            match is_dir && by_child {
                true => walk.sums.0.entry(attr.ino).or_default().add(attr),
                false => here.add(attr),
            }
            Ok(true)
        };
        let mut is_whole = Ok(true);
        let mut entries = |_: DirEntry<'_>, attr: Result<&Attr>| {
            is_whole = attr.and_then(&mut each);
            matches!(is_whole, Ok(true))
        };
        let listed = self.directories().readdirplus(dir, 2, &mut entries);
        walk.sums.add(branch, &here);
        listed.and(is_whole)
    }

    /// Checks that a caller may list a directory and see the attributes of its entries.
    pub(super) fn check_list(self, who: &Caller, dir: Ino) -> Result<()> {
        let inode = self.0.inode(dir)?;
        let slot = inode.read();
        attr_of(dir, &slot.inode)?;
        self.permissions().permit(who, dir, &slot.inode, READ | EXEC)
    }

    fn scan(
        self,
        scan: &TotalsScan,
        is_by_child: bool,
        stop: &(dyn Fn() -> bool + Sync),
    ) -> Result<Sums> {
        let memo = Memo::new(scan.dir, is_by_child, MEMO_MAX);
        let mut sums = self.scan_root(&memo, scan.dir, scan.threads, stop)?;
        if scan.subvolumes && scan.dir == Ino::ROOT {
            let live = |root: &&shoal_txn::Root| root.state() == RootState::Live;
            let tops: Vec<Ino> =
                self.0.store.roots().iter().skip(1).filter(live).map(|root| root.top()).collect();
            for top in tops {
                let memo = Memo::new(top, false, MEMO_MAX);
                match self.scan_root(&memo, top, scan.threads, stop) {
                    Ok(below) => {
                        let branch = if is_by_child { top } else { scan.dir };
                        sums.add(branch, &below.total());
                    }
                    // Deleted meanwhile.
                    Err(e) if e.is(Code::Stale) => {}
                    Err(e) => return Err(e),
                }
            }
        }
        Ok(sums)
    }

    /// Scans the subvolume of directory `top`, which is that of the memo.
    fn scan_root(
        self,
        memo: &Memo,
        top: Ino,
        threads: usize,
        stop: &(dyn Fn() -> bool + Sync),
    ) -> Result<Sums> {
        let worth = 1 + self.0.root(top)?.inodes() / THREAD_WORTH;
        let threads = threads.min(worth as usize);
        let sums = Mutex::new(Sums::default());
        let failed = Mutex::new(None);
        let pick = |ino: Ino, inode: &Inode| {
            let attr = attr_of(ino, inode)?;
            let home = match attr.kind {
                FileKind::Directory => Some(ino),
                _ => self.paths().sole_dir(ino, inode),
            };
            Ok((home, attr))
        };
        let each = |found: &[Found]| match self.add_found(memo, found) {
            _ if stop() => ControlFlow::Break(()),
            Ok(part) => {
                let mut sums = sums.lock();
                part.0.iter().for_each(|(branch, totals)| sums.add(*branch, totals));
                ControlFlow::Continue(())
            }
            Err(e) => {
                failed.lock().get_or_insert(e);
                ControlFlow::Break(())
            }
        };
        self.scan_inodes(InodeScan { after: Ino::new(top.root(), 0), threads }, pick, each)?;
        let failed = failed.lock().take();
        failed.map_or_else(|| Ok(std::mem::take(&mut *sums.lock())), Err)
    }

    /// Returns the sums of those that are below.
    fn add_found(self, memo: &Memo, found: &[Found]) -> Result<Sums> {
        let mut sums = Sums::default();
        // Inodes of one directory are often beside each other.
        let mut last = None;
        for (home, attr) in found {
            let branch = match (*home, last) {
                (Some(dir), Some((same, branch))) if dir == same => branch,
                (Some(dir), _) => {
                    let branch = self.branch_of(memo, dir)?;
                    last = Some((dir, branch));
                    branch
                }
                (None, _) => self.branch_of_links(memo, attr.ino)?,
            };
            if let Some(branch) = branch {
                sums.0.entry(branch).or_default().add(attr);
            }
        }
        Ok(sums)
    }

    /// Returns the branch of the first link that is below.
    fn branch_of_links(self, memo: &Memo, ino: Ino) -> Result<Option<Ino>> {
        let mut cookie = 0;
        loop {
            let links = match self.paths().parents_from(ino, cookie, LINKS) {
                // Removed meanwhile, or the subvolume: then the scan fails.
                Err(e) if e.is(Code::Stale) => return Ok(None),
                links => links?,
            };
            for (_, link) in &links {
                if let Some(branch) = self.branch_of(memo, link.dir)? {
                    return Ok(Some(branch));
                }
            }
            match links.last() {
                Some((at, _)) if links.len() == LINKS => cookie = at + 1,
                _ => return Ok(None),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MemDevice, MkfsOptions, OpenOptions, Volume, mkfs_on};
    use std::sync::Arc;

    /// An ordinary user has no more than some memory of the process, however large the tree.
    #[test]
    fn what_a_user_has_added_up_is_bounded() {
        let device = Arc::new(MemDevice::new(256 << 20));
        mkfs_on(device.clone(), &MkfsOptions::default()).unwrap();
        let options = OpenOptions { background: false, ..OpenOptions::default() };
        let volume = Volume::open_on(device, &options).unwrap();
        let (root, user) = (Caller::root(), Caller::user(1000, 1000));
        let totals = |who: &Caller| volume.bulk().totals(who, TotalsScan::of(Ino::ROOT));
        let make = |range: std::ops::Range<usize>| {
            for n in range {
                let name = format!("{n}");
                volume.namespace().mkdir(&root, Ino::ROOT, name.as_bytes(), 0o755).unwrap();
            }
        };
        make(0..SEEN_LARGE);
        let running: Vec<LargeWalk> = (0..LARGE_MAX).filter_map(|_| LargeWalk::begin()).collect();
        assert_eq!(running.len(), LARGE_MAX);
        assert!(LargeWalk::begin().is_none());
        make(SEEN_LARGE..SEEN_LARGE + 1);
        assert_eq!(totals(&user).unwrap_err().code(), Code::Busy);
        assert_eq!(totals(&root).unwrap().dirs as usize, SEEN_LARGE + 2);
        drop(running);
        assert_eq!(totals(&user).unwrap().dirs as usize, SEEN_LARGE + 2);
        make(SEEN_LARGE + 1..SEEN_MAX);
        assert_eq!(totals(&user).unwrap().dirs as usize, SEEN_MAX + 1);
        make(SEEN_MAX..SEEN_MAX + 2);
        assert_eq!(totals(&user).unwrap_err().code(), Code::TooBig);
        assert!(LargeWalk::begin().is_some(), "they are given back");
    }
}
