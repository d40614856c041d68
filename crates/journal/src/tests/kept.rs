//! A ring that outlives its process: what is found in it after the process was killed.

use super::support::*;
use crate::memory::RING_BYTES;
use crate::{Config, Journal, RingMemory, StartAt};
use proptest::prelude::*;
use shoal_base::{Code, Lsn};
use shoal_skip::property;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// Byte of the file at which the ring begins.
const RING_AT: u64 = 4096;

fn kept(memory: &Arc<RingMemory>) -> Config {
    Config { memory: Some(memory.clone()), ..quiet() }
}

/// The records that recovery would find: those of the device, then those of the ring.
fn found(rig: &Rig, memory: &RingMemory) -> Vec<(Lsn, Vec<u8>)> {
    let (mut all, end) = rig.scan().unwrap();
    let each = &mut |lsn: Lsn, record: &[u8]| {
        all.push((lsn, record.to_vec()));
        Ok(())
    };
    memory.records(VOLUME, INCARNATION, end.end.lsn, each).unwrap();
    all
}

#[test]
fn all_complete_records_are_found_wherever_they_are() {
    let memory = Arc::new(RingMemory::without_name().unwrap());
    let rig = Rig::new(SMALL, kept(&memory));
    let (mut expected, mut random) = (Vec::new(), Random(7));
    // The ring of 64 KiB is gone round many times.
    for n in 0..2000u64 {
        let record = body(n, 4 + random.below(700) as usize);
        let lsn = rig.journal.stage(&record).unwrap();
        expected.push((lsn, record));
        match random.below(40) {
            0 => rig.journal.commit(lsn).unwrap(),
            1 => rig.journal.write_out().unwrap(),
            _ => {}
        }
        if random.below(20) == 0 {
            assert!(found(&rig, &memory) == expected, "after {n} records");
        }
    }
    assert!(found(&rig, &memory) == expected);
    let on_device = rig.scan().unwrap().0.len();
    assert!(on_device < expected.len(), "some are in the ring alone");
}

#[test]
fn a_record_that_was_not_complete_ends_it_and_who_waits_knows() {
    let memory = Arc::new(RingMemory::without_name().unwrap());
    let rig = Rig::new(SMALL, kept(&memory));
    let first = rig.journal.stage(&body(1, 100)).unwrap();
    rig.journal.wait_complete(first);
    let open = rig.journal.number(50).unwrap();
    let later = rig.journal.stage(&body(3, 100)).unwrap();
    assert_eq!(found(&rig, &memory), [(first, body(1, 100))], "the gap hides what follows");
    std::thread::scope(|scope| {
        let journal = &rig.journal;
        let waiter = scope.spawn(move || journal.wait_complete(later));
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert!(!waiter.is_finished(), "its call must not return yet");
        let middle = open.fill(&body(2, 50)).unwrap();
        waiter.join().unwrap();
        let all = [(first, body(1, 100)), (middle, body(2, 50)), (later, body(3, 100))];
        assert_eq!(found(&rig, &memory), all);
    });
}

#[test]
fn threads_leave_a_ring_without_gaps_below_what_has_returned() {
    let memory = Arc::new(RingMemory::without_name().unwrap());
    let rig = Rig::new(SMALL, kept(&memory));
    run_threads(4, |thread| {
        for n in 0..60 {
            let lsn = rig.journal.stage(&body(thread * 100 + n, 40)).unwrap();
            rig.journal.wait_complete(lsn);
            let mut end = Lsn(0);
            let each = &mut |lsn, _: &[u8]| {
                end = lsn;
                Ok(())
            };
            // Nothing was written to the device yet.
            memory.records(VOLUME, INCARNATION, START, each).unwrap();
            assert!(end >= lsn, "thread {thread}: {end:?} is before {lsn:?}");
        }
    });
    assert_eq!(found(&rig, &memory).len(), 240);
}

#[test]
fn only_the_same_volume_and_incarnation_have_records() {
    let memory = Arc::new(RingMemory::without_name().unwrap());
    let rig = Rig::new(SMALL, kept(&memory));
    rig.journal.stage(&body(1, 100)).unwrap();
    let none = &mut |_, _: &[u8]| panic!("a record of another journal");
    assert_eq!(memory.records(VOLUME, INCARNATION + 1, START, none).unwrap(), START);
    assert_eq!(memory.records(VOLUME + 1, INCARNATION, START, none).unwrap(), START);
    assert_eq!(memory.records(VOLUME, INCARNATION, Lsn(START.0 + 1), none).unwrap().0, START.0 + 1);
    assert!(memory.check_owner(VOLUME).is_ok());
    assert!(memory.check_owner(VOLUME + 1).unwrap_err().code() == Code::Busy);
    memory.end();
    assert!(memory.check_owner(VOLUME + 1).is_ok());
    assert_eq!(memory.records(VOLUME, INCARNATION, START, none).unwrap(), START);
}

#[test]
fn an_earlier_boot_has_no_records() {
    let memory = Arc::new(RingMemory::without_name().unwrap());
    let rig = Rig::new(SMALL, kept(&memory));
    let lsn = rig.journal.stage(&body(1, 100)).unwrap();
    assert_eq!(found(&rig, &memory), [(lsn, body(1, 100))]);
    // The words of the head: magic, volume, boot, boot, capacity.
    memory.file().write_all_at(&[0xa5], 16).unwrap();
    assert_eq!(found(&rig, &memory), []);
    assert!(memory.check_owner(VOLUME + 1).is_ok(), "nobody can need them");
}

#[test]
fn a_bit_that_flips_ends_the_records_before_it() {
    let memory = Arc::new(RingMemory::without_name().unwrap());
    let rig = Rig::new(SMALL, kept(&memory));
    let expected: Vec<_> =
        (0..20u64).map(|n| (rig.journal.stage(&body(n, 60)).unwrap(), body(n, 60))).collect();
    for at in (0..20 * 64).step_by(5) {
        let place = RING_AT + (START.0 & 0xffff) + at;
        let mut byte = [0];
        memory.file().read_exact_at(&mut byte, place).unwrap();
        memory.file().write_all_at(&[byte[0] ^ 0x10], place).unwrap();
        assert_eq!(found(&rig, &memory), expected[..(at / 64) as usize], "byte {at}");
        memory.file().write_all_at(&byte, place).unwrap();
    }
    assert_eq!(found(&rig, &memory), expected);
}

#[test]
fn files_that_are_no_rings_are_refused_and_one_is_used_once() {
    let folder = std::env::temp_dir().join(format!("shoal-ring-{}", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    let path = folder.join("ring");
    let first = RingMemory::open(&path).unwrap();
    let error = RingMemory::open(&path).unwrap_err();
    assert!(error.code() == Code::Busy && error.to_string().contains("another process"), "{error}");
    drop(first);
    drop(RingMemory::open(&path).unwrap());
    let mode =
        std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&path).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    File::options().write(true).open(&path).unwrap().write_all_at(&[9], 0).unwrap();
    let error = RingMemory::open(&path).unwrap_err();
    assert!(
        error.code() == Code::Invalid && error.to_string().contains("another version"),
        "{error}"
    );
    std::fs::write(&path, b"a letter").unwrap();
    let error = RingMemory::open(&path).unwrap_err();
    assert!(
        error.code() == Code::Invalid && error.to_string().contains("is not that of"),
        "{error}"
    );
    assert_eq!(std::fs::read(&path).unwrap(), b"a letter");
    std::fs::remove_dir_all(&folder).unwrap();
}

/// A journal continues under a new incarnation in the same memory, as after each recovery.
#[test]
fn the_next_incarnation_does_not_see_the_last_ones_records() {
    let memory = Arc::new(RingMemory::without_name().unwrap());
    let rig = Rig::new(SMALL, kept(&memory));
    let lsn = rig.journal.stage(&body(1, 100)).unwrap();
    rig.journal.stage(&body(2, 100)).unwrap();
    let again: Arc<Journal> =
        rig.again(StartAt::Fresh { lsn }, INCARNATION + 1, kept(&memory)).unwrap();
    // Until the first record of the new one the old ones are as they were: its first checkpoint may
    // never be finished.
    assert_eq!(found(&rig, &memory).len(), 2);
    let none = &mut |_, _: &[u8]| panic!("a record of the last incarnation");
    assert_eq!(memory.records(VOLUME, INCARNATION + 1, lsn, none).unwrap(), lsn);
    drop(again);
}

proptest! {
    #![proptest_config(property(200))]

    /// Whatever the memory holds, reading ends, within the ring, and finds nothing that nobody
    /// staged.
    #[test]
    fn arbitrary_memory_does_no_harm(
        pieces in proptest::collection::vec(
            (0u64..200_000, proptest::collection::vec(any::<u8>(), 1..64)), 0..20,
        ),
        heads in proptest::collection::vec((8u64..48, any::<u8>()), 0..4),
        from in any::<u64>(),
    ) {
        let memory = Arc::new(RingMemory::without_name().unwrap());
        let rig = Rig::new(SMALL, kept(&memory));
        rig.journal.stage(&body(1, 100)).unwrap();
        for (at, bytes) in &pieces {
            memory.file().write_all_at(bytes, RING_AT + at).unwrap();
        }
        for (at, byte) in &heads {
            memory.file().write_all_at(&[*byte], *at).unwrap();
        }
        for from in [START, Lsn(from), Lsn(u64::MAX)] {
            let mut records = Vec::new();
            let each = &mut |_, record: &[u8]| {
                records.push(record.to_vec());
                Ok(())
            };
            let end = memory.records(VOLUME, INCARNATION, from, each).unwrap();
            prop_assert!(end.0 - from.0 <= RING_BYTES as u64);
            prop_assert!(records.is_empty() || records == [body(1, 100)]);
        }
    }
}
