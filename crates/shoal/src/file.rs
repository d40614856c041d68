//! Files.

use crate::error::{Doing, Error, Result};
use crate::held::unless_stale;
use crate::raw::{self, Attr, Caller, Code, Fallocate, FileKind, Generation, Ino, Rights, SetAttr};
use crate::xattr::xattrs;
use crate::{AsPath, Dir, Handle, Metadata};
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
        self.open_in(dir, path).doing(if self.creates() { "create" } else { "open" }, path)
    }

    /// Opens the file that a handle names, with the credentials of a directory of its volume.
    ///
    /// # Errors
    /// `ESTALE` when the file has been removed, `IsADirectory`, `PermissionDenied`.
    pub fn open_by_handle(&self, dir: &Dir, handle: Handle) -> Result<File> {
        let open = || {
            self.check()?;
            let attr = dir.raw().namespace().by_handle(handle.0)?;
            self.open_found(dir, &attr)
        };
        open().done("open handle")
    }

    fn creates(&self) -> bool {
        self.create || self.create_new
    }
    fn writes(&self) -> bool {
        self.write || self.append
    }

    fn check(&self) -> raw::Result<()> {
        let wants_write = self.creates() || self.truncate;
        match (self.read || self.writes()) && (self.writes() || !wants_write) {
            // A new file is empty.
            true if self.append && self.truncate && !self.create_new => Err(Code::Invalid.into()),
            true => Ok(()),
            false => Err(Code::Invalid.into()),
        }
    }

    pub(crate) fn open_in(&self, dir: &Dir, path: &[u8]) -> raw::Result<File> {
        self.check()?;
        if self.creates() && path.ends_with(b"/") {
            dir.place(path)?;
            return Err(Code::IsDirectory.into());
        }
        unless_stale(|| match self.create_new {
            true => self.make(dir, path),
            false => match dir.find(path, true) {
                Ok(attr) => self.open_found(dir, &attr),
                Err(e) if self.create && e.is(Code::NotFound) => match self.make(dir, path) {
                    Err(e) if e.is(Code::Exists) => self.make_target(dir, path),
                    made => made,
                },
                Err(e) => Err(e),
            },
        })
    }

    #[inline]
    fn make(&self, dir: &Dir, path: &[u8]) -> raw::Result<File> {
        let (above, name) = dir.place(path)?;
        let attr = dir.raw().namespace().create(&dir.0.who, above, name, self.mode)?;
        File::hold(dir, &attr, self)
    }

    /// Creates the file that a dangling symlink leads to.
    #[cold]
    fn make_target(&self, dir: &Dir, path: &[u8]) -> raw::Result<File> {
        let make = || {
            let (above, name) = dir.raw().namespace().free_beneath(&dir.0.who, dir.0.ino, path)?;
            dir.raw().namespace().create(&dir.0.who, above, &name, self.mode)
        };
        match make() {
            Ok(attr) => File::hold(dir, &attr, self),
            // Another call has made it since: it is to be found now.
            Err(e) if e.is(Code::Exists) => Err(Code::Stale.into()),
            Err(e) => Err(e),
        }
    }

    fn open_found(&self, dir: &Dir, attr: &Attr) -> raw::Result<File> {
        if attr.kind != FileKind::Regular {
            return Err(not_a_file(attr.kind));
        }
        let mask = if self.read { 4 } else { 0 } | if self.writes() { 2 } else { 0 };
        dir.raw().attributes().access(&dir.0.who, attr.ino, mask)?;
        let file = File::hold(dir, attr, self)?;
        // Before it was held, its number may have become another file's.
        if dir.raw().attributes().getattr(attr.ino)?.generation != attr.generation {
            return Err(Code::Stale.into());
        }
        if self.truncate {
            file.truncate(0)?;
        }
        Ok(file)
    }
}

/// An open file. Reads and writes at a position of its own, like [`std::fs::File`]; threads that
/// share it may use [`File::read_at`] and [`File::write_at`] instead.
///
/// A file without a name lives on until the last [`File`] of it is dropped.
pub struct File {
    dir: Dir,
    ino: Ino,
    generation: Generation,
    options: FileOptions,
    /// Opened with a token, whose rights are the only ones.
    by_token: bool,
    position: Mutex<u64>,
}

impl Drop for File {
    fn drop(&mut self) {
        self.dir.raw().references().release(self.ino, 1);
    }
}

impl File {
    #[inline]
    fn hold(dir: &Dir, attr: &Attr, options: &FileOptions) -> raw::Result<File> {
        let Attr { ino, generation, .. } = *attr;
        dir.raw().references().hold(ino, 1)?;
        let position = Mutex::default();
        let (dir, options) = (dir.clone(), *options);
        Ok(File { dir, ino, generation, options, by_token: false, position })
    }

    /// Opens the file of a token with exactly these rights.
    pub(crate) fn of_token(dir: &Dir, attr: &Attr, rights: Rights) -> raw::Result<File> {
        let (read, write) = (rights.contains(Rights::READ), rights.contains(Rights::WRITE));
        let options = FileOptions::new().read(read).write(write);
        let mut file = File::hold(dir, attr, &options)?;
        file.by_token = true;
        Ok(file)
    }

    /// Otherwise the credentials decide.
    fn may_use_xattrs(&self, change: bool) -> raw::Result<()> {
        let right = if change { self.options.write } else { self.options.read };
        self.may(right || !self.by_token)
    }

    fn target(&self) -> (&raw::Volume, &Caller, Ino) {
        (self.dir.raw(), &self.dir.0.who, self.ino)
    }

    fn may(&self, allowed: bool) -> raw::Result<()> {
        if allowed { Ok(()) } else { Err(Code::BadHandle.into()) }
    }

    fn truncate(&self, size: u64) -> raw::Result<()> {
        let (volume, who, ino) = self.target();
        let set = SetAttr { size: Some(size), by_handle: true, ..SetAttr::default() };
        volume.attributes().setattr(who, ino, &set).map(drop)
    }

    fn position(&self) -> MutexGuard<'_, u64> {
        self.position.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads at `offset` up to the length of `buf`; fewer bytes only at the end of the file.
    ///
    /// # Errors
    /// `EBADF` for a file not opened for reading, `InvalidData` when the data is damaged.
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        let (volume, _, ino) = self.target();
        self.may(self.options.read)
            .and_then(|()| volume.files().read(ino, offset, buf))
            .done("read file")
    }

    /// Writes at `offset`, of a file opened for appending at its end. Returns how many bytes were
    /// written: fewer than all only when space ran out on the way.
    ///
    /// # Errors
    /// `EBADF` for a file not opened for writing, `StorageFull`, `FileTooLarge`.
    pub fn write_at(&self, bytes: &[u8], offset: u64) -> Result<usize> {
        let (volume, who, ino) = self.target();
        let unprivileged = who.uid != 0;
        let write = || {
            self.may(self.options.writes())?;
            match self.options.append {
                true => volume.files().append(ino, bytes, unprivileged).map(|(_, written)| written),
                false => volume.files().write(ino, offset, bytes, unprivileged),
            }
        };
        write().done("write file")
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
        let set = self.may(self.options.writes()).and_then(|()| self.truncate(size));
        set.done("set the size of file")
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
        let (volume, _, ino) = self.target();
        let change = self.may(self.options.writes());
        change
            .and_then(|()| volume.files().fallocate(ino, mode, offset, len))
            .done("allocate in file")
    }

    /// Makes the file durable: contents, attributes, and its name if it is new. Everything that was
    /// done before, in this file or elsewhere, is durable too. Threads that call it at the same
    /// time share one flush.
    ///
    /// # Errors
    /// Those of the device; the volume is read-only then.
    pub fn sync_all(&self) -> Result<()> {
        self.dir.raw().files().fsync(self.ino, false).done("sync file")
    }

    /// Makes the contents durable. In Shoal the same as [`File::sync_all`].
    ///
    /// # Errors
    /// Those of [`File::sync_all`].
    pub fn sync_data(&self) -> Result<()> {
        self.dir.raw().files().fsync(self.ino, true).done("sync file")
    }

    /// Attributes.
    ///
    /// # Errors
    /// Those of the device.
    pub fn metadata(&self) -> Result<Metadata> {
        self.dir.raw().attributes().getattr(self.ino).map(Metadata).done("look at file")
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
        if self.options.append {
            let (volume, who, ino) = self.target();
            let appended = volume.files().append(ino, bytes, who.uid != 0);
            let (at, written) = appended.done("append to file")?;
            *position = at + written as u64;
            return Ok(written);
        }
        let written = self.write_at(bytes, *position)?;
        *position += written as u64;
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
        let read = || {
            // Held, so that its number stays its own when it is replaced or removed meanwhile.
            let file = FileOptions::new().read(true).open_in(self, path)?;
            let size = self.raw().attributes().getattr(file.ino())?.size;
            let mut bytes = Vec::new();
            // A sparse file may be larger than any memory.
            let room = usize::try_from(size).ok().map(|size| bytes.try_reserve_exact(size));
            room.and_then(Result::ok).ok_or(Code::NoMemory)?;
            bytes.resize(size as usize, 0);
            let len = self.raw().files().read(file.ino(), 0, &mut bytes)?;
            bytes.truncate(len);
            Ok(bytes)
        };
        read().doing("read", path)
    }

    /// Writes a whole file: creates it, or replaces its contents. For a replacement that readers
    /// and crashes see whole, use [`Dir::batch`].
    ///
    /// # Errors
    /// Those of [`Dir::create`].
    pub fn write(&self, path: impl AsPath, contents: impl AsRef<[u8]>) -> Result<()> {
        self.create(path)?.write_all_at(contents.as_ref(), 0)
    }
}

/// The error of a call that wants a regular file.
fn not_a_file(kind: FileKind) -> raw::Error {
    match kind {
        FileKind::Directory => Code::IsDirectory.into(),
        FileKind::Symlink => Code::Loop.into(),
        _ => Code::NoDevice.into(),
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
