//! File data: where the bytes of a file are, and changing that.
//!
//! A regular file's data fork takes one of four forms, from small to large: empty, the bytes
//! themselves, extent records, or records in the `extents` tree. Bytes without a record are a hole.
//! Data is written out of place: new bytes go to a new object on the device, then one transaction
//! makes the file point to it. That transaction's journal batch is not written before the data is
//! durable, so a record never points to bytes that are not there.
//!
//! Data is read and written outside of transactions and of inode locks, which a checkpoint, and
//! with it every other call, may have to wait for. What is being read or written is held
//! (`shoal_space::Hold`), so that its segment is not given out meanwhile.

mod coded;
mod copy;
mod fallocate;
mod map;
mod object;
mod plan;
mod read;
mod tails;
mod truncate;
mod write;
mod writers;

pub(crate) use coded::Decoded;
pub(crate) use map::{END, inline_extents};
pub(crate) use tails::Tails;
pub(crate) use writers::Writers;
