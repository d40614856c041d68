//! A cache of objects on a local disk, which outlives the process.
//!
//! An object is written once and its name is never used again, so bytes of it stay valid for ever.
//! Each object has a file, in which its bytes are at their own offsets; what was never read is a
//! hole. Whether a piece is in the file is told by its checksum, which the map has. A hole, a write
//! that a crash cut off, a flipped bit are the same: the piece is not there, and is fetched. So
//! there is no index to keep, nothing is flushed, and several processes may use a directory.
//!
//! ```text
//! DIRECTORY/                      of this user alone: the checksum is no protection from an enemy
//!   VOLUME/                       random number of the volume, 16 hexadecimal digits
//!     data-EPOCH-NUMBER           as in the bucket, with a dash for the slash
//!     log-SLOT
//! ```
//!
//! The time of modification of a file is that of its last use. When so many bytes were written that
//! the limit may be passed, the files used longest ago are removed, of all volumes in the
//! directory. A sixteenth of its filesystem stays free.

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use rustix::fs::{self, AtFlags, CWD, Dir, FileType, Mode, OFlags, Timestamps};
use rustix::io::Errno;
use shoal_base::{Code, Error, Result};
use shoal_format::bucket::Name;
use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The smallest limit: a few objects.
pub(crate) const CACHE_MIN: u64 = 64 << 20;
/// Bytes on their way to the disk above which what was fetched is not kept.
const WRITING_MAX: u64 = 64 << 20;
/// A use of a file is noted in it after so long.
const USE_NOTED: Duration = Duration::from_secs(300);
/// Share of the filesystem that stays free.
const FREE_SHARE: u64 = 16;
/// Nothing is written for so long after an error.
const PAUSE: Duration = Duration::from_secs(60);

/// A directory for the cache.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DiskCache {
    /// The directory. It is made if it is missing.
    pub directory: PathBuf,
    /// Bytes that it may take on the disk, with those of other volumes in it.
    pub bytes: u64,
}

/// An open directory, before the volume is known.
pub(crate) struct Root {
    directory: OwnedFd,
    options: DiskCache,
}

/// The cache of one volume.
pub(crate) struct Disk {
    root: Root,
    /// The volume's folder, and its name.
    folder: RwLock<Arc<OwnedFd>>,
    name: String,
    /// Bytes written since the files were last counted.
    written: AtomicU64,
    /// Bytes on their way to the disk.
    writing: AtomicU64,
    /// Bytes that are written between two counts of the files.
    step: AtomicU64,
    counting: AtomicBool,
    /// Bytes on the disk when the files were last counted.
    used: AtomicU64,
    hits: AtomicU64,
    hit_bytes: AtomicU64,
    /// When the use of a file was last noted in it.
    noted: Mutex<HashMap<Name, Instant>>,
    paused: Mutex<Option<Instant>>,
}

/// A file in the directory.
struct Found {
    used: (i64, u64),
    bytes: u64,
    volume: usize,
    name: String,
}

impl Root {
    /// Opens the directory, and makes it if it is missing.
    ///
    /// # Errors
    /// Access: it belongs to another user, or others may write in it. Invalid: the limit is too
    /// small. Those of the system.
    pub(crate) fn open(options: &DiskCache) -> Result<Root> {
        let path = &options.directory;
        let failed = |code: Code, why: &str| {
            let path = path.display();
            Error::refused(code, format!("{path}: cannot be the cache on disk: {why}"))
        };
        if options.bytes < CACHE_MIN {
            return Err(failed(Code::Invalid, "it must have 64M at least"));
        }
        let io = |error: Errno| failed(Code::Io, &error.to_string());
        let directory = match open_folder(CWD, path) {
            Err(Errno::NOENT) => {
                let made = fs::mkdir(path, Mode::RWXU);
                made.or_else(|error| if error == Errno::EXIST { Ok(()) } else { Err(error) })
                    .and_then(|()| open_folder(CWD, path))
            }
            opened => opened,
        };
        let directory = directory.map_err(io)?;
        let stat = fs::fstat(&directory).map_err(io)?;
        if stat.st_uid != rustix::process::geteuid().as_raw() {
            return Err(failed(Code::Access, "it belongs to another user"));
        }
        if Mode::from_raw_mode(stat.st_mode).intersects(Mode::WGRP | Mode::WOTH) {
            return Err(failed(Code::Access, "other users may write in it; chmod go-w"));
        }
        Ok(Root { directory, options: options.clone() })
    }

    /// Opens the part of a volume.
    ///
    /// # Errors
    /// Those of the system.
    pub(crate) fn of_volume(self, volume: u64) -> Result<Disk> {
        let name = format!("{volume:016x}");
        let folder = self.folder(&name).map_err(|error| {
            let path = self.options.directory.join(&name);
            Error::refused(Code::Io, format!("{}: {error}", path.display()))
        })?;
        let first_step = step(self.options.bytes, self.options.bytes);
        let disk = Disk {
            root: self,
            folder: RwLock::new(Arc::new(folder)),
            name,
            written: AtomicU64::new(0),
            writing: AtomicU64::new(0),
            step: AtomicU64::new(first_step),
            counting: AtomicBool::new(false),
            used: AtomicU64::new(0),
            hits: AtomicU64::new(0),
            hit_bytes: AtomicU64::new(0),
            noted: Mutex::default(),
            paused: Mutex::default(),
        };
        disk.trim();
        Ok(disk)
    }

    /// Opens the folder of a volume, and makes it if it is missing.
    fn folder(&self, name: &str) -> Result<OwnedFd, Errno> {
        match fs::mkdirat(&self.directory, name, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => open_folder(&self.directory, name),
            Err(error) => Err(error),
        }
    }
}

fn open_folder(at: impl AsFd, path: impl rustix::path::Arg) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    fs::openat(at, path, flags, Mode::empty())
}

/// Returns the bytes between two counts of the files, for a limit and the bytes that `may` be used
/// of it: on a small or full filesystem, fewer. There must be room for a step, and it must not be
/// all the room.
fn step(limit: u64, may: u64) -> u64 {
    (limit / 16).min(256 << 20).min(may / 4)
}

fn file_name(name: Name) -> String {
    name.text().replacen('/', "-", 1)
}

impl Disk {
    /// Returns stored bytes of an object for each of these offsets and lengths, as far as the file
    /// has so many. They are not verified. Blocks.
    pub(crate) fn read(&self, name: Name, ranges: &[(u32, u32)]) -> Vec<Option<Bytes>> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = self.folder.read().clone();
        let opened = fs::openat(folder, file_name(name), flags, Mode::empty());
        let Ok(file) = opened else { return vec![None; ranges.len()] };
        let one = |&(offset, len): &(u32, u32)| {
            let mut bytes = vec![0; len as usize];
            read_exactly(&file, &mut bytes, u64::from(offset)).then(|| Bytes::from(bytes))
        };
        let found = ranges.iter().map(one).collect();
        let mut noted = self.noted.lock();
        if noted.get(&name).is_none_or(|last| last.elapsed() > USE_NOTED) {
            noted.insert(name, Instant::now());
            drop(noted);
            let now = fs::Timespec { tv_sec: 0, tv_nsec: fs::UTIME_NOW };
            // Else it goes a little earlier.
            let _ = fs::futimens(&file, &Timestamps { last_access: now, last_modification: now });
        }
        found
    }

    /// Counts pieces that were found.
    pub(crate) fn hit(&self, pieces: usize, bytes: u64) {
        self.hits.fetch_add(pieces as u64, Ordering::Relaxed);
        self.hit_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Returns the number of pieces that were found, their bytes as stored, and the bytes on the
    /// disk.
    pub(crate) fn counted(&self) -> [u64; 3] {
        let of = |number: &AtomicU64| number.load(Ordering::Relaxed);
        [of(&self.hits), of(&self.hit_bytes), of(&self.used) + of(&self.written)]
    }

    /// Announces bytes to be written; `false`: the disk is behind, and they are not to be.
    pub(crate) fn will_write(&self, bytes: u64) -> bool {
        if self.paused.lock().is_some_and(|until| Instant::now() < until) {
            return false;
        }
        let before = self.writing.fetch_add(bytes, Ordering::Relaxed);
        let may = before + bytes <= WRITING_MAX;
        if !may {
            self.writing.fetch_sub(bytes, Ordering::Relaxed);
        }
        may
    }

    /// Writes announced bytes of an object to their place in its file. Blocks.
    pub(crate) fn write(&self, name: Name, offset: u64, bytes: &[u8]) {
        let mut opened = self.make(name);
        if matches!(opened, Err(Errno::NOENT))
            && let Ok(folder) = self.root.folder(&self.name)
        {
            // Somebody has removed it.
            *self.folder.write() = Arc::new(folder);
            opened = self.make(name);
        }
        let done = opened.and_then(|file| write_all(&file, bytes, offset));
        self.writing.fetch_sub(bytes.len() as u64, Ordering::Relaxed);
        if let Err(error) = done {
            let path = self.root.options.directory.display();
            tracing::warn!(%error, "{path}: the cache on disk is not written for a minute");
            *self.paused.lock() = Some(Instant::now() + PAUSE);
            self.trim();
            return;
        }
        let written = self.written.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        if written + bytes.len() as u64 > self.step.load(Ordering::Relaxed) {
            self.trim();
        }
    }

    fn make(&self, name: Name) -> Result<OwnedFd, Errno> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = self.folder.read().clone();
        fs::openat(folder, file_name(name), flags, Mode::RUSR | Mode::WUSR)
    }

    /// Removes the file of an object that was deleted.
    pub(crate) fn remove(&self, name: Name) {
        self.noted.lock().remove(&name);
        // It may not be there; else it is the file that was used longest ago, before long.
        let folder = self.folder.read().clone();
        let _ = fs::unlinkat(folder, file_name(name), AtFlags::empty());
    }

    /// Removes files until the limit holds, also after the next step.
    fn trim(&self) {
        if self.counting.swap(true, Ordering::AcqRel) {
            return;
        }
        self.written.store(0, Ordering::Relaxed);
        if let Err(error) = self.trim_by_use() {
            let path = self.root.options.directory.display();
            tracing::warn!(%error, "{path}: files of the cache on disk cannot be counted");
        }
        self.counting.store(false, Ordering::Release);
    }

    fn trim_by_use(&self) -> Result<(), Errno> {
        let root = &self.root.directory;
        let (volumes, mut found) = self.root.files()?;
        let mut used: u64 = found.iter().map(|file| file.bytes).sum();
        let stat = fs::fstatvfs(root)?;
        let (free, total) = (stat.f_bavail * stat.f_frsize, stat.f_blocks * stat.f_frsize);
        let may = self.root.options.bytes.min((used + free).saturating_sub(total / FREE_SHARE));
        let step = step(self.root.options.bytes, may);
        self.step.store(step, Ordering::Relaxed);
        let most = may - step;
        found.sort_unstable_by_key(|file| file.used);
        for file in &found {
            if used <= most {
                break;
            }
            fs::unlinkat(&volumes[file.volume], &file.name, AtFlags::empty())
                .or_else(|error| if error == Errno::NOENT { Ok(()) } else { Err(error) })?;
            used -= file.bytes;
        }
        self.used.store(used, Ordering::Relaxed);
        self.noted.lock().retain(|_, last| last.elapsed() <= USE_NOTED);
        Ok(())
    }
}

impl Root {
    /// Returns the folders of volumes, and the files in them. Others are left alone, and so are
    /// empty folders: a process may be about to use one.
    fn files(&self) -> Result<(Vec<OwnedFd>, Vec<Found>), Errno> {
        let (mut volumes, mut found) = (Vec::new(), Vec::new());
        for name in names(&self.directory)? {
            let is_ours = name.len() == 16 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
            let Ok(folder) = open_folder(&self.directory, &name) else { continue };
            if !is_ours {
                continue;
            }
            for file in names(&folder)? {
                if Name::parse(&file.replacen('-', "/", 1)).is_none() {
                    continue;
                }
                // It may have been removed just now.
                let Ok(stat) = fs::statat(&folder, &file, AtFlags::SYMLINK_NOFOLLOW) else {
                    continue;
                };
                if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile {
                    let used = (stat.st_mtime, stat.st_mtime_nsec);
                    let bytes = stat.st_blocks as u64 * 512;
                    found.push(Found { used, bytes, volume: volumes.len(), name: file });
                }
            }
            volumes.push(folder);
        }
        Ok((volumes, found))
    }
}

fn names(folder: &OwnedFd) -> Result<Vec<String>, Errno> {
    let mut names = Vec::new();
    for entry in Dir::read_from(folder)? {
        if let Ok(name) = entry?.file_name().to_str()
            && !matches!(name, "." | "..")
        {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}

fn read_exactly(file: &OwnedFd, mut buf: &mut [u8], mut offset: u64) -> bool {
    while !buf.is_empty() {
        match rustix::io::pread(file, &mut *buf, offset) {
            Ok(0) => return false,
            Ok(n) => (buf, offset) = (&mut buf[n..], offset + n as u64),
            Err(Errno::INTR) => {}
            Err(_) => return false,
        }
    }
    true
}

fn write_all(file: &OwnedFd, mut bytes: &[u8], mut offset: u64) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match rustix::io::pwrite(file, bytes, offset) {
            Ok(0) => return Err(Errno::IO),
            Ok(n) => (bytes, offset) = (&bytes[n..], offset + n as u64),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On a filesystem of 200 MiB a limit of 8 GiB kept nothing: a step of 256 MiB had to be free.
    #[test]
    fn a_small_filesystem_keeps_most_of_what_it_may() {
        const MIB: u64 = 1 << 20;
        assert_eq!(step(64 << 30, 64 << 30), 256 * MIB);
        assert_eq!(step(64 * MIB, 64 * MIB), 4 * MIB);
        for may in [0, 1, 100 * MIB, 200 * MIB, 1 << 30] {
            assert!(step(8 << 30, may) <= may / 4, "{may}");
        }
    }
}
