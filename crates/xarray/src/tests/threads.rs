//! Many threads at once, for sizes that the model checker cannot reach.

use crate::{Mark, Value, XArray};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

const ROUNDS: u64 = if cfg!(miri) { 8 } else { 20_000 };

fn value(number: u64) -> Value {
    Value::new(number as usize).expect("small")
}

/// Pseudo-random numbers (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

#[test]
fn each_thread_finds_its_own_while_the_tree_grows_and_shrinks() {
    let array = XArray::new();
    thread::scope(|scope| {
        for thread in 0..4u64 {
            let array = &array;
            scope.spawn(move || {
                let mut random = Random(thread + 1);
                for round in 0..ROUNDS {
                    // Neighbours in the same leaf, on all levels.
                    let index = (1 << random.below(50)) * 4 + thread;
                    assert_eq!(array.insert(index, value(round)), Ok(None));
                    assert_eq!(array.get(index), Some(value(round)));
                    assert!(array.set_mark(index, Mark::A));
                    let next = array.next_marked(index, Mark::A).map(|(index, _)| index);
                    assert_eq!(next, Some(index), "a mark that is set is found");
                    assert_eq!(array.range(index..).next(), Some((index, value(round))));
                    assert_eq!(array.remove(index), Some(value(round)));
                    assert_eq!(array.get(index), None);
                }
            });
        }
    });
    assert_eq!(array.memory_bytes(), 0);
}

#[test]
fn allocated_indexes_are_given_once() {
    let array = XArray::new();
    let most = AtomicU64::new(0);
    thread::scope(|scope| {
        for thread in 0..4 {
            let (array, most) = (&array, &most);
            scope.spawn(move || {
                let mut mine = Vec::new();
                for round in 0..ROUNDS {
                    let index = array.alloc(.., value(thread)).expect("memory");
                    most.fetch_max(index, Ordering::Relaxed);
                    mine.push(index);
                    if round % 3 == 0 || mine.len() > 100 {
                        let index = mine.swap_remove(round as usize % mine.len());
                        assert_eq!(array.remove(index), Some(value(thread)));
                    }
                }
                for index in mine {
                    assert_eq!(array.remove(index), Some(value(thread)));
                }
            });
        }
    });
    assert_eq!(array.memory_bytes(), 0);
    assert!(most.into_inner() < 4 * 102 + 4, "the lowest free one");
}

#[test]
fn whoever_has_an_entry_keeps_it_in_the_array() {
    let array: XArray<Arc<AtomicBool>> = XArray::new();
    let removed = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let users: Vec<_> = (0..3u64)
            .map(|thread| {
                let array = &array;
                scope.spawn(move || {
                    for round in 0..ROUNDS * 4 {
                        let index = (round + thread) % 3;
                        let fresh = || Arc::new(AtomicBool::new(true));
                        let user = array.get_or_insert_with(index, fresh).expect("memory");
                        for _ in 0..round % 7 {
                            assert!(user.load(Ordering::Relaxed), "in use, and yet removed");
                        }
                        let here = array.get(index).expect("in use, and yet removed");
                        assert!(Arc::ptr_eq(&here, &user));
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            let mut index = 0;
            while !stop.load(Ordering::Relaxed) {
                index = (index + 1) % 3;
                let Some(entry) = array.get(index) else { continue };
                if array.remove_if_unused(index, &entry, |_| true) {
                    entry.store(false, Ordering::Relaxed);
                    removed.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        let results: Vec<_> = users.into_iter().map(|user| user.join()).collect();
        stop.store(true, Ordering::Relaxed);
        for result in results {
            result.expect("no user failed");
        }
    });
    assert!(cfg!(miri) || removed.into_inner() > 0, "nothing was tried");
}

#[test]
fn iteration_meets_what_stays_and_marks_are_not_lost() {
    let array = XArray::new();
    let stop = AtomicBool::new(false);
    let stays: Vec<u64> = (0..40).map(|n| n * 1000).collect();
    for index in &stays {
        array.insert(*index, Arc::new(*index)).expect("memory");
    }
    thread::scope(|scope| {
        for thread in 0..2u64 {
            let (array, stop) = (&array, &stop);
            scope.spawn(move || {
                let mut random = Random(thread + 7);
                while !stop.load(Ordering::Relaxed) {
                    let index = random.below(40_000) * 2 + 1;
                    array.insert(index, Arc::new(index)).expect("memory");
                    array.set_mark(index, Mark::A);
                    array.clear_mark(index, Mark::A);
                    array.remove(index);
                }
            });
        }
        for _ in 0..ROUNDS.div_ceil(20) {
            let met = array.iter().inspect(|(index, entry)| assert_eq!(*index, **entry));
            assert!(met.map(|e| e.0).filter(|i| stays.contains(i)).eq(stays.iter().copied()));
            let guard = array.pin();
            let met = guard.range(..).map(|e| e.0);
            assert!(met.filter(|i| stays.contains(i)).eq(stays.iter().copied()));
            for index in &stays {
                array.set_mark(*index, Mark::A);
            }
            let mut marked = Vec::new();
            array.for_each_marked(Mark::A, |index, _| marked.push(index));
            marked.retain(|index| stays.contains(index));
            assert_eq!(marked, stays);
            for index in &stays {
                array.clear_mark(*index, Mark::A);
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
}
