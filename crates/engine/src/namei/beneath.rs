//! Walking a path that must stay beneath a directory.
//!
//! A path may come from an untrusted source: an archive, a request, another user's symlink. A
//! program that has a directory can look up names in it that never lead out:
//!
//! * an absolute path, or a symlink to one, is refused;
//! * `..` returns to the directory from which the walk came, and is refused at the start. The
//!   parent stored in the directory is never used, so a concurrent rename cannot lead out either.
//!
//! These are the rules of `openat2` with `RESOLVE_BENEATH`, and of capability-based interfaces such
//! as cap-std's.

use crate::namei::Namespace;
use crate::types::{Caller, Entry, FileKind};
use shoal_base::limits::{PATH_MAX, SYMLOOP_MAX};
use shoal_base::timing::Call;
use shoal_base::{Code, Error, Ino, Result};
use std::collections::VecDeque;

/// An inode on a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Node {
    pub ino: Ino,
    pub kind: FileKind,
}

/// Source of names for a walk.
pub(crate) trait Lookup {
    /// Looks up `name` in `dir`; `None` if there is no such name.
    fn find(&mut self, dir: Ino, name: &[u8]) -> Result<Option<Node>>;
    /// Returns the target of a symlink.
    fn target(&mut self, link: Ino) -> Result<Vec<u8>>;
}

#[cold]
pub(crate) fn leads_out(path: &[u8]) -> Error {
    let path = path.escape_ascii();
    let message = format!("path \"{path}\" leads out of the directory that it is relative to");
    Error::refused(Code::CrossRoot, message)
}

/// The end of a walk.
enum End {
    Node(Node),
    /// No such name in the last directory; the path must be one of a directory if `is_dir`.
    Free {
        dir: Ino,
        name: Vec<u8>,
        is_dir: bool,
    },
}

/// Walks `path` from `start`. Always follows symlinks in the middle of the path; at the end only if
/// `follow`. The empty path, and `.`, are `start` itself.
///
/// # Errors
/// `EXDEV` for a path that leads out, `ENOENT`, `ENOTDIR`, `ELOOP`, `ENAMETOOLONG`, and those of
/// `names`.
pub(crate) fn walk(names: &mut dyn Lookup, start: Ino, path: &[u8], follow: bool) -> Result<Node> {
    match walk_to_end(names, start, path, follow)? {
        End::Node(node) => Ok(node),
        End::Free { .. } => Err(Error::Code(Code::NotFound)),
    }
}

fn walk_to_end(names: &mut dyn Lookup, start: Ino, path: &[u8], follow: bool) -> Result<End> {
    if path.len() > PATH_MAX {
        return Err(Error::Code(Code::NameTooLong));
    }
    let mut above = vec![start];
    let mut rest = VecDeque::new();
    prepend(&mut rest, path, path)?;
    let (mut links, mut must_be_dir) = (0, wants_dir(path));
    while let Some(part) = rest.pop_front() {
        let dir = *above.last().unwrap_or(&start);
        let last = rest.is_empty();
        if part == b".." {
            above.pop();
            if above.is_empty() {
                return Err(leads_out(path));
            }
            continue;
        }
        let node = names.find(dir, &part)?;
        match node {
            Some(Node { ino, kind: FileKind::Symlink }) if !last || follow || must_be_dir => {
                links += 1;
                if links > SYMLOOP_MAX {
                    return Err(Error::Code(Code::Loop));
                }
                let target = names.target(ino)?;
                must_be_dir |= last && wants_dir(&target);
                prepend(&mut rest, &target, path)?;
            }
            Some(Node { ino, kind: FileKind::Directory }) if !last => above.push(ino),
            Some(Node { kind, .. }) if last && must_be_dir && kind != FileKind::Directory => {
                return Err(Error::Code(Code::NotDirectory));
            }
            Some(node) if last => return Ok(End::Node(node)),
            Some(_) => return Err(Error::Code(Code::NotDirectory)),
            None if last => return Ok(End::Free { dir, name: part, is_dir: must_be_dir }),
            None => return Err(Error::Code(Code::NotFound)),
        }
    }
    Ok(End::Node(Node { ino: above.pop().unwrap_or(start), kind: FileKind::Directory }))
}

/// Returns whether a path can only be one of a directory.
fn wants_dir(path: &[u8]) -> bool {
    path.ends_with(b"/") || path.ends_with(b"/.")
}

/// Inserts the components of `path` before the remaining ones of the path `whole`.
fn prepend(rest: &mut VecDeque<Vec<u8>>, path: &[u8], whole: &[u8]) -> Result<()> {
    if path.starts_with(b"/") {
        return Err(leads_out(whole));
    }
    let parts = path.split(|byte| *byte == b'/').filter(|part| !part.is_empty() && *part != b".");
    for part in parts.rev() {
        rest.push_front(part.to_vec());
    }
    Ok(())
}

/// The names of a volume with the permissions of a caller.
pub(crate) struct Visible<'v, 'w>(pub Namespace<'v>, pub &'w Caller);

impl Lookup for Visible<'_, '_> {
    fn find(&mut self, dir: Ino, name: &[u8]) -> Result<Option<Node>> {
        match self.0.lookup(self.1, dir, name) {
            Ok(entry) => Ok(Some(Node { ino: entry.ino, kind: entry.kind })),
            Err(Error::Code(Code::NotFound)) => Ok(None),
            Err(e) => Err(e),
        }
    }
    fn target(&mut self, link: Ino) -> Result<Vec<u8>> {
        self.0.readlink(link)
    }
}

impl Namespace<'_> {
    /// Walks `path` from `start` as [`Namespace::resolve`] does, but never out of `start`, by the
    /// rules of this module. The empty path, and `.`, are `start` itself.
    ///
    /// # Errors
    /// `EXDEV` for a path that leads out; those of [`Namespace::resolve`].
    pub fn resolve_beneath(
        self,
        who: &Caller,
        start: Ino,
        path: &[u8],
        follow: bool,
    ) -> Result<Entry> {
        self.0.measured(Call::Resolve, || {
            self.0.attr(walk(&mut Visible(self, who), start, path, follow)?.ino)
        })
    }

    /// Returns the directory and the name where a file must be created so that `path` leads to it:
    /// those at the end of `path`, or of the dangling symlinks that it ends in.
    ///
    /// # Errors
    /// `EEXIST` if there is a file already, `EISDIR` for a path that ends in a slash; those of
    /// [`Namespace::resolve_beneath`].
    pub fn free_beneath(self, who: &Caller, start: Ino, path: &[u8]) -> Result<(Ino, Vec<u8>)> {
        let found = || walk_to_end(&mut Visible(self, who), start, path, true);
        match self.0.measured(Call::Resolve, found)? {
            End::Node(_) => Err(Error::Code(Code::Exists)),
            End::Free { is_dir: true, .. } => Err(Error::Code(Code::IsDirectory)),
            End::Free { dir, name, is_dir: false } => Ok((dir, name)),
        }
    }

    /// Returns the directory and the name at the end of `path`, for a call that creates, removes or
    /// renames it. The last component is not looked up; it is empty if the path is.
    ///
    /// # Errors
    /// Those of [`Namespace::resolve_beneath`] for the directory.
    pub fn parent_beneath<'p>(
        self,
        who: &Caller,
        start: Ino,
        path: &'p [u8],
    ) -> Result<(Ino, &'p [u8])> {
        if path.starts_with(b"/") {
            return Err(leads_out(path));
        }
        let (dir, name) = split_last(path);
        if dir.is_empty() {
            return Ok((start, name));
        }
        let found = || walk(&mut Visible(self, who), start, dir, true);
        match self.0.measured(Call::Resolve, found)? {
            Node { ino, kind: FileKind::Directory } => Ok((ino, name)),
            _ => Err(Error::Code(Code::NotDirectory)),
        }
    }
}

/// Splits a path, without trailing slashes, at its last slash into its directory and the last name.
pub(crate) fn split_last(path: &[u8]) -> (&[u8], &[u8]) {
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |at| at + 1);
    let path = &path[..end];
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => path.split_at(at + 1),
        None => (b"", path),
    }
}
