//! The caller of a request. The request header has its user and group, but no supplementary groups:
//! where these matter they are read from `/proc/<pid>/status` and kept for a short time.
//!
//! They matter when Shoal checks permissions itself, and for SETATTR always: `chmod g+s` and
//! `chgrp` depend on them. Root needs none. A caller that cannot be seen (another pid namespace)
//! has none. Shoal checks the removal of a tree on every mount: the kernel has checked only that
//! the directory could be opened.
//!
//! Where mounts of it may be idmapped (`ALLOW_IDMAP`), the kernel sends user and group, as they are
//! to be stored, only with requests that create, and [`UNKNOWN`] with all others. It has checked
//! those. The few requests whose answer depends on the user call [`identify`], which reads
//! `/proc/<pid>/status` each time: a cached user could be that of a program that has given up its
//! privileges since. The read cannot be of another process: once the server has a request, the
//! thread stays until it is answered, and its process cannot run another program meanwhile. A
//! caller that cannot be seen stays unknown, and has no rights.

use crate::protocol::wire::InHeader;
use crate::protocol::{Opcode, Request};
use shoal::raw::Caller;
use std::cell::RefCell;
use std::io::Read;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// User and group that the kernel has not sent.
pub(crate) const UNKNOWN: u32 = u32::MAX;
/// Lifetime of cached groups. A process that changes its groups, and a new process with the number,
/// user and group of a dead one, are mistaken for at most this long.
const TTL: Duration = Duration::from_secs(1);
/// The capability to keep set-id bits.
const CAP_FSETID: u64 = 1 << 4;
/// Callers remembered by each thread.
const SLOTS: usize = 64;

/// The caller of the request at hand. One for each thread and reused, so that a request costs no
/// allocation and no reference count.
pub(crate) struct Who {
    caller: Caller,
    nobody: Arc<[u32]>,
    cache: Vec<Option<Known>>,
    text: Vec<u8>,
}

/// A caller whose groups were read.
struct Known {
    pid: u32,
    uid: u32,
    gid: u32,
    until: Instant,
    groups: Arc<[u32]>,
}

impl Who {
    /// Creates the state of a new thread.
    pub(crate) fn new() -> Who {
        let caller = Caller::root();
        let nobody = caller.groups.clone();
        let cache = std::iter::repeat_with(|| None).take(SLOTS).collect();
        Who { caller, nobody, cache, text: Vec::new() }
    }

    /// Becomes the caller of `request`; `kernel_checks` if the kernel checks permissions. The umask
    /// is 0 until the operation sets it.
    #[inline]
    pub(crate) fn adopt(
        &mut self,
        request: &Request<'_>,
        op: Opcode,
        kernel_checks: bool,
    ) -> &mut Caller {
        let header = &request.header;
        self.caller.uid = header.uid;
        self.caller.gid = header.gid;
        self.caller.umask = 0;
        let kernel_checks = kernel_checks && !request.is_checked_by_volume();
        self.caller.checked = kernel_checks;
        if header.uid != 0 || header.total_extlen != 0 {
            self.adopt_groups(request, op, kernel_checks);
        } else if !Arc::ptr_eq(&self.caller.groups, &self.nobody) {
            self.caller.groups = self.nobody.clone();
        }
        &mut self.caller
    }

    fn adopt_groups(&mut self, request: &Request<'_>, op: Opcode, kernel_checks: bool) {
        let header = &request.header;
        let groups = match header.uid != UNKNOWN && wants_groups(op, kernel_checks) {
            true => self.groups_of(header.pid, header.uid, header.gid),
            // The kernel sends the one group that decides the owner of a new file.
            false => match request.ext_group() {
                Some(group) if self.caller.groups[..] == [group] => return,
                Some(group) => Arc::from([group]),
                None => self.nobody.clone(),
            },
        };
        if !Arc::ptr_eq(&self.caller.groups, &groups) {
            self.caller.groups = groups;
        }
    }

    /// Returns the groups of a process, at most [`TTL`] old.
    fn groups_of(&mut self, pid: u32, uid: u32, gid: u32) -> Arc<[u32]> {
        if pid == 0 {
            return self.nobody.clone();
        }
        let now = Instant::now();
        let slot = &mut self.cache[pid as usize % SLOTS];
        if let Some(known) = slot
            && (known.pid, known.uid, known.gid) == (pid, uid, gid)
            && now < known.until
        {
            return known.groups.clone();
        }
        let groups = read_groups(pid, &mut self.text).unwrap_or_else(|| self.nobody.clone());
        *slot = Some(Known { pid, uid, gid, until: now + TTL, groups: groups.clone() });
        groups
    }
}

/// Sets user and groups of a caller whom the kernel has not sent, from its thread.
#[cold]
pub(crate) fn identify(caller: &mut Caller, tid: u32) {
    if caller.uid == UNKNOWN
        && let Some(status) = read_status(tid, &mut Vec::new())
        && let Some((uid, gid)) = status.ids()
    {
        caller.groups = Arc::from(status.groups().unwrap_or_default());
        (caller.uid, caller.gid) = (uid, gid);
    }
}

/// Returns the user of a request, to be shown. At most [`TTL`] old, so it must never decide a
/// permission.
pub(crate) fn shown_user(header: &InHeader) -> u32 {
    thread_local! {
        static SHOWN: RefCell<[Option<(u32, u32, Instant)>; SLOTS]> = const {
            RefCell::new([None; SLOTS])
        };
    }
    if header.uid != UNKNOWN || header.pid == 0 {
        return header.uid;
    }
    SHOWN.with_borrow_mut(|shown| {
        let (slot, now) = (&mut shown[header.pid as usize % SLOTS], Instant::now());
        match slot {
            Some((pid, uid, until)) if *pid == header.pid && now < *until => *uid,
            _ => {
                let mut caller = Caller { uid: UNKNOWN, ..Caller::root() };
                identify(&mut caller, header.pid);
                *slot = Some((header.pid, caller.uid, now + TTL));
                caller.uid
            }
        }
    })
}

/// Returns whether `op` depends on the caller's supplementary groups.
fn wants_groups(op: Opcode, kernel_checks: bool) -> bool {
    use Opcode::*;
    match op {
        Setattr => true,
        _ if kernel_checks => false,
        Read | Write | Getattr | Statx | Readdir | Readdirplus | Readlink | Release => false,
        _ => true,
    }
}

/// Reads the groups of thread or process `pid`; `None` when it cannot be seen.
fn read_groups(pid: u32, text: &mut Vec<u8>) -> Option<Arc<[u32]>> {
    read_status(pid, text)?.groups().map(Arc::from)
}

/// The status of a process, as text. (Other lines than those read here may hold any bytes.)
struct Status<'t>(&'t [u8]);

fn read_status(pid: u32, text: &mut Vec<u8>) -> Option<Status<'_>> {
    if pid == 0 {
        return None;
    }
    text.clear();
    let mut file = std::fs::File::open(format!("/proc/{pid}/status")).ok()?;
    file.read_to_end(text).ok()?;
    Some(Status(text))
}

/// Returns whether thread `tid` of user `uid` may change a file that keeps its set-id bits
/// (`CAP_FSETID`). If it cannot be seen, root may.
pub(crate) fn keeps_set_id(tid: u32, uid: u32) -> bool {
    let capabilities = || {
        let status = std::fs::read(format!("/proc/{tid}/status")).ok()?;
        let namespace = |who: &str| std::fs::read_link(format!("/proc/{who}/ns/user")).ok();
        // Those of another user namespace count for nothing here.
        let is_ours = namespace(&tid.to_string()) == namespace("self");
        Some(is_ours && Status(&status).capabilities()? & CAP_FSETID != 0)
    };
    capabilities().unwrap_or(uid == 0)
}

impl Status<'_> {
    /// The rest of the line that begins with a label. (Other lines may hold any bytes.)
    fn line(&self, label: &str) -> Option<&str> {
        let label = format!("\n{label}:");
        let start = find(self.0, label.as_bytes())? + label.len();
        let line = self.0[start..].split(|byte| *byte == b'\n').next()?;
        std::str::from_utf8(line).ok()
    }

    /// The numbers of a line.
    fn numbers(&self, label: &str) -> Option<Vec<u32>> {
        let line = self.line(label)?;
        Some(line.split_ascii_whitespace().filter_map(|number| number.parse().ok()).collect())
    }

    fn groups(&self) -> Option<Vec<u32>> {
        self.numbers("Groups")
    }

    /// User and group for files: of real, effective, saved and file system's the last.
    fn ids(&self) -> Option<(u32, u32)> {
        let last = |label| self.numbers(label)?.get(3).copied();
        Some((last("Uid")?, last("Gid")?))
    }

    /// Capabilities in force.
    fn capabilities(&self) -> Option<u64> {
        u64::from_str_radix(self.line("CapEff")?.trim(), 16).ok()
    }
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::wire::InHeader;

    fn request(uid: u32, pid: u32, body: &mut [u8], extlen: u16) -> Request<'_> {
        let total_extlen = extlen;
        let header = InHeader { uid, gid: 5, pid, total_extlen, opcode: 9, ..InHeader::default() };
        let filled = body.len();
        Request::from_parts(header, &[], body, filled).unwrap()
    }

    #[test]
    fn lines_of_a_status() {
        let status = Status(
            b"Name:\tx\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\nGroups:\t4 24 1000 \nNStgid:\t1\n",
        );
        assert_eq!(status.groups(), Some(vec![4, 24, 1000]));
        assert_eq!(status.ids(), Some((4, 8)));
        assert_eq!(Status(b"Name:\tx\nGroups:\t \nNStgid:\t1\n").groups(), Some(vec![]));
        assert_eq!(Status(b"Name:\tx\n").groups(), None);
        assert_eq!(Status(b"Name:\tx\nUid:\t1\t2\n").ids(), None);
    }

    #[test]
    fn a_caller_that_the_kernel_has_not_sent() {
        let (mut who, pid) = (Who::new(), std::process::id());
        let caller = who.adopt(&request(UNKNOWN, pid, &mut [], 0), Opcode::Setattr, true);
        assert_eq!((caller.uid, caller.groups.len()), (UNKNOWN, 0), "not asked for");
        identify(caller, pid);
        let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
        assert_eq!((caller.uid, caller.gid), (uid.as_raw(), gid.as_raw()));
        let caller = who.adopt(&request(UNKNOWN, 0, &mut [], 0), Opcode::Setattr, true);
        identify(caller, 0);
        assert_eq!(caller.uid, UNKNOWN, "it cannot be seen");
        let caller = who.adopt(&request(7, pid, &mut [], 0), Opcode::Mkdir, true);
        identify(caller, pid);
        assert_eq!((caller.uid, caller.gid), (7, 5), "as sent");
        let header = InHeader { uid: UNKNOWN, pid, ..InHeader::default() };
        assert_eq!((shown_user(&header), shown_user(&header)), (uid.as_raw(), uid.as_raw()));
    }

    #[test]
    fn who_keeps_set_id_bits() {
        assert!(keeps_set_id(0, 0) && !keeps_set_id(0, 1), "not seen");
        let tid = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        let status = std::fs::read(format!("/proc/{tid}/status")).unwrap();
        let mine = Status(&status).capabilities().unwrap();
        assert_eq!(keeps_set_id(tid, 1), mine & CAP_FSETID != 0);
    }

    #[test]
    fn own_groups_are_those_of_the_process() {
        let mine: Vec<u32> =
            rustix::process::getgroups().unwrap().into_iter().map(|group| group.as_raw()).collect();
        let mut who = Who::new();
        let pid = std::process::id();
        let caller = who.adopt(&request(1000, pid, &mut [], 0), Opcode::Mkdir, false);
        assert_eq!((caller.uid, caller.gid, &caller.groups[..]), (1000, 5, &mine[..]));
        // The second time from the cache.
        assert_eq!(who.groups_of(pid, 1000, 5)[..], mine[..]);
        assert!(who.groups_of(u32::MAX, 1, 1).is_empty(), "no such process");
    }

    #[test]
    fn the_extension_gives_the_group_when_the_kernel_checks() {
        let mut body = Vec::new();
        for word in [16u32, 32, 1, 4242] {
            body.extend_from_slice(&word.to_le_bytes());
        }
        let mut who = Who::new();
        let caller = who.adopt(&request(1000, 0, &mut body, 2), Opcode::Mkdir, true);
        assert!(caller.checked && caller.in_group(4242));
        let caller = who.adopt(&request(1000, 0, &mut [], 0), Opcode::Mkdir, true);
        assert!(!caller.in_group(4242), "not carried over to the next request");
        let caller = who.adopt(&request(0, 0, &mut [], 0), Opcode::Mkdir, true);
        assert!(caller.groups.is_empty());
    }
}
