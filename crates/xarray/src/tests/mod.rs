//! What concerns the array as a whole.

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
