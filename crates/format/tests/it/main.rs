//! Tests of the format: one program, a module for each subject.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod arbitrary_bytes;
mod golden;
