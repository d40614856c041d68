//! Keeps device reads out of transactions.
//!
//! The problem: while a transaction reads a tree node or an inode block from a slow device, a
//! checkpoint cannot quiesce transactions. Every other call then waits for that read as soon as a
//! checkpoint starts.
//!
//! The rule: a call that runs under [`retried`] never reads the device while it is in a transaction
//! that has not changed anything yet. If an object is not in memory, the attempt ends with
//! [`Error::Cold`], which names the object. The call leaves the transaction, the object is read,
//! and the call starts again. After its first change a transaction reads whatever it needs, because
//! it can no longer be undone.
//!
//! ```text
//!            retried            transaction begun       first change
//! (allowed) ─────────► armed ───────────────► refused ───────────────► allowed
//!                        ▲   left unchanged     │
//!                        └──────────────────────┘
//! ```
//!
//! The state is per thread. Code that does not run under [`retried`] may always read.
//!
//! A second rule, for threads that serve many callers (a mount's): a call that runs under
//! [`at_once`] does not wait for the device at all. What it cannot read or write without waiting is
//! refused with [`Error::Cold`], and the whole call must be made again, on a thread that may wait.
//! As above this ends with the first change, since from there on a call cannot be made a second
//! time.

pub use crate::error::Cold;
use crate::{Error, Result};
use std::cell::Cell;
use std::time::Duration;

/// State of the thread: reads allowed, to be refused in the next transaction, or refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reads {
    Allowed,
    Armed,
    /// Armed, and the call has been in a transaction before.
    Again,
    Refused,
}

/// Attempts of one call that may end with [`Error::Cold`]. The attempt after them reads inside the
/// transaction. Without this limit a cache so small that it drops what was just read would stall
/// the call forever.
const ATTEMPTS: usize = 256;

/// Attempts to take a lock, with a yield before each: some tens of microseconds.
const LOCK_YIELDS: usize = 64;
/// Further attempts, with a pause before each: a holder may have been interrupted, and to be made
/// again a call needs another thread.
const LOCK_PAUSES: usize = 20;
const LOCK_PAUSE: Duration = Duration::from_micros(100);

/// Runs `call`. When it fails with [`Error::Cold`], reads the object with `warm` and runs it again.
///
/// # Errors
/// Those of `call`; [`Error::Cold`] only under [`at_once`].
pub fn retried<R>(
    mut warm: impl FnMut(&Cold) -> Result<()>,
    mut call: impl FnMut() -> Result<R>,
) -> Result<R> {
    let mut armed = Reads::Armed;
    for _ in 0..ATTEMPTS {
        let attempt = {
            let _armed = Restore::set(armed);
            call()
        };
        armed = Reads::Again;
        match attempt {
            // Made again as a whole, elsewhere.
            Err(Error::Cold(cold)) if was_refused() => return Err(Error::Cold(cold)),
            Err(Error::Cold(cold)) => match warm(&cold) {
                Ok(()) => {}
                Err(_) if was_refused() => return Err(Error::Cold(cold)),
                // The object cannot be read. The last attempt finds that out itself and returns
                // the error.
                Err(_) => break,
            },
            other => return other,
        }
    }
    let _allowed = Restore::set(Reads::Allowed);
    call()
}

/// Fails with [`Error::Cold`] if the device must not be read now.
#[inline]
pub fn check(cold: impl FnOnce() -> Cold) -> Result<()> {
    match state::get() {
        Reads::Refused => Err(Error::Cold(cold())),
        Reads::Allowed | Reads::Armed | Reads::Again => Ok(()),
    }
}

/// Notes that a transaction has begun.
#[inline]
pub fn entered() {
    if matches!(state::get(), Reads::Armed | Reads::Again) {
        state::set(Reads::Refused);
    }
}

/// Notes that the transaction makes its first change.
#[inline]
pub fn changing() {
    if state::get() == Reads::Refused {
        state::set(Reads::Allowed);
    }
    if WAITS.get() != Waits::May {
        WAITS.set(Waits::May);
    }
}

/// Notes that the transaction has ended.
#[inline]
pub fn left() {
    if state::get() == Reads::Refused {
        state::set(Reads::Again);
    }
}

/// Returns whether the call has been in a transaction before. Preparations that it made then, such
/// as making room, need not be repeated.
#[inline]
pub fn is_again() -> bool {
    state::get() == Reads::Again
}

/// The right of the thread to wait for the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Waits {
    May,
    MustNot,
    /// Something was refused because it must not.
    Refused,
    /// That was the device itself, and no other thread.
    RefusedDevice,
}

std::thread_local! {
    // Not under the scheduler's threads: no call of theirs runs under `at_once`.
    static WAITS: Cell<Waits> = const { Cell::new(Waits::May) };
}

/// The outcome of a call that must not wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AtOnce<R> {
    /// The call has ended, without waiting or after its first change.
    Done(R),
    /// It would have had to wait, and has changed nothing. Its result does not count.
    Refused {
        /// The result.
        result: R,
        /// It would have had to wait for the device; else it waits for another thread.
        device: bool,
    },
}

/// Runs `call` without waiting for the device before its first change.
#[inline]
pub fn at_once<R>(call: impl FnOnce() -> R) -> AtOnce<R> {
    struct Restore(Waits);
    impl Drop for Restore {
        fn drop(&mut self) {
            WAITS.set(self.0);
        }
    }
    let _restore = Restore(WAITS.replace(Waits::MustNot));
    let result = call();
    match WAITS.get() {
        Waits::Refused => AtOnce::Refused { result, device: false },
        Waits::RefusedDevice => AtOnce::Refused { result, device: true },
        Waits::May | Waits::MustNot => AtOnce::Done(result),
    }
}

/// Runs `work` as a thread that may wait, whatever the call around it must not: for what has to be
/// done now, and does not decide whether that call is made again.
#[inline]
pub fn apart_from_call<R>(work: impl FnOnce() -> R) -> R {
    struct Restore(Waits);
    impl Drop for Restore {
        fn drop(&mut self) {
            WAITS.set(self.0);
        }
    }
    let _restore = Restore(WAITS.replace(Waits::May));
    work()
}

/// Returns whether the calling thread must not wait for the device.
#[inline]
pub fn must_not_wait() -> bool {
    WAITS.get() != Waits::May
}

/// Refuses to wait for another thread: ends the calling thread's call, which must be
/// [`must_not_wait`].
#[cold]
pub fn refuse() -> Error {
    WAITS.set(Waits::Refused);
    Error::Cold(Cold::Device)
}

/// As [`refuse`], to wait for the device.
#[cold]
pub fn refuse_device() -> Error {
    WAITS.set(Waits::RefusedDevice);
    Error::Cold(Cold::Device)
}

/// Takes a lock whose holder may be reading from the device. A thread that must not wait tries for
/// the time of a few short holders.
///
/// # Errors
/// That of [`refuse`].
#[inline]
pub fn lock<G>(mut attempt: impl FnMut() -> Option<G>, wait: impl FnOnce() -> G) -> Result<G> {
    if let Some(guard) = attempt() {
        return Ok(guard);
    }
    if !must_not_wait() {
        return Ok(wait());
    }
    for n in 0..LOCK_YIELDS + LOCK_PAUSES {
        match n < LOCK_YIELDS {
            true => std::thread::yield_now(),
            false => std::thread::sleep(LOCK_PAUSE),
        }
        if let Some(guard) = attempt() {
            return Ok(guard);
        }
    }
    Err(refuse())
}

fn was_refused() -> bool {
    matches!(WAITS.get(), Waits::Refused | Waits::RefusedDevice)
}

/// A section outside of a transaction in which the device must not be read either, because the
/// caller holds a lock that transactions wait for.
#[must_use]
pub struct Section(());

impl Section {
    /// Begins a section, which ends when this is dropped.
    #[inline]
    pub fn begin() -> Section {
        entered();
        Section(())
    }
}

impl Drop for Section {
    #[inline]
    fn drop(&mut self) {
        left();
    }
}

/// Allows reads until the result is dropped, for work before the transaction begins (such as making
/// room). An object missing there must not end the caller's attempt.
#[inline]
pub fn apart() -> Restore {
    Restore::set(Reads::Allowed)
}

/// Restores the previous state when dropped, also when the call panics.
#[must_use]
pub struct Restore(Reads);

impl Restore {
    fn set(new: Reads) -> Restore {
        let before = state::get();
        state::set(new);
        Restore(before)
    }
}

impl Drop for Restore {
    fn drop(&mut self) {
        state::set(self.0);
    }
}

#[cfg(not(feature = "scheduled"))]
mod state {
    use super::{Cell, Reads};

    thread_local! {
        static READS: Cell<Reads> = const { Cell::new(Reads::Allowed) };
    }

    #[inline]
    pub(super) fn get() -> Reads {
        READS.get()
    }
    #[inline]
    pub(super) fn set(new: Reads) {
        READS.set(new);
    }
}

/// Under the seeded scheduler all threads of a run share one thread of the system.
#[cfg(feature = "scheduled")]
mod state {
    use super::Reads;
    use std::cell::RefCell;
    use std::collections::HashMap;

    thread_local! {
        static READS: RefCell<HashMap<usize, Reads>> = RefCell::default();
    }

    pub(crate) fn get() -> Reads {
        let me = usize::from(shuttle::current::me());
        READS.with(|all| all.borrow().get(&me).copied().unwrap_or(Reads::Allowed))
    }
    pub(crate) fn set(new: Reads) {
        let me = usize::from(shuttle::current::me());
        READS.with(|all| match new {
            Reads::Allowed => all.borrow_mut().remove(&me),
            other => all.borrow_mut().insert(me, other),
        });
    }
}

#[cfg(all(test, not(feature = "scheduled")))]
mod tests {
    use super::*;
    use crate::{Code, Ino};

    fn block() -> Cold {
        Cold::Block(Ino(7))
    }

    #[test]
    fn what_is_cold_is_read_between_two_attempts_and_never_inside() {
        let (mut warm, mut calls) = (0, 0);
        let done = retried(
            |cold| {
                assert_eq!(*cold, block());
                // Outside the transaction: allowed.
                check(block)?;
                warm += 1;
                Ok(())
            },
            || {
                calls += 1;
                entered();
                let read = if calls < 3 { check(block) } else { Ok(()) };
                left();
                read.map(|()| calls)
            },
        );
        assert_eq!((done, warm), (Ok(3), 2));
        assert!(check(block).is_ok(), "nothing is left of it");
    }

    #[test]
    fn after_the_first_change_reads_are_allowed_and_stay_so_for_the_next_transaction() {
        let done = retried(
            |_| unreachable!("nothing is refused"),
            || {
                entered();
                changing();
                check(block)?;
                left();
                // The call's work after its commit must not end as an attempt.
                entered();
                check(block)?;
                left();
                Ok(())
            },
        );
        assert_eq!(done, Ok(()));
    }

    #[test]
    fn what_cannot_be_read_is_found_out_by_the_call() {
        let done: Result<()> = retried(
            |_| Err(Error::Code(Code::Io)),
            || {
                entered();
                let read = check(block);
                left();
                read.and(Err(Error::Code(Code::Stale)))
            },
        );
        assert_eq!(done, Err(Error::Code(Code::Stale)));
    }

    #[test]
    fn a_cache_that_keeps_nothing_does_not_stop_a_call() {
        let (mut attempts, mut reads) = (0, 0);
        let done = retried(
            |_| Ok(()),
            || {
                attempts += 1;
                entered();
                let read = check(block).map(|()| reads += 1);
                left();
                read
            },
        );
        assert_eq!((done, attempts, reads), (Ok(()), ATTEMPTS + 1, 1));
    }

    #[test]
    fn a_call_that_must_not_wait_is_made_again_as_a_whole() {
        let mut attempts = 0;
        let ended = at_once(|| {
            retried(
                |_| unreachable!("it would wait"),
                || {
                    attempts += 1;
                    assert!(must_not_wait());
                    Err::<(), _>(refuse_device())
                },
            )
        });
        let result = Err(Error::Cold(Cold::Device));
        assert_eq!(ended, AtOnce::Refused { result, device: true });
        assert_eq!((attempts, must_not_wait()), (1, false));
        // What is warmed, too.
        let warmed = at_once(|| {
            retried(
                |_| Err(refuse()),
                || {
                    entered();
                    let read = check(block);
                    left();
                    read
                },
            )
        });
        let result = Err(Error::Cold(block()));
        assert_eq!(warmed, AtOnce::Refused { result, device: false });
    }

    #[test]
    fn a_lock_that_is_held_for_long_is_refused() {
        let held = std::sync::Mutex::new(());
        let attempt = || lock(|| held.try_lock().ok(), || held.lock().unwrap()).map(drop);
        assert_eq!(at_once(attempt), AtOnce::Done(Ok(())));
        let _guard = held.lock();
        let result = Err(Error::Cold(Cold::Device));
        assert_eq!(at_once(attempt), AtOnce::Refused { result, device: false });
    }

    #[test]
    fn after_its_first_change_a_call_waits() {
        let ended = at_once(|| {
            entered();
            changing();
            left();
            must_not_wait()
        });
        assert_eq!(ended, AtOnce::Done(false));
        // Somebody went on without what was refused, and has made a change: that stands.
        let ended = at_once(|| {
            let _ignored = refuse();
            changing();
            must_not_wait()
        });
        assert_eq!(ended, AtOnce::Done(false));
    }

    #[test]
    fn a_call_inside_a_call_leaves_the_outer_one_as_it_was() {
        let done = retried(
            |_| Ok(()),
            || {
                retried(|_| Ok(()), || Ok(()))?;
                entered();
                assert!(matches!(check(block), Err(Error::Cold(_))));
                left();
                Ok(())
            },
        );
        assert_eq!(done, Ok(()));
    }
}
