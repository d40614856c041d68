//! Reads of the device are kept out of transactions.
//!
//! The problem: a transaction that reads a tree node or an inode block from a slow device stays
//! inside the checkpoint's gate meanwhile, and every other call waits for it as soon as a
//! checkpoint wants to begin.
//!
//! The rule: a call that runs by [`retried`] never reads while it is inside the gate and has not
//! changed anything yet. What is not in memory ends the attempt by [`Error::Cold`], which says what
//! is missing; the call leaves the gate, the missing object is read, and the call begins again.
//! After its first change a transaction reads where it must: it cannot be taken back.
//!
//! ```text
//!            retried            gate entered             first change
//! (allowed) ─────────► armed ───────────────► refused ───────────────► allowed
//!                        ▲   left unchanged     │
//!                        └──────────────────────┘
//! ```
//!
//! The state belongs to the thread. Code that does not run by [`retried`] reads as it likes.

use crate::{Error, Ino, Result, RootId};

/// An object that a transaction needs and that is not in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cold {
    /// The inode block of this inode.
    Block(Ino),
    /// The node of a tree that answers for a key.
    Node {
        /// Root (subvolume) of the tree.
        root: RootId,
        /// Number of the tree within its root.
        tree: u8,
        /// Upper half of the key.
        hi: u64,
        /// Lower half of the key.
        lo: u64,
    },
}

/// Whether reads are refused, and whether entering the gate will make them so.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reads {
    Allowed,
    Armed,
    /// Armed, and the call has been inside the gate before.
    Again,
    Refused,
}

/// Attempts of one call that may end for want of an object; the last one reads inside the gate. A
/// cache so small that it drops what was just read would never let a call begin.
const ATTEMPTS: usize = 256;

/// Runs `call`, and again after `warm` has read what it wanted, until it ends otherwise.
///
/// # Errors
/// Those of `call`, never [`Error::Cold`].
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
            // An object that cannot be read: the call finds that out for itself, and says so.
            Err(Error::Cold(cold)) if warm(&cold).is_err() => break,
            Err(Error::Cold(_)) => {}
            other => return other,
        }
    }
    let _allowed = Restore::set(Reads::Allowed);
    call()
}

/// Fails with [`Error::Cold`] where the device must not be read now.
#[inline]
pub fn check(cold: impl FnOnce() -> Cold) -> Result<()> {
    match state::get() {
        Reads::Refused => Err(Error::Cold(cold())),
        Reads::Allowed | Reads::Armed | Reads::Again => Ok(()),
    }
}

/// A transaction has passed the gate.
#[inline]
pub fn entered() {
    if matches!(state::get(), Reads::Armed | Reads::Again) {
        state::set(Reads::Refused);
    }
}

/// A transaction makes its first change.
#[inline]
pub fn changing() {
    if state::get() == Reads::Refused {
        state::set(Reads::Allowed);
    }
}

/// A transaction has left the gate.
#[inline]
pub fn left() {
    if state::get() == Reads::Refused {
        state::set(Reads::Again);
    }
}

/// Whether the call has been inside the gate before: what it did to get there, such as making room,
/// need not be done again.
#[inline]
pub fn is_again() -> bool {
    state::get() == Reads::Again
}

/// A stretch of a call, not in a transaction, in which the device must not be read either: it holds
/// a lock that transactions wait for.
#[must_use]
pub struct Section(());

impl Section {
    /// Begins one; it ends when this is dropped.
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

/// Lets other work that a call does before its transaction begins, such as making room, run by its
/// own rules: what that does not find in memory is not the call's to read.
#[inline]
pub fn apart() -> Restore {
    Restore::set(Reads::Allowed)
}

/// Puts the state back that was there before, also when a call panics.
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

#[cfg(not(shoal_shuttle))]
mod state {
    use super::Reads;
    use std::cell::Cell;

    thread_local! {
        static READS: Cell<Reads> = const { Cell::new(Reads::Allowed) };
    }

    #[inline]
    pub fn get() -> Reads {
        READS.get()
    }
    #[inline]
    pub fn set(new: Reads) {
        READS.set(new);
    }
}

/// Under the seeded scheduler all threads of a run are one thread of the system.
#[cfg(shoal_shuttle)]
mod state {
    use super::Reads;
    use std::cell::RefCell;
    use std::collections::HashMap;

    thread_local! {
        static READS: RefCell<HashMap<usize, Reads>> = RefCell::default();
    }

    pub fn get() -> Reads {
        let me = usize::from(shuttle::current::me());
        READS.with(|all| all.borrow().get(&me).copied().unwrap_or(Reads::Allowed))
    }
    pub fn set(new: Reads) {
        let me = usize::from(shuttle::current::me());
        READS.with(|all| match new {
            Reads::Allowed => all.borrow_mut().remove(&me),
            other => all.borrow_mut().insert(me, other),
        });
    }
}

#[cfg(all(test, not(shoal_shuttle)))]
mod tests {
    use super::*;
    use crate::Code;

    fn block() -> Cold {
        Cold::Block(Ino(7))
    }

    #[test]
    fn what_is_cold_is_read_between_two_attempts_and_never_inside() {
        let (mut warm, mut calls) = (0, 0);
        let done = retried(
            |cold| {
                assert_eq!(*cold, block());
                // Outside the gate: allowed.
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
                // What the call does behind its commit must not end as an attempt.
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
