//! Seeded simulations and what they check: one program, a module for each subject.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

mod batch;
mod bucket;
mod concurrent;
mod copies;
mod corrupt;
mod crash;
mod enospc;
mod exhaustive;
mod faults;
mod feed;
mod frozen;
mod kill9;
mod kill9_roots;
mod kill9_trees;
mod label;
mod linear;
mod linear_mount;
mod model;
mod orphan_damage;
mod recovery;
mod regressions;
mod removal;
mod roots;
mod shrink;
mod silent;
mod soak;
mod tree_change;

/// Entry of the server.
#[test]
fn serve_helper() {
    common::serve();
}
