//! The locks and atomics of this crate, in one place, so that its unit tests can replace them by
//! those of a model checker: under `cfg(test)` every lock, and every use of an atomic, of the array
//! of blocks and of the `imap` tree is a point at which the scheduler of `shuttle` may go on with
//! another thread. Everybody else gets the real ones.
//!
//! The array and the tree keep their own locks and atomics, which their crates have models of: a
//! call of them is one step of these models.

#[cfg(not(test))]
pub(crate) use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
#[cfg(not(test))]
pub(crate) use shoal_base::shard::{SHARDS, shard};
#[cfg(not(test))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize};

/// Something with locks of its own, a call of which is one step.
#[cfg(not(test))]
pub(crate) type Step<T> = T;
/// A lock that is never held from one step to the next.
#[cfg(not(test))]
pub(crate) type Brief<T> = Mutex<T>;

/// The same, from what it is about.
#[cfg(not(test))]
pub(crate) fn step<T>(inner: T) -> Step<T> {
    inner
}

#[cfg(test)]
pub(crate) use checked::*;

/// The same interfaces on top of `shuttle`.
#[cfg(test)]
mod checked {
    use shoal_xarray::XArray;
    use shuttle::sync as inner;
    use shuttle::sync::atomic::AtomicBool as Turn;
    pub(crate) use shuttle::sync::{MutexGuard, RwLockReadGuard, RwLockWriteGuard};
    use std::cell::Cell;
    use std::ops::Deref;
    use std::sync::Arc;
    use std::sync::atomic::{self, Ordering};

    /// Two threads may meet in one.
    pub(crate) const SHARDS: usize = 2;

    pub(crate) fn shard() -> usize {
        usize::from(shuttle::current::me()) % SHARDS
    }

    pub(crate) type AtomicBool = Step<atomic::AtomicBool>;
    pub(crate) type AtomicU8 = Step<atomic::AtomicU8>;
    pub(crate) type AtomicU32 = Step<atomic::AtomicU32>;
    pub(crate) type AtomicU64 = Step<atomic::AtomicU64>;
    pub(crate) type AtomicUsize = Step<atomic::AtomicUsize>;
    pub(crate) type Brief<T> = Step<parking_lot::Mutex<T>>;

    thread_local! {
        // All threads of a model run in one thread of the system.
        /// A lock of the array is held: a thread that was let in now would wait for it for ever.
        static INSIDE: Cell<bool> = const { Cell::new(false) };
    }

    /// Something real, before each use of which another thread may go on.
    pub(crate) struct Step<T>(T, Turn);

    pub(crate) fn step<T>(inner: T) -> Step<T> {
        Step(inner, Turn::new(false))
    }

    impl<T> Step<T> {
        pub fn new<V>(value: V) -> Step<T>
        where
            T: From<V>,
        {
            step(T::from(value))
        }
    }

    impl<T> Deref for Step<T> {
        type Target = T;
        fn deref(&self) -> &T {
            if !INSIDE.get() {
                self.1.load(Ordering::SeqCst);
            }
            &self.0
        }
    }

    impl<T: Send + Sync + 'static> Step<XArray<Arc<T>>> {
        /// The array's, whose predicate runs under a lock of the array.
        pub fn remove_if_unused(
            &self,
            index: u64,
            entry: &Arc<T>,
            unused: impl FnOnce(&T) -> bool,
        ) -> bool {
            let array: &XArray<Arc<T>> = self;
            INSIDE.set(true);
            let gone = array.remove_if_unused(index, entry, unused);
            INSIDE.set(false);
            gone
        }
    }

    /// As `parking_lot`'s: never poisoned.
    #[derive(Default)]
    pub(crate) struct Mutex<T>(inner::Mutex<T>);

    impl<T> Mutex<T> {
        pub fn new(value: T) -> Mutex<T> {
            Mutex(inner::Mutex::new(value))
        }
        pub fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().expect("a thread of the model panicked")
        }
        pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            self.0.try_lock().ok()
        }
    }

    /// As `parking_lot`'s: never poisoned.
    pub(crate) struct RwLock<T>(inner::RwLock<T>);

    impl<T> RwLock<T> {
        pub fn new(value: T) -> RwLock<T> {
            RwLock(inner::RwLock::new(value))
        }
        pub fn read(&self) -> RwLockReadGuard<'_, T> {
            self.0.read().expect("a thread of the model panicked")
        }
        pub fn write(&self) -> RwLockWriteGuard<'_, T> {
            self.0.write().expect("a thread of the model panicked")
        }
        pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
            self.0.try_write().ok()
        }
    }
}
