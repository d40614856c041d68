//! The tree in which every case runs, and snapshots of it.

use super::User;
use crate::common::*;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, XattrFlags};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

pub(super) const ALICE: u32 = 1000;
pub(super) const BOB: u32 = 1001;
/// A group of which Bob is a member, beside his own and Alice's.
pub(super) const GROUP: u32 = 100;

/// Times of everything in a fresh tree.
const STAMP: i64 = 1_000_000_000;

/// Directories: name, mode, owner, group.
const DIRECTORIES: &[(&str, u32, u32, u32)] = &[
    ("dir", 0o755, 0, 0),
    ("open", 0o777, 0, 0),
    ("open/sub", 0o777, 0, 0),
    ("empty", 0o777, 0, 0),
    ("alices", 0o755, ALICE, ALICE),
    ("alices/roots", 0o755, 0, 0),
    ("groups", 0o2770, 0, GROUP),
    ("setgid", 0o2777, 0, GROUP),
    ("sticky", 0o1777, 0, 0),
    ("sticky/alices", 0o777, ALICE, ALICE),
    ("hersticky", 0o1777, ALICE, ALICE),
    ("locked", 0o700, 0, 0),
    ("unsearchable", 0o766, 0, 0),
    ("hidden", 0o711, 0, 0),
    ("readonly", 0o555, 0, 0),
];

/// Files: name, mode, owner, group. Each holds its name.
const FILES: &[(&str, u32, u32, u32)] = &[
    ("file", 0o644, 0, 0),
    ("shared", 0o666, 0, 0),
    ("alice", 0o640, ALICE, ALICE),
    ("bob", 0o600, BOB, BOB),
    ("bygroup", 0o464, 0, GROUP),
    ("none", 0o000, ALICE, ALICE),
    ("suid", 0o6777, ALICE, ALICE),
    ("sgid", 0o2777, BOB, GROUP),
    ("nosgidx", 0o2666, ALICE, GROUP),
    ("one", 0o666, 0, 0),
    ("dir/inner", 0o644, 0, 0),
    ("open/inner", 0o666, 0, 0),
    ("open/roots", 0o600, 0, 0),
    ("alices/inner", 0o644, 0, 0),
    ("groups/inner", 0o660, ALICE, GROUP),
    ("setgid/inner", 0o666, 0, GROUP),
    ("sticky/alice", 0o666, ALICE, ALICE),
    ("sticky/bob", 0o666, BOB, BOB),
    ("hersticky/bob", 0o666, BOB, BOB),
    ("locked/inner", 0o666, 0, 0),
    ("unsearchable/inner", 0o666, 0, 0),
    ("hidden/inner", 0o666, 0, 0),
    ("readonly/inner", 0o666, 0, 0),
];

/// Links: name, target.
const LINKS: &[(&str, &str)] = &[
    ("tofile", "file"),
    ("toshared", "shared"),
    ("todir", "open"),
    ("toempty", "empty"),
    ("tolocked", "locked/inner"),
    ("dangling", "nowhere"),
    ("loop", "loop"),
    ("sticky/link", "../file"),
];

const SPECIAL: &[(&str, FileType, u32)] = &[
    ("fifo", FileType::Fifo, 0o666),
    ("socket", FileType::Socket, 0o666),
    ("device", FileType::CharacterDevice, 0o666),
];

/// One side of the comparison.
pub(super) struct Tree {
    /// The parent of the tree, which `..` reaches, and which is compared too.
    parent: PathBuf,
}

impl Tree {
    pub(super) fn new(mount: &Path) -> Tree {
        let tree = Tree { parent: mount.join("parent") };
        tree.build();
        tree
    }

    pub(super) fn rebuild(&self) {
        std::fs::remove_dir_all(&self.parent).unwrap();
        self.build();
    }

    fn build(&self) {
        let root = self.parent.join("t");
        for dir in [&self.parent, &root] {
            mkdir(dir, 0o777).unwrap();
        }
        for (name, ..) in DIRECTORIES {
            mkdir(root.join(name), 0o777).unwrap();
        }
        for (name, bits, uid, gid) in FILES {
            let path = root.join(name);
            std::fs::write(&path, name).unwrap();
            chown(&path, *uid, *gid);
            chmod(&path, *bits);
        }
        link(root.join("one"), root.join("two")).unwrap();
        for (name, target) in LINKS {
            symlink(target, root.join(name)).unwrap();
        }
        for (name, kind, bits) in SPECIAL {
            let device = rustix::fs::makedev(1, 3);
            let bits = Mode::from_raw_mode(*bits);
            rustix::fs::mknodat(CWD, root.join(name), *kind, bits, device).unwrap();
        }
        for name in ["shared", "open"] {
            let none = XattrFlags::empty();
            rustix::fs::setxattr(root.join(name), "user.old", b"value", none).unwrap();
        }
        for (name, bits, uid, gid) in DIRECTORIES {
            chown(root.join(name), *uid, *gid);
            chmod(root.join(name), *bits);
        }
        chmod(&self.parent, 0o755);
        self.stamp(&self.parent);
        shoal_skip::tick();
    }

    /// Sets the times of everything, bottom-up.
    fn stamp(&self, path: &Path) {
        if lstat(path).unwrap().st_mode & libc::S_IFMT == libc::S_IFDIR {
            for entry in std::fs::read_dir(path).unwrap() {
                self.stamp(&entry.unwrap().path());
            }
        }
        let time = rustix::fs::Timespec { tv_sec: STAMP, tv_nsec: 0 };
        let times = rustix::fs::Timestamps { last_access: time, last_modification: time };
        rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
    }

    /// Makes a call as `user`, in the tree.
    pub(super) fn run_as(
        &self,
        user: &User,
        run: &(dyn Fn() -> Res<String> + Sync),
    ) -> Res<String> {
        let root = self.parent.join("t");
        as_user(user.uid, user.groups, || {
            std::env::set_current_dir(root).unwrap();
            rustix::process::umask(Mode::from_raw_mode(0o022));
            run()
        })
    }

    /// Takes a snapshot.
    pub(super) fn look(&self) -> Snapshot {
        let mut snapshot = Snapshot::default();
        let mut first = BTreeMap::new();
        snapshot.add(&self.parent, "..", &mut first);
        snapshot
    }
}

/// A snapshot of a tree.
#[derive(Default)]
pub(super) struct Snapshot {
    entries: BTreeMap<String, Entry>,
    /// Time of the last change of each inode.
    changes: BTreeMap<u64, (i64, i64)>,
}

struct Entry {
    ino: u64,
    facts: String,
}

impl Snapshot {
    fn add(&mut self, path: &Path, name: &str, first: &mut BTreeMap<u64, String>) {
        let stat = lstat(path).unwrap();
        let kind = FileType::from_raw_mode(stat.st_mode);
        let mut facts = format!("{:o} {}:{}", stat.st_mode, stat.st_uid, stat.st_gid);
        facts += &format!(" links {} {}", stat.st_nlink, time(stat.st_mtime as i64));
        if kind != FileType::Symlink && is_set_by_hand(stat.st_atime as i64) {
            facts += &format!(" read at {}", stat.st_atime);
        }
        match kind {
            FileType::Directory => {}
            FileType::Symlink => {
                facts += &format!(" -> {}", std::fs::read_link(path).unwrap().display());
            }
            FileType::RegularFile => facts += &contents(path, stat.st_size as u64),
            _ => facts += &format!(" device {:x}", stat.st_rdev),
        }
        facts += &attributes(path);
        if stat.st_nlink > 1 && kind != FileType::Directory {
            let same = first.entry(stat.st_ino).or_insert_with(|| name.to_owned());
            facts += &format!(" is {same}");
        }
        self.changes.insert(stat.st_ino, (stat.st_ctime as i64, stat.st_ctime_nsec as i64));
        self.entries.insert(name.to_owned(), Entry { ino: stat.st_ino, facts });
        if kind == FileType::Directory {
            // Sorted, so that the first name of an inode is the same on both sides.
            for inner in list(path) {
                let below = format!("{name}/{inner}");
                self.add(&path.join(&inner), &below, first);
            }
        }
    }

    /// Returns everything but times of change, which differ between any two trees.
    pub(super) fn facts(&self) -> Vec<(&str, &str)> {
        self.entries.iter().map(|(name, entry)| (&**name, &*entry.facts)).collect()
    }

    /// Returns the differences.
    pub(super) fn changes_to(&self, later: &Snapshot) -> Vec<String> {
        let names: BTreeSet<_> = self.entries.keys().chain(later.entries.keys()).collect();
        names.into_iter().filter_map(|name| self.change_of(name, later)).collect()
    }

    fn change_of(&self, name: &str, later: &Snapshot) -> Option<String> {
        let Some(now) = later.entries.get(name) else { return Some(format!("{name} gone")) };
        let before = self.entries.get(name);
        let touched = self.changes.get(&now.ino) != later.changes.get(&now.ino);
        let same = before.is_some_and(|before| before.facts == now.facts);
        if same && !touched {
            return None;
        }
        let touched = if touched { "ctime" } else { "no ctime" };
        let facts = if same { "same" } else { &now.facts };
        Some(format!("{name}: {facts}, {touched}"))
    }
}

/// Returns whether a case has set this time of access. A read changes it on one side or the other,
/// depending on the mounts' options and caches.
fn is_set_by_hand(time: i64) -> bool {
    (1..1000).contains(&time)
}

/// Describes a time, if it is significant.
fn time(seconds: i64) -> String {
    match seconds {
        STAMP => "old".to_owned(),
        0..1000 => format!("at {seconds}"),
        _ => "new".to_owned(),
    }
}

/// Describes a file's contents; of a large one its size only.
fn contents(path: &Path, size: u64) -> String {
    if size > 1 << 16 {
        return format!(" size {size}");
    }
    let file = open(path, OFlags::RDONLY | OFlags::NOATIME).unwrap();
    let data = pread(&file, 0, size as usize + 1);
    format!(" size {size} {:?}", String::from_utf8_lossy(&data))
}

/// Extended attributes with their values.
fn attributes(path: &Path) -> String {
    let mut room = vec![0; 4096];
    let len = match rustix::fs::llistxattr(path, &mut room[..]) {
        Ok(len) => len,
        Err(Errno::OPNOTSUPP) => 0,
        Err(errno) => panic!("listxattr {}: {errno}", path.display()),
    };
    room.truncate(len);
    let mut found: Vec<_> = room.split(|byte| *byte == 0).filter(|name| !name.is_empty()).collect();
    found.sort();
    let value = |name: &[u8]| {
        let mut room = vec![0; 1 << 17];
        let len = rustix::fs::lgetxattr(path, name, &mut room[..]).unwrap();
        format!(" {}={}", String::from_utf8_lossy(name), room[..len.min(32)].escape_ascii())
    };
    found.into_iter().map(value).collect()
}
