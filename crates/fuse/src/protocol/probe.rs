//! An OPEN that fails on purpose, so that the kernel sends no OPEN, RELEASE and FLUSH from the
//! beginning of the mount on.
//!
//! The kernel stops sending all three, for any file, when an OPEN is answered with ENOSYS. Until
//! then each file that is *created* costs a RELEASE, and a program that only creates files never
//! sends an OPEN. So the server opens a file of its own mount once: one that does not exist, which
//! it makes up for itself alone. Nothing of it stays.

use super::reply::TTL_FOREVER;
use super::wire::{EntryOut, FuseAttr};
use super::{Opcode, Request};
use std::path::Path;

/// Name of the file, in the top directory.
pub const PROBE_NAME: &str = ".shoal-probe-open";
/// Its node, which no inode ever has.
const PROBE_NODE: u64 = 1 << 62;
/// Node of the top directory.
const ROOT: u64 = 1;

/// Returns whether `request` is a LOOKUP of the made-up file by this process.
#[inline]
pub fn is_probe(request: &Request<'_>) -> bool {
    request.header.nodeid == ROOT
        && request.opcode == Some(Opcode::Lookup)
        && request.payload().strip_suffix(b"\0") == Some(PROBE_NAME.as_bytes())
        && is_own_thread(request.header.pid)
}

/// Returns the entry of the made-up file: readable, and its name not to be cached.
pub fn probe_entry() -> EntryOut {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let mode = 0o100_400;
    let attr = FuseAttr { ino: PROBE_NODE, mode, nlink: 1, uid, gid, ..FuseAttr::default() };
    EntryOut { nodeid: PROBE_NODE, attr_valid: TTL_FOREVER, attr, ..EntryOut::default() }
}

/// Returns whether a thread is of this process. The request header has the thread of the caller.
#[cold]
fn is_own_thread(thread: u32) -> bool {
    Path::new("/proc/self/task").join(thread.to_string()).exists()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::wire::InHeader;

    #[test]
    fn for_this_process_only() {
        let probe = |pid, nodeid, name: &str| {
            let mut body = [name.as_bytes(), b"\0"].concat();
            let len = body.len();
            let opcode = Opcode::Lookup as u32;
            let header = InHeader { opcode, nodeid, pid, ..InHeader::default() };
            is_probe(&Request::from_parts(header, &[], &mut body, len).unwrap())
        };
        let me = std::process::id();
        assert!(probe(me, 1, PROBE_NAME));
        assert!(!probe(1, 1, PROBE_NAME) || me == 1);
        assert!(!probe(0, 1, PROBE_NAME));
        assert!(!probe(me, 2, PROBE_NAME));
        assert!(!probe(me, 1, ".shoal-probe"));
    }
}
