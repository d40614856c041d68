//! A file that an expression is evaluated for, and what is known beside it.

use std::borrow::Cow;

use shoal::raw::{Attr, Error, FileKind, Ino, Time};

use crate::accounts::Accounts;
use crate::in_mount::InMount;
use crate::location::split_last;
use crate::session::Found;
use crate::tree::Tree;

/// A file that the walk has come to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct File<'a> {
    /// Path, as it is printed.
    pub path: &'a [u8],
    /// Path of the place where the walk began, as it was typed.
    pub start: &'a [u8],
    /// Directories between them: 0 for the place itself.
    pub depth: usize,
    /// Inode number.
    pub ino: Ino,
    /// Type.
    pub kind: FileKind,
    /// Attributes, if the walk reads them.
    pub attr: Option<&'a Attr>,
    /// The directory that the walk has found it in; `None` for the place itself.
    pub dir: Option<Ino>,
}

/// Input of the tests and actions beside the file.
pub(crate) struct World<'a> {
    /// The tree that is walked.
    pub tree: &'a Tree,
    /// Names of users and groups.
    pub accounts: &'a Accounts,
    /// The time when the command began.
    pub now: Time,
}

impl<'a> File<'a> {
    /// Returns a file that a walk has found at `path`.
    pub(crate) fn of(
        found: &'a Found,
        path: &'a [u8],
        start: &'a [u8],
        depth: usize,
        dir: Option<Ino>,
    ) -> File<'a> {
        let Found { ino, kind, ref attr, .. } = *found;
        File { path, start, depth, ino, kind, attr: attr.as_ref(), dir }
    }

    /// Returns the last component of its path; `/` for the top directory.
    pub(crate) fn name(&self) -> &[u8] {
        match split_last(self.path).name {
            b"" => b"/",
            name => name,
        }
    }

    /// Returns the path below the place where the walk began; empty for the place itself.
    pub(crate) fn below(&self) -> &[u8] {
        let rest = &self.path[self.start.len().min(self.path.len())..];
        rest.strip_prefix(b"/").unwrap_or(rest)
    }

    /// Returns the path before the last slash that something follows.
    pub(crate) fn parent(&self) -> &[u8] {
        let end = self.path.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
        match self.path[..end].iter().rposition(|byte| *byte == b'/') {
            Some(slash) => &self.path[..slash],
            None if end == 0 => b"",
            // As find(1) has it.
            None if end < self.path.len() => &self.path[..end],
            None => b".",
        }
    }
}

impl World<'_> {
    /// Returns the attributes of a file, read now if the walk does not.
    pub(crate) fn attributes<'f>(&self, file: &File<'f>) -> Result<Cow<'f, Attr>, Error> {
        match file.attr {
            Some(attr) => Ok(Cow::Borrowed(attr)),
            None => match self.tree {
                Tree::Volume(start) => start.look(file.path).map(Cow::Owned),
                Tree::Mount(mount) => mount.attributes(file.path).map(Cow::Owned),
            },
        }
    }

    /// Returns the target of a symlink, `None` for every other type.
    pub(crate) fn target(&self, file: &File<'_>) -> Result<Option<Vec<u8>>, Error> {
        match file.kind {
            FileKind::Symlink => match self.tree {
                Tree::Volume(start) => start.session.read_link(&start.real(file.path)).map(Some),
                Tree::Mount(_) => InMount::target(file.path).map(Some),
            },
            _ => Ok(None),
        }
    }
}
