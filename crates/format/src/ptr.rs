//! Pointers carry the checksum of what they point to, so a lost, torn or misplaced write is found
//! on read, at any level; and the epoch in which it was written, so that what is younger than a
//! mark is found without reading what is not (after ZFS's block pointers with their birth
//! transaction groups).

use crate::codec::{Codec, Coding};
use crate::declare::{U24, layout};
use crate::sums::{Sums, of_object};
use shoal_base::{Addr, Epoch, Error, Result, checksum};
use std::fmt::Display;

layout! {
    /// A pointer: what is there, since when, and the proof.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct Ptr: "pointer", 32 of 32, "Points to any object, and proves what is found there." {
        0 addr: Addr, "byte address, a multiple of 8; its upper 8 bits number a device, which is 0";
        8 birth: Epoch, "epoch in which the object was written";
        16 len: u32, "bytes on the device; 0: points to nothing";
        20 logical: U24, "bytes when decoded";
        23 codec: Codec, "0 none, 1 lz4, 2 zstd";
        24 checksum: u64, "XXH3-64 of the bytes on the device; of plain data, by pieces";
    }
}

impl Ptr {
    /// Points to nothing.
    pub const NULL: Ptr = Ptr::sealed(Addr(0), 0, 0, 0);

    /// Returns the pointer to `bytes`, written to `addr` in epoch `birth`, not coded.
    #[inline]
    pub fn to(addr: Addr, birth: Epoch, bytes: &[u8]) -> Ptr {
        Ptr::sealed(addr, birth, bytes.len() as u32, checksum(bytes))
    }
    /// Returns the pointer to `len` bytes that are not coded and have this checksum.
    #[inline]
    pub const fn sealed(addr: Addr, birth: Epoch, len: u32, checksum: u64) -> Ptr {
        Ptr { addr, birth, len, logical: U24::new(len), codec: Codec::None, checksum }
    }
    /// Returns a pointer for space accounting only: birth and checksum are zero.
    #[inline]
    pub const fn place(addr: Addr, len: u32) -> Ptr {
        Ptr::sealed(addr, 0, len, 0)
    }
    /// The pointer that is all of `value`, and whose fields agree.
    #[inline]
    pub fn of_value(value: &[u8]) -> Option<Ptr> {
        Ptr::load(value.try_into().ok()?).ok().filter(Ptr::is_valid)
    }
    /// Whether it points to nothing.
    #[inline]
    pub fn is_null(&self) -> bool {
        self.len == 0
    }
    /// Returns the pointer to `stored`, whose coding this is, written to `addr` in epoch `birth`.
    #[inline]
    pub fn coded(addr: Addr, birth: Epoch, stored: &[u8], coding: Coding) -> Ptr {
        let Coding { codec, logical, .. } = coding;
        Ptr { codec, logical: U24::new(logical), ..Ptr::to(addr, birth, stored) }
    }
    /// Returns how the object is coded.
    #[inline]
    pub fn coding(&self) -> Coding {
        Coding { codec: self.codec, len: self.len, logical: self.logical.get() }
    }
    /// Returns whether the object is stored in a coded form.
    #[inline]
    pub fn is_coded(&self) -> bool {
        self.codec != Codec::None
    }
    /// Returns whether the object is stored as it is, and the lengths say so.
    #[inline]
    pub fn is_plain(&self) -> bool {
        !self.is_coded() && self.is_valid()
    }
    /// Returns whether its fields agree ([`Coding::is_valid`]).
    #[inline]
    pub fn is_valid(&self) -> bool {
        self.coding().is_valid()
    }
    /// Verifies the whole payload of a data object, as it is stored. Returns the sums of its
    /// pieces; one that is coded has none.
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
    /// Checks the epoch in which an object says that it was written.
    #[inline]
    pub fn verify_birth(&self, written: Epoch, object: impl Display) -> Result<()> {
        if written == self.birth {
            return Ok(());
        }
        let rule = format!("written in epoch {written}, pointer says {}", self.birth);
        Err(Error::corrupt(object.to_string(), Some(self.addr.0), rule))
    }
    /// Checks `bytes`, read from where this points, against length and checksum.
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
