//! When memory that a lock-free reader may still look at is given back.
//!
//! Epoch-based reclamation (Keir Fraser, "Practical lock-freedom", 2004) as `crossbeam-epoch` does
//! it: a reader announces itself by *pinning*, a store to a word of its own thread; what is retired
//! while anybody is pinned who could have seen it stays until they are gone.
//!
//! Retiring may run the destructors of whatever was retired earlier, here or in other arrays: never
//! do it with a node's lock held.

use std::marker::PhantomData;

/// Where an array's garbage goes: to the process-wide collector.
#[derive(Default)]
pub(crate) struct Domain {
    #[cfg(loom)]
    garbage: Garbage,
}

/// While it lives, nothing that could be reached through it is freed.
pub(crate) struct Pin<'a> {
    #[cfg(not(loom))]
    epoch: crossbeam_epoch::Guard,
    #[cfg(loom)]
    garbage: &'a Garbage,
    array: PhantomData<&'a ()>,
}

/// The model has no epochs: garbage stays until the array is dropped.
#[cfg(loom)]
type Garbage = std::sync::Mutex<Vec<Box<dyn FnOnce() + Send>>>;

#[cfg(not(loom))]
impl Domain {
    #[inline]
    pub fn pin(&self) -> Pin<'_> {
        Pin { epoch: crossbeam_epoch::pin(), array: PhantomData }
    }
}

#[cfg(not(loom))]
impl Pin<'_> {
    /// Runs `free` when nobody can look at what it frees any more.
    ///
    /// # Safety
    ///
    /// `free` may run on another thread, at any time after all threads that are pinned now are
    /// unpinned: what it frees must be out of reach of those that pin later.
    #[inline]
    pub unsafe fn defer(&self, free: impl FnOnce() + Send + 'static) {
        // SAFETY: as our caller promises; `Send` and `'static` are asked for by the type.
        unsafe { self.epoch.defer_unchecked(free) }
    }

    /// Lets the collector advance past what was seen so far.
    pub fn repin(&mut self) {
        self.epoch.repin();
    }
}

#[cfg(loom)]
impl Domain {
    pub fn pin(&self) -> Pin<'_> {
        Pin { garbage: &self.garbage, array: PhantomData }
    }
}

#[cfg(loom)]
impl Pin<'_> {
    /// Runs `free` when nobody can look at what it frees any more.
    ///
    /// # Safety
    ///
    /// As without the model.
    pub unsafe fn defer(&self, free: impl FnOnce() + Send + 'static) {
        self.garbage.lock().expect("no thread panics with it").push(Box::new(free));
    }

    /// Nothing to do in the model.
    pub fn repin(&mut self) {}
}

#[cfg(loom)]
impl Drop for Domain {
    fn drop(&mut self) {
        for free in self.garbage.get_mut().expect("no thread panics with it").drain(..) {
            free();
        }
    }
}
