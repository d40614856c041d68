//! Tests of the array as a whole.
//!
//! | | run |
//! | --- | --- |
//! | the model checker | `RUSTFLAGS="--cfg loom" cargo test -p shoal-xarray --release --lib model` |
//! | Miri | `MIRIFLAGS="-Zmiri-tree-borrows -Zmiri-ignore-leaks" cargo +nightly miri test --lib` |
//!
//! Of the two aliasing models of Miri, the collector's own code satisfies only the newer one.
//! Memory that the process-wide collector holds at the end would be reported as leaked.

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
