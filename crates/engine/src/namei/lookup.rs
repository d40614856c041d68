//! Looking names and paths up.

use super::names_itself;
use crate::attr::attr_of;
use crate::types::{Attr, Caller, Entry, FileKind, Handle};
use crate::volume::Inner;
use shoal_base::cold::Section;
use shoal_base::limits::{NAME_MAX, PATH_MAX, SYMLOOP_MAX};
use shoal_base::planted::{self, Defect};
use shoal_base::{Code, Error, Ino, Result};

impl Inner {
    /// Looks `name` up in `dir`; "." and ".." too.
    pub fn lookup(&self, who: &Caller, dir: Ino, name: &[u8]) -> Result<Entry> {
        self.reading_first(|| self.try_lookup(who, dir, name))
    }

    #[inline]
    fn try_lookup(&self, who: &Caller, dir: Ino, name: &[u8]) -> Result<Entry> {
        let table = &self.root(dir)?.table;
        let pin = table.pin();
        let inode = table.borrow(&pin, dir)?;
        // Nothing is read under the directory's lock: whoever changes the directory waits for it
        // inside the gate.
        let _section = Section::begin();
        let slot = inode.read();
        let core = &slot.inode.core;
        self.check_search(who, dir, &slot.inode)?;
        if name.len() > NAME_MAX {
            return Err(Error::Code(Code::NameTooLong));
        }
        match name {
            b"." => return attr_of(dir, &slot.inode),
            b".." => {
                let parent = Ino(core.parent_or_rdev);
                drop(slot);
                return match self.getattr(parent) {
                    // A removed directory that is still held outlives it.
                    Err(Error::Code(Code::Stale)) => Err(Error::Code(Code::NotFound)),
                    other => other,
                };
            }
            _ => {}
        }
        // The directory stays locked: what has the name has it still when it is looked at.
        match self.find_entry(dir, name)? {
            Some(found) if found.child == dir => Err(names_itself(dir)),
            Some(found) if planted::is(Defect::LookupUnlocked) => {
                drop(slot);
                let gone = |e: Error| if e.is(Code::Stale) { Code::NotFound.into() } else { e };
                self.getattr(found.child).map_err(gone)
            }
            Some(found) => self.getattr(found.child),
            None => Err(Error::Code(Code::NotFound)),
        }
    }

    /// Resolves a handle: `ESTALE` when the inode is gone, waits to be freed, or its number was
    /// used again.
    pub fn by_handle(&self, handle: Handle) -> Result<Attr> {
        let attr = self.getattr(handle.ino)?;
        let gone = attr.nlink == 0 && !self.holds.is_held(handle.ino);
        match attr.generation == handle.generation && !gone {
            true => Ok(attr),
            false => Err(Error::Code(Code::Stale)),
        }
    }

    /// Walks `path` from `start` (from the top if it begins with `/`), following symlinks in the
    /// middle always and at the end if `follow`. Checks search permission.
    pub fn resolve(&self, who: &Caller, start: Ino, path: &[u8], follow: bool) -> Result<Entry> {
        if path.len() > PATH_MAX {
            return Err(Error::Code(Code::NameTooLong));
        }
        if path.is_empty() {
            return Err(Error::Code(Code::NotFound));
        }
        self.walk(who, start, path, follow, 0)
    }

    fn walk(
        &self,
        who: &Caller,
        start: Ino,
        path: &[u8],
        follow: bool,
        links: usize,
    ) -> Result<Entry> {
        let mut at = if path.first() == Some(&b'/') { Ino::ROOT } else { start };
        // A trailing slash asks for a directory, behind a link if need be.
        let must_be_dir = path.last() == Some(&b'/');
        let mut parts = path.split(|b| *b == b'/').filter(|p| !p.is_empty()).peekable();
        let mut entry = None;
        while let Some(part) = parts.next() {
            let child = self.lookup(who, at, part)?;
            let last = parts.peek().is_none();
            let here = match child.kind {
                FileKind::Symlink if !last || follow || must_be_dir => {
                    if links >= SYMLOOP_MAX {
                        return Err(Error::Code(Code::Loop));
                    }
                    let target = self.readlink(child.ino)?;
                    self.walk(who, at, &target, true, links + 1)?
                }
                _ => child,
            };
            if (!last || must_be_dir) && here.kind != FileKind::Directory {
                return Err(Error::Code(Code::NotDirectory));
            }
            at = here.ino;
            entry = Some(here);
        }
        match entry {
            Some(entry) => Ok(entry),
            None => self.getattr(at),
        }
    }

    /// Target of a symlink.
    pub fn readlink(&self, ino: Ino) -> Result<Vec<u8>> {
        let attr = self.getattr(ino)?;
        if attr.kind != FileKind::Symlink {
            return Err(Error::Code(Code::Invalid));
        }
        if attr.size >= PATH_MAX as u64 {
            let rule = format!("symlink with a target of {} bytes", attr.size);
            return Err(Error::corrupt(format!("inode {ino}"), None, rule));
        }
        let mut target = vec![0; attr.size as usize];
        let len = self.read_any(ino, 0, &mut target)?;
        target.truncate(len);
        Ok(target)
    }
}
