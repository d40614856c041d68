//! Totals of directories: a walk and a scan agree with a walk of the test's own, whatever was done
//! before, and while directories are renamed. The speed, which decides no test:
//!
//! `cargo test --release -p shoal-engine --test it -- totals:: --ignored --nocapture`

use crate::common;

use crate::common::rng::Rng;
use shoal_engine::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

fn root() -> Caller {
    Caller::root()
}

fn volume(options: &MkfsOptions) -> (Arc<MemDevice>, Volume) {
    let device = Arc::new(MemDevice::new(256 << 20));
    mkfs_on(device.clone(), options).unwrap();
    let volume = common::open(&device);
    (device, volume)
}

fn mkdir(volume: &Volume, dir: Ino, name: &str) -> Ino {
    volume.namespace().mkdir(&root(), dir, name.as_bytes(), 0o755).unwrap().ino
}

fn create(volume: &Volume, dir: Ino, name: &str) -> Ino {
    volume.namespace().create(&root(), dir, name.as_bytes(), 0o644).unwrap().ino
}

/// A scan at once, a walk to the end, and what the size decides; with several threads, too.
fn ways(dir: Ino) -> Vec<TotalsScan> {
    let scan = TotalsScan::of(dir);
    let mut ways: Vec<_> = [Some(0), Some(u64::MAX), None, Some(3)]
        .map(|walk_max| TotalsScan { walk_max, ..scan })
        .into();
    ways.push(TotalsScan { threads: 3, walk_max: Some(0), ..scan });
    ways
}

/// The inodes below a directory, which is one of them, by number.
fn below(volume: &Volume, dir: Ino, subvolumes: bool) -> BTreeMap<u64, Attr> {
    let mut found = BTreeMap::from([(dir.0, volume.attributes().getattr(dir).unwrap())]);
    let mut dirs = vec![dir];
    while let Some(dir) = dirs.pop() {
        let mut each = |_: DirEntry<'_>, attr: Result<&Attr>| {
            let attr = attr.unwrap();
            if subvolumes || attr.ino.root() == dir.root() {
                found.insert(attr.ino.0, *attr);
                if attr.kind == FileKind::Directory {
                    dirs.push(attr.ino);
                }
            }
            true
        };
        volume.directories().readdirplus(dir, 2, &mut each).unwrap();
    }
    found
}

fn sum(found: &BTreeMap<u64, Attr>) -> Totals {
    let of = |kind| found.values().filter(move |attr| attr.kind == kind);
    let files = of(FileKind::Regular).count() as u64;
    let dirs = of(FileKind::Directory).count() as u64;
    let sized = of(FileKind::Regular).chain(of(FileKind::Symlink));
    let linked = |attr: &&Attr| attr.kind != FileKind::Directory && attr.nlink > 1;
    Totals {
        files,
        dirs,
        others: found.len() as u64 - files - dirs,
        linked: found.values().filter(linked).count() as u64,
        bytes: sized.map(|attr| attr.size).sum(),
        blocks: found.values().map(|attr| attr.blocks).sum(),
        newest_change: found.values().map(|attr| attr.ctime).max().unwrap(),
    }
}

/// Compares every way for every directory, with and without the subvolumes.
fn check_all(volume: &Volume, seed: u64) {
    let dirs = below(volume, Ino::ROOT, true);
    for dir in dirs.values().filter(|attr| attr.kind == FileKind::Directory) {
        for subvolumes in [true, false] {
            let expected = sum(&below(volume, dir.ino, subvolumes));
            for way in ways(dir.ino) {
                let way = TotalsScan { subvolumes, ..way };
                let found = volume.bulk().totals(&root(), way).unwrap();
                assert_eq!(found, expected, "seed {seed}, {way:?}");
                let (total, rows) = volume.bulk().totals_of_children(&root(), way).unwrap();
                assert_eq!(total, expected, "seed {seed}, {way:?}");
                check_rows(volume, way, &rows, seed);
            }
        }
    }
}

/// A file with links in several children counts for one of them; everything else is compared.
fn check_rows(volume: &Volume, way: TotalsScan, rows: &[ChildTotals], seed: u64) {
    let mut names = Vec::new();
    let mut each = |entry: DirEntry<'_>| {
        let is_wanted = way.subvolumes || entry.ino.root() == way.dir.root();
        if entry.kind == FileKind::Directory && is_wanted {
            names.push((entry.name.to_vec(), entry.ino));
        }
        true
    };
    volume.directories().readdir(way.dir, 2, &mut each).unwrap();
    assert!(rows.iter().map(|row| &row.name).eq(names.iter().map(|name| &name.0)), "seed {seed}");
    for ((_, child), ChildTotals { totals, .. }) in names.iter().zip(rows) {
        let all = sum(&below(volume, *child, true));
        let sole = |t: &Totals| (t.dirs, t.files + t.others - t.linked);
        assert_eq!(sole(totals), sole(&all), "seed {seed}, {way:?}");
        assert!(totals.linked <= all.linked, "seed {seed}, {way:?}");
        if all.linked == 0 {
            assert_eq!(*totals, all, "seed {seed}, {way:?}");
        }
    }
}

/// Random changes of a volume.
struct Changes<'v> {
    volume: &'v Volume,
    rng: Rng,
    /// Unlinked files that are open.
    open: Vec<Ino>,
}

impl Changes<'_> {
    /// Directories and the rest.
    fn known(&self) -> (Vec<Ino>, Vec<Ino>) {
        let all = below(self.volume, Ino::ROOT, true).into_values();
        let (dirs, files): (Vec<_>, Vec<_>) =
            all.partition(|attr| attr.kind == FileKind::Directory);
        let inos = |attrs: Vec<Attr>| attrs.iter().map(|attr| attr.ino).collect();
        (inos(dirs), inos(files))
    }

    fn name(&mut self) -> Vec<u8> {
        format!("n{}", self.rng.below(8)).into_bytes()
    }

    /// One change. It may fail: most errors of the namespace come up.
    fn one(&mut self) -> Result<()> {
        let (dirs, files) = self.known();
        let (dir, other) = (dirs[self.rng.below(dirs.len())], dirs[self.rng.below(dirs.len())]);
        let (name, to) = (self.name(), self.name());
        let (names, who) = (self.volume.namespace(), &root());
        let file = files.get(self.rng.below(files.len() + 1)).copied();
        match (self.rng.below(22), file) {
            (0..=2, _) => names.create(who, dir, &name, 0o644).map(|_| ()),
            (3..=4, _) => names.mkdir(who, dir, &name, 0o755).map(|_| ()),
            (5, _) => names.symlink(who, dir, &name, &to).map(|_| ()),
            (6, _) => names.mknod(who, dir, &name, FileKind::Fifo.mode_bits(), 0).map(|_| ()),
            (7..=9, Some(file)) => names.link(who, file, dir, &name).map(|_| ()),
            (10..=13, _) => names.rename(who, dir, &name, other, &to, RenameFlags::default()),
            (14, _) => {
                let exchange = RenameFlags { exchange: true, ..RenameFlags::default() };
                names.rename(who, dir, &name, other, &to, exchange)
            }
            (15, _) => names.unlink(who, dir, &name),
            (16, _) => names.remove_tree(who, dir, &name, TreeCheck::Tree),
            (17, Some(file)) => {
                self.volume.references().hold(file, 1)?;
                self.open.push(file);
                Ok(())
            }
            (18, Some(file)) => {
                let (at, len) = (self.rng.below(1 << 20), self.rng.below(9000));
                let data = vec![7; len];
                self.volume.files().write(file, at as u64, &data, false).map(|_| ())
            }
            (19, Some(file)) => {
                let set = SetAttr { size: Some(1 << self.rng.below(30)), ..SetAttr::default() };
                self.volume.attributes().setattr(who, file, &set).map(|_| ())
            }
            // Large enough that the parent pointers no longer fit into the inode.
            (20, Some(file)) => self.big_xattr(file),
            (21, _) => self.big_xattr(dir),
            _ => Ok(()),
        }
    }

    fn big_xattr(&mut self, ino: Ino) -> Result<()> {
        let name = format!("user.{}", self.rng.below(3));
        let value = vec![b'v'; self.rng.below(900)];
        let flags = XattrFlags::default();
        self.volume.attributes().setxattr(&root(), ino, name.as_bytes(), &value, flags)
    }
}

#[test]
fn a_walk_and_a_scan_agree_after_random_changes() {
    for seed in 1_u64..=12 {
        let (device, volume) = volume(&MkfsOptions::default());
        for name in [b"s1", b"s2"] {
            volume.subvolumes().create(&root(), name, 0o755).unwrap();
        }
        let rng = Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut changes = Changes { volume: &volume, rng, open: Vec::new() };
        let mut done = 0;
        for step in 0..400 {
            done += usize::from(changes.one().is_ok());
            if step % 200 == 150 {
                check_all(&volume, seed);
            }
        }
        assert!(done > 100, "seed {seed}: only {done} changes were possible");
        check_all(&volume, seed);
        let expected = sum(&below(&volume, Ino::ROOT, true));
        assert!(expected.files > 3 && expected.dirs > 5, "seed {seed}: {expected:?}");
        for ino in std::mem::take(&mut changes.open) {
            volume.references().release(ino, 1);
        }
        volume.close().unwrap();
        // From the device.
        let volume = common::open(&device);
        for way in ways(Ino::ROOT) {
            assert_eq!(volume.bulk().totals(&root(), way).unwrap(), expected, "seed {seed}");
        }
        volume.close().unwrap();
    }
}

/// Parent pointers in the tree, more of them than are read at a time.
#[test]
fn a_file_with_a_thousand_links_counts_once_wherever_one_is_below() {
    let (_device, volume) = volume(&MkfsOptions::default());
    let (many, one) = (mkdir(&volume, Ino::ROOT, "many"), mkdir(&volume, Ino::ROOT, "one"));
    let none = mkdir(&volume, Ino::ROOT, "none");
    let file = create(&volume, many, "f");
    volume.files().write(file, 0, &[1; 1000], false).unwrap();
    for n in 0..1000 {
        volume.namespace().link(&root(), file, many, format!("l{n}").as_bytes()).unwrap();
    }
    volume.namespace().link(&root(), file, one, b"l").unwrap();
    for (dir, files) in [(many, 1), (one, 1), (none, 0), (Ino::ROOT, 1)] {
        for way in ways(dir) {
            let found = volume.bulk().totals(&root(), way).unwrap();
            assert_eq!((found.files, found.linked, found.bytes), (files, files, 1000 * files));
        }
    }
}

#[test]
fn a_deep_tree_and_a_volume_without_parent_pointers_have_totals() {
    for parents in [true, false] {
        let (_device, volume) = volume(&MkfsOptions { parents, ..MkfsOptions::default() });
        let top = mkdir(&volume, Ino::ROOT, "top");
        let flags = RenameFlags::default();
        // Each new directory goes above the ones before: the scan meets a directory before those
        // above it.
        for _ in 0..1000 {
            let above = mkdir(&volume, top, "new");
            create(&volume, above, "f");
            let _ = volume.namespace().rename(&root(), top, b"d", above, b"d", flags);
            volume.namespace().rename(&root(), top, b"new", top, b"d", flags).unwrap();
        }
        let mut dir = top;
        for _ in 0..1000 {
            dir = mkdir(&volume, dir, "e");
        }
        let expected = sum(&below(&volume, top, true));
        assert_eq!((expected.dirs, expected.files), (2001, 1000));
        for way in ways(top) {
            assert_eq!(volume.bulk().totals(&root(), way).unwrap(), expected, "{way:?}");
        }
    }
}

#[test]
fn counting_ends_when_it_is_stopped() {
    let (_device, volume) = volume(&MkfsOptions::default());
    let top = mkdir(&volume, Ino::ROOT, "top");
    for n in 0..20 {
        let dir = mkdir(&volume, top, &format!("d{n}"));
        for n in 0..500 {
            create(&volume, dir, &format!("f{n}"));
        }
    }
    let expected = volume.bulk().totals(&root(), TotalsScan::of(top)).unwrap();
    for way in ways(top) {
        let until = |stop: &(dyn Fn() -> bool + Sync)| {
            volume.bulk().totals_until(&root(), way, stop).unwrap()
        };
        assert_eq!(until(&|| false), Some(expected), "{way:?}");
        // At once, or after some of it.
        for asked_max in [0, 1, 3] {
            let asked = AtomicUsize::new(0);
            let stop = || asked.fetch_add(1, Ordering::Relaxed) >= asked_max;
            assert_eq!(until(&stop), None, "{way:?} {asked_max}");
            // Each thread asks once more before it ends, and the call itself.
            let most = asked_max + way.threads + 1;
            assert!(asked.load(Ordering::Relaxed) <= most, "{way:?} {asked_max}");
        }
    }
}

#[test]
fn an_unprivileged_caller_needs_permission_for_every_directory() {
    let (_device, volume) = volume(&MkfsOptions::default());
    let (top, user) = (mkdir(&volume, Ino::ROOT, "top"), Caller::user(7, 7));
    let inner = mkdir(&volume, top, "inner");
    create(&volume, inner, "f");
    let expected = sum(&below(&volume, top, true));
    for way in ways(top) {
        assert_eq!(volume.bulk().totals(&user, way).unwrap(), expected);
    }
    let code = |who: &Caller, dir, walk_max| {
        let scan = TotalsScan { walk_max, ..TotalsScan::of(dir) };
        volume.bulk().totals(who, scan).unwrap_err().errno()
    };
    for mode in [0o700, 0o744, 0o711] {
        let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
        volume.attributes().setattr(&root(), inner, &set).unwrap();
        for walk_max in [Some(0), None] {
            assert_eq!(code(&user, top, walk_max), Code::Access.errno(), "{mode:o}");
            assert_eq!(code(&user, inner, walk_max), Code::Access.errno(), "{mode:o}");
        }
        let found = volume.bulk().totals(&root(), TotalsScan::of(top)).unwrap();
        assert_eq!((found.files, found.dirs), (expected.files, expected.dirs));
    }
    volume.references().hold(inner, 1).unwrap();
    volume.namespace().remove_tree(&root(), top, b"inner", TreeCheck::Tree).unwrap();
    for walk_max in [Some(0), None] {
        assert_eq!(code(&root(), inner, walk_max), Code::NotFound.errno());
        assert_eq!(code(&root(), Ino(1 << 40), walk_max), Code::Stale.errno());
    }
    assert_eq!(code(&root(), create(&volume, top, "f"), None), Code::NotDirectory.errno());
    volume.references().release(inner, 1);
}

/// Nothing leaves the directory, so everything is counted exactly once at any moment, although a
/// climb may see parts of several states.
#[test]
fn beside_renames_within_the_directory_a_scan_counts_everything_once() {
    let (_device, volume) = volume(&MkfsOptions::default());
    let top = mkdir(&volume, Ino::ROOT, "top");
    let dirs: Vec<Ino> = (0..24).map(|n| mkdir(&volume, top, &format!("d{n}"))).collect();
    for n in 0..1200 {
        let file = create(&volume, dirs[n % 24], &format!("f{n}"));
        volume.files().write(file, 0, &vec![1; n % 50], false).unwrap();
    }
    let before = sum(&below(&volume, top, true));
    assert_eq!(before.files, 1200);
    let done = AtomicBool::new(false);
    let (volume, dirs, done) = (&volume, &dirs, &done);
    std::thread::scope(|scope| {
        // Renames each directory into any other, in chains that turn around.
        let change = |seed: u64| {
            move || {
                let mut rng = Rng(seed);
                while !done.load(Ordering::SeqCst) {
                    let (n, to) = (rng.below(24), dirs[rng.below(24)]);
                    let name = format!("d{n}");
                    let from = volume.directories().parent_of(dirs[n]).unwrap();
                    let name = name.as_bytes();
                    // Fails if it would be below itself, or another thread was first.
                    let _ = volume.namespace().rename(
                        &root(),
                        from,
                        name,
                        to,
                        name,
                        RenameFlags::default(),
                    );
                }
            }
        };
        let changes = [scope.spawn(change(3)), scope.spawn(change(77))];
        let look = scope.spawn(move || {
            for round in 0..300 {
                let threads = 1 + round % 2;
                let way = TotalsScan { threads, walk_max: Some(0), ..TotalsScan::of(top) };
                let found = volume.bulk().totals(&root(), way).unwrap();
                let counts = |t: &Totals| (t.files, t.dirs, t.others, t.linked, t.bytes);
                assert_eq!(counts(&found), counts(&before));
            }
        });
        let looked = look.join();
        done.store(true, Ordering::SeqCst);
        for thread in changes {
            thread.join().unwrap();
        }
        looked.unwrap();
    });
    assert_eq!(volume.bulk().totals(&root(), TotalsScan::of(top)).unwrap().dirs, before.dirs);
}
