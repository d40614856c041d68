//! The caller of a request. The request header has its user and group, but no supplementary groups:
//! where these matter they are read from `/proc/<pid>/status` and kept for a short time.
//!
//! They matter when Shoal checks permissions itself, and for SETATTR always: `chmod g+s` and
//! `chgrp` depend on them. Root needs none. A caller that cannot be seen (another pid namespace)
//! has none. Shoal checks the removal of a tree on every mount: the kernel has checked only that
//! the directory could be opened.

use crate::protocol::{Opcode, Request};
use shoal::raw::Caller;
use std::io::Read;
use std::sync::Arc;
use std::time::{Duration, Instant};

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
        let groups = match wants_groups(op, kernel_checks) {
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
    text.clear();
    let mut file = std::fs::File::open(format!("/proc/{pid}/status")).ok()?;
    file.read_to_end(text).ok()?;
    parse_groups(text).map(Arc::from)
}

/// Returns whether thread `tid` of user `uid` may change a file that keeps its set-id bits
/// (`CAP_FSETID`). If it cannot be seen, root may.
pub(crate) fn keeps_set_id(tid: u32, uid: u32) -> bool {
    let capabilities = || {
        let status = std::fs::read(format!("/proc/{tid}/status")).ok()?;
        let line = line_of(&status, b"\nCapEff:")?;
        let namespace = |who: &str| std::fs::read_link(format!("/proc/{who}/ns/user")).ok();
        // Those of another user namespace count for nothing here.
        let is_ours = namespace(&tid.to_string()) == namespace("self");
        let all = u64::from_str_radix(line.trim(), 16).ok()?;
        Some(is_ours && all & CAP_FSETID != 0)
    };
    capabilities().unwrap_or(uid == 0)
}

/// Returns the rest of the line of a process's status that begins with `label`. (Other lines may
/// hold any bytes.)
fn line_of<'s>(status: &'s [u8], label: &[u8]) -> Option<&'s str> {
    let start = find(status, label)? + label.len();
    let line = status[start..].split(|byte| *byte == b'\n').next()?;
    std::str::from_utf8(line).ok()
}

/// Parses the line `Groups:` of a process's status.
fn parse_groups(status: &[u8]) -> Option<Vec<u32>> {
    let line = line_of(status, b"\nGroups:")?;
    Some(line.split_ascii_whitespace().filter_map(|group| group.parse().ok()).collect())
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
    fn groups_line() {
        let status = b"Name:\tx\nGid:\t0\t0\t0\t0\nGroups:\t4 24 1000 \nNStgid:\t1\n";
        assert_eq!(parse_groups(status), Some(vec![4, 24, 1000]));
        assert_eq!(parse_groups(b"Name:\tx\nGroups:\t \nNStgid:\t1\n"), Some(vec![]));
        assert_eq!(parse_groups(b"Name:\tx\n"), None);
    }

    #[test]
    fn who_keeps_set_id_bits() {
        assert!(keeps_set_id(0, 0) && !keeps_set_id(0, 1), "not seen");
        let tid = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        let status = std::fs::read(format!("/proc/{tid}/status")).unwrap();
        let mine = u64::from_str_radix(line_of(&status, b"\nCapEff:").unwrap().trim(), 16).unwrap();
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
