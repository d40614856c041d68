//! Copy-on-write B+trees over a bounded cache of nodes.
//!
//! A tree in memory is a skeleton of cells, one for each on-disk node seen so far. A leaf cell has
//! a lock and holds its 16 KiB node, or only the pointer to it. An inner cell publishes an
//! immutable array of keys and children that readers follow without locks. Changes of shape
//! (splits, merges) are made by one thread at a time, which replaces that array.
//!
//! Invariants:
//!
//! 1. A leaf knows the range of keys that it covers. A thread that arrives at the wrong leaf,
//!    because of a concurrent split or merge, must start again from the root.
//! 2. A change made in epoch `e` never alters what the checkpoint of `e - 1` must still write: the
//!    first change of a leaf that is dirty since an earlier epoch keeps a copy of the old bytes,
//!    and the first change of an inner cell in an epoch keeps its old array.
//! 3. A node on the device is never overwritten: a checkpoint writes changed nodes to new
//!    addresses, children before parents, and retires the old addresses.
//! 4. Only clean nodes whose bytes have reached the device are evicted; an inner node only if
//!    nothing below it is in memory, together with the cells of its children.
//! 5. Two cells of one node are never both in use: an evicted cell is marked dead, and a thread
//!    that still holds it starts again from the root.
//!
//! All memory is accounted in bytes in one budget, [`NodeCache`]: the nodes of leaves, the arrays
//! of inner nodes, and the cells below them.
//!
//! Cost of a lookup: one array search per inner level, one lock and one search in the leaf.
//!
//! Modules bottom-up; each uses only those above it in this list.

mod sync;

mod cache;

mod cell;

mod inner;

mod tree;

mod ahead;
mod change;
mod leaves;
mod salvage;
mod scan;
mod shape;

mod image;
mod persist;
mod young;

#[cfg(test)]
mod tests;

pub use ahead::ColdNode;
pub use cache::NodeCache;
pub use image::Met;
pub use leaves::{Helpers, NodeWriter, Placed, WriteAt};
pub use persist::Census;
pub use salvage::{LostNode, Survey};
pub use scan::{Batch, Part};
pub use shoal_format::node::{Key, NodeId, TreeId};
pub use tree::{Action, Tree};
pub use young::Young;
