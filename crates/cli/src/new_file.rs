//! A file that a command writes for its user: an archive, a stream, a mark.
//!
//! What was there stays until the new one is whole. A regular file is written without a name
//! (`O_TMPFILE`), gets one in the same directory when it is whole and durable, and is renamed over
//! the old one; the directory is synced. So a command that fails, is interrupted or killed leaves
//! what was there, and nothing else. Where a filesystem has no files without a name, it is written
//! under a hidden one, which is removed unless the process is killed by force.
//!
//! A trace is of use as it grows, and when it was cut off: it is written directly ([`growing`]).
//!
//! A pipe, a terminal or a device is written directly, from its beginning.
//!
//! Refused are the source itself, whatever its name, and without `--force` another volume; one in
//! use by a process is refused even so.

use std::fs::{self, File, Metadata};
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FlockOperation, Gid, Mode, OFlags, Uid};
use rustix::io::Errno;
use shoal::raw::{Code, identify};

use crate::failure::{Failure, Reason, Result, UNUSABLE};
use crate::interrupt;
use crate::mounts::is_same;
use crate::text::printable;

/// Most symlinks that are followed to a file, as in the kernel.
const LINKS_MAX: usize = 40;
/// Bytes of a name that are part of a temporary one, so that this has at most 255.
const TEMPORARY_MAX: usize = 200;

/// Conditions under which a file is written.
#[derive(Clone, Copy)]
pub(crate) struct Terms<'a> {
    /// Mode of a file that is new; without the bits of the umask.
    pub mode: u32,
    /// Files and devices that are read meanwhile.
    pub sources: &'a [&'a Path],
    /// Write over a volume. `None`: the command has no such option.
    pub force: Option<bool>,
    /// An interruption makes a write fail; otherwise it only ends the command's work.
    pub stops: bool,
}

impl Default for Terms<'_> {
    fn default() -> Self {
        Terms { mode: Terms::SHARED, sources: &[], force: None, stops: false }
    }
}

impl Terms<'_> {
    /// Mode of a file with the names or contents of all users' files: its owner's alone.
    pub(crate) const PRIVATE: u32 = 0o600;
    /// Mode of any other file.
    pub(crate) const SHARED: u32 = 0o666;
}

/// A file being written.
pub(crate) struct NewFile {
    file: File,
    label: String,
    stops: bool,
    /// The file until it has its name; `None`: it is written directly.
    draft: Option<Draft>,
    /// The volume that is overwritten, locked.
    _over: Option<File>,
}

/// A regular file that has not got its name yet.
struct Draft {
    directory: OwnedFd,
    name: Vec<u8>,
    /// Its name meanwhile, if it has one.
    temporary: Option<Vec<u8>>,
    /// The file that it replaces.
    old: Option<Metadata>,
}

impl NewFile {
    /// Begins a file. Nothing is changed under its name before [`NewFile::finish`].
    pub(crate) fn create(path: &Path, terms: &Terms<'_>) -> Result<NewFile> {
        let label = printable(path.as_os_str().as_bytes()).into_owned();
        let failed =
            |error: io::Error| Failure::failed(&label, Reason::from(error)).with_status(UNUSABLE);
        let (path, is_open) = &followed(path).map_err(failed)?;
        let old = match fs::metadata(path) {
            Ok(found) => Some(found),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(failed(error)),
        };
        let over = match &old {
            Some(found) => check(path, &label, found, terms)?,
            None => None,
        };
        let is_named = !is_open && old.as_ref().is_none_or(Metadata::is_file);
        let (file, draft) = match is_named {
            true => {
                if terms.stops {
                    interrupt::defer();
                }
                let (file, draft) = Draft::begin(path, old, terms.mode).map_err(failed)?;
                (file, Some(draft))
            }
            false => (open_directly(path).map_err(failed)?, None),
        };
        Ok(NewFile { file, label, stops: terms.stops, draft, _over: over })
    }

    /// Device and inode of the file, and of the one that it replaces.
    pub(crate) fn identities(&self) -> Vec<(u64, u64)> {
        let old = self.draft.as_ref().and_then(|draft| draft.old.clone());
        let both = self.file.metadata().ok().into_iter().chain(old);
        both.map(|found| (found.dev(), found.ino())).collect()
    }

    /// Makes it durable, and gives it its name.
    pub(crate) fn finish(mut self) -> Result<()> {
        let finished = match self.draft.take() {
            Some(draft) => draft.publish(&self.file),
            None => match self.file.sync_all() {
                // A pipe or a terminal.
                Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => Ok(()),
                synced => synced,
            },
        };
        finished.map_err(|error| Failure::failed(&self.label, Reason::from(error)))
    }

    /// Returns the failure of a command that writes it: an interruption, if there was one.
    pub(crate) fn stopped(&self, failure: Failure) -> Failure {
        stopped(&self.label, failure)
    }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.stops && self.draft.is_some() && interrupt::pending().is_some() {
            return Err(io::Error::other("interrupted"));
        }
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Draft {
    /// Makes a file for a path, with the mode and owner of the one that is there.
    fn begin(path: &Path, old: Option<Metadata>, mode: u32) -> io::Result<(File, Draft)> {
        let name = path.file_name().ok_or(Errno::ISDIR)?.as_bytes().to_vec();
        let parent = path.parent().filter(|it| !it.as_os_str().is_empty());
        let parent = parent.unwrap_or(Path::new("."));
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(parent, flags, Mode::empty())?;
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(mode);
        let (file, temporary) =
            match rustix::fs::openat(&directory, ".", flags | OFlags::TMPFILE, mode) {
                Ok(file) => (file, None),
                // The filesystem, or the kernel, does not know it.
                Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT | Errno::INVAL) => {
                    let hidden = temporary(&name);
                    let flags = flags | OFlags::CREATE | OFlags::EXCL;
                    (rustix::fs::openat(&directory, &hidden[..], flags, mode)?, Some(hidden))
                }
                Err(error) => return Err(error.into()),
            };
        let draft = Draft { directory, name, temporary, old };
        if let Some(old) = &draft.old {
            let (uid, gid) = (Uid::from_raw(old.uid()), Gid::from_raw(old.gid()));
            let is_given = rustix::fs::fchown(&file, Some(uid), Some(gid)).is_ok();
            // Of another owner or group, it is for nobody else.
            let kept = if is_given { 0o777 } else { 0o700 };
            rustix::fs::fchmod(&file, Mode::from_raw_mode(old.mode() & kept))?;
        }
        Ok((File::from(file), draft))
    }

    fn publish(mut self, file: &File) -> io::Result<()> {
        file.sync_all()?;
        let hidden = match &self.temporary {
            Some(hidden) => hidden.clone(),
            None => {
                let hidden = temporary(&self.name);
                let itself = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
                let flags = AtFlags::SYMLINK_FOLLOW;
                rustix::fs::linkat(CWD, itself, &self.directory, &hidden[..], flags)?;
                self.temporary.insert(hidden).clone()
            }
        };
        rustix::fs::renameat(&self.directory, &hidden[..], &self.directory, &self.name[..])?;
        self.temporary = None;
        Ok(rustix::fs::fsync(&self.directory)?)
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if let Some(hidden) = &self.temporary {
            // There is a failure, and it is what is reported.
            let _ = rustix::fs::unlinkat(&self.directory, &hidden[..], AtFlags::empty());
        }
    }
}

/// Opens a file that is of use before it is whole, as it grows: what was there is gone at once.
pub(crate) fn growing(path: &Path, terms: &Terms<'_>) -> Result<File> {
    guard(path, terms)?;
    let opened =
        File::options().write(true).create(true).truncate(true).mode(terms.mode).open(path);
    opened.map_err(|error| {
        let label = printable(path.as_os_str().as_bytes());
        Failure::failed(label, Reason::from(error)).with_status(UNUSABLE)
    })
}

/// Returns the failure of a command that writes a file: an interruption, if there was one.
pub(crate) fn stopped(label: &str, failure: Failure) -> Failure {
    match interrupt::pending() {
        Some(status) => {
            let line = format!("interrupted: {label} is as it was before");
            Failure::Line { line, status }
        }
        None => failure,
    }
}

/// Writes a file as a whole.
pub(crate) fn write_whole(path: &Path, bytes: &[u8], terms: &Terms<'_>) -> Result<()> {
    let mut file = NewFile::create(path, terms)?;
    let written = file.write_all(bytes);
    written.map_err(|error| Failure::failed(&file.label, Reason::from(error)))?;
    file.finish()
}

/// Checks that a file may be written, by a command that does so itself; returns a volume there,
/// locked.
pub(crate) fn guard(path: &Path, terms: &Terms<'_>) -> Result<Option<File>> {
    let label = printable(path.as_os_str().as_bytes());
    match fs::metadata(path) {
        Ok(found) => check(path, &label, &found, terms),
        // The command says so, with what it was about to do.
        Err(_) => Ok(None),
    }
}

/// Checks that a file may be replaced or written over; returns a volume, locked.
fn check(path: &Path, label: &str, found: &Metadata, terms: &Terms<'_>) -> Result<Option<File>> {
    if found.is_dir() {
        return Err(Failure::usage(label, "is a directory: name a file"));
    }
    for source in terms.sources {
        if fs::metadata(source).is_ok_and(|source| is_same(&source, found)) {
            let what = "is the volume itself: name another file";
            return Err(Failure::usage(label, what));
        }
    }
    let is_block = found.file_type().is_block_device();
    let what = match identify(path) {
        Ok(None) if is_block => None,
        Ok(None) => return Ok(None),
        Ok(Some(volume)) => {
            let name = if volume.label.is_empty() { volume.id } else { volume.label };
            Some(format!("holds the volume {}", printable(name.as_bytes())))
        }
        Err(error) if error.is(Code::Access) => Some("may be a volume, and cannot be read".into()),
        Err(_) => Some("holds a damaged volume".into()),
    };
    if let Some(what) = what {
        match terms.force {
            Some(true) => {}
            Some(false) => {
                let what = format!("{what}: name another file (--force writes over it)");
                return Err(Failure::usage(label, what));
            }
            None => return Err(Failure::usage(label, format!("{what}: name another file"))),
        }
    }
    // A device that something is mounted from refuses this; who serves a volume has it locked.
    let flags = if is_block { OFlags::EXCL } else { OFlags::empty() };
    let flags = flags | OFlags::RDONLY | OFlags::CLOEXEC;
    let locked = rustix::fs::open(path, flags, Mode::empty()).and_then(|file| {
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).map(|()| file)
    });
    match locked {
        Ok(file) => Ok(Some(File::from(file))),
        Err(Errno::BUSY | Errno::WOULDBLOCK) => {
            Err(Failure::usage(label, "is in use: unmount it, or wait"))
        }
        Err(Errno::ACCESS) => Ok(None),
        Err(error) => Err(Failure::failed(label, Reason::from(error)).with_status(UNUSABLE)),
    }
}

/// Returns the path of the file that a path leads to, also of one that is not there yet; and
/// whether it is an open file of a process, which has no directory to write beside it.
fn followed(path: &Path) -> io::Result<(PathBuf, bool)> {
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        let parent = path.parent().filter(|it| !it.as_os_str().is_empty());
        let parent = parent.unwrap_or(Path::new(".")).canonicalize()?;
        if parent.starts_with("/proc") {
            return Ok((path, true));
        }
        if !path.symlink_metadata().is_ok_and(|found| found.is_symlink()) {
            return Ok((path, false));
        }
        path = parent.join(fs::read_link(&path)?);
    }
    Err(Errno::LOOP.into())
}

/// Returns a name that no other file in the directory of `name` has, for a file that gets that name
/// when it is whole.
pub(crate) fn temporary(name: &[u8]) -> Vec<u8> {
    // A hasher with random keys.
    let random = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0);
    let kept = &name[..name.len().min(TEMPORARY_MAX)];
    [b".", kept, format!(".{random:016x}").as_bytes()].concat()
}

/// Opens what is written directly: standard output by itself, which may be appended to.
fn open_directly(path: &Path) -> io::Result<File> {
    let (stdout, found) = (io::stdout(), fs::metadata(path)?);
    let ours = rustix::fs::fstat(&stdout)?;
    match (ours.st_dev, ours.st_ino) == (found.dev(), found.ino()) {
        true => Ok(File::from(stdout.as_fd().try_clone_to_owned()?)),
        // Without truncation, which devices do not have and pipes do not need.
        false => File::options().write(true).open(path),
    }
}
