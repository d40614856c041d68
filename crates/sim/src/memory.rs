//! Memory that runs out at a chosen allocation of a call, as seen by the volume under test: of the
//! point "an allocation is refused" in the contract at the head of `device.rs`.
//!
//! The allocator of every program that links this crate is the one that refuses, below the reserve
//! of `shoal_base::memory`: as in the command `shoal`, whose allocator fails by itself.

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

/// Runs `call` with some of its allocations refused. Returns what it returned, and whether any was
/// refused meanwhile: here, or (the reserve is the process's) in another thread.
pub fn refusing<T>(refusal: Option<Refusal>, call: impl FnOnce() -> T) -> (T, bool) {
    let before = memory::dips();
    if let Some(Refusal { after, count }) = refusal {
        memory::enable();
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
    fn large_blocks_are_zero_and_keep_what_is_in_them_when_they_grow() {
        for _ in 0..2 {
            let mut block = vec![0_u8; MAPPED];
            assert_eq!((block[0], block[MAPPED - 1]), (0, 0));
            (block[0], block[MAPPED - 1]) = (1, 2);
            block.resize(3 * MAPPED, 3);
            assert_eq!((block[0], block[MAPPED - 1], block[3 * MAPPED - 1]), (1, 2, 3));
            block.truncate(10);
            block.shrink_to_fit();
            block.reserve(2 * MAPPED);
            assert_eq!((block[0], block.len()), (1, 10));
        }
    }

    #[test]
    fn the_chosen_allocation_is_refused_and_served_by_the_reserve() {
        let boxes = |refusal| refusing(refusal, || [Box::new(1_u64), Box::new(2), Box::new(3)]);
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
