//! Open files, by descriptor.
//!
//! A file of a session has a descriptor that reserves its number: a copy of one that can neither be
//! read nor written. What is open is in a table beside the kernel's. Before a call that needs the
//! file itself, [`settle`] opens it by the mount, and puts that in place of the reserved number.

use crate::kernel::{self, Errno};
use crate::mounts::{Mount, Served};
use crate::state::{self, Counted};
use arc_swap::ArcSwapOption;
use shoal_engine::{Attr, Ino, Rights};
use shoal_session::{Calls, Node};
use std::ffi::CString;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Descriptors from this number on are the kernel's alone.
const COUNT: usize = 1 << 16;

static TABLE: [ArcSwapOption<File>; COUNT] = [const { ArcSwapOption::const_empty() }; COUNT];
/// Descriptors that the table has a file for: a look at it costs a load.
static USED: [AtomicBool; COUNT] = [const { AtomicBool::new(false) }; COUNT];
/// The highest descriptor that the table has had a file for; -1: none.
static HIGHEST: AtomicI32 = AtomicI32::new(-1);
/// Number of files in the table.
static OPEN: AtomicI32 = AtomicI32::new(0);

/// Time for which a token to open a file by the mount is good.
const TOKEN: Duration = Duration::from_secs(60);
/// The directory of tokens in the top of a mount.
const TOKENS: &[u8] = b"/.shoal-open/";

/// A file or directory that a session has open.
#[derive(Debug)]
pub(crate) struct File {
    pub mount: Arc<Mount>,
    /// Its node at the server; a directory that has been answered from a copy has none yet.
    pub node: OnceLock<Node>,
    /// Number of the volume's state in which it was opened; 0: unknown.
    pub known: u64,
    /// Its attributes then.
    pub attr: Attr,
    /// Number of the volume's state in which `path` leads to it; 0: none.
    pub path_known: AtomicU64,
    pub ino: u64,
    /// That of the directory above, of a directory.
    pub parent: u64,
    pub is_dir: bool,
    /// Flags that it was opened with, without those for the opening alone.
    pub flags: i32,
    /// Position of the next read or write.
    pub position: AtomicU64,
    /// The path that it was opened by, absolute; the file may be elsewhere by now.
    pub path: Vec<u8>,
}

impl Drop for File {
    fn drop(&mut self) {
        if let (Some(served), Some(node)) = (self.mount.served(), self.node.get()) {
            let _ = served.remote.close(served.who(), *node);
        }
    }
}

impl File {
    /// The session; `None`: it has been lost.
    pub(crate) fn served(&self) -> Option<&Served> {
        self.mount.served()
    }

    /// Its node at the server, which is opened now if it is a directory that has none; `None`: it
    /// has been removed meanwhile, or cannot be reached any more.
    #[inline]
    pub(crate) fn node(&self) -> Option<Node> {
        self.node.get().copied().or_else(|| self.open_node())
    }

    /// Returns whether `path` leads to it in the volume's present state, which has this number.
    /// Asks the server if that is not known: another program may have renamed it or a directory
    /// above.
    pub(crate) fn has_path(&self, served: &Served, number: u64) -> bool {
        if self.path_known.load(Ordering::Relaxed) == number {
            return true;
        }
        let Some(path) = self.path.get(self.mount.point.len() + 1..) else { return false };
        let found = served.remote.find(served.who(), served.top, path, true);
        let leads = found.is_ok_and(|attr| attr.ino.0 == self.ino)
            && served.remote.0.state() == Some(number);
        if leads {
            self.path_known.store(number, Ordering::Relaxed);
        }
        leads
    }

    /// Its attributes, if they are as they were.
    pub(crate) fn attr(&self, served: &Served) -> Option<Attr> {
        let holds = self.known != 0 && served.copies.holds(&served.remote, self.known, self.ino);
        holds.then_some(self.attr)
    }

    /// It is a directory that has been removed since it was answered from a copy: nobody holds it.
    pub(crate) fn is_gone(&self) -> bool {
        self.known != 0 && self.served().is_some() && self.node().is_none()
    }

    #[cold]
    fn open_node(&self) -> Option<Node> {
        let served = self.served()?;
        let remote = &served.remote;
        let open = |path: &[u8]| {
            let opened = remote.open_dir(served.who(), served.top, path).ok()?;
            if opened.attr.ino.0 == self.ino {
                return Some(opened.node);
            }
            let _ = remote.close(served.who(), opened.node);
            None
        };
        let below = |path: &[u8]| path.get(self.mount.point.len() + 1..).map(<[u8]>::to_vec);
        // It may have been renamed since.
        let opened = below(&self.path).and_then(|path| open(&path));
        let opened = opened.or_else(|| {
            other_paths(self).iter().filter_map(|path| below(path)).find_map(|path| open(&path))
        })?;
        if self.node.set(opened).is_err() {
            // Another thread was faster.
            let _ = remote.close(served.who(), opened);
        }
        self.node.get().copied()
    }

    /// It is a directory that was opened as a place alone (`O_PATH`).
    pub(crate) fn is_place(&self) -> bool {
        self.flags & libc::O_PATH != 0
    }

    pub(crate) fn may_read(&self) -> bool {
        self.flags & libc::O_ACCMODE != libc::O_WRONLY
    }

    pub(crate) fn may_write(&self) -> bool {
        self.flags & libc::O_ACCMODE != libc::O_RDONLY
    }
}

/// Returns whether a descriptor stands for a file of a session.
#[inline]
pub(crate) fn is_file(fd: i32) -> bool {
    USED.get(fd as usize).is_some_and(|used| used.load(Ordering::Relaxed))
}

/// Returns the file that a descriptor stands for.
#[inline]
pub(crate) fn get(fd: i32) -> Option<Arc<File>> {
    if is_file(fd) { TABLE[fd as usize].load_full() } else { None }
}

/// Gives a file the descriptor of the lowest free number.
pub(crate) fn add(file: File, cloexec: bool) -> Result<i32, Errno> {
    let fd = crate::mounts::reserve(cloexec)?;
    if fd as usize >= COUNT {
        kernel::close(fd);
        return Err(libc::EMFILE);
    }
    put(fd, Arc::new(file));
    Ok(fd)
}

/// Lets a descriptor stand for what another one stands for: the file of a session, or one of the
/// kernel's.
pub(crate) fn copy(from: i32, to: i32) {
    let file = get(from);
    take(to).into_iter().for_each(drop_file);
    match file {
        Some(file) if (to as usize) < COUNT => put(to, file),
        Some(file) => drop_file(file),
        None => {}
    }
}

fn put(fd: i32, file: Arc<File>) {
    TABLE[fd as usize].store(Some(file));
    USED[fd as usize].store(true, Ordering::Release);
    HIGHEST.fetch_max(fd, Ordering::Relaxed);
    OPEN.fetch_add(1, Ordering::Relaxed);
}

/// Takes a descriptor's file off the table. The descriptor is still open.
pub(crate) fn take(fd: i32) -> Option<Arc<File>> {
    if !is_file(fd) {
        return None;
    }
    USED[fd as usize].store(false, Ordering::Relaxed);
    let file = TABLE[fd as usize].swap(None);
    if file.is_some() {
        OPEN.fetch_sub(1, Ordering::Relaxed);
    }
    file
}

/// Gives a file back. In a signal handler nothing can be freed: then it stays.
pub(crate) fn drop_file(file: Arc<File>) {
    if state::is_interrupted() {
        std::mem::forget(file);
    }
}

/// The descriptors that stand for files, from one up to another.
pub(crate) fn between(first: u32, last: u32) -> impl Iterator<Item = i32> {
    let last = i64::from(HIGHEST.load(Ordering::Relaxed)).min(i64::from(last));
    let any = OPEN.load(Ordering::Relaxed) > 0;
    (i64::from(first)..=last).take_while(move |_| any).map(|fd| fd as i32).filter(|fd| is_file(*fd))
}

/// Returns whether any descriptor stands for a file.
#[inline]
pub(crate) fn any() -> bool {
    OPEN.load(Ordering::Relaxed) > 0
}

/// Makes a descriptor the mount's, if it stands for a file of a session: what comes then goes
/// through the kernel. If the file cannot be opened, it stays as it is.
///
/// # Errors
/// Those of `open(2)`; `ESTALE` if the file has no name any more, or none that this user can
/// reach, and the mount opens no tokens.
#[inline]
pub(crate) fn settle(fd: i32) -> Result<(), Errno> {
    if is_file(fd) { settle_file(fd) } else { Ok(()) }
}

#[cold]
fn settle_file(fd: i32) -> Result<(), Errno> {
    let _errno = kernel::KeepErrno::here();
    let Some(file) = get(fd) else { return Ok(()) };
    let opened = reopen(&file)?;
    if let Some(served) = file.served().filter(|_| !state::is_interrupted()) {
        served.copies.read(file.ino);
    }
    kernel::seek(opened, file.position.load(Ordering::Acquire));
    let mut replaced = become_kernels(fd, opened);
    // Copies of the descriptor share its position.
    if Arc::strong_count(&file) > 1 && replaced.is_ok() {
        for other in between(0, u32::MAX) {
            let copy = get(other);
            if copy.as_ref().is_some_and(|copy| Arc::ptr_eq(copy, &file)) {
                replaced = replaced.and(become_kernels(other, opened));
            }
            copy.into_iter().for_each(drop_file);
        }
    }
    kernel::close(opened);
    drop_file(file);
    state::count(Counted::settle, false);
    replaced
}

/// Puts a file of the mount in the place of what a descriptor stands for.
fn become_kernels(fd: i32, opened: i32) -> Result<(), Errno> {
    kernel::replace(opened, fd, kernel::is_cloexec(fd))?;
    take(fd).into_iter().for_each(drop_file);
    Ok(())
}

/// Opens a file of a session by the mount.
pub(crate) fn reopen(file: &File) -> Result<i32, Errno> {
    let flags = file.flags | libc::O_CLOEXEC | libc::O_NOCTTY;
    // No memory is allocated: a signal handler may need the file.
    let mut buffer = [0u8; libc::PATH_MAX as usize];
    let at = |path: &[u8], buffer: &mut [u8; libc::PATH_MAX as usize]| {
        let place = buffer.get_mut(..=path.len()).ok_or(libc::ENAMETOOLONG)?;
        place[..path.len()].copy_from_slice(path);
        place[path.len()] = 0;
        let path = std::ffi::CStr::from_bytes_with_nul(place).map_err(|_| libc::EINVAL)?;
        let opened = kernel::open(path, flags)?;
        match kernel::identity(opened, c"") {
            Ok(identity) if identity == (file.mount.device, file.ino) => Ok(opened),
            _ => {
                kernel::close(opened);
                Err(libc::ESTALE)
            }
        }
    };
    let failed = match at(&file.path, &mut buffer) {
        Ok(opened) => return Ok(opened),
        Err(errno @ (libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::ENOTCONN)) => {
            return Err(errno);
        }
        Err(errno) => errno,
    };
    if state::is_interrupted() {
        return Err(failed);
    }
    // It has been renamed or removed, or its mode changed: by other names, or by a token.
    for path in other_paths(file) {
        if let Ok(opened) = at(&path, &mut buffer) {
            return Ok(opened);
        }
    }
    let by_token = token(file).and_then(|path| kernel::open(&path, flags).ok());
    by_token.ok_or(if failed == libc::ENOENT { libc::ESTALE } else { failed })
}

/// The paths that a file has now, as far as this user may ask for them.
fn other_paths(file: &File) -> Vec<Vec<u8>> {
    let Some(served) = file.served() else { return Vec::new() };
    // Below a directory of the volume that is mounted alone, paths of the volume lead elsewhere.
    if served.top != Node::TOP {
        return Vec::new();
    }
    let found = match file.node.get() {
        Some(node) => served.remote.links(served.who(), *node, None, 0),
        None => served.remote.links(served.who(), Node::TOP, Some(Ino(file.ino)), 0),
    };
    let links = found.map(|found| found.links).unwrap_or_default();
    links.into_iter().map(|link| [&file.mount.point[..], &link.path].concat()).collect()
}

/// A path below the mount that opens a file by a token.
fn token(file: &File) -> Option<CString> {
    let served = file.served()?;
    let rights = match (file.may_read(), file.may_write()) {
        (true, true) => Rights::READ | Rights::WRITE,
        (_, true) => Rights::WRITE,
        _ => Rights::READ,
    };
    let token = served.remote.share(served.who(), file.node()?, b"", rights, TOKEN).ok()?;
    CString::new([&file.mount.point[..], TOKENS, token.to_string().as_bytes()].concat()).ok()
}

/// Makes all descriptors the mount's. One that cannot be opened there stays, and is told of.
pub(crate) fn settle_all() -> Result<(), Errno> {
    let mut all = Ok(());
    for fd in between(0, u32::MAX) {
        all = all.and(settle(fd));
    }
    all
}

/// Makes all descriptors that a new program would inherit the mount's.
pub(crate) fn settle_inherited() -> Result<(), Errno> {
    let mut all = Ok(());
    for fd in between(0, u32::MAX).filter(|fd| !kernel::is_cloexec(*fd)) {
        all = all.and(settle(fd));
    }
    all
}
