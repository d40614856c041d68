//! Memory that runs out at a chosen allocation of a call, as seen by the volume under test: of the
//! point "an allocation is refused" in the contract at the head of `device.rs`.
//!
//! The allocator of every program that links this crate is the one that refuses, below the reserve
//! of `shoal_base::memory`: as in the command `shoal`, whose allocator fails by itself.

use parking_lot::{RwLock, RwLockWriteGuard};
use shoal_base::memory::{self, WithReserve};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ptr::null_mut;

/// Which allocations of a call are refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// That many succeed first.
    pub after: u32,
    /// That many are refused then.
    pub count: u32,
}

thread_local! {
    /// Allocations of this thread that still succeed, and that are then refused.
    static LEFT: Cell<(u32, u32)> = const { Cell::new((0, 0)) };
}

fn refused() -> bool {
    match LEFT.get() {
        (_, 0) => false,
        (0, count) => {
            LEFT.set((0, count - 1));
            true
        }
        (after, count) => {
            LEFT.set((after - 1, count));
            false
        }
    }
}

/// The system's allocator, but for what is refused.
struct Refusing;

// SAFETY: what is not refused is the system's. A null pointer is a proper answer to the rest.
unsafe impl GlobalAlloc for Refusing {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        if refused() { null_mut() } else { unsafe { System.alloc(layout) } }
    }
    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        if refused() { null_mut() } else { unsafe { System.alloc_zeroed(layout) } }
    }
    #[inline]
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as the caller promises.
        if refused() { null_mut() } else { unsafe { System.realloc(at, layout, size) } }
    }
    #[inline]
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: WithReserve<Refusing> = WithReserve(Refusing);

/// Shared by those who are being refused something, held alone by those who cannot have that.
static TURN: RwLock<()> = RwLock::new(());

/// Keeps refusals out of the process until the guard is dropped: the reserve is the process's, so a
/// call may meet what another thread is refused.
pub fn without_refusals() -> RwLockWriteGuard<'static, ()> {
    TURN.write()
}

/// Runs `call` with some of its allocations refused. Returns what it returned, and whether any was
/// refused meanwhile: here, or in another thread.
pub fn refusing<T>(refusal: Option<Refusal>, call: impl FnOnce() -> T) -> (T, bool) {
    let _turn = refusal.map(|_| TURN.read());
    refusing_now(refusal, call)
}

fn refusing_now<T>(refusal: Option<Refusal>, call: impl FnOnce() -> T) -> (T, bool) {
    let before = memory::dips();
    if let Some(Refusal { after, count }) = refusal {
        memory::enable();
        // What the call's own words take comes before the volume has asked for this.
        memory::ready().expect("nothing is refused yet");
        LEFT.set((after, count));
    }
    let result = call();
    LEFT.set((0, 0));
    (result, memory::dips() != before)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chosen_allocation_is_refused_and_served_by_the_reserve() {
        let _alone = without_refusals();
        let boxes = |refusal| refusing_now(refusal, || [Box::new(1_u64), Box::new(2), Box::new(3)]);
        memory::enable();
        memory::ready().unwrap();
        let before = memory::dips();
        let (made, refused) = boxes(Some(Refusal { after: 1, count: 1 }));
        assert_eq!((made.map(|b| *b), refused), ([1, 2, 3], true));
        assert_eq!(memory::dips(), before + 1);
        let (_, refused) = boxes(Some(Refusal { after: 3, count: 9 }));
        assert!(!refused, "there are only three");
        assert!(!boxes(None).1);
    }
}
