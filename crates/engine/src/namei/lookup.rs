//! Lookup of names and paths.

use super::names_itself;
use crate::namei::Namespace;
use crate::stat::attr_of;
use crate::types::{Attr, Caller, Entry, FileKind, Handle};
use shoal_base::cold::Section;
use shoal_base::limits::{NAME_MAX, PATH_MAX, SYMLOOP_MAX};
use shoal_base::planted::{self, Defect};
use shoal_base::timing::Call;
use shoal_base::{Code, Error, Ino, Result};

impl Namespace<'_> {
    /// Looks up `name` in `dir`, including "." and "..".
    pub fn lookup(self, who: &Caller, dir: Ino, name: &[u8]) -> Result<Entry> {
        self.0.measured(Call::Lookup, || self.0.reading_first(|| self.try_lookup(who, dir, name)))
    }

    #[inline]
    fn try_lookup(self, who: &Caller, dir: Ino, name: &[u8]) -> Result<Entry> {
        let table = &self.0.root(dir)?.table;
        let pin = table.pin();
        let inode = table.borrow(&pin, dir)?;
        // Nothing is read from the device under the directory's lock: a transaction that changes
        // the directory may be waiting for it.
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
                return match self.0.attr(parent) {
                    // The parent has been freed, and this unlinked directory is still in use.
                    Err(Error::Code(Code::Stale)) => Err(Error::Code(Code::NotFound)),
                    other => other,
                };
            }
            _ => {}
        }
        // The directory stays locked, so the entry cannot change before its inode is read.
        match self.directories().find_entry(dir, name)? {
            Some(found) if found.child == dir => Err(names_itself(dir)),
            Some(found) if planted::is(Defect::LookupUnlocked) => {
                drop(slot);
                let gone = |e: Error| if e.is(Code::Stale) { Code::NotFound.into() } else { e };
                self.0.attr(found.child).map_err(gone)
            }
            Some(found) => self.0.attr(found.child),
            None => Err(Error::Code(Code::NotFound)),
        }
    }

    /// Resolves a handle. `ESTALE` if the inode is free or unlinked and not in use, or its number
    /// was reused.
    pub fn by_handle(self, handle: Handle) -> Result<Attr> {
        self.0.measured(Call::Getattr, || {
            let attr = self.0.attr(handle.ino)?;
            let gone = attr.nlink == 0 && !self.0.holds.is_held(handle.ino);
            match attr.generation == handle.generation && !gone {
                true => Ok(attr),
                false => Err(Error::Code(Code::Stale)),
            }
        })
    }

    /// Walks `path` from `start` (from the top if it begins with `/`). Always follows symlinks in
    /// the middle of the path; at the end only if `follow`. Checks search permission.
    pub fn resolve(self, who: &Caller, start: Ino, path: &[u8], follow: bool) -> Result<Entry> {
        self.0.measured(Call::Resolve, || match path.len() {
            0 => Err(Error::Code(Code::NotFound)),
            1..=PATH_MAX => self.walk(who, start, path, follow, 0),
            _ => Err(Error::Code(Code::NameTooLong)),
        })
    }

    fn walk(
        self,
        who: &Caller,
        start: Ino,
        path: &[u8],
        follow: bool,
        links: usize,
    ) -> Result<Entry> {
        let mut at = if path.first() == Some(&b'/') { Ino::ROOT } else { start };
        // A trailing slash requires a directory, and follows a symlink.
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
            None => self.0.attr(at),
        }
    }

    /// Returns the target of a symlink.
    pub fn readlink(self, ino: Ino) -> Result<Vec<u8>> {
        self.0.measured(Call::Readlink, || self.target_of(ino))
    }

    fn target_of(self, ino: Ino) -> Result<Vec<u8>> {
        let attr = self.0.attr(ino)?;
        if attr.kind != FileKind::Symlink {
            return Err(Error::Code(Code::Invalid));
        }
        if attr.size >= PATH_MAX as u64 {
            let rule = format!("symlink with a target of {} bytes", attr.size);
            return Err(Error::corrupt(format!("inode {ino}"), None, rule));
        }
        let mut target = vec![0; attr.size as usize];
        let len = self.files().read_any(ino, 0, &mut target)?;
        target.truncate(len);
        Ok(target)
    }
}
