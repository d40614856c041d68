//! Copy-on-write B+trees over a bounded cache of nodes.
//!
//! A tree in memory is a skeleton of cells, one for each node on disk that has been seen. A leaf
//! cell has a lock and holds its 16 KiB node, or only the pointer to it. An inner cell publishes an
//! immutable array of keys and children that readers follow without any lock; changes of shape
//! (splits, merges) are made by one thread at a time, which replaces that array.
//!
//! What must hold:
//!
//! 1. A leaf knows the range of keys it answers for. Who arrives at the wrong one, because a split
//!    or merge was on its way, starts again from the root.
//! 2. A change made in epoch `e` never alters what the checkpoint of `e - 1` is still to write: the
//!    first change of a leaf that is dirty since an earlier epoch keeps the old bytes aside, the
//!    first change of an inner cell in an epoch keeps its old array.
//! 3. A node on the device is never overwritten: a checkpoint writes changed nodes to new
//!    addresses, children before parents, and retires the old addresses.
//! 4. Only clean nodes whose bytes have reached the device are dropped from memory; an inner node
//!    only when nothing below it is in memory, together with the cells of its children.
//! 5. Two cells of one node are never both in use: a dropped cell is marked, and who still holds it
//!    starts again from the root.
//!
//! All memory is counted in bytes in one budget, [`NodeCache`]: the nodes of leaves, the arrays of
//! inner nodes, and the cells that hang off these.
//!
//! Cost of a lookup: one array search for each inner level, one lock and one search in the leaf.

mod sync;

mod ahead;
mod cache;
mod cell;
mod image;
mod inner;
mod leaves;
mod persist;
mod salvage;
mod scan;
mod shape;
#[cfg(test)]
mod tests;
mod tree;

pub use ahead::ColdNode;
pub use cache::NodeCache;
pub use image::Met;
pub use leaves::{Helpers, Placed, WriteAt};
pub use persist::{Census, NodeWriter};
pub use salvage::{LostNode, Survey};
pub use scan::{Batch, Part};
pub use shoal_format::node::{Key, NodeId, TreeId};
pub use tree::{Action, Tree};
