//! A memory reserve, so that a call that has begun to change something can finish.
//!
//! Rust's collections abort the process when an allocation fails. [`WithReserve`], installed as the
//! program's global allocator, serves such an allocation from memory set aside before (an
//! *emergency allocation*). After that, calls fail with `ENOMEM` *before* they change anything.
//! When half of the reserve is used, no call begins until it is refilled. This is the kernel's
//! mempool, for a library.
//!
//! ```
//! use shoal_base::memory::{self, WithReserve};
//!
//! #[global_allocator]
//! static ALLOCATOR: WithReserve<std::alloc::System> = WithReserve(std::alloc::System);
//!
//! memory::enable();
//! memory::ready().unwrap(); // every call that changes something asks this first
//! ```
//!
//! Without it a failed allocation ends the process, as in any Rust program. No more is lost than in
//! a crash.

use crate::{Code, Error, Result};
use std::alloc::{GlobalAlloc, Layout};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Size of a region of the reserve, in bytes. Address space only, until used. Far more than all
/// calls in flight can need between their first change and their end.
const REGION: usize = 16 << 20;
/// Largest number of regions. Several, because emergency allocations may live long.
const REGIONS: usize = 16;

/// The reserve exists and is used.
static ENABLED: AtomicBool = AtomicBool::new(false);
/// The reserve must be refilled before another call may begin.
static LOW: AtomicBool = AtomicBool::new(false);
/// Number of emergency allocations served so far.
static EMERGENCY_ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
/// Lowest start and highest end of all regions.
static SPAN: (AtomicUsize, AtomicUsize) = (AtomicUsize::new(usize::MAX), AtomicUsize::new(0));
static POOL: Mutex<Pool> = Mutex::new(Pool { regions: [Region::NONE; REGIONS], current: 0 });

#[derive(Clone, Copy)]
struct Region {
    start: usize,
    /// Bytes allocated from its start.
    used: usize,
    /// Allocations in it that are not freed yet.
    live: usize,
}

impl Region {
    const NONE: Region = Region { start: 0, used: 0, live: 0 };
    fn holds(&self, at: usize) -> bool {
        self.start != 0 && (self.start..self.start + REGION).contains(&at)
    }
    fn is_idle(&self) -> bool {
        self.start != 0 && self.live == 0
    }
}

struct Pool {
    regions: [Region; REGIONS],
    current: usize,
}

impl Pool {
    /// Allocates `layout` from the current region and returns the address; `None` if it does not
    /// fit.
    fn take(&mut self, layout: Layout) -> Option<usize> {
        let region = &mut self.regions[self.current];
        if region.start == 0 {
            return None;
        }
        let at = (region.start + region.used).next_multiple_of(layout.align());
        let end = at.checked_add(layout.size())?;
        if end > region.start + REGION {
            return None;
        }
        region.used = end - region.start;
        region.live += 1;
        Some(at)
    }
    fn give_back(&mut self, at: usize) {
        if let Some(region) = self.regions.iter_mut().find(|region| region.holds(at)) {
            region.live -= 1;
        }
    }
}

/// Locks the pool. A panic elsewhere while it was locked cannot have left it half changed.
fn pool() -> std::sync::MutexGuard<'static, Pool> {
    POOL.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Creates the reserve. Must be called only by programs whose global allocator is a
/// [`WithReserve`].
pub fn enable() {
    ENABLED.store(true, Ordering::Relaxed);
    LOW.store(true, Ordering::Relaxed);
}

/// Checks that the reserve is whole or can be refilled. Every call that must not stop half-way asks
/// this first. Normally one relaxed load.
///
/// # Errors
/// `ENOMEM` if the reserve is low and cannot be refilled.
#[inline]
pub fn ready() -> Result<()> {
    match LOW.load(Ordering::Relaxed) {
        false => Ok(()),
        true => refill(),
    }
}

/// Returns the number of emergency allocations so far. A call that has changed nothing yet and
/// finds that the number has grown since it began fails with `ENOMEM`.
#[inline]
pub fn dips() -> u64 {
    EMERGENCY_ALLOCATIONS.load(Ordering::Relaxed)
}

#[cold]
fn refill() -> Result<()> {
    if !ENABLED.load(Ordering::Relaxed) {
        return Ok(());
    }
    {
        let mut pool = pool();
        let Region { start, used, .. } = pool.regions[pool.current];
        if start != 0 && used < REGION / 2 {
            LOW.store(false, Ordering::Relaxed);
            return Ok(());
        }
        if let Some(idle) = pool.regions.iter().position(Region::is_idle) {
            pool.regions[idle].used = 0;
            pool.current = idle;
            LOW.store(false, Ordering::Relaxed);
            return Ok(());
        }
    }
    // Not under the lock: the allocator may need the pool.
    let layout = Layout::from_size_align(REGION, 4096).map_err(|_| Error::Code(Code::NoMemory))?;
    // SAFETY: the layout is not empty; the memory is never freed.
    let start = unsafe { std::alloc::alloc(layout) } as usize;
    if start == 0 {
        return Err(Error::Code(Code::NoMemory));
    }
    let mut pool = pool();
    let Some(free) = pool.regions.iter().position(|region| region.start == 0) else {
        drop(pool);
        // SAFETY: allocated above with this layout, and nobody else knows it.
        unsafe { std::alloc::dealloc(start as *mut u8, layout) };
        return Err(Error::Code(Code::NoMemory));
    };
    pool.regions[free] = Region { start, used: 0, live: 0 };
    pool.current = free;
    SPAN.0.fetch_min(start, Ordering::Relaxed);
    SPAN.1.fetch_max(start + REGION, Ordering::Relaxed);
    LOW.store(false, Ordering::Relaxed);
    Ok(())
}

/// A global allocator that falls back to the reserve when its inner allocator fails.
pub struct WithReserve<A>(pub A);

#[cold]
fn from_reserve(layout: Layout) -> *mut u8 {
    if !ENABLED.load(Ordering::Relaxed) {
        return std::ptr::null_mut();
    }
    let at = pool().take(layout);
    LOW.store(true, Ordering::Relaxed);
    EMERGENCY_ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
    at.unwrap_or(0) as *mut u8
}

#[inline]
fn may_be_reserve(at: *mut u8) -> bool {
    let at = at as usize;
    at >= SPAN.0.load(Ordering::Relaxed) && at < SPAN.1.load(Ordering::Relaxed)
}

#[cold]
fn in_reserve(at: *mut u8) -> bool {
    pool().regions.iter().any(|region| region.holds(at as usize))
}

// SAFETY: memory comes from the inner allocator, or from a region of the reserve: aligned as
// requested, and used by nobody else until freed, because a region is reused only when nothing in
// it is live. An address is returned to where it came from.
unsafe impl<A: GlobalAlloc> GlobalAlloc for WithReserve<A> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises are the inner allocator's.
        let at = unsafe { self.0.alloc(layout) };
        if at.is_null() { from_reserve(layout) } else { at }
    }

    #[inline]
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        if may_be_reserve(at) && in_reserve(at) {
            return pool().give_back(at as usize);
        }
        // SAFETY: not the reserve's, so the inner allocator's; the caller promises the rest.
        unsafe { self.0.dealloc(at, layout) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises are the inner allocator's.
        let at = unsafe { self.0.alloc_zeroed(layout) };
        if !at.is_null() {
            return at;
        }
        let at = from_reserve(layout);
        if !at.is_null() {
            // SAFETY: `layout.size()` bytes were just allocated at `at`.
            unsafe { at.write_bytes(0, layout.size()) };
        }
        at
    }

    #[inline]
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let reserve = may_be_reserve(at) && in_reserve(at);
        if !reserve {
            // SAFETY: the inner allocator's, as the caller promises.
            let moved = unsafe { self.0.realloc(at, layout, size) };
            if !moved.is_null() {
                return moved;
            }
        }
        // SAFETY: the caller promises that `size` is not zero and fits with this alignment.
        let moved = unsafe { self.alloc(Layout::from_size_align_unchecked(size, layout.align())) };
        if !moved.is_null() {
            // SAFETY: both are valid for the smaller of the two sizes and do not overlap; `at` is
            // freed once, with its own layout.
            unsafe {
                moved.copy_from_nonoverlapping(at, layout.size().min(size));
                self.dealloc(at, layout);
            }
        }
        moved
    }
}
