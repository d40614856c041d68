//! Tests of the library: one program, a module for each subject.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bad_device;
mod bounds;
mod bulk;
mod changes;
mod fork;
mod hostile;
mod library;
mod like_std;
mod place;
mod sessions;
mod tokens;
mod told;
mod tree_change;
mod walk_cold;
mod whole;
