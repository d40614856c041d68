//! The orphan table: models of threads that take and free slots concurrently, under the scheduler
//! of `shuttle`; a test that counts the writers of each cache line; and the slots seen by a
//! checkpoint.
//!
//! Other or longer runs: `SHOAL_MODEL_SEED=7 SHOAL_MODEL_RUNS=5000 cargo test -p shoal-txn --lib
//! orphans`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::*;
use shoal_base::sync::set_shard;
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, Runner, thread};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Mutex;

/// A word at every use of which the scheduler may switch threads.
#[derive(Default)]
struct ModelWord(shuttle::sync::atomic::AtomicU64);

impl Word for ModelWord {
    fn load(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
    fn hint(&self, value: u64) {
        self.0.store(value, Ordering::SeqCst);
    }
    fn swap(&self, old: u64, new: u64) -> bool {
        self.0.compare_exchange(old, new, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }
}

fn from_env(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default)
}

fn check(runs: u64, model: impl Fn() + Clone + Send + Sync + 'static) {
    let (runs, seed) =
        (from_env("SHOAL_MODEL_RUNS", runs) as usize / 2, from_env("SHOAL_MODEL_SEED", 1));
    // Blocks are arrays of a model's words: larger than a coroutine's default stack.
    let config = || {
        let mut config = Config::new();
        config.stack_size = 4 << 20;
        config
    };
    Runner::new(RandomScheduler::new_from_seed(seed, runs), config()).run(model.clone());
    Runner::new(PctScheduler::new_from_seed(seed, 3, runs), config()).run(model);
}

/// Fills a block except for `free` slots.
fn crowd<W: Word>(orphans: &Orphans<W>, home: usize, free: usize) {
    for i in 0..SLOTS - free {
        let _ = orphans.take_in(home, Ino(1_000_000 + i as u64)).unwrap();
    }
}

/// Each thread takes two slots, frees one, and finds the other unchanged, while others do the same
/// in its shard, and one frees the memory of empty blocks.
#[test]
fn slots_are_taken_once() {
    check(600, || {
        let orphans: Arc<Orphans<ModelWord>> = Arc::default();
        crowd(&orphans, 0, 2);
        let taker = |first: u64| {
            let orphans = orphans.clone();
            thread::spawn(move || {
                let (a, b) = (Ino(first), Ino(first + 1));
                let at = orphans.take_in(0, a).unwrap();
                let other = orphans.take_in(0, b).unwrap();
                assert!(at != other && orphans.has(at, a) && orphans.has(other, b));
                assert!(orphans.free(at, a), "{a} has gone from its slot");
                assert!(!orphans.free(at, a) && orphans.has(other, b));
            })
        };
        let mut threads: Vec<_> = [10, 20].map(taker).into();
        let shrinker = orphans.clone();
        threads.push(thread::spawn(move || shrinker.shrink()));
        threads.into_iter().for_each(|t| t.join().unwrap());
        let left: Vec<u64> =
            orphans.all().iter().map(|(ino, _)| ino.0).filter(|i| *i < 1000).collect();
        assert_eq!(left, [11, 21]);
    });
}

/// A word that records which shard writes its cache line.
#[derive(Default)]
struct Noted(AtomicU64);

static WRITERS: Mutex<Option<HashMap<usize, HashSet<usize>>>> = Mutex::new(None);

impl Noted {
    fn note(&self) {
        let line = std::ptr::from_ref(self) as usize / 64;
        if let Some(writers) = WRITERS.lock().unwrap().as_mut() {
            writers.entry(line).or_default().insert(shard());
        }
    }
}

impl Word for Noted {
    fn load(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
    fn hint(&self, value: u64) {
        self.note();
        self.0.store(value, Ordering::Relaxed);
    }
    fn swap(&self, old: u64, new: u64) -> bool {
        self.note();
        self.0.compare_exchange(old, new, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

/// As many threads as there are shards take and free slots: first like files being truncated, one
/// after the other, then each twice as many as a block has. A shard's own blocks must be written by
/// it alone.
#[test]
fn no_cache_line_is_written_by_two_shards() {
    let orphans: Orphans<Noted> = Orphans::default();
    *WRITERS.lock().unwrap() = Some(HashMap::new());
    std::thread::scope(|scope| {
        for thread in 0..SHARDS as u64 {
            let orphans = &orphans;
            scope.spawn(move || {
                // Not by how many threads the process has had.
                set_shard(thread as usize);
                let ino = |i: u64| Ino(1 + thread * 1_000_000 + i);
                for i in 0..2000 {
                    let slot = orphans.take(ino(i)).unwrap();
                    assert!(orphans.free(slot, ino(i)));
                }
                // A quarter of the block, all at once.
                let slots: Vec<_> = (0..SLOTS as u64 / 4)
                    .map(|i| (orphans.take(ino(i)).unwrap(), ino(i)))
                    .collect();
                slots.into_iter().for_each(|(slot, ino)| assert!(orphans.free(slot, ino)));
            });
        }
    });
    let writers = WRITERS.lock().unwrap().take().unwrap();
    assert!(writers.len() >= SHARDS * SLOTS / 4 / 8, "{} lines were written", writers.len());
    let shared: BTreeMap<_, _> = writers.iter().filter(|(_, by)| by.len() > 1).collect();
    assert!(shared.is_empty(), "written by more than one shard: {shared:?}");
}

#[test]
fn full_shards_spill_and_grow_and_shrink() {
    let orphans: Orphans = Orphans::default();
    let count = SLOTS * 5 + 7;
    let slots: Vec<_> =
        (1..=count as u64).map(|i| (orphans.take_in(3, Ino(i)).unwrap(), Ino(i))).collect();
    assert_eq!(orphans.len(), count);
    assert_eq!(orphans.grown.iter().count(), 5);
    assert!(slots.iter().all(|(slot, ino)| orphans.has(*slot, *ino)));
    // A checkpoint writes exactly the slots in use, in blocks that are not too full.
    let frozen = orphans.freeze();
    assert!(frozen.iter().all(|(_, inodes)| !inodes.is_empty() && inodes.len() <= SLOTS));
    assert_eq!(frozen.iter().map(|(_, inodes)| inodes.len()).sum::<usize>(), count);
    for (slot, ino) in &slots {
        assert!(orphans.free(*slot, *ino) && !orphans.free(*slot, *ino));
    }
    orphans.shrink();
    assert_eq!((orphans.len(), orphans.grown.iter().count()), (0, 0));
    assert!(orphans.freeze().is_empty());
    // And again from the start.
    let slot = orphans.take_in(3, Ino(9)).unwrap();
    assert_eq!(orphans.all(), [(Ino(9), slot)]);
}

#[test]
fn a_full_shard_uses_its_neighbour_before_it_grows() {
    let orphans: Orphans = Orphans::default();
    crowd(&orphans, 0, 0);
    let _ = orphans.take_in(7, Ino(1)).unwrap();
    let spilled = orphans.take_in(0, Ino(2)).unwrap();
    assert_eq!(spilled.0 / SLOTS as u32, 7);
    assert_eq!(orphans.grown.iter().count(), 0);
}
