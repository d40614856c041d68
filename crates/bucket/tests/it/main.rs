//! Tests of the device in an object store: one program, a module for each subject.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod device;
mod disk;
mod failover;
mod fencing;
mod follow;
mod spells;
mod weather;
