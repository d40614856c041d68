//! Operations as system calls below a directory of any mounted filesystem: the other way, beside
//! [`crate::call`], to do what an [`Op`] says.

use crate::exec::Answer;
use crate::op::{Op, Place, SLOTS, Target};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{
    self, AtFlags, CWD, Dir, FileType, Mode, OFlags, RenameFlags, Stat, XattrFlags, renameat_with,
};
use rustix::io::Errno;
use shoal::raw::Ino;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A directory, below which paths of operations are, and the files and directories that are open.
pub struct Files {
    top: PathBuf,
    slots: [Option<OwnedFd>; SLOTS],
}

/// An entry of a directory.
pub struct Entry {
    /// Name.
    pub name: Vec<u8>,
    /// Inode number.
    pub ino: u64,
    /// Set if it is a directory.
    pub dir: bool,
}

/// Returns whether attributes are those of a directory.
pub fn is_dir(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Directory
}

impl Files {
    /// Below this directory, with nothing open.
    pub fn below(top: &Path) -> Files {
        Files { top: top.to_owned(), slots: [const { None }; SLOTS] }
    }

    /// Opens what is at a path: as a path only, so that the inode stays and nothing is asked of the
    /// filesystem later, or for its contents.
    pub fn open_path(&mut self, slot: usize, path: &str, contents: bool) -> io::Result<()> {
        let how = if contents { OFlags::RDWR } else { OFlags::PATH };
        let flags = how | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        self.slots[slot] = Some(fs::openat(CWD, self.top.join(path), flags, Mode::empty())?);
        Ok(())
    }

    /// Reads by one call, which a file's end cuts short.
    pub fn read_at_once(&self, file: &Target, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        let read = self.file(file, OFlags::RDONLY)?.read_at(&mut bytes, offset)?;
        bytes.truncate(read);
        Ok(bytes)
    }

    /// The open file of a slot.
    fn slot(&self, slot: usize) -> io::Result<BorrowedFd<'_>> {
        Ok(self.slots[slot].as_ref().ok_or(Errno::BADF)?.as_fd())
    }

    fn target(&self, target: &Target) -> io::Result<(BorrowedFd<'_>, PathBuf)> {
        Ok(match target {
            Target::Slot(slot) => (self.slot(*slot)?, PathBuf::new()),
            Target::Path(path) => {
                // Nothing may lead out of the directory.
                assert!(!path.starts_with(b"/"), "a path from the root of the machine");
                (CWD, self.top.join(OsStr::from_bytes(path)))
            }
        })
    }

    fn place(&self, at: &Place) -> io::Result<(BorrowedFd<'_>, PathBuf)> {
        let (dir, path) = self.target(&at.dir)?;
        Ok((dir, path.join(OsStr::from_bytes(&at.name))))
    }

    /// Opens a file by path, or takes the one that is open.
    fn file(&self, target: &Target, flags: OFlags) -> io::Result<File> {
        Ok(match target {
            Target::Slot(slot) => File::from(self.slot(*slot)?.try_clone_to_owned()?),
            Target::Path(_) => {
                let (dir, path) = self.target(target)?;
                File::from(fs::openat(dir, path, flags | OFlags::CLOEXEC, Mode::empty())?)
            }
        })
    }

    /// Attributes of a target.
    pub fn stat(&self, target: &Target) -> io::Result<Stat> {
        let (dir, path) = self.target(target)?;
        Ok(fs::statat(dir, path, AtFlags::SYMLINK_NOFOLLOW | AtFlags::EMPTY_PATH)?)
    }

    /// Does what the operation says. With the answer, the attributes that were seen on the way.
    ///
    /// # Errors
    /// That of the system call.
    pub fn call(&mut self, op: &Op) -> io::Result<(Answer, Option<Stat>)> {
        let stat = match op {
            Op::Create { at, mode, .. } => {
                let (dir, name) = self.place(at)?;
                let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
                fs::fstat(fs::openat(dir, name, flags, Mode::from_raw_mode(*mode))?)?
            }
            Op::Lookup { at, .. } => {
                let (dir, name) = self.place(at)?;
                fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?
            }
            Op::Getattr { file } => return Ok((Answer::Unit, Some(self.stat(file)?))),
            Op::Read { file, offset, len } => {
                let file = self.file(file, OFlags::RDONLY)?;
                return read(&file, *offset, *len).map(|bytes| (Answer::Bytes(bytes), None));
            }
            _ => return self.change(op).map(|()| (Answer::Unit, None)),
        };
        Ok((Answer::Node(Ino(stat.st_ino)), Some(stat)))
    }

    fn change(&mut self, op: &Op) -> io::Result<()> {
        match op {
            Op::Mkdir { at, mode, .. } => {
                let (dir, name) = self.place(at)?;
                fs::mkdirat(dir, name, Mode::from_raw_mode(*mode))?;
            }
            Op::Unlink { at, .. } => {
                let (dir, name) = self.place(at)?;
                fs::unlinkat(dir, name, AtFlags::empty())?;
            }
            Op::Rmdir { at, .. } => {
                let (dir, name) = self.place(at)?;
                fs::unlinkat(dir, name, AtFlags::REMOVEDIR)?;
            }
            Op::RemoveTree { at, .. } => {
                // The program knows paths alone.
                assert!(matches!(at.dir, Target::Path(_)), "{op} by a handle");
                remove_tree(&self.place(at)?.1)?;
            }
            Op::Rename { from, to, flags, .. } => {
                let ((from_dir, from), (to_dir, to)) = (self.place(from)?, self.place(to)?);
                let mut how = RenameFlags::empty();
                how.set(RenameFlags::NOREPLACE, flags.noreplace);
                how.set(RenameFlags::EXCHANGE, flags.exchange);
                how.set(RenameFlags::WHITEOUT, flags.whiteout);
                renameat_with(from_dir, from, to_dir, to, how)?;
            }
            Op::Link { from, at, .. } => {
                let ((file, path), (dir, name)) = (self.target(from)?, self.place(at)?);
                fs::linkat(file, path, dir, name, AtFlags::EMPTY_PATH)?;
            }
            Op::Open { file, slot } => {
                self.slots[*slot] = Some(self.file(file, OFlags::RDWR)?.into());
            }
            Op::Close { slot } => self.slots[*slot] = None,
            Op::Write { file, offset, data, .. } => {
                self.file(file, OFlags::RDWR)?.write_all_at(&data.bytes(), *offset)?;
            }
            Op::Truncate { file, size, .. } => self.file(file, OFlags::RDWR)?.set_len(*size)?,
            Op::SetXattr { file, name, data, .. } => {
                let file = self.file(file, OFlags::RDONLY)?;
                fs::fsetxattr(file, name.as_slice(), &data.bytes(), XattrFlags::empty())?;
            }
            Op::Fsync { file, .. } => self.file(file, OFlags::RDONLY)?.sync_all()?,
            _ => unreachable!("{op} is no system call"),
        }
        Ok(())
    }

    /// Lists a directory. One that was removed has no entries.
    pub fn list(&self, dir: &Target) -> io::Result<Vec<Entry>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let (dir, path) = self.target(dir)?;
        let open = match fs::openat(dir, path.join("."), flags, Mode::empty()) {
            // It need not be opened any more.
            Err(Errno::NOENT) => return Ok(Vec::new()),
            other => other?,
        };
        let entry = |entry: Result<fs::DirEntry, Errno>| {
            let entry = entry?;
            let dir = entry.file_type() == FileType::Directory;
            Ok(Entry { name: entry.file_name().to_bytes().to_vec(), ino: entry.ino(), dir })
        };
        Dir::new(open)?.map(entry).collect()
    }
}

/// Reads until so many bytes are there, or the file ends.
fn read(file: &File, offset: u64, len: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; len as usize];
    let mut done = 0;
    while done < bytes.len() {
        match file.read_at(&mut bytes[done..], offset + done as u64)? {
            0 => break,
            n => done += n,
        }
    }
    bytes.truncate(done);
    Ok(bytes)
}

/// By another program: as a user would. What it says when a mount dies says nothing.
fn remove_tree(path: &Path) -> io::Result<()> {
    let done = Command::new("rm").arg("-r").arg(path).output()?;
    if done.status.success() {
        return Ok(());
    }
    match std::fs::symlink_metadata(path) {
        Ok(_) => Err(io::Error::other(String::from_utf8_lossy(&done.stderr).into_owned())),
        Err(e) => Err(e),
    }
}
