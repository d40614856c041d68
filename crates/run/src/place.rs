//! The place in a volume that a path leads to.

use crate::answer::Answer;
use crate::copies::Spot;
use crate::files::{self, File};
use crate::kernel;
use crate::mounts::{self, Mount, Served};
use shoal_session::{Calls, Node};
use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A place: a path below a directory that is open.
#[derive(Debug)]
pub(crate) struct Place<'p> {
    pub mount: Arc<Mount>,
    /// Relative; not empty.
    pub path: Cow<'p, [u8]>,
    /// Inode number of the directory.
    pub dir_ino: u64,
    /// Keeps the directory open.
    from: From,
}

#[derive(Debug)]
enum From {
    /// It is that of the mount.
    Mount(Node),
    File(Arc<File>),
}

impl Spot for Place<'_> {
    fn ino(&self) -> u64 {
        self.dir_ino
    }

    fn path(&self) -> &[u8] {
        &self.path
    }

    fn node(&self) -> Option<Node> {
        self.dir()
    }
}

impl Place<'_> {
    /// The session. There was one when the place was found.
    pub(crate) fn served(&self) -> Option<&Served> {
        self.mount.served()
    }

    /// The directory at the server; `None`: it is gone.
    pub(crate) fn dir(&self) -> Option<Node> {
        match &self.from {
            From::Mount(top) => Some(*top),
            From::File(file) => file.node(),
        }
    }

    /// Inode number of the directory above the one that the path begins at, if that was opened from
    /// another one.
    pub(crate) fn above(&self) -> Option<u64> {
        match &self.from {
            From::File(file) if file.parent != file.ino => Some(file.parent),
            _ => None,
        }
    }

    /// The directory has been removed, and nothing is in it.
    pub(crate) fn is_gone(&self) -> bool {
        matches!(&self.from, From::File(file) if file.is_gone())
    }

    /// Returns whether the absolute path leads to the place in the volume's present state, which
    /// has this number.
    pub(crate) fn has_path(&self, served: &Served, number: u64) -> bool {
        match &self.from {
            From::Mount(_) => true,
            From::File(file) => file.has_path(served, number),
        }
    }

    /// The place for a call that reads: a node and a path. For a directory that has no node yet,
    /// its path, if that leads to it; then with the number of the volume's state in which it does.
    /// A result holds if the state has that number still.
    pub(crate) fn to_read(&self, served: &Served) -> Option<(Node, Cow<'_, [u8]>, Option<u64>)> {
        if let From::File(file) = &self.from
            && file.node.get().is_none()
            && file.path_known.load(Ordering::Relaxed) == file.known
            && served.remote.0.state() == Some(file.known)
            && let Some(above) = file.path.get(self.mount.point.len() + 1..)
        {
            let path = [above, b"/", &self.path].concat();
            if path.len() < PATH_MAX {
                return Some((served.top, path.into(), Some(file.known)));
            }
        }
        Some((self.dir()?, Cow::Borrowed(&self.path), None))
    }

    /// Makes a call that reads, at the place.
    pub(crate) fn read<T>(
        &self,
        served: &Served,
        call: impl Fn(Node, &[u8]) -> shoal_engine::Result<T>,
        give_back: impl FnMut(T),
    ) -> Option<shoal_engine::Result<T>> {
        let (node, path, known) = self.to_read(served)?;
        let done = call(node, &path);
        if known.is_none_or(|known| served.remote.0.state() == Some(known)) {
            return Some(done);
        }
        done.into_iter().for_each(give_back);
        Some(call(self.dir()?, &self.path))
    }

    /// It is the directory that is mounted, named as such.
    pub(crate) fn is_top(&self) -> bool {
        matches!(self.from, From::Mount(_)) && *self.path == *b"."
    }

    /// The absolute path.
    pub(crate) fn absolute(&self) -> Vec<u8> {
        let above = match &self.from {
            From::Mount(_) => &self.mount.point,
            From::File(file) => &file.path,
        };
        match &*self.path {
            b"." => above.clone(),
            path => [above, &b"/"[..], path].concat(),
        }
    }
}

/// The working directory.
#[derive(Debug, Clone)]
enum Working {
    Unknown,
    /// In no volume.
    Elsewhere,
    In(Arc<File>),
}

static WORKING: Mutex<Working> = Mutex::new(Working::Unknown);

fn working() -> MutexGuard<'static, Working> {
    WORKING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The working directory has changed.
pub(crate) fn forget_working() {
    let before = std::mem::replace(&mut *working(), Working::Unknown);
    drop(before);
}

/// The working directory is one that a session has open.
pub(crate) fn set_working(file: Arc<File>) {
    let before = std::mem::replace(&mut *working(), Working::In(file));
    drop(before);
}

/// In a child of `fork`: the parent's session is not this process's.
pub(crate) fn forget_of_parent() {
    std::mem::forget(std::mem::replace(&mut *working(), Working::Unknown));
}

/// Holds what a child of `fork` would find locked for ever.
pub(crate) fn hold() -> impl Sized {
    working()
}

/// Finds the working directory in its volume. `Unknown`: the session has not begun yet.
fn find_working() -> Working {
    let Ok(path) = kernel::working_directory() else { return Working::Elsewhere };
    let Some((mount, rest)) = mounts::of_path(&path) else { return Working::Elsewhere };
    let Some(served) = mount.served() else { return Working::Unknown };
    let rest = if rest.is_empty() { b"." } else { rest };
    let Ok(opened) = served.remote.open_dir(served.who(), served.top, rest) else {
        return Working::Elsewhere;
    };
    let file = File {
        mount: mount.clone(),
        node: opened.node.into(),
        known: 0,
        attr: opened.attr,
        path_known: AtomicU64::new(0),
        ino: opened.attr.ino.0,
        parent: opened.attr.ino.0,
        is_dir: true,
        flags: libc::O_RDONLY | libc::O_DIRECTORY,
        position: 0.into(),
        path,
    };
    // Somebody may have renamed it: the kernel has the directory, not the path.
    match kernel::identity(libc::AT_FDCWD, c".") {
        Ok(identity) if identity == (mount.device, file.ino) => Working::In(Arc::new(file)),
        _ => Working::Elsewhere,
    }
}

/// Longest path. The kernel refuses longer ones, and files are opened by their paths.
const PATH_MAX: usize = libc::PATH_MAX as usize - 1;

/// Returns the place that a path leads to, from a directory's descriptor or `AT_FDCWD`; `None`: it
/// is in no volume, or the kernel is to be asked.
pub(crate) fn place(dir: i32, path: &[u8]) -> Option<Place<'_>> {
    if path.len() >= PATH_MAX {
        return None;
    }
    match path {
        [] => None,
        [b'/', ..] => {
            settle_named(path);
            let (mount, rest) = mounts::of_path(path)?;
            let (top, ino) = mount.served().map(|served| (served.top, served.top_ino.0))?;
            let path = if rest.is_empty() { b"." } else { rest };
            Some(Place { mount, path: path.into(), dir_ino: ino, from: From::Mount(top) })
        }
        _ => {
            let file = match dir {
                libc::AT_FDCWD => in_working()?,
                _ => files::get(dir).filter(|file| file.is_dir)?,
            };
            let served = file.mount.served()?;
            if let Some(rest) = path.strip_prefix(b"..") {
                return above(&file, served, rest);
            }
            let (mount, dir_ino) = (file.mount.clone(), file.ino);
            Some(Place { mount, path: path.into(), dir_ino, from: From::File(file) })
        }
    }
}

/// The place of `..` and what follows it, from a directory that is open. A session refuses to leave
/// the directory by that, as it does not know how far it may go: so the path begins at the top of
/// the mount, if that leads to the directory still.
fn above<'p>(file: &File, served: &Served, rest: &[u8]) -> Option<Place<'p>> {
    if !rest.is_empty() && rest[0] != b'/' {
        return None;
    }
    let path = file.path.get(file.mount.point.len() + 1..)?;
    let found = served.remote.find(served.who(), served.top, path, false).ok()?;
    let (mount, dir_ino) = (file.mount.clone(), served.top_ino.0);
    let cut = path.iter().rposition(|byte| *byte == b'/');
    let parent = cut.map_or(&b"."[..], |cut| &path[..cut]);
    let rest = rest.iter().position(|byte| *byte != b'/').map_or(&[][..], |at| &rest[at..]);
    let path = if rest.is_empty() { parent.to_vec() } else { [parent, b"/", rest].concat() };
    let is_there = found.ino.0 == file.ino && path.len() < PATH_MAX;
    let from = From::Mount(served.top);
    is_there.then(|| Place { mount, path: path.into(), dir_ino, from })
}

/// Makes a descriptor the mount's whose file is about to be used by its name in `/proc` or `/dev`.
pub(crate) fn settle_named(path: &[u8]) {
    let is_name = path.starts_with(b"/proc/") || path.starts_with(b"/dev/");
    if !is_name || !files::any() {
        return;
    }
    let last = path.rsplit(|byte| *byte == b'/').next().and_then(|it| std::str::from_utf8(it).ok());
    match last.and_then(|last| last.parse().ok()) {
        Some(fd) => drop(files::settle(fd)),
        // A listing of all descriptors, or a path that goes on.
        None if path.windows(3).any(|it| it == b"/fd") => drop(files::settle_all()),
        None => {}
    }
}

/// Begins the session of the mount that a path leads into, if it has none yet.
pub(crate) fn begin(dir: i32, path: &[u8]) {
    let working = match path {
        [b'/', ..] => Vec::new(),
        _ if dir == libc::AT_FDCWD && matches!(*working(), Working::Unknown) => {
            kernel::working_directory().unwrap_or_default()
        }
        _ => return,
    };
    let path = if working.is_empty() { path } else { &working };
    if let Some((mount, _)) = mounts::of_path(path) {
        mount.begin();
    }
}

fn in_working() -> Option<Arc<File>> {
    let mut working = working();
    if matches!(*working, Working::Unknown) {
        *working = find_working();
    }
    match &*working {
        Working::In(file) => Some(file.clone()),
        _ => None,
    }
}

/// Returns the file of a descriptor, for a call that needs one. Of one that is a place alone the
/// kernel knows what it is not for.
pub(crate) fn open_file<T>(fd: i32, call: impl FnOnce(&File, &Served) -> Answer<T>) -> Answer<T> {
    let file = files::get(fd).filter(|file| !file.is_place())?;
    call(&file, file.served()?)
}
