//! The local end of a copy: system calls relative to open directories.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{self, AtFlags, CWD, Dir, Mode, OFlags, SeekFrom, Stat, Timespec, Timestamps};
use rustix::io::Errno;
use rustix::process::{Gid, Uid, getegid, geteuid};
use shoal::raw::{FileKind, Time};

use super::attributes::Held;
use super::side::{
    Attribute, Draft, Found, Holder, Id, Kept, Meta, Node, Outcome, SYNC_MARK, Side, is_dots,
    mode_kept,
};
use crate::location::join;
use crate::new_file::temporary;
use crate::text::printable;

/// Bytes of a mark of `shoal sync`, at most.
const MARK_MAX: usize = 1 << 10;
/// Entries looked at before they are copied.
const BATCH: usize = 256;

/// The local filesystem.
pub(crate) struct Local {
    uid: u32,
    gid: u32,
}

/// An open directory and the path it was reached by, from which hard links are made.
pub(crate) struct LocalDir {
    fd: OwnedFd,
    path: Vec<u8>,
}

impl Local {
    /// On behalf of the user of this process.
    pub(crate) fn new() -> Local {
        Local { uid: geteuid().as_raw(), gid: getegid().as_raw() }
    }

    /// Gives an open file or directory what it is to keep.
    fn finish(&self, fd: BorrowedFd<'_>, kept: &mut Kept<'_>) -> Outcome<()> {
        let meta = kept.meta;
        if self.is_root() {
            fs::fchown(fd, owner(meta), group(meta))?;
        }
        Held::Fd(fd).apply(kept)?;
        fs::fchmod(fd, Mode::from_raw_mode(self.mode(meta)))?;
        fs::futimens(fd, &times(meta))?;
        Ok(())
    }

    fn is_root(&self) -> bool {
        self.uid == 0
    }

    fn mode(&self, meta: &Meta) -> u32 {
        mode_kept(self.uid, self.gid, meta)
    }
}

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

const PATH: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

impl Side for Local {
    type Dir = LocalDir;
    type List = Dir;
    type File = OwnedFd;
    type Link = Vec<u8>;

    fn label(&self, path: &[u8]) -> String {
        printable(path).into_owned()
    }

    fn directory(&self, path: &[u8]) -> Outcome<LocalDir> {
        let opened = if path.is_empty() { b"." } else { path };
        Ok(LocalDir { fd: fs::open(opened, DIRECTORY, Mode::empty())?, path: path.to_vec() })
    }

    fn stat(&self, dir: &LocalDir, name: &[u8], follow: bool) -> Outcome<Meta> {
        Ok(meta(&fs::statat(&dir.fd, name, at_flags(follow))?))
    }

    fn enter(&self, dir: &LocalDir, name: &[u8], follow: bool) -> Outcome<LocalDir> {
        let nofollow = if follow { OFlags::empty() } else { OFlags::NOFOLLOW };
        let fd = fs::openat(&dir.fd, name, DIRECTORY | nofollow, Mode::empty())?;
        Ok(LocalDir { fd, path: join(&dir.path, name) })
    }

    fn list(&self, dir: &LocalDir) -> Outcome<Dir> {
        Ok(Dir::read_from(&dir.fd)?)
    }

    fn next(&self, dir: &LocalDir, list: &mut Dir) -> Outcome<Vec<Found>> {
        let mut batch = Vec::new();
        while batch.len() < BATCH
            && let Some(entry) = list.next()
        {
            let name = CStr::to_bytes(entry?.file_name()).to_vec();
            if !is_dots(&name) {
                let meta = self.stat(dir, &name, false);
                batch.push(Found { name, meta });
            }
        }
        Ok(batch)
    }

    fn readlink(&self, dir: &LocalDir, node: &Node) -> Outcome<Vec<u8>> {
        let target = fs::readlinkat(&dir.fd, node.name.as_slice(), Vec::new())?;
        Ok(target.into_bytes())
    }

    fn open(&self, dir: &LocalDir, node: &Node) -> Outcome<OwnedFd> {
        let nofollow = if node.followed { OFlags::empty() } else { OFlags::NOFOLLOW };
        // A file that has become a pipe meanwhile must not make us wait for a writer.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | nofollow;
        Ok(fs::openat(&dir.fd, node.name.as_slice(), flags, Mode::empty())?)
    }

    fn read(&self, file: &OwnedFd, offset: u64, buffer: &mut [u8]) -> Outcome<usize> {
        Ok(rustix::io::retry_on_intr(|| rustix::io::pread(file, &mut *buffer, offset))?)
    }

    fn attributes(&self, of: Holder<'_, OwnedFd, LocalDir>) -> Outcome<Vec<Attribute>> {
        match of {
            Holder::File(file) => Held::Fd(file.as_fd()).all(),
            Holder::Dir(dir) => Held::Fd(dir.fd.as_fd()).all(),
            Holder::Name(dir, node) => Held::name(dir.fd.as_fd(), &node.name).all(),
        }
    }

    fn data_after(&self, file: &OwnedFd, offset: u64) -> Outcome<Option<(u64, u64)>> {
        match fs::seek(file, SeekFrom::Data(offset)) {
            Ok(start) => Ok(Some((start, fs::seek(file, SeekFrom::Hole(start))?))),
            Err(Errno::NXIO) => Ok(None),
            // A filesystem that does not know: all is data, up to wherever the file ends.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(Some((offset, u64::MAX))),
            Err(error) => Err(error.into()),
        }
    }

    fn make_dir(&self, dir: &LocalDir, name: &[u8]) -> Outcome<LocalDir> {
        fs::mkdirat(&dir.fd, name, Mode::RWXU)?;
        self.enter(dir, name, false)
    }

    fn create(&self, dir: &LocalDir, name: &[u8]) -> Outcome<OwnedFd> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        Ok(fs::openat(&dir.fd, name, flags, Mode::RUSR | Mode::WUSR)?)
    }

    fn overwrite(&self, dir: &LocalDir, name: &[u8], _found: &Meta) -> Outcome<OwnedFd> {
        let flags = OFlags::WRONLY | OFlags::TRUNC | OFlags::CLOEXEC;
        Ok(fs::openat(&dir.fd, name, flags, Mode::empty())?)
    }

    fn replaces(&self, dir: &LocalDir, name: &[u8], found: &Meta) -> bool {
        let is_file = |meta: Meta| meta.kind == FileKind::Regular;
        (self.is_root() || self.uid == found.uid)
            && self.stat(dir, name, false).is_ok_and(is_file)
            && fs::accessat(&dir.fd, ".", fs::Access::WRITE_OK, AtFlags::empty()).is_ok()
    }

    fn write(&self, file: &OwnedFd, offset: u64, data: &[u8]) -> Outcome<usize> {
        Ok(rustix::io::retry_on_intr(|| rustix::io::pwrite(file, data, offset))?)
    }

    fn set_len(&self, file: &OwnedFd, len: u64) -> Outcome<()> {
        Ok(fs::ftruncate(file, len)?)
    }

    fn finish_file(&self, file: &OwnedFd, kept: &mut Kept<'_>) -> Outcome<()> {
        self.finish(file.as_fd(), kept)
    }

    fn finish_dir(&self, dir: &LocalDir, kept: &mut Kept<'_>) -> Outcome<()> {
        self.finish(dir.fd.as_fd(), kept)
    }

    fn symlink(&self, dir: &LocalDir, name: &[u8], to: &[u8], kept: &mut Kept<'_>) -> Outcome<()> {
        fs::symlinkat(to, &dir.fd, name)?;
        self.finish_name(dir, name, kept)
    }

    fn special(&self, dir: &LocalDir, name: &[u8], kept: &mut Kept<'_>) -> Outcome<()> {
        let meta = kept.meta;
        let kind = fs::FileType::from_raw_mode(meta.kind.mode_bits());
        let mode = Mode::RUSR | Mode::WUSR;
        fs::mknodat(&dir.fd, name, kind, mode, meta.device.into())?;
        self.finish_name(dir, name, kept)?;
        fs::chmodat(&dir.fd, name, Mode::from_raw_mode(self.mode(meta)), AtFlags::empty())?;
        Ok(())
    }

    fn remember(&self, dir: &LocalDir, name: &[u8]) -> Outcome<(Vec<u8>, Id)> {
        let made = meta(&fs::statat(&dir.fd, name, AtFlags::SYMLINK_NOFOLLOW)?);
        Ok((join(&dir.path, name), made.id))
    }

    fn link(&self, link: &Vec<u8>, dir: &LocalDir, name: &[u8]) -> Outcome<()> {
        Ok(fs::linkat(CWD, link.as_slice(), &dir.fd, name, AtFlags::empty())?)
    }

    fn remove(&self, dir: &LocalDir, name: &[u8]) -> Outcome<()> {
        Ok(fs::unlinkat(&dir.fd, name, AtFlags::empty())?)
    }

    fn link_name(
        &self,
        (from, old): (&LocalDir, &[u8]),
        to: &LocalDir,
        name: &[u8],
    ) -> Outcome<()> {
        Ok(fs::linkat(&from.fd, old, &to.fd, name, AtFlags::empty())?)
    }

    fn remove_dir(&self, dir: &LocalDir, name: &[u8]) -> Outcome<()> {
        Ok(fs::unlinkat(&dir.fd, name, AtFlags::REMOVEDIR)?)
    }

    fn draft(&self, dir: &LocalDir, name: &[u8]) -> Outcome<Draft<OwnedFd>> {
        let temporary = temporary(name);
        Ok(Draft { file: self.create(dir, &temporary)?, temporary })
    }

    fn publish(
        &self,
        draft: &Draft<OwnedFd>,
        dir: &LocalDir,
        name: &[u8],
        _replaces: bool,
    ) -> Outcome<()> {
        Ok(fs::renameat(&dir.fd, draft.temporary.as_slice(), &dir.fd, name)?)
    }

    fn close(&self, draft: Draft<OwnedFd>, dir: &LocalDir, is_published: bool) {
        if !is_published {
            // There is a failure, and it is what is reported.
            let _ = self.remove(dir, &draft.temporary);
        }
    }

    fn sync_mark(&self, dir: &LocalDir) -> Outcome<Option<Vec<u8>>> {
        let mut mark = vec![0; MARK_MAX];
        match fs::fgetxattr(&dir.fd, SYNC_MARK, &mut mark) {
            Ok(len) => {
                mark.truncate(len);
                Ok(Some(mark))
            }
            // What is longer is no mark.
            Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::RANGE) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn set_sync_mark(&self, dir: &LocalDir, mark: Option<&[u8]>) -> Outcome<()> {
        match mark {
            Some(mark) => {
                fs::syncfs(&dir.fd)?;
                Ok(fs::fsetxattr(&dir.fd, SYNC_MARK, mark, fs::XattrFlags::empty())?)
            }
            None => match fs::fremovexattr(&dir.fd, SYNC_MARK) {
                Err(error) if !matches!(error, Errno::NODATA | Errno::OPNOTSUPP) => {
                    Err(error.into())
                }
                _ => Ok(()),
            },
        }
    }

    fn is_inside(&self, dir: &LocalDir, id: Id) -> Outcome<bool> {
        let mut at = meta(&fs::fstat(&dir.fd)?).id;
        let mut open: Option<OwnedFd> = None;
        loop {
            if at == id {
                return Ok(true);
            }
            let above = fs::openat(open.as_ref().unwrap_or(&dir.fd), "..", PATH, Mode::empty())?;
            let next = meta(&fs::fstat(&above)?).id;
            if next == at {
                return Ok(false);
            }
            at = next;
            open = Some(above);
        }
    }
}

impl Local {
    /// Gives what cannot be opened what it is to keep, but for its mode.
    fn finish_name(&self, dir: &LocalDir, name: &[u8], kept: &mut Kept<'_>) -> Outcome<()> {
        let meta = kept.meta;
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        if self.is_root() {
            fs::chownat(&dir.fd, name, owner(meta), group(meta), flags)?;
        }
        Held::name(dir.fd.as_fd(), name).apply(kept)?;
        fs::utimensat(&dir.fd, name, &times(meta), flags)?;
        Ok(())
    }
}

/// Identity of the file at a path, if there is one.
pub(crate) fn identify(path: &[u8]) -> Option<Id> {
    fs::stat(path).ok().map(|stat| meta(&stat).id)
}

/// Identity of an open file.
pub(crate) fn identify_open(file: BorrowedFd<'_>) -> Option<Id> {
    fs::fstat(file).ok().map(|stat| meta(&stat).id)
}

fn at_flags(follow: bool) -> AtFlags {
    if follow { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW }
}

fn owner(meta: &Meta) -> Option<Uid> {
    Some(Uid::from_raw(meta.uid))
}

fn group(meta: &Meta) -> Option<Gid> {
    Some(Gid::from_raw(meta.gid))
}

fn times(meta: &Meta) -> Timestamps {
    let spec = |time: Time| Timespec { tv_sec: time.sec, tv_nsec: time.nsec.into() };
    Timestamps { last_access: spec(meta.atime), last_modification: spec(meta.mtime) }
}

fn meta(stat: &Stat) -> Meta {
    let time = |sec: i64, nsec: u64| Time { sec, nsec: nsec as u32 };
    Meta {
        // The kernel knows no other types.
        kind: FileKind::from_mode(stat.st_mode).unwrap_or(FileKind::Regular),
        mode: stat.st_mode & 0o7777,
        uid: stat.st_uid,
        gid: stat.st_gid,
        device: stat.st_rdev as u32,
        size: stat.st_size as u64,
        dense: stat.st_blocks as u64 * 512 >= stat.st_size as u64,
        nlink: u32::try_from(stat.st_nlink).unwrap_or(u32::MAX),
        atime: time(stat.st_atime, stat.st_atime_nsec),
        mtime: time(stat.st_mtime, stat.st_mtime_nsec),
        ctime: time(stat.st_ctime, stat.st_ctime_nsec),
        id: Id { filesystem: stat.st_dev, inode: stat.st_ino },
    }
}
