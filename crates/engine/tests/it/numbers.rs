//! Allocation of inode numbers on a used volume, measured by counts of blocks and reads, which do
//! not depend on time.

use shoal_engine::*;
use std::collections::BTreeSet;
use std::sync::Arc;

const WHO: fn() -> Caller = Caller::root;

fn open(device: &Arc<MemDevice>) -> Volume {
    let options = OpenOptions { background: false, noatime: true, ..OpenOptions::default() };
    Volume::open_on(device.clone(), &options).unwrap()
}

/// Makes a volume with a directory `old` of this many files, of which those selected by `stays`
/// remain.
fn used(files: u64, stays: fn(u64) -> bool) -> Arc<MemDevice> {
    let device = Arc::new(MemDevice::new(256 << 20));
    mkfs_on(device.clone(), &MkfsOptions::default()).unwrap();
    let volume = open(&device);
    let old = volume.namespace().mkdir(&WHO(), Ino::ROOT, b"old", 0o755).unwrap().ino;
    for n in 0..files {
        create(&volume, old, n);
    }
    for n in (0..files).filter(|n| !stays(*n)) {
        volume.namespace().unlink(&WHO(), old, n.to_string().as_bytes()).unwrap();
    }
    volume.close().unwrap();
    device
}

fn create(volume: &Volume, dir: Ino, n: u64) -> Ino {
    volume.namespace().create(&WHO(), dir, n.to_string().as_bytes(), 0o644).unwrap().ino
}

fn counter(volume: &Volume, name: &str) -> u64 {
    let counters = volume.info().counters;
    counters.iter().find(|(of, _)| *of == name).unwrap_or_else(|| panic!("no {name}")).1
}

fn blocks(inodes: &[Ino]) -> usize {
    inodes.iter().map(|ino| ino.0 / 32).collect::<BTreeSet<u64>>().len()
}

#[test]
fn the_first_create_after_opening_does_not_search_the_table() {
    // Regression: it read all leaves of `imap`, one for each 333 inode blocks.
    let device = used(130_000, |_| true);
    let volume = open(&device);
    let old = volume.namespace().lookup(&WHO(), Ino::ROOT, b"old").unwrap().ino;
    let of = |name| counter(&volume, name);
    let before = (of("node_reads"), of("inode_block_reads"));
    create(&volume, old, 1_000_000);
    let nodes = of("node_reads") - before.0;
    assert!(nodes <= 8, "{nodes} nodes were read");
    assert!(of("inode_block_reads") - before.1 <= 2);
    // The next ones read at most a leaf of `imap` for each 1,024.
    let before = (of("node_reads"), of("inode_block_reads"));
    let new = volume.namespace().mkdir(&WHO(), Ino::ROOT, b"new", 0o755).unwrap().ino;
    for n in 0..4096 {
        create(&volume, new, n);
    }
    let nodes = of("node_reads") - before.0;
    assert!(nodes <= 4 * 3, "{nodes} nodes were read");
    assert_eq!(of("inode_block_reads") - before.1, 0);
    volume.close().unwrap();
}

#[test]
fn a_hole_in_each_block_is_left_alone() {
    // Regression: new files filled the holes, so 2,000 blocks were read and written for 2,000
    // files.
    let device = used(64_000, |n| n % 32 != 7);
    let volume = open(&device);
    let new = volume.namespace().mkdir(&WHO(), Ino::ROOT, b"new", 0o755).unwrap().ino;
    let of = |name| counter(&volume, name);
    let before = (of("inode_block_reads"), of("checkpoint_bytes"));
    let made: Vec<Ino> = (0..2000).map(|n| create(&volume, new, n)).collect();
    volume.maintenance().checkpoint().unwrap();
    let reads = of("inode_block_reads") - before.0;
    assert!(reads <= 2, "{reads} inode blocks were read");
    assert!(blocks(&made) <= 65, "{} blocks, 63 hold as many", blocks(&made));
    let written = (of("checkpoint_bytes") - before.1) / 2000;
    assert!(written <= 800, "{written} bytes for each file");
    let report = volume.check(&mut |_, _| {}).unwrap();
    assert_eq!(report.problems, vec![]);
    volume.close().unwrap();
}

#[test]
fn a_directory_gets_the_numbers_of_its_own_files_back() {
    let device = used(10, |_| true);
    let volume = open(&device);
    let dirs: Vec<Ino> = (0..3)
        .map(|n| {
            volume
                .namespace()
                .mkdir(&WHO(), Ino::ROOT, format!("d{n}").as_bytes(), 0o755)
                .unwrap()
                .ino
        })
        .collect();
    let mut made = Vec::new();
    for dir in &dirs {
        made.push((0..640).map(|n| create(&volume, *dir, n)).collect::<Vec<Ino>>());
    }
    // Every second file is unlinked while it is held, as all files known to a mount's kernel are.
    for (dir, made) in dirs.iter().zip(&made) {
        for (n, ino) in made.iter().enumerate().filter(|(n, _)| n % 2 == 0) {
            volume.references().hold(*ino, 1).unwrap();
            volume.namespace().unlink(&WHO(), *dir, n.to_string().as_bytes()).unwrap();
        }
    }
    for ino in made.iter().flat_map(|made| made.iter().step_by(2)) {
        volume.references().release(*ino, 1);
    }
    while volume.maintenance().reap_some().unwrap() {}
    for (dir, made) in dirs.iter().zip(&made) {
        let here: BTreeSet<u64> = made.iter().map(|ino| ino.0 / 32).collect();
        let anew: Vec<Ino> = (1000..1320).map(|n| create(&volume, *dir, n)).collect();
        let away = anew.iter().filter(|ino| !here.contains(&(ino.0 / 32))).count();
        assert!(away <= 64, "{away} of {} lie elsewhere", anew.len());
    }
    volume.close().unwrap();
}

#[test]
fn short_sessions_fill_the_same_block() {
    let device = used(10, |_| true);
    let mut made = Vec::new();
    for session in 0..40 {
        let volume = open(&device);
        made.extend((0..5).map(|n| create(&volume, Ino::ROOT, session * 5 + n)));
        match session % 2 {
            0 => volume.close().unwrap(),
            // As after a crash.
            _ => volume.sync().unwrap(),
        }
    }
    assert!(blocks(&made) <= 9, "{} blocks for 200 files", blocks(&made));
}
