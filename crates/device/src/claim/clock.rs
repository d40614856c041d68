//! The clock of claims and the threads that live by it: those of the machine, or, in tests, a
//! simulation in which time passes only when all threads sleep (`simulation.rs`).

#[cfg(test)]
use super::simulation::Simulation;
use rustix::time::{ClockId, clock_gettime};
use shoal_base::sync::idle::{Condvar, Mutex, MutexGuard};
#[cfg(test)]
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// A clock, with the ways to wait for it.
#[derive(Clone)]
pub(crate) enum Clock {
    /// The machine's.
    Machine,
    /// A test's.
    #[cfg(test)]
    Simulated(Arc<Simulation>),
}

impl Clock {
    /// Time of this process for watching others. Does not count suspend: an owner on the same
    /// machine sleeps too, and must not seem to be silent.
    pub(crate) fn now(&self) -> Duration {
        self.time(ClockId::Monotonic)
    }

    /// Time since the machine was started. It includes suspend, during which another host may take
    /// the volume over.
    pub(crate) fn uptime(&self) -> Duration {
        self.time(ClockId::Boottime)
    }

    fn time(&self, clock: ClockId) -> Duration {
        match self {
            Clock::Machine => {
                let now = clock_gettime(clock);
                Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32)
            }
            #[cfg(test)]
            Clock::Simulated(simulation) => simulation.now(),
        }
    }

    pub(crate) fn sleep(&self, time: Duration) {
        match self {
            Clock::Machine => std::thread::sleep(time),
            #[cfg(test)]
            Clock::Simulated(simulation) => simulation.sleep(time),
        }
    }

    /// Waits until another thread notifies, at most for a time.
    pub(crate) fn wait<'m, T>(
        &self,
        wake: &Condvar,
        mutex: &'m Mutex<T>,
        mut guard: MutexGuard<'m, T>,
        time: Duration,
    ) -> MutexGuard<'m, T> {
        match self {
            Clock::Machine => _ = wake.wait_for(&mut guard, time),
            #[cfg(test)]
            Clock::Simulated(simulation) => {
                drop(guard);
                simulation.sleep(time);
                guard = mutex.lock();
            }
        }
        #[cfg(not(test))]
        let _ = mutex;
        guard
    }

    /// Starts a thread.
    pub(crate) fn spawn(
        &self,
        work: impl FnOnce() + Send + 'static,
    ) -> std::io::Result<JoinHandle<()>> {
        let thread = std::thread::Builder::new().name("shoal-claim".into());
        match self {
            Clock::Machine => thread.spawn(work),
            #[cfg(test)]
            Clock::Simulated(simulation) => thread.spawn(simulation.as_thread(work)),
        }
    }

    /// Waits until a thread has ended.
    pub(crate) fn join(&self, thread: JoinHandle<()>) {
        #[cfg(test)]
        if let Clock::Simulated(simulation) = self {
            simulation.wait_for_end(&thread);
        }
        // It does not panic; if it did, the panic hook has reported it.
        let _ = thread.join();
    }

    /// Called before an opener accesses the block: a simulation delays it.
    pub(crate) fn access(&self) {
        #[cfg(test)]
        if let Clock::Simulated(simulation) = self {
            simulation.delay();
        }
    }
}
