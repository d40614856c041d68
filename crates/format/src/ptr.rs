//! Pointers carry the checksum of what they point to, so a lost, torn or misplaced write is found
//! on read, at any level.

use crate::bytes::{Put, Reader};
use shoal_base::{Addr, Error, Result, checksum};

/// `{address, length, checksum}` of an object on the device. 24 bytes on disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ptr {
    /// Byte address; a multiple of 8. 0 with length 0: points to nothing.
    pub addr: Addr,
    /// Length of the object in bytes.
    pub len: u32,
    /// XXH3-64 of the object.
    pub checksum: u64,
}

impl Ptr {
    /// Bytes on disk.
    pub const SIZE: usize = 24;
    /// Points to nothing.
    pub const NULL: Ptr = Ptr { addr: Addr(0), len: 0, checksum: 0 };

    /// Whether it points to nothing.
    #[inline]
    pub fn is_null(&self) -> bool {
        self.len == 0
    }
    /// Appends the 24 bytes: address 8, length 4, reserved 4 (zero), checksum 8.
    #[inline]
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.addr.0);
        out.put_u32(self.len);
        out.put_u32(0);
        out.put_u64(self.checksum);
    }
    /// Reads the 24 bytes.
    #[inline]
    pub fn decode(r: &mut Reader<'_>) -> Option<Ptr> {
        let addr = Addr(r.u64()?);
        let len = r.u32()?;
        let _reserved = r.u32()?;
        Some(Ptr { addr, len, checksum: r.u64()? })
    }
    /// Checks `bytes`, read from where this points, against length and checksum.
    pub fn verify(&self, bytes: &[u8], object: &str) -> Result<()> {
        if bytes.len() != self.len as usize {
            let rule = format!("{} bytes read, pointer says {}", bytes.len(), self.len);
            return Err(Error::corrupt(object, Some(self.addr.0), rule));
        }
        let found = checksum(bytes);
        if found != self.checksum {
            let rule = format!("checksum is {found:#018x}, pointer says {:#018x}", self.checksum);
            return Err(Error::corrupt(object, Some(self.addr.0), rule));
        }
        Ok(())
    }
}
