//! For a repair of a volume that nobody else uses: finds the readable inode blocks, and removes the
//! others from `imap`. All of this runs before the first checkpoint, so the rule that only
//! checkpoints change `imap` holds.

use crate::table::{InodeTable, decode_imap};
use shoal_base::{Epoch, Error, Result};
use shoal_format::Ptr;
use shoal_format::inode::{ImapEntry, Inode};
use shoal_tree::Key;
use std::sync::atomic::Ordering;

/// An unreadable inode block.
#[derive(Clone, Debug)]
pub struct LostBlock {
    /// Number of the block in its subvolume.
    pub number: u64,
    /// Pointer to it; null if `imap` does not have one.
    pub ptr: Ptr,
    /// The error.
    pub error: Error,
}

/// The repair of a table: [`InodeTable::salvage`].
#[derive(Clone, Copy)]
pub struct Salvage<'t>(&'t InodeTable);

impl InodeTable {
    /// Returns the calls for a repair.
    #[inline]
    pub fn salvage(&self) -> Salvage<'_> {
        Salvage(self)
    }
}

impl Salvage<'_> {
    /// Reads every block and removes unreadable ones from `imap`, including those that the device
    /// cannot read.
    pub fn drop_unreadable(self, epoch: Epoch) -> Result<Vec<LostBlock>> {
        let mut lost = Vec::new();
        self.0.imap.for_each(Key::MIN, Key::MAX, &mut |key, value| {
            let number = key.hi;
            let (ptr, read) = match decode_imap(value).filter(|_| key.lo == 0) {
                Some((ptr, _)) => (ptr, self.0.read_block(number, ptr).map(|_| ())),
                None => {
                    let object = format!("imap entry of block {number}");
                    (Ptr::NULL, Err(Error::corrupt(object, None, "not a pointer and a mask")))
                }
            };
            match read {
                Ok(()) => {}
                Err(error) if error.is_damage() => {
                    lost.push((key, LostBlock { number, ptr, error }))
                }
                Err(e) => return Err(e),
            }
            Ok(true)
        })?;
        for (key, _) in &lost {
            self.0.imap.delete(*key, epoch)?;
        }
        Ok(lost.into_iter().map(|(_, block)| block).collect())
    }

    /// Enters a block that was found although `imap` has no entry for it. Returns `false` if it is
    /// unreadable, or has an entry by now.
    pub fn adopt(self, number: u64, ptr: Ptr, epoch: Epoch) -> Result<bool> {
        let inodes = match self.0.read_block(number, ptr) {
            Ok(inodes) => inodes,
            Err(e) if e.is_damage() => return Ok(false),
            Err(e) => return Err(e),
        };
        let key = Key::new(number, 0);
        if self.0.imap.get(key, |_| ())?.is_some() {
            return Ok(false);
        }
        let bit = |(i, inode): (usize, &Inode)| u32::from(!inode.core.in_use()) << i;
        let free = inodes.iter().enumerate().map(bit).fold(0, |mask, bit| mask | bit);
        self.0.imap.put(key, &ImapEntry { ptr, free }.store(), epoch)?;
        Ok(true)
    }

    /// Ensures that new blocks get numbers from `next` on.
    pub fn raise_next_block(self, next: u64) {
        self.0.alloc.raise(next);
    }

    /// Sets the number of inodes in use. No other call may run concurrently.
    pub fn set_inodes(self, inodes: u64) {
        self.0.inodes.store(inodes, Ordering::Relaxed);
        self.0.alloc.shards.iter().for_each(|shard| shard.inodes.store(0, Ordering::Relaxed));
    }
}
