//! Tests of the rules in the documentation of `sectors.rs`.

use super::*;
use crate::*;

const SIZE: u64 = 1 << 20;
const GEOMETRY: Geometry = Geometry { segment_size: SIZE, segments: 20, inode_size: 512 };
const SECTOR: u64 = limits::SECTOR;

/// Allocates a byte in a stream.
fn byte(space: &Space, stream: u8) -> Placed<'_> {
    space.alloc_held(Stream::Data(stream), 1, Class::Ordinary, End::Anywhere).unwrap()
}

#[test]
fn a_flush_closes_the_sectors_that_were_written_to() {
    let space = Space::fresh(GEOMETRY);
    let (one, other) = (byte(&space, 0).addr, byte(&space, 1).addr);
    space.sectors().close();
    assert_eq!(byte(&space, 0).addr, Addr(one.0 + SECTOR));
    // Nothing was written there since.
    space.sectors().close();
    space.sectors().close();
    assert_eq!(byte(&space, 0).addr, Addr(one.0 + 2 * SECTOR));
    assert_eq!(byte(&space, 1).addr, Addr(other.0 + SECTOR));
    assert_eq!(byte(&space, 1).addr, Addr(other.0 + SECTOR + 8));
    // The last sector ends with the segment.
    let left = SIZE - 2 * SECTOR - 16;
    assert_eq!(space.alloc(Stream::Data(0), left as u32, Class::Ordinary).unwrap(), {
        Addr(one.0 + 2 * SECTOR + 8)
    });
    space.sectors().close();
    assert!(space.usage()[GEOMETRY.segment_of(one).0 as usize].3);
    assert_ne!(GEOMETRY.segment_of(byte(&space, 0).addr), GEOMETRY.segment_of(one));
}

#[test]
fn a_flush_waits_for_the_writes_that_began_before_it() {
    let space = Space::fresh(GEOMETRY);
    let done = AtomicBool::new(false);
    let Placed { writing, .. } = byte(&space, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            space.sectors().close();
            assert!(done.load(Ordering::SeqCst), "a write is under way");
        });
        // Until it waits. Later writes go to the next sector, and it does not wait for them.
        let later = loop {
            let placed = byte(&space, 0);
            if placed.addr.0.is_multiple_of(SECTOR) {
                break placed;
            }
            std::thread::yield_now();
        };
        done.store(true, Ordering::SeqCst);
        drop(writing);
        while space.closing.try_lock().is_none() {
            std::thread::yield_now();
        }
        drop(later);
    });
}

#[test]
fn an_object_grows_in_place_until_a_flush_covers_its_end() {
    let space = Space::fresh(GEOMETRY);
    let stream = Stream::Data(0);
    let end = |placed: &Placed<'_>, len: u64| Addr(placed.addr.0 + len);
    let one = byte(&space, 0);
    let number = one.writing.number();
    assert!(space.sectors().may_grow(end(&one, 1), number));
    let (_hold, same) = space.sectors().extend(end(&one, 1), 100).unwrap();
    assert_eq!(same, number);
    assert!(space.sectors().begin_growth(end(&one, 1), end(&one, 101), number).is_some());
    let Placed { addr, hold: _hold, writing } = one;
    drop(writing);
    space.sectors().close();
    assert!(!space.sectors().may_grow(Addr(addr.0 + 101), number));
    assert!(space.sectors().begin_growth(Addr(addr.0 + 101), Addr(addr.0 + 101), number).is_none());
    // An object that ends at a sector boundary, and has more sectors of its own.
    let room = 3 * SECTOR as u32;
    let two = space.alloc_held(stream, room, Class::Ordinary, End::Sector).unwrap();
    let number = two.writing.number();
    let three = space.alloc_held(stream, 104, Class::Ordinary, End::Sector).unwrap();
    let ends = [end(&two, u64::from(room)), end(&three, 104)];
    assert!(ends.iter().all(|end| end.0.is_multiple_of(SECTOR)), "{ends:?}");
    assert_eq!(end(&three, 104), end(&two, u64::from(room) + SECTOR));
    drop((two.writing, three.writing));
    space.sectors().close();
    let boundary = Addr(two.addr.0 + SECTOR);
    assert!(
        space.sectors().may_grow(boundary, number)
            && !space.sectors().may_grow(Addr(boundary.0 + 8), number)
    );
    assert!(space.sectors().begin_growth(boundary, ends[0], number).is_some());
    assert!(
        space.sectors().begin_growth(boundary, Addr(ends[0].0 - 8), number).is_none(),
        "not alone"
    );
}
