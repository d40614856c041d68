//! Allocation failure at every step: the call reports it and nothing has changed.

use crate::{AllocError, ExchangeError, IndexError, Mark, Value, XArray, fail};

fn value(number: usize) -> Value {
    Value::new(number).expect("small")
}

/// A tree whose root must be raised, with a branch that ends early, and a full leaf.
fn prepared() -> XArray<Value> {
    let array = XArray::new();
    for index in (0..64).chain([300_000]) {
        array.insert(index, value(1)).expect("memory");
        array.set_mark(index, Mark::B);
    }
    array
}

fn content(array: &XArray<Value>) -> (Vec<(u64, Value)>, usize, usize) {
    let marked = array.range_marked(.., Mark::B).count();
    (array.iter().collect(), marked, array.memory_bytes())
}

/// Repeats the call with ever more nodes available until it succeeds. Returns the number of nodes.
fn until_it_works(call: impl Fn(&XArray<Value>) -> Result<(), AllocError>) -> u64 {
    for nodes in 0.. {
        let array = prepared();
        let before = content(&array);
        fail::after(Some(nodes));
        let result = call(&array);
        fail::after(None);
        if result.is_ok() {
            return nodes;
        }
        assert_eq!(content(&array), before, "with {nodes} nodes");
        assert_eq!(call(&array), Ok(()), "memory is back");
    }
    unreachable!()
}

#[test]
fn insertion_changes_nothing_at_any_step() {
    let insert = |index| until_it_works(|array| array.insert(index, value(2)).map(drop));
    assert_eq!(insert(0), 0, "the leaf is there");
    assert_eq!(insert(64), 1, "a leaf");
    assert_eq!(insert(100_000), 2, "a leaf and one above");
    // Seven nodes up from the fourth level, ten down again.
    assert_eq!(insert(u64::MAX), 17);
    assert_eq!(until_it_works(|array| array.get_or_insert(1 << 40, value(2)).map(drop)), 9);
}

#[test]
fn every_other_call_that_needs_memory() {
    let far = 1 << 40;
    let exchange = |array: &XArray<Value>| match array.compare_exchange(far, None, Some(value(2))) {
        Ok(_) => Ok(()),
        Err(ExchangeError::Alloc(error)) => Err(error),
        Err(ExchangeError::Mismatch(_)) => panic!("it is empty"),
    };
    assert_eq!(until_it_works(exchange), 9);
    let alloc = |array: &XArray<Value>| match array.alloc(far.., value(2)) {
        Ok(index) => {
            assert_eq!(index, far);
            Ok(())
        }
        Err(IndexError::Alloc(error)) => Err(error),
        Err(IndexError::Full) => panic!("it is not full"),
    };
    assert_eq!(until_it_works(alloc), 9);
    assert_eq!(until_it_works(|array| array.reserve(far).map(drop)), 9);
}

#[test]
fn a_reserved_slot_needs_no_memory() {
    let array = prepared();
    let before = content(&array);
    let places = [u64::MAX, 64, 1 << 33].map(|index| array.reserve(index).expect("memory"));
    fail::after(Some(0));
    for place in places {
        let index = place.index();
        assert_eq!(place.store(value(9)), None);
        assert_eq!(array.remove(index), Some(value(9)));
    }
    assert_eq!(array.insert(64, value(9)), Err(AllocError));
    fail::after(None);
    assert_eq!(content(&array), before);
}

#[test]
fn everything_else_works_without_memory() {
    let array = prepared();
    fail::after(Some(0));
    assert!(array.get(1 << 50).is_none() && array.remove(1 << 50).is_none());
    assert!(!array.set_mark(1 << 50, Mark::A) && array.set_mark(3, Mark::A));
    assert!(array.clear_mark(3, Mark::A));
    let none = array.compare_exchange(1 << 50, None, None);
    assert_eq!(none, Ok(None));
    for index in (0..64).chain([300_000]) {
        assert_eq!(array.remove(index), Some(value(1)));
    }
    fail::after(None);
    assert_eq!(array.memory_bytes(), 0);
}
