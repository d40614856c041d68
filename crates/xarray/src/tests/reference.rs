//! Any sequence of calls has the same effect on the array and on a `BTreeMap`.

use crate::{Mark, Reservation, XArray};
use proptest::prelude::*;
use shoal_skip::property;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Entry and marks.
type Reference = BTreeMap<u64, (Arc<u32>, BTreeSet<Mark>)>;

#[derive(Clone, Debug)]
enum Op {
    Insert(u64, u32),
    GetOrInsert(u64, u32),
    Remove(u64),
    RemoveIf(u64, bool),
    RemoveUnused(u64, bool),
    Exchange(u64, bool, Option<u32>),
    SetMark(u64, Mark),
    ClearMark(u64, Mark),
    Reserve(u64),
    ReserveFree(u64, u64),
    Store(usize, u32),
    GiveBack(usize),
    Alloc(u64, u64, u32),
    Range(u64, u64),
}

/// Dense indexes, so that leaves fill and marks meet; and some at the ends of every level.
fn index() -> impl Strategy<Value = u64> {
    prop_oneof![
        8 => 0u64..200,
        2 => 4000u64..4200,
        1 => any::<u64>(),
        1 => (0u32..64, any::<bool>()).prop_map(|(bit, below)| (1 << bit) - u64::from(below)),
        1 => u64::MAX - 70..=u64::MAX,
    ]
}

fn mark() -> impl Strategy<Value = Mark> {
    prop::sample::select(&Mark::ALL[..])
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (index(), any::<u32>()).prop_map(|(i, v)| Op::Insert(i, v)),
        2 => (index(), any::<u32>()).prop_map(|(i, v)| Op::GetOrInsert(i, v)),
        4 => index().prop_map(Op::Remove),
        1 => (index(), any::<bool>()).prop_map(|(i, same)| Op::RemoveIf(i, same)),
        1 => (index(), any::<bool>()).prop_map(|(i, used)| Op::RemoveUnused(i, used)),
        2 => (index(), any::<bool>(), any::<Option<u32>>())
            .prop_map(|(i, same, new)| Op::Exchange(i, same, new)),
        4 => (index(), mark()).prop_map(|(i, m)| Op::SetMark(i, m)),
        2 => (index(), mark()).prop_map(|(i, m)| Op::ClearMark(i, m)),
        2 => index().prop_map(Op::Reserve),
        1 => (index(), 0u64..100).prop_map(|(i, n)| Op::ReserveFree(i, n)),
        2 => (any::<usize>(), any::<u32>()).prop_map(|(n, v)| Op::Store(n, v)),
        1 => any::<usize>().prop_map(Op::GiveBack),
        4 => (index(), 0u64..100, any::<u32>()).prop_map(|(i, n, v)| Op::Alloc(i, n, v)),
        1 => (index(), index()).prop_map(|(a, b)| Op::Range(a.min(b), a.max(b))),
    ]
}

struct Both<'a> {
    array: &'a XArray<Arc<u32>>,
    map: Reference,
    /// Reservations, each with `true` if `alloc` must not return its index.
    reserved: Vec<(Reservation<'a, Arc<u32>>, bool)>,
}

impl Both<'_> {
    fn free(&self, from: u64, len: u64) -> Option<u64> {
        (from..=from.saturating_add(len)).find(|i| {
            let reserved = self.reserved.iter().any(|(r, owner)| *owner && r.index() == *i);
            !reserved && !self.map.contains_key(i)
        })
    }

    fn put(&mut self, index: u64, entry: Arc<u32>) -> Option<Arc<u32>> {
        match self.map.get_mut(&index) {
            Some(here) => Some(std::mem::replace(&mut here.0, entry)),
            None => {
                self.map.insert(index, (entry, BTreeSet::new()));
                None
            }
        }
    }

    fn current(&self, index: u64) -> Option<Arc<u32>> {
        self.map.get(&index).map(|here| here.0.clone())
    }

    fn entries(&mut self, op: Op) {
        let array = self.array;
        match op {
            Op::Insert(i, v) => {
                let entry = Arc::new(v);
                let before = self.put(i, entry.clone());
                assert_eq!(array.insert(i, entry).expect("memory"), before);
            }
            Op::GetOrInsert(i, v) => {
                let entry = Arc::new(v);
                let here = array.get_or_insert_with(i, || entry.clone()).expect("memory");
                if let Some(current) = self.current(i) {
                    assert!(Arc::ptr_eq(&here, &current));
                } else {
                    self.put(i, entry);
                }
            }
            Op::Remove(i) => {
                assert_eq!(array.remove(i), self.map.remove(&i).map(|here| here.0));
            }
            Op::RemoveIf(i, same) => {
                let other = self.current(i).filter(|_| same);
                let expected = other.is_some();
                assert_eq!(array.remove_if(i, &other.unwrap_or_default()), expected);
                if expected {
                    self.map.remove(&i);
                }
            }
            Op::RemoveUnused(i, used) => {
                let entry = self.current(i).unwrap_or_default();
                let user = used.then(|| entry.clone());
                // The reference model holds it as well.
                assert!(!array.remove_if_unused(i, &entry, |_| true));
                drop(user);
                if let Some((mine, marks)) = self.map.remove(&i) {
                    drop(mine);
                    let removed = array.remove_if_unused(i, &entry, |v| *v == *entry);
                    if !removed {
                        // It was in the array before, and that reference is not dropped yet.
                        self.map.insert(i, (entry, marks));
                    }
                }
            }
            Op::Exchange(i, same, new) => {
                let current = self.current(i);
                let told = if same { current.clone() } else { Some(Arc::new(0)) };
                let new = new.map(Arc::new);
                let result = array.compare_exchange(i, told.as_ref(), new.clone());
                assert_eq!(result.is_ok(), same);
                if same {
                    match new {
                        Some(new) => drop(self.put(i, new)),
                        None => drop(self.map.remove(&i)),
                    }
                }
            }
            other => self.marks_and_places(other),
        }
    }

    fn marks_and_places(&mut self, op: Op) {
        let array = self.array;
        match op {
            Op::SetMark(i, m) => {
                let here = self.map.get_mut(&i).map(|here| here.1.insert(m));
                assert_eq!(array.set_mark(i, m), here.is_some());
            }
            Op::ClearMark(i, m) => {
                let had = self.map.get_mut(&i).is_some_and(|here| here.1.remove(&m));
                assert_eq!(array.clear_mark(i, m), had);
            }
            Op::Reserve(i) => {
                let owner = !self.reserved.iter().any(|(r, owner)| *owner && r.index() == i);
                self.reserved.push((array.reserve(i).expect("memory"), owner));
            }
            Op::ReserveFree(i, n) => {
                let expected = self.free(i, n);
                let place = array.reserve_free(i..=i.saturating_add(n)).ok();
                assert_eq!(place.as_ref().map(Reservation::index), expected);
                self.reserved.extend(place.map(|place| (place, true)));
            }
            Op::Store(n, v) if !self.reserved.is_empty() => {
                let (place, _) = self.reserved.swap_remove(n % self.reserved.len());
                let entry = Arc::new(v);
                let before = self.put(place.index(), entry.clone());
                assert_eq!(place.store(entry), before);
            }
            Op::GiveBack(n) if !self.reserved.is_empty() => {
                drop(self.reserved.swap_remove(n % self.reserved.len()));
            }
            Op::Alloc(i, n, v) => {
                let (expected, entry) = (self.free(i, n), Arc::new(v));
                let got = array.alloc(i..=i.saturating_add(n), entry.clone()).ok();
                assert_eq!(got, expected);
                if let Some(i) = got {
                    self.put(i, entry);
                }
            }
            Op::Range(from, to) => {
                let expected = self.map.range(from..=to).map(|(i, here)| (*i, *here.0));
                assert!(array.range(from..=to).map(|(i, v)| (i, *v)).eq(expected.clone()));
                assert!(array.pin().range(from..=to).map(|(i, v)| (i, *v)).eq(expected));
            }
            _ => {}
        }
    }

    fn compare(&self) {
        let entries = || self.map.iter().map(|(i, here)| (*i, here.0.clone()));
        assert!(self.array.iter().eq(entries()));
        for mark in Mark::ALL {
            let marked: Vec<u64> =
                self.map.iter().filter(|(_, here)| here.1.contains(&mark)).map(|e| *e.0).collect();
            assert!(self.array.range_marked(.., mark).map(|(i, _)| i).eq(marked.iter().copied()));
            let guard = self.array.pin();
            assert!(guard.range_marked(.., mark).map(|(i, _)| i).eq(marked.iter().copied()));
        }
        for (i, entry) in entries() {
            assert!(Arc::ptr_eq(&self.array.get(i).expect("an entry"), &entry));
            assert_eq!(self.array.pin().get(i), Some(&*entry));
        }
    }
}

/// Largest number of calls in a sequence.
const OPS: usize = if cfg!(miri) { 60 } else { 400 };

proptest! {
    #![proptest_config(property(if cfg!(miri) { 4 } else { 128 }))]

    #[test]
    fn does_what_a_btreemap_does(ops in prop::collection::vec(op(), 1..OPS)) {
        let array = XArray::new();
        let mut both = Both { array: &array, map: BTreeMap::new(), reserved: Vec::new() };
        for op in ops {
            both.entries(op);
        }
        both.compare();
        both.reserved.clear();
        both.compare();
        for (i, (entry, _)) in std::mem::take(&mut both.map) {
            prop_assert!(array.remove_if(i, &entry));
        }
        prop_assert_eq!(array.memory_bytes(), 0, "nodes that are left over");
    }
}
