//! A volume in a bucket: a device whose bytes are in objects of an object store (S3 and what speaks
//! it, Google Cloud Storage, Azure).
//!
//! The engine above writes to an address space as it does to a file, and its format is the same.
//! This crate stores that address space as a log of objects, each written once
//! ([`shoal_format::bucket`] has their bytes), after LSVD (*Beating the I/O bottleneck: a case for
//! log-structured virtual disks*, Hajkazemi et al., EuroSys 2022). Fencing by objects that are
//! created only if they are absent is SlateDB's.
//!
//! | to | is done by |
//! | --- | --- |
//! | write | staging bytes in memory (`staging.rs`); many of them become data objects in the background (`sending.rs`) |
//! | flush | one log object (`log.rs`; before it is sent `unsent.rs`) |
//! | read | staged bytes, then pieces of objects by the map (`map.rs`), from memory (`frames.rs`), from a local disk (`disk.rs`), or with requests that several pieces share (`read.rs`), with more around them the more is missed (`ahead.rs`) |
//! | bound the log | a manifest: what has changed in the map, or all of it (`layers.rs`), as one object (`manifests.rs`, which also collects garbage) |
//! | read the newest state | `load.rs` |
//! | open, take over, fence off | `open.rs` |
//! | see what another process writes, and replace it when it ends | `follow.rs` |
//! | survive a store that is slow, away, or loses replies | `store.rs` |
//! | refuse a store that cannot do what Shoal needs | `race.rs` |
//! | say before that what a store can do, and what is missing | `check.rs`, with facts that take no volume from `about.rs` |
//!
//! Nothing depends on clocks, nor on a list of the store being complete. Both are used: a lease, so
//! that an opener need not take a volume away from an owner that works; a list, to find the newest
//! manifest with few requests, and forgotten objects.
//!
//! Modules bottom-up; each uses only those above it in this list.

mod ahead;
mod credentials;
mod disk;
mod failure;
#[cfg(feature = "faulty")]
pub mod faulty;
mod http;
mod layers;
mod map;
mod requests;
mod runtime;
mod staging;

mod about;
mod place;
mod race;
mod store;
mod upload;

mod unsent;

mod frames;

mod shared;

mod read;
mod sending;

mod manifests;

mod load;
mod log;
mod open;

pub mod check;
mod device;

mod follow;

pub use device::{BucketDevice, CreateOptions};
pub use disk::DiskCache;
pub use follow::{Follower, Owner};
pub use layers::Layering;
pub use place::Place;
pub use race::Race;
pub use requests::{Class, Counted, Prices, Request, S3};
pub use runtime::Runtime;
pub use shared::Options;
pub use store::Limits;
