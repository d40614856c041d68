//! The locks and atomics of this crate: those of `shoal_base::sync`, which its unit tests replace
//! by those of a model checker, so that every lock, atomic and published array is a point at which
//! the scheduler of `shuttle` may go on with another thread. The integration tests get what
//! everybody else gets.

#[cfg(not(test))]
use shoal_base::sync as chosen;
#[cfg(test)]
use shoal_base::sync::checked as chosen;

#[cfg(not(any(test, shoal_shuttle)))]
pub(crate) use arc_swap::ArcSwapOption;
pub(crate) use chosen::{
    AtomicBool, AtomicU64, AtomicUsize, Mutex, RwLock, RwLockWriteGuard, crew,
};
#[cfg(any(test, shoal_shuttle))]
pub(crate) use published::{ArcSwapOption, Loan, loan_of};
pub(crate) use std::sync::atomic::Ordering;

/// What `ArcSwapOption::load` returns: a version that stays in memory as long as this does, without
/// a count as a rule.
#[cfg(not(any(test, shoal_shuttle)))]
pub(crate) type Loan<T> = arc_swap::Guard<Option<std::sync::Arc<T>>>;

/// A counted reference as a loan.
#[cfg(not(any(test, shoal_shuttle)))]
pub(crate) fn loan_of<T>(version: Option<std::sync::Arc<T>>) -> Loan<T> {
    arc_swap::Guard::from_inner(version)
}

/// As `arc_swap`'s, by a lock that nobody holds across a step of theirs.
#[cfg(any(test, shoal_shuttle))]
mod published {
    use super::chosen::Brief;
    use std::sync::Arc;

    pub(crate) type Loan<T> = Option<Arc<T>>;

    pub(crate) fn loan_of<T>(version: Option<Arc<T>>) -> Loan<T> {
        version
    }

    pub(crate) struct ArcSwapOption<T>(Brief<Option<Arc<T>>>);

    impl<T> ArcSwapOption<T> {
        pub fn empty() -> Self {
            ArcSwapOption(Brief::new(None))
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
