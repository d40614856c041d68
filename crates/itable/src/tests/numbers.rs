//! The choice of numbers, tested by counts of blocks, which do not depend on time; and the writers
//! of each cache line.

use super::noted;
use super::world::{Plan, World};
use super::{PLAN, once};
use crate::block::InodeRef;
use crate::sync::shard;
use shoal_base::Ino;
use shoal_base::limits::INODES_PER_BLOCK;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const PER_BLOCK: u64 = INODES_PER_BLOCK as u64;

/// A table with `blocks` blocks on the device, each with `used` inodes in use.
fn aged(blocks: u64, used: u64) -> World {
    World::new(&Plan { blocks, used, limit: 4096, ..PLAN })
}

/// Directories of a table, by their numbers, with their entries.
struct Dirs<'w> {
    world: &'w World,
    children: BTreeMap<u64, Vec<InodeRef>>,
}

impl<'w> Dirs<'w> {
    fn new(world: &'w World) -> Dirs<'w> {
        Dirs { world, children: BTreeMap::new() }
    }
    fn create(&mut self, dir: u64) {
        let children = self.children.entry(dir).or_default();
        let parent = self.world.table.get(Ino(dir)).unwrap();
        let child =
            self.world.table.numbers().allocate(parent.at(), children.len() as u64).unwrap();
        self.world.make(&child);
        children.push(child);
    }
    fn remove(&mut self, dir: u64, which: impl Fn(usize) -> bool) {
        let children = self.children.remove(&dir).unwrap_or_default();
        let (gone, left) = children.into_iter().enumerate().partition::<Vec<_>, _>(|c| which(c.0));
        for (_, child) in gone {
            self.world.unmake(&child, Ino(dir));
        }
        self.children.insert(dir, left.into_iter().map(|(_, child)| child).collect());
    }
    fn blocks(&self, dir: u64) -> usize {
        let blocks = self.children[&dir].iter().map(|child| child.ino.0 / PER_BLOCK);
        blocks.collect::<BTreeSet<u64>>().len()
    }
}

/// 64 pseudo-random bits.
fn mix(mut x: u64) -> u64 {
    x = (x ^ x >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ x >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ x >> 31
}

#[test]
fn blocks_with_one_hole_stay_as_they_are() {
    // A regression: each of them was used, and read; a directory of 1,000 files was in 900 blocks.
    once(|| {
        let world = aged(900, 31);
        let reads = world.block_reads();
        let mut dirs = Dirs::new(&world);
        (0..1000).for_each(|_| dirs.create(1));
        let read = world.block_reads() - reads;
        assert!(read <= 2, "{read} blocks read: the directory's own, and the last one");
        assert!(dirs.blocks(1) <= 34, "{} blocks", dirs.blocks(1));
    });
}

#[test]
fn a_directory_fills_its_own_holes() {
    once(|| {
        let world = aged(1, 4);
        let mut dirs = Dirs::new(&world);
        for dir in 1..4 {
            (0..960).for_each(|_| dirs.create(dir));
        }
        let begun = world.table.next_block();
        for round in 0..20u64 {
            for dir in 1..4 {
                // Different ones each time, about half.
                dirs.remove(dir, |n| mix(n as u64 ^ dir << 20 ^ round << 40) & 1 == 1);
            }
            for dir in 1..4 {
                (dirs.children[&dir].len()..960).for_each(|_| dirs.create(dir));
            }
        }
        for dir in 1..4 {
            assert!(dirs.blocks(dir) <= 37, "{} blocks, 30 hold as many", dirs.blocks(dir));
        }
        let now = world.table.next_block();
        assert!(now <= begun + begun / 2, "{now} blocks begun, {begun} at first");
    });
}

#[test]
fn directories_that_take_turns_have_blocks_of_their_own() {
    once(|| {
        let world = aged(1, 8);
        let mut dirs = Dirs::new(&world);
        for _ in 0..320 {
            (1..7).for_each(|dir| dirs.create(dir));
        }
        for dir in 1..7 {
            // The first 32 entries are in blocks shared with the others.
            assert!(dirs.blocks(dir) <= 6 + 9 + 1, "{} blocks", dirs.blocks(dir));
        }
        // Small directories share, so that a block is not begun for each.
        let world = aged(4, 32);
        let mut dirs = Dirs::new(&world);
        (1..100).for_each(|dir| (0..10).for_each(|_| dirs.create(dir)));
        assert!(world.table.next_block() <= 4 + 32, "{} blocks", world.table.next_block());
    });
}

#[test]
fn blocks_freed_in_an_earlier_session_are_found() {
    once(|| {
        let world = aged(600, 2);
        let mut dirs = Dirs::new(&world);
        let reads = world.node_reads();
        dirs.create(1);
        let first = world.node_reads() - reads;
        assert!(first <= 4, "{first} nodes read for the first one");
        (0..600 * 30).for_each(|_| dirs.create(1));
        let begun = world.table.next_block() - 600;
        // 32 before each of three searches; a search that finds something needs none.
        assert!(begun <= 40, "{begun} new blocks while 600 are nearly free");
    });
}

#[test]
fn the_last_numbers_are_given_out() {
    use shoal_base::limits::INODE_BLOCKS_MAX;
    once(|| {
        let world = aged(2, 31);
        world.table.salvage().raise_next_block(INODE_BLOCKS_MAX - 1);
        let mut dirs = Dirs::new(&world);
        (0..5000).for_each(|_| dirs.create(1));
        assert_eq!(world.table.next_block(), INODE_BLOCKS_MAX);
        let highest = dirs.children[&1].iter().map(|child| child.ino.0).max();
        assert_eq!(highest, Some(INODE_BLOCKS_MAX * PER_BLOCK - 1));
    });
}

#[test]
fn lists_are_bounded() {
    once(|| {
        let world = World::new(&Plan { blocks: 200, used: 32, limit: 20, ..PLAN });
        let mut dirs = Dirs::new(&world);
        dirs.children.insert(1, Vec::new());
        for number in 1..200 * PER_BLOCK {
            if number > 8 && number % PER_BLOCK != 0 {
                dirs.children.get_mut(&1).unwrap().push(world.table.get(Ino(number)).unwrap());
            }
        }
        dirs.remove(1, |_| true);
        assert!(world.listed() <= 20, "{} entries", world.listed());
        // Those that were not listed are found by a search.
        (0..190 * 31).for_each(|_| dirs.create(2));
        let begun = world.table.next_block() - 200;
        assert!(begun <= 100, "{begun} new blocks while 199 are nearly free");
    });
}

/// Two threads, each in its own directory, make and remove files. The locks and atomics of this
/// crate that they write must be in different cache lines, except those written once per block.
#[test]
fn a_create_writes_no_line_that_others_write() {
    once(|| {
        let world = Arc::new(aged(4, 4));
        let thread = |dir: u64, creates: u64| {
            let world = world.clone();
            shuttle::thread::spawn(move || {
                let parent = world.table.get(Ino(dir * PER_BLOCK)).unwrap();
                for n in 0..creates {
                    let child = world.table.numbers().allocate(parent.at(), 100).unwrap();
                    world.make(&child);
                    world.table.count_inodes(1);
                    if n % 4 == 3 {
                        world.unmake(&child, parent.ino);
                        world.table.count_inodes(-1);
                    }
                }
                shard()
            })
        };
        let both = |creates| {
            let threads = [1, 2].map(|dir| thread(dir, creates));
            threads.map(|thread| thread.join().unwrap())
        };
        // Each begins a block, and gets its shard's lines.
        let shards = both(8);
        assert_ne!(shards[0], shards[1], "the threads have a shard each");
        noted::start();
        both(16);
        let lines = noted::stop();
        assert_eq!(world.table.inodes(), 2 * (6 + 12));
        let shared: Vec<_> = lines.iter().filter(|(_, by)| by.len() > 1).collect();
        assert!(lines.len() > 20, "{} lines were written", lines.len());
        assert!(shared.is_empty(), "{} of {} lines: {shared:?}", shared.len(), lines.len());
        // A block is 32 creates. New blocks are begun here, which proves that sharing is noticed.
        noted::start();
        both(32);
        let shared = noted::stop().values().filter(|by| by.len() > 1).count();
        assert!((1..=8).contains(&shared), "{shared} lines are written by both for a block");
    });
}
