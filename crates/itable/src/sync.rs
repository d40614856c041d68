//! The locks and atomics of this crate: those of `shoal_base::sync`. Unit tests replace them by
//! those of a model checker, so that the scheduler of `shuttle` may switch threads at every lock
//! and at every use of an atomic, of the array of blocks and of the `imap` tree.
//!
//! The array keeps its own locks and atomics, which its crate models; a call of it is one step
//! here.

#[cfg(not(test))]
use shoal_base::sync as chosen;
#[cfg(test)]
use shoal_base::sync::checked as chosen;

#[cfg(test)]
pub(crate) use crate::tests::noted::{
    AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Mutex, RwLock,
};
#[cfg(not(test))]
pub(crate) use chosen::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Mutex, RwLock};
pub(crate) use chosen::{
    Brief, RwLockReadGuard, RwLockWriteGuard, SHARDS, Step, atomically, crew, hint, shard, step,
};
