//! The mounts of Shoal that this process sees, and their sessions.

use crate::copies::Copies;
use crate::kernel;
use shoal_engine::{Caller, Ino};
use shoal_session::{Calls, Node, OR_KERNEL, Remote, Session, keep_descriptors_from};
use std::ffi::CString;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Calls by path below a mount before a session is worth its beginning: a program that makes fewer
/// makes them by the kernel.
const WORTH: u32 = 4;
/// The list of mounts is looked at again after this time, and after so many times what that takes.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
const LOOK_PART: u32 = 100;
/// Descriptors are kept from here on, as far as the limit allows, but not below the second one.
const HIGH: u64 = 960;
const LOW: i32 = 100;
const ROOM: u64 = 64;

/// A mount.
#[derive(Debug)]
pub(crate) struct Mount {
    /// The directory that it is mounted on, without a slash at the end.
    pub point: Vec<u8>,
    /// The directory of the volume that it shows, without a slash at its ends.
    root: Vec<u8>,
    /// Number of its filesystem (`st_dev`).
    pub device: u64,
    id: Vec<u8>,
    /// Nothing is mounted below it or over it, and nobody may change less by it than by others.
    usable: AtomicBool,
    calls: AtomicU32,
    served: OnceLock<Option<Served>>,
}

/// The session of a mount.
#[derive(Debug)]
pub(crate) struct Served {
    pub remote: Remote<Session>,
    /// The directory that the mount shows.
    pub top: Node,
    pub top_ino: Ino,
    /// The caller, without its umask.
    who: Caller,
    /// Copies of directories.
    pub copies: Copies,
    /// The directory of which the last name was the kernel's to take away.
    pub kernels: AtomicU64,
}

impl Served {
    /// The caller of a call that makes nothing.
    pub(crate) fn who(&self) -> &Caller {
        &self.who
    }

    /// The caller of one that takes a name away, which the kernel can do faster where it knows it.
    pub(crate) fn remover(&self) -> Caller {
        Caller { umask: OR_KERNEL, ..self.who.clone() }
    }

    /// The caller of one that makes a file: with the umask.
    pub(crate) fn maker(&self) -> Caller {
        Caller { umask: umask(), ..self.who.clone() }
    }
}

struct List {
    mounts: Vec<Arc<Mount>>,
    text: Vec<u8>,
    looked: Instant,
    pause: Duration,
}

/// The list may have changed just now.
static SOON: AtomicBool = AtomicBool::new(false);
static LIST: Mutex<Option<List>> = Mutex::new(None);
/// The umask and 1 in the upper half, when it is known.
static UMASK: AtomicU64 = AtomicU64::new(0);
/// Stands for the files of sessions; -1: there is none.
static SPARE: AtomicI32 = AtomicI32::new(-1);
/// The lowest descriptor that is the library's own.
static LOWEST: AtomicI32 = AtomicI32::new(i32::MAX);

fn list() -> MutexGuard<'static, Option<List>> {
    LIST.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Decodes a field of `/proc/self/mountinfo`.
fn unescaped(field: &[u8]) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::with_capacity(field.len()), field);
    while let [first, after @ ..] = rest {
        let code = after.get(..3).and_then(|octal| std::str::from_utf8(octal).ok());
        let code = code.and_then(|octal| u8::from_str_radix(octal, 8).ok());
        match (*first, code) {
            (b'\\', Some(byte)) => {
                out.push(byte);
                rest = &after[3..];
            }
            (byte, _) => {
                out.push(byte);
                rest = after;
            }
        }
    }
    out
}

/// Returns whether a path is another one, or below it.
fn is_below(path: &[u8], top: &[u8]) -> bool {
    let top = top.strip_suffix(b"/").unwrap_or(top);
    path.strip_prefix(top).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

/// Reads the mounts of Shoal out of `/proc/self/mountinfo`.
fn parse(text: &[u8]) -> Vec<Mount> {
    let (mut found, mut points): (Vec<Mount>, Vec<Vec<u8>>) = (Vec::new(), Vec::new());
    for line in text.split(|byte| *byte == b'\n') {
        let mut fields = line.split(|byte| *byte == b' ');
        let (Some(id), Some(_), Some(device), Some(root), Some(point), Some(options)) = (
            fields.next(),
            fields.next(),
            fields.next(),
            fields.next(),
            fields.next(),
            fields.next(),
        ) else {
            continue;
        };
        let mut fields = fields.skip_while(|field| *field != b"-").skip(1);
        let (kind, super_options) = (fields.next().unwrap_or(b""), fields.nth(1).unwrap_or(b""));
        let point = unescaped(point);
        // What is mounted over a mount of Shoal, or below it, takes that out of use.
        for hidden in found.iter().filter(|it| is_below(&point, &it.point)) {
            hidden.usable.store(false, Ordering::Relaxed);
        }
        let hides = points.iter().any(|other| is_below(other, &point));
        points.push(point.clone());
        if kind != b"fuse.shoal" {
            continue;
        }
        let has = |options: &[u8], name: &[u8]| options.split(|b| *b == b',').any(|it| it == name);
        let number = |text: &[u8]| std::str::from_utf8(text).ok()?.parse::<u32>().ok();
        let mut halves = device.split(|byte| *byte == b':').filter_map(number);
        let (Some(major), Some(minor)) = (halves.next(), halves.next()) else { continue };
        // A mount that is read-only alone of those of its filesystem: the session would write.
        let usable = !hides && (has(options, b"rw") || has(super_options, b"ro"));
        let root = unescaped(root);
        found.push(Mount {
            point: point.strip_suffix(b"/").unwrap_or(&point).to_vec(),
            root: root.strip_prefix(b"/").unwrap_or(&root).to_vec(),
            device: libc::makedev(major, minor),
            id: id.to_vec(),
            usable: AtomicBool::new(usable && !root.ends_with(b"//deleted")),
            calls: AtomicU32::new(0),
            served: OnceLock::new(),
        });
    }
    found
}

/// The list of mounts may have changed: it is looked at before it is used again.
pub(crate) fn look_soon() {
    SOON.store(true, Ordering::Relaxed);
}

/// Brings the list up to date, unless it was so a moment ago.
fn look(list: &mut Option<List>) -> &[Arc<Mount>] {
    let is_new = list.as_ref().is_some_and(|list| list.looked.elapsed() < list.pause);
    if !is_new || SOON.load(Ordering::Relaxed) {
        SOON.store(false, Ordering::Relaxed);
        look_again(list);
    }
    list.as_ref().map_or(&[], |list| &list.mounts)
}

#[cold]
fn look_again(list: &mut Option<List>) {
    let begun = Instant::now();
    let text = kernel::read_whole(c"/proc/self/mountinfo").unwrap_or_default();
    let mounts = match list.take() {
        Some(before) if before.text == text => before.mounts,
        before => {
            let before = before.map(|list| list.mounts).unwrap_or_default();
            let same = |one: &Mount, other: &Mount| {
                (&one.id, one.device, &one.point, &one.root)
                    == (&other.id, other.device, &other.point, &other.root)
            };
            let keep = |now: Mount| match before.iter().find(|it| same(it, &now)) {
                Some(known) => {
                    let usable = now.usable.load(Ordering::Relaxed);
                    known.usable.store(usable, Ordering::Relaxed);
                    known.clone()
                }
                None => Arc::new(now),
            };
            parse(&text).into_iter().map(keep).collect()
        }
    };
    for mount in &mounts {
        // What is mounted over a directory above hides it.
        let point = if mount.point.is_empty() { b"/" } else { &mount.point[..] };
        let seen = CString::new(point).map(|point| kernel::identity(libc::AT_FDCWD, &point));
        if !seen.is_ok_and(|seen| seen.is_ok_and(|(device, ..)| device == mount.device)) {
            mount.usable.store(false, Ordering::Relaxed);
        }
    }
    let pause = LOOK_AGAIN.max(begun.elapsed() * LOOK_PART);
    *list = Some(List { mounts, text, looked: Instant::now(), pause });
}

/// Returns the mount that an absolute path leads into, and what is left of the path: by its letters
/// alone. It may be refused later ([`Mount::served`]).
pub(crate) fn of_path(path: &[u8]) -> Option<(Arc<Mount>, &[u8])> {
    let mut list = list();
    let above = look(&mut list).iter().filter(|mount| is_below(path, &mount.point));
    let mount = above.max_by_key(|mount| mount.point.len())?.clone();
    let rest = path.get(mount.point.len()..).unwrap_or_default();
    let rest = &rest[rest.iter().take_while(|byte| **byte == b'/').count()..];
    Some((mount, rest))
}

impl Mount {
    /// Returns the mount's session, which is begun when it pays; `None`: ask the kernel.
    pub(crate) fn served(&self) -> Option<&Served> {
        if !self.usable.load(Ordering::Relaxed) {
            return None;
        }
        if let Some(served) = self.served.get() {
            return served.as_ref().filter(|served| !served.remote.0.is_lost());
        }
        if self.calls.fetch_add(1, Ordering::Relaxed) < WORTH {
            return None;
        }
        self.begin()
    }

    /// Begins the session, as the program will make more calls: it opens a directory.
    pub(crate) fn begin(&self) -> Option<&Served> {
        match self.usable.load(Ordering::Relaxed) {
            true => self.served.get_or_init(|| self.serve()).as_ref(),
            false => None,
        }
    }

    #[cold]
    fn serve(&self) -> Option<Served> {
        let lowest = kernel::descriptors_max().min(HIGH + ROOM).saturating_sub(ROOM);
        let lowest = i32::try_from(lowest).ok().filter(|lowest| *lowest >= LOW)?;
        keep_descriptors_from(lowest);
        LOWEST.fetch_min(lowest, Ordering::Relaxed);
        if SPARE.load(Ordering::Relaxed) < 0 {
            let low = kernel::nothing().ok()?;
            let spare = kernel::duplicate(low, lowest, true);
            kernel::close(low);
            SPARE.store(spare.ok()?, Ordering::Relaxed);
        }
        let session = Session::of_mount(self.device, String::new).ok()?;
        let remote = Remote(session);
        let who = remote.0.caller().clone();
        let (top, top_ino) = match self.root.is_empty() {
            true => (Node::TOP, remote.attr(&who, Node::TOP).ok()?.ino),
            false => {
                let opened = remote.open_dir(&who, Node::TOP, &self.root).ok()?;
                (opened.node, opened.attr.ino)
            }
        };
        Some(Served {
            remote,
            top,
            top_ino,
            who,
            copies: Copies::default(),
            kernels: AtomicU64::new(0),
        })
    }
}

/// Returns a descriptor that stands for a file of a session.
pub(crate) fn reserve(cloexec: bool) -> Result<i32, kernel::Errno> {
    kernel::duplicate(SPARE.load(Ordering::Relaxed), 0, cloexec)
}

/// The library's own descriptors, in order.
pub(crate) fn own_descriptors() -> Vec<i32> {
    let list = list();
    let served =
        list.iter().flat_map(|list| &list.mounts).filter_map(|it| it.served.get()?.as_ref());
    let mut own: Vec<i32> = served.flat_map(|served| served.remote.0.descriptors()).collect();
    own.extend(Some(SPARE.load(Ordering::Relaxed)).filter(|fd| *fd >= 0));
    own.sort_unstable();
    own.dedup();
    own
}

/// Returns whether a descriptor is the library's own.
#[inline]
pub(crate) fn is_own(fd: i32) -> bool {
    fd >= LOWEST.load(Ordering::Relaxed) && own_descriptors().binary_search(&fd).is_ok()
}

/// The process's umask.
fn umask() -> u32 {
    let known = UMASK.load(Ordering::Relaxed);
    if known >> 32 == 1 {
        return known as u32;
    }
    let status = kernel::read_whole(c"/proc/self/status").unwrap_or_default();
    let line = status.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(b"Umask:"));
    let text = line.and_then(|line| std::str::from_utf8(line).ok()).unwrap_or("");
    let mask = u32::from_str_radix(text.trim(), 8).unwrap_or(0o077);
    set_umask(mask);
    mask
}

/// The program has set its umask.
pub(crate) fn set_umask(mask: u32) {
    UMASK.store(1 << 32 | u64::from(mask & 0o777), Ordering::Relaxed);
}

/// Holds what a child of `fork` would find locked for ever.
pub(crate) fn hold() -> impl Sized {
    list()
}

/// In a child of `fork`: forgets the parent's sessions, and closes their descriptors, so that the
/// server sees their end when the parent has ended.
pub(crate) fn forget(own: &[i32]) {
    own.iter().for_each(|fd| kernel::close(*fd));
    SPARE.store(-1, Ordering::Relaxed);
    // The sessions' memory is not mapped here any more: it must not be unmapped.
    std::mem::forget(list().take());
}
