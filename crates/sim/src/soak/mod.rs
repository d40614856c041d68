//! The long soak: a mounted volume is used by several processes, its server is killed at a random
//! moment, the volume is checked, mounted again, and compared with what the processes had been
//! told; and so on, for as long as wanted.
//!
//! * [`actor`]: what an actor (a thread of a worker process) does, and the model of its directory.
//! * [`worker`]: the processes: draw an operation, note outside the volume that it begins, do it,
//!   note that it is done.
//! * [`verify`]: reads the notes and the directories, and finds the operation after which each
//!   stands.
//! * [`rounds`]: mount, work, kill, check, and again.
//! * [`cli`]: the command `cargo xtask soak`.
//!
//! What is demanded is more than that nothing acknowledged is lost: an actor's directory must be as
//! after some operation, not before the last that a successful `fsync` followed
//! (`docs/crash-model.md`), and not after the last that had begun.

pub mod actor;
pub mod cli;
pub mod rounds;
pub mod verify;
pub mod worker;
