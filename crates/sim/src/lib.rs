//! Deterministic simulation of Shoal: everything random comes from a seed, so every failure can be
//! replayed, shortened and kept.
//!
//! * [`seeds`], [`rng`], [`text`], [`image`], [`log`]: options, random numbers, messages, and
//!   what a device holds and records.
//! * [`device`]: a device that records what is done to it, fails on demand, and yields the image of
//!   a crash at any moment. The fault contract is the head of that file.
//! * [`model`]: a plain POSIX filesystem in memory, the oracle.
//! * [`op`], [`workload`]: operations as data, and their random generation.
//! * [`exec`]: one operation on volume ([`call`]) and model in lockstep, results compared
//!   ([`compare`], with the table of allowed differences).
//! * [`system`]: the same operations as system calls on a mounted directory.
//! * [`session`]: the same by a session of the library.
//! * [`walk`], [`checks`]: the volume's visible state, and the rules that hold without a model.
//! * [`runner`]: whole runs with crashes, recoveries and comparison with the permitted prefixes.
//! * [`lsns`]: the LSNs of the inodes' last changes after each of these crashes.
//! * [`feed`]: copies of a tree that the change feed keeps up to date.
//! * [`faults`]: runs on a device that fails.
//! * [`silent`], [`wrongs`]: runs on a device that loses, misdirects or corrupts without saying so.
//! * [`memory`]: allocations that are refused.
//! * [`damage`]: a volume to be damaged, and what may become of it.
//! * [`exhaustive`]: every short sequence of operations, crashed at every device operation.
//! * [`linear`]: short histories of several threads on the same names, checked for an order.
//! * `scheduled`: the same under a scheduler whose choices come from the seed, with crashes; only
//!   in builds with the feature `scheduled`.
//! * [`scale`]: a model of many subvolumes on many machines.
//! * [`killed`]: a process that works with the library until it is killed.
//! * [`mounted`]: a mount served by a process that may be killed.
//! * [`soak`]: a busy mount whose server is killed, again and again.
//! * [`shrink`], [`cli`]: shorter failing runs, and the command; [`args`]: its command line.
//! * [`threads`]: the same comparison for several threads at once, in directories of their own.
//!
//! Modules bottom-up; each uses only those above it in this list.

mod counts;
pub mod image;
pub mod killed;
pub mod log;
pub mod memory;
pub mod mounted;
pub mod rng;
pub mod seeds;
pub mod text;

pub mod crash;
pub mod deadline;
pub mod op;
mod sectors;
pub mod wrongs;

pub mod model;

pub mod call;
pub mod device;

pub mod compare;
pub mod session;
pub mod walk;

pub mod checks;
pub mod recovery;

pub mod exec;

pub mod history;
pub mod lsns;
pub mod system;
pub mod workload;

pub mod runner;

pub mod feed;
pub mod soak;
pub mod threads;

pub mod damage;
pub mod exhaustive;
pub mod linear;
pub mod scale;
pub mod shrink;

pub mod cli;
#[cfg(feature = "scheduled")]
pub mod scheduled;
pub mod silent;

pub mod args;
pub mod faults;
