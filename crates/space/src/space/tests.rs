//! Tests of the space manager: each rule of the crate's documentation.

use super::page_tests::Disk;
use super::*;
use crate::*;
use shoal_base::{Code, Result};
use shoal_format::declare::U48;
use std::collections::BTreeSet;

pub(super) const SIZE: u64 = 1 << 20;
pub(super) const GEOMETRY: Geometry =
    Geometry { segment_size: SIZE, segments: 20, inode_size: 512 };

pub(super) fn seg_of(addr: Addr) -> SegNo {
    GEOMETRY.segment_of(addr)
}

fn kind_of(space: &Space, seg: SegNo) -> (SegKind, u64, bool) {
    let (_, kind, live, sealed) = space.usage()[seg.0 as usize];
    (kind, live, sealed)
}

/// Fills the rest of the stream's open segment with one object and returns the segment.
fn seal(space: &Space, stream: Stream) -> SegNo {
    let first = space.alloc(stream, 8, Class::Reserved).unwrap();
    let left = SIZE - first.0 % SIZE - 8;
    if left > 0 {
        let last = space.alloc(stream, left as u32, Class::Reserved).unwrap();
        assert_eq!(seg_of(last), seg_of(first));
    }
    seg_of(first)
}

/// Finishes a checkpoint in which nothing more is allocated. Its table is assembled from the due
/// pages and those written before.
pub(super) fn publish(space: &Space, mut frozen: Frozen, disk: &mut Disk) -> usize {
    disk.write(space, &mut frozen);
    space.checkpointing().committed(frozen)
}

/// Makes a checkpoint in which only the table is written.
fn checkpoint(space: &Space) -> (UsageTable, usize) {
    let mut frozen = space.checkpointing().freeze();
    let table = frozen.table(space);
    // All due pages are written.
    let freed = publish(space, frozen, &mut Disk::default());
    (table, freed)
}

#[test]
fn objects_are_aligned_follow_each_other_and_never_cross_segments() {
    let space = Space::fresh(GEOMETRY);
    let one = space.alloc(Stream::Data(0), 13, Class::Ordinary).unwrap();
    let two = space.alloc(Stream::Data(4), 100, Class::Ordinary).unwrap();
    assert_eq!((one, two), (Addr(SIZE), Addr(SIZE + 16)), "streams 0 and 4 are the same");
    let large = space.alloc(Stream::Data(0), SIZE as u32, Class::Ordinary).unwrap();
    assert_eq!(large, Addr(2 * SIZE));
    assert_eq!(kind_of(&space, SegNo(1)), (SegKind::Data, 0, true));
    assert_eq!(kind_of(&space, SegNo(2)), (SegKind::Data, 0, true));
    let meta = space.alloc(Stream::Meta, 5, Class::Ordinary).unwrap();
    assert_eq!((meta, space.counts().free_segments()), (Addr(3 * SIZE), 16));
    assert!(space.alloc(Stream::Meta, SIZE as u32 + 1, Class::Reserved).is_err());
}

#[test]
fn ordinary_allocations_leave_the_reserve_and_use_every_open_segment() {
    let space = Space::fresh(GEOMETRY);
    assert_eq!(space.counts().reserve_segments(), 6);
    let half = SIZE as u32 / 2 + 8;
    let mut got = 0;
    let error = loop {
        match space.alloc(Stream::Data(got % 2), half, Class::Ordinary) {
            Ok(_) => got += 1,
            Err(error) => break error,
        }
    };
    assert!(error.is(Code::NoSpace));
    assert_eq!((u32::from(got), space.counts().free_segments()), (19 - 7, 7));
    assert!(space.counts().open_rest().data > 0 && space.counts().open_rest().data < SIZE);
    // The rests of both streams can still be allocated, by anybody.
    let rest = SIZE as u32 / 2 - 8;
    space.alloc(Stream::Data(3), rest, Class::Ordinary).unwrap();
    space.alloc(Stream::Data(3), rest, Class::Ordinary).unwrap();
    assert!(space.alloc(Stream::Data(3), rest, Class::Ordinary).is_err());
    assert_eq!(space.counts().open_rest().data, 0);
    for left in (0..7).rev() {
        space.take_journal_segment().unwrap();
        assert_eq!(space.counts().free_segments(), left);
    }
    assert!(space.take_journal_segment().unwrap_err().is(Code::NoSpace));
}

#[test]
fn the_reserve_grows_with_the_volume_within_bounds() {
    let with = |segments| default_reserve(&Geometry { segments, ..GEOMETRY });
    assert_eq!([16, 300, 1000, 3200, 1 << 20].map(with), [6, 6, 20, 64, 64 + 8]);
    let space = Space::fresh(GEOMETRY);
    space.set_reserve(17);
    space.alloc(Stream::Data(0), 8, Class::Ordinary).unwrap();
    assert!(space.alloc(Stream::Data(1), SIZE as u32, Class::Ordinary).is_err());
}

#[test]
fn rule_1_and_2_data_segments_are_freed_by_the_checkpoint_that_froze_them_empty() {
    let space = Space::fresh(GEOMETRY);
    let addr = space.alloc(Stream::Data(0), 100, Class::Ordinary).unwrap();
    space.add_live(addr, 100);
    let seg = seal(&space, Stream::Data(0));
    space.sub_live(addr, 100);
    assert_eq!(kind_of(&space, seg).0, SegKind::Data);
    assert_eq!(checkpoint(&space).1, 1);
    assert_eq!(kind_of(&space, seg).0, SegKind::Free);

    // Empty only after the freeze: the checkpoint points to it.
    let addr = space.alloc(Stream::Data(0), 100, Class::Ordinary).unwrap();
    space.add_live(addr, 100);
    seal(&space, Stream::Data(0));
    let frozen = space.checkpointing().freeze();
    space.sub_live(addr, 100);
    assert_eq!(space.checkpointing().committed(frozen), 0);

    // Empty at the freeze and sealed after it: later records may point to it.
    assert_eq!(checkpoint(&space).1, 1);
    space.alloc(Stream::Data(0), 8, Class::Ordinary).unwrap();
    let frozen = space.checkpointing().freeze();
    let late = space.alloc(Stream::Data(0), 64, Class::Ordinary).unwrap();
    space.add_live(late, 64);
    let seg = seal(&space, Stream::Data(0));
    space.sub_live(late, 64);
    assert_eq!(space.checkpointing().committed(frozen), 0);
    assert_eq!(kind_of(&space, seg).0, SegKind::Data);
    assert_eq!(checkpoint(&space).1, 1);
}

#[test]
fn rule_3_metadata_segments_are_freed_by_the_checkpoint_that_rewrote_them() {
    let space = Space::fresh(GEOMETRY);
    let old = space.alloc(Stream::Meta, 1000, Class::Reserved).unwrap();
    space.add_live(old, 1000);
    let mut frozen = space.checkpointing().freeze();
    // The checkpoint fills the old segment and continues in a new one, allocated after the freeze.
    let seg = seal(&space, Stream::Meta);
    let new = space.alloc(Stream::Meta, 1000, Class::Reserved).unwrap();
    space.checkpointing().meta_add(&mut frozen, new, 1000);
    space.checkpointing().meta_sub(&mut frozen, old, 1000);
    let table = frozen.table(&space);
    let on_disk = |seg: SegNo| table.entries[seg.0 as usize];
    assert_eq!(on_disk(seg), UsageEntry::default(), "free in the table already");
    let open = UsageEntry { live: U48::new(1000), kind: SegKind::Meta, sealed: false };
    assert_eq!(on_disk(seg_of(new)), open);
    assert_eq!(table.positions[0], Addr(new.0 + 1000));
    assert_eq!(kind_of(&space, seg).0, SegKind::Meta, "not free before it is durable");
    assert_eq!(space.checkpointing().committed(frozen), 1);
    assert_eq!(kind_of(&space, seg).0, SegKind::Free);
    assert_eq!(kind_of(&space, seg_of(new)), (SegKind::Meta, 1000, false));
}

#[test]
fn rule_3_an_open_segment_is_not_freed_though_nothing_in_it_is_live() {
    let space = Space::fresh(GEOMETRY);
    let data = space.alloc(Stream::Data(0), 8, Class::Ordinary).unwrap();
    let meta = space.alloc(Stream::Meta, 8, Class::Ordinary).unwrap();
    let (table, freed) = checkpoint(&space);
    assert_eq!(freed, 0);
    // After a load they continue in the next sector.
    for (space, behind) in [(space, 8), (Space::load(GEOMETRY, table), limits::SECTOR)] {
        for (stream, addr) in [(Stream::Data(0), data), (Stream::Meta, meta)] {
            let next = space.alloc(stream, 8, Class::Ordinary).unwrap();
            assert_eq!(next, Addr(addr.0 + behind));
        }
    }
}

#[test]
fn rule_4_what_is_live_now_is_not_freed_whatever_the_frozen_state_says() {
    let space = Space::fresh(GEOMETRY);
    let addr = space.alloc(Stream::Data(0), 100, Class::Ordinary).unwrap();
    let seg = seal(&space, Stream::Data(0));
    let frozen = space.checkpointing().freeze();
    // The caller broke its promise: allocated before the freeze, accounted for after it.
    space.add_live(addr, 100);
    assert_eq!(space.checkpointing().committed(frozen), 0);
    assert_eq!(kind_of(&space, seg), (SegKind::Data, 100, true));
}

#[test]
fn rule_5_journal_segments_are_the_callers_and_free_at_load_unless_claimed() {
    let space = Space::fresh(GEOMETRY);
    let (one, two) = (space.take_journal_segment().unwrap(), space.take_journal_segment().unwrap());
    let (table, freed) = checkpoint(&space);
    assert_eq!((one, two, freed), (SegNo(1), SegNo(2), 0));
    let kinds = table.entries.clone();
    assert_eq!((kinds[1].kind, kinds[2].kind), (SegKind::Journal, SegKind::Journal));
    let loaded = Space::load(GEOMETRY, table);
    assert_eq!(loaded.counts().free_segments(), 19);
    loaded.recovery().claim(two, SegKind::Journal).unwrap();
    loaded.recovery().claim(two, SegKind::Journal).unwrap();
    assert_eq!(
        (loaded.counts().free_segments(), loaded.take_journal_segment().unwrap()),
        (18, one)
    );
    space.release_journal_segments(&[one]);
    assert_eq!(kind_of(&space, one).0, SegKind::Free);
    space.release_journal_segments(&[one, SegNo(0), SegNo(99)]);
    assert_eq!(space.counts().accounting_errors(), 3);
}

#[test]
fn streams_go_on_after_load_and_recovery_moves_them() {
    let space = Space::fresh(GEOMETRY);
    let data = space.alloc(Stream::Data(2), 100, Class::Ordinary).unwrap();
    let (table, _) = checkpoint(&space);
    let later = space.alloc(Stream::Data(2), 50_000, Class::Ordinary).unwrap();
    let far = space.alloc(Stream::Data(1), 50, Class::Ordinary).unwrap();

    let loaded = Space::load(GEOMETRY, table);
    loaded.recovery().bump(Addr(later.0 + 50_000));
    loaded.recovery().bump(Addr(later.0 + 10));
    loaded.recovery().bump(Addr(0));
    loaded.recovery().claim(seg_of(far), SegKind::Data).unwrap();
    loaded.recovery().bump(Addr(far.0 + 50));
    loaded.add_live(far, 50);
    assert_eq!(kind_of(&loaded, seg_of(far)), (SegKind::Data, 50, true));
    let next = loaded.alloc(Stream::Data(2), 8, Class::Ordinary).unwrap();
    assert_eq!(next, Addr(data.0 + 53_248), "in the next sector");
    // An object that ends with the segment seals it.
    loaded.recovery().bump(Addr(data.0 + SIZE));
    assert!(kind_of(&loaded, seg_of(data)).2);
    assert_ne!(seg_of(loaded.alloc(Stream::Data(2), 8, Class::Ordinary).unwrap()), seg_of(data));
}

#[test]
fn claims_that_contradict_the_checkpoint_are_corruption() {
    let space = Space::fresh(GEOMETRY);
    let meta = space.alloc(Stream::Meta, 8, Class::Ordinary).unwrap();
    for seg in [seg_of(meta), SegNo(0), SegNo(20), SegNo(u32::MAX)] {
        let error = space.recovery().claim(seg, SegKind::Data).unwrap_err();
        assert_eq!(error.code(), Code::Io, "{error}");
    }
}

#[test]
fn victims_are_the_emptiest_sealed_segments() {
    let space = Space::fresh(GEOMETRY);
    let fill = |stream, live: u32| {
        let addr = space.alloc(stream, SIZE as u32, Class::Ordinary).unwrap();
        space.add_live(addr, live);
        seg_of(addr)
    };
    let few = fill(Stream::Meta, 10);
    let some = fill(Stream::Data(0), 5000);
    let _none = fill(Stream::Data(1), 0);
    let _full = fill(Stream::Data(1), SIZE as u32);
    let open = space.alloc(Stream::Data(1), 8, Class::Ordinary).unwrap();
    space.add_live(open, 8);
    let victims = |max, share| -> Vec<SegNo> {
        space.cleaning().victims(max, share).into_iter().map(|victim| victim.seg).collect()
    };
    assert_eq!(victims(10, 0.9), [few, some]);
    assert_eq!(victims(1, 0.9), [few]);
    assert_eq!(victims(10, 0.001), [few]);
    assert_eq!(space.counts().live_bytes(), 5000 + 10 + SIZE + 8);
}

/// Long-lived data is moved before data that may die soon, and moved data keeps its age.
#[test]
fn old_data_is_preferred_and_the_segment_it_is_moved_to_is_as_old() {
    let space = Space::fresh(GEOMETRY);
    let fill = |live: u32| {
        let addr = space.alloc(Stream::Data(0), SIZE as u32, Class::Ordinary).unwrap();
        space.add_live(addr, live);
        seg_of(addr)
    };
    let half = SIZE as u32 / 2;
    let old = fill(half);
    for _ in 0..4 {
        fill(SIZE as u32);
    }
    let young = fill(half - SIZE as u32 / 20);
    let found = space.cleaning().victims(10, 0.9);
    assert_eq!(found.iter().map(|v| v.seg).collect::<Vec<_>>(), [old, young]);
    assert_eq!((found[0].kind, found[0].live), (SegKind::Data, half));
    assert!(found[0].stamp < found[1].stamp);
    let moved = space.alloc(COLD, half, Class::Reserved).unwrap();
    space.add_live(moved, half);
    space.cleaning().stamp_moved(found[0].stamp);
    space.sub_live(Addr(u64::from(old.0) * SIZE), half);
    space.alloc(COLD, half, Class::Reserved).unwrap();
    let again = space.cleaning().victims(10, 0.9);
    assert_eq!((again[0].seg, again[0].stamp), (seg_of(moved), found[0].stamp));
}

#[test]
fn totals_follow_what_is_counted() {
    let space = Space::fresh(GEOMETRY);
    let addr = space.alloc(Stream::Data(0), 1000, Class::Ordinary).unwrap();
    space.add_live(addr, 1000);
    assert_eq!((space.counts().live_bytes(), space.counts().pinned_bytes()), (1000, 0));
    space.sub_live(addr, 400);
    space.pin(addr, 400);
    assert_eq!((space.counts().live_bytes(), space.counts().pinned_bytes()), (600, 400));
    space.unpin(addr, 400);
    assert_eq!(space.counts().pinned_bytes(), 0);
    let (table, _) = checkpoint(&space);
    assert_eq!(Space::load(GEOMETRY, table).counts().live_bytes(), 600);
}

/// A device on which the host allocates `left` segments.
struct Host {
    left: Mutex<u32>,
    allocated: Mutex<BTreeSet<u64>>,
}

impl Host {
    fn of(left: u32) -> std::sync::Arc<Host> {
        std::sync::Arc::new(Host { left: Mutex::new(left), allocated: Mutex::default() })
    }
}

impl shoal_device::Device for Host {
    fn capacity(&self) -> u64 {
        GEOMETRY.bytes()
    }
    fn read_at(&self, _: &mut [u8], _: u64) -> Result<()> {
        unreachable!("nothing is read")
    }
    fn write_at(&self, _: &[u8], _: u64) -> Result<()> {
        unreachable!("nothing is written")
    }
    fn flush(&self) -> Result<()> {
        Ok(())
    }
    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        for at in (offset..offset + len).step_by(SIZE as usize) {
            *self.left.lock() += u32::from(self.allocated.lock().remove(&at));
        }
        Ok(())
    }
    fn reserve(&self, offset: u64, len: u64) -> Result<()> {
        assert_eq!((offset % SIZE, len), (0, SIZE));
        let mut left = self.left.lock();
        if self.allocated.lock().contains(&offset) {
            return Ok(());
        }
        *left = left.checked_sub(1).ok_or(Code::NoSpace)?;
        self.allocated.lock().insert(offset);
        Ok(())
    }
    fn room(&self) -> Option<u64> {
        Some(u64::from(*self.left.lock()) * SIZE)
    }
    fn is_sparse(&self) -> bool {
        true
    }
    fn describe(&self) -> String {
        "a host".into()
    }
}

#[test]
fn a_host_without_room_refuses_ordinary_segments_and_keeps_those_that_are_backed() {
    let (space, host) = (Space::fresh(GEOMETRY), Host::of(5));
    space.host().attach(host.clone(), false);
    assert_eq!((space.host().backed_free(), space.host().stale_free()), (0, 0));
    space.host().ensure_backed(3).unwrap();
    let whole = |class| space.alloc(Stream::Data(0), SIZE as u32, class);
    for _ in 0..5 {
        whole(Class::Ordinary).unwrap();
        let _ = space.host().ensure_backed(3);
    }
    // The host is full; the rest is kept for allocations that must succeed.
    assert_eq!((space.host().backed_free(), space.host().is_short()), (0, true));
    assert!(whole(Class::Ordinary).unwrap_err().is(Code::NoSpace));
    assert!(space.host().ensure_backed(1).unwrap_err().is(Code::NoSpace));
    assert_eq!(space.counts().free_segments(), 19 - 5, "what could not be had is free");
    // Freed segments remain allocated on the host.
    checkpoint(&space);
    assert_eq!((space.host().backed_free(), space.host().stale_free()), (5, 5));
    assert!(space.host().ensure_backed(6).is_err());
    whole(Class::Reserved).unwrap();
    // A reopened volume does not know what is allocated, and finds out.
    let (table, _) = checkpoint(&space);
    let again = Space::load(GEOMETRY, table);
    again.host().attach(host.clone(), true);
    assert_eq!(
        (again.host().backed_free(), again.host().stale_free()),
        (0, again.counts().free_segments())
    );
    assert!(again.take_journal_segment().is_ok());
}

/// Segments backed in excess of the need, to which nothing was written.
#[test]
fn what_was_allocated_ahead_is_given_back() {
    let (space, host) = (Space::fresh(GEOMETRY), Host::of(19));
    space.host().attach(host.clone(), false);
    space.host().ensure_backed(7).unwrap();
    let run = space.host().take_stale(9, 3).unwrap();
    assert_eq!(run.count, 4);
    let (start, bytes) = space.host().bytes_of(run);
    shoal_device::Device::discard(&*host, start.0, bytes).unwrap();
    space.host().give_back(run, true);
    assert!(space.host().take_stale(9, 3).is_none());
    assert_eq!((space.host().backed_free(), host.allocated.lock().len()), (3, 3));
}

/// Otherwise a volume with free space would refuse a call while it discards that space.
#[test]
fn segments_that_are_being_discarded_are_backed_when_they_are_back() {
    let (space, host) = (Space::fresh(GEOMETRY), Host::of(19));
    space.host().attach(host.clone(), true);
    let run = space.host().take_stale(99, 2).unwrap();
    assert_eq!((run.count, space.counts().free_segments()), (17, 19));
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| space.host().ensure_backed(7));
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert!(!waiting.is_finished(), "only two are there");
        space.host().give_back(run, true);
        waiting.join().unwrap().unwrap();
    });
    assert_eq!(space.host().backed_free(), 7);
    // Others allocated most of them after the caller had counted the free ones.
    let taken: Vec<SegNo> = (0..15).map(|_| space.take_journal_segment().unwrap()).collect();
    assert_eq!(taken.len(), 15);
    space.host().ensure_backed(7).unwrap();
    assert_eq!((space.host().backed_free(), space.counts().free_segments()), (4, 4));
}

#[test]
fn discarded_runs_are_nobodys_meanwhile_and_count_as_free() {
    let (space, host) = (Space::fresh(GEOMETRY), Host::of(19));
    space.host().attach(host.clone(), false);
    for _ in 0..8 {
        space.alloc(Stream::Data(0), SIZE as u32, Class::Reserved).unwrap();
    }
    checkpoint(&space);
    assert_eq!((space.counts().free_segments(), space.host().stale_free()), (19, 8));
    // The two lowest stay.
    let run = space.host().take_stale(4, 2).unwrap();
    assert_eq!((run.first, run.count), (SegNo(3), 4));
    assert_eq!(
        (space.counts().free_segments(), space.host().backed_free(), space.host().stale_free()),
        (19, 4, 4)
    );
    let taken: Vec<SegNo> = (0..15).map(|_| space.take_journal_segment().unwrap()).collect();
    assert!(taken.iter().all(|seg| !(3..7).contains(&seg.0)), "{taken:?}");
    // A caller that finds no other segment waits until the run is back.
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| space.take_journal_segment().unwrap());
        let (start, bytes) = space.host().bytes_of(run);
        shoal_device::Device::discard(&*host, start.0, bytes).unwrap();
        space.host().give_back(run, true);
        assert_eq!(waiting.join().unwrap(), SegNo(3));
    });
    assert_eq!(
        (space.counts().free_segments(), space.host().backed_free(), space.host().stale_free()),
        (3, 0, 0)
    );
    assert!(space.host().take_stale(4, 0).is_none());
    space.host().mark_all_stale();
    assert_eq!(space.host().take_stale(99, 1).map(|run| (run.first.0, run.count)), Some((5, 2)));
}

#[test]
#[cfg(not(debug_assertions))]
fn accounting_errors_are_counted_and_never_free_anything() {
    let space = Space::fresh(GEOMETRY);
    let addr = space.alloc(Stream::Data(0), SIZE as u32, Class::Ordinary).unwrap();
    space.sub_live(addr, 1);
    assert_eq!((space.counts().accounting_errors(), checkpoint(&space).1), (1, 0));
}

#[test]
fn threads_never_get_the_same_bytes() {
    let geometry = Geometry { segments: 200, ..GEOMETRY };
    let space = Space::fresh(geometry);
    let got: Vec<(u64, u64)> = std::thread::scope(|scope| {
        let handles: Vec<_> = (0..8u8)
            .map(|thread| {
                let space = &space;
                scope.spawn(move || {
                    let alloc = |n: u64| {
                        let len = (n * 7919 % 60_000) as u32 + 1;
                        let addr = space.alloc(Stream::Data(thread), len, Class::Ordinary).unwrap();
                        space.add_live(addr, len);
                        (addr.0, addr.0 + u64::from(len))
                    };
                    (0..300).map(alloc).collect::<Vec<_>>()
                })
            })
            .collect();
        handles.into_iter().flat_map(|h| h.join().unwrap()).collect()
    });
    let mut sorted = got.clone();
    sorted.sort();
    assert!(sorted.windows(2).all(|w| w[0].1 <= w[1].0));
    assert_eq!(space.counts().live_bytes(), got.iter().map(|(start, end)| end - start).sum());
}

#[test]
fn bytes_are_extended_while_nothing_lies_behind_them() {
    let space = Space::fresh(GEOMETRY);
    let placed = space.alloc_held(Stream::Data(0), 13, Class::Ordinary, End::Anywhere);
    let Placed { addr: one, hold, .. } = placed.unwrap();
    let life = hold.life();
    let end = |len: u64| Addr(one.0 + len);
    // First within the padding, then beyond it. A second extension begins where the first ended.
    assert!(space.sectors().extend(end(13), 2).is_some());
    assert!(space.sectors().extend(end(15), 100).is_some());
    assert!(space.sectors().extend(end(15), 100).is_none(), "there is something now");
    assert_eq!(space.alloc(Stream::Data(0), 8, Class::Ordinary).unwrap(), end(120));
    assert!(space.sectors().extend(end(115), 1).is_none());
    // Up to the end of the segment, which is then sealed, and not beyond.
    let left = (SIZE - 128) as u32;
    assert!(space.sectors().extend(end(128), left + 1).is_none());
    assert!(space.sectors().extend(end(128), left).is_some());
    assert_eq!(kind_of(&space, seg_of(one)), (SegKind::Data, 0, true));
    assert!(space.sectors().extend(end(SIZE), 1).is_none());
    assert!(space.sectors().extend(Addr(0), 1).is_none());
    // Metadata, free segments and reused segments cannot be extended.
    let meta = space.alloc(Stream::Meta, 8, Class::Ordinary).unwrap();
    assert!(space.sectors().extend(Addr(meta.0 + 8), 8).is_none());
    drop(hold);
    checkpoint(&space);
    assert_eq!(kind_of(&space, seg_of(one)).0, SegKind::Free);
    assert!(space.sectors().extend(end(13), 2).is_none());
    let placed = space.alloc_held(Stream::Data(0), 13, Class::Ordinary, End::Anywhere);
    let Placed { addr: again, hold, .. } = placed.unwrap();
    assert_eq!(again, one);
    assert_ne!(hold.life(), life);
}
