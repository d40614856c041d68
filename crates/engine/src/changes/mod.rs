//! The change feed: what was created, changed, renamed and removed below a directory since a mark.
//!
//! Problem: a backup, an index or a copy that wants to know what has changed walks the whole tree,
//! and the time is that of all files, not of the changed ones.
//!
//! Rule: a mark has an LSN, before which everything has been told, and an epoch that had ended by
//! then. Every inode has the LSN of its last change, and every pointer the epoch in which its
//! target was written; so only blocks with younger pointers, or with changes in memory, are read
//! (`shoal_itable`, `blocks_changed`). An inode names its directories itself (parent pointers).
//! What is gone is in no image: removed names are kept in a window (`window.rs`), if that is
//! switched on.
//!
//! Invariants:
//!
//! 1. Nothing is told, and no mark returned, before it is durable: a crash must not take back what
//!    a reader was told, or use an LSN again.
//! 2. A change that a reader does not see has an LSN from its next mark on. Changes during a call
//!    may be told by that call, and are told again by the next one.
//! 3. Of everything that is gone, either the name is told, or the directory as changed:
//!    [`ChangeReader::has_all_removed`] says which.

mod dirs;
mod reader;
mod tell;
mod window;

pub use reader::ChangeReader;

use crate::attributes::Attributes;
use crate::clock::now;
use crate::directories::Directories;
use crate::paths::Paths;
use crate::permissions::Permissions;
use crate::state::room;
use crate::types::{Caller, ChangeMark, FileKind};
use shoal_base::{Code, Error, Generation, Ino, Result};
use shoal_txn::RemovedHeader;

room! {
    /// The change feed.
    pub struct Changes {
        attributes: Attributes,
        directories: Directories,
        paths: Paths,
        permissions: Permissions,
    }
}

fn full_scan(code: Code, what: &str) -> Error {
    Error::refused(code, format!("{what}: a full scan is needed: call it without a mark"))
}

impl Changes<'_> {
    /// Returns a mark of this moment, for the subvolume of a directory. It is durable.
    ///
    /// # Errors
    /// Those of a sync; `EOPNOTSUPP` on a volume without parent pointers; `ESTALE`.
    pub fn mark(self, dir: Ino) -> Result<ChangeMark> {
        if !self.0.parents {
            let message = "the volume has no parent pointers, so the names of a changed file are \
                           not known: use a volume made by a newer Shoal";
            return Err(Error::refused(Code::NotSupported, message));
        }
        let root = self.0.root(dir)?;
        let generation = Generation(root.table.look(root.top(), |top| top.core.generation)?);
        let series = self.header()?.series;
        let time = now().into();
        let (epoch, lsn) = self.0.store.checkpoints().ended();
        // Every record before it is complete then, and what it has changed in memory can be seen.
        if self.0.store.journal().is_ok() {
            self.0.sync()?;
        }
        let (volume, root) = (self.0.store.volume(), root.id);
        Ok(ChangeMark { volume, root, generation, series, lsn, epoch, time })
    }

    /// Begins to read the changes below a directory since a mark of its subvolume, whatever the
    /// directory for which that was made; without a mark everything is told, as created. Other
    /// subvolumes are not entered.
    ///
    /// # Errors
    /// `ENOTDIR`, `ENOENT` if the directory is removed; `EACCES` if the caller may not list it.
    /// `EXDEV` for a mark of another volume or subvolume. `ESTALE` for a mark that is from the
    /// future (the volume is an older copy) or from before a repair: then a full scan is needed.
    /// Those of [`Changes::mark`].
    pub fn since(self, who: &Caller, dir: Ino, since: Option<&ChangeMark>) -> Result<ChangeReader> {
        let own = self.0.attr(dir)?;
        if own.kind != FileKind::Directory {
            return Err(Error::Code(Code::NotDirectory));
        }
        if own.nlink == 0 {
            return Err(Error::Code(Code::NotFound));
        }
        self.check_list(who, dir)?;
        let mark = self.mark(dir)?;
        if let Some(since) = since {
            check_mark(since, &mark)?;
        }
        let window = since.map(|since| self.0.store.removed_names.since(since.lsn));
        Ok(ChangeReader::new(who, dir, since, mark, window))
    }
}

impl Changes<'_> {
    /// Returns whether anything in the volume may have changed since a mark of it, without looking
    /// for it: a comparison of two numbers. What it has found before is not durable yet.
    pub fn is_newer(self, mark: &ChangeMark) -> bool {
        self.0.store.lsn() > mark.lsn
    }

    /// Tells the numbers of the volume's state from now on to whoever keeps copies of what it reads
    /// ([`shoal_txn::States`]), beginning with `first`, which must be above all that were told
    /// before. `tell` may be called from several threads, out of order: the highest number counts.
    pub fn tell_states(self, first: u64, tell: impl Fn(u64) + Send + Sync + 'static) {
        self.0.store.states.tell(first, tell);
    }

    /// Returns the number of the volume's state for a copy that is about to be read; it holds until
    /// a higher number is told. `None`: it cannot be kept.
    pub fn keep_state(self) -> Option<u64> {
        self.0.store.keep_state()
    }
}

/// Checks that a mark can be continued, now that `now` would be made.
fn check_mark(since: &ChangeMark, now: &ChangeMark) -> Result<()> {
    if since.volume != now.volume {
        return Err(full_scan(Code::CrossRoot, "the mark is of another volume"));
    }
    if (since.root, since.generation) != (now.root, now.generation) {
        return Err(full_scan(Code::CrossRoot, "the mark is of another subvolume"));
    }
    if since.series != now.series {
        return Err(full_scan(Code::Stale, "the volume has been repaired since the mark"));
    }
    if since.lsn > now.lsn || since.epoch > now.epoch {
        let what = "the mark is from the future of this volume, which is an older copy";
        return Err(full_scan(Code::Stale, what));
    }
    Ok(())
}

/// Removed names.
impl Changes<'_> {
    /// Switches on or off that the names of removed files are kept, for all subvolumes; only for
    /// privileged callers. At most 3 MiB of them are kept, the newest; they survive a clean close.
    /// After a crash those since the last checkpoint are there. Off on a new volume.
    ///
    /// # Errors
    /// `EPERM`, `EROFS`, `ENOSPC`, those of the device.
    pub fn keep_removed(self, who: &Caller, keep: bool) -> Result<()> {
        if !who.bypasses() {
            return Err(Error::Code(Code::NotPermitted));
        }
        self.0.store.writable()?;
        let names = &self.0.store.removed_names;
        if keep == names.is_on() {
            return Ok(());
        }
        let header = self.header()?;
        self.put_header(&RemovedHeader::new(keep, header.series))?;
        match keep {
            true => {
                // No transaction is in flight that has not seen the switch.
                self.0.store.checkpoints().quiesced(|_| names.start(self.0.store.lsn()));
                // A replay keeps names only if the checkpoint says so.
                self.0.store.checkpoints().write()
            }
            false => {
                names.stop();
                self.drop_chunks(&header)?;
                self.0.sync()
            }
        }
    }

    /// Returns whether the names of removed files are kept.
    pub fn keeps_removed(self) -> bool {
        self.0.store.removed_names.is_on()
    }
}
