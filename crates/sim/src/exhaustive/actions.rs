//! The list of operations. Each is one call, or a short idiom of calls that programs use as one
//! (write aside and rename, an unnamed file written and linked). Where an operation stands in the
//! list is its number in a sequence's name: add at the end.

use crate::op::make::{at, place};
pub use crate::op::make::{path as dir, path as file};
use crate::op::{Change, Data, Op, Target, Who};
use shoal::raw::{Fallocate, RenameFlags, SetTime, Time, XattrFlags};

/// The slot of the file that every sequence holds open.
pub const SLOT_HELD: usize = 0;
/// The slot of files without a name.
pub const SLOT_UNNAMED: usize = 1;

/// One entry of the list.
#[derive(Clone, Debug)]
pub struct Action {
    /// The calls.
    pub ops: Vec<Op>,
    /// Target of an fsync of "the file" behind it.
    pub object: Option<Target>,
    /// Target of an fsync of "the directory" behind it.
    pub dir: Option<Target>,
}

fn parent(path: &str) -> Option<Target> {
    Some(place(path).dir)
}

const ROOT: Who = Who::Root;

/// Makes operations; each with data of its own, so that no two writes leave the same bytes.
#[derive(Default)]
pub struct Make {
    writes: u64,
}

impl Make {
    fn data(&mut self, len: u32) -> Data {
        self.writes += 1;
        // Noise, of which no two are alike (see `Data::bytes`).
        Data { seed: self.writes * 8 + 3, len }
    }
    /// Makes a file.
    pub fn create(&mut self, dir: &str, name: &str) -> Op {
        Op::Create { who: ROOT, at: place(&format!("{dir}/{name}")), mode: 0o644 }
    }
    /// Makes a directory.
    pub fn mkdir(&mut self, dir: &str, name: &str) -> Op {
        Op::Mkdir { who: ROOT, at: at(dir, name), mode: 0o755 }
    }
    /// Makes a symlink of so many bytes.
    pub fn symlink(&mut self, dir: &str, name: &str, len: usize) -> Op {
        let target = b"../A/foo".iter().copied().cycle().take(len).collect();
        Op::Symlink { who: ROOT, at: place(&format!("{dir}/{name}")), target }
    }
    /// Writes.
    pub fn write(&mut self, path: &str, offset: u64, len: u32) -> Op {
        Op::Write { file: file(path), offset, data: self.data(len), kill_priv: false }
    }
    /// Sets an attribute.
    pub fn set(&mut self, path: &str, name: &str, len: u32) -> Op {
        let (name, data) = (name.into(), self.data(len));
        let flags = XattrFlags::default();
        Op::SetXattr { who: ROOT, file: file(path), name, data, flags }
    }
}

/// The list being made.
struct List {
    make: Make,
    actions: Vec<Action>,
}

/// All operations, numbered by their place.
pub fn all() -> Vec<Action> {
    // Other data than those of the tree's own making.
    let mut list = List { make: Make { writes: 1000 }, actions: Vec::new() };
    list.names();
    list.renames();
    list.contents();
    list.space();
    list.attributes();
    list.others();
    list.idioms();
    list.batches();
    list.actions
}

impl List {
    fn add(&mut self, ops: Vec<Op>, object: Option<Target>, dir: Option<Target>) {
        self.actions.push(Action { ops, object, dir });
    }

    /// An operation that makes `path`, or works on it.
    fn on(&mut self, path: &str, op: Op) {
        self.add(vec![op], Some(file(path)), parent(path));
    }

    fn names(&mut self) {
        for path in ["B/foo", "A/dir/foo"] {
            self.on(path, Op::Create { who: ROOT, at: place(path), mode: 0o644 });
        }
        for path in ["B/foo", "A/dir/sub"] {
            self.on(path, Op::Mkdir { who: ROOT, at: place(path), mode: 0o755 });
        }
        self.on("B/foo", Op::Mknod { who: ROOT, at: place("B/foo"), mode: 0o010_644, rdev: 0 });
        for len in [8, 700] {
            let op = self.make.symlink("B", "foo", len);
            self.on("B/foo", op);
        }
        for (from, to) in [
            ("A/foo", "B/foo"),
            ("A/bar", "B/foo"),
            ("B/bar", "A/dir/foo"),
            ("A/foo", "A/third"),
            ("B/foo", "A/dir/foo"),
        ] {
            self.on(to, Op::Link { who: ROOT, from: file(from), at: place(to) });
        }
        for path in ["A/foo", "A/bar", "B/foo", "B/bar", "B/ln", "A/dir/foo", "A/third"] {
            // Nothing is left to synchronise but the directory; of the held file also itself.
            let object = (path == "B/bar").then_some(Target::Slot(SLOT_HELD));
            let op = Op::Unlink { who: ROOT, at: place(path) };
            self.add(vec![op], object, parent(path));
        }
        for path in ["A/dir", "B/dir", "B/foo", "A/dir/sub"] {
            let op = Op::Rmdir { who: ROOT, at: place(path) };
            self.add(vec![op], None, parent(path));
        }
    }

    fn renames(&mut self) {
        let plain = RenameFlags::default();
        let exchange = RenameFlags { exchange: true, ..RenameFlags::default() };
        let noreplace = RenameFlags { noreplace: true, ..RenameFlags::default() };
        let whiteout = RenameFlags { whiteout: true, ..plain };
        for (from, to, flags) in [
            // Over a file: in one directory, across two, over one that is held.
            ("A/foo", "A/bar", plain),
            ("A/bar", "A/foo", plain),
            ("A/foo", "B/bar", plain),
            ("B/bar", "A/foo", plain),
            ("B/foo", "A/foo", plain),
            // Over nothing.
            ("A/foo", "A/third", plain),
            ("A/foo", "B/foo", plain),
            ("A/bar", "B/foo", plain),
            ("B/bar", "B/foo", plain),
            ("B/foo", "A/third", plain),
            ("A/third", "B/foo", plain),
            ("B/ln", "A/bar", plain),
            // Directories: over nothing, over an empty one, one with contents, deeper.
            ("A/dir", "A/third", plain),
            ("A/dir", "B/foo", plain),
            ("A/dir", "B/dir", plain),
            ("B/foo", "B/dir", plain),
            ("A", "B/dir", plain),
            ("A", "B/foo", plain),
            ("B", "A/dir/B", plain),
            ("A", "C", plain),
            ("C", "A", plain),
            // Swaps.
            ("A/foo", "A/bar", exchange),
            ("A/foo", "B/bar", exchange),
            ("A/dir", "B/bar", exchange),
            ("A/dir", "B/dir", exchange),
            ("A", "B", exchange),
            ("A/foo", "B/foo", exchange),
            // Only over nothing.
            ("A/foo", "B/foo", noreplace),
            ("A/dir", "B/foo", noreplace),
            ("B/bar", "A/third", noreplace),
            // Whiteouts: over nothing, over a file, of a directory, and of two names of one file.
            ("A/foo", "A/third", whiteout),
            ("A/foo", "B/bar", whiteout),
            ("A/dir", "B/dir", whiteout),
            ("A/foo", "B/foo", whiteout),
        ] {
            let op = Op::Rename { who: ROOT, from: place(from), to: place(to), flags };
            // The directory that lost the name: the one it came to knows already by the file.
            self.add(vec![op], Some(file(to)), parent(from));
        }
    }

    fn contents(&mut self) {
        for (path, offset, len) in [
            // In the inode, out of it, in one extent, into several.
            ("A/bar", 0, 20),
            ("A/bar", 10, 5000),
            ("A/foo", 4096, 4096),
            ("A/foo", 100, 20),
            ("A/foo", 8000, 3000),
            ("A/foo", 0, 300_000),
            ("A/foo", 1_000_000, 100),
            ("B/bar", 0, 5000),
            ("B/bar", 20_000, 5000),
            ("B/bar", 131_072 - 500, 1000),
            ("B/foo", 0, 20),
            ("B/foo", 0, 5000),
            ("A/dir/foo", 0, 5000),
        ] {
            let op = self.make.write(path, offset, len);
            self.on(path, op);
        }
        for (path, len) in [("A/bar", 4), ("A/bar", 5000), ("A/foo", 3000), ("B/foo", 200)] {
            let data = self.make.data(len);
            self.on(path, Op::Append { file: file(path), data, kill_priv: false });
        }
        for (path, size) in [
            ("A/foo", 0),
            ("A/foo", 20),
            ("A/foo", 4000),
            ("A/foo", 20_000),
            ("A/bar", 0),
            ("A/bar", 10),
            ("A/bar", 100_000),
            ("B/bar", 0),
            ("B/bar", 70_000),
            ("B/bar", 133_000),
            ("B/bar", 1 << 30),
            ("B/foo", 5000),
        ] {
            let target = file(path);
            self.on(path, Op::Truncate { who: ROOT, file: target, size, by_handle: true });
        }
    }

    fn space(&mut self) {
        let allocate = |keep_size| Fallocate::Allocate { keep_size };
        let zero = |keep_size| Fallocate::ZeroRange { keep_size };
        for (path, mode, offset, len) in [
            ("A/foo", allocate(false), 0, 40_000),
            ("A/foo", allocate(true), 9000, 40_000),
            ("A/bar", allocate(false), 0, 5000),
            ("B/bar", allocate(false), 0, 131_072),
            ("A/foo", Fallocate::PunchHole, 1000, 3000),
            ("A/foo", Fallocate::PunchHole, 0, 1 << 20),
            ("A/bar", Fallocate::PunchHole, 5, 10),
            ("B/bar", Fallocate::PunchHole, 4000, 128_000),
            ("A/foo", zero(false), 4096, 8192),
            ("A/foo", zero(true), 8000, 8192),
        ] {
            self.on(path, Op::Fallocate { file: file(path), mode, offset, len });
        }
        for (from, to, to_offset) in
            [("A/foo", "B/bar", 60_000), ("A/foo", "A/bar", 0), ("A/bar", "B/foo", 0)]
        {
            let (from, target) = (file(from), file(to));
            let copy = Op::CopyRange { from, from_offset: 0, to: target, to_offset, len: 9000 };
            self.on(to, copy);
        }
    }

    fn attributes(&mut self) {
        for (path, name, len) in [
            // New: in the inode, in the tree, remote.
            ("A/foo", "user.new", 16),
            ("A/foo", "user.new", 600),
            ("A/foo", "user.new", 3000),
            ("B/foo", "user.new", 16),
            ("B/foo", "user.new", 600),
            ("A", "user.new", 16),
            ("A/dir", "user.new", 3000),
            // Replaced, by each size: forms change in every direction.
            ("A/foo", "user.small", 17),
            ("A/foo", "user.small", 600),
            ("A/foo", "user.small", 3000),
            ("A/bar", "user.small", 600),
            ("A/bar", "user.tree", 16),
            ("A/bar", "user.tree", 601),
            ("A/bar", "user.tree", 3000),
            ("A/bar", "user.remote", 16),
            ("A/bar", "user.remote", 600),
            ("A/bar", "user.remote", 3001),
        ] {
            let op = self.make.set(path, name, len);
            self.on(path, op);
        }
        for (path, name) in [
            ("A/foo", "user.small"),
            ("A/foo", "user.new"),
            ("A/bar", "user.small"),
            ("A/bar", "user.tree"),
            ("A/bar", "user.remote"),
        ] {
            let name = name.into();
            self.on(path, Op::RemoveXattr { who: ROOT, file: file(path), name });
        }
    }

    fn others(&mut self) {
        for (path, mode) in [("A/foo", 0o600), ("A", 0o700)] {
            self.on(path, Op::Chmod { who: ROOT, file: file(path), mode });
        }
        let (uid, gid) = (Some(1000), Some(1000));
        self.on("A/bar", Op::Chown { who: ROOT, file: file("A/bar"), uid, gid });
        let mtime = Some(SetTime::To(Time { sec: 1_000_000, nsec: 5 }));
        self.on("B/bar", Op::Utimes { who: ROOT, file: file("B/bar"), atime: None, mtime });
        // Files without a name.
        let (held, unnamed) = (Target::Slot(SLOT_HELD), Target::Slot(SLOT_UNNAMED));
        let tmpfile = Op::Tmpfile { who: ROOT, dir: dir("A"), mode: 0o600, slot: SLOT_UNNAMED };
        self.add(vec![tmpfile], Some(unnamed.clone()), Some(dir("A")));
        for slot in [&held, &unnamed] {
            let data = self.make.data(5000);
            let file = slot.clone();
            let op = Op::Write { file, offset: 0, data, kill_priv: false };
            self.add(vec![op], Some(slot.clone()), None);
        }
        let link = Op::Link { who: ROOT, from: unnamed.clone(), at: place("B/foo") };
        self.add(vec![link], Some(unnamed), Some(dir("B")));
        for slot in [SLOT_HELD, SLOT_UNNAMED] {
            self.add(vec![Op::Close { slot }], None, None);
        }
        let name = b"Q".to_vec();
        self.add(vec![Op::RootCreate { who: ROOT, name, mode: 0o755 }], Some(dir("Q")), None);
        self.add(vec![Op::RootDelete { who: ROOT, name: b"Q".to_vec() }], None, None);
    }

    fn idioms(&mut self) {
        // Write aside, make durable, rename over: how programs replace a file.
        let aside = vec![
            self.make.create("A", "new"),
            self.make.write("A/new", 0, 5000),
            Op::Fsync { file: file("A/new"), datasync: false },
            Op::Rename {
                who: ROOT,
                from: place("A/new"),
                to: place("A/foo"),
                flags: RenameFlags::default(),
            },
        ];
        self.add(aside, Some(file("A/foo")), Some(dir("A")));
        // A file that appears whole.
        let slot = SLOT_UNNAMED;
        let unnamed = Target::Slot(slot);
        let data = self.make.data(5000);
        let whole = vec![
            Op::Tmpfile { who: ROOT, dir: dir("B"), mode: 0o600, slot },
            Op::Write { file: unnamed.clone(), offset: 0, data, kill_priv: false },
            Op::Link { who: ROOT, from: unnamed, at: place("B/foo") },
            Op::Close { slot },
        ];
        self.add(whole, Some(file("B/foo")), Some(dir("B")));
        // A file that is gone as soon as it is there.
        let data = self.make.data(5000);
        let gone = vec![
            self.make.create("A", "gone"),
            Op::Open { file: file("A/gone"), slot },
            Op::Unlink { who: ROOT, at: place("A/gone") },
            Op::Write { file: Target::Slot(slot), offset: 0, data, kill_priv: false },
        ];
        self.add(gone, Some(Target::Slot(slot)), Some(dir("A")));
        // A root with something in it, which outlives the root's deletion until it is reaped.
        let root = vec![
            Op::RootCreate { who: ROOT, name: b"R".to_vec(), mode: 0o755 },
            self.make.create("R", "file"),
            self.make.write("R/file", 0, 5000),
        ];
        self.add(root, Some(file("R/file")), Some(dir("R")));
        self.add(vec![Op::RootDelete { who: ROOT, name: b"R".to_vec() }], None, None);
    }

    /// Changes in both directories as one transaction.
    fn batches(&mut self) {
        let file = |make: &mut Make, path: &str, len, replace| {
            let data = make.data(len);
            Change::File { path: path.into(), mode: 0o644, data, replace }
        };
        let rename = |from: &str, to: &str| {
            let flags = RenameFlags::default();
            Change::Rename { from: from.into(), to: to.into(), flags }
        };
        let make = &mut self.make;
        let two_files = vec![file(make, "A/third", 30, false), file(make, "B/foo", 5000, false)];
        let generation = vec![file(make, "A/foo", 20, true), file(make, "B/bar", 5000, true)];
        let package = vec![
            Change::Dir { path: b"B/foo".to_vec(), mode: 0o755 },
            file(make, "B/foo/file", 5000, false),
            Change::Link { from: b"A/foo".to_vec(), to: b"B/foo/old".to_vec() },
            rename("A/bar", "B/foo/bar"),
        ];
        let moved = vec![rename("A/foo", "B/foo"), Change::Remove { path: b"B/bar".to_vec() }];
        let swept = vec![rename("A/dir", "B/foo"), Change::RemoveDir { path: b"B/dir".to_vec() }];
        for (changes, path) in [
            (two_files, "B/foo"),
            (generation, "A/foo"),
            (package, "B/foo/file"),
            (moved, "B/foo"),
            (swept, "B/foo"),
        ] {
            let op = Op::Batch { who: ROOT, start: dir(""), changes };
            self.add(vec![op], Some(self::file(path)), Some(dir("B")));
        }
    }
}
