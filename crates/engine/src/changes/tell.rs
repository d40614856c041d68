//! Telling an inode that has changed, and a name that is gone.

use super::Changes;
use super::dirs::Dirs;
use super::reader::{Found, Removed, Since};
use crate::stat::attr_of;
use crate::types::{Change, ChangeKind, ChangedName, FileKind, Parent};
use shoal_base::cold::Section;
use shoal_base::{Code, Generation, Ino, Result};
use shoal_txn::RemovedName;
use std::collections::{HashSet, VecDeque};
use std::ops::Range;

/// Links of an inode that are read at a time.
const LINKS: usize = 256;
/// Bytes of names and paths after which a batch ends.
const BYTES_MAX: usize = 1 << 20;

/// Part of a batch.
#[derive(Default)]
pub(super) struct Told {
    pub changes: Vec<Change>,
    /// Inodes of which everything is told.
    pub inodes: usize,
    /// Of the next inode the names before this cookie are told.
    pub cookie: Option<u64>,
    bytes: usize,
}

impl Told {
    fn is_full(&self) -> bool {
        self.bytes >= BYTES_MAX
    }
}

/// The names of an inode.
enum Names {
    Few(Vec<Parent>),
    /// To be listed in pieces.
    Many,
}

impl Changes<'_> {
    /// Tells those of the first moved names whose inodes have one other name now, each with its
    /// place in [`Removed::names`]. Returns also how many of the names were looked at.
    pub(super) fn tell_renamed(
        self,
        dirs: &mut Dirs,
        since: Since,
        removed: &Removed,
        moved: &[usize],
    ) -> Result<(Vec<(Change, usize)>, usize)> {
        let (mut told, mut bytes) = (Vec::new(), 0);
        for (done, at) in moved.iter().enumerate() {
            if bytes >= BYTES_MAX {
                return Ok((told, done));
            }
            let old = &removed.names[*at];
            match self.tell_move(dirs, since, old) {
                // Removed since.
                Err(e) if e.is(Code::Stale) => {}
                change => {
                    if let Some(change) = change? {
                        bytes += bytes_of_change(&change);
                        told.push((change, *at));
                    }
                }
            }
        }
        Ok((told, moved.len()))
    }

    fn tell_move(self, dirs: &mut Dirs, since: Since, old: &RemovedName) -> Result<Option<Change>> {
        let attr = self.0.attr(old.ino)?;
        let other = old.generation.0 != 0 && attr.generation != old.generation;
        // A new file is told as that, and its earlier name as removed, in case that the clock was
        // set back. A directory that is not new after all has contents that are not told.
        let is_file = attr.kind != FileKind::Directory;
        if other || is_file && since.is_after(stamp_of(attr.btime)) {
            return Ok(None);
        }
        let (ino, generation) = (old.ino, attr.generation);
        let Some(Names::Few(parents)) = self.names_of(ino, generation)? else { return Ok(None) };
        let [parent] = &parents[..] else { return Ok(None) };
        let Some(name) = dirs.name(self, parent.dir, &parent.name)? else { return Ok(None) };
        if (parent.dir, &parent.name) == (old.dir, &old.name) {
            return Ok(None);
        }
        let (kind, file, names) = (ChangeKind::Renamed, Some(attr.kind), vec![name]);
        let from = match self.0.attr(old.dir) {
            Ok(dir) if dir.generation == old.dir_generation && dir.nlink > 0 => {
                dirs.name(self, old.dir, &old.name)?
            }
            Err(e) if !e.is(Code::Stale) => return Err(e),
            _ => None,
        };
        Ok(Some(Change { kind, ino, generation, file, names, from, more: false }))
    }

    /// Tells those of a range of removed names that are not there now, or are those of others.
    /// Returns also the end of the names that were looked at.
    pub(super) fn tell_removed(
        self,
        dirs: &mut Dirs,
        removed: &Removed,
        range: Range<usize>,
    ) -> Result<(Vec<Change>, usize)> {
        let (mut told, mut seen, mut bytes) = (Vec::new(), HashSet::new(), 0);
        for at in range.clone() {
            if bytes >= BYTES_MAX {
                return Ok((told, at));
            }
            let old = &removed.names[at];
            let key = (old.dir, old.name.clone());
            // The first time tells whose it was at the mark.
            if removed.seen.contains(&key) || !seen.insert(key) {
                continue;
            }
            // Told with the new name.
            if removed.renamed.get(&old.ino) == Some(&at) {
                continue;
            }
            match self.is_gone(old) {
                Err(e) if e.is(Code::Stale) => {}
                Ok(false) => {}
                Err(e) => return Err(e),
                Ok(true) => {
                    let change = self.removed_change(dirs, old)?;
                    bytes += change.as_ref().map_or(0, bytes_of_change);
                    told.extend(change);
                }
            }
        }
        Ok((told, range.end))
    }

    fn removed_change(self, dirs: &mut Dirs, old: &RemovedName) -> Result<Option<Change>> {
        let name = dirs.name(self, old.dir, &old.name)?;
        Ok(name.map(|name| Change {
            kind: ChangeKind::Removed,
            ino: old.ino,
            generation: old.generation,
            file: None,
            names: vec![name],
            from: None,
            more: false,
        }))
    }

    /// Returns whether the inode does not have the name any more. `ESTALE` if the directory is
    /// gone, with all its names.
    fn is_gone(self, old: &RemovedName) -> Result<bool> {
        let now = self.child_now((old.dir, old.dir_generation), &old.name)?;
        match now {
            None => Ok(true),
            Some(now) if now == old.ino => match self.0.attr(now) {
                Ok(attr) => Ok(attr.generation != old.generation),
                Err(e) if e.is(Code::Stale) => Ok(true),
                Err(e) => Err(e),
            },
            Some(_) => Ok(true),
        }
    }

    /// Tells the first of the changed inodes, as many as fit in a batch.
    pub(super) fn tell_found(
        self,
        dirs: &mut Dirs,
        removed: &Removed,
        found: &VecDeque<Found>,
    ) -> Result<Told> {
        let mut told = Told::default();
        for one in found {
            if told.is_full() {
                break;
            }
            if !removed.renamed.contains_key(&one.ino) {
                match self.tell_inode(dirs, one, &mut told) {
                    // Removed since.
                    Err(e) if e.is(Code::Stale) => {}
                    done => done?,
                }
            }
            if told.cookie.is_some() {
                break;
            }
            told.inodes += 1;
        }
        Ok(told)
    }

    fn tell_inode(self, dirs: &mut Dirs, found: &Found, told: &mut Told) -> Result<()> {
        let mut names = Vec::new();
        if found.ino == dirs.top {
            let (dir, name) = (found.ino, b".".to_vec());
            names.push(ChangedName { dir, dir_path: [].into(), name });
        } else {
            match self.names_of(found.ino, found.generation)? {
                None => return Ok(()),
                Some(Names::Few(parents)) => {
                    for parent in parents {
                        names.extend(dirs.name(self, parent.dir, &parent.name)?);
                    }
                }
                Some(Names::Many) => self.tell_links(dirs, found, &mut names, told)?,
            }
        }
        if names.is_empty() && found.cookie == 0 && told.cookie.is_none() {
            return Ok(());
        }
        told.bytes += names.iter().map(bytes_of).sum::<usize>();
        let kind = if found.created { ChangeKind::Created } else { ChangeKind::Changed };
        told.changes.push(Change {
            kind,
            ino: found.ino,
            generation: found.generation,
            file: Some(found.kind),
            names,
            from: None,
            more: told.cookie.is_some(),
        });
        Ok(())
    }

    /// Adds the names of an inode with several links, as many as fit.
    fn tell_links(
        self,
        dirs: &mut Dirs,
        found: &Found,
        names: &mut Vec<ChangedName>,
        told: &mut Told,
    ) -> Result<()> {
        let (mut cookie, mut bytes) = (found.cookie, told.bytes);
        loop {
            let links = self.paths().parents_from(found.ino, cookie, LINKS)?;
            for (at, link) in &links {
                if bytes >= BYTES_MAX {
                    told.cookie = Some(*at);
                    return Ok(());
                }
                if let Some(name) = dirs.name(self, link.dir, &link.name)? {
                    bytes += bytes_of(&name);
                    names.push(name);
                }
            }
            match links.last() {
                Some((at, _)) if links.len() == LINKS => cookie = at + 1,
                _ => return Ok(()),
            }
        }
    }

    /// Returns the names of an inode of this generation; `None` if it has none.
    fn names_of(self, ino: Ino, generation: Generation) -> Result<Option<Names>> {
        self.0.reading_first(|| {
            let inode = self.0.inode(ino)?;
            let _section = Section::begin();
            let slot = inode.read();
            let attr = attr_of(ino, &slot.inode)?;
            if attr.generation != generation || attr.nlink == 0 {
                return Ok(None);
            }
            match slot.inode.core.is_dir() || attr.nlink == 1 {
                true => Ok(Some(Names::Few(self.paths().parents_in(ino, &slot.inode)?))),
                false => Ok(Some(Names::Many)),
            }
        })
    }
}

/// Approximate bytes of a name in memory.
fn bytes_of(name: &ChangedName) -> usize {
    64 + name.name.len() + name.dir_path.len()
}

fn bytes_of_change(change: &Change) -> usize {
    change.names.iter().chain(&change.from).map(bytes_of).sum()
}

fn stamp_of(time: crate::types::Time) -> shoal_format::inode::Stamp {
    shoal_format::inode::Stamp { sec: time.sec, nsec: time.nsec }
}
