//! The locks and atomics of this crate: those of `shoal_base::sync`. Unit tests replace them by
//! those of a model checker, so that the scheduler of `shuttle` may switch threads at every lock,
//! atomic and published array. Integration tests use the production versions.

#[cfg(not(test))]
use shoal_base::sync as chosen;
#[cfg(test)]
use shoal_base::sync::checked as chosen;

#[cfg(not(any(test, feature = "scheduled")))]
pub(crate) use arc_swap::ArcSwapOption;
pub(crate) use chosen::{
    AtomicBool, AtomicU64, AtomicUsize, Mutex, RwLock, RwLockWriteGuard, crew,
};
#[cfg(any(test, feature = "scheduled"))]
pub(crate) use published::{ArcSwapOption, Loan, loan_of};
pub(crate) use std::sync::atomic::Ordering;

/// The result of `ArcSwapOption::load`: a version that stays in memory while this exists, usually
/// without a reference count.
#[cfg(not(any(test, feature = "scheduled")))]
pub(crate) type Loan<T> = arc_swap::Guard<Option<std::sync::Arc<T>>>;

/// Makes a loan from a counted reference.
#[cfg(not(any(test, feature = "scheduled")))]
pub(crate) fn loan_of<T>(version: Option<std::sync::Arc<T>>) -> Loan<T> {
    arc_swap::Guard::from_inner(version)
}

/// As `arc_swap`'s, with a lock that is never held across a possible thread switch.
#[cfg(any(test, feature = "scheduled"))]
mod published {
    use super::chosen::Brief;
    use std::sync::Arc;

    pub(crate) type Loan<T> = Option<Arc<T>>;

    pub(crate) fn loan_of<T>(version: Option<Arc<T>>) -> Loan<T> {
        version
    }

    pub(crate) struct ArcSwapOption<T>(Brief<Option<Arc<T>>>);

    impl<T> ArcSwapOption<T> {
        pub(crate) fn empty() -> Self {
            ArcSwapOption(Brief::new(None))
        }
        pub(crate) fn load(&self) -> Option<Arc<T>> {
            self.0.lock().clone()
        }
        pub(crate) fn load_full(&self) -> Option<Arc<T>> {
            self.load()
        }
        pub(crate) fn swap(&self, value: Option<Arc<T>>) -> Option<Arc<T>> {
            std::mem::replace(&mut *self.0.lock(), value)
        }
        pub(crate) fn store(&self, value: Option<Arc<T>>) {
            drop(self.swap(value));
        }
    }
}
