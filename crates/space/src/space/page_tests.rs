//! The pages of the usage table that a checkpoint must write, and that these together with the
//! unchanged ones form the whole table.

use super::*;
use crate::*;
use shoal_format::usage::UsagePage;
use std::collections::BTreeMap;

const SIZE: u64 = 1 << 20;
const GEOMETRY: Geometry = Geometry { segment_size: SIZE, segments: 2100, inode_size: 512 };

fn seg_of(addr: Addr) -> SegNo {
    GEOMETRY.segment_of(addr)
}

/// The pages of a usage table on a device. Missing pages have only free segments.
#[derive(Default)]
pub(crate) struct Disk(BTreeMap<u32, Vec<UsageEntry>>);

impl Disk {
    /// Writes the due pages and checks the whole table. Returns the numbers of the pages.
    pub(super) fn write(&mut self, space: &Space, frozen: &mut Frozen) -> BTreeSet<u32> {
        let mut due = BTreeSet::new();
        while let Some(number) = frozen.next_due(space) {
            due.insert(number);
        }
        for number in &due {
            match frozen.is_blank(space, *number) {
                true => {
                    frozen.leave_out(space, *number);
                    self.0.remove(number);
                }
                false => drop(self.0.insert(*number, frozen.page(space, *number, 1).entries)),
            }
        }
        let root = frozen.root(space, 1);
        assert_eq!(root.totals, frozen.table(space).totals());
        due
    }

    /// The table that an open would find.
    pub(super) fn read(&self, geometry: &Geometry, positions: [Addr; STREAMS]) -> UsageTable {
        let mut table = UsageTable::blank(geometry, positions);
        for (number, entries) in &self.0 {
            let page = UsagePage { number: *number, epoch: 1, entries: entries.clone() };
            table.enter(&page);
        }
        table
    }
}

/// Three pages: a checkpoint writes those with a changed row, and no others.
#[test]
fn only_pages_that_changed_are_due() {
    let (space, mut disk) = (Space::fresh(GEOMETRY), Disk::default());
    let cut = |disk: &mut Disk| -> Vec<u32> {
        let mut frozen = space.checkpointing().freeze();
        let due = disk.write(&space, &mut frozen);
        let table = frozen.table(&space);
        assert_eq!(disk.read(&GEOMETRY, table.positions), table);
        space.checkpointing().committed(frozen);
        due.into_iter().collect()
    };
    assert_eq!(cut(&mut disk), [0], "segment 0 is on it");
    assert_eq!(cut(&mut disk), []);
    let mut all = Vec::new();
    while let Ok(addr) = space.alloc(Stream::Data(0), SIZE as u32, Class::Ordinary) {
        space.add_live(addr, SIZE as u32);
        all.push(addr);
    }
    assert_eq!(cut(&mut disk), [0, 1, 2]);
    assert_eq!(cut(&mut disk), []);
    // One byte in the middle.
    space.sub_live(all[1500], 1);
    assert_eq!(cut(&mut disk), [1]);
    // A change without effect.
    space.sub_live(all[1500], 7);
    space.add_live(all[1500], 7);
    assert_eq!(cut(&mut disk), []);
    // A segment that is already free in the table changes nothing when it becomes free.
    space.sub_live(all[1100], SIZE as u32);
    assert_eq!(cut(&mut disk), [1]);
    assert_eq!(space.kind(seg_of(all[1100])), Some(SegKind::Free));
    assert_eq!(cut(&mut disk), []);
    // A page of free segments is not written; its old version is gone.
    assert!(disk.0.contains_key(&2));
    for addr in all.iter().filter(|addr| seg_of(**addr).0 >= 2048) {
        space.sub_live(*addr, SIZE as u32);
    }
    assert_eq!(cut(&mut disk), [2]);
    assert!(!disk.0.contains_key(&2));
    // On request, if the page exists.
    space.checkpointing().rewrite_page(0);
    space.checkpointing().rewrite_page(99);
    assert_eq!(cut(&mut disk), [0]);
    // An unfinished checkpoint: it is unknown what was written.
    drop(space.checkpointing().freeze());
    assert_eq!(cut(&mut disk), [0, 1, 2]);
}

/// Metadata: the open segment is on one page, and on another page once it is full.
#[test]
fn the_page_of_the_open_metadata_segment_is_due_when_it_is_left() {
    let (space, mut disk) = (Space::fresh(GEOMETRY), Disk::default());
    for _ in 0..1023 {
        let addr = space.alloc(Stream::Data(0), SIZE as u32, Class::Ordinary).unwrap();
        space.add_live(addr, 8);
    }
    let mut frozen = space.checkpointing().freeze();
    let first = space.alloc(Stream::Meta, 8, Class::Reserved).unwrap();
    space.checkpointing().meta_add(&mut frozen, first, 8);
    assert_eq!(seg_of(first), SegNo(1024));
    assert_eq!(Vec::from_iter(disk.write(&space, &mut frozen)), [0, 1]);
    space.checkpointing().committed(frozen);
    for _ in 1025..2047 {
        let addr = space.alloc(Stream::Data(0), SIZE as u32, Class::Ordinary).unwrap();
        space.add_live(addr, 8);
    }
    // The page's remaining segments are allocated; metadata continues in the next page. The segment
    // that it leaves changes only by that.
    let mut frozen = space.checkpointing().freeze();
    disk.write(&space, &mut frozen);
    space.checkpointing().committed(frozen);
    let mut frozen = space.checkpointing().freeze();
    let last = space.alloc(Stream::Meta, SIZE as u32 - 7, Class::Reserved).unwrap();
    assert_eq!(seg_of(last), SegNo(2047));
    space.checkpointing().meta_add(&mut frozen, last, 8);
    let next = space.alloc(Stream::Meta, SIZE as u32 - 7, Class::Reserved).unwrap();
    assert_eq!(seg_of(next), SegNo(2048));
    space.checkpointing().meta_add(&mut frozen, next, 8);
    assert_eq!(Vec::from_iter(disk.write(&space, &mut frozen)), [1, 2]);
    let table = frozen.table(&space);
    assert_eq!(disk.read(&GEOMETRY, table.positions), table);
    space.checkpointing().committed(frozen);
}
