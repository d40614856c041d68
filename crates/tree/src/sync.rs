//! The locks and atomics of this crate, in one place, so that its unit tests can replace them by
//! those of a model checker: under `cfg(test)` every lock, atomic and published array is a point at
//! which the scheduler of `shuttle` may go on with another thread. The integration tests, and
//! everybody else, get the real ones.

#[cfg(not(test))]
pub(crate) use arc_swap::ArcSwapOption;
#[cfg(not(test))]
pub(crate) use parking_lot::{Mutex, RwLock, RwLockWriteGuard};
#[cfg(not(test))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

#[cfg(test)]
pub(crate) use checked::*;

/// The same interfaces on top of `shuttle`.
#[cfg(test)]
mod checked {
    use shuttle::sync as inner;
    pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
    pub(crate) use shuttle::sync::{MutexGuard, RwLockReadGuard, RwLockWriteGuard};
    use std::sync::Arc;

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

    /// As `arc_swap`'s, by a lock that nobody holds across a step of theirs.
    pub(crate) struct ArcSwapOption<T>(Mutex<Option<Arc<T>>>);

    impl<T> ArcSwapOption<T> {
        pub fn empty() -> Self {
            ArcSwapOption(Mutex::new(None))
        }
        pub fn load(&self) -> Option<Arc<T>> {
            self.0.lock().clone()
        }
        pub fn load_full(&self) -> Option<Arc<T>> {
            self.load()
        }
        pub fn swap(&self, value: Option<Arc<T>>) -> Option<Arc<T>> {
            std::mem::replace(&mut *self.0.lock(), value)
        }
        pub fn store(&self, value: Option<Arc<T>>) {
            drop(self.swap(value));
        }
    }
}
