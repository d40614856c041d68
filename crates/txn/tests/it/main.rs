//! Tests of transactions: one program, a module for each subject.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod due;
mod quiesce;
