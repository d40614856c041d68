//! Listings with attributes of directories that are not in memory: complete, and with many reads at
//! a time.

use crate::common::OnDrop;
use crate::common::slow::Slow;
use shoal_engine::*;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

fn options() -> OpenOptions {
    OpenOptions { cache_bytes: 256 << 20, ..OpenOptions::default() }
}

fn open(slow: &Arc<Slow>) -> Volume {
    Volume::open_on(slow.clone(), &options()).unwrap()
}

/// A volume that has just been opened, its directories, and what is in them.
struct Cold {
    slow: Arc<Slow>,
    volume: Volume,
    dirs: Vec<Ino>,
    expected: Vec<BTreeSet<(Vec<u8>, u64, u32)>>,
}

/// Makes a volume with the directories of `make`, and opens it again. Reads take `read_us`.
fn cold(read_us: u64, options: &OpenOptions, make: impl Fn(&Volume) -> Vec<Ino>) -> Cold {
    let slow = Slow::with_volume(256 << 20);
    let volume = open(&slow);
    let dirs = make(&volume);
    let expected = dirs.iter().map(|dir| listed(&volume, *dir)).collect();
    volume.close().unwrap();
    slow.read_us.store(read_us, Ordering::Relaxed);
    let volume = Volume::open_on(slow.clone(), options).unwrap();
    slow.forget();
    Cold { slow, volume, dirs, expected }
}

/// Makes directories whose files' inodes are far apart: `files` in each, made in turn.
fn scattered(volume: &Volume, dirs: usize, files: usize) -> Vec<Ino> {
    let (names, who) = (volume.namespace(), Caller::root());
    let dir = |i| names.mkdir(&who, Ino::ROOT, format!("d{i}").as_bytes(), 0o755).unwrap().ino;
    let dirs: Vec<Ino> = (0..dirs).map(dir).collect();
    for i in 0..files {
        for dir in &dirs {
            names.create(&who, *dir, format!("file-{i}").as_bytes(), 0o640).unwrap();
        }
    }
    dirs
}

fn listed(volume: &Volume, dir: Ino) -> BTreeSet<(Vec<u8>, u64, u32)> {
    let mut found = BTreeSet::new();
    let mut each = |entry: DirEntry<'_>, attr: Result<&Attr>| {
        let attr = attr.unwrap();
        assert_eq!(entry.ino, attr.ino);
        assert!(found.insert((entry.name.to_vec(), attr.ino.0, attr.mode)));
        true
    };
    volume.directories().readdirplus(dir, 0, &mut each).unwrap();
    found
}

fn blocks_read(volume: &Volume) -> u64 {
    let name = Counter::InodeBlockReads.name();
    volume.info().counters.into_iter().find(|(counter, _)| *counter == name).unwrap().1
}

/// Makes one directory whose files' inodes are one after another.
fn dense(volume: &Volume, files: usize) -> Vec<Ino> {
    scattered(volume, 1, files)
}

#[test]
fn a_cold_listing_is_complete_and_reads_many_blocks_at_a_time() {
    let Cold { slow, volume, dirs, expected } =
        cold(20_000, &options(), |volume| scattered(volume, 40, 600));
    for (dir, expected) in dirs.iter().zip(&expected).take(3) {
        assert_eq!(listed(&volume, *dir), *expected);
        assert_eq!(expected.len(), 602);
    }
    let most = slow.reads_at_a_time();
    assert!(most > 8, "{most} reads at a time");
    // Again: everything is in memory.
    slow.forget();
    assert_eq!(listed(&volume, dirs[0]), expected[0]);
    assert_eq!(slow.reads(), 0);
}

/// 3,000 files have 94 inode blocks; a read has up to 128 KiB.
#[test]
fn adjacent_blocks_are_read_together() {
    let Cold { slow, volume, dirs, expected } = cold(0, &options(), |volume| dense(volume, 3000));
    assert_eq!(listed(&volume, dirs[0]), expected[0]);
    let (reads, blocks) = (slow.reads(), blocks_read(&volume));
    assert!(blocks >= 94, "{blocks} blocks");
    assert!(reads <= 50, "{reads} reads");
}

/// The leaves that follow are read together; for the first names, none is read in advance.
#[test]
fn names_of_a_cold_directory_are_read_ahead() {
    let Cold { slow, volume, dirs, .. } = cold(60_000, &options(), |volume| dense(volume, 30_000));
    let names = |most: usize| {
        let mut count = 0;
        let mut each = |_: DirEntry<'_>| {
            count += 1;
            count < most
        };
        volume.directories().readdir(dirs[0], 0, &mut each).unwrap();
        count
    };
    assert_eq!(names(10), 10);
    let reads = slow.reads();
    assert!(reads <= 10, "{reads} reads for ten names");
    assert_eq!(names(usize::MAX), 30_002);
    let most = slow.reads_at_a_time();
    assert!(most >= 4, "{most} reads at a time");
    assert_eq!(blocks_read(&volume), 1, "only the directory itself");
}

/// Whoever takes a few entries must not wait for all of the directory.
#[test]
fn the_first_entries_of_a_cold_directory_need_few_reads() {
    let Cold { slow, volume, dirs, .. } = cold(0, &options(), |volume| scattered(volume, 40, 2000));
    let mut count = 0;
    let mut first = |_: DirEntry<'_>, _: Result<&Attr>| {
        count += 1;
        count < 10
    };
    volume.directories().readdirplus(dirs[7], 0, &mut first).unwrap();
    let reads = slow.reads();
    assert!((2..=90).contains(&reads), "{reads} reads");
}

/// Without background threads, which a simulation needs: the same entries, one read after another.
#[test]
fn a_volume_without_threads_reads_in_order() {
    let options = OpenOptions { background: false, ..OpenOptions::default() };
    let Cold { slow, volume, dirs, expected } =
        cold(200, &options, |volume| scattered(volume, 10, 300));
    assert_eq!(listed(&volume, dirs[3]), expected[3]);
    assert_eq!(slow.reads_at_a_time(), 1);
}

/// Many at a time: no more threads than the volume's limit, and nobody misses anything.
#[test]
fn listings_beside_each_other_share_the_threads() {
    let Cold { slow, volume, dirs, expected } =
        cold(500, &options(), |volume| scattered(volume, 40, 300));
    std::thread::scope(|scope| {
        for (dir, expected) in dirs.iter().zip(&expected) {
            let volume = &volume;
            scope.spawn(move || assert_eq!(listed(volume, *dir), *expected));
        }
    });
    let most = slow.reads_at_a_time();
    assert!(most <= 64 + dirs.len() as u64, "{most} reads at a time");
}

/// Blocks may be changed, written elsewhere and evicted while they are read ahead: a small cache
/// and checkpoints beside the listings.
#[test]
fn blocks_that_change_while_they_are_read_ahead() {
    let options = OpenOptions { cache_bytes: 4 << 20, ..OpenOptions::default() };
    let Cold { volume, dirs, .. } = cold(0, &options, |volume| scattered(volume, 20, 1000));
    let who = Caller::root();
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (volume, ended, dirs) = (&volume, &ended, &dirs);
        let _end = OnDrop(|| ended.store(true, Ordering::Relaxed));
        let lists = scope.spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                for dir in dirs {
                    assert_eq!(listed(volume, *dir).len(), 1002);
                }
            }
        });
        for round in 0..60_u32 {
            for dir in dirs {
                let name = format!("file-{}", round * 13 % 1000);
                let ino = volume.namespace().lookup(&who, *dir, name.as_bytes()).unwrap().ino;
                let set = SetAttr { uid: Some(round), ..SetAttr::default() };
                volume.attributes().setattr(&who, ino, &set).unwrap();
                assert_eq!(volume.attributes().getattr(ino).unwrap().uid, round);
            }
            volume.maintenance().checkpoint().unwrap();
        }
        ended.store(true, Ordering::Relaxed);
        lists.join().unwrap();
    });
    for (round, dir) in (0..60_u32).flat_map(|round| dirs.iter().map(move |dir| (round, dir))) {
        let name = format!("file-{}", round * 13 % 1000);
        let ino = volume.namespace().lookup(&who, *dir, name.as_bytes()).unwrap().ino;
        assert_eq!(volume.attributes().getattr(ino).unwrap().uid, round);
    }
}
