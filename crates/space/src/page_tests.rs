//! Which pages of the usage table a checkpoint has to write, and that those with the others make up
//! the whole.

use super::*;
use shoal_format::usage::UsagePage;
use std::collections::BTreeMap;

const SIZE: u64 = 1 << 20;
const GEOMETRY: Geometry = Geometry { segment_size: SIZE, segments: 2100, inode_size: 512 };

fn seg_of(addr: Addr) -> SegNo {
    GEOMETRY.segment_of(addr)
}

/// The pages of a usage table on a device; those that are not there have free segments.
#[derive(Default)]
pub(crate) struct Disk(BTreeMap<u32, Vec<UsageEntry>>);

impl Disk {
    /// Writes what is due and checks the whole. Returns the numbers of the pages.
    pub fn write(&mut self, space: &Space, frozen: &mut Frozen) -> BTreeSet<u32> {
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

    /// The table that is found when it is opened.
    pub fn read(&self, geometry: &Geometry, positions: [Addr; STREAMS]) -> UsageTable {
        let mut table = UsageTable::blank(geometry, positions);
        for (number, entries) in &self.0 {
            let page = UsagePage { number: *number, epoch: 1, entries: entries.clone() };
            table.enter(&page);
        }
        table
    }
}

/// Three pages: a checkpoint writes those in which a row has changed, and no others.
#[test]
fn only_pages_that_changed_are_due() {
    let (space, mut disk) = (Space::fresh(GEOMETRY), Disk::default());
    let cut = |disk: &mut Disk| -> Vec<u32> {
        let mut frozen = space.freeze();
        let due = disk.write(&space, &mut frozen);
        let table = frozen.table(&space);
        assert_eq!(disk.read(&GEOMETRY, table.positions), table);
        space.committed(frozen);
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
    // One byte in the midst.
    space.sub_live(all[1500], 1);
    assert_eq!(cut(&mut disk), [1]);
    // A change that is none.
    space.sub_live(all[1500], 7);
    space.add_live(all[1500], 7);
    assert_eq!(cut(&mut disk), []);
    // What is free in the table already changes nothing when it becomes free.
    space.sub_live(all[1100], SIZE as u32);
    assert_eq!(cut(&mut disk), [1]);
    assert_eq!(space.kind(seg_of(all[1100])), Some(SegKind::Free));
    assert_eq!(cut(&mut disk), []);
    // A page of free segments is not written; what was left of it is gone.
    assert!(disk.0.contains_key(&2));
    for addr in all.iter().filter(|addr| seg_of(**addr).0 >= 2048) {
        space.sub_live(*addr, SIZE as u32);
    }
    assert_eq!(cut(&mut disk), [2]);
    assert!(!disk.0.contains_key(&2));
    // On demand, if there is such a page.
    space.rewrite_page(0);
    space.rewrite_page(99);
    assert_eq!(cut(&mut disk), [0]);
    // A checkpoint that was not finished: nobody knows what was written.
    drop(space.freeze());
    assert_eq!(cut(&mut disk), [0, 1, 2]);
}

/// Metadata: the open segment is on a page of its own, and another one when that is full.
#[test]
fn the_page_of_the_open_metadata_segment_is_due_when_it_is_left() {
    let (space, mut disk) = (Space::fresh(GEOMETRY), Disk::default());
    for _ in 0..1023 {
        let addr = space.alloc(Stream::Data(0), SIZE as u32, Class::Ordinary).unwrap();
        space.add_live(addr, 8);
    }
    let mut frozen = space.freeze();
    let first = space.alloc(Stream::Meta, 8, Class::Reserved).unwrap();
    space.meta_add(&mut frozen, first, 8);
    assert_eq!(seg_of(first), SegNo(1024));
    assert_eq!(Vec::from_iter(disk.write(&space, &mut frozen)), [0, 1]);
    space.committed(frozen);
    for _ in 1025..2047 {
        let addr = space.alloc(Stream::Data(0), SIZE as u32, Class::Ordinary).unwrap();
        space.add_live(addr, 8);
    }
    // The rest of the page's segments are taken; metadata goes on in the next page. The segment it
    // leaves changes by that alone.
    let mut frozen = space.freeze();
    disk.write(&space, &mut frozen);
    space.committed(frozen);
    let mut frozen = space.freeze();
    let last = space.alloc(Stream::Meta, SIZE as u32 - 7, Class::Reserved).unwrap();
    assert_eq!(seg_of(last), SegNo(2047));
    space.meta_add(&mut frozen, last, 8);
    let next = space.alloc(Stream::Meta, SIZE as u32 - 7, Class::Reserved).unwrap();
    assert_eq!(seg_of(next), SegNo(2048));
    space.meta_add(&mut frozen, next, 8);
    assert_eq!(Vec::from_iter(disk.write(&space, &mut frozen)), [1, 2]);
    let table = frozen.table(&space);
    assert_eq!(disk.read(&GEOMETRY, table.positions), table);
    space.committed(frozen);
}
