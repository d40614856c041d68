//! Attributes of many inodes with one call: `stat_many` and `bulkstat`. Complete, in order, with an
//! error for each item, and beside calls that create and unlink. The speed, which decides no test:
//!
//! `cargo test --release -p shoal-engine --test it -- bulk:: --ignored --nocapture`

use crate::common;

use crate::common::flip;
use crate::common::slow::Slow;
use shoal_base::RootId;
use shoal_engine::*;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

fn volume_on(device: &Arc<Slow>, cache_bytes: u64) -> Volume {
    let options = OpenOptions { cache_bytes, ..OpenOptions::default() };
    Volume::open_on(device.clone(), &options).unwrap()
}

const CACHE: u64 = 64 << 20;

fn root() -> Caller {
    Caller::root()
}

fn dir(volume: &Volume, name: &str) -> Ino {
    volume.namespace().mkdir(&root(), Ino::ROOT, name.as_bytes(), 0o755).unwrap().ino
}

fn file(volume: &Volume, dir: Ino, name: &str, mode: u32) -> Attr {
    volume.namespace().create(&root(), dir, name.as_bytes(), mode).unwrap()
}

/// Makes directories whose files' inodes are far apart.
fn scattered(volume: &Volume, dirs: usize, files: usize) -> Vec<Ino> {
    let dirs: Vec<Ino> = (0..dirs).map(|i| dir(volume, &format!("d{i}"))).collect();
    for i in 0..files {
        for dir in &dirs {
            file(volume, *dir, &format!("f{i}"), i as u32 & 0o777);
        }
    }
    dirs
}

/// The answers of `stat_many`, whose order is checked.
fn stats(
    volume: &Volume,
    who: &Caller,
    items: &[StatItem<'_>],
    want: Fields,
    freshness: Freshness,
) -> Vec<Result<Stat>> {
    let mut answers = Vec::new();
    volume.bulk().stat_many(who, items, want, freshness, &mut |at, answer| {
        assert_eq!(at, answers.len());
        answers.push(answer);
    });
    assert_eq!(answers.len(), items.len());
    answers
}

fn forced(volume: &Volume, who: &Caller, items: &[StatItem<'_>]) -> Vec<Result<Attr>> {
    let all = stats(volume, who, items, Fields::ALL, Freshness::Force).into_iter();
    all.map(|answer| answer.map(|stat| stat.attr().unwrap())).collect()
}

fn codes(answers: &[Result<Attr>]) -> Vec<i32> {
    answers.iter().map(|a| a.as_ref().map_or_else(Error::errno, |_| 0)).collect()
}

fn all_inodes(volume: &Volume, after: Ino, threads: usize) -> Vec<Attr> {
    let found = Mutex::new(Vec::new());
    let scan = InodeScan { after, threads };
    let add = |attrs: &[Attr]| {
        assert!(attrs.is_sorted_by_key(|attr| attr.ino) && !attrs.is_empty() && attrs.len() <= 512);
        found.lock().unwrap().extend_from_slice(attrs);
        ControlFlow::Continue(())
    };
    volume.bulk().bulkstat(&root(), scan, |attr| attr, add).unwrap();
    found.into_inner().unwrap()
}

#[test]
fn answers_are_in_the_order_of_the_items_and_each_has_its_own_error() {
    let volume = volume_on(&Slow::with_volume(64 << 20), CACHE);
    let (open, closed) = (dir(&volume, "open"), dir(&volume, "closed"));
    let set = SetAttr { mode: Some(0o700), ..SetAttr::default() };
    volume.attributes().setattr(&root(), closed, &set).unwrap();
    let (a, b) = (file(&volume, open, "a", 0o600), file(&volume, open, "b", 0o640));
    let c = file(&volume, closed, "c", 0o666);
    let gone = file(&volume, open, "gone", 0o600);
    let held = file(&volume, open, "held", 0o600);
    volume.namespace().unlink(&root(), open, b"gone").unwrap();
    volume.references().hold(held.ino, 1).unwrap();
    volume.namespace().unlink(&root(), open, b"held").unwrap();
    let long = [b'x'; 256];
    let items = [
        StatItem::Name(open, b"b"),
        StatItem::Number(c.ino, None),
        StatItem::Name(open, b"missing"),
        StatItem::Number(a.ino, Some(a.generation)),
        StatItem::Number(a.ino, Some(Generation(a.generation.0 + 1))),
        StatItem::Number(gone.ino, None),
        StatItem::Number(held.ino, Some(held.generation)),
        StatItem::Name(closed, b"c"),
        StatItem::Name(a.ino, b"x"),
        StatItem::Name(open, &long),
        StatItem::Name(open, b"."),
        StatItem::Name(open, b".."),
        StatItem::Number(Ino(u64::MAX), None),
        StatItem::Name(gone.ino, b"x"),
        StatItem::Name(open, b"a"),
    ];
    let [noent, stale, notdir, long] =
        [Code::NotFound, Code::Stale, Code::NotDirectory, Code::NameTooLong].map(Code::errno);
    let privileged = forced(&volume, &root(), &items);
    let expected = [0, 0, noent, 0, stale, stale, 0, 0, notdir, long, 0, 0, stale, stale, 0];
    assert_eq!(codes(&privileged), expected);
    let inos: Vec<u64> = privileged.iter().flatten().map(|attr| attr.ino.0).collect();
    let right = [b.ino, c.ino, a.ino, held.ino, c.ino, open, Ino::ROOT, a.ino].map(|ino| ino.0);
    assert_eq!(inos, right);
    for attr in privileged.into_iter().flatten() {
        assert_eq!(attr, volume.attributes().getattr(attr.ino).unwrap());
    }
    // An ordinary user: no numbers, and no names without search permission.
    let (perm, acces) = (Code::NotPermitted.errno(), Code::Access.errno());
    let user = codes(&forced(&volume, &Caller::user(7, 7), &items));
    let expected =
        [0, perm, noent, perm, perm, perm, perm, acces, notdir, long, 0, 0, perm, stale, 0];
    assert_eq!(user, expected);
    volume.references().release(held.ino, 1);
    assert_eq!(codes(&forced(&volume, &root(), &items[6..7])), [stale]);
}

#[test]
fn more_items_than_a_chunk_also_twice_and_in_any_order() {
    let volume = volume_on(&Slow::with_volume(64 << 20), CACHE);
    let dirs = scattered(&volume, 5, 1100);
    let names: Vec<String> = (0..1100).map(|i| format!("f{}", i * 7 % 1100)).collect();
    let mut items = Vec::new();
    for name in &names {
        for dir in &dirs {
            let found = volume.namespace().lookup(&root(), *dir, name.as_bytes()).unwrap();
            items.push((StatItem::Name(*dir, name.as_bytes()), found));
            items.push((StatItem::Number(found.ino, None), found));
        }
    }
    assert_eq!(items.len(), 11_000);
    let asked: Vec<StatItem<'_>> = items.iter().map(|(item, _)| *item).collect();
    for (answer, (item, expected)) in forced(&volume, &root(), &asked).iter().zip(&items) {
        assert_eq!(answer.as_ref().ok(), Some(expected), "{item:?}");
    }
}

#[test]
fn missing_blocks_are_read_together_and_not_again() {
    let device = Slow::with_volume(256 << 20);
    let volume = volume_on(&device, CACHE);
    let dirs = scattered(&volume, 40, 600);
    let names: Vec<String> = (0..600).map(|i| format!("f{i}")).collect();
    let of_dir = |dir: Ino| names.iter().map(move |name| StatItem::Name(dir, name.as_bytes()));
    let by_name: Vec<StatItem<'_>> = of_dir(dirs[3]).collect();
    let expected = forced(&volume, &root(), &by_name);
    let numbers = |answers: &[Result<Attr>]| -> Vec<StatItem<'static>> {
        let item = |attr: &Attr| StatItem::Number(attr.ino, Some(attr.generation));
        answers.iter().flatten().map(item).collect()
    };
    let by_number = numbers(&forced(&volume, &root(), &of_dir(dirs[9]).collect::<Vec<_>>()));
    let by_number_expected = forced(&volume, &root(), &by_number);
    volume.close().unwrap();
    // Long enough that a loaded machine starts several threads meanwhile.
    device.read_us.store(5000, Ordering::Relaxed);
    for (items, expected) in [(by_name, expected), (by_number, by_number_expected)] {
        let volume = volume_on(&device, CACHE);
        device.forget();
        assert_eq!(forced(&volume, &root(), &items), expected);
        let most = device.reads_at_a_time();
        assert!(most > 4, "{most} reads at a time");
        let before = device.reads();
        assert_eq!(forced(&volume, &root(), &items), expected);
        assert_eq!(device.reads(), before, "everything is in memory");
        volume.close().unwrap();
    }
}

#[test]
fn without_waiting_the_device_is_not_read() {
    let device = Slow::with_volume(64 << 20);
    let volume = volume_on(&device, CACHE);
    let dirs = scattered(&volume, 40, 40);
    let a = volume.namespace().lookup(&root(), dirs[0], b"f0").unwrap();
    volume.close().unwrap();
    let volume = volume_on(&device, CACHE);
    let items = [
        StatItem::Name(dirs[0], b"f0"),
        StatItem::Number(a.ino, None),
        StatItem::Name(dirs[0], b"-"),
    ];
    let ask = |want, freshness| -> Vec<(i32, Fields, u64)> {
        let answers = stats(&volume, &root(), &items, want, freshness).into_iter();
        answers
            .map(|a| a.map_or_else(|e| (e.errno(), Fields::NONE, 0), |s| (0, s.valid, s.ino)))
            .collect()
    };
    let noent = (Code::NotFound.errno(), Fields::NONE, 0);
    let before = device.reads();
    // Nothing is in memory, so nothing is known.
    let nothing = ask(Fields::ALL, Freshness::DontWait);
    assert_eq!(nothing, [(0, Fields::NONE, 0), (0, Fields::NONE, a.ino.0), (0, Fields::NONE, 0)]);
    assert_eq!(device.reads(), before);
    // The directory is, the file's inode is not: its type and number are those of the entry.
    volume.directories().readdir(dirs[0], 0, &mut |_| true).unwrap();
    let before = device.reads();
    let entry = Fields::TYPE | Fields::INO;
    let known = [(0, entry, a.ino.0), (0, Fields::NONE, a.ino.0), noent];
    assert_eq!(ask(Fields::ALL, Freshness::DontWait), known);
    assert_eq!(device.reads(), before);
    // No inode is read for what the entry has.
    let only_entries = &items[..1];
    let stat = stats(&volume, &root(), only_entries, entry, Freshness::Force);
    assert_eq!(stat[0].as_ref().unwrap().valid, entry);
    assert_eq!(stat[0].as_ref().unwrap().mode, FileKind::Regular.mode_bits());
    assert_eq!(device.reads(), before);
    // Lazy reads what is not in memory.
    let all = [(0, Fields::ALL, a.ino.0), (0, Fields::ALL, a.ino.0), noent];
    assert_eq!(ask(Fields::ALL, Freshness::Lazy), all);
    assert!(device.reads() > before);
    assert_eq!(ask(Fields::ALL, Freshness::DontWait), all);
}

/// A damaged block must not take the answers for others with it, and a scan goes on behind it.
#[test]
fn a_damaged_block_has_errors_for_its_own_inodes_only() {
    let device = Arc::new(MemDevice::new(64 << 20));
    mkfs_on(device.clone(), &MkfsOptions::default()).unwrap();
    let volume = common::open(&device);
    let files: Vec<Attr> =
        (0..2000).map(|i| file(&volume, Ino::ROOT, &format!("f{i}"), 0o600)).collect();
    volume.close().unwrap();
    let blocks = common::blocks(&device)["inode block"].clone();
    let damaged = blocks[blocks.len() / 2];
    flip(&device, damaged.addr.0 + u64::from(damaged.len) / 2);
    let volume = common::open(&device);
    let item = |attr: &Attr| StatItem::Number(attr.ino, None);
    let items: Vec<StatItem<'_>> = files.iter().map(item).collect();
    let answers = forced(&volume, &root(), &items);
    let lost: BTreeSet<u64> = answers
        .iter()
        .zip(&files)
        .filter(|(answer, _)| answer.as_ref().is_err_and(Error::is_damage))
        .map(|(_, attr)| attr.ino.0 / 32)
        .collect();
    assert_eq!(lost.len(), 1, "{lost:?}");
    let readable: BTreeSet<u64> = answers.iter().flatten().map(|attr| attr.ino.0).collect();
    assert!(readable.len() >= 2000 - 32);
    // The scan delivers everything before the block, says what is damaged, and continues behind.
    let found = Mutex::new(BTreeSet::new());
    let scan = |after| {
        let add = |attrs: &[Attr]| {
            found.lock().unwrap().extend(attrs.iter().map(|attr| attr.ino.0));
            ControlFlow::Continue(())
        };
        volume.bulk().bulkstat(&root(), InodeScan { after, threads: 1 }, |attr| attr, add)
    };
    assert!(scan(Ino(0)).is_err_and(|e| e.is_damage()));
    let block = *lost.first().unwrap();
    assert!(found.lock().unwrap().iter().all(|ino| ino / 32 < block));
    scan(Ino(block * 32 + 31)).unwrap();
    let found = found.into_inner().unwrap();
    assert!(readable.is_subset(&found) && found.len() == readable.len() + 1, "and the top");
}

#[test]
fn a_scan_has_every_inode_once_in_order_and_continues_anywhere() {
    let device = Slow::with_volume(256 << 20);
    let volume = volume_on(&device, CACHE);
    let dirs = scattered(&volume, 10, 2500);
    // Holes of whole blocks, and single ones.
    for i in (100..1500).chain((1501..2500).step_by(3)) {
        for dir in &dirs {
            volume.namespace().unlink(&root(), *dir, format!("f{i}").as_bytes()).unwrap();
        }
    }
    let open = file(&volume, dirs[0], "open", 0o600);
    volume.references().hold(open.ino, 1).unwrap();
    volume.namespace().unlink(&root(), dirs[0], b"open").unwrap();
    let mut expected = BTreeMap::new();
    let mut add = |attr: Attr| expected.insert(attr.ino.0, attr);
    add(volume.attributes().getattr(Ino::ROOT).unwrap());
    for dir in &dirs {
        add(volume.attributes().getattr(*dir).unwrap());
        let mut each = |_: DirEntry<'_>, attr: Result<&Attr>| {
            add(*attr.unwrap());
            true
        };
        volume.directories().readdirplus(*dir, 2, &mut each).unwrap();
    }
    let expected: Vec<Attr> = expected.into_values().collect();
    assert_eq!(all_inodes(&volume, Ino(0), 1), expected);
    for threads in [2, 5] {
        let mut found = all_inodes(&volume, Ino(0), threads);
        found.sort_by_key(|attr| attr.ino);
        assert_eq!(found, expected, "{threads} threads");
    }
    for at in (0..expected.len()).step_by(97).chain([expected.len() - 1]) {
        assert_eq!(all_inodes(&volume, expected[at].ino, 1), expected[at + 1..]);
    }
    assert!(all_inodes(&volume, Ino::new(RootId(0), Ino::INDEX_MASK), 2).is_empty());
    volume.references().release(open.ino, 1);
    volume.close().unwrap();
    // From the device, through a cache that holds a part of it.
    device.read_us.store(50, Ordering::Relaxed);
    let volume = volume_on(&device, 4 << 20);
    for threads in [1, 3] {
        let mut found = all_inodes(&volume, Ino(0), threads);
        found.sort_by_key(|attr| attr.ino);
        assert_eq!(found, expected, "{threads} threads, cold");
    }
}

#[test]
fn a_scan_is_of_one_subvolume_and_for_privileged_callers() {
    let volume = volume_on(&Slow::with_volume(64 << 20), CACHE);
    let top = volume.subvolumes().create(&root(), b"sub", 0o755).unwrap().ino;
    let outside = file(&volume, Ino::ROOT, "outside", 0o600).ino;
    let inside = file(&volume, top, "inside", 0o600).ino;
    let inos = |after: Ino| -> Vec<Ino> {
        all_inodes(&volume, after, 2).iter().map(|attr| attr.ino).collect()
    };
    let before = Ino::new(top.root(), 0);
    assert_eq!((inos(Ino(0)), inos(before)), (vec![Ino::ROOT, outside], vec![top, inside]));
    let scan = |who: &Caller, after| {
        let each = |_: &[Attr]| panic!("nothing is to be delivered");
        let scan = InodeScan { after, threads: 1 };
        volume.bulk().bulkstat(who, scan, |attr| attr, each).unwrap_err().errno()
    };
    assert_eq!(scan(&Caller::user(7, 7), Ino(0)), Code::NotPermitted.errno());
    assert_eq!(scan(&root(), Ino::new(RootId(77), 0)), Code::Stale.errno());
    volume.subvolumes().delete(&root(), b"sub").unwrap();
    assert_eq!(scan(&root(), before), Code::Stale.errno());
    let item = [StatItem::Number(inside, None), StatItem::Name(top, b"inside")];
    assert_eq!(codes(&forced(&volume, &root(), &item)), [Code::Stale.errno(); 2]);
}

#[test]
fn a_scan_stops_when_it_is_told_to() {
    let volume = volume_on(&Slow::with_volume(64 << 20), CACHE);
    scattered(&volume, 1, 3000);
    let calls = AtomicU64::new(0);
    let stop = |_: &[Attr]| match calls.fetch_add(1, Ordering::SeqCst) {
        1 => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    };
    let scan = InodeScan { after: Ino(0), threads: 1 };
    volume.bulk().bulkstat(&root(), scan, |attr| attr, stop).unwrap();
    assert_eq!(calls.into_inner(), 2);
}

/// Names in [`beside_creates_and_unlinks_every_answer_was_right_at_some_time`]: the mode of `f7` is
/// 7.
const NAMES: u32 = 0o400;

/// Looks at all names in a directory, and at inodes that were made with these modes.
fn look_at(volume: &Volume, dir: Ino, known: &[(Ino, Generation, u32)]) {
    let names: Vec<String> = (0..NAMES).map(|mode| format!("f{mode}")).collect();
    let items: Vec<StatItem<'_>> =
        names.iter().map(|name| StatItem::Name(dir, name.as_bytes())).collect();
    for (mode, answer) in (0..).zip(forced(volume, &root(), &items)) {
        match answer {
            Ok(attr) => assert_eq!(attr.mode & 0o7777, mode),
            Err(e) => assert!(e.is(Code::NotFound), "{e}"),
        }
    }
    let item =
        |(ino, generation, _): &(Ino, Generation, u32)| StatItem::Number(*ino, Some(*generation));
    let numbers: Vec<StatItem<'_>> = known.iter().map(item).collect();
    for ((.., mode), answer) in known.iter().zip(forced(volume, &root(), &numbers)) {
        match answer {
            Ok(attr) => assert_eq!(attr.mode & 0o7777, *mode),
            Err(e) => assert!(e.is(Code::Stale), "{e}"),
        }
    }
}

/// Files come and go while they are looked at, through a cache that holds a part of them. The mode
/// of a file is a function of its name, so the attributes of another one would be noticed.
#[test]
fn beside_creates_and_unlinks_every_answer_was_right_at_some_time() {
    let volume = &volume_on(&Slow::with_volume(256 << 20), 4 << 20);
    let (moving, still) = (dir(volume, "moving"), dir(volume, "still"));
    let kept: BTreeSet<u64> =
        (0..20_000).map(|i| file(volume, still, &format!("s{i}"), 0o777).ino.0).collect();
    let (made, done) = (&Mutex::new(Vec::new()), &AtomicBool::new(false));
    std::thread::scope(|scope| {
        let change = |first: u32| {
            move || {
                for round in 0..40 {
                    for mode in (first..NAMES).step_by(2) {
                        let attr = file(volume, moving, &format!("f{mode}"), mode);
                        if round % 8 == 0 {
                            made.lock().unwrap().push((attr.ino, attr.generation, mode));
                        }
                    }
                    for mode in (first..NAMES).step_by(2) {
                        let name = format!("f{mode}");
                        volume.namespace().unlink(&root(), moving, name.as_bytes()).unwrap();
                    }
                    // What it has written may be evicted.
                    if round % 4 == first {
                        volume.maintenance().checkpoint().unwrap();
                    }
                }
            }
        };
        let look = || {
            let mut last = false;
            // Once more after the last change, so that each kind of answer is seen.
            while !std::mem::replace(&mut last, done.load(Ordering::SeqCst)) {
                let known = made.lock().unwrap().clone();
                look_at(volume, moving, &known);
            }
        };
        let scan = || {
            let mut last = false;
            while !std::mem::replace(&mut last, done.load(Ordering::SeqCst)) {
                let found = all_inodes(volume, Ino(0), 2);
                let once: BTreeSet<u64> = found.iter().map(|attr| attr.ino.0).collect();
                assert_eq!(once.len(), found.len(), "an inode came twice");
                assert!(kept.is_subset(&once), "an inode was missed");
                assert!(found.iter().all(|attr| attr.nlink > 0));
            }
        };
        let changes = [scope.spawn(change(0)), scope.spawn(change(1))];
        let looks = [scope.spawn(look), scope.spawn(scan)];
        let changed = changes.map(|thread| thread.join());
        done.store(true, Ordering::SeqCst);
        for thread in changed.into_iter().chain(looks.map(|thread| thread.join())) {
            thread.unwrap();
        }
    });
    assert_eq!(all_inodes(volume, Ino(0), 1).len(), kept.len() + 3);
}
