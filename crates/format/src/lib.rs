//! Every byte that Shoal puts on disk. No I/O and no behaviour: structures, their sizes and offsets
//! (asserted in [`layout`]), feature bits, and one registry row per record type.
//!
//! A tour of a volume, outside in:
//!
//! | structure | module | found at |
//! | --- | --- | --- |
//! | superblock, two copies, with the label | [`superblock`], [`label`] | byte 0 and byte 65,536 of segment 0 |
//! | owner claim, while the volume is open | [`claim`] | byte 524,288 of segment 0 |
//! | mark of an unfinished copy | [`copy_mark`] | byte 655,360 and byte 720,896 of segment 0 |
//! | checkpoint | [`checkpoint`] | pointer in the superblock |
//! | pages of the root table (one record per subvolume) | [`root`] | pointers in the checkpoint |
//! | segment usage: root, index pages, pages | [`usage`] | pointer to the root in the checkpoint |
//! | orphan table blocks | [`orphan`] | pointers in lists, to which the checkpoint points |
//! | B+tree nodes of the four trees | [`node`] | pointers to root nodes in pages of the root table |
//! | inode blocks | [`inode`] | pointers in values of the `imap` tree |
//! | directory entries, extents | [`dirent`], [`extent`] | values of the trees, or inline in an inode |
//! | attributes, parent pointers | [`attr`] | inline in an inode, or values of a tree |
//! | intents | [`intent`] | items of the journal, and an object of the checkpoint |
//! | journal batches, records, items | [`batch`], [`item`] | address of the start in the checkpoint |
//! | data extents with their headers | [`extent`] | pointers in extent records |
//! | state of a change of a directory tree | [`tree_change`] | attribute of an unlinked inode |
//! | directories with a quota | [`quota`] | attribute of the volume's top directory |
//! | objects of a volume in a bucket: log, data, manifests | [`bucket`] | by their names |
//!
//! Integers are little-endian. Every structure has a magic, or is part of a checksummed block.
//!
//! Modules bottom-up; each uses only those above it in this list.

pub mod declare;
pub mod features;
pub mod sums;

pub mod bytes;
pub mod codec;

pub mod batch;
pub mod bucket;
pub mod geometry;
pub mod label;
pub mod node;
pub mod ptr;

pub mod dirent;
pub mod extent;
pub mod inode;
pub mod orphan;
pub mod root;
pub mod superblock;
pub mod usage;

pub mod attr;
pub mod checkpoint;
pub mod claim;
pub mod copy_mark;

pub mod intent;
pub mod quota;
pub mod tree_change;

pub mod item;
pub mod layout;

pub use codec::{Codec, Coding, Compression};
pub use geometry::Geometry;
pub use label::Label;
pub use ptr::Ptr;
