//! Several changes as one.

use crate::error::{Doing, Result};
use crate::metadata::times;
use crate::raw::{BatchOp, RenameFlags, SetAttr};
use crate::{AsPath, Dir};
use std::borrow::Cow;
use std::ops::Range;
use std::time::SystemTime;

/// Several changes of names, in one directory and below, as one transaction: other threads and
/// mounts see all of them or none, and so does a recovery after a crash. Each change sees those
/// before it. See [`Dir::batch`].
///
/// As any change, it is durable after a sync of the directory or the volume.
///
/// A batch is limited: its record in the journal takes at most some 480 KB, 156 bytes and the name
/// for each new file, and contents of up to some 300 bytes, which are in the record too. The error
/// of a larger one (`ArgumentListTooLong`) says how much it takes. Contents are written before the
/// changes are made, so readers do not wait for that.
#[derive(Debug, Default)]
pub struct Batch<'a> {
    changes: Vec<Step<'a>>,
    paths: Vec<u8>,
}

/// A change; its paths are ranges of [`Batch::paths`].
#[derive(Debug)]
enum Step<'a> {
    File { path: Range<usize>, contents: Cow<'a, [u8]>, replace: bool },
    Dir(Range<usize>),
    Symlink { path: Range<usize>, target: Range<usize> },
    Link { from: Range<usize>, to: Range<usize> },
    Rename { from: Range<usize>, to: Range<usize>, flags: RenameFlags },
    Remove(Range<usize>),
    RemoveDir(Range<usize>),
    SetAttr { path: Range<usize>, set: SetAttr },
    SetXattr { path: Range<usize>, name: Range<usize>, value: Option<Cow<'a, [u8]>> },
}

impl Step<'_> {
    fn op<'s>(&'s self, paths: &'s [u8]) -> BatchOp<'s> {
        let at = |range: &Range<usize>| &paths[range.clone()];
        match self {
            Step::File { path, contents, replace } => {
                let (path, replace) = (at(path), *replace);
                BatchOp::File { path, mode: 0o666, contents, replace }
            }
            Step::Dir(path) => BatchOp::Dir { path: at(path), mode: 0o777 },
            Step::Symlink { path, target } => {
                BatchOp::Symlink { path: at(path), target: at(target) }
            }
            Step::Link { from, to } => BatchOp::Link { from: at(from), to: at(to) },
            Step::Rename { from, to, flags } => {
                BatchOp::Rename { from: at(from), to: at(to), flags: *flags }
            }
            Step::Remove(path) => BatchOp::Remove { path: at(path) },
            Step::RemoveDir(path) => BatchOp::RemoveDir { path: at(path) },
            Step::SetAttr { path, set } => BatchOp::SetAttr { path: at(path), set: *set },
            Step::SetXattr { path, name, value } => {
                BatchOp::SetXattr { path: at(path), name: at(name), value: value.as_deref() }
            }
        }
    }
}

/// Contents that a [`Batch`] writes: bytes or text, borrowed or owned.
pub trait Contents<'a> {
    /// The bytes.
    fn into_bytes(self) -> Cow<'a, [u8]>;
}

macro_rules! contents {
    ($($what:ty => |$it:ident| $bytes:expr;)*) => {$(
        impl<'a> Contents<'a> for $what {
            #[inline]
            fn into_bytes(self) -> Cow<'a, [u8]> {
                let $it = self;
                $bytes
            }
        }
    )*};
}

contents! {
    &'a [u8] => |it| Cow::Borrowed(it);
    Vec<u8> => |it| Cow::Owned(it);
    &'a Vec<u8> => |it| Cow::Borrowed(it);
    Box<[u8]> => |it| Cow::Owned(it.into_vec());
    Cow<'a, [u8]> => |it| it;
    &'a str => |it| Cow::Borrowed(it.as_bytes());
    String => |it| Cow::Owned(it.into_bytes());
    &'a String => |it| Cow::Borrowed(it.as_bytes());
}

impl<'a, const N: usize> Contents<'a> for &'a [u8; N] {
    #[inline]
    fn into_bytes(self) -> Cow<'a, [u8]> {
        Cow::Borrowed(self)
    }
}

impl<'a, const N: usize> Contents<'a> for [u8; N] {
    #[inline]
    fn into_bytes(self) -> Cow<'a, [u8]> {
        Cow::Owned(self.to_vec())
    }
}

impl Dir {
    /// Makes several changes as one: all or none of them, for readers and after a crash. See
    /// [`Batch`].
    ///
    /// Errors of system calls may be returned with `?` too:
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let volume = shoal::Volume::options().in_memory()?;
    /// # let dir = volume.root(shoal::Credentials::root());
    /// dir.batch(|b| {
    ///     b.write("copy", std::fs::read("/etc/hostname")?)?;
    ///     b.write("note", format!("copied by {}", std::process::id()))
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors The error that `changes` returns, or that of the first change that fails, which the
    /// message names. Nothing has been changed then.
    pub fn batch<'a>(&self, changes: impl FnOnce(&mut Batch<'a>) -> Result<()>) -> Result<()> {
        let mut batch = Batch::new();
        changes(&mut batch)?;
        self.commit(&batch)
    }

    /// Makes the changes of a batch as one, in this directory and below.
    ///
    /// ```
    /// # use shoal::{Batch, Credentials, Volume};
    /// # fn main() -> shoal::Result<()> {
    /// # let volume = Volume::options().size(64 << 20).in_memory()?;
    /// # let root = volume.root(Credentials::root());
    /// let mut batch = Batch::new();
    /// for n in 0..10 {
    ///     batch.write(format!("{n}"), format!("file {n}"))?;
    /// }
    /// root.commit(&batch)?;
    /// assert_eq!(root.read("7")?, b"file 7");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// That of the first change that fails. Nothing has been changed then.
    pub fn commit(&self, batch: &Batch<'_>) -> Result<()> {
        let ops: Vec<BatchOp<'_>> =
            batch.changes.iter().map(|change| change.op(&batch.paths)).collect();
        self.calls().batch(self.who(), self.node(), &ops).done("batch")
    }
}

impl<'a> Batch<'a> {
    /// A batch without changes, for [`Dir::commit`].
    pub fn new() -> Batch<'a> {
        Batch::default()
    }

    fn path(&mut self, path: &impl AsPath) -> Range<usize> {
        let start = self.paths.len();
        self.paths.extend_from_slice(path.as_path());
        start..self.paths.len()
    }

    fn push(&mut self, change: Step<'a>) -> Result<()> {
        self.changes.push(change);
        Ok(())
    }

    /// Writes a whole file: creates it, or replaces the one of that name by a new one, which keeps
    /// its permission bits. Other names and open handles of the old file keep the old contents.
    ///
    /// A symlink or special file of that name is itself replaced, as by [`Batch::rename`]; in
    /// contrast, [`Dir::write`] writes to the file that a symlink leads to. A directory is an
    /// error.
    ///
    /// # Errors
    /// None here, as of all methods: the batch fails.
    pub fn write(&mut self, path: impl AsPath, contents: impl Contents<'a>) -> Result<()> {
        let path = self.path(&path);
        self.push(Step::File { path, contents: contents.into_bytes(), replace: true })
    }

    /// Creates a file with these contents, which must not exist.
    ///
    /// # Errors
    /// None here: the batch fails.
    pub fn create_new(&mut self, path: impl AsPath, contents: impl Contents<'a>) -> Result<()> {
        let path = self.path(&path);
        self.push(Step::File { path, contents: contents.into_bytes(), replace: false })
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// None here: the batch fails.
    pub fn create_dir(&mut self, path: impl AsPath) -> Result<()> {
        let path = self.path(&path);
        self.push(Step::Dir(path))
    }

    /// Makes a symbolic link at `path`.
    ///
    /// # Errors
    /// None here: the batch fails.
    pub fn symlink(&mut self, target: impl AsPath, path: impl AsPath) -> Result<()> {
        let (target, path) = (self.path(&target), self.path(&path));
        self.push(Step::Symlink { path, target })
    }

    /// Gives a file one more name.
    ///
    /// # Errors
    /// None here: the batch fails.
    pub fn hard_link(&mut self, from: impl AsPath, to: impl AsPath) -> Result<()> {
        let (from, to) = (self.path(&from), self.path(&to));
        self.push(Step::Link { from, to })
    }

    /// Renames, and replaces what is there, as [`Dir::rename`].
    ///
    /// # Errors
    /// None here: the batch fails.
    pub fn rename(&mut self, from: impl AsPath, to: impl AsPath) -> Result<()> {
        self.rename_with(from, to, RenameFlags::default())
    }

    /// Renames with flags, as [`Dir::rename_with`].
    ///
    /// # Errors
    /// None here: the batch fails.
    pub fn rename_with(
        &mut self,
        from: impl AsPath,
        to: impl AsPath,
        flags: RenameFlags,
    ) -> Result<()> {
        let (from, to) = (self.path(&from), self.path(&to));
        self.push(Step::Rename { from, to, flags })
    }

    /// Removes a name of a file.
    ///
    /// # Errors
    /// None here: the batch fails.
    pub fn remove(&mut self, path: impl AsPath) -> Result<()> {
        let path = self.path(&path);
        self.push(Step::Remove(path))
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// None here: the batch fails.
    pub fn remove_dir(&mut self, path: impl AsPath) -> Result<()> {
        let path = self.path(&path);
        self.push(Step::RemoveDir(path))
    }

    /// Sets the permission bits of a file or directory.
    ///
    /// # Errors
    /// None here: the batch fails.
    pub fn set_permissions(&mut self, path: impl AsPath, mode: u32) -> Result<()> {
        let (path, set) = (self.path(&path), SetAttr { mode: Some(mode), ..SetAttr::default() });
        self.push(Step::SetAttr { path, set })
    }

    /// Sets owner and group; `None` leaves it as it is.
    ///
    /// # Errors
    /// None here: the batch fails.
    pub fn set_owner(
        &mut self,
        path: impl AsPath,
        uid: Option<u32>,
        gid: Option<u32>,
    ) -> Result<()> {
        let (path, set) = (self.path(&path), SetAttr { uid, gid, ..SetAttr::default() });
        self.push(Step::SetAttr { path, set })
    }

    /// Sets the times of the last access and of the last change, as [`Dir::set_times`].
    ///
    /// # Errors
    /// None here: the batch fails.
    pub fn set_times(
        &mut self,
        path: impl AsPath,
        accessed: SystemTime,
        modified: SystemTime,
    ) -> Result<()> {
        let (path, set) = (self.path(&path), times(accessed, modified));
        self.push(Step::SetAttr { path, set })
    }

    /// Sets an extended attribute, of at most 64 KiB. Access control lists are refused.
    ///
    /// A file or directory whose attributes and names do not fit in its inode takes one change of
    /// them in a batch.
    ///
    /// # Errors
    /// None here: the batch fails.
    pub fn set_xattr(
        &mut self,
        path: impl AsPath,
        name: impl AsPath,
        value: impl Contents<'a>,
    ) -> Result<()> {
        let (path, name) = (self.path(&path), self.path(&name));
        self.push(Step::SetXattr { path, name, value: Some(value.into_bytes()) })
    }

    /// Removes an extended attribute, which must exist.
    ///
    /// # Errors
    /// None here: the batch fails.
    pub fn remove_xattr(&mut self, path: impl AsPath, name: impl AsPath) -> Result<()> {
        let (path, name) = (self.path(&path), self.path(&name));
        self.push(Step::SetXattr { path, name, value: None })
    }

    /// Number of changes so far.
    pub fn len(&self) -> usize {
        self.changes.len()
    }

    /// Returns whether there are no changes yet.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }
}
