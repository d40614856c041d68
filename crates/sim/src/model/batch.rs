//! Batches: several changes as one, or none of them. Each is what its single call would be, after
//! those before it.

use super::{Body, Model, Outcome};
use crate::op::Change;
use shoal::raw::{Caller, Code, FileKind, Ino, XattrFlags};
use shoal_base::limits::SYMLOOP_MAX;
use std::collections::VecDeque;

/// Numbers from here on are the model's own: of inodes whose numbers nobody has told it, because
/// they were made in a batch. No volume has as many inodes.
const UNKNOWN: u64 = 1 << 47;

const SEARCH: u32 = 1;
const WRITE: u32 = 2;

/// A change of a batch that fails, by its number, and how.
pub type Failed = (usize, Code);

/// Returns whether the number of an inode is the model's own.
pub fn is_unknown(ino: Ino) -> bool {
    ino.index() >= UNKNOWN
}

impl Model {
    /// Makes all changes, or none if one fails. `inos` are the numbers that the volume chose for
    /// what is made; a missing number is one that nobody knows.
    ///
    /// # Errors
    /// Number and code of the first change that fails. The inodes that those before it would have
    /// touched then count as touched, and must be what they were.
    pub fn batch(
        &mut self,
        who: &Caller,
        start: Ino,
        changes: &[Change],
        inos: &[Option<Ino>],
    ) -> Result<(), Failed> {
        let (mut after, first) = (self.clone(), self.first_unknown(start));
        let mut made = 0;
        for (number, change) in changes.iter().enumerate() {
            let ino = inos.get(made).copied().flatten().unwrap_or(Ino(first.0 + made as u64));
            made += usize::from(change.makes());
            if let Err(code) = after.make_change(who, start, change, ino) {
                self.untouch(&after);
                return Err((number, code));
            }
        }
        *self = after;
        Ok(())
    }

    /// Counts the inodes that `after` has touched as touched, but as unchanged.
    pub fn untouch(&mut self, after: &Model) {
        for (ino, _) in after.touched() {
            if self.node(ino).is_some() {
                self.touch(ino, Default::default());
            }
        }
    }

    /// Makes one change of a batch; what it makes gets this number. If it fails, nothing has
    /// changed.
    pub fn make_change(
        &mut self,
        who: &Caller,
        start: Ino,
        change: &Change,
        ino: Ino,
    ) -> Outcome<()> {
        let ino = Some(ino);
        match change {
            Change::File { path, mode, data, replace } => {
                let at = self.place(who, start, path, false)?;
                let made = match self.replaced(who, at, *replace)? {
                    Some(old) => self.replace(who, at, old, *mode, ino)?,
                    None => self.create(who, at, mode & 0o7777, ino)?,
                };
                self.write(made, 0, &data.bytes(), false)
            }
            Change::Dir { path, mode } => {
                let at = self.place(who, start, path, true)?;
                self.mkdir(who, at, *mode, ino).map(|_| ())
            }
            Change::Symlink { path, target } => {
                let at = self.place(who, start, path, false)?;
                self.symlink(who, at, target, ino).map(|_| ())
            }
            Change::Link { from, to } => {
                let (dir, name) = self.place(who, start, from, false)?;
                let file = match name {
                    b"." | b".." => self.permit(who, dir, SEARCH).map(|()| dir)?,
                    _ => self.lookup(who, dir, name)?,
                };
                let at = self.place(who, start, to, false)?;
                self.link(who, file, at)
            }
            Change::Rename { from, to, flags } => {
                let from = self.place(who, start, from, true)?;
                let to = self.place(who, start, to, true)?;
                if is_dots(from.1) || is_dots(to.1) {
                    return Err(Code::Busy);
                }
                self.rename(who, from, to, *flags, ino).map(|_| ())
            }
            Change::Remove { path } => {
                let (dir, name) = self.place(who, start, path, false)?;
                if is_dots(name) {
                    return self.permit(who, dir, SEARCH).and(Err(Code::IsDirectory));
                }
                self.unlink(who, dir, name)
            }
            Change::RemoveDir { path } => {
                let (dir, name) = self.place(who, start, path, true)?;
                match name {
                    b"." => Err(Code::Invalid),
                    b".." => Err(Code::NotEmpty),
                    _ => self.rmdir(who, dir, name),
                }
            }
            Change::SetAttr { path, set } => {
                self.target_of(who, start, path).and_then(|ino| self.setattr(who, ino, set))
            }
            Change::SetXattr { path, name, data } => {
                let ino = self.target_of(who, start, path)?;
                self.setxattr(who, ino, name, &data.bytes(), XattrFlags::default())
            }
            Change::RemoveXattr { path, name } => {
                let ino = self.target_of(who, start, path)?;
                self.removexattr(who, ino, name)
            }
        }
    }

    fn target_of(&self, who: &Caller, start: Ino, path: &[u8]) -> Outcome<Ino> {
        let ino = self.beneath(who, start, path, true)?;
        self.same_root(start, ino).map(|()| ino)
    }

    /// The number of the first inode that a batch makes, if the volume's is not known; the others
    /// follow in the order of its changes.
    pub fn first_unknown(&self, start: Ino) -> Ino {
        let first = Ino::new(start.root(), UNKNOWN);
        let last = Ino::new(start.root(), u64::MAX);
        let newest = self.nodes.range(first..=last).next_back();
        newest.map_or(first, |(ino, _)| Ino(ino.0 + 1))
    }

    /// The file, symlink or special file that a new file replaces.
    fn replaced(
        &self,
        who: &Caller,
        (dir, name): (Ino, &[u8]),
        replace: bool,
    ) -> Outcome<Option<Ino>> {
        if !replace {
            return Ok(None);
        }
        if is_dots(name) {
            return self.permit(who, dir, SEARCH).and(Err(Code::IsDirectory));
        }
        let old = match self.lookup(who, dir, name) {
            Err(Code::NotFound) => return Ok(None),
            old => old?,
        };
        match self.nodes[&old].kind {
            FileKind::Directory => Err(Code::IsDirectory),
            _ => Ok(Some(old)),
        }
    }

    /// The new file keeps the permission bits of a regular one, to which no umask applies.
    fn replace(
        &mut self,
        who: &Caller,
        at: (Ino, &[u8]),
        old: Ino,
        mode: u32,
        ino: Option<Ino>,
    ) -> Outcome<Ino> {
        if self.nodes[&old].kind != FileKind::Regular {
            self.unlink(who, at.0, at.1)?;
            return self.create(who, at, mode & 0o7777, ino);
        }
        self.permit(who, old, WRITE)?;
        let perm = self.nodes[&old].perm & 0o777;
        self.unlink(who, at.0, at.1)?;
        let who = Caller { umask: 0, ..who.clone() };
        self.create(&who, at, perm, ino)
    }

    fn same_root(&self, start: Ino, ino: Ino) -> Outcome<()> {
        if ino.root() == start.root() { Ok(()) } else { Err(Code::CrossRoot) }
    }

    /// Directory and last name of a path. Trailing slashes are for directories.
    fn place<'p>(
        &self,
        who: &Caller,
        start: Ino,
        path: &'p [u8],
        may_be_dir: bool,
    ) -> Outcome<(Ino, &'p [u8])> {
        if path.starts_with(b"/") {
            return Err(Code::CrossRoot);
        }
        if !may_be_dir && path.ends_with(b"/") {
            return Err(Code::NotDirectory);
        }
        let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
        let path = &path[..end];
        let name = path.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
        let dir = self.beneath(who, start, &path[..name], true)?;
        if dir != start {
            self.entries(dir)?;
        }
        self.same_root(start, dir)?;
        Ok((dir, &path[name..]))
    }

    /// The inode that a path leads to which must not lead out of `start`, by the rules of
    /// `openat2` with `RESOLVE_BENEATH`. The empty path is `start`.
    pub fn beneath(&self, who: &Caller, start: Ino, path: &[u8], follow: bool) -> Outcome<Ino> {
        let mut way = vec![start];
        let mut left = VecDeque::new();
        push_front(&mut left, path)?;
        let (mut links, mut must_be_dir) = (0, wants_dir(path));
        while let Some(name) = left.pop_front() {
            let dir = *way.last().expect("it is not left");
            if name == b".." {
                way.pop();
                if way.is_empty() {
                    return Err(Code::CrossRoot);
                }
                continue;
            }
            let (next, last) = (self.lookup(who, dir, &name)?, left.is_empty());
            match &self.nodes[&next].body {
                Body::Link(target) if !last || follow || must_be_dir => {
                    links += 1;
                    if links > SYMLOOP_MAX {
                        return Err(Code::Loop);
                    }
                    must_be_dir |= last && wants_dir(target);
                    push_front(&mut left, target)?;
                }
                Body::Dir(_) => way.push(next),
                _ if last && !must_be_dir => return Ok(next),
                _ => return Err(Code::NotDirectory),
            }
        }
        Ok(*way.last().expect("it is not left"))
    }
}

fn wants_dir(path: &[u8]) -> bool {
    path.ends_with(b"/") || path.ends_with(b"/.")
}

/// Inserts the names of a path before those that are left.
fn push_front(left: &mut VecDeque<Vec<u8>>, path: &[u8]) -> Outcome<()> {
    if path.starts_with(b"/") {
        return Err(Code::CrossRoot);
    }
    let names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty() && *name != b".");
    names.rev().for_each(|name| left.push_front(name.to_vec()));
    Ok(())
}

fn is_dots(name: &[u8]) -> bool {
    matches!(name, b"." | b"..")
}
