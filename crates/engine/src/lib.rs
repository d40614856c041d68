//! POSIX meaning on top of transactions.
pub mod types;
mod volume;
pub use types::*;
pub use volume::{Volume, mkfs, mkfs_on};
pub use shoal_base::{Code, Error, Generation, Ino, Lsn, Result};
