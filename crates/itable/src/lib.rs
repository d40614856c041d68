//! The inode table of a subvolume: an XArray of inode blocks in memory, loaded through the `imap`
//! tree when missing, written back by checkpoints in inode order, and evicted when clean and the
//! cache is full. Marks tell which blocks a checkpoint must write and which may be evicted, so that
//! neither visits others. A block's entry in the array is reserved before a transaction changes
//! anything: running out of memory fails the call with `ENOMEM` and never a transaction.
//!
//! Invariants:
//!
//! 1. An inode must be changed only under its own lock, in a transaction of the current epoch,
//!    through [`Locked::edit`], which keeps a copy of what a checkpoint must still write.
//! 2. Only checkpoints change the `imap` tree (and a repair, before the first checkpoint).
//! 3. A block is evicted only if it is clean, its written version can be read back, and nobody
//!    holds a reference; and only as "this block", never by number alone.
//! 4. A free slot keeps the generation of its last user, in memory and on the device.
//!
//! Modules bottom-up; each uses only those above it in this list.

mod pool;
mod sync;

mod projects;

mod budget;

mod block;

mod shards;

mod table;

mod runs;

mod alloc;
mod bulk;
mod persist;
mod project_count;
mod read;
mod salvage;
#[cfg(test)]
mod tests;

pub use alloc::Numbers;
pub use block::{At, Borrowed, InodeBlock, InodeRef, Locked, Slot};
pub use budget::Budget;
pub use bulk::BlockView;
pub use persist::Written;
pub use projects::{Charge, LIMIT_MAX, PROJECTS_MAX, ProjectUse, Projects};
pub use read::Visitor;
pub use runs::Run;
pub use salvage::{LostBlock, Salvage};
pub use table::{InodeTable, Pinned, TOGETHER, TableConfig};
