//! Discard (TRIM) of byte ranges of a block device.

use rustix::fd::AsFd;
use rustix::io::Errno;
use rustix::ioctl::{Setter, ioctl};

/// `BLKDISCARD`: `_IO(0x12, 119)`.
const BLKDISCARD: u32 = 0x1277;

/// Discards a range of a block device. Does nothing if the device does not support it.
pub(crate) fn discard_blocks(file: impl AsFd, offset: u64, len: u64) -> Result<(), Errno> {
    // SAFETY: the request reads two u64 through its pointer: offset and length, as passed here.
    let request = unsafe { Setter::<BLKDISCARD, [u64; 2]>::new([offset, len]) };
    // SAFETY: as above; the kernel writes nothing to our memory.
    match unsafe { ioctl(file, request) } {
        Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOTTY | Errno::NOSYS | Errno::INTR) => Ok(()),
        Err(errno) => Err(errno),
    }
}
