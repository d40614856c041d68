//! Every interleaving of a few calls, by the model checker. Nodes have four slots there.
//!
//! `cargo test -p shoal-xarray --features loom --lib model`
//!
//! The model cannot see the count of a standard `Arc`, so entries here count themselves with the
//! model's atomics, in the memory order of `Arc`.

use crate::{Counted, Entry, Mark, XArray};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering, fence};
use loom::thread;

/// Preemptions per execution; more with `LOOM_MAX_PREEMPTIONS`.
const PREEMPTIONS: usize = 3;

fn check(model: impl Fn() + Send + Sync + 'static) {
    check_with(PREEMPTIONS, model);
}

fn check_with(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(preemptions));
    builder.max_branches = 20_000;
    builder.check(model);
}

#[repr(align(8))]
struct Inner {
    count: AtomicUsize,
    number: usize,
}

/// An `Arc` that the model can see.
struct Shared(*mut Inner);

// SAFETY: like `Arc`.
unsafe impl Send for Shared {}
// SAFETY: like `Arc`.
unsafe impl Sync for Shared {}

impl Shared {
    fn new(number: usize) -> Shared {
        let inner = Inner { count: AtomicUsize::new(1), number };
        Shared(Box::into_raw(Box::new(inner)))
    }
    fn inner(&self) -> &Inner {
        // SAFETY: freed by the last owner.
        unsafe { &*self.0 }
    }
    fn count(&self) -> usize {
        self.inner().count.load(Ordering::Relaxed)
    }
}

impl Clone for Shared {
    fn clone(&self) -> Shared {
        let before = self.inner().count.fetch_add(1, Ordering::Relaxed);
        assert!(before > 0, "counted after the last owner let go");
        Shared(self.0)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if self.inner().count.fetch_sub(1, Ordering::Release) == 1 {
            fence(Ordering::Acquire);
            // SAFETY: we were the last owner.
            drop(unsafe { Box::from_raw(self.0) });
        }
    }
}

// SAFETY: like that of `Arc`.
unsafe impl Entry for Shared {
    type Ref<'a> = usize;
    const COUNTED: bool = true;

    fn into_raw(self) -> *mut () {
        std::mem::ManuallyDrop::new(self).0.cast()
    }
    fn as_raw(&self) -> *mut () {
        self.0.cast()
    }
    // SAFETY: as the trait says.
    unsafe fn clone_raw(raw: *mut ()) -> Shared {
        Shared::clone(&std::mem::ManuallyDrop::new(Shared(raw.cast())))
    }
    // SAFETY: as the trait says.
    unsafe fn borrow_raw<'a>(raw: *mut ()) -> Self::Ref<'a> {
        std::mem::ManuallyDrop::new(Shared(raw.cast())).inner().number
    }
    // SAFETY: as the trait says.
    unsafe fn drop_raw(raw: *mut ()) {
        drop(Shared(raw.cast()));
    }
}

// SAFETY: like that of `Arc`.
unsafe impl Counted for Shared {
    fn holders(&self) -> usize {
        self.count()
    }
    fn look(&self) -> usize {
        self.inner().number
    }
}

fn array() -> Arc<XArray<Shared>> {
    Arc::new(XArray::new())
}

/// The protocol of `remove_if_unused`: a reader either keeps the entry in the array or does not get
/// it.
#[test]
fn a_reader_is_never_overlooked() {
    check(|| {
        let array = array();
        array.insert(1, Shared::new(7)).expect("memory");
        let reader = {
            let array = array.clone();
            thread::spawn(move || array.get(1))
        };
        let entry = array.get(1).expect("only we remove");
        let removed = array.remove_if_unused(1, &entry, |n| n == 7);
        let seen = reader.join().expect("no panic");
        assert!(!(removed && seen.is_some()), "removed from under a reader");
        let here = array.get(1);
        assert_eq!(here.is_some(), !removed);
        assert!(here.or(seen).is_none_or(|here| here.as_raw() == entry.as_raw()));
    });
}

/// The same for a reader that counts itself elsewhere, in a word that the predicate reads.
#[test]
fn a_use_that_is_counted_elsewhere_is_never_overlooked() {
    struct Use<'a>(&'a AtomicUsize);
    impl Drop for Use<'_> {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::Release);
        }
    }
    check(|| {
        let array = array();
        let uses = Arc::new(AtomicUsize::new(0));
        array.insert(1, Shared::new(7)).expect("memory");
        let reader = {
            let (array, uses) = (array.clone(), uses.clone());
            thread::spawn(move || {
                let pin = array.pin();
                let count = |_| {
                    uses.fetch_add(1, Ordering::Relaxed);
                    Use(&uses)
                };
                // In use until the end, as far as the remover can tell.
                pin.get_as(1, count).map(std::mem::forget).is_some()
            })
        };
        let entry = array.get(1).expect("only we remove");
        let removed = array.remove_if_unused(1, &entry, |_| uses.load(Ordering::Acquire) == 0);
        let used = reader.join().expect("no panic");
        assert!(!(removed && used), "removed from under a reader");
        assert_eq!(array.get(1).is_some(), !removed);
    });
}

/// The same with two removers that hold the entry until they have tried.
#[test]
fn of_two_removers_at_most_one_succeeds() {
    check(|| {
        let array = array();
        array.insert(1, Shared::new(7)).expect("memory");
        let try_it = |array: Arc<XArray<Shared>>| {
            let Some(entry) = array.get(1) else { return false };
            array.remove_if_unused(1, &entry, |_| true)
        };
        let other = {
            let array = array.clone();
            thread::spawn(move || try_it(array))
        };
        let (mine, other) = (try_it(array.clone()), other.join().expect("no panic"));
        assert!(!(mine && other));
        assert_eq!(array.get(1).is_none(), mine || other);
    });
}

/// The predicate sees what a holder wrote before it dropped its reference.
#[test]
fn the_predicate_sees_what_holders_did() {
    check(|| {
        let array = array();
        let dirty = Arc::new(AtomicUsize::new(0));
        array.insert(1, Shared::new(7)).expect("memory");
        let holder = {
            let (array, dirty) = (array.clone(), dirty.clone());
            thread::spawn(move || {
                let Some(entry) = array.get(1) else { return false };
                dirty.store(1, Ordering::Relaxed);
                drop(entry);
                true
            })
        };
        let entry = array.get(1).expect("only we remove");
        let removed = array.remove_if_unused(1, &entry, |_| dirty.load(Ordering::Relaxed) == 0);
        let wrote = holder.join().expect("no panic");
        assert!(!(removed && wrote), "removed though it was made dirty by a holder");
    });
}

/// A thread evicts the entry, another inserts it again: both agree on the content of the array.
#[test]
fn removal_and_insertion_agree() {
    check(|| {
        let array = array();
        array.insert(1, Shared::new(7)).expect("memory");
        let user = {
            let array = array.clone();
            thread::spawn(move || array.get_or_insert_with(1, || Shared::new(8)).expect("memory"))
        };
        let entry = array.get(1).expect("only we remove");
        let removed = array.remove_if_unused(1, &entry, |_| true);
        let user = user.join().expect("no panic");
        let here = array.get(1).expect("the user has it");
        assert!(here.as_raw() == user.as_raw());
        assert_eq!(user.look(), if removed { 8 } else { 7 });
    });
}

/// Two threads make the same leaf, one in a tree that must grow. No entry is lost.
#[test]
fn the_tree_grows_under_two_writers() {
    check(|| {
        let array = array();
        array.insert(0, Shared::new(1)).expect("memory");
        let other = {
            let array = array.clone();
            thread::spawn(move || array.insert(20, Shared::new(3)).expect("memory").is_none())
        };
        assert!(array.insert(5, Shared::new(2)).expect("memory").is_none());
        assert!(array.get(5).is_some() && array.get(0).is_some());
        assert!(other.join().expect("no panic"));
        let all: Vec<_> = array.iter().map(|(index, entry)| (index, entry.look())).collect();
        assert_eq!(all, [(0, 1), (5, 2), (20, 3)]);
    });
}

/// One thread empties the leaf that the other is about to use. The tree shrinks to nothing and
/// grows.
#[test]
fn a_leaf_dies_while_another_wants_it() {
    check(|| {
        let array = array();
        array.insert(4, Shared::new(1)).expect("memory");
        let other = {
            let array = array.clone();
            thread::spawn(move || {
                assert!(array.insert(5, Shared::new(2)).expect("memory").is_none());
                assert_eq!(array.pin().get(5), Some(2));
            })
        };
        assert!(array.remove(4).is_some());
        other.join().expect("no panic");
        let all: Vec<_> = array.iter().map(|(index, entry)| (index, entry.look())).collect();
        assert_eq!(all, [(5, 2)]);
        assert!(array.remove(5).is_some());
        assert_eq!(array.memory_bytes(), 0);
    });
}

/// The topmost node is removed while a reader is descending and an insertion needs it.
#[test]
fn the_tree_shrinks_under_a_reader_and_a_writer() {
    check(|| {
        let array = array();
        array.insert(1, Shared::new(1)).expect("memory");
        array.insert(17, Shared::new(2)).expect("memory");
        let other = {
            let array = array.clone();
            thread::spawn(move || {
                assert!(array.get(1).is_some(), "it is there all the time");
                array.insert(6, Shared::new(3)).expect("memory");
                assert!(array.get(6).is_some());
            })
        };
        assert!(array.remove(17).is_some());
        other.join().expect("no panic");
        let all: Vec<_> = array.iter().map(|(index, entry)| (index, entry.look())).collect();
        assert_eq!(all, [(1, 1), (6, 3)]);
    });
}

/// A node above the leaves dies while an insertion is about to attach a leaf to it.
#[test]
fn an_inner_node_dies_while_another_wants_it() {
    check(|| {
        let array = array();
        array.insert(0, Shared::new(1)).expect("memory");
        array.insert(16, Shared::new(2)).expect("memory");
        let other = {
            let array = array.clone();
            thread::spawn(move || {
                array.insert(20, Shared::new(3)).expect("memory");
                assert!(array.get(20).is_some());
            })
        };
        assert!(array.remove(16).is_some());
        other.join().expect("no panic");
        let all: Vec<_> = array.iter().map(|(index, entry)| (index, entry.look())).collect();
        assert_eq!(all, [(0, 1), (20, 3)]);
    });
}

/// The same, while a third thread is already descending through the dying node. It must never find
/// a leaf there that is alive but unreachable.
#[test]
fn nobody_is_led_into_what_hangs_on_a_dead_node() {
    // Two are enough to show it, and three take minutes with three threads.
    check_with(2, || {
        let array = array();
        array.insert(0, Shared::new(1)).expect("memory");
        array.insert(16, Shared::new(2)).expect("memory");
        let others = [20, 21].map(|index| {
            let array = array.clone();
            thread::spawn(move || {
                array.insert(index, Shared::new(3)).expect("memory");
            })
        });
        assert!(array.remove(16).is_some());
        for other in others {
            other.join().expect("no panic");
        }
        let all: Vec<_> = array.iter().map(|(index, _)| index).collect();
        assert_eq!(all, [0, 20, 21]);
    });
}

/// The only child that is to become the topmost node is replaced by another before it is locked.
#[test]
fn the_top_is_not_lowered_to_a_dead_node() {
    check(|| {
        let array = array();
        array.insert(1, Shared::new(1)).expect("memory");
        array.insert(4, Shared::new(2)).expect("memory");
        let other = {
            let array = array.clone();
            thread::spawn(move || {
                array.insert(5, Shared::new(3)).expect("memory");
                assert!(array.remove(1).is_some());
                array.insert(1, Shared::new(4)).expect("memory");
                assert!(array.remove(5).is_some());
            })
        };
        assert!(array.remove(4).is_some());
        other.join().expect("no panic");
        let all: Vec<_> = array.iter().map(|(index, entry)| (index, entry.look())).collect();
        assert_eq!(all, [(1, 4)]);
    });
}

/// A mark that is set is found, whatever is cleared or inserted next to it meanwhile.
#[test]
fn no_mark_is_lost() {
    check(|| {
        let array = array();
        array.insert(4, Shared::new(1)).expect("memory");
        array.insert(5, Shared::new(2)).expect("memory");
        array.set_mark(4, Mark::B);
        let other = {
            let array = array.clone();
            thread::spawn(move || {
                assert!(array.set_mark(5, Mark::B));
                let found = array.next_marked(5, Mark::B);
                assert_eq!(found.map(|(index, _)| index), Some(5));
            })
        };
        assert!(array.clear_mark(4, Mark::B));
        other.join().expect("no panic");
        let mut marked = Vec::new();
        array.for_each_marked(Mark::B, |index, _| marked.push(index));
        assert_eq!(marked, [5]);
    });
}

/// Two marks in one leaf under two more levels. The second setter finds the leaf already marked,
/// and must not return before the first has updated the topmost node.
#[test]
fn a_mark_is_found_once_its_setting_has_returned() {
    check(|| {
        let array = array();
        array.insert(16, Shared::new(1)).expect("memory");
        array.insert(17, Shared::new(2)).expect("memory");
        let other = {
            let array = array.clone();
            thread::spawn(move || assert!(array.set_mark(16, Mark::B)))
        };
        assert!(array.set_mark(17, Mark::B));
        let found = array.next_marked(17, Mark::B);
        assert_eq!(found.map(|(index, _)| index), Some(17));
        other.join().expect("no panic");
    });
}

/// The same while the tree grows by a node above the one that gets the mark.
#[test]
fn no_mark_is_lost_when_the_tree_grows() {
    check(|| {
        let array = array();
        array.insert(1, Shared::new(1)).expect("memory");
        let other = {
            let array = array.clone();
            thread::spawn(move || assert!(array.set_mark(1, Mark::A)))
        };
        array.insert(7, Shared::new(2)).expect("memory");
        other.join().expect("no panic");
        assert_eq!(array.next_marked(0, Mark::A).map(|(index, _)| index), Some(1));
    });
}

/// An iteration concurrent with removal and insertion returns every unchanged entry once, in order.
#[test]
fn iteration_meets_what_stays() {
    check(|| {
        let array = array();
        for index in [2, 5, 9] {
            array.insert(index, Shared::new(index as usize)).expect("memory");
        }
        let other = {
            let array = array.clone();
            thread::spawn(move || {
                assert!(array.remove(5).is_some());
                array.insert(6, Shared::new(6)).expect("memory");
            })
        };
        let met: Vec<u64> = array.iter().map(|(index, _)| index).collect();
        other.join().expect("no panic");
        assert!(met.starts_with(&[2]) && met.ends_with(&[9]), "{met:?}");
        assert!(met[1..met.len() - 1].iter().all(|i| [5, 6].contains(i)), "{met:?}");
        assert!(met.is_sorted());
    });
}

/// Two threads that allocate get different indexes. A reservation that is dropped frees its leaf.
#[test]
fn allocation_and_reservation() {
    check(|| {
        let array = array();
        let other = {
            let array = array.clone();
            thread::spawn(move || array.alloc(3.., Shared::new(1)).expect("memory"))
        };
        drop(array.reserve(4).expect("memory"));
        let mine = array.alloc(3.., Shared::new(2)).expect("memory");
        let other = other.join().expect("no panic");
        assert!(mine != other && mine.min(other) == 3 && mine.max(other) <= 5);
        assert!(array.remove(mine).is_some() && array.remove(other).is_some());
        assert_eq!(array.memory_bytes(), 0);
    });
}
