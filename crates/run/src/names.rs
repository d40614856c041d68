//! Calls by path.

use crate::answer::{self, Answer, answer};
use crate::files::{self, File};
use crate::kernel::{self, Errno};
use crate::mounts::Served;
use crate::place::{self, Place, open_file, place};
use crate::state::{Counted, count};
use shoal_engine::{Attr, Code, FileKind, Ino, RenameFlags, SetAttr, SetTime, Time, XattrFlags};
use shoal_session::{Calls, How, Node};
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

/// Flags of an opening that a session has, or that mean nothing for its files.
const KNOWN: i32 = libc::O_ACCMODE
    | libc::O_CREAT
    | libc::O_EXCL
    | libc::O_TRUNC
    | libc::O_APPEND
    | libc::O_CLOEXEC
    | libc::O_NOCTTY
    | libc::O_NONBLOCK
    | libc::O_NOFOLLOW
    | libc::O_DIRECTORY
    | libc::O_PATH
    | LARGEFILE;
/// `O_LARGEFILE`, which the C library has as 0 where all files may be large, and old programs have
/// not.
pub(crate) const LARGEFILE: i32 = match cfg!(target_arch = "aarch64") {
    true => 0o400_000,
    false => 0o100_000,
};
/// Flags for the opening alone, which `F_GETFL` does not show.
const FOR_OPENING: i32 =
    libc::O_CREAT | libc::O_EXCL | libc::O_TRUNC | libc::O_CLOEXEC | libc::O_NOCTTY;
/// Permission to list a directory.
const LIST: u32 = 4;

/// Makes a call at the place that a path leads to, and counts it.
fn at<T>(
    what: Counted,
    (dir, path): (i32, &[u8]),
    call: impl FnOnce(&Place<'_>, &Served) -> Answer<T>,
) -> Answer<T> {
    let place = place(dir, path)?;
    let served = place.served()?;
    let mut answered = call(&place, served);
    if answered.is_none() && place.is_gone() {
        answered = Some(Err(libc::ENOENT));
    }
    count(what, answered.is_some());
    answered
}

/// Attributes of what a place leads to.
fn find_at(place: &Place<'_>, served: &Served, follow: bool) -> Answer<Attr> {
    match served.copies.find(place, &served.remote, follow) {
        Some(found) => Some(found.ok_or(libc::ENOENT)),
        None => {
            let find = |dir, path: &[u8]| served.remote.find(served.who(), dir, path, follow);
            answer(place.read(served, find, drop)?)
        }
    }
}

/// Attributes of an open file.
fn find_file(what: Counted, fd: i32) -> Answer<(Attr, u64)> {
    let file = files::get(fd)?;
    let served = file.served()?;
    let copied = match file.is_dir {
        true => served.copies.attr(&served.remote, Ino(file.ino)),
        false => file.attr(served),
    };
    let found = match copied {
        Some(attr) => Ok(attr),
        None if file.is_gone() => return Some(Err(libc::ESTALE)),
        None => served.remote.attr(served.who(), file.node()?),
    };
    count(what, found.is_ok());
    answer(found.map(|attr| (attr, file.mount.device)))
}

/// Attributes of what a path leads to.
fn find(at_path: (i32, &[u8]), follow: bool) -> Answer<(Attr, u64)> {
    at(Counted::stat, at_path, |place, served| {
        // The kernel tells more of the top of a mount.
        if place.is_top() {
            return None;
        }
        find_at(place, served, follow).map(|found| found.map(|attr| (attr, place.mount.device)))
    })
}

/// As `fstatat`.
pub(crate) fn stat(dir: i32, path: &[u8], flags: i32) -> Answer<libc::stat> {
    let known = libc::AT_SYMLINK_NOFOLLOW | libc::AT_NO_AUTOMOUNT | libc::AT_EMPTY_PATH;
    if flags & !known != 0 {
        return None;
    }
    if path.is_empty() {
        return if flags & libc::AT_EMPTY_PATH != 0 { stat_file(dir) } else { None };
    }
    let found = find((dir, path), flags & libc::AT_SYMLINK_NOFOLLOW == 0)?;
    Some(found.map(|(attr, device)| answer::stat(&attr, device)))
}

/// As `fstat`.
pub(crate) fn stat_file(fd: i32) -> Answer<libc::stat> {
    let found = find_file(Counted::stat, fd)?;
    Some(found.map(|(attr, device)| answer::stat(&attr, device)))
}

/// As `statx`.
pub(crate) fn statx(dir: i32, path: &[u8], flags: i32, mask: u32) -> Answer<libc::statx> {
    let known = libc::AT_SYMLINK_NOFOLLOW
        | libc::AT_NO_AUTOMOUNT
        | libc::AT_EMPTY_PATH
        | libc::AT_STATX_FORCE_SYNC
        | libc::AT_STATX_DONT_SYNC;
    // The number of the mount, the geometry of direct reads: the kernel's.
    let fields = libc::STATX_BASIC_STATS | libc::STATX_BTIME;
    if flags & !known != 0 || mask & !fields != 0 {
        return None;
    }
    if path.is_empty() {
        if flags & libc::AT_EMPTY_PATH == 0 {
            return None;
        }
        let found = find_file(Counted::statx, dir)?;
        return Some(found.map(|(attr, device)| answer::statx(&attr, device)));
    }
    let found = find((dir, path), flags & libc::AT_SYMLINK_NOFOLLOW == 0)?;
    Some(found.map(|(attr, device)| answer::statx(&attr, device)))
}

/// As `openat`.
pub(crate) fn open(dir: i32, path: &[u8], flags: i32, mode: u32) -> Answer<i32> {
    let access = flags & libc::O_ACCMODE;
    // A file that is opened for neither has special meanings, and one that is a place alone can be
    // anything but a directory, too.
    let is_place = flags & libc::O_PATH != 0;
    if flags & !KNOWN != 0
        || access == libc::O_ACCMODE
        || is_place && flags & libc::O_DIRECTORY == 0
    {
        return None;
    }
    let writes = access != libc::O_RDONLY;
    // A limit of the file's size is the kernel's to keep.
    if writes && kernel::size_max() != u64::MAX {
        return None;
    }
    // What is opened so is a place to begin other paths at: those of the kernel's would be its too.
    if flags & libc::O_DIRECTORY != 0 {
        place::begin(dir, path);
    }
    at(Counted::open, (dir, path), |place, served| {
        let path = place.absolute();
        let makes_for_others = flags & libc::O_CREAT != 0
            && !may_open(served, (mode & !served.maker().umask) >> 6, flags);
        if path.len() >= libc::PATH_MAX as usize || makes_for_others {
            return None;
        }
        let opened = match flags & libc::O_DIRECTORY != 0 {
            true if writes || flags & libc::O_CREAT != 0 => return None,
            true => open_dir(place, served, flags),
            false => open_regular(place, served, flags, mode),
        }?;
        let Opened { node, known, attr } = match opened {
            Ok(opened) => opened,
            Err(errno) => return Some(Err(errno)),
        };
        let is_dir = attr.kind == FileKind::Directory;
        let parent = if is_dir { parent_of(place, served, &attr) } else { 0 };
        let is_new = node.get().is_none();
        let path_known = if is_new && place.has_path(served, known) { known } else { 0 };
        let file = File {
            mount: place.mount.clone(),
            node,
            path_known: path_known.into(),
            known,
            attr,
            ino: attr.ino.0,
            parent,
            is_dir,
            flags: flags & !FOR_OPENING | LARGEFILE,
            position: 0.into(),
            path,
        };
        if !may_reopen(served, &attr, flags) {
            // A list of access that new files inherit has made it so: the kernel makes it again.
            if flags & libc::O_EXCL != 0 {
                let _ = served.remote.unlink(served.who(), place.dir()?, &place.path);
            }
            return None;
        }
        Some(files::add(file, flags & libc::O_CLOEXEC != 0))
    })
}

/// Returns whether a file could be opened by the mount later, as it was opened now: the kernel has
/// only its mode.
fn may_reopen(served: &Served, attr: &Attr, flags: i32) -> bool {
    let who = served.who();
    let shift = match () {
        () if who.uid == attr.uid => 6,
        () if who.in_group(attr.gid) => 3,
        () => 0,
    };
    may_open(served, attr.mode >> shift, flags)
}

/// Returns whether a user that these three bits of a mode are for may open the file.
fn may_open(served: &Served, bits: u32, flags: i32) -> bool {
    let wanted = match flags & libc::O_ACCMODE {
        libc::O_RDONLY => 4,
        libc::O_WRONLY => 2,
        _ => 6,
    };
    served.who().uid == 0 || bits & wanted == wanted
}

/// A file or directory that was opened.
struct Opened {
    node: OnceLock<Node>,
    /// As of a [`File`].
    known: u64,
    attr: Attr,
}

impl Opened {
    fn of(opened: shoal_session::Opened, known: Option<u64>) -> Opened {
        let known = known.unwrap_or(0);
        Opened { node: opened.node.into(), known, attr: opened.attr }
    }
}

fn open_dir(place: &Place<'_>, served: &Served, flags: i32) -> Answer<Opened> {
    let who = served.who();
    if let Some((attr, known)) = served.copies.open_dir(place, &served.remote) {
        return Some(Ok(Opened { node: OnceLock::new(), known, attr }));
    }
    // A symlink is followed by the call below.
    if flags & libc::O_NOFOLLOW != 0 {
        match find_at(place, served, false)? {
            Ok(attr) if attr.kind == FileKind::Directory => {}
            Ok(_) => return None,
            Err(errno) => return Some(Err(errno)),
        }
    }
    let opened = match answer(served.remote.open_dir(who, place.dir()?, &place.path))? {
        Ok(opened) => opened,
        Err(errno) => return Some(Err(errno)),
    };
    let is_place = flags & libc::O_PATH != 0;
    if who.uid != 0 && !is_place && served.remote.access(who, opened.node, b"", LIST).is_err() {
        let _ = served.remote.close(who, opened.node);
        return None;
    }
    Some(Ok(Opened::of(opened, None)))
}

/// Opens what is most probably a regular file.
fn open_regular(place: &Place<'_>, served: &Served, flags: i32, mode: u32) -> Answer<Opened> {
    let access = flags & libc::O_ACCMODE;
    let (create, new) = (flags & libc::O_CREAT != 0, flags & libc::O_EXCL != 0);
    let how = How {
        read: access != libc::O_WRONLY,
        write: access != libc::O_RDONLY,
        append: flags & libc::O_APPEND != 0,
        truncate: flags & libc::O_TRUNC != 0,
        create,
        create_new: create && new,
        mode: mode & 0o7777,
    };
    // Of a name that must not be a symlink: what is there, to be compared with what is opened.
    let mut seen = None;
    if flags & libc::O_NOFOLLOW != 0 && !how.create_new {
        match find_at(place, served, false)? {
            Ok(attr) if matches!(attr.kind, FileKind::Regular | FileKind::Directory) => {
                seen = Some(attr.ino);
            }
            Err(libc::ENOENT) if !create => return Some(Err(libc::ENOENT)),
            _ => return None,
        }
    }
    // For others than the superuser the kernel has rules of its own on files of others in
    // directories for all (protected_regular).
    if create && !new && served.who().uid != 0 {
        let found = find_at(place, served, true);
        if found.is_some_and(|found| found.is_ok_and(|attr| attr.uid != served.who().uid)) {
            return None;
        }
    }
    let who = if create { &served.maker() } else { served.who() };
    let open = |dir, path: &[u8]| served.remote.open_file(who, dir, path, how);
    let close = |opened: shoal_session::Opened| {
        let _ = served.remote.close(who, opened.node);
    };
    let known = served.copies.number(&served.remote).filter(|_| !how.write && !create);
    let opened = match how.write || create {
        true => open(place.dir()?, &place.path),
        false => place.read(served, open, close)?,
    };
    let opened = match opened {
        Err(error) if error.is(Code::IsDirectory) && !how.write && !create => {
            return open_dir(place, served, flags);
        }
        opened => match answer(opened)? {
            Ok(opened) => opened,
            Err(errno) => return Some(Err(errno)),
        },
    };
    if seen.is_some_and(|ino| ino != opened.attr.ino) {
        let _ = served.remote.close(who, opened.node);
        return None;
    }
    Some(Ok(Opened::of(opened, known)))
}

/// Inode number of the directory above another one.
fn parent_of(place: &Place<'_>, served: &Served, attr: &Attr) -> u64 {
    if attr.ino == served.top_ino {
        return attr.ino.0;
    }
    let plain = !place.path.contains(&b'/') && !matches!(&*place.path, b"." | b"..");
    if plain && attr.nlink > 0 && place.path.first() != Some(&b'.') {
        return place.dir_ino;
    }
    if let Some(parent) = place.above().filter(|_| *place.path == *b"." && attr.nlink > 0) {
        return parent;
    }
    let above = place.absolute();
    let rest = above.get(place.mount.point.len() + 1..).unwrap_or_default();
    let Some(cut) = rest.iter().rposition(|byte| *byte == b'/') else { return served.top_ino.0 };
    if let Some(ino) = served.copies.ino_of(&served.remote, served.top_ino.0, &rest[..cut]) {
        return ino;
    }
    let found = served.remote.find(served.who(), served.top, &rest[..cut], true);
    found.map_or(attr.ino.0, |above| above.ino.0)
}

/// As `faccessat` with `AT_EACCESS`, which is the same for a process that has one user.
pub(crate) fn access(dir: i32, path: &[u8], mask: i32) -> Answer<()> {
    at(Counted::access, (dir, path), |place, served| {
        let mask = u32::try_from(mask).ok()?;
        if mask == 0 {
            return find_at(place, served, true).map(|found| found.map(drop));
        }
        let may = |dir, path: &[u8]| served.remote.access(served.who(), dir, path, mask);
        answer(place.read(served, may, drop)?)
    })
}

/// As `unlinkat`.
pub(crate) fn unlink(dir: i32, path: &[u8], flags: i32) -> Answer<()> {
    if flags & !libc::AT_REMOVEDIR != 0 {
        return None;
    }
    at(Counted::unlink, (dir, path), |place, served| {
        let is_plain = !place.path.contains(&b'/');
        // The kernel knows it still, most probably.
        if is_plain && served.kernels.load(Ordering::Relaxed) == place.dir_ino {
            return None;
        }
        let (who, remote) = (&served.remover(), &served.remote);
        let done = match flags & libc::AT_REMOVEDIR {
            0 => {
                settle_before_removal();
                remote.unlink(who, place.dir()?, &place.path)
            }
            _ => remote.remove_dir(who, place.dir()?, &place.path),
        };
        if is_plain && done.as_ref().is_err_and(|error| error.is(Code::Busy)) {
            served.kernels.store(place.dir_ino, Ordering::Relaxed);
        }
        answer(done)
    })
}

/// A file without a name, or of a mode that forbids it, cannot be opened by the mount later: what
/// this program has open becomes the mount's before. Directories are opened by whoever walks a tree
/// to remove it, and need no more than their nodes.
fn settle_before_removal() {
    if files::any() {
        for fd in files::between(0, u32::MAX) {
            if files::get(fd).is_some_and(|file| !file.is_dir) {
                let _ = files::settle(fd);
            }
        }
    }
}

/// As `renameat2`.
pub(crate) fn rename(from: (i32, &[u8]), to: (i32, &[u8]), flags: u32) -> Answer<()> {
    let how = RenameFlags {
        noreplace: flags & libc::RENAME_NOREPLACE != 0,
        exchange: flags & libc::RENAME_EXCHANGE != 0,
        whiteout: false,
    };
    if flags & !(libc::RENAME_NOREPLACE | libc::RENAME_EXCHANGE) != 0 {
        return None;
    }
    let to = place(to.0, to.1)?;
    at(Counted::rename, from, |place, served| {
        if place.mount.device != to.mount.device {
            return None;
        }
        let remote = &served.remote;
        // A directory may be the working directory of a program, whose path the kernel knows by
        // its own names alone: it must do that itself.
        for (dir, path) in [(place.dir()?, &place.path), (to.dir()?, &to.path)] {
            let found = remote.find(served.who(), dir, path, false);
            if found.is_ok_and(|attr| attr.kind == FileKind::Directory) {
                return None;
            }
            if !how.exchange {
                break;
            }
        }
        settle_before_removal();
        answer(remote.rename(
            &served.remover(),
            place.dir()?,
            &place.path,
            to.dir()?,
            &to.path,
            how,
        ))
    })
}

/// As `mkdirat`.
pub(crate) fn mkdir(dir: i32, path: &[u8], mode: u32) -> Answer<()> {
    at(Counted::mkdir, (dir, path), |place, served| {
        let who = served.maker();
        let made = answer(served.remote.make_dir(&who, place.dir()?, &place.path, mode & 0o1777))?;
        Some(made.map(|made| drop(served.remote.close(&who, made.node))))
    })
}

/// As `mknodat`.
pub(crate) fn mknod(dir: i32, path: &[u8], mode: u32, device: u64) -> Answer<()> {
    at(Counted::mknod, (dir, path), |place, served| {
        let device = answer::kernel_device(device);
        // No type means a regular file.
        let mode = if mode & libc::S_IFMT == 0 { mode | libc::S_IFREG } else { mode };
        answer(served.remote.make_node(&served.maker(), place.dir()?, &place.path, mode, device))
            .map(|made| made.map(drop))
    })
}

/// As `symlinkat`.
pub(crate) fn symlink(target: &[u8], dir: i32, path: &[u8]) -> Answer<()> {
    if target.is_empty() || target.len() >= libc::PATH_MAX as usize {
        return None;
    }
    at(Counted::symlink, (dir, path), |place, served| {
        answer(served.remote.symlink(&served.maker(), place.dir()?, &place.path, target))
            .map(|made| made.map(drop))
    })
}

/// As `linkat`.
pub(crate) fn link(from: (i32, &[u8]), to: (i32, &[u8]), flags: i32) -> Answer<()> {
    if flags != 0 {
        return None;
    }
    let to = place(to.0, to.1)?;
    at(Counted::link, from, |place, served| {
        // For others than the superuser the kernel has rules of its own (protected_hardlinks).
        if place.mount.device != to.mount.device || served.who().uid != 0 {
            return None;
        }
        answer(served.remote.link(served.who(), place.dir()?, &place.path, to.dir()?, &to.path))
            .map(|made| made.map(drop))
    })
}

/// As `readlinkat`: the target, which the caller cuts.
pub(crate) fn readlink(dir: i32, path: &[u8]) -> Answer<Vec<u8>> {
    at(Counted::readlink, (dir, path), |place, served| {
        let read = |dir, path: &[u8]| served.remote.read_link(served.who(), dir, path);
        answer(place.read(served, read, drop)?)
    })
}

/// Changes attributes of what a path leads to.
pub(crate) fn set(what: Counted, at_path: (i32, &[u8]), follow: bool, set: SetAttr) -> Answer<()> {
    at(what, at_path, |place, served| {
        let done = served.remote.set_attr(served.who(), place.dir()?, &place.path, follow, set);
        answer(done).map(|done| done.map(drop))
    })
}

/// Changes attributes of an open file.
pub(crate) fn set_file(what: Counted, fd: i32, set: SetAttr) -> Answer<()> {
    open_file(fd, |file, served| {
        // A mode that this user may not open it with again: then it must be the mount's before.
        if let Some(mode) = set.mode
            && served.who().uid != 0
            && mode & 0o600 != 0o600
        {
            return None;
        }
        let done = served.remote.set_attr(served.who(), file.node()?, b"", true, set);
        count(what, done.is_ok());
        answer(done).map(|done| done.map(drop))
    })
}

/// Owner and group as of `chown(2)`.
pub(crate) fn owner(uid: u32, gid: u32) -> SetAttr {
    let given = |id: u32| Some(id).filter(|id| *id != u32::MAX);
    SetAttr { uid: given(uid), gid: given(gid), ..SetAttr::default() }
}

/// Times as of `utimensat(2)`; `None`: the kernel is to refuse them.
pub(crate) fn times(times: Option<[libc::timespec; 2]>) -> Option<SetAttr> {
    let Some([atime, mtime]) = times else {
        let now = Some(SetTime::Now);
        return Some(SetAttr { atime: now, mtime: now, ..SetAttr::default() });
    };
    let given = |time: libc::timespec| match time.tv_nsec {
        libc::UTIME_NOW => Some(Some(SetTime::Now)),
        libc::UTIME_OMIT => Some(None),
        nsec @ 0..1_000_000_000 => {
            Some(Some(SetTime::To(Time { sec: time.tv_sec, nsec: nsec as u32 })))
        }
        _ => None,
    };
    Some(SetAttr { atime: given(atime)?, mtime: given(mtime)?, ..SetAttr::default() })
}

/// The object of a call on extended attributes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Of<'p> {
    /// At a path; a symlink at its end is followed, or not.
    Path(&'p [u8], bool),
    File(i32),
}

fn of<T>(
    of: Of<'_>,
    call: impl FnOnce(&Served, shoal_session::Node, &[u8], bool) -> Answer<T>,
) -> Answer<T> {
    match of {
        Of::Path(path, follow) => at(Counted::xattr, (libc::AT_FDCWD, path), |place, served| {
            call(served, place.dir()?, &place.path, follow)
        }),
        Of::File(fd) => open_file(fd, |file, served| {
            let answered = call(served, file.node()?, b"", true);
            count(Counted::xattr, answered.is_some());
            answered
        }),
    }
}

/// Puts a value where the caller has room for it; without room it asks for the length.
fn fill(value: Vec<u8>, into: &mut [u8]) -> Result<isize, Errno> {
    if into.is_empty() {
        return Ok(value.len() as isize);
    }
    let room = into.get_mut(..value.len()).ok_or(libc::ERANGE)?;
    room.copy_from_slice(&value);
    Ok(value.len() as isize)
}

/// Returns whether a copy says that there is no extended attribute at all.
fn has_no_xattrs(object: Of<'_>) -> bool {
    let Of::Path(path, _) = object else { return false };
    let none = at(Counted::xattr, (libc::AT_FDCWD, path), |place, served| {
        served.copies.has_no_xattrs(place, &served.remote).then_some(Ok(()))
    });
    none.is_some()
}

/// As `getxattr`.
pub(crate) fn xattr(object: Of<'_>, name: &[u8], into: &mut [u8]) -> Answer<isize> {
    // The kernel says of others whether there are such.
    let is_usual = [&b"user."[..], b"security.", b"system.posix_acl_", b"trusted."];
    if is_usual.iter().any(|class| name.starts_with(class)) && has_no_xattrs(object) {
        return Some(Err(libc::ENODATA));
    }
    of(object, |served, node, path, follow| {
        let found = answer(served.remote.xattr(served.who(), node, path, follow, name))?;
        Some(found.and_then(|value| fill(value, into)))
    })
}

/// As `listxattr`.
pub(crate) fn xattrs(object: Of<'_>, into: &mut [u8]) -> Answer<isize> {
    if has_no_xattrs(object) {
        return Some(Ok(0));
    }
    of(object, |served, node, path, follow| {
        let found = answer(served.remote.xattrs(served.who(), node, path, follow))?;
        Some(found.and_then(|names| fill(names, into)))
    })
}

/// As `setxattr`.
pub(crate) fn set_xattr(object: Of<'_>, name: &[u8], value: &[u8], flags: i32) -> Answer<()> {
    let how = XattrFlags {
        create: flags & libc::XATTR_CREATE != 0,
        replace: flags & libc::XATTR_REPLACE != 0,
        ..XattrFlags::default()
    };
    if flags & !(libc::XATTR_CREATE | libc::XATTR_REPLACE) != 0 {
        return None;
    }
    of(object, |served, node, path, follow| {
        answer(served.remote.set_xattr(served.who(), node, path, follow, name, value, how))
    })
}

/// As `removexattr`.
pub(crate) fn remove_xattr(object: Of<'_>, name: &[u8]) -> Answer<()> {
    of(object, |served, node, path, follow| {
        answer(served.remote.remove_xattr(served.who(), node, path, follow, name))
    })
}
