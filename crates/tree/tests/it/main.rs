//! Tests of the trees: one program, a module for each subject.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod budget;
mod checkpoint;
mod model;
mod salvage;
mod shared;
