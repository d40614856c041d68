//! A replay by system calls below a directory.
//!
//! A trace may be anybody's, and be replayed by the superuser: no symlink is followed, not even one
//! that it has made, and no device is made.

use super::plan::{Kind, Step};
use super::set::{Set, When};
use super::{Called, Calls, Place};
use rustix::fd::OwnedFd;
use rustix::fs::{
    self, Access, AtFlags, FallocateFlags, FileType, Gid, Mode, OFlags, RawDir, RenameFlags,
    SeekFrom, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, Uid, XattrFlags,
};
use rustix::io::Errno;
use std::sync::Arc;

/// Bytes written or read at a time.
const PIECE: usize = 1 << 20;
const LIST_BUFFER: usize = 64 << 10;
/// System calls of one thread.
pub(crate) struct Player {
    base: Arc<OwnedFd>,
    buffer: Vec<u8>,
}

impl Player {
    pub(super) fn new(base: Arc<OwnedFd>) -> Player {
        Player { base, buffer: vec![0x5a; PIECE] }
    }
}

/// An open directory, or what a path leads to.
type Dir = Arc<OwnedFd>;

fn os<T>(result: rustix::io::Result<T>) -> Called<T> {
    result.map_err(Errno::raw_os_error)
}

/// Returns the name to be used in a call: of a directory itself, a dot.
fn named(name: &[u8]) -> &[u8] {
    if name.is_empty() { b"." } else { name }
}

fn open(dir: &Dir, name: &[u8], flags: OFlags) -> Called<OwnedFd> {
    let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    os(fs::openat(dir, named(name), flags, Mode::empty()))
}

impl Calls for Player {
    type Dir = Dir;

    fn top(&self) -> Dir {
        self.base.clone()
    }

    fn enter(&self, dir: &Dir, name: &[u8]) -> Called<Dir> {
        open(dir, name, OFlags::PATH | OFlags::DIRECTORY).map(Arc::new)
    }

    fn make(&mut self, dir: &Dir, name: &[u8], kind: Kind, size: u64) -> Called {
        match kind {
            Kind::Directory => os(fs::mkdirat(dir, name, Mode::from_raw_mode(0o755))),
            Kind::Symlink => os(fs::symlinkat("nowhere", dir, name)),
            Kind::File => {
                let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
                let file = os(fs::openat(dir, name, flags, Mode::from_raw_mode(0o644)))?;
                self.write(&file, 0, size)
            }
        }
    }

    fn play(
        &mut self,
        step: &Step,
        at: Place<'_, Player>,
        to: Place<'_, Player>,
    ) -> Option<Called> {
        let Place { dir, name } = &at;
        Some(match &*step.op {
            "lookup" | "getattr" | "statx" => {
                os(fs::statat(dir, named(name), AtFlags::SYMLINK_NOFOLLOW)).map(drop)
            }
            "access" => {
                let access = Access::from_bits_truncate(step.flags & 7);
                os(fs::accessat(dir, named(name), access, AtFlags::SYMLINK_NOFOLLOW))
            }
            "readlink" => os(fs::readlinkat(dir, *name, Vec::new())).map(drop),
            "statfs" => os(fs::fstatfs(&self.base)).map(drop),
            "syncfs" => os(fs::syncfs(&self.base)),
            "open" => self.opened(step, dir, name),
            "mknod" if is_device(step.mode) => return None,
            "create" | "tmpfile" | "mkdir" | "mknod" | "symlink" => made(step, dir, name),
            "link" => os(fs::linkat(dir, *name, &to.dir, to.name, AtFlags::empty())),
            "unlink" => os(fs::unlinkat(dir, *name, AtFlags::empty())),
            "rmdir" => os(fs::unlinkat(dir, *name, AtFlags::REMOVEDIR)),
            "rename" | "rename2" => {
                let flags = RenameFlags::from_bits_retain(step.flags);
                os(fs::renameat_with(dir, *name, &to.dir, to.name, flags))
            }
            // The later pieces of a list are asked for by the same calls.
            "readdir" | "readdirplus" if step.offset != 0 => Ok(()),
            "readdir" | "readdirplus" => list(dir, name),
            "read" | "write" | "fallocate" | "lseek" | "fsync" | "fsyncdir" => {
                self.on_file(step, dir, name)
            }
            "copy_file_range" | "copy_file_range64" => copy(step, &at, &to),
            "setattr" => set(step, dir, name),
            "setxattr" | "getxattr" | "listxattr" | "removexattr" => {
                return self.attribute(step, dir, name);
            }
            _ => return None,
        })
    }
}

impl Player {
    fn write(&self, file: &OwnedFd, offset: u64, size: u64) -> Called {
        let mut done = 0;
        while done < size {
            let piece = &self.buffer[..PIECE.min((size - done) as usize)];
            done += os(rustix::io::pwrite(file, piece, offset + done))? as u64;
        }
        Ok(())
    }

    fn opened(&self, step: &Step, dir: &Dir, name: &[u8]) -> Called {
        let kept = OFlags::ACCMODE | OFlags::TRUNC | OFlags::APPEND | OFlags::DIRECTORY;
        open(dir, name, OFlags::from_bits_retain(step.flags) & kept).map(drop)
    }

    fn on_file(&mut self, step: &Step, dir: &Dir, name: &[u8]) -> Called {
        let access = match &*step.op {
            "write" | "fallocate" => OFlags::WRONLY,
            _ => OFlags::RDONLY,
        };
        let file = open(dir, name, access)?;
        match &*step.op {
            "write" => self.write(&file, step.offset, step.size.min(PIECE as u64)),
            "read" => {
                let size = PIECE.min(step.size as usize);
                os(rustix::io::pread(&file, &mut self.buffer[..size], step.offset)).map(drop)
            }
            "fallocate" => {
                let flags = FallocateFlags::from_bits_retain(step.flags);
                os(fs::fallocate(&file, flags, step.offset, step.size))
            }
            // SEEK_DATA and SEEK_HOLE: the kernel does the others.
            "lseek" if step.flags == 3 => {
                os(fs::seek(&file, SeekFrom::Data(step.offset))).map(drop)
            }
            "lseek" => os(fs::seek(&file, SeekFrom::Hole(step.offset))).map(drop),
            _ if step.flags & 1 != 0 => os(fs::fdatasync(&file)),
            _ => os(fs::fsync(&file)),
        }
    }

    /// Attributes other than a user's own mean something to the kernel: they are not played.
    fn attribute(&self, step: &Step, dir: &Dir, name: &[u8]) -> Option<Called> {
        let attribute = &*step.text;
        if &*step.op != "listxattr" && !attribute.starts_with(b"user.") {
            return None;
        }
        let file = match open(dir, name, OFlags::RDONLY) {
            Ok(file) => file,
            Err(errno) => return Some(Err(errno)),
        };
        let mut value = vec![0x5a; (step.size as usize).min(64 << 10)];
        Some(match &*step.op {
            "setxattr" => {
                let flags = XattrFlags::from_bits_truncate(step.flags);
                os(fs::fsetxattr(&file, attribute, &value, flags))
            }
            "getxattr" => os(fs::fgetxattr(&file, attribute, &mut value)).map(drop),
            "removexattr" => os(fs::fremovexattr(&file, attribute)),
            _ => os(fs::flistxattr(&file, &mut value)).map(drop),
        })
    }
}

/// Returns whether a mode is that of a device.
fn is_device(mode: u32) -> bool {
    matches!(FileType::from_raw_mode(mode), FileType::CharacterDevice | FileType::BlockDevice)
}

fn made(step: &Step, dir: &Dir, name: &[u8]) -> Called {
    let mode = Mode::from_raw_mode(step.mode & 0o7777);
    match &*step.op {
        "mkdir" => os(fs::mkdirat(dir, name, mode)),
        "symlink" => os(fs::symlinkat(&*step.text, dir, name)),
        "mknod" => {
            let kind = FileType::from_raw_mode(step.mode);
            os(fs::mknodat(dir, name, kind, mode, step.size))
        }
        "tmpfile" => {
            let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
            os(fs::openat(dir, named(name), flags, mode)).map(drop)
        }
        _ => {
            let wish = OFlags::from_bits_retain(step.flags) & (OFlags::ACCMODE | OFlags::EXCL);
            let flags = wish | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            os(fs::openat(dir, name, flags, mode)).map(drop)
        }
    }
}

fn list(dir: &Dir, name: &[u8]) -> Called {
    let opened = open(dir, name, OFlags::RDONLY | OFlags::DIRECTORY)?;
    let mut room = Vec::with_capacity(LIST_BUFFER);
    let mut entries = RawDir::new(opened, room.spare_capacity_mut());
    while let Some(entry) = entries.next() {
        std::hint::black_box(os(entry)?.ino());
    }
    Ok(())
}

fn copy(step: &Step, at: &Place<'_, Player>, to: &Place<'_, Player>) -> Called {
    let from = open(&at.dir, at.name, OFlags::RDONLY)?;
    let into = open(&to.dir, to.name, OFlags::WRONLY)?;
    let (mut offset, mut at) = (step.offset, step.values[0].cast_unsigned());
    let len = (step.size as usize).min(1 << 30);
    os(fs::copy_file_range(&from, Some(&mut offset), &into, Some(&mut at), len)).map(drop)
}

fn set(step: &Step, dir: &Dir, name: &[u8]) -> Called {
    let Set { mode, uid, gid, size, times } = Set::of(step);
    if let Some(size) = size {
        os(fs::ftruncate(open(dir, name, OFlags::WRONLY)?, size))?;
    }
    if let Some(mode) = mode {
        // Not by name: `chmodat` follows a symlink.
        os(fs::fchmod(open(dir, name, OFlags::RDONLY)?, Mode::from_raw_mode(mode)))?;
    }
    if uid.is_some() || gid.is_some() {
        let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
        os(fs::chownat(dir, named(name), uid, gid, AtFlags::SYMLINK_NOFOLLOW))?;
    }
    if times != [None; 2] {
        let [last_access, last_modification] = times.map(|time| match time {
            None => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
            Some(When::Now) => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
            Some(When::At(tv_sec, nsec)) => Timespec { tv_sec, tv_nsec: nsec.into() },
        });
        let times = Timestamps { last_access, last_modification };
        os(fs::utimensat(dir, named(name), &times, AtFlags::SYMLINK_NOFOLLOW))?;
    }
    Ok(())
}
