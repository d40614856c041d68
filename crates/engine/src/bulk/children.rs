//! The entries of a very large directory, in the order of their inodes.
//!
//! Problem: entries come in the order of the hashes of their names. When the inodes of a directory
//! do not fit in the cache, nearly each entry reads the block of its inode anew, so that a block of
//! 32 inodes is read and decoded 32 times.
//!
//! Rule: an inode has its names itself (parent pointers). So the inodes of the subvolume are
//! scanned in the order of their numbers, each block once, and those with a name in the directory
//! are its entries. This takes the time of all inodes of the subvolume, and the directory is not
//! read at all.

use super::Bulk;
use crate::stat::attr_of;
use crate::types::{Attr, Caller, Child, FileKind, InodeScan};
use shoal_base::sync::Mutex;
use shoal_base::timing::Call;
use shoal_base::{Code, Error, Ino, Result};
use shoal_format::inode::Inode;
use std::ops::ControlFlow;

/// Inodes that can be scanned in the time in which an entry whose inode is not in memory is listed.
const SCANNED: u64 = 32;
/// Links that are read at a time.
const LINKS: usize = 256;

impl Bulk<'_> {
    /// Returns whether [`Bulk::children`] lists a directory with attributes in less time than
    /// [`Directories::readdirplus`](crate::Directories::readdirplus): its inodes do not fit in the
    /// cache, and they are not a small part of all inodes.
    pub fn prefers_inode_order(self, dir: Ino) -> Result<bool> {
        let attr = self.0.attr(dir)?;
        let root = self.0.root(dir)?;
        let is_small_part = attr.size < root.inodes() / SCANNED;
        let is_large = attr.kind == FileKind::Directory && !root.table.fits(attr.size);
        Ok(is_large && !is_small_part && self.0.parents)
    }

    /// Returns entries of a directory, without "." and "..", in the order of their inode numbers,
    /// with attributes, and the inode to continue after; `None` at the end. To begin,
    /// `Ino::new(dir.root(), 0)`. The number is about `at_most`: all names of one inode come
    /// together, and so do some hundred inodes.
    ///
    /// An entry that exists during the whole listing is there exactly once, also if it is renamed
    /// in the directory, under one of its names; one that is made, removed or moved meanwhile is
    /// there or not. A name that is removed and created again meanwhile may be there twice, for two
    /// inodes.
    ///
    /// # Errors
    /// `ENOTDIR`; `ESTALE` if the directory does not exist; `EACCES` if the caller may not list and
    /// search it; `EOPNOTSUPP` on a volume without parent pointers; those of the device, and
    /// damage, behind which it can be continued.
    pub fn children(
        self,
        who: &Caller,
        dir: Ino,
        after: Ino,
        at_most: usize,
    ) -> Result<(Vec<Child>, Option<Ino>)> {
        self.0.measured(Call::Children, || self.scan_children(who, dir, after, at_most))
    }

    fn scan_children(
        self,
        who: &Caller,
        dir: Ino,
        after: Ino,
        at_most: usize,
    ) -> Result<(Vec<Child>, Option<Ino>)> {
        if !self.0.parents {
            return Err(Error::Code(Code::NotSupported));
        }
        self.directories().parent_of(dir)?;
        self.check_list(who, dir)?;
        let children = match dir == Ino::ROOT && after.index() == 0 {
            true => self.subvolumes_below(dir)?,
            false => Vec::new(),
        };
        let (children, failed) = (Mutex::new(children), Mutex::new(None));
        let last = Mutex::new(None);
        // Returns the attributes of those whose names must be read.
        let pick = |ino: Ino, inode: &Inode| {
            let attr = attr_of(ino, inode)?;
            let Some((home, name)) = self.paths().sole_name(ino, inode) else {
                return Ok((ino, Some(attr)));
            };
            if home == dir {
                children.lock().push(Child { name: name.into(), attr });
            }
            Ok((ino, None))
        };
        let each = |batch: &[(Ino, Option<Attr>)]| {
            for attr in batch.iter().filter_map(|(_, attr)| *attr) {
                if let Err(e) = self.names_here(dir, &attr, &children) {
                    *failed.lock() = Some(e);
                    return ControlFlow::Break(());
                }
            }
            *last.lock() = batch.last().map(|(ino, _)| *ino);
            match children.lock().len() < at_most {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        };
        self.scan_inodes(InodeScan { after, threads: 1 }, pick, each)?;
        let failed = failed.lock().take();
        failed.map_or(Ok(()), Err)?;
        let children = std::mem::take(&mut *children.lock());
        let last = last.lock().filter(|_| children.len() >= at_most);
        Ok((children, last))
    }

    /// Adds the names that an inode has in a directory, read from its parent pointers.
    fn names_here(self, dir: Ino, attr: &Attr, children: &Mutex<Vec<Child>>) -> Result<()> {
        let mut cookie = 0;
        loop {
            let links = match self.paths().parents_from(attr.ino, cookie, LINKS) {
                // Removed meanwhile.
                Err(e) if e.is(Code::Stale) => return Ok(()),
                links => links?,
            };
            let here = links.iter().filter(|(_, link)| link.dir == dir);
            let named =
                here.map(|(_, link)| Child { name: link.name.as_slice().into(), attr: *attr });
            children.lock().extend(named);
            match links.last() {
                Some((at, _)) if links.len() == LINKS => cookie = at + 1,
                _ => return Ok(()),
            }
        }
    }

    /// Returns the subvolumes, whose top directories are entries of the volume's.
    fn subvolumes_below(self, dir: Ino) -> Result<Vec<Child>> {
        let children = Mutex::new(Vec::new());
        for root in self.0.store.roots().iter().skip(1) {
            match self.0.attr(root.top()) {
                Ok(attr) => self.names_here(dir, &attr, &children)?,
                // Deleted.
                Err(e) if e.is(Code::Stale) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(std::mem::take(&mut *children.lock()))
    }
}
