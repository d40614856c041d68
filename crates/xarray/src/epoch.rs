//! Deferred freeing of memory that a lock-free reader may still look at.
//!
//! Epoch-based reclamation (Keir Fraser, "Practical lock-freedom", 2004) as in `crossbeam-epoch`. A
//! reader announces itself by *pinning*: a store to a word of its own thread. Retired memory is not
//! freed while any thread is pinned that could have seen it.
//!
//! Retiring may run destructors of anything retired earlier, in this or other arrays. Never retire
//! while a node's lock is held.

use std::marker::PhantomData;

/// The collector of an array's garbage: the process-wide one.
#[derive(Default)]
pub(crate) struct Domain {
    #[cfg(feature = "loom")]
    garbage: Garbage,
}

/// A pin. Nothing reachable through it is freed while it lives.
pub(crate) struct Pin<'a> {
    #[cfg(not(feature = "loom"))]
    epoch: crossbeam_epoch::Guard,
    #[cfg(feature = "loom")]
    garbage: &'a Garbage,
    array: PhantomData<&'a ()>,
}

/// The model has no epochs: garbage stays until the array is dropped.
#[cfg(feature = "loom")]
type Garbage = std::sync::Mutex<Vec<Box<dyn FnOnce() + Send>>>;

#[cfg(not(feature = "loom"))]
impl Domain {
    #[inline]
    pub(crate) fn pin(&self) -> Pin<'_> {
        Pin { epoch: crossbeam_epoch::pin(), array: PhantomData }
    }
}

#[cfg(not(feature = "loom"))]
impl Pin<'_> {
    /// Runs `free` when no thread can look any more at the memory that it frees.
    ///
    /// # Safety
    ///
    /// `free` may run on another thread, at any time after all threads that are pinned now are
    /// unpinned. Threads that pin later must not be able to reach the memory that it frees.
    #[inline]
    pub(crate) unsafe fn defer(&self, free: impl FnOnce() + Send + 'static) {
        // SAFETY: our caller's promise; the types demand `Send` and `'static`.
        unsafe { self.epoch.defer_unchecked(free) }
    }

    /// Lets the collector free what this thread could see so far.
    pub(crate) fn repin(&mut self) {
        self.epoch.repin();
    }
}

#[cfg(feature = "loom")]
impl Domain {
    pub(crate) fn pin(&self) -> Pin<'_> {
        Pin { garbage: &self.garbage, array: PhantomData }
    }
}

#[cfg(feature = "loom")]
impl Pin<'_> {
    /// Runs `free` when no thread can look any more at the memory that it frees.
    ///
    /// # Safety
    ///
    /// As without the model.
    pub(crate) unsafe fn defer(&self, free: impl FnOnce() + Send + 'static) {
        self.garbage.lock().expect("no thread panics with it").push(Box::new(free));
    }

    /// Does nothing in the model.
    pub(crate) fn repin(&mut self) {}
}

#[cfg(feature = "loom")]
impl Drop for Domain {
    fn drop(&mut self) {
        for free in self.garbage.get_mut().expect("no thread panics with it").drain(..) {
            free();
        }
    }
}
