//! Client of a mount: finds its server, syncs and unmounts it, asks for the names of a file,
//! removes a tree, lists in bulk, reads changes and makes them, reads counters and orphans, scrubs
//! it, makes and revokes tokens, sets and shows quotas.

mod facts;
mod inspect;
mod observe;
mod processes;
mod quota;
mod scrub;
mod share;
mod subvolume;
mod unmount;

pub use facts::{facts_of, remount, remount_read_only, set_label};
pub use inspect::{Orphans, orphans_of, read_only_reason_of, stats_of, trim};
pub use observe::{Group, Loads, Operation, Traced, Tracer, loads_of, operations_of};
pub use processes::{OtherMount, ServerProcess, servers_without_asking};
pub use quota::{QuotaFound, quota_of, quotas_of, remove_quota, set_quota};
pub use scrub::{ScrubStep, scrub_of};
pub use share::{Shared, revoke_tokens, share};
pub use subvolume::{delete_subvolume, make_subvolume, subvolumes_of};
pub use unmount::{
    Server, Unmount, Unmounted, unmount, unmount_and_wait, unmount_by_force, unmount_lazy,
};

use crate::mount::{code_of, refused, unmount_dir};
use crate::protocol::control::*;
use crate::protocol::flags::{IOCTL_CONTROL, IOCTL_SERVER_PID, IOCTL_SYNC};
use crate::protocol::wire::ControlHead;
use crate::table;
use rustix::fs::{AtFlags, Mode, OFlags, StatVfsMountFlags, StatxFlags, makedev, statat, statx};
use rustix::io::Errno as Os;
use shoal::raw::{Code, Error, Generation, Ino, Result, TreeCheck};
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};
use zerocopy::{FromBytes, IntoBytes};

/// Longest wait for a removed name to disappear.
const FORGETTING_MAX: Duration = Duration::from_secs(60);

/// Returns whether a Shoal volume is mounted on `dir` (and not somewhere below or above it).
pub fn is_mounted(dir: &Path) -> bool {
    find(dir).is_ok()
}

/// Returns the mounted volumes: where, and the source.
pub fn mounts() -> io::Result<Vec<(PathBuf, OsString)>> {
    Ok(table::ours()?.into_iter().map(|entry| (entry.dir, entry.source)).collect())
}

/// Returns the mount of Shoal that a path is in: its directory and source.
pub fn mount_above(path: &Path) -> io::Result<Option<(PathBuf, OsString)>> {
    let path = table::canonical(path)?;
    let above = mounts()?.into_iter().filter(|(dir, _)| path.starts_with(dir));
    Ok(above.max_by_key(|(dir, _)| dir.as_os_str().len()))
}

/// Returns the process that serves the mount on `dir`; `None`: there is no such mount, or it does
/// not answer.
pub fn server_pid(dir: &Path) -> Option<u32> {
    let dir = find(dir).ok()?;
    open_dir(&dir).and_then(ask_pid).ok()
}

/// Makes everything acknowledged so far durable on the volume mounted on or above `dir`.
pub fn sync(dir: &Path) -> Result<()> {
    let what = format!("cannot sync {}", dir.display());
    let opened = open_dir(dir).map_err(|error| refused(code_of(&error), &what, &error))?;
    // SAFETY: the ioctl has no argument.
    let request = unsafe { rustix::ioctl::NoArg::<IOCTL_SYNC>::new() };
    // SAFETY: as above; it touches no memory of ours.
    match unsafe { rustix::ioctl::ioctl(&opened, request) } {
        Ok(()) => Ok(()),
        Err(Os::NOTTY | Os::INVAL | Os::NOSYS | Os::OPNOTSUPP) => {
            Err(Error::refused(Code::Invalid, format!("{what}: not in a mounted Shoal volume")))
        }
        Err(os) => Err(refused(code_of(&os.into()), &what, &os.into())),
    }
}

/// The names of a file in a mount.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Names {
    /// The file.
    pub ino: Ino,
    /// Its generation.
    pub generation: Generation,
    /// It is the top of the mount, which has no name in it.
    pub is_top: bool,
    /// Links, one for each name.
    pub links: Vec<Link>,
}

/// A name of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Link {
    /// Directory of the name.
    pub dir: Ino,
    /// Generation of that directory.
    pub generation: Generation,
    /// Path from the top of the mount; the name is its last component.
    pub path: Vec<u8>,
}

/// Returns the names of the inode `ino` of the mount that `opened` is in; `None`: of the opened
/// file itself.
///
/// # Errors
/// `EPERM` unless the caller is the superuser or the user who mounted, `ESTALE` when there is no
/// such inode, `EOPNOTSUPP` when the volume keeps no parent pointers, `ENOTTY` when this is no
/// mount of Shoal, `ENAMETOOLONG` for a path of more than 16,000 bytes.
pub fn names_of(opened: impl AsFd, ino: Option<Ino>) -> io::Result<Names> {
    if ino == Some(Ino(0)) {
        // In a request 0 means the opened file.
        return Err(Os::STALE.into());
    }
    let mut links = Vec::new();
    let mut call = Call::new(Kind::Names, PATHS);
    call.head.numbers[0] = ino.map_or(0, |ino| ino.0);
    call.list(opened, &mut |entry| {
        let ([dir, generation, _], [path, _]) = (entry.numbers, entry.texts);
        let generation = Generation(generation as u32);
        links.push(Link { dir: Ino(dir), generation, path: path.to_vec() });
    })?;
    let ([ino, generation, ..], is_top) = (call.head.numbers, call.head.flags & TOP != 0);
    Ok(Names { ino: Ino(ino), generation: Generation(generation as u32), is_top, links })
}

/// Removes `name` in the directory `dir` of a mount: a file, or a directory with everything below
/// it, as one change. On return there is no such name; the space is freed in the background.
///
/// # Errors
/// Those of `unlinkat` for the name itself. With [`TreeCheck::Tree`] `EACCES` or `EPERM`, and
/// nothing removed, if the caller could not empty the tree name by name; with [`TreeCheck::Top`]
/// `EPERM` unless the caller is the superuser. `EBUSY` for a subvolume, `EINVAL` for an invalid
/// name, `ENOTTY` when this is no mount of Shoal, `EROFS` in a read-only one.
pub fn remove_tree(dir: impl AsFd, name: &[u8], check: TreeCheck) -> io::Result<()> {
    if rustix::fs::fstatvfs(&dir)?.f_flag.contains(StatVfsMountFlags::RDONLY) {
        // The server does not know of a read-only view.
        return Err(Os::ROFS.into());
    }
    let mut call = Call::new(Kind::RemoveTree, if check == TreeCheck::Top { TOP_ONLY } else { 0 });
    call.name(name)?;
    call.send(&dir)?;
    if call.head.flags & STILL_SHOWN != 0 {
        wait_until_forgotten(dir, name, call.head.numbers[0]);
    }
    Ok(())
}

/// Waits until a removed name is not shown any more; it may name a new file by then.
fn wait_until_forgotten(dir: impl AsFd, name: &[u8], ino: u64) {
    let begun = Instant::now();
    while begun.elapsed() < FORGETTING_MAX
        && statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|found| found.st_ino == ino)
    {
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A place in a mount of Shoal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MountPlace {
    /// Number of the mount's filesystem (`st_dev`).
    pub device: u64,
    /// Path from the top of the mount; empty for the top. `None`: it cannot be told, or the mount
    /// shows other owners here than it has.
    pub path: Option<Vec<u8>>,
    /// Nothing may be changed by this path.
    pub is_read_only: bool,
}

/// Returns the place of an open file or directory, also of one that was opened by `O_PATH`. `None`:
/// it is in no mount of Shoal. The server is not asked.
///
/// # Errors
/// Those of `statx`, and of reading `/proc`.
pub fn place_of(opened: impl AsFd) -> io::Result<Option<MountPlace>> {
    let found = statx(&opened, "", AtFlags::EMPTY_PATH, StatxFlags::TYPE)?;
    let (major, minor) = (found.stx_dev_major, found.stx_dev_minor);
    let mounts = table::of_device(major, minor)?;
    if mounts.is_empty() {
        return Ok(None);
    }
    let link = format!("/proc/self/fd/{}", opened.as_fd().as_raw_fd());
    let found = std::fs::read_link(link).ok().and_then(|path| {
        let above = mounts.iter().filter(|mount| path.starts_with(&mount.dir));
        let mount = above.max_by_key(|mount| mount.dir.as_os_str().len())?;
        let below = mount.root.join(path.strip_prefix(&mount.dir).ok()?);
        let below = below.strip_prefix("/").unwrap_or(&below).as_os_str().as_bytes().to_vec();
        Some(((!mount.is_mapped).then_some(below), mount.is_read_only_here))
    });
    let (path, is_read_only) = found.unwrap_or((None, true));
    Ok(Some(MountPlace { device: makedev(major, minor), path, is_read_only }))
}

/// Returns whether an open file is in a mount of Shoal.
pub fn is_in_mount(opened: impl AsFd) -> bool {
    ask_pid(opened).is_ok()
}

/// The page of a control ioctl, as the kernel copies it.
#[repr(C, align(8))]
struct Page([u8; PAGE]);

/// A request to the server of a mount; after [`Call::send`] its answer.
struct Call {
    head: ControlHead,
    flags: u32,
    page: Page,
}

impl Call {
    fn new(kind: Kind, flags: u32) -> Call {
        let kind = kind as u16;
        let head = ControlHead { version: VERSION, kind, flags, ..ControlHead::default() };
        Call { head, flags, page: Page([0; PAGE]) }
    }

    /// Puts the name of the request.
    fn name(&mut self, name: &[u8]) -> io::Result<()> {
        let start = size_of::<ControlHead>();
        let room = self.page.0.get_mut(start..start + name.len()).ok_or(Os::NAMETOOLONG)?;
        room.copy_from_slice(name);
        self.head.len = name.len() as u32;
        Ok(())
    }

    /// Sends the request, and replaces the head by that of the answer.
    fn send(&mut self, opened: impl AsFd) -> io::Result<()> {
        const { assert!((IOCTL_CONTROL >> 16) & 0x3fff == PAGE as u32) };
        // A page is longer than its head.
        let _ = self.head.write_to_prefix(&mut self.page.0);
        // SAFETY: the ioctl reads and writes as many bytes as its number says: a page's.
        let request = unsafe { rustix::ioctl::Updater::<IOCTL_CONTROL, Page>::new(&mut self.page) };
        // SAFETY: as above.
        let () = unsafe { rustix::ioctl::ioctl(&opened, request)? };
        self.head = ControlHead::read_from_prefix(&self.page.0).map_or(self.head, |(head, _)| head);
        Ok(())
    }

    /// Sends requests until the list has ended, and passes the entries to `each`. The head is that
    /// of the last answer then.
    fn list(&mut self, opened: impl AsFd, each: &mut dyn FnMut(Entry<'_>)) -> io::Result<()> {
        loop {
            let [before, ..] = self.head.cursor;
            self.send(&opened)?;
            entries(&self.page.0).for_each(&mut *each);
            if self.head.flags & END != 0 || self.head.cursor[0] <= before {
                return Ok(());
            }
            (self.head.flags, self.head.count) = (self.flags, 0);
        }
    }
}

/// Returns the path of `dir` in the list of mounts, if a Shoal volume is mounted there.
fn find(dir: &Path) -> Result<PathBuf> {
    let shown = dir.display();
    let path = table::canonical(dir)
        .map_err(|error| refused(code_of(&error), &shown.to_string(), &error))?;
    match table::mount_at(&path) {
        Ok(Some(entry)) if entry.fs_type == table::FS_TYPE => Ok(path),
        _ => {
            Err(Error::refused(Code::Invalid, format!("{shown}: no Shoal volume is mounted there")))
        }
    }
}

fn open_dir(dir: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(dir, flags, Mode::empty())?)
}

fn ask_pid(opened: impl AsFd) -> io::Result<u32> {
    // SAFETY: the ioctl writes a u32 through its pointer argument, which is what a getter passes.
    let request = unsafe { rustix::ioctl::Getter::<IOCTL_SERVER_PID, u32>::new() };
    // SAFETY: as above.
    Ok(unsafe { rustix::ioctl::ioctl(&opened, request)? })
}

/// Time for which files in a mount must be in use before it counts as busy. A program that looks
/// through the files of all processes refers to each for an instant.
const BUSY_FOR: Duration = Duration::from_millis(200);
/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(10);

fn is_busy(error: &io::Error) -> bool {
    Os::from_io_error(error) == Some(Os::BUSY)
}

fn take_down(dir: &Path, lazy: bool) -> Result<()> {
    let what = format!("cannot unmount {}", dir.display());
    let begun = Instant::now();
    let done = loop {
        match unmount_dir(dir, lazy) {
            Err(error) if is_busy(&error) && begun.elapsed() < BUSY_FOR => thread::sleep(PAUSE),
            done => break done,
        }
    };
    done.map_err(|error| match Os::from_io_error(&error) {
        Some(Os::BUSY) => {
            Error::refused(Code::Busy, format!("{what}: files or directories in it are in use"))
        }
        _ => refused(code_of(&error), &what, &error),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_a_mount_is_refused() {
        let dir = std::env::temp_dir();
        assert!(!is_mounted(&dir));
        assert_eq!(server_pid(&dir), None);
        let text = sync(&dir).unwrap_err().to_string();
        assert!(text.contains("not in a mounted Shoal volume"), "{text}");
    }
}
