//! Tests of the journal as a whole: staging, commit, boundaries, poisoning. Crashes are in `crash`,
//! damaged journals in `damage`, speed in `speed`.

mod crash;
mod damage;
mod kept;
mod support;

use crate::{Config, JournalPos, StartAt, scan};
use shoal_base::counters::Counter;
use shoal_base::{Addr, Code, Error, Lsn, SegNo};
use shoal_device::Device;
use shoal_skip::wait_until;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use support::*;

#[test]
fn what_is_staged_and_committed_is_read_back_in_order() {
    let rig = Rig::new(SMALL, quiet());
    let max = rig.journal.record_max();
    let mut expected = Vec::new();
    for n in 0..400usize {
        let len = [0, 1, 7, 300, 4092, max, 60, 61][n % 8];
        let record = body(n as u64, len);
        let lsn = rig.journal.stage(&record).unwrap();
        assert_eq!(lsn, rig.journal.staged_lsn());
        expected.push((lsn, record));
        if n % 7 == 0 {
            rig.journal.commit(lsn).unwrap();
            assert!(rig.journal.durable_lsn() >= lsn);
        }
    }
    rig.journal.commit(rig.journal.staged_lsn()).unwrap();
    let (found, end) = rig.scan().unwrap();
    assert_eq!(found, expected);
    assert_eq!((end.records, end.torn), (400, None));
    assert_eq!(end.end.lsn, rig.journal.durable_lsn());
    assert_eq!(end.segments, rig.journal.segments());
    assert!(end.segments.len() > 3);
    assert_eq!(rig.journal.bytes_since(START), end.bytes);
    assert!(rig.counters.get(Counter::JournalWrites) > 0);
}

#[test]
fn a_record_longer_than_a_batch_is_refused() {
    let rig = Rig::new(SMALL, quiet());
    let long = vec![1; rig.journal.record_max() + 1];
    assert!(rig.journal.stage(&long).unwrap_err().is(Code::TooBig));
    assert_eq!(rig.journal.staged_lsn(), START);
}

#[test]
fn many_threads_share_flushes() {
    let rig = Arc::new(Rig::new(SMALL, quiet()));
    rig.device.set_flush_time(Duration::from_millis(1));
    let (threads, each) = (8u64, 40u64);
    run_threads(threads, |thread| {
        for n in 0..each {
            let lsn = rig.journal.stage(&body(thread * 1000 + n, 100)).unwrap();
            rig.journal.commit(lsn).unwrap();
            assert!(rig.journal.durable_lsn() >= lsn);
        }
    });
    let flushes = rig.counters.get(Counter::Flushes);
    assert!(flushes < threads * each / 2, "{flushes} flushes");
    let (found, _) = rig.scan().unwrap();
    assert_eq!(found.len() as u64, threads * each);
    for thread in 0..threads {
        let own: Vec<u64> =
            found.iter().map(|(_, r)| tag(r)).filter(|t| t / 1000 == thread).collect();
        assert!(own.is_sorted() && own.len() as u64 == each, "order of thread {thread}");
    }
}

#[test]
fn a_full_ring_makes_stagers_write() {
    let geometry = shoal_format::Geometry { segments: 400, ..SMALL };
    let rig = Arc::new(Rig::new(geometry, quiet()));
    // 16 MiB through a ring of 64 KiB, without commits.
    run_threads(4, |thread| {
        for n in 0..1000 {
            rig.journal.stage(&body(thread * 10_000 + n, 4096)).unwrap();
        }
    });
    assert_eq!(rig.journal.durable_lsn(), START);
    rig.journal.commit(rig.journal.staged_lsn()).unwrap();
    let (found, _) = rig.scan().unwrap();
    assert_eq!(found.len(), 4000);
}

#[test]
fn stagers_blocked_by_a_full_ring_and_committers_do_not_wait_for_each_other() {
    let geometry = shoal_format::Geometry { segments: 600, ..SMALL };
    let rig = Arc::new(Rig::new(geometry, quiet()));
    run_threads(8, |thread| {
        for n in 0..300u64 {
            let lsn = rig.journal.stage(&body(thread * 10_000 + n, 8000)).unwrap();
            if thread < 4 && n % 5 == 0 {
                rig.journal.commit(lsn).unwrap();
            }
        }
    });
    rig.journal.commit(rig.journal.staged_lsn()).unwrap();
    assert_eq!(rig.scan().unwrap().0.len(), 2400);
}

#[test]
fn a_boundary_is_exact_while_staging_goes_on() {
    let rig = Arc::new(Rig::new(SMALL, quiet()));
    let done = AtomicBool::new(false);
    // The lock stands for the engine's quiesce: a boundary is made while nobody stages.
    let quiesce = parking_lot::RwLock::new(());
    let mut released = 0;
    std::thread::scope(|scope| {
        for thread in 0..3u64 {
            let (rig, done, quiesce) = (&rig, &done, &quiesce);
            scope.spawn(move || {
                for n in 0.. {
                    if done.load(Ordering::Relaxed) {
                        return;
                    }
                    let open = quiesce.read();
                    let lsn = rig.journal.stage(&body(thread << 32 | n, 200)).unwrap();
                    drop(open);
                    if n % 20 == 0 {
                        rig.journal.commit(lsn).unwrap();
                        std::thread::sleep(Duration::from_millis(1));
                    }
                }
            });
        }
        // Until a segment is no longer needed, however slow the other threads are.
        let mut rounds = 0;
        while rounds < 30 || released == 0 {
            rounds += 1;
            let closed = quiesce.write();
            let boundary = rig.journal.mark_boundary();
            drop(closed);
            let pos = rig.journal.flush_boundary(boundary).unwrap();
            assert_eq!((pos.lsn, rig.journal.flush_boundary(boundary).unwrap()), (boundary, pos));
            assert!(rig.journal.durable_lsn() >= boundary);
            let upto = rig.journal.staged_lsn();
            rig.journal.commit(upto).unwrap();
            // An image: reading while others write would find batches newer than the gap before
            // them.
            let image = rig.device.crash(|_, _| true);
            let (found, end) = collect(&image, &SMALL, pos).unwrap();
            assert!(end.end.lsn >= upto);
            let first = found.first().map(|(lsn, r)| lsn.0 - r.len() as u64 - 4);
            assert_eq!(first.unwrap_or(boundary.0), boundary.0);
            let unneeded = rig.journal.segments_before(pos);
            rig.source.give_back(&unneeded);
            released += unneeded.len();
            assert_eq!(rig.journal.segments()[0], SMALL.segment_of(pos.addr));
        }
        done.store(true, Ordering::Relaxed);
    });
    let unknown = rig.journal.flush_boundary(START);
    assert!(unknown.unwrap_err().is(Code::Invalid));
}

#[test]
fn a_boundary_of_an_idle_journal_is_its_end() {
    let rig = Rig::new(SMALL, quiet());
    let first = rig.journal.flush_boundary(rig.journal.mark_boundary()).unwrap();
    assert_eq!(first, rig.start);
    rig.journal.stage(b"one").unwrap();
    let second = rig.journal.flush_boundary(rig.journal.mark_boundary()).unwrap();
    assert_eq!(second.addr.0, first.addr.0 + 4096);
    assert_eq!(rig.journal.segments_before(second), []);
    let (found, end) = rig.scan_from(second).unwrap();
    assert!(found.is_empty() && end.end == second);
}

#[test]
fn a_journal_goes_on_at_a_position_with_a_new_incarnation() {
    let rig = Rig::new(SMALL, quiet());
    rig.journal.stage(b"old").unwrap();
    let pos = rig.journal.flush_boundary(rig.journal.mark_boundary()).unwrap();
    rig.journal.stage(b"lost").unwrap();
    rig.journal.commit(rig.journal.staged_lsn()).unwrap();
    let second = rig.again(StartAt::At(pos), INCARNATION + 1, quiet()).unwrap();
    let lsn = second.stage(b"new").unwrap();
    second.commit(lsn).unwrap();
    let mut found = Vec::new();
    let each = |_, record: &[u8]| {
        found.push(record.to_vec());
        Ok(())
    };
    scan(&*rig.device, &SMALL, VOLUME, INCARNATION + 1, pos, each).unwrap();
    assert_eq!(found, [b"new".to_vec()]);
    let off = JournalPos { addr: Addr(pos.addr.0 + 8), ..pos };
    for bad in [off, JournalPos { addr: Addr(0), ..pos }, JournalPos { addr: Addr(!0), ..pos }] {
        assert!(rig.again(StartAt::At(bad), 9, quiet()).is_err());
    }
}

#[test]
fn a_failed_write_or_flush_poisons_for_good() {
    for fail in [Fail::Write, Fail::Flush] {
        let rig = Arc::new(Rig::new(SMALL, quiet()));
        let good = rig.journal.stage(b"good").unwrap();
        rig.journal.commit(good).unwrap();
        let bad = rig.journal.stage(b"bad").unwrap();
        rig.device.fail(fail);
        run_threads(4, |_| {
            let error = rig.journal.commit(bad).unwrap_err();
            assert!(matches!(error, Error::Poisoned(_)), "{error:?}");
            assert_eq!(error.code(), Code::ReadOnly);
        });
        rig.device.fail(Fail::Nothing);
        assert!(matches!(rig.journal.stage(b"more"), Err(Error::Poisoned(_))));
        assert!(matches!(rig.journal.commit(bad), Err(Error::Poisoned(_))));
        assert!(rig.journal.poisoned().unwrap().contains("failing device"));
        assert_eq!(rig.journal.durable_lsn(), good);
        rig.journal.commit(good).unwrap();
        let flushes = rig.device.flushes();
        rig.journal.poison("second reason");
        assert!(rig.journal.poisoned().unwrap().contains("failing device"));
        assert_eq!(rig.device.flushes(), flushes, "a failed flush is never repeated");
    }
}

#[test]
fn poisoning_wakes_those_who_wait_for_room_or_for_a_flush() {
    let rig = Arc::new(Rig::new(SMALL, quiet()));
    rig.device.set_flush_time(Duration::from_millis(50));
    run_threads(6, |thread| {
        if thread == 0 {
            std::thread::sleep(Duration::from_millis(20));
            rig.journal.poison("by hand");
            return;
        }
        let error = loop {
            let staged = rig.journal.stage(&body(thread, 8000));
            if let Err(error) = staged.and_then(|lsn| rig.journal.commit(lsn)) {
                break error;
            }
        };
        assert_eq!(error, Error::Poisoned("by hand".into()));
    });
}

#[test]
fn without_a_free_segment_commit_fails_but_may_succeed_later() {
    let rig = Rig::new(SMALL, quiet());
    rig.source.set_left(1);
    let record = body(1, 8000);
    let mut refused = None;
    for _ in 0..40 {
        let lsn = rig.journal.stage(&record).unwrap();
        if let Err(error) = rig.journal.commit(lsn) {
            refused = Some((error, lsn));
            break;
        }
    }
    let (error, lsn) = refused.unwrap();
    assert!(error.is(Code::NoSpace), "{error}");
    assert_eq!(rig.journal.poisoned(), None);
    rig.source.set_left(5);
    rig.journal.commit(lsn).unwrap();
    assert_eq!(rig.scan().unwrap().1.end.lsn, lsn);
}

#[test]
fn a_full_ring_without_a_free_segment_poisons() {
    let rig = Rig::new(SMALL, quiet());
    rig.source.set_left(0);
    let error = loop {
        if let Err(error) = rig.journal.stage(&body(1, 8000)) {
            break error;
        }
    };
    assert!(error.to_string().contains("ring is full"), "{error}");
}

#[test]
fn one_flush_covers_data_and_the_batch_that_follows_it() {
    let rig = Rig::new(SMALL, quiet());
    let before = rig.device.flushes();
    rig.device.write_at(b"data", DATA).unwrap();
    rig.journal.note_data_written(4);
    let lsn = rig.journal.stage(b"points to it").unwrap();
    rig.journal.commit(lsn).unwrap();
    assert_eq!(rig.device.flushes(), before + 1);
    let log = rig.device.log();
    let data = log.iter().rposition(|op| *op == Op::Write(DATA)).unwrap();
    assert!(matches!(log[data..], [Op::Write(_), Op::Write(_), Op::Flush]), "{:?}", &log[data..]);
    assert_eq!(rig.journal.durable_lsn(), lsn);
}

/// Recovery verifies what no flush covers: not more than it can in a moment.
#[test]
fn much_data_is_flushed_before_the_batch_that_follows_it() {
    let rig = Rig::new(SMALL, quiet());
    let before = rig.device.flushes();
    let first = rig.journal.stage(b"written before").unwrap();
    rig.journal.note_data_written(1 << 20);
    rig.journal.write_out().unwrap();
    assert_eq!(rig.device.flushes(), before, "little data");
    rig.journal.note_data_written(64 << 20);
    rig.journal.stage(b"points to it").unwrap();
    rig.journal.write_out().unwrap();
    assert_eq!(rig.device.flushes(), before + 1);
    // The flush also made the batches before it durable, and a scan knows from the next one.
    assert_eq!(rig.journal.durable_lsn(), first);
    let (_, end) = collect(&rig.device.crash(|_, _| true), &rig.geometry, rig.start).unwrap();
    assert_eq!(end.durable, first);
    rig.journal.stage(b"later").unwrap();
    rig.journal.write_out().unwrap();
    assert_eq!(rig.device.flushes(), before + 1, "flushed once");
}

#[test]
fn the_background_thread_commits_at_intervals_and_writes_when_much_is_staged() {
    let background = true;
    let often = Config { background, interval: Duration::from_millis(5), ..quiet() };
    let rig = Rig::new(SMALL, often);
    let lsn = rig.journal.stage(b"soon durable").unwrap();
    wait_until("a commit at an interval", || rig.journal.durable_lsn() == lsn);
    rig.journal.shutdown();
    rig.journal.shutdown();
    let rarely = Config { background, write_behind: 16 << 10, ..quiet() };
    let rig = Rig::new(SMALL, rarely);
    rig.journal.stage(&body(1, 8000)).unwrap();
    rig.journal.stage(&body(2, 8000)).unwrap();
    rig.journal.stage(&body(3, 8000)).unwrap();
    wait_until("what is staged is written", || rig.counters.get(Counter::JournalWrites) > 0);
    assert_eq!(rig.journal.durable_lsn(), START);
}

#[test]
fn segments_of_an_unknown_position_are_kept() {
    let rig = Rig::new(SMALL, quiet());
    let pos = JournalPos { addr: SMALL.start_of(SegNo(9)), lsn: Lsn(0) };
    assert_eq!(rig.journal.segments_before(pos), []);
    assert_eq!(rig.journal.segments().len(), 1);
}
