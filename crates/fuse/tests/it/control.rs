//! The control ioctl with hand-made pages: short, unaligned and hostile ones, from root and from an
//! ordinary user.

use crate::common::*;
use rustix::io::Errno;
use shoal_fuse::protocol::control::{END, Kind, PAGE, VERSION, entries};
use shoal_fuse::protocol::flags::IOCTL_CONTROL;
use shoal_fuse::protocol::wire::ControlHead;
use std::os::fd::{AsRawFd, OwnedFd};
use zerocopy::{FromBytes, IntoBytes};

/// Kinds that any user may ask for.
const PUBLIC: [Kind; 4] = [Kind::Counters, Kind::Operations, Kind::ReadOnly, Kind::Quota];

fn head(kind: Kind) -> ControlHead {
    let mut head = ControlHead { version: VERSION, kind: kind as u16, ..ControlHead::default() };
    // A scrub of no bytes is refused.
    head.numbers[0] = u64::from(kind == Kind::Scrub);
    head
}

/// Makes the ioctl with any number, on any address.
fn call(opened: &OwnedFd, number: u32, page: *mut u8) -> Res<()> {
    // SAFETY: the kernel checks the address; callers give it as many bytes as the number says, or
    // none that are mapped.
    match unsafe { libc::ioctl(opened.as_raw_fd(), libc::c_ulong::from(number), page) } {
        0 => Ok(()),
        _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap()),
    }
}

/// Sends a head and the bytes behind it, from an odd address; returns the page.
fn ask(opened: &OwnedFd, head: &ControlHead, rest: &[u8]) -> Res<Vec<u8>> {
    let mut page = vec![0; PAGE + 1];
    let asked = [head.as_bytes(), rest].concat();
    page[1..=asked.len()].copy_from_slice(&asked);
    call(opened, IOCTL_CONTROL, page[1..].as_mut_ptr())?;
    page.remove(0);
    Ok(page)
}

/// Mounts a volume in which an ordinary user can make files, and has made one.
fn shared() -> Option<TestMount> {
    let m = mount_only("allow_other")?;
    chmod(&m.dir, 0o777);
    as_user(USER, &[], || touch(m.path("mine")));
    mkdir(m.path("kept"), 0o755).unwrap();
    touch(m.path("kept/file"));
    Some(m)
}

#[test]
fn root_may_ask_for_everything_and_others_for_little() {
    let Some(m) = shared() else { return };
    let top = dir(&m.dir);
    // Of a file, or with a name.
    let others = [Kind::RemoveTree, Kind::Share, Kind::MakeSubvolume, Kind::DeleteSubvolume];
    for kind in Kind::ALL.iter().copied().filter(|kind| !others.contains(kind)) {
        let answer = ask(&top, &head(kind), b"").unwrap();
        let (answer_head, _) = ControlHead::read_from_prefix(&answer).unwrap();
        assert_eq!((answer_head.version, answer_head.kind), (VERSION, kind as u16));
        // All of it was read in one step, or a part.
        assert!(answer_head.flags & END != 0 || matches!(kind, Kind::Scrub | Kind::Trim));
        assert_eq!(entries(&answer).count(), answer_head.count as usize);
        // The caller counts, not the user who opened the directory.
        as_user(USER, &[], || match ask(&top, &head(kind), b"") {
            Ok(_) => assert!(PUBLIC.contains(&kind), "{kind:?}"),
            Err(errno) => assert!(errno == Errno::PERM && !PUBLIC.contains(&kind), "{kind:?}"),
        });
    }
    let tree = |flags| ControlHead { len: 4, flags, ..head(Kind::RemoveTree) };
    as_user(USER, &[], || {
        fails!(PERM, ask(&top, &tree(1), b"mine"));
        fails!(ACCESS, ask(&top, &tree(0), b"kept"));
        ask(&top, &tree(0), b"mine").unwrap();
    });
    assert_eq!(list(&m.dir), ["kept"]);
    ask(&top, &tree(1), b"kept").unwrap();
}

/// Everything that [`shoal_fuse::protocol::control::parse`] refuses, through the kernel.
#[test]
fn malformed_requests_are_refused() {
    let Some(m) = shared() else { return };
    let top = dir(&m.dir);
    let refused = || {
        for kind in Kind::ALL.iter().copied() {
            let good = head(kind);
            fails!(PROTONOSUPPORT, ask(&top, &ControlHead { version: 2, ..good }, b""));
            fails!(PROTONOSUPPORT, ask(&top, &ControlHead { version: 0, ..good }, b""));
            fails!(NAMETOOLONG, ask(&top, &ControlHead { len: 256, ..good }, &[b'x'; 256]));
            fails!(NAMETOOLONG, ask(&top, &ControlHead { len: u32::MAX, ..good }, b""));
            for bad in [
                ControlHead { kind: 0, ..good },
                ControlHead { kind: u16::MAX, ..good },
                ControlHead { flags: 8, ..good },
                ControlHead { flags: u32::MAX, ..good },
                ControlHead { count: 1, ..good },
                ControlHead { numbers: [1, 1, 1, 1], ..good },
                // A name of NULs.
                ControlHead { len: 4, ..good },
            ] {
                fails!(INVAL, ask(&top, &bad, b""));
            }
        }
        for name in ["", ".", "..", "kept/file"] {
            let len = name.len() as u32;
            let asked = ControlHead { len, ..head(Kind::RemoveTree) };
            fails!(INVAL, ask(&top, &asked, name.as_bytes()));
        }
        let mut page = vec![0xff; PAGE];
        fails!(PROTONOSUPPORT, call(&top, IOCTL_CONTROL, page.as_mut_ptr()));
        page.fill(0);
        // Pages of other sizes, and numbers that were in use before.
        for number in [IOCTL_CONTROL & !0x3fff_0000 | 64 << 16, 0xfff8_5303, 0xfff8_5306] {
            fails!(NOTTY, call(&top, number, page.as_mut_ptr()));
        }
        // Unmapped memory: the whole page, or from its middle on.
        fails!(FAULT, call(&top, IOCTL_CONTROL, std::ptr::without_provenance_mut(8)));
        let edge = Edge::new();
        fails!(FAULT, call(&top, IOCTL_CONTROL, edge.page()));
    };
    refused();
    as_user(USER, &[], refused);
    assert_eq!(list(m.path("kept")), ["file"]);
    ask(&top, &head(Kind::Counters), b"").unwrap();
}

/// Memory of which only the first half of a control page can be read.
struct Edge {
    start: *mut libc::c_void,
}

impl Edge {
    const LEN: usize = 64 << 10;

    fn new() -> Edge {
        use libc::{MAP_ANONYMOUS, MAP_PRIVATE, PROT_NONE, PROT_READ, PROT_WRITE};
        let flags = MAP_PRIVATE | MAP_ANONYMOUS;
        // SAFETY: a new mapping, of which one half is closed.
        let start = unsafe {
            let start =
                libc::mmap(std::ptr::null_mut(), Edge::LEN, PROT_READ | PROT_WRITE, flags, -1, 0);
            assert_ne!(start, libc::MAP_FAILED);
            assert_eq!(libc::mprotect(start.add(Edge::LEN / 2), Edge::LEN / 2, PROT_NONE), 0);
            start
        };
        Edge { start }
    }

    fn page(&self) -> *mut u8 {
        // SAFETY: inside the mapping.
        unsafe { self.start.cast::<u8>().add(Edge::LEN / 2 - PAGE / 2) }
    }
}

impl Drop for Edge {
    fn drop(&mut self) {
        // SAFETY: the mapping that `new` made.
        unsafe { libc::munmap(self.start, Edge::LEN) };
    }
}
