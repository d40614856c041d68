//! Quotas of directory trees: the kept use is that of the inodes, whatever call, crash or older
//! Shoal came before; limits are exact, for each call.

use crate::common;

use crate::common::rng::Rng;
use crate::common::{copy, open, options, store, store_as};
use shoal_base::limits::INODES_PER_BLOCK;
use shoal_engine::*;
use shoal_format::inode::Inode;
use std::collections::BTreeMap;
use std::sync::Arc;

const ROOT: Ino = Ino::ROOT;
const PLAIN: RenameFlags = RenameFlags { noreplace: false, exchange: false, whiteout: false };
const EXCHANGE: RenameFlags = RenameFlags { exchange: true, ..PLAIN };
const NONE: QuotaLimits = QuotaLimits { bytes: None, inodes: None };

fn inodes_max(inodes: u64) -> QuotaLimits {
    QuotaLimits { inodes: Some(inodes), ..NONE }
}

fn bytes_max(bytes: u64) -> QuotaLimits {
    QuotaLimits { bytes: Some(bytes), ..NONE }
}

fn fresh() -> (Arc<MemDevice>, Volume) {
    let device = Arc::new(MemDevice::new(128 << 20));
    mkfs_on(device.clone(), &MkfsOptions::default()).unwrap();
    let volume = open(&device);
    (device, volume)
}

fn mkdir(volume: &Volume, dir: Ino, name: &str) -> Ino {
    volume.namespace().mkdir(&Caller::root(), dir, name.as_bytes(), 0o755).unwrap().ino
}

fn create(volume: &Volume, dir: Ino, name: &str) -> Ino {
    volume.namespace().create(&Caller::root(), dir, name.as_bytes(), 0o644).unwrap().ino
}

fn write(volume: &Volume, ino: Ino, at: u64, len: usize) {
    assert_eq!(volume.files().write(ino, at, &vec![7; len], false).unwrap(), len);
}

fn unlink(volume: &Volume, dir: Ino, name: &str) {
    volume.namespace().unlink(&Caller::root(), dir, name.as_bytes()).unwrap();
}

fn rename(volume: &Volume, from: (Ino, &str), to: (Ino, &str), flags: RenameFlags) -> Result<()> {
    let (who, names) = (Caller::root(), volume.namespace());
    names.rename(&who, from.0, from.1.as_bytes(), to.0, to.1.as_bytes(), flags)
}

fn set(volume: &Volume, dir: Ino, limits: QuotaLimits) -> Quota {
    volume.quotas().set(&Caller::root(), dir, limits).unwrap()
}

fn remove(volume: &Volume, dir: Ino) {
    volume.quotas().remove(&Caller::root(), dir).unwrap();
}

fn over<T: std::fmt::Debug>(result: Result<T>) {
    assert_eq!(result.unwrap_err().code(), Code::Quota);
}

fn across<T: std::fmt::Debug>(result: Result<T>) {
    assert_eq!(result.unwrap_err().code(), Code::CrossRoot);
}

/// Returns the inodes in use of a device, after a replay if it was not closed.
fn inodes(device: &Arc<MemDevice>) -> BTreeMap<Ino, Inode> {
    let store = store_as(device, true);
    let mut all = BTreeMap::new();
    for root in store.roots().iter() {
        for index in 1..root.next_block() * INODES_PER_BLOCK as u64 {
            let ino = Ino::new(root.id, index);
            let inode = root.table.look(ino, Inode::clone);
            all.extend(inode.ok().filter(|inode| inode.core.in_use()).map(|inode| (ino, inode)));
        }
    }
    all
}

/// Checks the quotas of an open volume against the inodes of `device`, and the numbers in these
/// against their directories.
#[track_caller]
fn check_inodes(volume: &Volume, device: &Arc<MemDevice>) {
    let all = inodes(device);
    let quotas = volume.quotas().list();
    let mut sums: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    for (ino, Inode { core, .. }) in &all {
        let sum = sums.entry(core.project).or_default();
        *sum = (sum.0 + 1, sum.1 + core.bytes.div_ceil(512) * 512);
        let is_top = quotas.iter().any(|quota| quota.dir == *ino);
        let parent = all.get(&Ino(core.parent_or_rdev)).filter(|_| core.is_dir());
        if let Some(parent) = parent.filter(|_| !is_top && *ino != ROOT && core.nlink > 0) {
            assert_eq!(core.project, parent.core.project, "directory {ino}");
        }
    }
    for quota in &quotas {
        assert!(quota.is_exact, "{quota:?}");
        let project = all[&quota.dir].core.project;
        assert_eq!((quota.inodes, quota.bytes), sums[&project], "project {project}");
        assert_ne!(project, 0);
    }
}

/// Checks an open volume: as it is now, as a crash leaves it, and the check of it.
#[track_caller]
fn check(volume: &Volume, device: &Arc<MemDevice>) {
    volume.sync().unwrap();
    let crashed = copy(device);
    check_inodes(volume, &copy(&crashed));
    let again = open(&crashed);
    assert_eq!(again.quotas().list(), volume.quotas().list());
    again.sync().unwrap();
    check_inodes(&again, &copy(&crashed));
    let report = again.check(&mut |_, _| {}).unwrap();
    assert!(report.problems.is_empty(), "{:?}", report.problems);
}

/// Programs take a file of no blocks for one hole; a quota counts the space of data alone.
#[test]
fn contents_in_the_inode_have_blocks_and_take_no_quota() {
    let (device, volume) = fresh();
    let dir = mkdir(&volume, ROOT, "d");
    set(&volume, dir, bytes_max(1 << 20));
    let blocks = |volume: &Volume, ino| volume.attributes().getattr(ino).unwrap().blocks;
    let mut files = Vec::new();
    for len in [0, 1, 60, 200, 300, 5000] {
        let ino = create(&volume, dir, &len.to_string());
        write(&volume, ino, 0, len);
        let is_inline = len < 400;
        let counted = volume.quotas().bytes_of(ino).unwrap();
        let shown = blocks(&volume, ino);
        match is_inline {
            true => assert_eq!((shown, counted), ((len as u64).div_ceil(512), 0), "{len}"),
            false => assert_eq!((shown * 512, counted), (counted, shown * 512), "{len}"),
        }
        assert_eq!(shown > 0, len > 0, "{len}");
        files.push((ino, shown));
    }
    let data: u64 = files.iter().map(|(_, shown)| shown).sum();
    let totals = volume.bulk().totals(&Caller::root(), TotalsScan::of(dir)).unwrap();
    assert_eq!(totals.blocks, data);
    // A hole behind the contents is none of them.
    let set = SetAttr { size: Some(1 << 30), ..SetAttr::default() };
    volume.attributes().setattr(&Caller::root(), files[2].0, &set).unwrap();
    assert_eq!(blocks(&volume, files[2].0), 1);
    let link = volume.namespace().symlink(&Caller::root(), dir, b"link", b"target").unwrap();
    assert_eq!((link.blocks, blocks(&volume, dir)), (0, 0), "as in other file systems");
    volume.close().unwrap();
    let volume = open(&device);
    assert!(files.iter().all(|(ino, shown)| blocks(&volume, *ino) == *shown));
}

#[test]
fn every_call_changes_the_use_of_its_tree() {
    let (device, volume) = fresh();
    let who = Caller::root();
    let (a, b) = (mkdir(&volume, ROOT, "a"), mkdir(&volume, ROOT, "b"));
    assert_eq!(set(&volume, a, NONE).inodes, 1);
    let quota = |volume: &Volume| {
        let quota = volume.quotas().get(a).unwrap();
        (quota.inodes, quota.bytes)
    };
    let sub = mkdir(&volume, a, "sub");
    let f = create(&volume, sub, "f");
    assert_eq!(quota(&volume), (3, 0));
    write(&volume, f, 0, 300_000);
    let grown = quota(&volume).1;
    assert!((300_000..310_000).contains(&grown), "{grown}");
    write(&volume, f, 1000, 5000);
    check(&volume, &device);
    let size = SetAttr { size: Some(100_000), ..SetAttr::default() };
    volume.attributes().setattr(&who, f, &size).unwrap();
    assert!(quota(&volume).1 < grown);
    let allocate = Fallocate::Allocate { keep_size: true };
    volume.files().fallocate(f, allocate, 200_000, 1_000_000).unwrap();
    assert!(quota(&volume).1 >= 1_100_000);
    volume.files().fallocate(f, Fallocate::PunchHole, 0, 1 << 30).unwrap();
    assert_eq!(quota(&volume), (3, 0));
    volume.namespace().symlink(&who, sub, b"s", &[b'x'; 3000]).unwrap();
    volume.namespace().mknod(&who, sub, b"p", 0o010_644, 0).unwrap();
    volume.namespace().link(&who, f, a, b"g").unwrap();
    assert_eq!(quota(&volume), (5, 3072));
    check(&volume, &device);
    unlink(&volume, sub, "f");
    assert_eq!(quota(&volume).0, 5);
    unlink(&volume, a, "g");
    assert_eq!(quota(&volume).0, 4);
    // Outside nothing counts.
    let out = create(&volume, b, "out");
    write(&volume, out, 0, 100_000);
    assert_eq!(quota(&volume), (4, 3072));
    let ops = [
        BatchOp::Dir { path: b"a/m", mode: 0o755 },
        BatchOp::File { path: b"a/m/w", mode: 0o644, contents: &[1; 40_000], replace: false },
        BatchOp::Remove { path: b"a/sub/p" },
    ];
    volume.batch(&who, ROOT, &ops).unwrap();
    assert_eq!(quota(&volume), (5, 43_520));
    check(&volume, &device);
    volume.namespace().remove_tree(&who, a, b"sub", TreeCheck::Tree).unwrap();
    assert_eq!(quota(&volume), (3, 40_448));
    check(&volume, &device);
}

#[test]
fn unlinked_files_count_until_they_are_freed() {
    let (device, volume) = fresh();
    let a = mkdir(&volume, ROOT, "a");
    set(&volume, a, inodes_max(3));
    let who = Caller::root();
    let f = create(&volume, a, "f");
    volume.references().hold(f, 1).unwrap();
    unlink(&volume, a, "f");
    let t = volume.namespace().tmpfile(&who, a, 0o644).unwrap().ino;
    assert_eq!(volume.quotas().get(a).unwrap().inodes, 3);
    over(volume.namespace().create(&who, a, b"g", 0o644));
    over(volume.namespace().tmpfile(&who, a, 0o644));
    // A crash frees both.
    volume.sync().unwrap();
    let crashed = open(&copy(&device));
    assert_eq!(crashed.quotas().get(a).unwrap().inodes, 1);
    volume.references().release(f, 1);
    create(&volume, a, "g");
    volume.references().release(t, 1);
    create(&volume, a, "h");
    check(&volume, &device);
    volume.references().hold(create(&volume, ROOT, "x"), 1).unwrap();
    unlink(&volume, ROOT, "x");
    volume.close().unwrap();
    check(&open(&device), &device);
}

#[test]
fn a_limit_of_inodes_holds_for_every_call() {
    let (device, volume) = fresh();
    let who = Caller::root();
    let a = mkdir(&volume, ROOT, "a");
    let f = create(&volume, a, "f");
    set(&volume, a, inodes_max(2));
    let names = volume.namespace();
    over(names.create(&who, a, b"n", 0o644));
    over(names.mkdir(&who, a, b"n", 0o755));
    over(names.symlink(&who, a, b"n", b"t"));
    over(names.mknod(&who, a, b"n", 0o010_644, 0));
    over(names.tmpfile(&who, a, 0o644));
    let ops = [BatchOp::Dir { path: b"a/m", mode: 0o755 }];
    over(volume.batch(&who, ROOT, &ops));
    assert_eq!(names.create(&who, a, b"f", 0o644).unwrap_err().code(), Code::Exists);
    // Another name of a file is no inode.
    names.link(&who, f, a, b"g").unwrap();
    rename(&volume, (a, "g"), (a, "h"), PLAIN).unwrap();
    check(&volume, &device);
    unlink(&volume, a, "f");
    over(names.create(&who, a, b"n", 0o644));
    unlink(&volume, a, "h");
    names.create(&who, a, b"n", 0o644).unwrap();
    over(names.create(&who, a, b"o", 0o644));
    // Raised, lowered below the use, removed.
    set(&volume, a, inodes_max(3));
    names.create(&who, a, b"o", 0o644).unwrap();
    set(&volume, a, inodes_max(1));
    over(names.create(&who, a, b"p", 0o644));
    write(&volume, names.lookup(&who, a, b"o").unwrap().ino, 0, 100_000);
    set(&volume, a, NONE);
    names.create(&who, a, b"p", 0o644).unwrap();
    check(&volume, &device);
}

#[test]
fn a_limit_of_bytes_holds_for_every_call_and_frees_are_possible() {
    let (device, volume) = fresh();
    let who = Caller::root();
    let a = mkdir(&volume, ROOT, "a");
    let (f, g) = (create(&volume, a, "f"), create(&volume, a, "g"));
    write(&volume, f, 0, 256 << 10);
    let used = set(&volume, a, bytes_max(0)).bytes;
    set(&volume, a, bytes_max(used));
    let files = volume.files();
    let one = [1; 4096];
    over(files.write(f, 256 << 10, &one, false));
    over(files.write(g, 0, &one, false));
    over(files.copy_range(f, 0, g, 0, 4096));
    over(files.fallocate(g, Fallocate::Allocate { keep_size: false }, 0, 4096));
    over(files.fallocate(g, Fallocate::ZeroRange { keep_size: false }, 0, 4096));
    over(volume.namespace().symlink(&who, a, b"s", &[b'x'; 4000]));
    let ops = [BatchOp::File { path: b"a/w", mode: 0o644, contents: &[1; 40_000], replace: true }];
    over(volume.batch(&who, ROOT, &ops));
    assert_eq!(volume.quotas().get(a).unwrap().bytes, used);
    check(&volume, &device);
    // What stays in the inode takes nothing; holes neither; and what is there is overwritten.
    write(&volume, g, 0, 20);
    let long = SetAttr { size: Some(1 << 30), ..SetAttr::default() };
    volume.attributes().setattr(&who, g, &long).unwrap();
    write(&volume, f, 0, 128 << 10);
    files.fallocate(f, Fallocate::ZeroRange { keep_size: true }, 0, 128 << 10).unwrap();
    check(&volume, &device);
    files.fallocate(f, Fallocate::PunchHole, 0, 128 << 10).unwrap();
    let rest = used - volume.quotas().get(a).unwrap().bytes;
    assert_eq!(rest, 128 << 10);
    over(files.fallocate(g, Fallocate::Allocate { keep_size: false }, 1 << 20, rest + 1));
    files.fallocate(f, Fallocate::Allocate { keep_size: false }, 0, rest).unwrap();
    over(files.write(g, 1 << 20, &one, false));
    write(&volume, f, 0, rest as usize);
    assert_eq!(volume.quotas().get(a).unwrap().bytes, used);
    check(&volume, &device);
    // Renaming over a file, and removing, need nothing.
    rename(&volume, (a, "g"), (a, "f"), PLAIN).unwrap();
    unlink(&volume, a, "f");
    assert_eq!(volume.quotas().get(a).unwrap().bytes, 0);
    check(&volume, &device);
}

#[test]
fn statfs_shows_the_limits_inside() {
    let (_device, volume) = fresh();
    let a = mkdir(&volume, ROOT, "a");
    let f = create(&volume, a, "f");
    write(&volume, f, 0, 100_000);
    let whole = volume.statfs();
    assert_eq!(volume.statfs_of(f), whole);
    set(&volume, a, QuotaLimits { bytes: Some(1 << 20), inodes: Some(10) });
    let quota = volume.quotas().get(a).unwrap();
    for ino in [a, f] {
        let inside = volume.statfs_of(ino);
        assert_eq!((inside.bytes_total, inside.inodes_used, inside.inodes_free), (1 << 20, 2, 8));
        assert_eq!(inside.bytes_available, (1 << 20) - quota.bytes);
        assert_eq!(inside.bytes_free, inside.bytes_available);
    }
    assert_eq!(volume.statfs_of(ROOT).bytes_total, whole.bytes_total);
    assert_eq!(volume.statfs_of(Ino(1 << 40)).bytes_total, whole.bytes_total);
    // Below the use nothing is left, and no limit is larger than the volume.
    set(&volume, a, QuotaLimits { bytes: Some(1), inodes: Some(1) });
    let inside = volume.statfs_of(a);
    assert_eq!((inside.bytes_available, inside.inodes_free), (0, 0));
    set(&volume, a, bytes_max(1 << 50));
    let inside = volume.statfs_of(a);
    assert!(inside.bytes_available <= whole.bytes_available);
    assert_eq!(inside.bytes_total, 1 << 50);
}

#[test]
fn nothing_leaves_its_tree_or_enters_it() {
    let (device, volume) = fresh();
    let who = Caller::root();
    let (a, b) = (mkdir(&volume, ROOT, "a"), mkdir(&volume, ROOT, "b"));
    let (in_a, in_b) = (mkdir(&volume, a, "d"), mkdir(&volume, b, "d"));
    let (f, g) = (create(&volume, in_a, "f"), create(&volume, in_b, "f"));
    set(&volume, a, NONE);
    let names = volume.namespace();
    across(names.link(&who, f, b, b"l"));
    across(names.link(&who, g, a, b"l"));
    across(rename(&volume, (in_a, "f"), (in_b, "g"), PLAIN));
    across(rename(&volume, (in_a, "f"), (in_b, "f"), PLAIN));
    across(rename(&volume, (in_a, "f"), (in_b, "f"), EXCHANGE));
    across(rename(&volume, (in_b, "f"), (in_a, "g"), PLAIN));
    across(rename(&volume, (a, "d"), (ROOT, "e"), PLAIN));
    let ops = [BatchOp::Link { from: b"a/d/f", to: b"l" }];
    across(volume.batch(&who, ROOT, &ops));
    let ops = [BatchOp::Rename { from: b"a/d/f", to: b"l", flags: PLAIN }];
    across(volume.batch(&who, ROOT, &ops));
    let tmp = names.tmpfile(&who, a, 0o644).unwrap().ino;
    across(names.link(&who, tmp, b, b"t"));
    names.link(&who, tmp, in_a, b"t").unwrap();
    volume.references().release(tmp, 1);
    // Within, and the tree itself.
    rename(&volume, (in_a, "f"), (a, "g"), PLAIN).unwrap();
    rename(&volume, (a, "g"), (in_a, "t"), EXCHANGE).unwrap();
    rename(&volume, (ROOT, "a"), (in_b, "a"), PLAIN).unwrap();
    check(&volume, &device);
    // A tree within the tree.
    set(&volume, in_a, NONE);
    across(rename(&volume, (in_a, "t"), (a, "x"), PLAIN));
    across(rename(&volume, (a, "d"), (b, "x"), PLAIN));
    assert_eq!(volume.quotas().get(a).unwrap().inodes, 2);
    check(&volume, &device);
    remove(&volume, in_a);
    assert_eq!(volume.quotas().get(a).unwrap().inodes, 4);
    check(&volume, &device);
    // A subvolume is a tree of its own, in no other.
    let own = set(&volume, ROOT, NONE).inodes;
    set(&volume, ROOT, inodes_max(own));
    over(names.create(&who, ROOT, b"n", 0o644));
    let top = volume.subvolumes().create(&who, b"sub", 0o755).unwrap().ino;
    create(&volume, top, "n");
    assert_eq!(volume.quotas().of(top).unwrap(), None);
    set(&volume, top, inodes_max(2));
    over(names.create(&who, top, b"o", 0o644));
    check(&volume, &device);
}

#[test]
fn who_may_and_what_is_refused() {
    let (device, volume) = fresh();
    let (user, who) = (Caller::user(1000, 1000), Caller::root());
    let (a, f) = (mkdir(&volume, ROOT, "a"), create(&volume, ROOT, "f"));
    let code = |result: Result<Quota>| result.unwrap_err().code();
    let quotas = volume.quotas();
    assert_eq!(code(quotas.set(&user, a, NONE)), Code::NotPermitted);
    assert_eq!(code(quotas.set(&who, f, NONE)), Code::NotDirectory);
    assert_eq!(code(quotas.get(a)), Code::NoData);
    assert_eq!(quotas.remove(&who, a).unwrap_err().code(), Code::NoData);
    set(&volume, a, NONE);
    assert_eq!(quotas.remove(&user, a).unwrap_err().code(), Code::NotPermitted);
    let sub = mkdir(&volume, a, "sub");
    assert_eq!(code(quotas.get(sub)), Code::NoData);
    assert_eq!(quotas.of(sub).unwrap().unwrap().dir, a);
    remove(&volume, a);
    assert_eq!(quotas.list(), []);
    // A directory that is removed takes its quota with it, and the number is free.
    for n in 0..1100 {
        let name = format!("d{n}");
        let dir = mkdir(&volume, ROOT, &name);
        set(&volume, dir, inodes_max(n));
        volume.namespace().rmdir(&who, ROOT, name.as_bytes()).unwrap();
    }
    assert_eq!(quotas.list(), []);
    let dirs: Vec<Ino> = (0..1025).map(|n| mkdir(&volume, ROOT, &format!("e{n}"))).collect();
    dirs[..1024].iter().for_each(|dir| assert_eq!(set(&volume, *dir, NONE).inodes, 1));
    let error = quotas.set(&who, dirs[1024], NONE).unwrap_err();
    assert_eq!(error.code(), Code::NoSpace);
    assert!(error.to_string().contains("1024"), "{error}");
    assert_eq!(quotas.list().len(), 1024);
    check(&volume, &device);
    volume.close().unwrap();
    let options = OpenOptions { read_only: true, ..options() };
    let volume = Volume::open_on(device, &options).unwrap();
    assert_eq!(volume.quotas().list().len(), 1024);
    let error = volume.quotas().set(&who, dirs[0], NONE).unwrap_err();
    assert_eq!(error.code(), Code::ReadOnly);
}

/// Random calls in trees with quotas, some of which come and go; a crash or a close after each
/// part.
#[test]
fn the_use_is_exact_after_random_calls_crashes_and_closes() {
    for seed in 0..4u64 {
        let mut rng = Rng(seed * 7919 + 1);
        let (mut device, mut volume) = fresh();
        let who = Caller::root();
        let mut dirs = vec![ROOT];
        for n in 0..12 {
            let above = *rng.pick(&dirs);
            dirs.push(mkdir(&volume, above, &format!("dir{n}")));
        }
        for part in 0..12 {
            for _ in 0..150 {
                let (dir, to) = (*rng.pick(&dirs), *rng.pick(&dirs));
                let (name, other) = (format!("f{}", rng.below(6)), format!("f{}", rng.below(6)));
                let names = volume.namespace();
                let file = names.lookup(&who, dir, name.as_bytes()).map(|entry| entry.ino);
                // Errors are part of it.
                let _ = match (rng.below(12), file) {
                    (0..4, _) => names.create(&who, dir, name.as_bytes(), 0o644).map(drop),
                    (4..6, Ok(ino)) => {
                        let (at, len) = (rng.below(200_000) as u64, rng.below(100_000));
                        volume.files().write(ino, at, &vec![1; len], false).map(drop)
                    }
                    (6, Ok(ino)) => {
                        let size = Some(rng.below(100_000) as u64);
                        let size = SetAttr { size, ..SetAttr::default() };
                        volume.attributes().setattr(&who, ino, &size).map(drop)
                    }
                    (7, Ok(_)) => names.unlink(&who, dir, name.as_bytes()),
                    (8, Ok(ino)) => names.link(&who, ino, to, other.as_bytes()).map(drop),
                    (9, Ok(_)) => rename(&volume, (dir, &name), (to, &other), PLAIN),
                    (10, _) if rng.below(4) == 0 => {
                        let limits = QuotaLimits {
                            inodes: Some(rng.below(40) as u64).filter(|max| *max > 10),
                            bytes: Some(rng.below(1 << 20) as u64).filter(|max| *max > 1 << 18),
                        };
                        volume.quotas().set(&who, dir, limits).map(drop)
                    }
                    (11, _) if rng.below(4) == 0 => volume.quotas().remove(&who, dir),
                    _ => Ok(()),
                };
            }
            volume.sync().unwrap();
            check_inodes(&volume, &copy(&device));
            match part % 3 {
                0 => {}
                1 => {
                    device = copy(&device);
                    volume = open(&device);
                }
                _ => {
                    volume.close().unwrap();
                    volume = open(&device);
                }
            }
            volume.sync().unwrap();
            check_inodes(&volume, &copy(&device));
        }
        let report = volume.check(&mut |_, _| {}).unwrap();
        assert!(report.problems.is_empty(), "{:?}", report.problems);
    }
}

/// The walk of `set` and of `remove`, crashed after each write.
#[test]
fn an_interrupted_walk_is_continued() {
    for removes in [false, true] {
        let (device, volume) = fresh();
        let a = mkdir(&volume, ROOT, "a");
        let mut dir = a;
        for n in 0..6 {
            dir = mkdir(&volume, dir, "d");
            (0..n).for_each(|k| write(&volume, create(&volume, dir, &format!("{k}")), 0, 10_000));
        }
        if removes {
            set(&volume, a, NONE);
        }
        volume.close().unwrap();
        for writes in 0.. {
            let crashed = copy(&device);
            let dying = Arc::new(common::Dying::after(&crashed, writes));
            // Each transaction is in the journal at once.
            let lab = Lab { attr_intents_flushed: true, ..Lab::default() };
            let done =
                Volume::open_on(dying, &OpenOptions { lab, ..options() }).and_then(|volume| {
                    match removes {
                        false => volume.quotas().set(&Caller::root(), a, NONE).map(drop),
                        true => volume.quotas().remove(&Caller::root(), a),
                    }?;
                    volume.sync()
                });
            let volume = open(&crashed);
            volume.sync().unwrap();
            check_inodes(&volume, &copy(&crashed));
            if done.is_ok() {
                assert_eq!(volume.quotas().list().len(), usize::from(!removes));
                break;
            }
        }
    }
}

/// An older Shoal knows no quotas: what it makes has no number, and it moves everything anywhere.
#[test]
fn what_an_older_shoal_has_done_is_found_and_set_right() {
    let (device, volume) = fresh();
    let (a, b) = (mkdir(&volume, ROOT, "a"), mkdir(&volume, ROOT, "b"));
    let sub = mkdir(&volume, a, "sub");
    let inside: Vec<Ino> = (0..5).map(|n| create(&volume, sub, &format!("{n}"))).collect();
    let outside = create(&volume, b, "out");
    write(&volume, inside[0], 0, 50_000);
    set(&volume, a, inodes_max(100));
    set(&volume, b, NONE);
    volume.close().unwrap();
    // It lets numbers be, or leaves them out.
    let older = store(&device);
    let table = &older.root(ROOT).unwrap().table;
    let kind = shoal_txn::RecordKind::new(0, "test", 1000);
    for (ino, project) in [(sub, 0), (inside[1], 2), (inside[2], 0), (outside, 1)] {
        let mut txn = older.begin(shoal_txn::Need::Release, kind).unwrap();
        let inode = table.get(ino).unwrap();
        let mut locked = inode.write();
        locked.edit(table, txn.epoch()).core.project = project;
        let core = locked.inode().core;
        txn.log_core(&mut locked, shoal_format::item::Item::Core { ino, core });
        txn.stamp(&mut locked).unwrap();
        txn.commit().unwrap();
    }
    older.checkpoints().write_clean().unwrap();
    drop(older);
    let damaged = copy(&device);
    let volume = open(&device);
    volume.sync().unwrap();
    check_inodes(&volume, &copy(&device));
    assert_eq!(volume.quotas().get(a).unwrap().inodes, 7);
    assert_eq!(volume.quotas().get(b).unwrap().inodes, 2);
    assert_eq!(volume.quotas().get(a).unwrap().limits, inodes_max(100));
    // A reader does not know.
    let options = OpenOptions { read_only: true, ..options() };
    let volume = Volume::open_on(damaged, &options).unwrap();
    assert!(volume.quotas().list().iter().all(|quota| !quota.is_exact));
}

#[test]
fn a_repair_leads_to_a_recount() {
    let (device, volume) = fresh();
    let a = mkdir(&volume, ROOT, "a");
    let f = create(&volume, a, "f");
    write(&volume, f, 0, 50_000);
    set(&volume, a, inodes_max(9));
    volume.close().unwrap();
    let report = common::repair(&device);
    assert!(report.left.is_empty(), "{:?}", report.left);
    let volume = open(&device);
    check(&volume, &device);
    assert_eq!(volume.quotas().get(a).unwrap().limits, inodes_max(9));
}

/// Makes, writes and removes files in each directory, a thread each.
fn storm(volume: &Volume, dirs: &[Ino]) {
    std::thread::scope(|scope| {
        for dir in dirs {
            scope.spawn(move || {
                let who = Caller::root();
                for n in 0..600 {
                    let name = format!("{}", n % 40);
                    match volume.namespace().create(&who, *dir, name.as_bytes(), 0o644) {
                        Ok(entry) => match volume.files().write(entry.ino, 0, &[1; 9000], false) {
                            Ok(len) => assert_eq!(len, 9000),
                            Err(e) => assert!(e.is(Code::Quota), "{e}"),
                        },
                        Err(e) if e.is(Code::Exists) => unlink(volume, *dir, &name),
                        Err(e) => assert!(e.is(Code::Quota), "{e}"),
                    }
                }
            });
        }
    });
}

#[test]
fn threads_never_exceed_a_limit() {
    let (device, volume) = fresh();
    let a = mkdir(&volume, ROOT, "a");
    let dirs = [0, 1, 2, 3].map(|n| mkdir(&volume, a, &format!("{n}")));
    set(&volume, a, QuotaLimits { inodes: Some(60), bytes: Some(400_000) });
    storm(&volume, &dirs);
    let quota = volume.quotas().get(a).unwrap();
    assert!(quota.inodes <= 60 && quota.bytes <= 400_000, "{quota:?}");
    check(&volume, &device);
}

/// The use is counted after a crash, while calls go on.
#[test]
fn a_count_is_exact_while_threads_change_everything() {
    let (device, volume) = fresh();
    let a = mkdir(&volume, ROOT, "a");
    let dirs = [0, 1, 2, 3].map(|n| mkdir(&volume, a, &format!("{n}")));
    set(&volume, a, NONE);
    storm(&volume, &dirs);
    volume.sync().unwrap();
    let device = copy(&device);
    let options = OpenOptions { background: true, ..options() };
    let volume = Volume::open_on(device.clone(), &options).unwrap();
    storm(&volume, &dirs);
    while !volume.quotas().get(a).unwrap().is_exact {
        std::thread::yield_now();
    }
    volume.sync().unwrap();
    check_inodes(&volume, &copy(&device));
    volume.close().unwrap();
    check(&open(&device), &device);
}

#[test]
fn a_whiteout_counts_in_its_directory() {
    let (_, volume) = fresh();
    let dir = mkdir(&volume, ROOT, "dir");
    set(&volume, dir, inodes_max(3));
    create(&volume, dir, "f");
    let hide = RenameFlags { whiteout: true, ..PLAIN };
    rename(&volume, (dir, "f"), (dir, "g"), hide).unwrap();
    assert_eq!(volume.quotas().get(dir).unwrap().inodes, 3);
    let refused = rename(&volume, (dir, "g"), (dir, "h"), hide).unwrap_err();
    assert_eq!(refused.code(), Code::Quota);
    volume.namespace().lookup(&Caller::root(), dir, b"g").unwrap();
    assert_eq!(volume.quotas().get(dir).unwrap().inodes, 3);
}
