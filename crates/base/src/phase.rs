//! Phases of a slow call: how long the calling thread has waited, and for what.
//!
//! Each place that waits calls [`waiting`] where it begins to, so a call that does not wait costs
//! nothing. A wait inside another (the device read of a call that waits for space) belongs to the
//! outer one: the phases of a call never add up to more than its duration.
//!
//! Whoever measures calls [`reset`] before the call and [`spent`] after it, on the same thread.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// Declares the phases: variant, name in output, description.
macro_rules! phases {
    ($($variant:ident $name:literal $what:literal;)*) => {
        /// A reason to wait.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(usize)]
        pub enum Phase { $(#[doc = $what] $variant,)* }
        impl Phase {
            /// All phases, in the order of declaration.
            pub const ALL: &'static [Phase] = &[$(Phase::$variant,)*];
            /// The phase's name in output.
            pub fn name(self) -> &'static str { match self { $(Phase::$variant => $name,)* } }
            /// Describes the phase.
            pub fn what(self) -> &'static str { match self { $(Phase::$variant => $what,)* } }
        }
    };
}

phases! {
    Lock "lock" "an inode that another call had locked";
    DeviceRead "device_read" "reads of the device";
    DeviceWrite "device_write" "writes to the device";
    Journal "journal" "the journal: until it was durable, or had room";
    Quiesce "quiesce" "a checkpoint that was beginning";
    Checkpoint "checkpoint" "checkpoints that had fallen behind";
    Space "space" "space that had to be freed first";
}

/// Number of phases.
pub const PHASES: usize = Phase::ALL.len();
/// Nanoseconds by phase, in the order of [`Phase::ALL`].
pub type Spent = [u64; PHASES];

thread_local! {
    static SPENT: Cell<Spent> = const { Cell::new([0; PHASES]) };
    static IS_WAITING: Cell<bool> = const { Cell::new(false) };
}

/// Forgets what the thread has waited.
#[inline]
pub fn reset() {
    SPENT.set([0; PHASES]);
}

/// Returns what the thread has waited since [`reset`].
pub fn spent() -> Spent {
    SPENT.get()
}

/// A wait of the thread, which ends when this is dropped.
#[must_use]
pub struct Waiting(Option<(Phase, Instant)>);

/// Begins a wait. It is not counted if the thread is waiting already.
#[inline]
pub fn waiting(phase: Phase) -> Waiting {
    Waiting((!IS_WAITING.replace(true)).then(|| (phase, Instant::now())))
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some((phase, begun)) = self.0 {
            IS_WAITING.set(false);
            waited(phase, begun.elapsed());
        }
    }
}

/// Counts a wait that the caller has measured, unless it was part of another.
#[inline]
pub fn waited(phase: Phase, took: Duration) {
    if IS_WAITING.get() {
        return;
    }
    let mut spent = SPENT.get();
    spent[phase as usize] = spent[phase as usize].saturating_add(took.as_nanos() as u64);
    SPENT.set(spent);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_inside_another_belongs_to_it() {
        reset();
        {
            let _outer = waiting(Phase::Space);
            let _inner = waiting(Phase::DeviceRead);
            waited(Phase::DeviceWrite, Duration::from_secs(5));
            std::thread::sleep(Duration::from_millis(2));
        }
        let all = spent();
        assert!(all[Phase::Space as usize] >= 2_000_000, "{all:?}");
        assert_eq!(all.iter().filter(|ns| **ns > 0).count(), 1, "{all:?}");
        waited(Phase::Lock, Duration::from_nanos(3));
        waited(Phase::Lock, Duration::from_nanos(4));
        assert_eq!(spent()[Phase::Lock as usize], 7);
        assert!(std::thread::spawn(spent).join().is_ok_and(|spent| spent == [0; PHASES]));
        reset();
        assert_eq!(spent(), [0; PHASES]);
    }
}
