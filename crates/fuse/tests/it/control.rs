//! The ioctl for calls with hand-made pages: short, unaligned and hostile ones, from root and from
//! an ordinary user.

use crate::common::*;
use rustix::io::Errno;
use shoal::raw::{Caller, Error, Ino, QuotaLimits, Rights, ScrubAt, TreeCheck};
use shoal_fuse::protocol::flags::IOCTL_CALL;
use shoal_session::hello::VERSION;
use shoal_session::page::{HEAD, PAGE, ROWS};
use shoal_session::wire::{Put, Reader, Take, Writer};
use shoal_session::{Node, Row};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

/// Rows that any user may ask for.
const PUBLIC: [&str; 6] =
    ["share", "read_only_reason", "quota", "subvolumes", "metrics", "operations"];

/// Rows whose first argument is a node, which must be the opened file.
const OF_FILES: [&str; 6] = ["remove_tree", "share", "set_quota", "quota", "remove_quota", "links"];

/// Returns the rows of the library's table that the ioctl has, or those that it has not.
fn rows(in_page: bool) -> impl Iterator<Item = &'static Row> {
    shoal_session::ROWS.iter().filter(move |row| ROWS.contains(&row.number) == in_page)
}

fn number_of(name: &str) -> u16 {
    rows(true).find(|row| row.name == name).unwrap().number
}

fn bytes_of(value: impl Put) -> Vec<u8> {
    let mut bytes = Vec::new();
    value.put(&mut Writer::new(&mut bytes));
    bytes
}

/// Returns arguments with which root can make a call in the volume of [`shared`].
fn arguments(name: &str) -> Vec<u8> {
    let top = Node::TOP;
    match name {
        "remove_tree" => bytes_of(((top, &b"tree"[..]), TreeCheck::Tree)),
        "share" => bytes_of(((top, &b"kept/file"[..]), (Rights::READ, Duration::from_secs(3600)))),
        "make_subvolume" => bytes_of((&b"sub"[..], 0o755_u32)),
        "delete_subvolume" => bytes_of(&b"sub"[..]),
        "set_quota" => bytes_of((top, QuotaLimits { bytes: Some(1 << 30), inodes: None })),
        "quota" | "remove_quota" => bytes_of(top),
        "links" => bytes_of((top, (None::<Ino>, 0_u64))),
        "subvolumes" => bytes_of(0_u16),
        "metrics" | "operations" | "facts" | "loads" => bytes_of(0_u32),
        "quotas" | "trace" | "orphans" => bytes_of(0_u64),
        "trim" => bytes_of(true),
        "scrub" => bytes_of(((1_u32, ScrubAt::default()), 1_u64)),
        "set_label" => bytes_of(&b"label"[..]),
        "remount" => bytes_of((false, false)),
        "revoke_tokens" | "read_only_reason" => Vec::new(),
        other => panic!("{other}: no arguments here"),
    }
}

/// The head of a question.
#[derive(Clone, Copy)]
struct Head {
    version: u32,
    number: u16,
    zero: u16,
    umask: u32,
    len: u32,
}

impl Head {
    fn of(number: u16, arguments: &[u8]) -> Head {
        Head { version: VERSION, number, zero: 0, umask: 0, len: arguments.len() as u32 }
    }
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

/// Sends a head and the arguments behind it, from an odd address. Returns the error of the ioctl,
/// else the answer: the bytes of a result, or the errno of an error.
fn send(opened: &OwnedFd, head: Head, arguments: &[u8]) -> Res<Res<Vec<u8>>> {
    let Head { version, number, zero, umask, len } = head;
    let head = bytes_of(((version, (u32::from(zero) << 16) | u32::from(number)), (umask, len)));
    let mut page = vec![0xff; PAGE + 1];
    page[1..=HEAD].copy_from_slice(&head);
    page[1 + HEAD..][..arguments.len()].copy_from_slice(arguments);
    call(opened, IOCTL_CALL, page[1..].as_mut_ptr())?;
    let mut reader = Reader::new(&page[1..]);
    let ((version, failed), (zero, len)): ((u32, u32), (u32, u32)) =
        Take::take(&mut reader).unwrap();
    assert_eq!((version, zero), (VERSION, 0));
    let mut result = Reader::new(reader.bytes(len as usize).unwrap());
    Ok(match failed {
        0 => Ok(result.take_rest().to_vec()),
        1 => {
            let error = Error::take(&mut result).unwrap();
            result.end().unwrap();
            errno(Err(error))
        }
        other => panic!("result of kind {other}"),
    })
}

/// Asks a row with these arguments; returns its answer.
fn ask(opened: &OwnedFd, number: u16, arguments: &[u8]) -> Res<Vec<u8>> {
    send(opened, Head::of(number, arguments), arguments).expect("an answer")
}

/// Mounts a volume in which an ordinary user can make files, and has made one.
fn shared() -> Option<TestMount> {
    let m = mount_only("allow_other")?;
    chmod(&m.dir, 0o777);
    as_user(USER, &[], || mkdir(m.path("mine"), 0o755).unwrap());
    for name in ["kept", "tree", "secret"] {
        mkdir(m.path(name), 0o755).unwrap();
        touch(m.path(name).join("file"));
    }
    chmod(m.path("secret"), 0o700);
    Some(m)
}

#[test]
fn root_may_ask_for_everything_and_others_for_little() {
    let Some(m) = shared() else { return };
    let top = dir(&m.dir);
    let mut asked = 0;
    for row in rows(true) {
        let arguments = arguments(row.name);
        let ask = || ask(&top, row.number, &arguments);
        // The caller counts, not the user who opened the directory.
        as_user(USER, &[], || match ask() {
            Ok(_) => assert!(PUBLIC.contains(&row.name), "{}", row.name),
            // Decided by the permissions of the directory.
            Err(Errno::ACCESS) => assert_eq!(row.name, "remove_tree"),
            Err(errno) => {
                assert!(errno == Errno::PERM && !PUBLIC.contains(&row.name), "{} {errno}", row.name)
            }
        });
        assert!(ask().is_ok(), "{}", row.name);
        asked += 1;
    }
    assert_eq!(asked, ROWS.len(), "each is in the table");
    assert_eq!(list(&m.dir), ["kept", "mine", "secret"]);
    let tree = |path: &str, check| {
        ask(&top, number_of("remove_tree"), &bytes_of(((Node::TOP, path.as_bytes()), check)))
    };
    let share = |path: &str, rights| {
        let arguments = ((Node::TOP, path.as_bytes()), (rights, Duration::from_secs(1)));
        ask(&top, number_of("share"), &bytes_of(arguments))
    };
    as_user(USER, &[], || {
        fails!(PERM, tree("mine", TreeCheck::Top));
        fails!(ACCESS, tree("kept", TreeCheck::Tree));
        fails!(ACCESS, tree("secret/none", TreeCheck::Tree));
        tree("mine", TreeCheck::Tree).unwrap();
        fails!(ACCESS, share("kept/file", Rights::READ | Rights::WRITE));
        fails!(ACCESS, share("secret/file", Rights::READ));
    });
    assert_eq!(list(&m.dir), ["kept", "secret"]);
    tree("kept", TreeCheck::Top).unwrap();
}

/// Everything that [`shoal_session::page::Question::parse`] refuses, through the kernel.
#[test]
fn malformed_requests_are_refused() {
    let Some(m) = shared() else { return };
    let top = dir(&m.dir);
    let refused = || {
        for row in rows(true) {
            let arguments = arguments(row.name);
            let good = Head::of(row.number, &arguments);
            for version in [0, VERSION - 1, VERSION + 1, u32::MAX] {
                fails!(PROTONOSUPPORT, send(&top, Head { version, ..good }, &arguments));
            }
            for bad in [
                Head { number: 0, ..good },
                Head { number: u16::MAX, ..good },
                Head { zero: 1, ..good },
                Head { zero: u16::MAX, ..good },
                Head { umask: 0o1000, ..good },
                Head { umask: u32::MAX, ..good },
                Head { len: (PAGE - HEAD + 1) as u32, ..good },
                Head { len: u32::MAX, ..good },
            ] {
                fails!(INVAL, send(&top, bad, &arguments));
            }
        }
        for row in rows(false) {
            fails!(INVAL, send(&top, Head::of(row.number, &[]), &[]));
        }
        let mut page = vec![0xff; PAGE];
        fails!(PROTONOSUPPORT, call(&top, IOCTL_CALL, page.as_mut_ptr()));
        page.fill(0);
        fails!(PROTONOSUPPORT, call(&top, IOCTL_CALL, page.as_mut_ptr()));
        // Pages of other sizes, and numbers that were in use before.
        let before = [0xfff8_5303, 0xfff8_5304, 0xfff8_5305, 0xfff8_5306, 0xfff8_5308];
        for number in before.into_iter().chain([IOCTL_CALL & !0x3fff_0000 | 64 << 16]) {
            fails!(NOTTY, call(&top, number, page.as_mut_ptr()));
        }
        // Unmapped memory: the whole page, or from its middle on.
        fails!(FAULT, call(&top, IOCTL_CALL, std::ptr::without_provenance_mut(8)));
        let edge = Edge::new();
        fails!(FAULT, call(&top, IOCTL_CALL, edge.page()));
    };
    refused();
    as_user(USER, &[], refused);
    assert_eq!(list(m.path("kept")), ["file"]);
    ask(&top, number_of("metrics"), &arguments("metrics")).unwrap();
}

/// Arguments that are no values of the row: nothing is done, by nobody.
#[test]
fn malformed_arguments_are_refused() {
    let Some(m) = shared() else { return };
    let top = dir(&m.dir);
    let refused = |row: &Row, arguments: &[u8], errno: Errno| {
        let answer = ask(&top, row.number, arguments);
        assert_eq!(answer, Err(errno), "{} {arguments:?}", row.name);
        as_user(USER, &[], || {
            let is_public = PUBLIC.contains(&row.name) || row.name == "remove_tree";
            let errno = if is_public { errno } else { Errno::PERM };
            let answer = ask(&top, row.number, arguments);
            assert_eq!(answer, Err(errno), "{} {arguments:?}", row.name);
        });
    };
    for row in rows(true) {
        let (good, has_node) = (arguments(row.name), OF_FILES.contains(&row.name));
        refused(row, &[&good[..], &[0]].concat(), Errno::INVAL);
        for len in 0..good.len() {
            refused(row, &good[..len], Errno::INVAL);
        }
        let no_node = if has_node { Errno::BADF } else { Errno::INVAL };
        refused(row, &[0xff; PAGE - HEAD], no_node);
        for node in [0, 2, u64::MAX].into_iter().filter(|_| has_node) {
            refused(row, &[&bytes_of(Node(node)), &good[8..]].concat(), Errno::BADF);
        }
    }
    for path in [".", "..", "kept/.."] {
        let arguments = bytes_of(((Node::TOP, path.as_bytes()), TreeCheck::Tree));
        fails!(INVAL, ask(&top, number_of("remove_tree"), &arguments));
    }
    assert_eq!(list(&m.dir), ["kept", "mine", "secret", "tree"]);
    assert_eq!(list(m.path("tree")), ["file"]);
}

/// The kernel keeps names that it has been told do not exist.
#[test]
fn subvolumes_are_seen_at_once() {
    let Some(m) = shared() else { return };
    let calls = calls(dir(&m.dir));
    let who = Caller { umask: 0o27, ..Caller::root() };
    for _ in 0..3 {
        fails!(NOENT, lstat(m.path("sub")));
        calls.make_subvolume(&who, b"sub", 0o777).unwrap();
        assert_eq!(mode(m.path("sub")), 0o750);
        touch(m.path("sub/file"));
        assert_eq!(list(&m.dir), ["kept", "mine", "secret", "sub", "tree"]);
        calls.delete_subvolume(&who, b"sub").unwrap();
        fails!(NOENT, lstat(m.path("sub")));
        fails!(NOENT, lstat(m.path("sub/file")));
        assert_eq!(list(&m.dir), ["kept", "mine", "secret", "tree"]);
    }
}

/// A mount of one subvolume shows no others, and does not change the volume as a whole.
#[test]
fn a_mount_of_a_subvolume_is_not_the_volume() {
    let Some(mut m) = shared() else { return };
    calls(dir(&m.dir)).make_subvolume(&Caller::root(), b"r", 0o755).unwrap();
    m.remount_with("subvolume=r");
    mkdir(m.path("tree"), 0o755).unwrap();
    mkdir(m.path("kept"), 0o755).unwrap();
    touch(m.path("kept/file"));
    let whole =
        ["revoke_tokens", "make_subvolume", "delete_subvolume", "subvolumes", "trim", "set_label"];
    let top = dir(&m.dir);
    for row in rows(true) {
        let answer = ask(&top, row.number, &arguments(row.name));
        let expected = if whole.contains(&row.name) { Some(Errno::PERM) } else { None };
        assert_eq!(answer.err(), expected, "{}", row.name);
    }
    fails!(STALE, ask(&top, number_of("links"), &bytes_of((Node::TOP, (Some(Ino::ROOT), 0_u64)))));
}

/// Memory of which only the first half of a page can be read.
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
