//! Idmapped mounts, by which containers with user namespaces use a volume: owners shift in both
//! directions, and what the mount checks itself still knows its callers.

use crate::common::*;
use rustix::fs::{FileType, OFlags, RenameFlags, XattrFlags};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use shoal::raw::TreeCheck;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// First user and group outside; inside they are 0.
const BASE: u32 = 100_000;
const MAPPED: u32 = 65_536;

/// A process in a user namespace with the map.
struct Namespace(Child);

impl Namespace {
    fn new() -> Option<Namespace> {
        let child = Command::new("unshare")
            .args(["--user", "--", "sh", "-c", "echo ready; exec cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let Ok(mut child) = child else {
            skipped("no unshare(1)");
            return None;
        };
        let mut line = String::new();
        let out = child.stdout.as_mut().unwrap();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut line).unwrap();
        let namespace = Namespace(child);
        if line != "ready\n" {
            skipped("no user namespaces here");
            return None;
        }
        for map in ["uid_map", "gid_map"] {
            let path = format!("/proc/{}/{map}", namespace.0.id());
            std::fs::write(path, format!("0 {BASE} {MAPPED}\n")).unwrap();
        }
        Some(namespace)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// An idmapped bind mount of a directory.
struct Mapped(PathBuf);

impl Mapped {
    fn new(m: &TestMount, of: &Path, namespace: &Namespace) -> Mapped {
        let at = m.base().join("mapped");
        std::fs::create_dir_all(&at).unwrap();
        let file = std::fs::File::open(format!("/proc/{}/ns/user", namespace.0.id())).unwrap();
        idmapped(of, &at, &file.into()).unwrap();
        Mapped(at)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.0, UnmountFlags::DETACH);
    }
}

fn owner(path: impl AsRef<Path>) -> (u32, u32) {
    let found = lstat(path).unwrap();
    (found.st_uid, found.st_gid)
}

#[test]
fn owners_shift_both_ways() {
    for options in ["allow_other", "allow_other,no_xattr", "allow_other,open"] {
        let Some(m) = mount_only(options) else { return };
        let Some(namespace) = Namespace::new() else { return };
        mkdir(m.path("tree"), 0o755).unwrap();
        touch(m.path("tree/file"));
        chown(m.path("tree/file"), 1, 2);
        let mapped = Mapped::new(&m, &m.path("tree"), &namespace);
        assert_eq!(owner(&mapped.0), (BASE, BASE));
        assert_eq!(owner(mapped.path("file")), (BASE + 1, BASE + 2));
        // All calls that make an inode, and a change of the owner.
        as_user(BASE, &[], || {
            touch(mapped.path("made"));
            mkdir(mapped.path("dir"), 0o755).unwrap();
            symlink("made", mapped.path("link")).unwrap();
            let (here, mode) = (rustix::fs::CWD, 0o644.into());
            rustix::fs::mknodat(here, mapped.path("fifo"), FileType::Fifo, mode, 0).unwrap();
            let (from, to) = (mapped.path("dir"), mapped.path("renamed"));
            rustix::fs::renameat_with(here, &from, here, &to, RenameFlags::WHITEOUT).unwrap();
            let unnamed = unnamed(&mapped.0);
            let empty = rustix::fs::AtFlags::EMPTY_PATH;
            rustix::fs::linkat(&unnamed, "", here, mapped.path("tmp"), empty).unwrap();
            try_chmod(mapped.path("made"), 0o600).unwrap();
            // It owns nothing else.
            fails!(ACCESS, open(mapped.path("file"), OFlags::WRONLY));
            fails!(PERM, try_chown(mapped.path("made"), Some(BASE + 5), None));
        });
        for name in ["made", "dir", "link", "fifo", "renamed", "tmp"] {
            assert_eq!(owner(mapped.path(name)), (BASE, BASE), "{name}");
            assert_eq!(owner(m.path("tree").join(name)), (0, 0), "{name}");
        }
        chown(mapped.path("made"), BASE + 7, BASE + 8);
        assert_eq!(owner(m.path("tree/made")), (7, 8));
        let outside = try_chown(mapped.path("made"), Some(7), Some(7)).unwrap_err();
        assert!([Errno::INVAL, Errno::OVERFLOW].contains(&outside), "{outside}");
        drop_caches();
        assert_eq!(owner(mapped.path("made")), (BASE + 7, BASE + 8));
        // A user without a place in the map owns nothing there.
        chmod(m.path("tree"), 0o777);
        as_user(5, &[], || {
            fails!(OVERFLOW, create(mapped.path("bad"), OFlags::WRONLY, 0o644));
            fails!(OVERFLOW, mkdir(mapped.path("bad"), 0o755));
        });
        // A new file in a set-group-id directory has the group of the directory.
        chown(m.path("tree"), 0, 9);
        chmod(m.path("tree"), 0o2777);
        as_user(BASE + 3, &[], || touch(mapped.path("of-group")));
        assert_eq!(owner(m.path("tree/of-group")), (3, 9));
    }
}

/// The kernel names no caller in requests that create nothing: set-id bits, hidden attributes, the
/// mount's files and its control calls depend on one all the same.
#[test]
fn requests_without_a_caller() {
    let Some(m) = mount_only("allow_other") else { return };
    let file = m.path("file");
    let set_id = |owner: u32, bits| {
        std::fs::write(&file, b"contents").unwrap();
        chown(&file, owner, OTHER);
        chmod(&file, bits);
    };
    // Truncated by its owner, and by root.
    set_id(USER, 0o6777);
    as_user(USER, &[], || truncate(&file, 3).unwrap());
    assert_eq!(mode(&file), 0o777);
    set_id(USER, 0o6777);
    truncate(&file, 2).unwrap();
    assert_eq!(mode(&file), 0o6777);
    // Written by its owner, who is not in its group; and the owner changes.
    set_id(USER, 0o6767);
    as_user(USER, &[], || std::fs::write(&file, b"x").unwrap());
    assert_eq!(mode(&file) & 0o4000, 0);
    set_id(USER, 0o6777);
    chown(&file, OTHER, OTHER);
    assert_eq!(mode(&file), 0o777);
    // A chown of nothing by a stranger clears nothing.
    set_id(USER, 0o4755);
    as_user(OTHER, &[], || {
        let _ = try_chown(&file, None, None);
    });
    assert_eq!(mode(&file), 0o4755);
    // `chmod g+s` outside of the group.
    chown(&file, USER, OTHER);
    as_user(USER, &[], || try_chmod(&file, 0o2755).unwrap());
    assert_eq!(mode(&file), 0o755);
    as_user(USER, &[OTHER], || try_chmod(&file, 0o2755).unwrap());
    assert_eq!(mode(&file), 0o2755);
    // Attributes of the superuser.
    chmod(&file, 0o666);
    rustix::fs::setxattr(&file, "trusted.t", b"t", XattrFlags::empty()).unwrap();
    rustix::fs::setxattr(&file, "user.u", b"u", XattrFlags::empty()).unwrap();
    let names = || {
        let mut names = [0; 256];
        let len = rustix::fs::listxattr(&file, &mut names[..]).unwrap();
        String::from_utf8(names[..len].to_vec()).unwrap()
    };
    assert!(names().contains("trusted.t"));
    as_user(USER, &[], || assert_eq!(names(), "user.u\0"));
    // Files of the mount, and its control calls.
    let stats = m.path(".shoal/stats");
    assert!(std::fs::read(&stats).is_ok());
    as_user(USER, &[], || fails!(ACCESS, open(&stats, OFlags::RDONLY)));
    mkdir(m.path("tree"), 0o755).unwrap();
    touch(m.path("tree/inner"));
    as_user(USER, &[], || {
        for (check, code) in [(TreeCheck::Tree, Errno::ACCESS), (TreeCheck::Top, Errno::PERM)] {
            assert_eq!(remove_tree(dir(&m.dir), "tree", check), Err(code));
        }
    });
    remove_tree(dir(&m.dir), "tree", TreeCheck::Top).unwrap();
    assert_eq!(list(&m.dir), ["file"]);
}
