//! Files.

use crate::error::{Doing, Error, Result};
use crate::raw::{self, Attr, Caller, Code, Fallocate, Generation, Ino, Rights};
use crate::xattr::xattrs;
use crate::{AsPath, Dir, Handle, Metadata};
use shoal_session::{AT_END, Calls, How, Node, Opened};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How a file is opened; as [`std::fs::OpenOptions`].
#[derive(Clone, Copy, Debug)]
#[must_use = "options do nothing until `open`"]
pub struct FileOptions {
    read: bool,
    write: bool,
    append: bool,
    truncate: bool,
    create: bool,
    create_new: bool,
    mode: u32,
}

impl Default for FileOptions {
    fn default() -> FileOptions {
        FileOptions {
            read: false,
            write: false,
            append: false,
            truncate: false,
            create: false,
            create_new: false,
            mode: 0o666,
        }
    }
}

macro_rules! flags {
    ($($(#[doc = $doc:literal])* $name:ident)*) => {$(
        $(#[doc = $doc])*
        pub fn $name(mut self, $name: bool) -> Self {
            self.$name = $name;
            self
        }
    )*};
}

impl FileOptions {
    /// Options with nothing set: set at least one of read, write and append.
    pub fn new() -> FileOptions {
        FileOptions::default()
    }

    flags! {
        /// Opens for reading.
        read
        /// Opens for writing.
        write
        /// Opens for writing; every write goes to the present end of the file.
        append
        /// Truncates the file to 0 bytes. Needs write access.
        truncate
        /// Creates the file if it does not exist. Needs write or append access.
        create
        /// Creates the file, which must not exist. Needs write or append access.
        create_new
    }

    /// Sets the permission bits of a file that is created, before the umask; 0666 by default.
    pub fn mode(mut self, mode: u32) -> Self {
        self.mode = mode;
        self
    }

    /// Opens a file. A symlink at the end of the path is followed, also to create the file that it
    /// leads to, but not by [`FileOptions::create_new`].
    ///
    /// # Errors `InvalidInput` for options that contradict each other; `NotFound`, `AlreadyExists`,
    /// `IsADirectory`, also for reading; `ENXIO` for a special file; `PermissionDenied`,
    /// `StorageFull`.
    pub fn open(&self, dir: &Dir, path: impl AsPath) -> Result<File> {
        let path = path.as_path();
        let opened = dir.calls().open_file(dir.who(), dir.node(), path, self.how());
        let opened = opened.map(|opened| File::new(dir, &opened, self));
        opened.doing(if self.creates() { "create" } else { "open" }, path)
    }

    /// Opens the file that a handle names, with the credentials of a directory of its volume.
    ///
    /// # Errors
    /// `ESTALE` when the file has been removed, `IsADirectory`, `PermissionDenied`.
    pub fn open_by_handle(&self, dir: &Dir, handle: Handle) -> Result<File> {
        let opened = dir.calls().open_handle(dir.who(), dir.node(), handle.0, Some(self.how()));
        opened.map(|opened| File::new(dir, &opened, self)).done("open handle")
    }

    fn creates(&self) -> bool {
        self.create || self.create_new
    }
    fn writes(&self) -> bool {
        self.write || self.append
    }

    fn how(&self) -> How {
        let FileOptions { read, write, append, truncate, create, create_new, mode } = *self;
        How { read, write, append, truncate, create, create_new, mode }
    }
}

/// An open file. Reads and writes at a position of its own, like [`std::fs::File`]; threads that
/// share it may use [`File::read_at`] and [`File::write_at`] instead.
///
/// A file without a name lives on until the last [`File`] of it is dropped.
pub struct File {
    dir: Dir,
    node: Node,
    ino: Ino,
    generation: Generation,
    options: FileOptions,
    /// Opened with a token, whose rights are the only ones.
    by_token: bool,
    position: Mutex<u64>,
}

impl Drop for File {
    fn drop(&mut self) {
        // A connection that has ended has closed it.
        let _ = self.dir.calls().close(self.dir.who(), self.node);
    }
}

impl File {
    #[inline]
    fn new(dir: &Dir, opened: &Opened, options: &FileOptions) -> File {
        let Opened { node, attr: Attr { ino, generation, .. } } = *opened;
        let position = Mutex::default();
        let (dir, options) = (dir.clone(), *options);
        File { dir, node, ino, generation, options, by_token: false, position }
    }

    /// Takes the file that a token has opened, with exactly these rights.
    pub(crate) fn of_token(dir: &Dir, opened: &Opened, rights: Rights) -> File {
        let (read, write) = (rights.contains(Rights::READ), rights.contains(Rights::WRITE));
        let options = FileOptions::new().read(read).write(write);
        let mut file = File::new(dir, opened, &options);
        file.by_token = true;
        file
    }

    /// Otherwise the credentials decide.
    fn may_use_xattrs(&self, change: bool) -> raw::Result<()> {
        let right = if change { self.options.write } else { self.options.read };
        self.may(right || !self.by_token)
    }

    #[inline]
    fn target(&self) -> (&dyn Calls, &Caller, Node) {
        (self.dir.calls(), self.dir.who(), self.node)
    }

    fn may(&self, allowed: bool) -> raw::Result<()> {
        if allowed { Ok(()) } else { Err(Code::BadHandle.into()) }
    }

    fn position(&self) -> MutexGuard<'_, u64> {
        self.position.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads at `offset` up to the length of `buf`; fewer bytes only at the end of the file.
    ///
    /// # Errors
    /// `EBADF` for a file not opened for reading, `InvalidData` when the data is damaged.
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        let (calls, who, node) = self.target();
        let read = self.may(self.options.read);
        read.and_then(|()| calls.read(who, node, offset, buf)).done("read file")
    }

    /// Writes at `offset`, of a file opened for appending at its end. Returns how many bytes were
    /// written: fewer than all only when space ran out on the way.
    ///
    /// # Errors
    /// `EBADF` for a file not opened for writing, `StorageFull`, `FileTooLarge`.
    pub fn write_at(&self, bytes: &[u8], offset: u64) -> Result<usize> {
        let (_, written) = self.write_some(bytes, offset).done("write file")?;
        Ok(written)
    }

    /// Returns where was written, and how many bytes.
    #[inline]
    fn write_some(&self, bytes: &[u8], offset: u64) -> raw::Result<(u64, usize)> {
        self.may(self.options.writes())?;
        let at = match self.options.append {
            true => AT_END,
            false if offset == AT_END => return Err(Code::FileTooBig.into()),
            false => offset,
        };
        let (calls, who, node) = self.target();
        let (at, written) = calls.write(who, node, at, bytes)?;
        Ok((at, written as usize))
    }

    /// Writes all bytes at `offset`.
    ///
    /// # Errors
    /// Those of [`File::write_at`]; then a part of them may have been written.
    pub fn write_all_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        let mut written = 0;
        while written < bytes.len() {
            written += self.write_at(&bytes[written..], offset + written as u64)?;
        }
        Ok(())
    }

    /// Sets the size: truncates, or extends with a hole.
    ///
    /// # Errors
    /// `EBADF` for a file not opened for writing, `FileTooLarge`.
    pub fn set_len(&self, size: u64) -> Result<()> {
        let (calls, who, node) = self.target();
        let set = self.may(self.options.writes());
        set.and_then(|()| calls.set_size(who, node, size)).done("set the size of file")
    }

    /// Reserves space for a range, which reads as zeros where nothing has been written. Extends the
    /// size to its end.
    ///
    /// # Errors
    /// `StorageFull`, and those of [`File::set_len`].
    pub fn allocate(&self, offset: u64, len: u64) -> Result<()> {
        self.fallocate(Fallocate::Allocate { keep_size: false }, offset, len)
    }

    /// Makes a range a hole, and frees its space. The size stays.
    ///
    /// # Errors
    /// Those of [`File::set_len`].
    pub fn punch_hole(&self, offset: u64, len: u64) -> Result<()> {
        self.fallocate(Fallocate::PunchHole, offset, len)
    }

    fn fallocate(&self, mode: Fallocate, offset: u64, len: u64) -> Result<()> {
        let (calls, who, node) = self.target();
        let change = self.may(self.options.writes());
        change.and_then(|()| calls.allocate(who, node, mode, offset, len)).done("allocate in file")
    }

    /// Makes the file durable: contents, attributes, and its name if it is new. Everything that was
    /// done before, in this file or elsewhere, is durable too. Threads that call it at the same
    /// time share one flush.
    ///
    /// # Errors
    /// Those of the device; the volume is read-only then.
    pub fn sync_all(&self) -> Result<()> {
        let (calls, who, node) = self.target();
        calls.fsync(who, node, false).done("sync file")
    }

    /// Makes the contents durable. In Shoal the same as [`File::sync_all`].
    ///
    /// # Errors
    /// Those of [`File::sync_all`].
    pub fn sync_data(&self) -> Result<()> {
        let (calls, who, node) = self.target();
        calls.fsync(who, node, true).done("sync file")
    }

    /// Attributes.
    ///
    /// # Errors
    /// Those of the device.
    pub fn metadata(&self) -> Result<Metadata> {
        let (calls, who, node) = self.target();
        calls.attr(who, node).map(Metadata).done("look at file")
    }

    /// Inode number.
    pub fn ino(&self) -> Ino {
        self.ino
    }

    /// A handle of this file, which stays valid after renames and restarts.
    pub fn handle(&self) -> Handle {
        Handle(raw::Handle { ino: self.ino, generation: self.generation })
    }

    fn read_here(&self, buf: &mut [u8]) -> Result<usize> {
        let mut position = self.position();
        let read = self.read_at(buf, *position)?;
        *position += read as u64;
        Ok(read)
    }

    fn write_here(&self, bytes: &[u8]) -> Result<usize> {
        let mut position = self.position();
        let (at, written) = self.write_some(bytes, *position).done("write file")?;
        *position = at + written as u64;
        Ok(written)
    }

    fn seek_to(&self, to: SeekFrom) -> Result<u64> {
        let mut position = self.position();
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::Current(by) => position.checked_add_signed(by),
            SeekFrom::End(by) => self.metadata()?.len().checked_add_signed(by),
        };
        let invalid = || Error::new("seek in file", None, Code::Invalid.into());
        *position = at.ok_or_else(invalid)?;
        Ok(*position)
    }
}

impl Dir {
    /// Opens a file for reading.
    ///
    /// # Errors
    /// `NotFound`, `IsADirectory`, `PermissionDenied`.
    pub fn open(&self, path: impl AsPath) -> Result<File> {
        FileOptions::new().read(true).open(self, path)
    }

    /// Creates a file that must not exist, for reading and writing.
    ///
    /// # Errors
    /// `AlreadyExists`, `NotFound` when the directory does not exist, `PermissionDenied`,
    /// `StorageFull`.
    pub fn create_new(&self, path: impl AsPath) -> Result<File> {
        FileOptions::new().read(true).write(true).create_new(true).open(self, path)
    }

    /// Creates a file, or truncates the one that is there, for reading and writing.
    ///
    /// # Errors
    /// `IsADirectory`, and those of [`Dir::create_new`].
    pub fn create(&self, path: impl AsPath) -> Result<File> {
        FileOptions::new().read(true).write(true).create(true).truncate(true).open(self, path)
    }

    /// Reads all of a file.
    ///
    /// # Errors
    /// Those of [`Dir::open`], `OutOfMemory` for a file larger than the memory, `InvalidData` when
    /// its data is damaged.
    pub fn read(&self, path: impl AsPath) -> Result<Vec<u8>> {
        let path = path.as_path();
        let mut bytes = Vec::new();
        let read = self.calls().get(self.who(), self.node(), path, &mut bytes);
        read.map(|_| bytes).doing("read", path)
    }

    /// Writes a whole file: creates it, or replaces its contents. For a replacement that readers
    /// and crashes see whole, use [`Dir::batch`].
    ///
    /// # Errors
    /// Those of [`Dir::create`].
    pub fn write(&self, path: impl AsPath, contents: impl AsRef<[u8]>) -> Result<()> {
        let (path, contents) = (path.as_path(), contents.as_ref());
        let options = FileOptions::new().write(true).create(true).truncate(true);
        let put = self.calls().put(self.who(), self.node(), path, options.how(), contents);
        put.doing("write", path)
    }
}

xattrs!(File, "file");

/// For the file and for shared references to it, as the standard library has them.
macro_rules! io {
    ($($type:ty)*) => {$(
        impl Read for $type {
            fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
                Ok(self.read_here(buf)?)
            }
        }
        impl Write for $type {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                Ok(self.write_here(bytes)?)
            }
            /// Does nothing: there is no buffer. [`File::sync_all`] makes the file durable.
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        impl Seek for $type {
            fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
                Ok(self.seek_to(to)?)
            }
        }
    )*};
}

io!(File & File);

impl std::fmt::Debug for File {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "File(inode {})", self.ino)
    }
}
