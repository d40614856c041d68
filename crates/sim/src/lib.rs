//! Deterministic simulation of Shoal: everything random comes from a seed, so every failure can be
//! replayed, shortened and kept.
//!
//! * [`device`]: a device that records what is done to it, fails on demand, and yields the image of
//!   a crash at any moment. The fault contract is the head of that file.
//! * [`model`]: a plain POSIX filesystem in memory, the oracle.
//! * [`op`], [`workload`]: operations as data, and their random generation.
//! * [`exec`]: one operation on volume ([`call`]) and model in lockstep, results compared
//!   ([`compare`], with the table of allowed differences).
//! * [`walk`], [`checks`]: the volume's visible state, and the rules that hold without a model.
//! * [`runner`]: whole runs with crashes, recoveries and comparison with the permitted prefixes.
//! * [`lsns`]: the LSNs of the inodes' last changes after each of these crashes.
//! * [`faults`]: runs on a device that fails.
//! * [`silent`]: runs on a device that loses, misdirects or corrupts without saying so.
//! * [`memory`]: allocations that are refused.
//! * [`damage`]: a volume to be damaged, and what may become of it.
//! * [`exhaustive`]: every short sequence of operations, crashed at every device operation.
//! * [`linear`]: short histories of several threads on the same names, checked for an order.
//! * `scheduled`: the same under a scheduler whose choices come from the seed, with crashes; only
//!   in builds with `--cfg shoal_shuttle`.
//! * [`mounted`]: a mount served by a process that may be killed.
//! * [`soak`]: a busy mount whose server is killed, again and again.
//! * [`shrink`], [`cli`]: shorter failing runs, and the command.
//! * [`threads`]: the same comparison for several threads at once, in directories of their own.

pub mod call;
pub mod checks;
pub mod cli;
pub mod compare;
pub mod crash;
pub mod damage;
pub mod deadline;
pub mod device;
pub mod exec;
pub mod exhaustive;
pub mod faults;
pub mod history;
pub mod image;
pub mod linear;
pub mod lsns;
pub mod memory;
pub mod model;
pub mod mounted;
pub mod op;
pub mod recovery;
pub mod rng;
pub mod runner;
#[cfg(shoal_shuttle)]
pub mod scheduled;
mod sectors;
pub mod shrink;
pub mod silent;
pub mod soak;
pub mod threads;
pub mod walk;
pub mod workload;
