//! For a repair, of a volume that nobody else uses: which inode blocks can be read, and `imap`
//! without those that cannot. Everything here runs before the first checkpoint, so that the rule
//! that checkpoints alone change `imap` stands.

use crate::table::{InodeTable, decode_imap};
use shoal_base::{Epoch, Error, Result};
use shoal_format::Ptr;
use shoal_format::inode::{ImapEntry, Inode};
use shoal_tree::Key;
use std::sync::atomic::Ordering;

/// An inode block that cannot be read.
#[derive(Clone, Debug)]
pub struct LostBlock {
    /// Number of the block in its root.
    pub number: u64,
    /// Where it should be; null when `imap` does not say.
    pub ptr: Ptr,
    /// What is wrong with it.
    pub error: Error,
}

impl InodeTable {
    /// Reads every block and takes those that cannot be read, also those that the device fails to
    /// read, out of `imap`.
    pub fn drop_unreadable(&self, epoch: Epoch) -> Result<Vec<LostBlock>> {
        let mut lost = Vec::new();
        self.imap.for_each(Key::MIN, Key::MAX, &mut |key, value| {
            let number = key.hi;
            let (ptr, read) = match decode_imap(value).filter(|_| key.lo == 0) {
                Some((ptr, _)) => (ptr, self.read_block(number, ptr).map(|_| ())),
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
            self.imap.delete(*key, epoch)?;
        }
        Ok(lost.into_iter().map(|(_, block)| block).collect())
    }

    /// Enters a block that was found although `imap` does not name it. `false`: it cannot be read,
    /// or has been named meanwhile.
    pub fn adopt(&self, number: u64, ptr: Ptr, epoch: Epoch) -> Result<bool> {
        let inodes = match self.read_block(number, ptr) {
            Ok(inodes) => inodes,
            Err(e) if e.is_damage() => return Ok(false),
            Err(e) => return Err(e),
        };
        let key = Key::new(number, 0);
        if self.imap.get(key, |_| ())?.is_some() {
            return Ok(false);
        }
        let bit = |(i, inode): (usize, &Inode)| u32::from(!inode.core.in_use()) << i;
        let free = inodes.iter().enumerate().map(bit).fold(0, |mask, bit| mask | bit);
        self.imap.put(key, &ImapEntry { ptr, free }.store(), epoch)?;
        Ok(true)
    }

    /// Numbers are given out behind this block at the earliest.
    pub fn raise_next_block(&self, next: u64) {
        self.alloc.raise(next);
    }

    /// There are as many inodes in use, and no call runs beside this one.
    pub fn set_inodes(&self, inodes: u64) {
        self.inodes.store(inodes, Ordering::Relaxed);
        self.alloc.shards.iter().for_each(|shard| shard.inodes.store(0, Ordering::Relaxed));
    }
}
