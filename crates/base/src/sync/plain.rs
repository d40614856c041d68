//! The real ones.

#[allow(clippy::duplicate_mod, reason = "its locks are those of the module it is part of")]
#[path = "crew.rs"]
pub mod crew;

pub use crate::shard::shard;
pub use parking_lot::{
    Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, WaitTimeoutResult,
};
pub use std::hint;
pub use std::sync::atomic::{
    AtomicBool, AtomicI64, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, fence,
};
pub use std::thread;
pub use std::time::Instant;

/// Number of shards of every sharded structure (a power of two).
pub const SHARDS: usize = 64;

/// Processors that this process may use.
fn available_parallelism() -> usize {
    static KNOWN: std::sync::OnceLock<usize> = std::sync::OnceLock::new();
    *KNOWN.get_or_init(|| thread::available_parallelism().map_or(1, usize::from))
}

/// Starts a thread in a scope. A machine that has no thread left does the work with fewer.
fn spawn_in<'scope>(scope: &'scope thread::Scope<'scope, '_>, work: impl FnOnce() + Send + 'scope) {
    let _ = thread::Builder::new().name("shoal-crew".into()).spawn_scoped(scope, work);
}

/// Something with locks of its own, a call of which is one step.
pub type Step<T> = T;
/// A lock that is never held from one step to the next.
pub type Brief<T> = Mutex<T>;

/// The same, from what it is about.
#[inline(always)]
pub fn step<T>(inner: T) -> Step<T> {
    inner
}

/// Runs `f`, which uses things of this module while a lock is held that the scheduler does not
/// know.
#[inline(always)]
pub fn atomically<R>(f: impl FnOnce() -> R) -> R {
    f()
}
