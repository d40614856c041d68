//! Quotas of directory trees: totals that are kept, and limits (after the project quotas of XFS).
//!
//! Problem: the use of a tree takes a walk or a scan, and nothing stops one user of a volume from
//! taking all of it.
//!
//! Rule: a directory with a quota has a *project* number. Everything below has it in the inode's
//! core, by inheritance; so the change of an inode's use is known wherever the inode is changed,
//! and also in replay. Sums and limits: `shoal_itable`, `projects.rs`. A hard link or a rename
//! that would take an inode out of its project is refused with `EXDEV`.
//!
//! | part | file |
//! | --- | --- |
//! | calls; the table of quotas, a hidden attribute of the volume's top directory | this one |
//! | giving all inodes below a directory their number, from the top down | `tag.rs` |
//! | the use at open: stored by a close, or counted | `count.rs` |
//!
//! Invariants:
//!
//! 1. A directory has the number of its parent, except the directory of a quota itself, and while
//!    numbers are being changed (`tag.rs`). A file has the number of a directory in which it has or
//!    had a name: with names in several trees, that of the tree whose quota was set last.
//! 2. A number is given again only if no inode has it.
//! 3. A stored use is believed only in the checkpoint of the close that stored it.

mod count;
mod tag;

use crate::attributes::Attributes;
use crate::directories::Directories;
use crate::state::room;
use crate::types::{Caller, FileKind, Quota, QuotaLimits};
use shoal_base::timing::Call;
use shoal_base::{Code, Error, Ino, Result};
use shoal_format::quota::{NAME, ROWS_MAX, Row, State, Table};
use shoal_itable::ProjectUse;
use std::sync::atomic::Ordering;

room! {
    /// Quotas of directory trees.
    pub struct Quotas { attributes: Attributes, directories: Directories }
}

/// Limits of a row.
fn limits_of(row: &Row) -> QuotaLimits {
    QuotaLimits { bytes: row.bytes_max, inodes: row.inodes_max }
}

impl Quotas<'_> {
    /// Gives a directory a quota, or changes its limits; only for privileged callers. Everything
    /// below is counted, which takes a walk, while other calls go on; subvolumes below, and
    /// directories with a quota of their own, are not included. Limits may be below the use: then
    /// nothing more can be made.
    ///
    /// Limits hold for everybody: calls that need more fail with `EDQUOT`. While a call runs, and
    /// after an error until it is repeated, a part of what is there already counts.
    ///
    /// # Errors
    /// `EPERM`, `ENOTDIR`, `ENOENT` if the directory is removed, `ESTALE`, `EROFS`. `ENOSPC` if the
    /// volume is full or has 1,024 quotas. `EBUSY` if a quota of this directory is being removed.
    pub fn set(self, who: &Caller, dir: Ino, limits: QuotaLimits) -> Result<Quota> {
        self.0.measured(Call::Quota, || self.set_limits(who, dir, limits))
    }

    fn set_limits(self, who: &Caller, dir: Ino, limits: QuotaLimits) -> Result<Quota> {
        let generation = self.check_dir(who, dir)?;
        let _one = self.0.quotas.tagging.lock();
        self.prune();
        let mut table = self.0.quotas.table.lock().clone();
        let at = match find(&table, dir, generation) {
            Some(at) if table.rows[at].state == State::Removed => {
                let message = "the directory's quota is still being removed; try again later";
                return Err(Error::refused(Code::Busy, message));
            }
            Some(at) => at,
            None => add(&mut table, dir, generation)?,
        };
        let row = &mut table.rows[at];
        (row.inodes_max, row.bytes_max) = (limits.inodes, limits.bytes);
        let project = row.project;
        let is_ready = row.state == State::Ready;
        self.put(table)?;
        self.declare(project, dir, limits);
        if !is_ready {
            self.tag_top(dir, project)?;
            self.tag_below(dir, &|| false)?;
            self.note_ready(project);
            // Otherwise the next session walks again.
            let table = self.0.quotas.table.lock().clone();
            if let Err(error) = self.put(table) {
                tracing::warn!(%error, "a quota is complete, and not noted as such");
            }
        }
        self.quota(project).ok_or(Error::Code(Code::NotFound))
    }

    /// Removes the quota of a directory; only for privileged callers. Its contents then belong to
    /// the quota of a directory above, if there is one, whatever its limits. This takes a walk.
    ///
    /// # Errors
    /// `ENODATA` if the directory has none; those of [`Quotas::set`].
    pub fn remove(self, who: &Caller, dir: Ino) -> Result<()> {
        self.0.measured(Call::Quota, || self.remove_limits(who, dir))
    }

    fn remove_limits(self, who: &Caller, dir: Ino) -> Result<()> {
        let generation = self.check_dir(who, dir)?;
        let _one = self.0.quotas.tagging.lock();
        let mut table = self.0.quotas.table.lock().clone();
        let at = find(&table, dir, generation).ok_or(Error::Code(Code::NoData))?;
        let row = &mut table.rows[at];
        (row.state, row.inodes_max, row.bytes_max) = (State::Removed, None, None);
        let project = row.project;
        self.put(table)?;
        self.untag(project, dir, &|| false)?;
        self.prune();
        let table = self.0.quotas.table.lock().clone();
        self.put(table)
    }

    /// Returns the quota of the tree that contains this inode, that of the nearest directory above
    /// which has one; `None` if there is none.
    ///
    /// # Errors
    /// `ESTALE`; those of reading the inode.
    pub fn of(self, ino: Ino) -> Result<Option<Quota>> {
        let project = |inode: &shoal_format::inode::Inode| match inode.core.in_use() {
            true => Ok(inode.core.project),
            false => Err(Error::Code(Code::Stale)),
        };
        Ok(match self.0.root(ino)?.table.look(ino, project)?? {
            0 => None,
            project => self.quota(project),
        })
    }

    /// Returns the bytes that an inode counts in its quota: `st_blocks` without contents in the
    /// inode.
    ///
    /// # Errors
    /// Those of reading the inode.
    pub fn bytes_of(self, ino: Ino) -> Result<u64> {
        let counted = |inode: &shoal_format::inode::Inode| {
            let mut used = ProjectUse::default();
            used.add(&inode.core);
            used.bytes
        };
        self.0.root(ino)?.table.look(ino, counted)
    }

    /// Returns the quota that a directory itself has.
    ///
    /// # Errors
    /// `ENODATA` if it has none; `ENOTDIR`, `ENOENT`, `ESTALE`.
    pub fn get(self, dir: Ino) -> Result<Quota> {
        self.generation_of(dir)?;
        match self.of(dir)? {
            Some(quota) if quota.dir == dir => Ok(quota),
            _ => Err(Error::Code(Code::NoData)),
        }
    }

    /// Returns all quotas, by directory.
    pub fn list(self) -> Vec<Quota> {
        let rows = self.0.quotas.table.lock().rows.clone();
        let mut all: Vec<Quota> = rows.iter().filter_map(|row| self.shown(row)).collect();
        all.sort_unstable_by_key(|quota| quota.dir);
        all
    }

    fn quota(self, project: u32) -> Option<Quota> {
        let of = |row: &&Row| row.project == project;
        let row = self.0.quotas.table.lock().rows.iter().find(of).copied();
        row.and_then(|row| self.shown(&row))
    }

    /// Returns a quota as users see it; `None` if it is removed, or its directory.
    fn shown(self, row: &Row) -> Option<Quota> {
        let is_there = row.state != State::Removed && self.is_there(row);
        let used = self.0.store.roots().projects().used(row.project);
        let is_exact = self.0.store.roots().projects().is_counted() && row.state == State::Ready;
        is_there.then_some(Quota {
            dir: row.dir,
            limits: limits_of(row),
            bytes: used.bytes,
            inodes: used.inodes,
            is_exact: is_exact && !self.0.quotas.is_tag_due.load(Ordering::Acquire),
        })
    }

    /// Returns whether the directory of a row still exists.
    fn is_there(self, row: &Row) -> bool {
        self.generation_of(row.dir).is_ok_and(|generation| generation == row.generation)
    }

    fn check_dir(self, who: &Caller, dir: Ino) -> Result<u32> {
        if !who.bypasses() {
            return Err(Error::Code(Code::NotPermitted));
        }
        self.0.store.writable()?;
        self.generation_of(dir)
    }

    fn generation_of(self, dir: Ino) -> Result<u32> {
        let attr = self.0.attr(dir)?;
        match attr.kind {
            FileKind::Directory if attr.nlink > 0 => Ok(attr.generation.0),
            FileKind::Directory => Err(Error::Code(Code::NotFound)),
            _ => Err(Error::Code(Code::NotDirectory)),
        }
    }

    fn declare(self, project: u32, dir: Ino, limits: QuotaLimits) {
        self.0.store.roots().projects().declare(project, dir, limits.inodes, limits.bytes);
    }

    /// Stores the table, and then uses it.
    fn put(self, mut table: Table) -> Result<()> {
        if !self.0.quotas.is_tag_due.load(Ordering::Acquire) {
            table.incarnation = self.incarnation();
        }
        let value = (!table.rows.is_empty()).then(|| table.to_bytes());
        self.attributes().keep_hidden(Ino::ROOT, NAME, value.as_deref())?;
        *self.0.quotas.table.lock() = table;
        Ok(())
    }

    /// Notes that all inodes below the directory of a quota have its number.
    fn note_ready(self, project: u32) {
        let rows = &mut self.0.quotas.table.lock().rows;
        let of = rows.iter_mut().filter(|row| row.project == project);
        of.for_each(|row| row.state = State::Ready);
    }

    /// Drops the rows of removed quotas and of removed directories, once no inode has the number.
    fn prune(self) {
        let projects = self.0.store.roots().projects();
        if !projects.is_counted() || self.0.quotas.is_tag_due.load(Ordering::Acquire) {
            return;
        }
        let is_used = |row: &Row| {
            row.state != State::Removed && self.is_there(row)
                || projects.used(row.project) != Default::default()
        };
        let mut rows = self.0.quotas.table.lock().rows.clone();
        rows.retain(is_used);
        self.0.quotas.table.lock().rows = rows;
    }
}

fn find(table: &Table, dir: Ino, generation: u32) -> Option<usize> {
    table.rows.iter().position(|row| (row.dir, row.generation) == (dir, generation))
}

/// Adds a row with the lowest free number. Returns its index.
fn add(table: &mut Table, dir: Ino, generation: u32) -> Result<usize> {
    let at = (1..).zip(&table.rows).take_while(|(number, row)| row.project == *number).count();
    if at == ROWS_MAX {
        let message = format!("the volume has {ROWS_MAX} quotas, which is the maximum: remove one");
        return Err(Error::refused(Code::NoSpace, message));
    }
    let row = Row {
        project: at as u32 + 1,
        state: State::Begun,
        dir,
        generation,
        inodes_max: None,
        bytes_max: None,
        inodes: 0,
        bytes: 0,
    };
    table.rows.insert(at, row);
    Ok(at)
}
