//! What a program can do with a mount from outside: find its server, sync it, unmount it, ask for
//! the names of a file, remove a tree, look at counters and orphans, check it.

mod inspect;
mod scrub;

pub use inspect::{Orphans, orphans_of, read_only_reason_of, stats_of, trim};
pub use scrub::{ScrubStep, scrub_of};

use crate::mount::{code_of, refused, table, unmount_dir};
use crate::protocol::flags::{IOCTL_PARENTS, IOCTL_REMOVE_TREE, IOCTL_SERVER_PID, IOCTL_SYNC};
use crate::protocol::page::PAGE;
use crate::protocol::parents::{self, IS_END, IS_TOP, WANT_PATHS};
use crate::protocol::tree;
use crate::protocol::wire::{ParentsHead, TreeHead};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{AtFlags, Mode, OFlags, StatVfsMountFlags, statat};
use rustix::io::Errno as Os;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use shoal::{Code, Error, Generation, Ino, Result, TreeCheck};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use zerocopy::{FromBytes, IntoBytes};

/// How long at most a removed name that is still shown is waited for.
const FORGETTING_MAX: Duration = Duration::from_secs(60);

/// Whether a Shoal volume is mounted on `dir` (and not somewhere below or above it).
pub fn is_mounted(dir: &Path) -> bool {
    find(dir).is_ok()
}

/// Process that serves the mount on `dir`; `None`: there is no such mount, or it does not answer.
pub fn server_pid(dir: &Path) -> Option<u32> {
    let dir = find(dir).ok()?;
    open_dir(&dir).and_then(ask_pid).ok()
}

/// Unmounts `dir`. Returns when the kernel has let go of it; the server may still be busy writing
/// (see [`unmount_and_wait`]).
pub fn unmount(dir: &Path) -> Result<()> {
    take_down(&find(dir)?, false)
}

/// Detaches `dir` at once, also while files in it are in use; the mount ends with its last user.
pub fn unmount_lazy(dir: &Path) -> Result<()> {
    take_down(&find(dir)?, true)
}

/// Unmounts `dir` and waits until its server has ended: everything is on disk then, and the volume
/// can be opened by somebody else.
///
/// In the server's own process it does not wait, since that would be for ever: there
/// [`crate::Mount::wait`] tells when the mount has ended.
pub fn unmount_and_wait(dir: &Path) -> Result<()> {
    let dir = find(dir)?;
    // Before the mount is gone, since it is what tells us the server's number; and a descriptor
    // rather than the number, which may be somebody else's by the time we wait.
    let server = open_dir(&dir)
        .and_then(ask_pid)
        .ok()
        .filter(|pid| *pid != std::process::id())
        .and_then(watch);
    take_down(&dir, false)?;
    match server {
        Some(server) => wait_for_end(&server)
            .map_err(|error| refused(Code::Io, "cannot wait for the server's end", &error)),
        // Dead already, or in a pid namespace that we do not see.
        None => Ok(()),
    }
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

/// All names of a file in a mount.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Names {
    /// The file.
    pub ino: Ino,
    /// Its generation.
    pub generation: Generation,
    /// It is the top of the mount, which has no name in it.
    pub is_top: bool,
    /// One for each hard link.
    pub links: Vec<Link>,
}

/// One name of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Link {
    /// The directory that it is in.
    pub dir: Ino,
    /// Generation of that directory.
    pub generation: Generation,
    /// Path from the top of the mount; the name is its last component.
    pub path: Vec<u8>,
}

/// The ioctl's page, as the kernel copies it.
#[repr(C, align(8))]
struct Page([u8; PAGE]);

/// All names of the inode `ino` of the mount that `opened` is a file or directory of; `None`: of
/// the opened file itself.
///
/// # Errors
/// `EPERM` unless the caller is the superuser or the user who mounted, `ESTALE` when there is no
/// such inode, `EOPNOTSUPP` when the volume keeps no parent pointers, `ENOTTY` when this is no
/// mount of Shoal, `ENAMETOOLONG` for a path of more than 16,000 bytes.
pub fn names_of(opened: impl AsFd, ino: Option<Ino>) -> io::Result<Names> {
    if ino == Some(Ino(0)) {
        // In the page it would mean the opened file.
        return Err(Os::STALE.into());
    }
    let mut page = Page([0; PAGE]);
    let mut names =
        Names { ino: Ino(0), generation: Generation(0), is_top: false, links: Vec::new() };
    let mut cookie = 0;
    loop {
        let ask = ParentsHead {
            ino: ino.map_or(0, |ino| ino.0),
            generation: names.generation.0,
            flags: WANT_PATHS,
            cookie,
            ..ParentsHead::default()
        };
        // A page is longer than its head.
        let _ = ask.write_to_prefix(&mut page.0);
        ask_page::<IOCTL_PARENTS>(&opened, &mut page)?;
        let head = ParentsHead::read_from_prefix(&page.0).map_or(ask, |(head, _)| head);
        names.ino = Ino(head.ino);
        names.generation = Generation(head.generation);
        names.is_top = head.flags & IS_TOP != 0;
        names.links.extend(parents::records(&page.0).map(|(dir, generation, path)| Link {
            dir: Ino(dir),
            generation: Generation(generation),
            path: path.to_vec(),
        }));
        if head.flags & IS_END != 0 || head.cookie <= cookie {
            return Ok(names);
        }
        cookie = head.cookie;
    }
}

/// The ioctl's structure, as the kernel copies it.
#[repr(C, align(8))]
struct TreePage([u8; tree::SIZE]);

/// Removes what `name` in the directory `dir` of a mount is: a file, or a directory with all that
/// is below it, as one change. When it returns there is no such name; the space comes back behind
/// the call.
///
/// # Errors
/// Those of `unlinkat` for the name itself. With [`TreeCheck::Tree`] `EACCES` or `EPERM`, and
/// nothing removed, if the caller could not empty the tree name by name; with [`TreeCheck::Top`]
/// `EPERM` unless the caller is the superuser. `EBUSY` for a root, `EINVAL` for what is no name,
/// `ENOTTY` when this is no mount of Shoal, `EROFS` in a read-only one.
pub fn remove_tree(dir: impl AsFd, name: &[u8], check: TreeCheck) -> io::Result<()> {
    if rustix::fs::fstatvfs(&dir)?.f_flag.contains(StatVfsMountFlags::RDONLY) {
        // Of a read-only view the server does not know.
        return Err(Os::ROFS.into());
    }
    let len = u16::try_from(name.len()).map_err(|_| Os::NAMETOOLONG)?;
    let flags = if check == TreeCheck::Top { tree::TOP_ONLY } else { 0 };
    let mut page = TreePage([0; tree::SIZE]);
    let room = page.0.get_mut(tree::HEAD..tree::HEAD + name.len()).ok_or(Os::NAMETOOLONG)?;
    room.copy_from_slice(name);
    // The structure is longer than its head.
    let _ = TreeHead { flags, len, ..TreeHead::default() }.write_to_prefix(&mut page.0);
    // SAFETY: the ioctl reads and writes as many bytes as its number says: the structure's.
    let request = unsafe { rustix::ioctl::Updater::<IOCTL_REMOVE_TREE, TreePage>::new(&mut page) };
    // SAFETY: as above.
    unsafe { rustix::ioctl::ioctl(&dir, request)? };
    let head = TreeHead::read_from_prefix(&page.0).map_or_else(|_| TreeHead::default(), |it| it.0);
    if head.flags & tree::STILL_SHOWN != 0 {
        wait_until_forgotten(dir, name, head.ino);
    }
    Ok(())
}

/// Waits until a name that has been removed is not shown any more; it may mean something new.
fn wait_until_forgotten(dir: impl AsFd, name: &[u8], ino: u64) {
    let begun = Instant::now();
    while begun.elapsed() < FORGETTING_MAX
        && statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|found| found.st_ino == ino)
    {
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Whether an open file is in a mount of Shoal.
pub fn is_in_mount(opened: impl AsFd) -> bool {
    ask_pid(opened).is_ok()
}

/// Asks for a page by the ioctl with a number, which must be one of those that take a page.
fn ask_page<const NUMBER: u32>(opened: impl AsFd, page: &mut Page) -> io::Result<()> {
    const { assert!((NUMBER >> 16) & 0x3fff == PAGE as u32) };
    // SAFETY: the ioctl reads and writes as many bytes as its number says: a page's.
    let request = unsafe { rustix::ioctl::Updater::<NUMBER, Page>::new(page) };
    // SAFETY: as above.
    let () = unsafe { rustix::ioctl::ioctl(&opened, request)? };
    Ok(())
}

/// The path of `dir` in the list of mounts, if a Shoal volume is mounted there.
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

/// A descriptor that tells when process `pid` ends.
fn watch(pid: u32) -> Option<OwnedFd> {
    let pid = Pid::from_raw(i32::try_from(pid).ok()?)?;
    pidfd_open(pid, PidfdFlags::empty()).ok()
}

fn wait_for_end(process: &OwnedFd) -> io::Result<()> {
    let mut polled = [PollFd::from_borrowed_fd(process.as_fd(), PollFlags::IN)];
    loop {
        match poll(&mut polled, None) {
            Err(Os::INTR) => {}
            outcome => return outcome.map(drop).map_err(io::Error::from),
        }
    }
}

fn take_down(dir: &Path, lazy: bool) -> Result<()> {
    let what = format!("cannot unmount {}", dir.display());
    unmount_dir(dir, lazy).map_err(|error| match Os::from_io_error(&error) {
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
        for error in [unmount(&dir), unmount_and_wait(&dir), unmount_lazy(Path::new("/proc"))] {
            let text = error.unwrap_err().to_string();
            assert!(text.ends_with("no Shoal volume is mounted there"), "{text}");
        }
        let text = sync(&dir).unwrap_err().to_string();
        assert!(text.contains("not in a mounted Shoal volume"), "{text}");
    }
}
