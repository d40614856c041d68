//! The inode table of a root: an XArray of inode blocks in memory, loaded through the `imap` tree
//! when missed, written back by checkpoints in inode order, dropped when clean and the cache is
//! full. Marks say which blocks a checkpoint writes and which may be dropped, so that neither
//! looks at others. A block's place in the array is reserved before a transaction changes
//! anything: running out of memory fails the call with `ENOMEM` and never a transaction.
//!
//! What must hold:
//!
//! 1. An inode is changed only under its own lock, in a transaction of the current epoch, through
//!    [`Locked::edit`], which keeps aside what a checkpoint has still to write.
//! 2. The `imap` tree is changed by checkpoints alone (and by a repair, before there are any).
//! 3. A block leaves memory only when it is clean, what was written of it can be read back, and
//!    nobody holds a reference; and only as "this block", never by number alone.
//! 4. A free slot keeps the generation of its last user, in memory and on the device.

mod sync;

mod block;
mod pool;
mod shards;

mod alloc;
mod budget;
mod persist;
mod read;
mod salvage;
mod table;
#[cfg(test)]
mod tests;

pub use block::{At, Borrowed, InodeBlock, InodeRef, Locked, Slot};
pub use budget::Budget;
pub use persist::Written;
pub use read::Visitor;
pub use salvage::LostBlock;
pub use table::{InodeTable, Pinned, TableConfig};
