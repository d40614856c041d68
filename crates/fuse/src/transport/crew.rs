//! Number of threads that read requests: the configured one, also while some of them wait for the
//! disk.
//!
//! A thread that is about to block (in `fsync`, say) steps out; if fewer than the wanted number are
//! then left to serve, a spare takes its place: one that is parked, or a new one. Without this, two
//! callers in `fsync` would keep two threads busy and everybody else waiting, and no more than two
//! could ever share a commit. Threads that never block pay nothing.

use parking_lot::{Condvar, Mutex};

/// Most spares; a request beyond that waits its turn.
const SPARES_MAX: usize = 128;

/// Bookkeeping of the threads of one mount.
pub(super) struct Crew {
    wanted: usize,
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Default)]
struct State {
    /// Threads that read requests or answer them without blocking.
    serving: usize,
    /// Spares asleep.
    parked: usize,
    /// Wake-ups sent and not yet received.
    called: usize,
    /// Spares that exist.
    spares: usize,
    /// The mount is gone.
    closed: bool,
}

/// Action that a thread must take before it blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(super) enum Relief {
    /// Nothing: enough are left, or a spare has been woken.
    Arranged,
    /// Start a new spare.
    Hire,
}

impl Crew {
    /// Creates a crew of `wanted` threads that are all about to serve.
    pub(super) fn new(wanted: usize) -> Crew {
        let state = State { serving: wanted, ..State::default() };
        Crew { wanted, state: Mutex::new(state), wake: Condvar::new() }
    }

    /// Called by a thread that is about to block.
    pub(super) fn step_out(&self) -> Relief {
        let mut state = self.state.lock();
        state.serving -= 1;
        if state.serving >= self.wanted || state.closed {
            return Relief::Arranged;
        }
        if state.parked > state.called {
            state.called += 1;
            state.serving += 1;
            self.wake.notify_one();
            return Relief::Arranged;
        }
        if state.spares == SPARES_MAX {
            return Relief::Arranged;
        }
        state.spares += 1;
        state.serving += 1;
        Relief::Hire
    }

    /// Called when a spare could not be started.
    pub(super) fn hire_failed(&self) {
        let mut state = self.state.lock();
        state.spares -= 1;
        state.serving -= 1;
    }

    /// Called by a thread that serves again.
    pub(super) fn step_in(&self) {
        self.state.lock().serving += 1;
    }

    /// Called by a spare between requests: sleeps while enough others serve. `false`: the mount is
    /// gone.
    pub(super) fn rest(&self) -> bool {
        let mut state = self.state.lock();
        if state.closed || state.serving <= self.wanted {
            return !state.closed;
        }
        state.serving -= 1;
        state.parked += 1;
        while state.called == 0 && !state.closed {
            self.wake.wait(&mut state);
        }
        state.parked -= 1;
        // The thread that sent the wake-up has counted this one as serving.
        state.called = state.called.saturating_sub(1);
        !state.closed
    }

    /// Ends every parked spare.
    pub(super) fn close(&self) {
        self.state.lock().closed = true;
        self.wake.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::thread;

    #[test]
    fn spares_are_hired_reused_and_sent_home() {
        let crew = Arc::new(Crew::new(2));
        assert_eq!(crew.step_out(), Relief::Hire);
        assert_eq!(crew.step_out(), Relief::Hire);
        crew.step_in();
        crew.step_in();
        let spares: Vec<_> = (0..2)
            .map(|_| {
                let crew = crew.clone();
                thread::spawn(move || {
                    while crew.rest() {
                        thread::yield_now();
                    }
                })
            })
            .collect();
        let parked = |wanted| {
            while crew.state.lock().parked != wanted {
                thread::yield_now();
            }
        };
        parked(2);
        assert_eq!(crew.step_out(), Relief::Arranged, "one woken, none hired");
        parked(1);
        crew.step_in();
        parked(2);
        let (spares_hired, serving) = {
            let state = crew.state.lock();
            (state.spares, state.serving)
        };
        assert_eq!((spares_hired, serving), (2, 2));
        crew.close();
        spares.into_iter().for_each(|spare| spare.join().unwrap());
    }

    #[test]
    fn no_more_spares_than_the_limit() {
        let crew = Crew::new(1);
        for _ in 0..SPARES_MAX {
            assert_eq!(crew.step_out(), Relief::Hire);
        }
        assert_eq!(crew.step_out(), Relief::Arranged);
    }

    #[test]
    fn a_failed_hire_is_forgotten() {
        let crew = Crew::new(2);
        assert_eq!(crew.step_out(), Relief::Hire);
        crew.hire_failed();
        crew.step_in();
        assert!(crew.rest(), "two serve, two are wanted: no rest");
    }
}
