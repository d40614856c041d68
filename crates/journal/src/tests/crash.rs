//! Crashes at any moment, with any part of the unflushed writes lost. Everything acknowledged by
//! `commit` must survive, the rest must be a prefix, and data must survive with the records that
//! point to it, if they were acknowledged, or are said to have been durable.

use super::support::*;
use crate::ScanEnd;
use parking_lot::Mutex;
use shoal_base::Lsn;
use shoal_device::{Device, MemDevice};
use shoal_format::Geometry;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Size of a data slot. Each thread has a page of them in segment 1.
const SLOT: u64 = 512;
const GEOMETRY: Geometry = Geometry { segment_size: 64 << 10, segments: 120, inode_size: 512 };

/// Decides the fate of one sector of one unflushed write in a crash.
fn fate(mode: u64, cut: u64, random: &mut Random, sequence: u64, sector: usize) -> bool {
    match mode {
        0 => false,
        1 => true,
        // A prefix of the writes, the last of them torn.
        2 => sequence < cut || (sequence == cut && sector < 3),
        // Whole writes, in any order.
        3 => (sequence.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) & 1 == 0,
        _ => random.below(3) > 0,
    }
}

/// Checks a crash image. Records are `tag`, number of the data slot, value in it.
fn check(image: &MemDevice, rig: &Rig, acked: Lsn) -> ScanEnd {
    let (found, end) = collect(image, &rig.geometry, rig.start).unwrap();
    assert!(end.end.lsn >= acked, "acknowledged {}, found {}", acked.0, end.end.lsn.0);
    let mut expected = rig.start.lsn.0;
    let mut newest = std::collections::HashMap::new();
    for (lsn, record) in &found {
        expected += 4 + record.len() as u64;
        assert_eq!(lsn.0, expected);
        assert_eq!(record[..], body(tag(record), record.len()), "content");
        if *lsn <= acked.max(end.durable) {
            newest.insert(tag(record) >> 32, tag(record) as u32);
        }
    }
    for (thread, last) in newest {
        // Values of a slot only grow, and the record was staged after its value was written.
        let mut raw = [0; 4];
        image.read_at(&mut raw, DATA + thread * SLOT).unwrap();
        let value = u32::from_le_bytes(raw);
        assert!(value >= last, "thread {thread}: record {last} is there, its data is {value}");
    }
    end
}

#[test]
fn acknowledged_records_survive_any_crash() {
    for seed in 1..=6u64 {
        let rig = Rig::new(GEOMETRY, quiet());
        rig.device.set_flush_time(Duration::from_micros(300));
        let acked = AtomicU64::new(0);
        let done = AtomicBool::new(false);
        let torn = Mutex::new(0);
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let (rig, acked, done) = (&rig, &acked, &done);
                scope.spawn(move || work(rig, thread, acked, done));
            }
            let mut random = Random(seed * 0x1234_5678_9ABC);
            for round in 0..150u64 {
                std::thread::sleep(Duration::from_micros(random.below(800)));
                // Acknowledged before the crash; more may be by then.
                let before = Lsn(acked.load(Ordering::SeqCst));
                let mut first = None;
                let offset = random.below(12);
                let image = rig.device.crash(|sequence, sector| {
                    let cut = *first.get_or_insert(sequence) + offset;
                    fate(round % 6, cut, &mut random, sequence, sector)
                });
                let end = check(&image, &rig, before);
                *torn.lock() += usize::from(end.torn.is_some());
            }
            done.store(true, Ordering::SeqCst);
        });
        assert!(*torn.lock() > 0, "no crash left a torn tail: the test tests nothing");
    }
}

fn work(rig: &Rig, thread: u64, acked: &AtomicU64, done: &AtomicBool) {
    let mut random = Random(thread + 99);
    for n in 1..2000u32 {
        if done.load(Ordering::SeqCst) {
            return;
        }
        if n.is_multiple_of(3) {
            rig.device.write_at(&n.to_le_bytes(), DATA + thread * SLOT).unwrap();
            rig.journal.note_data_written(4);
        }
        let value = thread << 32 | u64::from(n / 3 * 3);
        let lsn = rig.journal.stage(&body(value, 8 + random.below(900) as usize)).unwrap();
        match random.below(10) {
            0 => {
                rig.journal.commit(lsn).unwrap();
                acked.fetch_max(lsn.0, Ordering::SeqCst);
            }
            1 => rig.journal.write_out().unwrap(),
            _ => {}
        }
    }
}
