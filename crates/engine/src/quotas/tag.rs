//! Giving the inodes below a directory their project number.
//!
//! Rule: from the top down. A directory is listed only when it has the number, and an inode gets
//! the number of its directory under the locks of both, while it has a name there. So nothing is
//! missed: what is made in a directory after it got the number has it too, and what is moved into
//! it must have it (`EXDEV`). Nothing gets a number wrongly: an inode that was moved away meanwhile
//! has no name there any more. Each inode is one transaction. A crash leaves inodes with the old
//! number and the row of the table says so: the next session walks again.

use super::Quotas;
use crate::records;
use crate::types::FileKind;
use shoal_base::{Code, Error, Ino, Result};
use shoal_format::checkpoint::RootState;
use shoal_format::inode::{Core, Inode};
use shoal_format::quota::State;
use shoal_itable::Locked;
use shoal_txn::Txn;
use std::sync::atomic::Ordering;

/// Entries that are listed at a time.
const ENTRIES: usize = 256;

/// An entry of a directory.
struct Below {
    name: Vec<u8>,
    ino: Ino,
    is_dir: bool,
    cookie: u64,
}

impl Quotas<'_> {
    /// Gives the directory of a quota its number.
    pub(super) fn tag_top(self, dir: Ino, project: u32) -> Result<()> {
        self.0.reading_first(|| {
            let mut txn = self.0.begin(records::SETATTR)?;
            let inode = self.0.inode(dir)?;
            let mut locked = inode.write();
            if !locked.inode().core.in_use() {
                return Err(Error::Code(Code::Stale));
            }
            self.put_project(&mut txn, &mut locked, project)?;
            txn.commit().map(drop)
        })
    }

    /// Takes the number from a directory and everything below. Returns `false` if it was stopped.
    pub(super) fn untag(self, project: u32, dir: Ino, stop: &dyn Fn() -> bool) -> Result<bool> {
        // From here on it is no top, and its number is that of its parent.
        self.0.store.roots().projects().declare(project, Ino(0), None, None);
        let is_top = self.0.root(dir)?.top() == dir;
        if is_top {
            self.tag_top(dir, 0)?;
        } else {
            while !self.0.reading_first(|| self.tag_as_parent(dir))? {}
        }
        self.tag_below(dir, stop)
    }

    /// Gives a directory the number of its parent. Returns `false` if it has just been moved.
    fn tag_as_parent(self, dir: Ino) -> Result<bool> {
        let parent = |inode: &Inode| Ino(inode.core.parent_or_rdev);
        let above = self.0.root(dir)?.table.look(dir, parent)?;
        let mut txn = self.0.begin(records::SETATTR)?;
        let (above_ref, inode) = (self.0.inode(above)?, self.0.inode(dir)?);
        let above_slot = above_ref.read();
        let mut locked = inode.write();
        let core = locked.inode().core;
        if !core.in_use() || core.nlink == 0 {
            return Err(Error::Code(Code::Stale));
        }
        if core.parent_or_rdev != above.0 {
            return Ok(false);
        }
        let project = above_slot.inode.core.project;
        self.put_project(&mut txn, &mut locked, project)?;
        txn.commit().map(|_| true)
    }

    /// Gives everything below a directory its number, except directories with a quota of their own
    /// and what is below these, and other subvolumes. Returns `false` if it was stopped. The memory
    /// is that of the path.
    pub(super) fn tag_below(self, dir: Ino, stop: &dyn Fn() -> bool) -> Result<bool> {
        // Each with the cookie of the last entry that is done; 2: "." and "..".
        let mut path = vec![(dir, 2)];
        while let Some((dir, cookie)) = path.last_mut() {
            if stop() {
                return Ok(false);
            }
            match self.tag_some(*dir, cookie) {
                Ok(Some(child)) => path.push((child, 2)),
                Ok(None) => drop(path.pop()),
                // Removed meanwhile.
                Err(e) if e.is(Code::Stale) || e.is(Code::NotFound) => drop(path.pop()),
                Err(e) => return Err(e),
            }
        }
        Ok(true)
    }

    /// Gives some entries after `cookie` the number of their directory. Returns the next directory
    /// to enter; `None` at the end.
    fn tag_some(self, dir: Ino, cookie: &mut u64) -> Result<Option<Ino>> {
        loop {
            let mut found = Vec::new();
            self.directories().readdir(dir, *cookie, &mut |entry| {
                let is_dir = entry.kind == FileKind::Directory;
                found.push(Below {
                    name: entry.name.to_vec(),
                    ino: entry.ino,
                    is_dir,
                    cookie: entry.cookie,
                });
                found.len() < ENTRIES && !is_dir
            })?;
            let Some(last) = found.last().map(|last| last.cookie) else { return Ok(None) };
            for entry in found.iter().filter(|entry| entry.ino.root() == dir.root()) {
                let goes_on = self.0.reading_first(|| self.tag_entry(dir, entry))?;
                if goes_on && entry.is_dir {
                    *cookie = entry.cookie;
                    return Ok(Some(entry.ino));
                }
            }
            *cookie = last;
        }
    }

    /// Gives an entry the number of its directory. Returns `false` if it has one of its own, or is
    /// not there any more.
    fn tag_entry(self, dir: Ino, entry: &Below) -> Result<bool> {
        let table = &self.0.root(dir)?.table;
        let project = |inode: &Inode| inode.core.in_use().then_some(inode.core.project);
        // The directory has had its number since before it was listed.
        if table.look(dir, project)? == table.look(entry.ino, project)? {
            return Ok(true);
        }
        let mut txn = self.0.begin(records::SETATTR)?;
        let (dir_ref, inode) = (table.get(dir)?, table.get(entry.ino)?);
        let above = dir_ref.read();
        if !above.inode.core.in_use() || !above.inode.core.is_dir() {
            return Ok(false);
        }
        match self.directories().find_entry(dir, &entry.name)? {
            Some(found) if found.child == entry.ino => {}
            _ => return Ok(false),
        }
        let mut locked = inode.write();
        if self.0.store.roots().projects().is_top(locked.inode().core.project, entry.ino) {
            return Ok(false);
        }
        let project = above.inode.core.project;
        self.put_project(&mut txn, &mut locked, project)?;
        txn.commit().map(|_| true)
    }

    fn put_project(self, txn: &mut Txn<'_>, locked: &mut Locked<'_>, project: u32) -> Result<()> {
        let core = locked.inode().core;
        if core.project != project {
            self.0.put_core(txn, locked, Core { project, ..core })?;
            txn.stamp(locked)?;
        }
        Ok(())
    }

    /// Gives all inodes of the volume their right number. Returns `false` if it was stopped.
    pub(super) fn tag_all(self, stop: &dyn Fn() -> bool) -> Result<bool> {
        let rows = self.0.quotas.table.lock().rows.clone();
        let kept = || rows.iter().filter(|row| row.state != State::Removed && self.is_there(row));
        for row in kept() {
            self.tag_top(row.dir, row.project)?;
        }
        for row in rows.iter().filter(|row| row.state == State::Removed && self.is_there(row)) {
            if !self.untag(row.project, row.dir, stop)? {
                return Ok(false);
            }
        }
        let live = |root: &&shoal_txn::Root| root.state() == RootState::Live;
        let tops: Vec<Ino> = self.0.store.roots().iter().filter(live).map(|r| r.top()).collect();
        for top in tops.into_iter().chain(kept().map(|row| row.dir)) {
            let project = self.0.root(top).and_then(|root| {
                root.table.look(top, |inode| (root.top() == top, inode.core.project))
            });
            match project {
                Ok((true, project)) if !self.0.store.roots().projects().is_top(project, top) => {
                    self.tag_top(top, 0)?;
                }
                Ok(_) => {}
                // Deleted meanwhile.
                Err(e) if e.is(Code::Stale) => continue,
                Err(e) => return Err(e),
            }
            if !self.tag_below(top, stop)? {
                return Ok(false);
            }
        }
        let begun = rows.iter().filter(|row| row.state == State::Begun);
        begun.for_each(|row| self.note_ready(row.project));
        self.0.quotas.is_tag_due.store(false, Ordering::Release);
        Ok(true)
    }
}
