//! Pointers with the checksum of their target, so that a lost, torn or misplaced write is detected
//! on read, at any level; and with the epoch in which the target was written, so that objects newer
//! than a given epoch are found without reading older ones (after ZFS's block pointers with birth
//! transaction groups).

use crate::codec::{Codec, Coding};
use crate::declare::{U24, layout};
use crate::sums::{Sums, of_object};
use shoal_base::{Addr, Epoch, Error, Result, checksum};
use std::fmt::Display;

layout! {
    /// A pointer: address, epoch and checksum of an object.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct Ptr: "pointer", 32 of 32,
    "Points to any object, with the checksum that verifies it." {
        0 addr: Addr,
           "byte address, a multiple of 8; its upper 8 bits are a device number, always 0";
        8 birth: Epoch, "epoch in which the object was written";
        16 len: u32, "bytes on the device; 0: null";
        20 logical: U24, "decoded bytes";
        23 codec: Codec, "0 none, 1 lz4, 2 zstd";
        24 checksum: u64, "XXH3-64 of the bytes on the device; for uncompressed data, by pieces";
    }
}

impl Ptr {
    /// The null pointer.
    pub const NULL: Ptr = Ptr::sealed(Addr(0), 0, 0, 0);

    /// Returns the pointer to `bytes`, written to `addr` in epoch `birth`, uncompressed.
    #[inline]
    pub fn to(addr: Addr, birth: Epoch, bytes: &[u8]) -> Ptr {
        Ptr::sealed(addr, birth, bytes.len() as u32, checksum(bytes))
    }
    /// Returns the pointer to `len` uncompressed bytes with this checksum.
    #[inline]
    pub const fn sealed(addr: Addr, birth: Epoch, len: u32, checksum: u64) -> Ptr {
        Ptr { addr, birth, len, logical: U24::new(len), codec: Codec::None, checksum }
    }
    /// Returns a pointer for space accounting only: birth and checksum are zero.
    #[inline]
    pub const fn place(addr: Addr, len: u32) -> Ptr {
        Ptr::sealed(addr, 0, len, 0)
    }
    /// Decodes the pointer that fills `value`; `None` if its fields contradict each other.
    #[inline]
    pub fn of_value(value: &[u8]) -> Option<Ptr> {
        Ptr::load(value.try_into().ok()?).ok().filter(Ptr::is_valid)
    }
    /// Returns whether it is null.
    #[inline]
    pub fn is_null(&self) -> bool {
        self.len == 0
    }
    /// Returns the pointer to `stored`, which has this coding, written to `addr` in epoch `birth`.
    #[inline]
    pub fn coded(addr: Addr, birth: Epoch, stored: &[u8], coding: Coding) -> Ptr {
        let Coding { codec, logical, .. } = coding;
        Ptr { codec, logical: U24::new(logical), ..Ptr::to(addr, birth, stored) }
    }
    /// Returns the coding of the object.
    #[inline]
    pub fn coding(&self) -> Coding {
        Coding { codec: self.codec, len: self.len, logical: self.logical.get() }
    }
    /// Returns whether the object is compressed.
    #[inline]
    pub fn is_coded(&self) -> bool {
        self.codec != Codec::None
    }
    /// Returns whether the object is uncompressed, with matching lengths.
    #[inline]
    pub fn is_plain(&self) -> bool {
        !self.is_coded() && self.is_valid()
    }
    /// Returns whether its fields are consistent ([`Coding::is_valid`]).
    #[inline]
    pub fn is_valid(&self) -> bool {
        self.coding().is_valid()
    }
    /// Verifies the whole stored payload of a data object. Returns the checksums of its pieces; a
    /// compressed object has none.
    ///
    /// # Errors
    /// Corruption, if the length or the checksum differs.
    pub fn verify_payload(&self, payload: &[u8], object: impl Display) -> Result<Sums> {
        let (found, sums) = match self.codec {
            Codec::None => of_object(payload),
            _ => (checksum(payload), Sums::NONE),
        };
        if payload.len() == self.len as usize && found == self.checksum {
            return Ok(sums);
        }
        let rule = format!("checksum is {found:#018x}, pointer says {:#018x}", self.checksum);
        Err(Error::corrupt(object.to_string(), Some(self.addr.0), rule))
    }
    /// Verifies the epoch that an object records as its write.
    #[inline]
    pub fn verify_birth(&self, written: Epoch, object: impl Display) -> Result<()> {
        if written == self.birth {
            return Ok(());
        }
        let rule = format!("written in epoch {written}, pointer says {}", self.birth);
        Err(Error::corrupt(object.to_string(), Some(self.addr.0), rule))
    }
    /// Verifies `bytes`, read from the target, against length and checksum.
    pub fn verify(&self, bytes: &[u8], object: impl Display) -> Result<()> {
        if bytes.len() != self.len as usize {
            let rule = format!("{} bytes read, pointer says {}", bytes.len(), self.len);
            return Err(Error::corrupt(object.to_string(), Some(self.addr.0), rule));
        }
        let found = checksum(bytes);
        if found != self.checksum {
            let rule = format!("checksum is {found:#018x}, pointer says {:#018x}", self.checksum);
            return Err(Error::corrupt(object.to_string(), Some(self.addr.0), rule));
        }
        Ok(())
    }
}
