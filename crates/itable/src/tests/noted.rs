//! Locks and atomics that record which shard writes their cache line, for tests that count shared
//! lines. Taking a lock writes its line, also for reading.

use shoal_base::sync::checked as inner;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;

/// Cache line → shards.
type Writers = BTreeMap<usize, BTreeSet<usize>>;

thread_local! {
    // All threads of a run are one thread of the system.
    static WRITERS: RefCell<Option<Writers>> = const { RefCell::new(None) };
}

fn note<T>(word: &T) {
    WRITERS.with_borrow_mut(|writers| {
        if let Some(writers) = writers {
            let line = std::ptr::from_ref(word) as usize / 64;
            writers.entry(line).or_default().insert(inner::shard());
        }
    });
}

/// Records writes from here on.
pub(super) fn start() {
    WRITERS.set(Some(BTreeMap::new()));
}

/// Returns the lines written since [`start`], with the shards that wrote each.
pub(super) fn stop() -> Writers {
    WRITERS.take().unwrap_or_default()
}

macro_rules! atomics {
    ($($name:ident $value:ty: $($change:ident -> $result:ty,)*;)*) => {
        $(
            #[derive(Default)]
            pub(crate) struct $name(inner::$name);

            impl $name {
                pub(crate) fn new(value: $value) -> $name {
                    $name(inner::$name::new(value))
                }
                pub(crate) fn load(&self, order: Ordering) -> $value {
                    self.0.load(order)
                }
                $(pub(crate) fn $change(&self, value: $value, order: Ordering) -> $result {
                    note(self);
                    self.0.$change(value, order)
                })*
            }
        )*
    };
}

atomics! {
    AtomicBool bool: store -> (), swap -> bool,;
    AtomicU8 u8: store -> (), fetch_or -> u8, fetch_and -> u8,;
    AtomicU32 u32: fetch_or -> u32, fetch_and -> u32, fetch_add -> u32, fetch_sub -> u32,;
    AtomicU64 u64: store -> (), swap -> u64, fetch_add -> u64, fetch_sub -> u64,
        fetch_max -> u64,;
    AtomicUsize usize: fetch_add -> usize, fetch_sub -> usize, swap -> usize,;
}

macro_rules! compared {
    ($($name:ident $value:ty,)*) => {$(
        impl $name {
            pub(crate) fn compare_exchange(
                &self,
                old: $value,
                new: $value,
                done: Ordering,
                failed: Ordering,
            ) -> Result<$value, $value> {
                note(self);
                self.0.compare_exchange(old, new, done, failed)
            }
        }
    )*};
}

compared! {
    AtomicU64 u64,
    AtomicUsize usize,
}

#[derive(Default)]
pub(crate) struct Mutex<T>(inner::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Mutex<T> {
        Mutex(inner::Mutex::new(value))
    }
    pub(crate) fn lock(&self) -> inner::MutexGuard<'_, T> {
        note(self);
        self.0.lock()
    }
    pub(crate) fn try_lock(&self) -> Option<inner::MutexGuard<'_, T>> {
        note(self);
        self.0.try_lock()
    }
}

#[derive(Default)]
pub(crate) struct RwLock<T>(inner::RwLock<T>);

impl<T> RwLock<T> {
    pub(crate) fn new(value: T) -> RwLock<T> {
        RwLock(inner::RwLock::new(value))
    }
    pub(crate) fn read(&self) -> inner::RwLockReadGuard<'_, T> {
        note(self);
        self.0.read()
    }
    pub(crate) fn try_read(&self) -> Option<inner::RwLockReadGuard<'_, T>> {
        note(self);
        self.0.try_read()
    }
    pub(crate) fn write(&self) -> inner::RwLockWriteGuard<'_, T> {
        note(self);
        self.0.write()
    }
    pub(crate) fn try_write(&self) -> Option<inner::RwLockWriteGuard<'_, T>> {
        note(self);
        self.0.try_write()
    }
}
