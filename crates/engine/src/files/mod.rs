//! The contents of files: reading, writing, truncating, allocating, copying.
//!
//! Data is written out of place: new bytes go to a new object on the device (`objects/`), then one
//! transaction makes the file point to it. That transaction's journal batch is not written before
//! the data is durable, so a record never points to missing data.
//!
//! Data is read and written outside of transactions and inode locks, because a checkpoint, and with
//! it every other call, may have to wait for these. A hold (`shoal_space::Hold`) on the data being
//! read or written keeps its segment from being reused.

mod copy;
mod fallocate;
mod plan;
mod read;
mod truncate;
mod write;

use crate::intents::Intents;
use crate::objects::Objects;
use crate::orphans::Orphans;
use crate::permissions::Permissions;
use crate::stat::attr_of;
use crate::state::room;
use shoal_base::timing::Call;
use shoal_base::{Ino, Result};

room! {
    /// The contents of files.
    pub struct Files {
        intents: Intents,
        objects: Objects,
        orphans: Orphans,
        permissions: Permissions,
    }
}

impl Files<'_> {
    /// Makes all changes of an inode durable. The journal is strictly ordered, so everything
    /// acknowledged before becomes durable too.
    pub fn fsync(self, ino: Ino, datasync: bool) -> Result<()> {
        let _ = datasync;
        self.0.measured(Call::Fsync, || {
            let inode = self.0.inode(ino)?;
            attr_of(ino, &inode.read().inode)?;
            self.0.sync()
        })
    }
}
