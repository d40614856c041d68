//! Edge cases, one at a time, on one thread.

use crate::{ExchangeError, IndexError, Mark, Value, XArray};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

fn value(number: usize) -> Value {
    Value::new(number).expect("small")
}

#[test]
fn an_empty_array_takes_nothing_and_has_nothing() {
    let array = XArray::<Value>::new();
    assert_eq!((array.get(0), array.get(u64::MAX), array.remove(5)), (None, None, None));
    assert!(array.is_empty() && array.memory_bytes() == 0);
    assert_eq!(array.next_marked(0, Mark::A), None);
    assert!(matches!(array.compare_exchange(3, None, None), Ok(None)));
    assert_eq!(array.range(5..5).next(), None);
    assert_eq!(array.range(u64::MAX..).next(), None);
    let above = (std::ops::Bound::Excluded(u64::MAX), std::ops::Bound::Unbounded);
    assert_eq!(array.range(above).next(), None);
}

#[test]
fn grows_and_shrinks_with_the_largest_index() {
    let array = XArray::new();
    let mut bytes = Vec::new();
    for bits in [0, 6, 12, 18, 24, 30, 36, 42, 48, 54, 60] {
        array.insert(1 << bits, value(bits)).expect("memory");
        bytes.push(array.memory_bytes());
    }
    array.insert(u64::MAX, value(1)).expect("memory");
    assert_eq!(array.get(u64::MAX), Some(value(1)));
    assert_eq!(array.remove(u64::MAX), Some(value(1)));
    for bits in [60, 54, 48, 42, 36, 30, 24, 18, 12, 6, 0] {
        assert_eq!(array.memory_bytes(), bytes.pop().expect("as many"), "at bit {bits}");
        assert_eq!(array.remove(1 << bits), Some(value(bits)));
    }
    assert_eq!(array.memory_bytes(), 0);
}

#[test]
fn bytes_for_each_entry() {
    let each = |count: u64, stride: u64| {
        let array = XArray::new();
        for n in 0..count {
            array.insert(n * stride, value(1)).expect("memory");
        }
        array.memory_bytes() as f64 / count as f64
    };
    let count = if cfg!(miri) { 4096 } else { 262_144 };
    // The figures of the documentation: dense, every 8th, every 64th index, far apart.
    assert!((9.1..9.2).contains(&each(count, 1)), "{}", each(count, 1));
    assert!((73.0..73.3).contains(&each(count / 8, 8)), "{}", each(count / 8, 8));
    assert!((585.0..587.0).contains(&each(count / 64, 64)), "{}", each(count / 64, 64));
    assert!((1150.0..1200.0).contains(&each(count / 64, 4096)), "{}", each(count / 64, 4096));
}

#[test]
fn entries_are_dropped_once_with_the_array_or_after_they_left() {
    struct Counts(Arc<AtomicUsize>);
    impl Drop for Counts {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let dropped = Arc::new(AtomicUsize::new(0));
    let array = XArray::new();
    for index in 0..100 {
        array.insert(index * 77, Arc::new(Counts(dropped.clone()))).expect("memory");
    }
    let kept = array.get(0).expect("an entry");
    drop(array);
    assert_eq!(dropped.load(Ordering::Relaxed), 99);
    drop(kept);
    assert_eq!(dropped.load(Ordering::Relaxed), 100);

    let mut array = XArray::new();
    array.insert(1, Arc::new(Counts(dropped.clone()))).expect("memory");
    array.clear();
    assert_eq!(dropped.load(Ordering::Relaxed), 101);
    array.insert(1, Arc::new(Counts(dropped.clone()))).expect("memory");
    drop(array.remove(1));
    // The array's reference is dropped when the collector has run.
    for _ in 0..10_000 {
        crossbeam_epoch::pin().flush();
        if dropped.load(Ordering::Relaxed) == 102 {
            return;
        }
        std::thread::yield_now();
    }
    panic!("an entry that left was not dropped");
}

#[test]
fn only_the_entry_that_is_meant_is_removed() {
    let array = XArray::new();
    let (old, new) = (Arc::new(1), Arc::new(1));
    array.insert(9, old.clone()).expect("memory");
    array.insert(9, new.clone()).expect("memory");
    assert!(!array.remove_if(9, &old) && !array.remove_if_unused(9, &old, |_| true));
    assert!(!array.remove_if(8, &new) && !array.remove_if(1 << 20, &new));
    assert_eq!(array.remove_when(9, |n| *n == 2), None);
    assert!(array.remove_if(9, &new) && !array.remove_if(9, &new));
    assert_eq!(array.remove_when(9, |_| true), None);
}

#[test]
fn unused_means_nobody_but_array_and_caller() {
    let array = XArray::new();
    let entry = Arc::new(5);
    array.insert(1, entry.clone()).expect("memory");
    let user = array.get_arc(1);
    assert!(!array.remove_if_unused(1, &entry, |_| true));
    drop(user);
    assert!(!array.remove_if_unused(1, &entry, |_| false));
    assert_eq!(array.get(1).as_deref(), Some(&5), "it stays as it was");
    let thrown = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        array.remove_if_unused(1, &entry, |_| panic!("in the predicate"))
    }));
    assert!(thrown.is_err());
    assert_eq!(array.get(1).as_deref(), Some(&5), "also after a panic, and is unlocked");
    assert!(array.remove_if_unused(1, &entry, |n| *n == 5));
    assert_eq!(array.get(1), None);
}

#[test]
fn exchanging_by_identity() {
    let array = XArray::new();
    let (a, b) = (Arc::new(1), Arc::new(1));
    assert_eq!(array.compare_exchange(70, None, Some(a.clone())), Ok(None));
    let Err(ExchangeError::Mismatch(no)) = array.compare_exchange(70, Some(&b), Some(b.clone()))
    else {
        panic!("an equal one is not the same");
    };
    assert!(Arc::ptr_eq(&no.current.expect("a"), &a) && Arc::ptr_eq(&no.new.expect("b"), &b));
    assert!(array.compare_exchange(70, None, Some(b.clone())).is_err());
    assert!(array.compare_exchange(1 << 30, Some(&a), None).is_err());
    assert_eq!(array.compare_exchange(70, Some(&a), Some(b.clone())), Ok(Some(a)));
    assert_eq!(array.compare_exchange(70, Some(&b), None), Ok(Some(b)));
    assert_eq!(array.memory_bytes(), 0);
}

#[test]
fn removal_during_iteration() {
    let array = XArray::new();
    for index in 0..300 {
        array.insert(index * 3, value(index as usize)).expect("memory");
    }
    let mut met = 0;
    for (index, entry) in &array {
        assert_eq!(array.remove(index), Some(entry));
        array.remove(index + 3);
        met += 1;
    }
    assert_eq!((met, array.memory_bytes()), (150, 0));
}

#[test]
fn reservations_are_not_seen_and_are_given_back() {
    let array = XArray::new();
    let (place, again) = (array.reserve(66).expect("memory"), array.reserve(66).expect("memory"));
    assert!(array.is_empty() && array.get(66).is_none() && !array.set_mark(66, Mark::A));
    assert_eq!(array.alloc(66.., value(1)), Ok(67));
    drop(place);
    assert_eq!(array.remove(67), Some(value(1)));
    assert!(array.memory_bytes() > 0, "another reservation needs the leaf");
    assert_eq!(array.insert(66, value(2)), Ok(None), "by index it is possible");
    assert_eq!(array.remove(66), Some(value(2)));
    assert_eq!(again.index(), 66);
    assert_eq!(again.store(value(3)), None);
    assert_eq!(array.reserve(66).expect("memory").get_or_store(value(4)), value(3));
    assert_eq!(array.remove(66), Some(value(3)));
    assert_eq!(array.memory_bytes(), 0);
    drop(array.reserve(u64::MAX).expect("memory"));
    assert_eq!(array.memory_bytes(), 0);
}

#[test]
fn the_lowest_free_index() {
    let array = XArray::new();
    for expected in 0..5000 {
        assert_eq!(array.alloc(.., value(1)), Ok(expected));
    }
    for gap in [4999, 4096, 64, 63] {
        array.remove(gap);
        assert_eq!(array.alloc(10.., value(2)), Ok(gap));
    }
    assert_eq!(array.alloc(10..20, value(1)), Err(IndexError::Full));
    assert_eq!(array.alloc(20..20, value(1)), Err(IndexError::Full));
    assert_eq!(array.alloc(u64::MAX - 1.., value(1)), Ok(u64::MAX - 1));
    assert_eq!(array.alloc(u64::MAX - 1.., value(1)), Ok(u64::MAX));
    assert_eq!(array.alloc(u64::MAX - 1.., value(1)), Err(IndexError::Full));
}

#[test]
fn prints_as_a_map() {
    let array = XArray::new();
    array.insert(3, value(4)).expect("memory");
    assert_eq!(format!("{array:?}"), "{3: Value(4)}");
}
