//! Simulated time for tests of claims: threads take turns, one at a time, in the order of the times
//! for which they sleep. So a test needs no time, and is the same on any machine under any load.
//!
//! The thread that makes the simulation is one of them. None may wait for another in any other way
//! than by this clock.

use parking_lot::{Condvar, Mutex};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread::{JoinHandle, ThreadId};
use std::time::Duration;

/// Pause between two looks whether a thread has ended.
const LOOK: Duration = Duration::from_millis(1);

#[derive(Default)]
pub(crate) struct Simulation {
    state: Mutex<State>,
    turn: Condvar,
}

#[derive(Default)]
struct State {
    now: Duration,
    /// Sleeping threads: the time at which each goes on, and its ticket.
    sleeping: BTreeSet<(Duration, u64)>,
    tickets: u64,
    /// Ticket of the thread whose turn it is; 0 is none.
    turn: u64,
    ended: Vec<ThreadId>,
    /// A thread has panicked: the others must not wait for ever.
    broken: bool,
    /// Longest delay of an access, and the state of its generator.
    delay_max: Duration,
    random: u64,
}

impl State {
    fn ticket(&mut self, time: Duration) -> u64 {
        self.tickets += 1;
        self.sleeping.insert((self.now + time, self.tickets));
        self.tickets
    }

    fn pass_turn(&mut self) {
        let next = self.sleeping.pop_first();
        self.turn = next.map_or(0, |(_, ticket)| ticket);
        self.now = next.map_or(self.now, |(time, _)| time);
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) % limit.max(1)
    }
}

/// Ends a thread's part in the simulation, also if it panics.
struct Part(Arc<Simulation>);

impl Drop for Part {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.broken |= std::thread::panicking();
        state.ended.push(std::thread::current().id());
        state.pass_turn();
        drop(state);
        self.0.turn.notify_all();
    }
}

impl Simulation {
    /// A simulation with accesses of the block that take no time.
    pub(crate) fn new() -> Arc<Simulation> {
        Arc::default()
    }

    /// A simulation in which each access of an opener takes up to a time.
    pub(crate) fn with_delays(delay_max: Duration, seed: u64) -> Arc<Simulation> {
        let random = (seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let state = State { delay_max, random, ..State::default() };
        Arc::new(Simulation { state: Mutex::new(state), turn: Condvar::new() })
    }

    pub(crate) fn now(&self) -> Duration {
        self.state.lock().now
    }

    pub(crate) fn sleep(&self, time: Duration) {
        let mut state = self.state.lock();
        let ticket = state.ticket(time);
        state.pass_turn();
        drop(state);
        self.turn.notify_all();
        self.wait_for_turn(ticket);
    }

    fn wait_for_turn(&self, ticket: u64) {
        let mut state = self.state.lock();
        while state.turn != ticket {
            assert!(!state.broken, "another thread of the simulation has failed");
            self.turn.wait(&mut state);
        }
    }

    pub(super) fn delay(&self) {
        let time = {
            let mut state = self.state.lock();
            let limit = state.delay_max.as_micros() as u64;
            Duration::from_micros(state.below(limit))
        };
        if !time.is_zero() {
            self.sleep(time);
        }
    }

    /// A number below a limit.
    pub(crate) fn below(&self, limit: u64) -> u64 {
        self.state.lock().below(limit)
    }

    /// The work of a thread, which gets its first turn after those that are due already.
    pub(super) fn as_thread(
        self: &Arc<Simulation>,
        work: impl FnOnce() + Send + 'static,
    ) -> impl FnOnce() + Send + 'static {
        let simulation = self.clone();
        let ticket = self.state.lock().ticket(Duration::ZERO);
        move || {
            simulation.wait_for_turn(ticket);
            let _part = Part(simulation);
            work();
        }
    }

    pub(super) fn wait_for_end(&self, thread: &JoinHandle<()>) {
        let id = thread.thread().id();
        while !self.state.lock().ended.contains(&id) {
            self.sleep(LOOK);
        }
    }
}
