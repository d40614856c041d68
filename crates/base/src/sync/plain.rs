//! The real ones.

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
