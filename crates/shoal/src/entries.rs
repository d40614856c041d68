//! Listing a directory.

use crate::error::{Doing, Result};
use crate::path::to_path_buf;
use crate::raw::{self, Cookies, Fields, FileKind, Filter, Ino};
use crate::{Dir, Metadata};
use std::collections::VecDeque;
use std::ffi::OsStr;
use std::iter::FusedIterator;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Entries that are read at a time.
const BATCH: usize = 256;
/// Cookie of "..", after which the entries with names begin.
const DOTS: u64 = 2;

/// An entry of a directory.
#[derive(Clone)]
pub struct Entry {
    dir: Dir,
    name: Box<[u8]>,
    ino: Ino,
    kind: FileKind,
}

impl Entry {
    /// The name, without slashes.
    pub fn name(&self) -> &[u8] {
        &self.name
    }
    /// The name as the standard library has it.
    pub fn file_name(&self) -> &OsStr {
        OsStr::from_bytes(&self.name)
    }
    /// The name as a path.
    pub fn path(&self) -> PathBuf {
        to_path_buf(&self.name)
    }
    /// Inode number.
    pub fn ino(&self) -> Ino {
        self.ino
    }
    /// Type.
    pub fn kind(&self) -> FileKind {
        self.kind
    }
    /// Returns whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.kind == FileKind::Directory
    }
    /// Attributes, as they are now. A symlink is not followed.
    ///
    /// # Errors `ESTALE` when the file has been removed.
    pub fn metadata(&self) -> Result<Metadata> {
        let (calls, who) = (self.dir.calls(), self.dir.who());
        let attr = calls.entry(who, self.dir.node(), &self.name, self.ino);
        attr.map(Metadata).doing("look at", &self.name)
    }
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Entry({:?} \"{}\", inode {})", self.kind, self.name.escape_ascii(), self.ino)
    }
}

/// The entries of a directory, read in batches; see [`Dir::entries`].
#[derive(Debug)]
pub struct Entries {
    dir: Dir,
    cookie: u64,
    batch: VecDeque<Entry>,
    ended: bool,
}

impl Dir {
    /// The entries of this directory, without `.` and `..`, in no particular order. An entry that
    /// is added or removed during the listing may be missing; every other one is returned exactly
    /// once.
    ///
    /// # Errors
    /// `PermissionDenied`.
    pub fn entries(&self) -> Result<Entries> {
        let may = self.calls().access(self.who(), self.node(), b"", 4);
        self.done(may, "list directory")?;
        Ok(Entries::new(self.clone()))
    }
}

impl Entries {
    pub(crate) fn new(dir: Dir) -> Entries {
        Entries { dir, cookie: DOTS, batch: VecDeque::new(), ended: false }
    }

    fn fill(&mut self) -> Result<()> {
        let (dir, batch, cookie) = (&self.dir, &mut self.batch, &mut self.cookie);
        let cookies = Cookies::ALL.after(*cookie);
        let listing = raw::Listing { cookies, want: Fields::NONE, filter: Filter::new() };
        let (who, node) = (dir.who(), dir.node());
        let listed = dir.calls().list(who, node, b"", dir.0.ino, &listing, &mut |entry, _| {
            if batch.len() == BATCH {
                return false;
            }
            *cookie = entry.cookie;
            let (name, ino, kind) = (Box::from(entry.name), entry.ino, entry.kind);
            batch.push_back(Entry { dir: dir.clone(), name, ino, kind });
            true
        });
        self.ended = self.batch.len() < BATCH || listed.is_err();
        self.dir.done(listed, "list directory")
    }
}

impl Iterator for Entries {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Result<Entry>> {
        if self.batch.is_empty()
            && !self.ended
            && let Err(e) = self.fill()
        {
            return Some(Err(e));
        }
        self.batch.pop_front().map(Ok)
    }
}

impl FusedIterator for Entries {}
