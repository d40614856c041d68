//! A whole volume with all its threads under the seed: what [`crate::linear`] does with threads of
//! the system, whose timing nobody repeats, done with threads that a scheduler changes between at
//! every lock, atomic and device operation (`shoal_base::sync`). A seed fixes everything: the
//! calls, what runs behind them, each change of threads, the clock, the crashes.
//!
//! * [`plan`]: what a seed is about: calls of two to four threads, and the work behind them.
//! * [`scheduler`]: the scheduler, which a seed decides.
//! * [`device`]: a faulty device whose operations others may come between, and that knows when each
//!   was.
//! * [`run`]: a run: the history must have an order, the checkers must be content, and images of
//!   crashes in the middle must recover to what some beginning of such an order leads to, with
//!   everything that `fsync` or `sync` had acknowledged. A deadlock, a thread that is never woken
//!   and a loop without end are failures too.
//! * [`cli`]: the command `cargo xtask sim --scheduled`.
//!
//! There only when built with the feature `scheduled`. What it cannot see: what weaker orders than
//! sequential consistency permit (for that, loom looks at the ring and at the XArray), and races
//! inside of an XArray, a call of which is one step.

pub mod cli;
pub mod device;
pub mod plan;
pub mod run;
pub mod scheduler;
