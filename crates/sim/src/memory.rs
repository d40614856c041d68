//! Memory that runs out at a chosen allocation of a call, as seen by the volume under test: of the
//! point "an allocation is refused" in the contract at the head of `device.rs`.
//!
//! The allocator of every program that links this crate is the one that refuses, below the reserve
//! of `shoal_base::memory`: as in the command `shoal`, whose allocator fails by itself.

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
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

/// Memory of at least this many bytes is mapped for itself, and so is zero without being touched:
/// each volume that is opened has a ring of 32 MiB for its journal, of which a run uses little, and
/// a run opens many. The system's allocator would clear it each time, a quarter of all the work.
const MAPPED: usize = 16 << 20;

fn is_mapped(layout: &Layout) -> bool {
    layout.size() >= MAPPED && layout.align() <= 4096
}

fn map(layout: &Layout) -> *mut u8 {
    let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    // SAFETY: a new mapping at a place that the kernel chooses.
    let mapped = unsafe { mmap_anonymous(null_mut(), layout.size(), access, flags) };
    mapped.map_or(null_mut(), |at| at.cast())
}

/// The system's allocator, but for what is refused.
struct Refusing;

// SAFETY: what is not refused is the system's, or a mapping of its own, which begins with a page;
// which of the two, the layout alone decides. A null pointer is a proper answer to the rest.
unsafe impl GlobalAlloc for Refusing {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match refused() {
            true => null_mut(),
            false if is_mapped(&layout) => map(&layout),
            // SAFETY: as the caller promises.
            false => unsafe { System.alloc(layout) },
        }
    }
    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        match refused() {
            true => null_mut(),
            false if is_mapped(&layout) => map(&layout),
            // SAFETY: as the caller promises.
            false => unsafe { System.alloc_zeroed(layout) },
        }
    }
    #[inline]
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if !is_mapped(&layout) && size < MAPPED {
            return match refused() {
                true => null_mut(),
                // SAFETY: as the caller promises.
                false => unsafe { System.realloc(at, layout, size) },
            };
        }
        // SAFETY: the caller promises that `size` is not zero and fits with this alignment.
        let new = unsafe { self.alloc(Layout::from_size_align_unchecked(size, layout.align())) };
        if !new.is_null() {
            // SAFETY: both are valid for the smaller of the sizes, and not the same; `at` is freed
            // once, with its own layout.
            unsafe {
                new.copy_from_nonoverlapping(at, layout.size().min(size));
                self.dealloc(at, layout);
            }
        }
        new
    }
    // SAFETY: gives back to whom it came from, which the layout says.
    #[inline]
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        if is_mapped(&layout) {
            // It cannot fail for a mapping that is there.
            // SAFETY: mapped with this length by `map`, and given up by its only owner.
            let _ = unsafe { munmap(at.cast(), layout.size()) };
            return;
        }
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
