//! The long soak: a mounted volume is used by several processes, its server is killed at a random
//! moment, the volume is checked, mounted again, and compared with what the processes had been
//! told; and so on, for as long as wanted.
//!
//! * [`deed`]: what a hand (a thread of a worker process) does, as lines of text, and what a
//!   directory must then contain.
//! * [`worker`]: the processes: draw a deed, note it outside the volume, do it, note that it is
//!   done.
//! * [`verify`]: reads the notes and the directories, and finds the deed after which each stands.
//! * [`rounds`]: mount, work, kill, check, and again.
//! * [`cli`]: the command `cargo xtask soak`.
//!
//! What is demanded is more than that nothing acknowledged is lost: a hand's directory must be as
//! after some deed, not before the last that a successful `fsync` followed (`docs/crash-model.md`),
//! and not after the last that had begun.

pub mod cli;
pub mod deed;
pub mod rounds;
pub mod verify;
pub mod worker;
