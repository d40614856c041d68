//! Files.

use crate::error::{Doing, Error, Result};
use crate::metadata::times;
use crate::raw::{self, Attr, Caller, Code, Fallocate, Generation, Ino, Rights, Seek, SetAttr};
use crate::xattr::xattrs;
use crate::{AsPath, Dir, Handle, Metadata};
use shoal_session::{AT_END, Calls, How, Node, Opened};
use std::io::{self, Read, SeekFrom, Write};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::SystemTime;

/// How a file is opened; as [`std::fs::OpenOptions`].
#[derive(Clone, Copy, Debug)]
#[must_use = "options do nothing until `open`"]
pub struct FileOptions(How);

impl Default for FileOptions {
    fn default() -> FileOptions {
        FileOptions(How { mode: 0o666, ..How::default() })
    }
}

macro_rules! flags {
    ($($(#[doc = $doc:literal])* $name:ident)*) => {$(
        $(#[doc = $doc])*
        pub fn $name(mut self, $name: bool) -> Self {
            self.0.$name = $name;
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
        self.0.mode = mode;
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
        let opened = dir.calls().open_file(dir.who(), dir.node(), path, self.0);
        let opened = opened.map(|opened| File::new(dir, &opened, self, path));
        opened.doing(if self.creates() { "create" } else { "open" }, path)
    }

    /// Opens the file that a handle names, with the credentials of a directory of its volume.
    ///
    /// # Errors
    /// `ESTALE` when the file has been removed, `IsADirectory`, `PermissionDenied`.
    pub fn open_by_handle(&self, dir: &Dir, handle: Handle) -> Result<File> {
        let opened = dir.calls().open_handle(dir.who(), dir.node(), handle.0, Some(self.0));
        opened.map(|opened| File::new(dir, &opened, self, b"")).done("open handle")
    }

    fn creates(&self) -> bool {
        self.0.create || self.0.create_new
    }
    fn writes(&self) -> bool {
        self.0.write || self.0.append
    }
}

fn lock(position: &Mutex<u64>) -> MutexGuard<'_, u64> {
    position.lock().unwrap_or_else(PoisonError::into_inner)
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
    name: Name,
    /// Unless it is shared with clones.
    position: Mutex<u64>,
    clones: OnceLock<Arc<Shared>>,
}

/// The part of a file that its clones share: the last one closes it.
struct Shared {
    dir: Dir,
    node: Node,
    position: Mutex<u64>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        // A connection that has ended has closed it.
        let _ = self.dir.calls().close(self.dir.who(), self.node);
    }
}

impl Drop for File {
    fn drop(&mut self) {
        if self.clones.get().is_none() {
            // A connection that has ended has closed it.
            let _ = self.dir.calls().close(self.dir.who(), self.node);
        }
    }
}

/// The path by which a file was opened, for messages: if it fits, because an open allocates
/// nothing. Of a longer one it is the begin of the last component.
///
/// Bytes are kept in words, which an open makes in registers: bytes that are copied to memory, and
/// moved with the file at once, stall the processor for the time of a tenth of an open.
#[derive(Clone, Copy)]
struct Name {
    words: [u64; NAME_MAX / 8],
    len: u8,
    is_cut: bool,
}

/// Most bytes of a path that is kept.
const NAME_MAX: usize = 24;

impl Name {
    #[inline]
    fn of(path: &[u8]) -> Name {
        let is_cut = path.len() > NAME_MAX;
        let kept = if is_cut { begin_of_last(path) } else { path };
        let word = |at: usize| match kept.get(at..) {
            Some(&[a, b, c, d, e, f, g, h, ..]) => u64::from_le_bytes([a, b, c, d, e, f, g, h]),
            Some(rest) => rest.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)),
            None => 0,
        };
        Name { words: [word(0), word(8), word(16)], len: kept.len() as u8, is_cut }
    }

    /// `None` for a file that was opened without a path.
    #[cold]
    fn path(&self) -> Option<Vec<u8>> {
        let begin: &[u8] = if self.is_cut { b".../" } else { b"" };
        let bytes = self.words.iter().flat_map(|word| word.to_le_bytes()).take(self.len.into());
        (self.len > 0).then(|| begin.iter().copied().chain(bytes).collect())
    }
}

#[cold]
fn begin_of_last(path: &[u8]) -> &[u8] {
    let last = path.rsplit(|byte| *byte == b'/').find(|part| !part.is_empty());
    let last = last.unwrap_or_default();
    &last[..last.len().min(NAME_MAX)]
}

impl File {
    #[inline]
    fn new(dir: &Dir, opened: &Opened, options: &FileOptions, path: &[u8]) -> File {
        let Opened { node, attr: Attr { ino, generation, .. } } = *opened;
        let (position, clones) = (Mutex::default(), OnceLock::new());
        let (dir, options, name) = (dir.clone(), *options, Name::of(path));
        File { dir, node, ino, generation, options, by_token: false, name, position, clones }
    }

    /// Adds what was tried with this file to an error.
    #[inline]
    fn done<T>(&self, result: raw::Result<T>, what: &'static str) -> Result<T> {
        result.map_err(|e| self.error(what, e))
    }

    #[cold]
    fn error(&self, what: &'static str, why: raw::Error) -> Error {
        Error::new(what, self.name.path().as_deref(), why)
    }

    /// Returns the same open file once more: both share the position, as copies of a descriptor
    /// do. Threads that share one without it use [`Arc`]: `&File` reads and writes too.
    ///
    /// # Errors
    /// Those of [`File::metadata`].
    pub fn try_clone(&self) -> Result<File> {
        self.metadata()?;
        let shared = {
            let position = lock(&self.position);
            self.clones.get_or_init(|| {
                let (dir, node) = (self.dir.clone(), self.node);
                Arc::new(Shared { dir, node, position: Mutex::new(*position) })
            })
        };
        let clones = OnceLock::from(shared.clone());
        let File { node, ino, generation, options, by_token, name, .. } = *self;
        let (dir, position) = (self.dir.clone(), Mutex::default());
        Ok(File { dir, node, ino, generation, options, by_token, name, position, clones })
    }

    /// Takes the file that a token has opened, with exactly these rights.
    pub(crate) fn of_token(dir: &Dir, opened: &Opened, rights: Rights) -> File {
        let (read, write) = (rights.contains(Rights::READ), rights.contains(Rights::WRITE));
        let options = FileOptions::new().read(read).write(write);
        let mut file = File::new(dir, opened, &options, b"");
        file.by_token = true;
        file
    }

    /// Otherwise the credentials decide.
    fn may_use_xattrs(&self, change: bool) -> raw::Result<()> {
        let right = if change { self.options.0.write } else { self.options.0.read };
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
        if let Some(shared) = self.clones.get() {
            return lock(&shared.position);
        }
        let own = lock(&self.position);
        // The first clone may have been made while this waited.
        match self.clones.get() {
            None => own,
            Some(shared) => lock(&shared.position),
        }
    }

    /// Reads at `offset` up to the length of `buf`; fewer bytes only at the end of the file.
    ///
    /// # Errors
    /// `EBADF` for a file not opened for reading, `InvalidData` when the data is damaged.
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        let (calls, who, node) = self.target();
        let read = self.may(self.options.0.read);
        self.done(read.and_then(|()| calls.read(who, node, offset, buf)), "read file")
    }

    /// Reads at `offset` exactly as many bytes as `buf` holds.
    ///
    /// # Errors
    /// `UnexpectedEof` when the file ends before; those of [`File::read_at`]. Then a part of `buf`
    /// may have been filled.
    pub fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let mut done = 0;
        while done < buf.len() {
            match self.read_at(&mut buf[done..], offset + done as u64)? {
                0 => {
                    let error = io::ErrorKind::UnexpectedEof.into();
                    return Err(Error::system("read file", self.name.path().as_deref(), error));
                }
                read => done += read,
            }
        }
        Ok(())
    }

    /// Writes at `offset`, of a file opened for appending at its end. Returns how many bytes were
    /// written: fewer than all only when space ran out on the way.
    ///
    /// # Errors
    /// `EBADF` for a file not opened for writing, `StorageFull`, `FileTooLarge`.
    pub fn write_at(&self, bytes: &[u8], offset: u64) -> Result<usize> {
        let (_, written) = self.done(self.write_some(bytes, offset), "write file")?;
        Ok(written)
    }

    /// Returns where was written, and how many bytes.
    #[inline]
    fn write_some(&self, bytes: &[u8], offset: u64) -> raw::Result<(u64, usize)> {
        self.may(self.options.writes())?;
        let at = match self.options.0.append {
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
        self.done(set.and_then(|()| calls.set_size(who, node, size)), "set the size of file")
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
        let done = change.and_then(|()| calls.allocate(who, node, mode, offset, len));
        self.done(done, "allocate in file")
    }

    /// Returns where data begins, at `offset` or behind it; `None` if there is none up to the end.
    /// The position does not move.
    ///
    /// # Errors
    /// Those of the device.
    pub fn seek_data(&self, offset: u64) -> Result<Option<u64>> {
        self.seek(offset, Seek::Data)
    }

    /// Returns where a hole begins, at `offset` or behind it; `None` behind the end, where the last
    /// one begins. The position does not move.
    ///
    /// ```
    /// # use shoal::{Credentials, Volume};
    /// # fn main() -> shoal::Result<()> {
    /// # let volume = Volume::options().size(64 << 20).in_memory()?;
    /// let file = volume.root(Credentials::root()).create("sparse")?;
    /// file.write_all_at(&[1; 4096], 1 << 20)?;
    /// file.set_len(2 << 20)?;
    /// let data = file.seek_data(0)?;
    /// assert_eq!(data, Some(1 << 20));
    /// assert_eq!(file.seek_hole(1 << 20)?, Some((1 << 20) + 4096));
    /// assert_eq!(file.seek_data((1 << 20) + 4096)?, None);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of the device.
    pub fn seek_hole(&self, offset: u64) -> Result<Option<u64>> {
        self.seek(offset, Seek::Hole)
    }

    fn seek(&self, offset: u64, what: Seek) -> Result<Option<u64>> {
        let (calls, who, node) = self.target();
        match calls.seek(who, node, offset, what) {
            Err(e) if e.is(Code::NoDevice) => Ok(None),
            found => self.done(found.map(Some), "seek in file"),
        }
    }

    fn set(&self, doing: &'static str, set: SetAttr) -> Result<()> {
        let (calls, who, node) = self.target();
        self.done(calls.set_attr(who, node, b"", true, set).map(drop), doing)
    }

    /// Sets the permission bits.
    ///
    /// # Errors
    /// `PermissionDenied` for others than the owner.
    pub fn set_permissions(&self, mode: u32) -> Result<()> {
        self.set("set permissions of", SetAttr { mode: Some(mode), ..SetAttr::default() })
    }

    /// Sets owner and group; `None` leaves it as it is.
    ///
    /// # Errors
    /// Those of [`Dir::set_owner`].
    pub fn set_owner(&self, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        self.set("set owner of", SetAttr { uid, gid, ..SetAttr::default() })
    }

    /// Sets the times of the last access and of the last change.
    ///
    /// # Errors
    /// `PermissionDenied` for others than the owner.
    pub fn set_times(&self, accessed: SystemTime, modified: SystemTime) -> Result<()> {
        self.set("set times of", times(accessed, modified))
    }

    /// Makes the file durable: contents, attributes, and its name if it is new. Everything that was
    /// done before, in this file or elsewhere, is durable too. Threads that call it at the same
    /// time share one flush.
    ///
    /// # Errors
    /// Those of the device; the volume is read-only then.
    pub fn sync_all(&self) -> Result<()> {
        let (calls, who, node) = self.target();
        self.done(calls.fsync(who, node, false), "sync file")
    }

    /// Makes the contents durable. In Shoal the same as [`File::sync_all`].
    ///
    /// # Errors
    /// Those of [`File::sync_all`].
    pub fn sync_data(&self) -> Result<()> {
        let (calls, who, node) = self.target();
        self.done(calls.fsync(who, node, true), "sync file")
    }

    /// Attributes.
    ///
    /// # Errors
    /// Those of the device.
    pub fn metadata(&self) -> Result<Metadata> {
        let (calls, who, node) = self.target();
        self.done(calls.attr(who, node).map(Metadata), "look at file")
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
        let (at, written) = self.done(self.write_some(bytes, *position), "write file")?;
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
        let invalid = || self.error("seek in file", Code::Invalid.into());
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

    /// Reads all of a file as text.
    ///
    /// # Errors
    /// `InvalidData` when it is not UTF-8; those of [`Dir::read`].
    pub fn read_to_string(&self, path: impl AsPath) -> Result<String> {
        let path = path.as_path();
        String::from_utf8(self.read(path)?).map_err(|e| {
            let error = io::Error::new(io::ErrorKind::InvalidData, e.utf8_error());
            Error::system("read", Some(path), error)
        })
    }

    /// Writes a whole file: creates it, or replaces its contents. For a replacement that readers
    /// and crashes see whole, use [`Dir::batch`].
    ///
    /// # Errors
    /// Those of [`Dir::create`].
    pub fn write(&self, path: impl AsPath, contents: impl AsRef<[u8]>) -> Result<()> {
        let (path, contents) = (path.as_path(), contents.as_ref());
        let options = FileOptions::new().write(true).create(true).truncate(true);
        let put = self.calls().put(self.who(), self.node(), path, options.0, contents);
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
        impl io::Seek for $type {
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
