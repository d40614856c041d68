//! The production versions: `parking_lot` and the standard library.

#[allow(clippy::duplicate_mod, reason = "its locks are those of the module it is part of")]
#[path = "crew.rs"]
pub mod crew;

pub use super::idle::{Condvar as IdleCondvar, Mutex as IdleMutex};
pub use parking_lot::{
    Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, WaitTimeoutResult,
};
pub use std::hint;
pub use std::sync::atomic::{
    AtomicBool, AtomicI64, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, fence,
};
pub use std::thread;
pub use std::time::Instant;

use std::cell::Cell;
use std::sync::atomic::Ordering;

/// Number of shards of every sharded structure (a power of two).
pub const SHARDS: usize = 64;

static NEXT_SHARD: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static SHARD: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// Returns the calling thread's shard, in `0..SHARDS`. It never changes during the thread's life.
#[inline]
pub fn shard() -> usize {
    SHARD.with(|cell| {
        let known = cell.get();
        if known != usize::MAX {
            return known;
        }
        let fresh = NEXT_SHARD.fetch_add(1, Ordering::Relaxed) % SHARDS;
        cell.set(fresh);
        fresh
    })
}

/// Gives the calling thread a shard. For simulations: a run must not depend on how many threads
/// the process has had before.
pub fn set_shard(shard: usize) {
    SHARD.set(shard % SHARDS);
}

/// Number of processors that this process may use.
fn available_parallelism() -> usize {
    static KNOWN: std::sync::OnceLock<usize> = std::sync::OnceLock::new();
    *KNOWN.get_or_init(|| thread::available_parallelism().map_or(1, usize::from))
}

/// Starts a thread in a scope. If no thread can be started, fewer threads do the work.
fn spawn_in<'scope>(scope: &'scope thread::Scope<'scope, '_>, work: impl FnOnce() + Send + 'scope) {
    let work = move || {
        // A part of the call that has started it.
        let _apart = crate::sample::apart();
        work();
    };
    let _ = thread::Builder::new().name("shoal-crew".into()).spawn_scoped(scope, work);
}

/// An object with its own locks, each call of which is one step for the scheduler.
pub type Step<T> = T;
/// A lock that is never held across a possible thread switch.
pub type Brief<T> = Mutex<T>;

/// Wraps `inner`.
#[inline(always)]
pub fn step<T>(inner: T) -> Step<T> {
    inner
}

/// Runs `f` without thread switches (under the scheduler; here it only calls `f`). For code that
/// uses this module while it holds a lock unknown to the scheduler.
#[inline(always)]
pub fn atomically<R>(f: impl FnOnce() -> R) -> R {
    f()
}
