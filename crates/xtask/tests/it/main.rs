//! Tests of the repository itself: one program, a module for each subject.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod product;
mod public_api;
mod tidy;
