//! Tests of the array as a whole.
//!
//! | | run |
//! | --- | --- |
//! | the model checker | `cargo test -p shoal-xarray --features loom --lib model` |
//! | Miri | `MIRIFLAGS="-Zmiri-tree-borrows -Zmiri-ignore-leaks" cargo +nightly miri test --lib` |
//!
//! Of the two aliasing models of Miri, the collector's own code satisfies only the newer one.
//! Memory that the process-wide collector holds at the end would be reported as leaked.

#[cfg(not(feature = "loom"))]
mod failure;
#[cfg(not(feature = "loom"))]
mod reference;
#[cfg(not(feature = "loom"))]
mod single;
#[cfg(not(feature = "loom"))]
mod threads;

#[cfg(feature = "loom")]
mod model;
