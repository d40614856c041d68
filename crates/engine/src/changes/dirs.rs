//! Paths of directories, from the one that was asked for, by the parents of each.
//!
//! Parent and name of each directory are memoised, so that a directory is looked at once however
//! many changes are below it. The memo is a cache, bounded by [`MEMO_MAX`] directories. Paths are
//! not kept, except the last one: those of a deep tree would take memory that is quadratic in its
//! depth.

use super::Changes;
use crate::permissions::{EXEC, READ};
use crate::stat::attr_of;
use crate::types::{Caller, ChangedName};
use shoal_base::cold::Section;
use shoal_base::{Code, Error, Generation, Ino, Result};
use std::collections::HashMap;
use std::sync::Arc;

/// Directories that are kept: some 40 MB.
const MEMO_MAX: usize = 1 << 18;
/// Directories on a path, at most: more than in any real tree.
const DEPTH_MAX: usize = 1 << 16;

/// Parent and name of a directory; `None` if it has none, or if the caller may not list it.
type Link = Option<(Ino, Arc<[u8]>)>;

/// The directories met by a reader.
pub(super) struct Dirs {
    who: Caller,
    pub top: Ino,
    known: HashMap<Ino, Link>,
    last: Option<(Ino, Option<Arc<[u8]>>)>,
    /// Stamp of the renames of directories: what is known is of that moment.
    pub stamp: Option<u64>,
}

impl Dirs {
    /// For paths from `top`, as `who` may see them.
    pub(super) fn new(who: &Caller, top: Ino) -> Dirs {
        Dirs { who: who.clone(), top, known: HashMap::new(), last: None, stamp: None }
    }

    pub(super) fn forget(&mut self) {
        self.known.clear();
        self.last = None;
        self.stamp = None;
    }

    fn link(&mut self, changes: Changes<'_>, dir: Ino) -> Result<Link> {
        if let Some(known) = self.known.get(&dir) {
            return Ok(known.clone());
        }
        let link = match changes.link_of(&self.who, dir) {
            Err(e) if e.is(Code::Stale) || e.is(Code::Access) => None,
            found => found?,
        };
        if self.known.len() >= MEMO_MAX {
            self.known.clear();
        }
        self.known.insert(dir, link.clone());
        Ok(link)
    }

    /// Returns the path of a directory; `None` if it is not below the top, or if the caller could
    /// not find it.
    pub(super) fn path(&mut self, changes: Changes<'_>, dir: Ino) -> Result<Option<Arc<[u8]>>> {
        if let Some((last, path)) = &self.last
            && *last == dir
        {
            return Ok(path.clone());
        }
        let path = self.climb(changes, dir)?;
        self.last = Some((dir, path.clone()));
        Ok(path)
    }

    fn climb(&mut self, changes: Changes<'_>, dir: Ino) -> Result<Option<Arc<[u8]>>> {
        let (mut at, mut names) = (dir, Vec::new());
        while at != self.top {
            if at.root() != self.top.root() || names.len() > DEPTH_MAX {
                return Ok(None);
            }
            let Some((parent, name)) = self.link(changes, at)? else { return Ok(None) };
            names.push(name);
            at = parent;
        }
        names.reverse();
        Ok(Some(names.join(&b'/').into()))
    }

    /// Returns a name with its path; `None` as for [`Dirs::path`].
    pub(super) fn name(
        &mut self,
        changes: Changes<'_>,
        dir: Ino,
        name: &[u8],
    ) -> Result<Option<ChangedName>> {
        let path = self.path(changes, dir)?;
        Ok(path.map(|dir_path| ChangedName { dir, dir_path, name: name.to_vec() }))
    }
}

impl Changes<'_> {
    /// Returns parent and name of a directory that the caller may list and search.
    fn link_of(self, who: &Caller, dir: Ino) -> Result<Link> {
        self.0.reading_first(|| {
            let inode = self.0.inode(dir)?;
            let _section = Section::begin();
            let slot = inode.read();
            attr_of(dir, &slot.inode)?;
            let core = &slot.inode.core;
            if !core.is_dir() || core.nlink == 0 {
                return Ok(None);
            }
            if !who.bypasses() {
                self.permissions().permit(who, dir, &slot.inode, READ | EXEC)?;
            }
            let parent = self.paths().parents_in(dir, &slot.inode)?.pop();
            Ok(parent.map(|parent| (parent.dir, parent.name.into())))
        })
    }

    /// Checks that a caller may list and search a directory.
    pub(super) fn check_list(self, who: &Caller, dir: Ino) -> Result<()> {
        self.attributes().access(who, dir, READ | EXEC)
    }

    /// Returns the inode that has a name now, with its generation if it is `known`. `ESTALE` if the
    /// directory is gone. Whoever changes the entry has allocated the LSN of its record by then.
    pub(super) fn child_now(
        self,
        (dir, generation): (Ino, Generation),
        name: &[u8],
    ) -> Result<Option<Ino>> {
        self.0.reading_first(|| {
            let inode = self.0.inode(dir)?;
            let _section = Section::begin();
            let slot = inode.read();
            let attr = attr_of(dir, &slot.inode)?;
            if attr.generation != generation || attr.nlink == 0 {
                return Err(Error::Code(Code::Stale));
            }
            Ok(self.directories().find_entry(dir, name)?.map(|found| found.child))
        })
    }
}
