//! Durations of the library's calls: every call is measured, once, and its failures are counted;
//! what calls make of other calls, and what background threads do, is not.

use crate::common::options;
use shoal_engine::*;
use shoal_skip::wait_until;
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

const TOP: Ino = Ino::ROOT;

fn fresh() -> (Volume, Caller) {
    let device = Arc::new(MemDevice::new(256 << 20));
    mkfs_on(device.clone(), &MkfsOptions::default()).unwrap();
    (Volume::open_on(device, &options()).unwrap(), Caller::root())
}

fn calls(volume: &Volume) -> HashMap<&'static str, Timing> {
    volume.maintenance().calls().into_iter().map(|(call, it)| (call.name(), it)).collect()
}

/// Number and failures of a call.
fn of(volume: &Volume, call: Call) -> (u64, u64) {
    let timing = volume.maintenance().call(call);
    (timing.count(), timing.errors)
}

/// Checks an estimate: six standard deviations.
fn near(volume: &Volume, call: Call, made: u64) {
    let (found, _) = of(volume, call);
    let off = 6.0 * (made as f64 * call.weight() as f64).sqrt();
    assert!((found as f64 - made as f64).abs() < off, "{found} {}, made {made}", call.name());
}

/// A call, and how it is made for the `n`-th time.
type Way<'w> = (Call, Box<dyn Fn(u64) + 'w>);

fn names(volume: &Volume, who: &Caller) -> (Ino, Ino) {
    let dir = volume.namespace().mkdir(who, TOP, b"dir", 0o755).unwrap().ino;
    let file = volume.namespace().create(who, dir, b"file", 0o644).unwrap().ino;
    volume.namespace().symlink(who, TOP, b"symlink", b"dir/file").unwrap();
    volume.attributes().setxattr(who, file, b"user.kept", b"1", XattrFlags::default()).unwrap();
    volume.files().write(file, 0, &[7; 5000], false).unwrap();
    (dir, file)
}

fn of_names<'w>(volume: &'w Volume, who: &'w Caller, dir: Ino) -> Vec<Way<'w>> {
    let names = volume.namespace();
    let name = |n: u64| n.to_string().into_bytes();
    let make = move |n| assert!(names.create(who, dir, &name(n), 0o644).is_ok());
    let plain = RenameFlags::default();
    vec![
        (Call::Create, Box::new(make)),
        (
            Call::Rename,
            Box::new(move |n| {
                make(1_000_000 + n);
                let (from, to) = (name(1_000_000 + n), [b"moved", &*name(n)].concat());
                names.rename(who, dir, &from, dir, &to, plain).unwrap();
            }),
        ),
        (
            Call::Unlink,
            Box::new(move |n| {
                make(2_000_000 + n);
                names.unlink(who, dir, &name(2_000_000 + n)).unwrap();
            }),
        ),
        (
            Call::Mkdir,
            Box::new(move |n| {
                names.mkdir(who, TOP, &name(n), 0o755).unwrap();
            }),
        ),
        (
            Call::Rmdir,
            Box::new(move |n| {
                names.mkdir(who, TOP, &name(1_000_000 + n), 0o755).unwrap();
                names.rmdir(who, TOP, &name(1_000_000 + n)).unwrap();
            }),
        ),
    ]
}

fn of_links<'w>(volume: &'w Volume, who: &'w Caller, dir: Ino, file: Ino) -> Vec<Way<'w>> {
    let names = volume.namespace();
    let name = |n: u64| n.to_string().into_bytes();
    let symlink = names.lookup(who, TOP, b"symlink").unwrap().ino;
    vec![
        (
            Call::RemoveTree,
            Box::new(move |_| {
                let tree = names.mkdir(who, TOP, b"tree", 0o755).unwrap().ino;
                names.create(who, tree, b"file", 0o644).unwrap();
                names.remove_tree(who, TOP, b"tree", TreeCheck::Tree).unwrap();
            }),
        ),
        (
            Call::Symlink,
            Box::new(move |n| {
                names.symlink(who, TOP, &[b"s", &*name(n)].concat(), b"file").unwrap();
            }),
        ),
        (
            Call::Link,
            Box::new(move |n| {
                names.link(who, file, TOP, &[b"l", &*name(n)].concat()).unwrap();
            }),
        ),
        (
            Call::Readlink,
            Box::new(move |_| {
                names.readlink(symlink).unwrap();
            }),
        ),
        (
            Call::Lookup,
            Box::new(move |_| {
                names.lookup(who, dir, b"file").unwrap();
            }),
        ),
        (
            Call::Resolve,
            Box::new(move |_| {
                names.resolve_beneath(who, TOP, b"symlink", true).unwrap();
            }),
        ),
        (
            Call::Paths,
            Box::new(move |_| {
                volume.paths().parents_of(dir).unwrap();
            }),
        ),
    ]
}

fn of_files<'w>(volume: &'w Volume, who: &'w Caller, file: Ino) -> Vec<Way<'w>> {
    let (files, attributes) = (volume.files(), volume.attributes());
    let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    let flags = XattrFlags::default();
    vec![
        (
            Call::Getattr,
            Box::new(move |_| {
                let _ = attributes.getattr(file).unwrap();
            }),
        ),
        (
            Call::Setattr,
            Box::new(move |_| {
                let _ = attributes.setattr(who, file, &set).unwrap();
            }),
        ),
        (Call::Access, Box::new(move |_| attributes.access(who, file, 4).unwrap())),
        (
            Call::Getxattr,
            Box::new(move |_| {
                attributes.getxattr(who, file, b"user.kept").unwrap();
            }),
        ),
        (
            Call::Listxattr,
            Box::new(move |_| {
                let _ = attributes.listxattr(who, file).unwrap();
            }),
        ),
        (
            Call::Setxattr,
            Box::new(move |_| {
                attributes.setxattr(who, file, b"user.x", b"1", flags).unwrap();
            }),
        ),
        (
            Call::Removexattr,
            Box::new(move |_| {
                attributes.setxattr(who, file, b"user.y", b"1", flags).unwrap();
                attributes.removexattr(who, file, b"user.y").unwrap();
            }),
        ),
        (Call::Read, Box::new(move |_| assert_eq!(files.read(file, 0, &mut [0; 9]).unwrap(), 9))),
        (Call::Write, Box::new(move |_| assert_eq!(files.write(file, 0, b"9", false).unwrap(), 1))),
        (Call::Seek, Box::new(move |_| assert_eq!(files.seek(file, 0, Seek::Data).unwrap(), 0))),
        (
            Call::Fallocate,
            Box::new(move |_| {
                files.fallocate(file, Fallocate::PunchHole, 4096, 1).unwrap();
            }),
        ),
        (
            Call::CopyRange,
            Box::new(move |_| {
                assert_eq!(files.copy_range(file, 0, file, 4000, 10).unwrap(), 10);
            }),
        ),
        (Call::Fsync, Box::new(move |_| files.fsync(file, true).unwrap())),
        (Call::Sync, Box::new(move |_| volume.sync().unwrap())),
    ]
}

fn of_many<'w>(volume: &'w Volume, who: &'w Caller, file: Attr) -> Vec<Way<'w>> {
    let handle = Handle { ino: file.ino, generation: file.generation };
    let hour = Duration::from_secs(3600);
    let token = volume.tokens().issue(who, handle, Rights::READ, hour).unwrap();
    vec![
        (
            Call::Readdir,
            Box::new(move |_| {
                volume.directories().readdir(TOP, 0, &mut |_| false).unwrap();
            }),
        ),
        (
            Call::Redeem,
            Box::new(move |_| {
                let _ = volume.tokens().redeem(&token).unwrap();
            }),
        ),
        (
            Call::Issue,
            Box::new(move |_| {
                volume.tokens().issue(who, handle, Rights::READ, hour).unwrap();
            }),
        ),
        (
            Call::Batch,
            Box::new(move |n| {
                let path = format!("batch{n}");
                let (path, mode, contents) = (path.as_bytes(), 0o644, &b"1"[..]);
                let op = BatchOp::File { path, mode, contents, replace: false };
                volume.batch(who, TOP, &[op]).unwrap();
            }),
        ),
        (
            Call::StatMany,
            Box::new(move |_| {
                let items = [StatItem::Number(file.ino, None), StatItem::Name(TOP, b"dir")];
                let each = &mut |_, stat: Result<Stat>| assert!(stat.is_ok());
                volume.bulk().stat_many(who, &items, Fields::ALL, Freshness::Force, each);
            }),
        ),
        (
            Call::Bulkstat,
            Box::new(move |_| {
                let scan = InodeScan { after: Ino::new(TOP.root(), 0), threads: 3 };
                let go_on = |_: &[Attr]| ControlFlow::Continue(());
                volume.bulk().bulkstat(who, scan, |attr| attr, go_on).unwrap();
            }),
        ),
        (
            Call::Children,
            Box::new(move |_| {
                volume.bulk().children(who, TOP, Ino::new(TOP.root(), 0), 10).unwrap();
            }),
        ),
    ]
}

fn of_trees<'w>(volume: &'w Volume, who: &'w Caller, dir: Ino) -> Vec<Way<'w>> {
    vec![
        (
            Call::Totals,
            Box::new(move |_| {
                let scan = TotalsScan { threads: 3, ..TotalsScan::of(dir) };
                volume.bulk().totals(who, scan).unwrap();
            }),
        ),
        (
            Call::Changes,
            Box::new(move |_| {
                let mut reader = volume.changes().since(who, TOP, None).unwrap();
                volume.changes().next(&mut reader, 10).unwrap();
            }),
        ),
        (
            Call::ChangeTree,
            Box::new(move |n| {
                let change = TreeChange { uid: Some(n as u32), ..TreeChange::default() };
                let go_on = |_: &TreeStep<'_>| ControlFlow::Continue(());
                volume.tree_changes().change_tree(who, dir, &change, 3, &go_on).unwrap();
            }),
        ),
        (
            Call::Quota,
            Box::new(move |_| {
                let limits = QuotaLimits { bytes: None, inodes: Some(1_000_000) };
                volume.quotas().set(who, dir, limits).unwrap();
            }),
        ),
        (
            Call::Subvolume,
            Box::new(move |_| {
                volume.subvolumes().create(who, b"subvolume", 0o755).unwrap();
            }),
        ),
    ]
}

#[test]
fn every_call_is_measured_once_and_failures_are_exact() {
    let (volume, who) = fresh();
    let (dir, file) = names(&volume, &who);
    let attr = volume.attributes().getattr(file).unwrap();
    let mut ways = of_names(&volume, &who, dir);
    ways.extend(of_links(&volume, &who, dir, file));
    ways.extend(of_files(&volume, &who, file));
    ways.extend(of_many(&volume, &who, attr));
    ways.extend(of_trees(&volume, &who, dir));
    for (call, make) in &ways {
        let (before, _) = of(&volume, *call);
        // A call that is sampled is missed with a chance of one in 10^13.
        (0..30 * (call.weight() - 1) + 1).for_each(make);
        let found = of(&volume, *call).0 - before;
        match call.is_always_timed() {
            true => assert_eq!(found, 1, "{}", call.name()),
            false => assert!(found > 0 && found.is_multiple_of(64), "{}: {found}", call.name()),
        }
    }
    let is_missing = |call: &&Call| !ways.iter().any(|it| it.0 == **call);
    let missing: Vec<_> = Call::ALL.iter().filter(is_missing).collect();
    assert!(missing.is_empty(), "{missing:?}");
    assert!(calls(&volume).values().all(|timing| timing.errors == 0 && timing.total_ns > 0));
}

#[test]
fn numbers_are_right_and_failures_exact() {
    let (volume, who) = fresh();
    let names = volume.namespace();
    const MADE: u64 = 40_000;
    (0..MADE).for_each(|n| drop(names.create(&who, TOP, &n.to_le_bytes().map(|b| b | 1), 0o644)));
    near(&volume, Call::Create, MADE);
    let (_, existed) = of(&volume, Call::Create);
    assert_eq!(MADE - existed, volume.info().inodes - 1, "each that failed made nothing");
    assert!(existed > MADE / 2);
    for _ in 0..500 {
        assert!(names.lookup(&who, TOP, b"none").is_err());
        assert!(names.lookup(&who, Ino(99_999_999), b"none").is_err());
        assert!(volume.attributes().getxattr(&who, TOP, b"user.none").is_err());
        assert!(names.rmdir(&who, TOP, b"none").is_err());
    }
    assert_eq!(of(&volume, Call::Lookup).1, 500, "no such name is an answer");
    assert_eq!(of(&volume, Call::Getxattr).1, 0);
    assert_eq!(of(&volume, Call::Rmdir).1, 500);
}

#[test]
fn what_a_call_makes_of_others_is_its_own() {
    let (volume, who) = fresh();
    let (_, file) = names(&volume, &who);
    let before = calls(&volume);
    const MADE: u64 = 20_000;
    for _ in 0..MADE {
        // Three lookups and a symlink.
        assert_eq!(volume.namespace().resolve(&who, TOP, b"symlink", true).unwrap().ino, file);
    }
    near(&volume, Call::Resolve, MADE);
    for n in 0..300 {
        let path = format!("dir/{n}");
        let (path, mode, contents) = (path.as_bytes(), 0o644, &b"1"[..]);
        let op = BatchOp::File { path, mode, contents, replace: false };
        volume.batch(&who, TOP, &[op]).unwrap();
        assert!(volume.batch(&who, TOP, &[op]).is_err());
    }
    assert_eq!(of(&volume, Call::Batch), (600, 300));
    volume.namespace().remove_tree(&who, TOP, b"dir", TreeCheck::Tree).unwrap();
    let after = calls(&volume);
    for name in ["lookup", "readlink", "create", "write", "readdir", "unlink"] {
        assert_eq!(after.get(name), before.get(name), "{name} of another call");
    }
}

#[test]
fn what_threads_in_the_background_do_is_nobodys_call() {
    let device = Arc::new(MemDevice::new(256 << 20));
    mkfs_on(device.clone(), &MkfsOptions::default()).unwrap();
    let volume = Volume::open_on(device, &OpenOptions { background: true, ..options() }).unwrap();
    let who = Caller::root();
    for tree in 0..20u32 {
        let name = tree.to_string();
        let dir = volume.namespace().mkdir(&who, TOP, name.as_bytes(), 0o755).unwrap().ino;
        for n in 0..500u32 {
            volume.namespace().create(&who, dir, n.to_string().as_bytes(), 0o644).unwrap();
        }
        volume.namespace().remove_tree(&who, TOP, name.as_bytes(), TreeCheck::Top).unwrap();
    }
    wait_until("the trees are gone", || volume.info().inodes == 1);
    let known = ["mkdir", "create", "remove_tree"];
    let others: Vec<_> = calls(&volume).into_keys().filter(|name| !known.contains(name)).collect();
    assert!(others.is_empty(), "{others:?}");
    volume.close().unwrap();
}
