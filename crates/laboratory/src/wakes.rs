//! Times of a round trip between two threads, as a mount's caller and its server make one for each
//! request: they differ more from machine to machine, and from day to day, than filesystems do.

use crate::sample::median;
use rustix::thread::{CpuSet, sched_setaffinity};
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::thread::{self, Thread};
use std::time::Instant;

const ROUNDS: u32 = 5000;
/// The median of so many parts counts: another program, or the host, may take a processor.
const PARTS: u32 = 10;

/// Microseconds of a round trip, of two wake-ups or none.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Debug)]
pub(crate) struct Wakes {
    /// Both spin, on two processors.
    pub spinning_us: f64,
    /// Each wakes the other, on one processor.
    pub same_us: f64,
    /// Each wakes the other, on a processor that has nothing else to do.
    pub other_us: f64,
}

impl Wakes {
    /// Measures them; `None` on one processor, and where threads cannot be bound to processors.
    pub(crate) fn measure() -> Option<Wakes> {
        Some(Wakes {
            spinning_us: round_trip(true, 1)?,
            same_us: round_trip(false, 0)?,
            other_us: round_trip(false, 1)?,
        })
    }

    pub(crate) fn describe(&self) -> String {
        let Wakes { spinning_us, same_us, other_us } = self;
        format!(
            "a round trip between two threads takes {spinning_us:.1} µs while both spin, \
             {same_us:.1} µs on one processor, {other_us:.1} µs where each wakes another processor"
        )
    }
}

/// Returns the microseconds of a round trip with a thread on another processor, or on the same.
fn round_trip(spins: bool, other: usize) -> Option<f64> {
    let turn = &AtomicU32::new(0);
    thread::scope(|scope| {
        // Binding is for a thread's life.
        let asking = scope.spawn(move || -> Option<f64> {
            bind(0)?;
            let asker = thread::current();
            let answering = thread::Builder::new().spawn_scoped(scope, move || {
                let bound = bind(other);
                for n in 0..ROUNDS {
                    wait(turn, 2 * n + 1, spins);
                    post(turn, 2 * n + 2, &asker, spins);
                }
                bound
            });
            let answering = answering.ok()?;
            let mut parts = Vec::new();
            for part in 0..PARTS {
                let begun = Instant::now();
                for n in part * (ROUNDS / PARTS)..(part + 1) * (ROUNDS / PARTS) {
                    post(turn, 2 * n + 1, answering.thread(), spins);
                    wait(turn, 2 * n + 2, spins);
                }
                parts.push(begun.elapsed().as_secs_f64() * 1e6 / f64::from(ROUNDS / PARTS));
            }
            answering.join().ok()??;
            Some(median(&parts))
        });
        asking.join().ok()?
    })
}

fn bind(processor: usize) -> Option<()> {
    let mut set = CpuSet::new();
    set.set(processor);
    sched_setaffinity(None, &set).ok()
}

fn post(turn: &AtomicU32, value: u32, to: &Thread, spins: bool) {
    turn.store(value, SeqCst);
    if !spins {
        to.unpark();
    }
}

fn wait(turn: &AtomicU32, value: u32, spins: bool) {
    while turn.load(SeqCst) != value {
        match spins {
            true => std::hint::spin_loop(),
            false => thread::park(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_end() {
        // Binding may be forbidden.
        if let Some(wakes) = Wakes::measure() {
            assert!(wakes.spinning_us > 0.0 && wakes.same_us > 0.0 && wakes.other_us > 0.0);
            assert!(wakes.describe().contains("µs while both spin"));
        }
    }
}
