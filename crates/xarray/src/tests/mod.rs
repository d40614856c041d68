//! What concerns the array as a whole.
//!
//! | | run |
//! | --- | --- |
//! | the model checker | `RUSTFLAGS="--cfg loom" cargo test -p shoal-xarray --release --lib model` |
//! | Miri | `MIRIFLAGS=-Zmiri-tree-borrows cargo +nightly miri test -p shoal-xarray --lib -- single` |
//!
//! Under Miri the collector's own code keeps only the newer of the two aliasing models, and what the
//! process-wide collector holds at the end is reported as leaked unless `-Zmiri-ignore-leaks` says
//! otherwise.

#[cfg(not(loom))]
mod failure;
#[cfg(not(loom))]
mod reference;
#[cfg(not(loom))]
mod single;
#[cfg(not(loom))]
mod threads;

#[cfg(loom)]
mod model;
