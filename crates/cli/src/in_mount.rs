//! A place in a mount, for the commands that read and change whole trees.
//!
//! What a session with the mount's server can answer at once is asked of that: listings, sums,
//! changes since a mark, changes of a tree. Where its socket cannot be reached, as in a container
//! that has the mount and not the socket, directories are listed by system calls, and what these
//! cannot do is refused. The command says so once.
//!
//! A removal, and a change of a single file, is a system call that goes to the directory of the
//! file step by step and follows no symlink, so it stays below the place where the walk began.

pub(crate) mod lists;

use std::fs::canonicalize;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use rustix::fs::{
    AtFlags, CWD, Gid, Mode, OFlags, RawDir, ResolveFlags, SeekFrom, Statx, StatxFlags, Timespec,
    Timestamps, UTIME_NOW, UTIME_OMIT, Uid, chmod, chownat, listxattr, llistxattr, makedev, openat,
    openat2, readlinkat, seek, statx, unlinkat, utimensat,
};
use rustix::io::Errno;
use rustix::path::Arg;
use shoal::raw::{
    Attr, Code, DirEntry, Error, FileKind, Generation, Ino, Result, SetAttr, SetTime, Time,
    connect_mount,
};
use shoal_fuse::{MountPlace, place_of};

use crate::location::{Split, split_last};
use crate::progress::eprint_line;
use crate::session::{Access, Cursor, Found, Session};
use crate::source::{Batch, DirId, Source};
use crate::start::{Start, below};
use crate::text::printable;

/// Entries that are listed at a time by system calls.
const BATCH: usize = 1024;
/// Bytes of a directory that are read at a time.
const READ: usize = 64 << 10;
/// Bytes of all names of extended attributes of a file, at most.
const NAMES_MAX: usize = 64 << 10;

/// Flags of a file that is only looked at.
const LOOKED_AT: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);

/// The sessions with servers of mounts, by their numbers.
static SESSIONS: Mutex<Vec<(u64, Arc<Session>)>> = Mutex::new(Vec::new());

/// The user has been told that there is no way to a server.
static TOLD: AtomicBool = AtomicBool::new(false);

/// A place in a mount.
pub(crate) struct InMount {
    /// The place itself.
    opened: OwnedFd,
    /// The mount, and the place in it.
    place: MountPlace,
    /// Path as it was typed.
    typed: Vec<u8>,
    /// The way to the server, when it has been looked for.
    start: OnceLock<Result<Start>>,
    /// The directory that a file was last looked up in, by its path below the place.
    last: Mutex<Option<(Vec<u8>, Arc<OwnedFd>)>>,
}

impl InMount {
    /// Opens a place, and returns its attributes, in which there is no generation. `None`: it is in
    /// no mount of Shoal.
    pub(crate) fn open(path: &Path, follow: bool) -> Result<Option<(InMount, Attr)>> {
        let typed = path.as_os_str().as_bytes();
        let flags = if follow { LOOKED_AT } else { LOOKED_AT | OFlags::NOFOLLOW };
        let opened = match openat(CWD, typed, flags, Mode::empty()) {
            Ok(opened) => opened,
            Err(error) => return not_opened(typed, follow, error_of(error.into())),
        };
        let Some(place) = place_of(&opened).map_err(error_of)? else { return Ok(None) };
        let attr = stat_at(&opened, "", AtFlags::EMPTY_PATH)?;
        let (typed, last) = (typed.to_vec(), Mutex::default());
        Ok(Some((InMount { opened, place, typed, start: OnceLock::new(), last }, attr)))
    }

    /// Returns the number of the mount.
    pub(crate) fn device(&self) -> u64 {
        self.place.device
    }

    /// Returns the place in a session with the mount's server; `None` if there is no way to it,
    /// which is said once.
    pub(crate) fn start(&self) -> Option<&Start> {
        let start = self.needs_start();
        if let Err(error) = &start
            && error.code() == Code::NotSupported
            && !TOLD.swap(true, Ordering::Relaxed)
        {
            let label = printable(&self.typed);
            eprint_line(&format!("{label}: works by system calls, which takes longer: {error}"));
        }
        start.ok()
    }

    /// Returns whether nothing may be changed here, whatever the mount allows elsewhere.
    pub(crate) fn is_read_only(&self) -> bool {
        self.place.is_read_only
    }

    /// The same where a session is needed.
    pub(crate) fn needs_start(&self) -> Result<&Start> {
        let start = self.start.get_or_init(|| {
            let elsewhere = || {
                let message = "the mount is not shown here as its server has it";
                Error::refused(Code::CrossRoot, message)
            };
            let place = self.place.path.as_ref().zip(ino_of(&self.opened));
            let (real, own) = place.ok_or_else(elsewhere)?;
            let session = session_with(self.device(), &self.typed)?;
            match session.look(real)?.ino == own {
                true => Ok(Start::new(session, self.typed.clone(), real.clone())),
                // Its path leads elsewhere, as below another mount.
                false => Err(elsewhere()),
            }
        });
        start.as_ref().map_err(|error| Error::refused(error.code(), error.to_string()))
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
        let mut names = crate::session::names_in(&room[..len]);
        names.sort();
        Ok(names)
    }

    /// Opens a file of a walk, or the place itself, to change it; only its name is needed for that.
    /// `follow`: the target of a symlink.
    pub(crate) fn open_file(&self, path: &[u8], follow: bool) -> Result<OpenFile> {
        if path == self.typed && follow {
            return open_path(path);
        }
        let flags = LOOKED_AT | OFlags::NOFOLLOW;
        let file = match path == self.typed {
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
        if path == self.typed {
            return InMount::stat(path, false);
        }
        let (dir, name) = self.parent(path)?;
        stat_at(&*dir, &name, AtFlags::SYMLINK_NOFOLLOW)
    }

    /// Removes a file or empty directory of a walk.
    pub(crate) fn remove(&self, path: &[u8], is_dir: bool) -> Result<()> {
        let flags = if is_dir { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        let removed = match path == self.typed {
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
        let Split { parent, name, .. } = split_last(below(&self.typed, path));
        let parent = if parent.is_empty() { b"." } else { parent };
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, dir)) = &*last
            && known == parent
        {
            return Ok((dir.clone(), name.to_vec()));
        }
        let dir = Arc::new(self.directory(parent, LOOKED_AT)?);
        *last = Some((parent.to_vec(), dir.clone()));
        Ok((dir, name.to_vec()))
    }

    /// Opens a directory below the place.
    fn directory(&self, below: &[u8], flags: OFlags) -> Result<OwnedFd> {
        let flags = flags | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        let dir = openat2(&self.opened, below, flags, Mode::empty(), resolve);
        dir.map_err(|error| error_of(error.into()))
    }

    /// Lists some entries of a directory by system calls.
    fn read_dir(&self, names_only: bool, dir: &DirId, after: u64) -> Result<(Vec<Found>, Cursor)> {
        let failed = |error: Errno| error_of(error.into());
        let path = below(&self.typed, &dir.path);
        let opened = match path {
            // What is only looked at cannot be read: it is opened once more, with the right to.
            b"" => {
                let again = format!("/proc/self/fd/{}", self.opened.as_raw_fd());
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
                openat(CWD, again, flags, Mode::empty()).map_err(failed)?
            }
            path => self.directory(path, OFlags::RDONLY)?,
        };
        if ino_of(&opened) != Some(dir.ino) {
            return Err(Code::Stale.into());
        }
        if after > 0 {
            seek(&opened, SeekFrom::Start(after)).map_err(failed)?;
        }
        let mut buffer = vec![MaybeUninit::uninit(); READ];
        let mut entries = RawDir::new(&opened, &mut buffer[..]);
        let mut listed = Vec::new();
        while let Some(entry) = entries.next() {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name().to_bytes();
            if !matches!(name, b"." | b"..") {
                listed.push(found(names_only, &opened, name, &entry));
            }
            if listed.len() == BATCH {
                return Ok((listed, Cursor::After(entry.next_entry_cookie())));
            }
        }
        Ok((listed, Cursor::End))
    }
}

/// Returns an entry of a directory.
fn found(
    names_only: bool,
    dir: &OwnedFd,
    name: &[u8],
    entry: &rustix::fs::RawDirEntry<'_>,
) -> Found {
    let kind = FileKind::from_mode(entry.file_type().as_raw_mode());
    let by_name = |kind, failed| {
        Found::by_name(&DirEntry { name, ino: Ino(entry.ino()), kind, cookie: 0 }, failed)
    };
    if let Some(kind) = kind.filter(|_| names_only) {
        return by_name(kind, None);
    }
    match stat_at(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(attr) => Found::with_attributes(name.into(), attr),
        Err(error) => by_name(kind.unwrap_or(FileKind::Regular), Some(error)),
    }
}

/// Returns the session with the server of a mount.
///
/// # Errors
/// `EOPNOTSUPP` if there is no way to it.
fn session_with(device: u64, typed: &[u8]) -> Result<Arc<Session>> {
    // Held until there is one: threads of a walk ask at the same time.
    let mut all = SESSIONS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, session)) = all.iter().find(|(number, _)| *number == device) {
        return Ok(session.clone());
    }
    let no_way = |error: Error| Error::refused(Code::NotSupported, error.to_string());
    let path = PathBuf::from(std::ffi::OsStr::from_bytes(typed));
    // Its calls return when the server has made them, as those of the mount.
    let remote = connect_mount(device).map_err(no_way)?;
    let session = Arc::new(Session::over(remote, path, Access::Read));
    all.push((device, session.clone()));
    Ok(session)
}

/// Decides about a place that cannot be opened because of `error`.
fn not_opened(typed: &[u8], follow: bool, error: Error) -> Result<Option<(InMount, Attr)>> {
    let typed = Path::new(std::ffi::OsStr::from_bytes(typed));
    // What does not exist may still be missing in a mount.
    let real = if follow { canonicalize(typed).ok() } else { None };
    let real = real.as_deref().unwrap_or(typed).as_os_str().as_bytes();
    match split_last(real).name {
        b"" | b"." | b".." => Err(error),
        _ if is_below_mount(real) => Err(error),
        _ => Ok(None),
    }
}

/// Returns the inode number of an open file.
fn ino_of(opened: &OwnedFd) -> Option<Ino> {
    let found = statx(opened, "", AtFlags::EMPTY_PATH, StatxFlags::INO).ok()?;
    Some(Ino(found.stx_ino))
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

impl Source for InMount {
    fn list_dir(&self, names_only: bool, dir: &DirId, cursor: Cursor) -> Batch {
        if let Some(start) = self.start() {
            return start.list_dir(names_only, dir, cursor);
        }
        let after = if let Cursor::After(cookie) = cursor { cookie } else { 0 };
        match self.read_dir(names_only, dir, after) {
            Ok((entries, next)) => Batch { entries: Ok(entries), next },
            Err(error) => Batch { entries: Err(error), next: Cursor::End },
        }
    }
}

/// Opens a file of a mount by its path.
pub(crate) fn open_path(path: &[u8]) -> Result<OpenFile> {
    let file = openat(CWD, path, LOOKED_AT, Mode::empty());
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
        if let Ok(dir) = openat(CWD, above, LOOKED_AT | OFlags::DIRECTORY, Mode::empty()) {
            return place_of(dir).is_ok_and(|place| place.is_some());
        }
        if above == b"." {
            return false;
        }
    }
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
        // The kernel does not ask for it.
        version: 0,
    })
}

/// Returns the error of the volume that is the same as one of the system.
pub(crate) fn error_of(error: io::Error) -> Error {
    let errno = error.raw_os_error().unwrap_or(0);
    match Code::ALL.iter().find(|code| code.errno() == errno) {
        Some(code) => (*code).into(),
        None => Error::refused(Code::Io, error.to_string()),
    }
}
