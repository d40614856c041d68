//! Promised bytes: space that preallocated extents will need when they are written.

use shoal_base::sync::{AtomicI64, AtomicU64};
use std::sync::atomic::Ordering;

/// Bytes promised to preallocated extents, and bytes reserved for calls that are about to promise
/// them, step by step. No other call may use either.
pub struct Promises {
    promised: AtomicI64,
    reserved: AtomicU64,
}

impl Promises {
    /// Makes the counts of a volume in which `bytes` are promised.
    pub(crate) fn of(bytes: u64) -> Promises {
        Promises { promised: AtomicI64::new(bytes as i64), reserved: AtomicU64::new(0) }
    }
    /// Promises bytes to an extent.
    #[inline]
    pub(crate) fn promise(&self, bytes: u32) {
        self.promised.fetch_add(i64::from(bytes), Ordering::Relaxed);
    }
    /// Ends a promise: the extent has been written or freed.
    #[inline]
    pub(crate) fn fulfil(&self, bytes: u32) {
        self.promised.fetch_sub(i64::from(bytes), Ordering::Relaxed);
    }
    /// Reserves bytes for a call that will promise them.
    pub fn reserve(&self, bytes: u64) {
        self.reserved.fetch_add(bytes, Ordering::Relaxed);
    }
    /// Releases bytes that were reserved, because they are promised now, or not needed.
    pub fn release(&self, bytes: u64) {
        self.reserved.fetch_sub(bytes, Ordering::Relaxed);
    }
    /// Bytes promised.
    #[inline]
    pub fn bytes(&self) -> u64 {
        self.counted().max(0) as u64
    }
    /// Bytes promised, as counted: negative only if the count is wrong, which a check reports.
    #[inline]
    pub fn counted(&self) -> i64 {
        self.promised.load(Ordering::Relaxed)
    }
    /// Bytes promised or reserved.
    #[inline]
    pub(crate) fn with_reserved(&self) -> u64 {
        self.bytes() + self.reserved.load(Ordering::Relaxed)
    }
    /// Sets the bytes promised, which a repair has counted.
    pub fn set(&self, bytes: u64) {
        self.promised.store(bytes as i64, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_bytes_count_beside_promised_ones() {
        let promises = Promises::of(100);
        promises.reserve(50);
        promises.promise(20);
        promises.release(20);
        assert_eq!((promises.bytes(), promises.with_reserved()), (120, 150));
        promises.fulfil(120);
        assert_eq!((promises.bytes(), promises.with_reserved()), (0, 30));
    }

    /// A wrong count must not look like free space, and a check must see it.
    #[test]
    fn a_count_below_zero_promises_nothing() {
        let promises = Promises::of(10);
        promises.fulfil(30);
        promises.reserve(5);
        assert_eq!((promises.bytes(), promises.with_reserved()), (0, 5));
        assert_eq!(promises.counted(), -20);
        promises.set(7);
        assert_eq!((promises.bytes(), promises.counted()), (7, 7));
    }
}
