//! Pointers carry the checksum of what they point to, so a lost, torn or misplaced write is found
//! on read, at any level; and the epoch in which it was written, so that what is younger than a
//! mark is found without reading what is not (after ZFS's block pointers with their birth
//! transaction groups).

use crate::declare::{U24, layout, numbered};
use crate::sums::{Sums, of_object};
use shoal_base::{Addr, Epoch, Error, Result, checksum};
use std::fmt::Display;

numbered! {
    /// How an object's bytes are coded.
    #[derive(Default)]
    pub enum Codec: u8 {
        /// As they are.
        #[default]
        0 None,
    }
}

layout! {
    /// A pointer: what is there, since when, and the proof.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct Ptr: "pointer", 32 of 32, "Points to any object, and proves what is found there." {
        0 addr: Addr, "byte address, a multiple of 8; its upper 8 bits number a device, which is 0";
        8 birth: Epoch, "epoch in which the object was written";
        16 len: u32, "bytes on the device; 0: points to nothing";
        20 logical: U24, "bytes when decoded";
        23 codec: Codec, "0 none";
        24 checksum: u64, "XXH3-64 of the bytes on the device";
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
    /// Whether its fields agree: bytes that are not coded are as many as on the device.
    #[inline]
    pub fn is_valid(&self) -> bool {
        let Codec::None = self.codec;
        self.len == self.logical.get()
    }
    /// Verifies the whole payload of a data object. Returns the sums of its pieces.
    ///
    /// # Errors
    /// Corruption, if the length or the checksum differs.
    pub fn verify_payload(&self, payload: &[u8], object: impl Display) -> Result<Sums> {
        let (found, sums) = of_object(payload);
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
