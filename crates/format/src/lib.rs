//! Every byte that Shoal puts on disk. No I/O, no behaviour: structures, their sizes and offsets
//! (asserted in [`layout`]), feature bits, and one registry row per record type.
//!
//! A tour of a volume, outside in:
//!
//! | structure | module | found at |
//! | --- | --- | --- |
//! | superblock, two copies | [`superblock`] | byte 0 and byte 65,536 of segment 0 |
//! | owner claim, while the volume is open | [`claim`] | byte 524,288 of segment 0 |
//! | checkpoint | [`checkpoint`] | named by the superblock |
//! | pages of the root table | [`root`] | named by the checkpoint |
//! | segment usage: root, index pages, pages | [`usage`] | root named by the checkpoint |
//! | orphan table blocks | [`orphan`] | named by lists, which the checkpoint names |
//! | B+tree nodes of the four trees | [`node`] | roots named by pages of the root table |
//! | inode blocks | [`inode`] | named by values of the `imap` tree |
//! | directory entries, extents | [`dirent`], [`extent`] | values of the trees, or inline in an inode |
//! | attributes, parent pointers | [`attr`] | inline in an inode, or values of a tree |
//! | intents | [`intent`] | items of the journal, and an object named by the checkpoint |
//! | journal batches, records, items | [`batch`], [`item`] | start named by the checkpoint |
//! | data extents with their headers | [`extent`] | named by extent records |
//! | flushes as one object | [`flush`] | on no volume yet |
//!
//! Integers are little-endian. Every structure carries a magic, or sits in a checksummed block.

pub mod attr;
pub mod batch;
pub mod bytes;
pub mod checkpoint;
pub mod claim;
pub mod codec;
pub mod declare;
pub mod dirent;
pub mod extent;
pub mod features;
pub mod flush;
pub mod geometry;
pub mod inode;
pub mod intent;
pub mod item;
pub mod layout;
pub mod node;
pub mod orphan;
pub mod ptr;
pub mod root;
pub mod sums;
pub mod superblock;
pub mod usage;

pub use codec::{Codec, Coding, Compression};
pub use geometry::Geometry;
pub use ptr::Ptr;
