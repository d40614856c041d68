//! A directory in a mount, listed in bulk by the control files of its server: for the commands that
//! read whole trees.
//!
//! The server checks the permissions of the user. Directories are named by their inodes, so a walk
//! goes on in one that is renamed meanwhile. A removal goes to the directory of the file step by
//! step and follows no symlink, so it stays below the place where the walk began.

pub(crate) mod lists;

use std::fs::canonicalize;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{
    AtFlags, CWD, Gid, Mode, OFlags, ResolveFlags, Statx, StatxFlags, Timespec, Timestamps,
    UTIME_NOW, UTIME_OMIT, Uid, chmod, chownat, listxattr, llistxattr, makedev, openat, openat2,
    readlinkat, statx, unlinkat, utimensat,
};
use rustix::io::Errno;
use rustix::path::Arg;
use shoal::raw::{
    Attr, ChangeMark, Code, Error, FileKind, Generation, Ino, Quota, Result, SetAttr, SetTime,
    Time, Totals, TreeChange, TreeChanged,
};
use shoal_fuse::{Asked, ChangeFound, ChangesEnd, ControlFile, EntryFound, Listed, TreeTold};

use crate::location::{Split, join, split_last};
use crate::mounted::NOT_THIS_VERSION;
use crate::session::{Cursor, Found};
use crate::source::{Batch, DirId, Source};

/// Directories that a thread lists at a time, if there are enough for all.
const AT_ONCE: usize = 16;
/// Bytes of all names of extended attributes of a file, at most.
const NAMES_MAX: usize = 64 << 10;

/// Message for an answer that the server has ended.
const GAVE_WAY: &str = "too many listings at once: try again, and read without long pauses";

/// A directory in a mount.
#[derive(Debug)]
pub(crate) struct InMount {
    /// The directory of the control files.
    dir: OwnedFd,
    /// Number of the mount.
    device: u64,
    /// Path as it was typed of the place that was opened.
    start: Vec<u8>,
    /// Name of the place in `dir`; `None`: it is `dir`.
    name: Option<Vec<u8>>,
    /// Control files that no thread uses.
    free: Mutex<Vec<ControlFile>>,
    /// The directory that a file was last looked up in, by its path below `dir`.
    last: Mutex<Option<(Vec<u8>, Arc<OwnedFd>)>>,
}

impl InMount {
    /// Opens a place, and returns its attributes. `None`: it is in no mount of Shoal.
    pub(crate) fn open(path: &Path, follow: bool) -> Result<Option<(InMount, Attr)>> {
        let start = path.as_os_str().as_bytes();
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let flags = if follow { flags } else { flags | OFlags::NOFOLLOW };
        let error = match openat(CWD, start, flags, Mode::empty()) {
            Ok(dir) => match InMount::new(dir, start, None)? {
                // A directory that the user may not search can still be listed by names, through
                // the one that it is in.
                Err(error) if error.is(Code::Access) => error,
                opened => return opened,
            },
            Err(error) => error_of(error.into()),
        };
        InMount::in_parent(start, follow, error)
    }

    /// Opens a place by the directory that it is in, after `error` has kept us from opening it
    /// itself.
    fn in_parent(start: &[u8], follow: bool, error: Error) -> Result<Option<(InMount, Attr)>> {
        let real = match follow {
            true => canonicalize(Path::new(std::ffi::OsStr::from_bytes(start))),
            false => Ok(PathBuf::from(std::ffi::OsStr::from_bytes(start))),
        };
        // What does not exist may still be missing in a mount.
        let real = real.unwrap_or_else(|_| PathBuf::from(std::ffi::OsStr::from_bytes(start)));
        let Split { parent, name, slash } = split_last(real.as_os_str().as_bytes());
        if matches!(name, b"" | b"." | b"..") {
            return Err(error);
        }
        let parent = if parent.is_empty() { b"." } else { parent };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let Ok(dir) = openat(CWD, parent, flags, Mode::empty()) else {
            return if is_below_mount(parent) { Err(error) } else { Ok(None) };
        };
        let opened = InMount::new(dir, start, Some(name.to_vec()))??;
        match opened {
            Some((_, attr)) if slash && attr.kind != FileKind::Directory => {
                Err(Code::NotDirectory.into())
            }
            Some((_, attr)) if follow && attr.kind == FileKind::Symlink => Err(error),
            opened => Ok(opened),
        }
    }

    /// Opens the control file of `dir`. The inner result is that of a lookup in the mount.
    fn new(dir: OwnedFd, start: &[u8], name: Option<Vec<u8>>) -> Result<Looked> {
        let mut control = match ControlFile::open(&dir) {
            Ok(control) => control,
            Err(error) => {
                return match Errno::from_io_error(&error) {
                    Some(Errno::NOTTY) => Ok(Ok(None)),
                    _ => Ok(Err(error_of(error))),
                };
            }
        };
        let attr = match control.entry(name.as_deref().unwrap_or(b".")) {
            Ok(attr) => attr,
            Err(error) => return Ok(Err(error_of(error))),
        };
        let found = statx(&dir, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS);
        let found = found.map_err(|error| error_of(error.into()))?;
        let device = makedev(found.stx_dev_major, found.stx_dev_minor);
        let (free, start) = (Mutex::new(vec![control]), start.to_vec());
        Ok(Ok(Some((InMount { dir, device, start, name, free, last: Mutex::default() }, attr))))
    }

    /// Returns the number of the mount.
    pub(crate) fn device(&self) -> u64 {
        self.device
    }

    /// Returns the attributes of a path, in which there is no generation.
    pub(crate) fn stat(path: &[u8], follow: bool) -> Result<Attr> {
        let flags = if follow { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
        stat_at(CWD, path, flags)
    }

    /// Returns the target of the symlink at a path.
    pub(crate) fn target(path: &[u8]) -> Result<Vec<u8>> {
        let target = readlinkat(CWD, path, Vec::new());
        target.map(|target| target.into_bytes()).map_err(|error| error_of(error.into()))
    }

    /// Returns the names of the extended attributes of the file at a path, sorted.
    pub(crate) fn attribute_names(path: &[u8], kind: FileKind) -> Result<Vec<Vec<u8>>> {
        let mut room = vec![0; NAMES_MAX];
        let len = match kind {
            FileKind::Symlink => llistxattr(path, &mut room[..]),
            _ => listxattr(path, &mut room[..]),
        };
        let len = match len {
            Ok(len) => len,
            Err(Errno::OPNOTSUPP) => 0,
            Err(error) => return Err(error_of(error.into())),
        };
        let names = room[..len].split(|byte| *byte == 0).filter(|name| !name.is_empty());
        let mut names: Vec<Vec<u8>> = names.map(<[u8]>::to_vec).collect();
        names.sort();
        Ok(names)
    }

    /// Returns the totals of the place; `None` if its server does not count for this user.
    pub(crate) fn totals(&self, subvolumes: bool) -> Option<Totals> {
        if self.name.is_some() {
            return None;
        }
        self.with_control(|control| control.totals(subvolumes)).ok()
    }

    /// Returns the quota that the place has; `None` if it has none, or it cannot be asked for.
    pub(crate) fn quota(&self) -> Option<Quota> {
        if self.name.is_some() {
            return None;
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = openat(&self.dir, ".", flags, Mode::empty()).ok()?;
        shoal_fuse::quota_of(dir).ok()?.map(|found| found.quota)
    }

    /// Passes what has changed below the place to `each`, which returns whether it wants more.
    /// Returns the end, unless it did not.
    pub(crate) fn changes(
        &self,
        since: Option<&ChangeMark>,
        each: &mut dyn FnMut(ChangeFound) -> bool,
    ) -> Result<Option<ChangesEnd>> {
        self.searched()?;
        self.with_control(|control| control.changes(since, each)).map_err(|error| {
            let full = |what: &str| {
                let text = format!("{what}: a full scan is needed: call it without a mark");
                Error::refused(error.code(), text)
            };
            match error.code() {
                Code::CrossRoot => full("the mark is of another volume or subvolume"),
                Code::Stale => full("the mark is from before a repair, or from the future"),
                _ => error,
            }
        })
    }

    /// Returns a mark of this moment.
    pub(crate) fn mark(&self) -> Result<ChangeMark> {
        self.searched()?;
        self.with_control(ControlFile::mark)
    }

    /// Returns whether anything may have changed since a mark.
    pub(crate) fn is_newer(&self, mark: &ChangeMark) -> Result<bool> {
        self.with_control(|control| control.is_newer(mark))
    }

    /// Changes the place and everything below it by one call of the server. `None`: it must be done
    /// file by file, and nothing has been changed.
    pub(crate) fn change_tree(
        &self,
        change: &TreeChange,
        mode: (&str, u32),
        watch: &mut dyn FnMut(TreeTold<'_>) -> ControlFlow<()>,
    ) -> Result<Option<TreeChanged>> {
        // The control file of a directory that may not be searched cannot be opened.
        if self.name.is_some() {
            return Ok(None);
        }
        let changed = self.with_control(|control| control.change_tree(change, mode, watch));
        match changed {
            Ok(changed) => Ok(Some(changed)),
            // The last one from a server that does not know the question.
            Err(error)
                if matches!(
                    error.code(),
                    Code::TooBig | Code::NameTooLong | Code::NotSupported | Code::Invalid
                ) =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Checks that the place itself is the directory of the control files.
    fn searched(&self) -> Result<()> {
        match self.name {
            None => Ok(()),
            Some(_) => Err(Code::Access.into()),
        }
    }

    /// Opens a file of a walk, or the place itself, to change it; only its name is needed for that.
    /// `follow`: the target of a symlink.
    pub(crate) fn open_file(&self, path: &[u8], follow: bool) -> Result<OpenFile> {
        let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        if path == self.start && follow {
            return open_path(path);
        }
        let file = match path == self.start {
            true => openat(CWD, path, flags, Mode::empty()),
            false => {
                let (dir, name) = self.parent(path)?;
                openat(&*dir, &name[..], flags, Mode::empty())
            }
        };
        let file = file.map_err(|error| error_of(error.into()))?;
        let attr = stat_at(&file, "", AtFlags::EMPTY_PATH)?;
        Ok(OpenFile { file, attr })
    }

    /// Returns the attributes, as they are now, of a file of a walk.
    pub(crate) fn attributes(&self, path: &[u8]) -> Result<Attr> {
        if path == self.start {
            return InMount::stat(path, false);
        }
        let (dir, name) = self.parent(path)?;
        stat_at(&*dir, &name, AtFlags::SYMLINK_NOFOLLOW)
    }

    /// Removes a file or empty directory of a walk.
    pub(crate) fn remove(&self, path: &[u8], is_dir: bool) -> Result<()> {
        let flags = if is_dir { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        let removed = match path == self.start {
            true => unlinkat(CWD, path, flags),
            false => {
                let (dir, name) = self.parent(path)?;
                unlinkat(&*dir, &name[..], flags)
            }
        };
        removed.map_err(|error| error_of(error.into()))
    }

    /// Opens the directory of a file of a walk; returns it with the file's name.
    pub(crate) fn parent(&self, path: &[u8]) -> Result<(Arc<OwnedFd>, Vec<u8>)> {
        let below = path.get(self.start.len()..).unwrap_or_default();
        let below = &below[below.iter().position(|byte| *byte != b'/').unwrap_or(below.len())..];
        let below = join(self.name.as_deref().unwrap_or_default(), below);
        let Split { parent, name, .. } = split_last(&below);
        let parent = if parent.is_empty() { b"." } else { parent };
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, dir)) = &*last
            && known == parent
        {
            return Ok((dir.clone(), name.to_vec()));
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        let dir = openat2(&self.dir, parent, flags, Mode::empty(), resolve);
        let dir = Arc::new(dir.map_err(|error| error_of(error.into()))?);
        *last = Some((parent.to_vec(), dir.clone()));
        Ok((dir, name.to_vec()))
    }

    /// Does something with a control file that no other thread uses.
    fn with_control<T>(&self, ask: impl FnOnce(&mut ControlFile) -> io::Result<T>) -> Result<T> {
        let free = || self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let known = free().pop();
        let mut control = match known {
            Some(control) => control,
            None => ControlFile::open(&self.dir).map_err(error_of)?,
        };
        let asked = ask(&mut control).map_err(error_of);
        free().push(control);
        asked
    }
}

/// An open file of a mount.
pub(crate) struct OpenFile {
    /// Opened without any right to it.
    file: OwnedFd,
    /// Its attributes when it was opened.
    pub attr: Attr,
}

impl OpenFile {
    /// Changes owner, permission bits and times; returns the new attributes.
    pub(crate) fn set(&self, set: &SetAttr) -> Result<Attr> {
        let file = &self.file;
        let failed = |error: Errno| error_of(error.into());
        if set.uid.is_some() || set.gid.is_some() {
            let (uid, gid) = (set.uid.map(Uid::from_raw), set.gid.map(Gid::from_raw));
            chownat(file, "", uid, gid, AtFlags::EMPTY_PATH).map_err(failed)?;
        }
        if let Some(mode) = set.mode {
            chmod(self.path(), Mode::from_raw_mode(mode)).map_err(failed)?;
        }
        if set.atime.is_some() || set.mtime.is_some() {
            let time = |time: Option<SetTime>| match time {
                None => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
                Some(SetTime::Now) => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
                Some(SetTime::To(time)) => {
                    Timespec { tv_sec: time.sec, tv_nsec: i64::from(time.nsec) }
                }
            };
            let times =
                Timestamps { last_access: time(set.atime), last_modification: time(set.mtime) };
            utimensat(file, "", &times, AtFlags::EMPTY_PATH).map_err(failed)?;
        }
        stat_at(file, "", AtFlags::EMPTY_PATH)
    }

    /// Another path of the file: what is opened without rights cannot be changed by itself.
    fn path(&self) -> String {
        format!("/proc/self/fd/{}", self.file.as_raw_fd())
    }
}

/// Makes an empty file at a path in a mount.
pub(crate) fn create(path: &[u8]) -> Result<()> {
    let flags =
        OFlags::WRONLY | OFlags::CREATE | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let made = openat(CWD, path, flags, Mode::from_raw_mode(0o666));
    made.map(drop).map_err(|error| error_of(error.into()))
}

/// Result of a lookup: the place, if it is in a mount; or the mount's refusal.
type Looked = std::result::Result<Option<(InMount, Attr)>, Error>;

impl Source for InMount {
    fn at_once(&self) -> usize {
        AT_ONCE
    }

    fn list_dirs(&self, names_only: bool, dirs: &[(DirId, Cursor)]) -> Vec<Batch> {
        let asked = |(dir, cursor): &(DirId, Cursor)| {
            let cookie = if let Cursor::After(cookie) = cursor { *cookie } else { 0 };
            Asked { ino: dir.ino, generation: dir.generation, cookie }
        };
        let dirs: Vec<Asked> = dirs.iter().map(asked).collect();
        let mut batches = Vec::new();
        let mut entries = Vec::new();
        let listed = self.with_control(|control| {
            control.list(names_only, &dirs, &mut |listed| match listed {
                Listed::Entry(_, it) => {
                    let EntryFound { name, ino, generation, kind, attr, .. } = it;
                    let failed = (!names_only && attr.is_none()).then(|| Code::Io.into());
                    let name = name.into();
                    entries.push(Found { name, ino, generation, kind, attr, failed });
                }
                Listed::End(_, end) => {
                    let entries = std::mem::take(&mut entries);
                    batches.push(match end {
                        Ok(Some(cookie)) => {
                            Batch { entries: Ok(entries), next: Cursor::After(cookie) }
                        }
                        Ok(None) => Batch { entries: Ok(entries), next: Cursor::End },
                        Err(error) => Batch { entries: Err(error_of(error)), next: Cursor::End },
                    });
                }
            })
        });
        if let Err(error) = listed {
            let failed = || Batch { entries: Err(copy_of(&error)), next: Cursor::End };
            batches.resize_with(dirs.len(), failed);
        }
        batches
    }
}

/// Opens a file of a mount by its path.
pub(crate) fn open_path(path: &[u8]) -> Result<OpenFile> {
    let file = openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    let file = file.map_err(|error| error_of(error.into()))?;
    let attr = stat_at(&file, "", AtFlags::EMPTY_PATH)?;
    Ok(OpenFile { file, attr })
}

/// Returns whether the nearest directory above a path is in a mount.
pub(crate) fn is_below_mount(path: &[u8]) -> bool {
    let mut above = path;
    loop {
        above = match split_last(above) {
            Split { name: b"", .. } => return false,
            Split { parent: b"", .. } => b".",
            Split { parent, .. } => parent,
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        if let Ok(dir) = openat(CWD, above, flags, Mode::empty()) {
            return ControlFile::open(dir).is_ok();
        }
        if above == b"." {
            return false;
        }
    }
}

/// Returns the same error again.
fn copy_of(error: &Error) -> Error {
    Error::refused(error.code(), error.to_string())
}

fn stat_at(dir: impl rustix::fd::AsFd, path: impl Arg, flags: AtFlags) -> Result<Attr> {
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    let found = statx(dir, path, flags, wanted).map_err(|error| error_of(error.into()))?;
    attr_of(&found).ok_or_else(|| Code::Io.into())
}

fn attr_of(found: &Statx) -> Option<Attr> {
    let time = |time: &rustix::fs::StatxTimestamp| Time { sec: time.tv_sec, nsec: time.tv_nsec };
    let mode = u32::from(found.stx_mode);
    Some(Attr {
        ino: Ino(found.stx_ino),
        generation: Generation(0),
        kind: FileKind::from_mode(mode)?,
        mode,
        nlink: found.stx_nlink,
        uid: found.stx_uid,
        gid: found.stx_gid,
        rdev: makedev(found.stx_rdev_major, found.stx_rdev_minor) as u32,
        size: found.stx_size,
        blocks: found.stx_blocks,
        atime: time(&found.stx_atime),
        mtime: time(&found.stx_mtime),
        ctime: time(&found.stx_ctime),
        btime: time(&found.stx_btime),
    })
}

/// Returns the error of the volume that is the same as one of the system.
pub(crate) fn error_of(error: io::Error) -> Error {
    match Errno::from_io_error(&error) {
        Some(Errno::PROTONOSUPPORT) => {
            return Error::refused(Code::NotSupported, NOT_THIS_VERSION);
        }
        Some(Errno::CANCELED) => return Error::refused(Code::Again, GAVE_WAY),
        _ => {}
    }
    let errno = error.raw_os_error().unwrap_or(0);
    match Code::ALL.iter().find(|code| code.errno() == errno) {
        Some(code) => (*code).into(),
        None => Error::refused(Code::Io, error.to_string()),
    }
}
