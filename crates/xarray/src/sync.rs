//! Atomics, fences and the lock of a node, or their models under the model checker.
//!
//! A node's lock does not guard data in Rust's sense: every field of a node is atomic, because
//! readers access it without the lock. The lock decides which thread may *write*.

#[cfg(feature = "loom")]
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(feature = "loom"))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};

pub(crate) use lock::{Lock, LockGuard};

#[cfg(not(feature = "loom"))]
mod lock {
    use super::{AtomicU32, Ordering};

    /// Spins before the thread yields its processor.
    const SPINS: u32 = 64;

    /// A spin lock, held for about ten instructions, so that waiting in the kernel would cost more
    /// than it saves. A waiter yields, because the holder may have lost its processor.
    #[derive(Default)]
    pub(crate) struct Lock(AtomicU32);

    /// Unlocks when dropped.
    pub(crate) struct LockGuard<'a>(&'a Lock);

    impl Lock {
        #[inline]
        pub(crate) fn lock(&self) -> LockGuard<'_> {
            if self.0.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
                self.wait();
            }
            LockGuard(self)
        }

        #[cold]
        fn wait(&self) {
            let mut spins = 0;
            loop {
                let free = self.0.load(Ordering::Relaxed) == 0;
                if free && self.0.swap(1, Ordering::Acquire) == 0 {
                    return;
                }
                spins += 1;
                if spins < SPINS {
                    std::hint::spin_loop();
                } else {
                    std::thread::yield_now();
                }
            }
        }
    }

    impl Drop for LockGuard<'_> {
        #[inline]
        fn drop(&mut self) {
            self.0.0.store(0, Ordering::Release);
        }
    }
}

#[cfg(feature = "loom")]
mod lock {
    /// The model's own lock, so that it does not explore every turn of a spinning loop.
    #[derive(Default)]
    pub(crate) struct Lock(loom::sync::Mutex<()>);

    /// Unlocks when dropped.
    pub(crate) struct LockGuard<'a>(#[expect(dead_code)] loom::sync::MutexGuard<'a, ()>);

    impl Lock {
        pub(crate) fn lock(&self) -> LockGuard<'_> {
            LockGuard(self.0.lock().expect("no thread panics with it"))
        }
    }
}
