//! Checkpoints with correct checksums and wrong numbers, found by fuzzing. The check must end, in
//! time that depends on the existing data and not on the recorded counts, and must report the
//! problem.

use shoal_engine::*;
use shoal_format::Ptr;
use shoal_format::checkpoint::{Checkpoint, RootRecord};
use shoal_format::root::RootPage;
use shoal_format::superblock::{COPIES, Superblock, backup_copy_of, backup_superblock_at};
use std::sync::Arc;

/// Makes a closed volume with some files, changes its root record, and recomputes the checksums
/// above it.
fn with_root(change: impl Fn(&mut RootRecord)) -> Arc<MemDevice> {
    let device = Arc::new(MemDevice::new(64 << 20));
    mkfs_on(device.clone(), &MkfsOptions::default()).unwrap();
    let who = Caller::root();
    let options = OpenOptions { background: false, ..OpenOptions::default() };
    let volume = Volume::open_on(device.clone(), &options).unwrap();
    for i in 0..200 {
        volume.namespace().create(&who, Ino::ROOT, format!("f{i}").as_bytes(), 0o644).unwrap();
    }
    volume.close().unwrap();
    for addr in COPIES {
        let mut raw = vec![0; 4096];
        device.read_at(&mut raw, addr).unwrap();
        let sb = Superblock::decode(&raw, addr).unwrap().unwrap();
        let read = |ptr: Ptr| {
            let mut raw = vec![0; ptr.len as usize];
            device.read_at(&mut raw, ptr.addr.0).unwrap();
            raw
        };
        let record = read(sb.checkpoint);
        let Ok(mut checkpoint) = Checkpoint::decode(&record, sb.checkpoint.addr, sb.volume())
        else {
            continue;
        };
        let at = &mut checkpoint.pages[0];
        let Ok(mut page) = RootPage::decode(&read(at.first), at.first.addr, sb.volume()) else {
            continue;
        };
        change(&mut page.roots[0]);
        let raw = page.encode();
        assert_eq!(raw.len(), at.first.len as usize);
        at.first.checksum = shoal_base::checksum(&raw);
        device.write_at(&raw, at.first.addr.0).unwrap();
        device.write_at(&raw, at.second.0).unwrap();
        let record = checkpoint.encode();
        assert_eq!(record.len(), sb.checkpoint.len as usize);
        let checksum = shoal_base::checksum(&record);
        device.write_at(&record, sb.checkpoint.addr.0).unwrap();
        let sb = Superblock { checkpoint: Ptr { checksum, ..sb.checkpoint }, ..sb };
        let mut raw = sb.encode();
        device.write_at(&raw, backup_superblock_at(sb.checkpoint)).unwrap();
        device.write_at(&record, backup_copy_of(sb.checkpoint).unwrap().addr.0).unwrap();
        raw.resize(4096, 0);
        device.write_at(&raw, addr).unwrap();
    }
    device
}

/// Returns the rules that the check of a volume finds violated.
fn broken_rules(device: Arc<MemDevice>) -> Vec<&'static str> {
    let options = OpenOptions { read_only: true, background: false, ..OpenOptions::default() };
    let volume = Volume::open_on(device, &options).unwrap();
    let report = volume.check(&mut |_, _| {}).unwrap();
    report.problems.iter().map(|p| p.rule).collect()
}

#[test]
fn unchanged_it_is_clean() {
    assert_eq!(broken_rules(with_root(|_| ())), Vec::<&str>::new());
}

#[test]
fn more_inodes_than_a_number_can_count() {
    let rules = broken_rules(with_root(|r| r.inodes = u64::MAX));
    assert!(rules.contains(&"inode-count"), "{rules:?}");
}

#[test]
fn more_blocks_than_there_is_time_for() {
    let rules = broken_rules(with_root(|r| r.next_block = u64::MAX / 32));
    assert_eq!(rules, Vec::<&str>::new(), "numbers may be skipped");
}

#[test]
fn numbers_that_end_before_the_last_block() {
    let rules = broken_rules(with_root(|r| r.next_block = 1));
    assert!(rules.contains(&"next-block"), "{rules:?}");
}
