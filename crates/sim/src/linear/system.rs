//! Calls as system calls, below open directories.

use super::call::{At, Call, DIRS, HANDLES, Kind, Mode, NAMES, Reply, Seen};
use rustix::fd::OwnedFd;
use rustix::fs::{
    self, AtFlags, CWD, Dir, FileType, Mode as Bits, OFlags, RenameFlags, Stat, renameat_with,
};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use std::path::Path;

/// The handles of a history, open.
pub struct Handles(Vec<OwnedFd>);

/// Nanoseconds of a clock that all processes share.
pub fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

impl Handles {
    /// Paths of the handles below the top directory of a history.
    const PATHS: [&str; HANDLES] = ["a", "b", "a/z", "b/z", "a/x", "b/x"];

    /// Makes what a history begins with.
    pub fn make(top: &Path) -> Result<(), Errno> {
        fs::mkdir(top, Bits::RWXU)?;
        for (handle, path) in Self::PATHS.iter().enumerate() {
            if handle < DIRS {
                fs::mkdir(top.join(path), Bits::RWXU)?;
            } else {
                create(fs::openat(CWD, top, OFlags::PATH, Bits::empty())?, path)?;
            }
        }
        Ok(())
    }

    /// Opens it. As paths only: the inode stays, and nothing is asked of the server later.
    pub fn open(top: &Path) -> Result<Handles, Errno> {
        let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let open = |path| fs::openat(CWD, top.join(path), flags, Bits::empty());
        Self::PATHS.iter().map(open).collect::<Result<_, _>>().map(Handles)
    }

    /// Their numbers.
    pub fn inos(&self) -> Result<[u64; HANDLES], Errno> {
        let mut inos = [0; HANDLES];
        for (ino, handle) in inos.iter_mut().zip(&self.0) {
            *ino = fs::fstat(handle)?.st_ino;
        }
        Ok(inos)
    }

    fn place(&self, at: At) -> (&OwnedFd, &'static str) {
        (&self.0[usize::from(at.dir)], at.text())
    }

    /// Makes a call.
    pub fn call(&self, call: Call) -> Reply {
        self.make_call(call).unwrap_or_else(|errno| Reply::Failed(errno.raw_os_error()))
    }

    fn make_call(&self, call: Call) -> Result<Reply, Errno> {
        match call {
            Call::Create(at) => {
                let (dir, name) = self.place(at);
                create(dir, name).map(Reply::Found)
            }
            Call::Mkdir(at) => {
                let (dir, name) = self.place(at);
                fs::mkdirat(dir, name, Bits::RWXU).map(|()| Reply::Done)
            }
            Call::Unlink(at) => self.remove(at, AtFlags::empty()),
            Call::Rmdir(at) => self.remove(at, AtFlags::REMOVEDIR),
            Call::Rename(from, to, mode) => {
                let ((from_dir, from), (to_dir, to)) = (self.place(from), self.place(to));
                let flags = match mode {
                    Mode::Plain => RenameFlags::empty(),
                    Mode::NoReplace => RenameFlags::NOREPLACE,
                    Mode::Exchange => RenameFlags::EXCHANGE,
                };
                renameat_with(from_dir, from, to_dir, to, flags).map(|()| Reply::Done)
            }
            Call::Link(file, at) => {
                let (dir, name) = self.place(at);
                let file = &self.0[usize::from(file)];
                fs::linkat(file, "", dir, name, AtFlags::EMPTY_PATH).map(|()| Reply::Done)
            }
            Call::Lookup(at) => {
                let (dir, name) = self.place(at);
                let stat = fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
                Ok(Reply::Found(seen(&stat)))
            }
            Call::List(dir) => list(&self.0[usize::from(dir)]).map(Reply::Listed),
            Call::Stat(handle) => {
                let stat = fs::fstat(&self.0[usize::from(handle)])?;
                let entries = if usize::from(handle) < DIRS { stat.st_size as u64 } else { 0 };
                Ok(Reply::Attrs { links: stat.st_nlink as u32, entries })
            }
            Call::Probe(_) | Call::RemoveTree(_) => unreachable!("no system call"),
            Call::Write(..) | Call::Cut(..) | Call::Read(_) => {
                unreachable!("only under a scheduler")
            }
        }
    }

    fn remove(&self, at: At, flags: AtFlags) -> Result<Reply, Errno> {
        let (dir, name) = self.place(at);
        fs::unlinkat(dir, name, flags).map(|()| Reply::Done)
    }
}

fn create(dir: impl rustix::fd::AsFd, name: &str) -> Result<Seen, Errno> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
    let file = fs::openat(dir, name, flags, Bits::RUSR | Bits::WUSR)?;
    Ok(seen(&fs::fstat(&file)?))
}

fn seen(stat: &Stat) -> Seen {
    let dir = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
    Seen { kind: if dir { Kind::Dir } else { Kind::File }, ino: stat.st_ino, age: 0 }
}

fn list(dir: &OwnedFd) -> Result<[Option<Seen>; NAMES], Errno> {
    let mut entries = [None; NAMES];
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let open = match fs::openat(dir, ".", flags, Bits::empty()) {
        // A removed directory need not be opened any more.
        Err(Errno::NOENT) => return Ok(entries),
        other => other?,
    };
    for entry in Dir::new(open)? {
        let entry = entry?;
        let known = |name: &u8| At { dir: 0, name: *name }.text().as_bytes();
        let name = (0..NAMES as u8).find(|name| known(name) == entry.file_name().to_bytes());
        if let Some(name) = name {
            let dir = entry.file_type() == FileType::Directory;
            let kind = if dir { Kind::Dir } else { Kind::File };
            entries[usize::from(name)] = Some(Seen { kind, ino: entry.ino(), age: 0 });
        }
    }
    Ok(entries)
}
