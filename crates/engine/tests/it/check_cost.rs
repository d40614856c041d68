//! Reads of a check: each inode a few times, whatever the order of names; one by one only if there
//! is a problem.

use shoal_engine::*;
use std::sync::Arc;

const FILES: usize = 20_000;

fn options() -> OpenOptions {
    // The smallest cache: almost nothing stays in memory.
    OpenOptions { background: false, cache_bytes: 1 << 20, ..OpenOptions::default() }
}

/// Makes a directory whose names are in another order than its inodes.
fn volume() -> (Volume, Vec<Ino>) {
    let device = Arc::new(MemDevice::new(256 << 20));
    mkfs_on(device.clone(), &MkfsOptions::default()).unwrap();
    let volume = Volume::open_on(device.clone(), &options()).unwrap();
    let who = Caller::root();
    let dir = volume.namespace().mkdir(&who, Ino::ROOT, b"dir", 0o755).unwrap().ino;
    let make = |n| {
        volume.namespace().create(&who, dir, format!("file {n}").as_bytes(), 0o644).unwrap().ino
    };
    let inodes = (0..FILES).map(make).collect();
    volume.close().unwrap();
    (Volume::open_on(device, &options()).unwrap(), inodes)
}

fn counter(volume: &Volume, name: &str) -> u64 {
    volume.info().counters.iter().find(|(n, _)| *n == name).unwrap().1
}

#[test]
fn a_check_reads_inodes_in_their_order() {
    let (volume, _) = volume();
    let before = counter(&volume, "inode_block_reads");
    let report = volume.check(&mut |_, _| {}).unwrap();
    assert_eq!(report.problems, []);
    assert_eq!(report.inodes, FILES as u64 + 2);
    // The directory's and each file's.
    assert_eq!(report.parents, FILES as u64 + 1);
    let (read, blocks) = (counter(&volume, "inode_block_reads") - before, FILES as u64 / 32);
    // Each block once.
    assert!(read < blocks + 8, "{read} reads of {blocks} inode blocks");
}

#[test]
fn many_links_of_one_inode_are_counted() {
    const LINKS: u32 = 1000;
    let (volume, inodes) = volume();
    let who = Caller::root();
    for n in 1..LINKS {
        volume
            .namespace()
            .link(&who, inodes[7], Ino::ROOT, format!("link {n}").as_bytes())
            .unwrap();
    }
    let report = volume.check(&mut |_, _| {}).unwrap();
    assert_eq!(report.problems, []);
    assert_eq!(report.parents, FILES as u64 + u64::from(LINKS));
}
