//! The process that made a value.
//!
//! Problem: `fork` copies an open volume into the child, with its caches, its place in the journal
//! and its open files. If both processes go on, each overwrites the other's data, and every call of
//! both succeeds.
//!
//! Rule: whatever reads or writes a volume keeps its [`Origin`] and checks it first, so a child
//! gets an error. Before such a check a child must take no lock and wait for no thread: a thread
//! that held the lock exists in the parent only.
//!
//! How a child is detected: the kernel zeroes a page of memory in a child (`MADV_WIPEONFORK`). The
//! page holds the number of the process, 0 in a child that has opened nothing yet. A check is one
//! load. A child of `vfork` shares all memory with its parent, and counts as the parent; it may
//! only call `exec` or end. Without that page (a kernel before Linux 4.14, some emulators) the
//! process id is compared, which costs a system call.

use crate::{Code, Error, Result};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
// No step of a model: they order nothing.
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// Size of a mapping. The kernel rounds it up to a page.
const BYTES: usize = 4096;

/// The word at the start of the page; null until the first use.
static PAGE: AtomicPtr<AtomicU64> = AtomicPtr::new(std::ptr::null_mut());
/// The last number given to a process in this line of parents and children.
static LAST: AtomicU64 = AtomicU64::new(0);

/// The process that made a value.
#[derive(Clone, Copy, Debug)]
pub struct Origin {
    /// `None`: `number` is a process id.
    page: Option<&'static AtomicU64>,
    number: u64,
}

impl Origin {
    /// Returns the calling process.
    pub fn here() -> Origin {
        match page() {
            Some(page) => Origin { page: Some(page), number: number(page) },
            None => Origin { page: None, number: process_id() },
        }
    }

    /// Returns whether the calling process is this one.
    #[inline]
    pub fn is_here(&self) -> bool {
        match self.page {
            Some(page) => page.load(Ordering::Relaxed) == self.number,
            None => process_id() == self.number,
        }
    }

    /// Fails in any other process.
    ///
    /// # Errors
    /// `EBADF`, with the remedy.
    #[inline]
    pub fn check(&self) -> Result<()> {
        if self.is_here() { Ok(()) } else { Err(forked()) }
    }
}

/// Error of a call in a child, on a volume that its parent has opened.
#[cold]
fn forked() -> Error {
    Error::refused(Code::BadHandle, "the volume was opened before a fork: open it again")
}

fn process_id() -> u64 {
    u64::from(std::process::id())
}

/// Returns the number of this process, and gives it one if it has none.
fn number(page: &AtomicU64) -> u64 {
    match page.load(Ordering::Relaxed) {
        0 => {
            // Higher than any that was copied from a parent.
            let fresh = LAST.fetch_add(1, Ordering::Relaxed) + 1;
            let set = page.compare_exchange(0, fresh, Ordering::Relaxed, Ordering::Relaxed);
            set.map_or_else(|of_another_thread| of_another_thread, |_| fresh)
        }
        number => number,
    }
}

/// Returns the page, and maps it at the first call. Not a `OnceLock`: a child that was forked while
/// another thread maps it would wait for ever.
fn page() -> Option<&'static AtomicU64> {
    let mut known = PAGE.load(Ordering::Acquire);
    if known.is_null() {
        let fresh = map()?;
        match PAGE.compare_exchange(known, fresh, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => known = fresh,
            Err(of_another_thread) => {
                unmap(fresh);
                known = of_another_thread;
            }
        }
    }
    // SAFETY: it points to the start of a page that was mapped by `map` and is never unmapped once
    // it is in `PAGE`. Any bits are valid, and all access is by atomics.
    Some(unsafe { &*known })
}

/// Maps a page of zeros that the kernel zeroes again in a child.
fn map() -> Option<*mut AtomicU64> {
    let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    // SAFETY: a new mapping at an address that the kernel chooses.
    let page = unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), BYTES, prot, flags) };
    let page = page.ok()?;
    // SAFETY: the whole of that mapping. The advice changes what a child sees, nothing here.
    let advised = unsafe { rustix::mm::madvise(page, BYTES, Advice::LinuxWipeOnFork) };
    if advised.is_err() {
        unmap(page.cast());
        return None;
    }
    Some(page.cast())
}

fn unmap(page: *mut AtomicU64) {
    // SAFETY: the whole mapping of `map`, to which there is no reference.
    let _ = unsafe { rustix::mm::munmap(page.cast(), BYTES) };
}

/// Makes a descriptor refer to nothing, in a child that cannot drop its owner because threads of
/// the parent have a part in it. What it referred to is closed, as far as this process is
/// concerned: a lock by `flock` stays the parent's. Nothing changes if the process has no
/// descriptor left.
pub fn release(descriptor: BorrowedFd<'_>) {
    let nothing = rustix::fs::openat(CWD, "/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    let Ok(nothing) = nothing else { return };
    // SAFETY: the descriptor is open and stays so, and its owner stays the one that closes it:
    // `ManuallyDrop` does not. It only refers to something else afterwards.
    let owned = unsafe { OwnedFd::from_raw_fd(descriptor.as_raw_fd()) };
    let mut owned = ManuallyDrop::new(owned);
    let _ = rustix::io::dup3(&nothing, &mut owned, rustix::io::DupFlags::CLOEXEC);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::fd::AsFd;

    #[test]
    fn a_number_is_kept_and_a_wiped_page_gets_a_higher_one() {
        let (one, two) = (Origin::here(), Origin::here());
        assert_eq!(one.number, two.number);
        assert!(one.is_here() && one.check().is_ok());
        // As a child finds it.
        let page = AtomicU64::new(0);
        let child = Origin { page: Some(Box::leak(Box::new(page))), number: one.number };
        let error = child.check().unwrap_err();
        assert_eq!((error.code(), child.is_here()), (Code::BadHandle, false));
        assert!(error.to_string().ends_with("open it again"), "{error}");
        let of_child = number(child.page.unwrap());
        assert!(of_child > one.number, "{of_child}, {}", one.number);
        assert!(!child.is_here(), "opened before the fork");
        assert!(Origin { number: of_child, ..child }.is_here(), "opened after it");
    }

    #[test]
    fn without_a_page_the_process_id_decides() {
        let here = Origin { page: None, number: process_id() };
        assert!(here.is_here() && here.check().is_ok());
        assert!(!Origin { number: here.number + 1, ..here }.is_here());
    }

    #[test]
    fn a_released_descriptor_closes_what_it_referred_to() {
        let (mut read, write) = std::io::pipe().unwrap();
        release(write.as_fd());
        // The end of the pipe, although `write` is still there.
        assert_eq!(read.read(&mut [0]).unwrap(), 0);
        assert!(rustix::io::write(&write, b"x").is_err());
    }
}
