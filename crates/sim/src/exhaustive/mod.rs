//! Exhaustive short sequences, after CrashMonkey and ACE (OSDI '18): nearly every crash bug that
//! was ever reported of a filesystem needs no more than three operations on a new volume. So every
//! sequence of one and of two operations of a small list is run, with every placement of fsync,
//! sync and checkpoint behind each, and crashed after every single device operation.
//!
//! * [`start`]: the small tree that every sequence starts from, and the modes.
//! * [`actions`]: the list of operations.
//! * [`sequence`]: sequences by name, and what is made durable behind each operation.
//! * [`images`]: which images a crash at one point may leave, of those the ones to examine.
//! * [`explore`]: one sequence run and crashed; [`judge`]: one image recovered and judged.
//! * [`requests`]: the same sequences in a bucket, ended after every request.
//! * [`plan`], [`run`], [`report`], [`cli`]: all of them, in threads, with counts.
//!
//! What is counted: a *sequence* is a list of operations with their syncs, of which each succeeds;
//! a *crash point* is the moment just after one of its device operations (write, flush, discard); a
//! *pair* is a sequence with one of its crash points. A pair is *new* when its crash point lies
//! behind the beginning of the last operation, or at it when more was acknowledged there without a
//! device operation: before, all is as in the sequence without that operation, which has been
//! judged by itself. Only new pairs cost anything, and an image that is
//! known to be byte for byte one already recovered in the same sequence is not recovered again,
//! only judged by what is permitted at this point.

pub mod actions;
pub mod cli;
pub mod explore;
pub mod images;
pub mod judge;
pub mod plan;
pub mod report;
pub mod requests;
pub mod run;
pub mod sequence;
pub mod start;
