//! Little-endian cursors over untrusted bytes. Reading past the end returns `None` and never
//! panics.

use crate::declare::Field;
use shoal_base::checksum::checksum_of_body;

/// Reads fields in order.
#[derive(Clone, Copy)]
pub struct Reader<'a> {
    bytes: &'a [u8],
}

macro_rules! read_int {
    ($name:ident $ty:ty) => {
        /// The next little-endian integer.
        #[inline]
        pub fn $name(&mut self) -> Option<$ty> {
            let (head, tail) = self.bytes.split_first_chunk::<{ size_of::<$ty>() }>()?;
            self.bytes = tail;
            Some(<$ty>::from_le_bytes(*head))
        }
    };
}

impl<'a> Reader<'a> {
    /// A reader at the start of `bytes`.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Self {
        Reader { bytes }
    }
    read_int!(u8 u8);
    read_int!(u16 u16);
    read_int!(u32 u32);
    read_int!(u64 u64);
    /// The next value of this type; `None` if there are too few bytes or they are invalid.
    #[inline]
    pub fn field<T: Field>(&mut self) -> Option<T> {
        T::get(self.take(T::LEN)?)
    }
    /// The next `len` bytes.
    #[inline]
    pub fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.bytes.split_at_checked(len)?;
        self.bytes = tail;
        Some(head)
    }
    /// The bytes not read yet.
    #[inline]
    pub fn rest(&self) -> &'a [u8] {
        self.bytes
    }
    /// Returns whether everything has been read.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

/// Appends fields to a vector.
pub trait Put {
    /// Appends one byte.
    fn put_u8(&mut self, v: u8);
    /// Appends two bytes, little-endian.
    fn put_u16(&mut self, v: u16);
    /// Appends four bytes, little-endian.
    fn put_u32(&mut self, v: u32);
    /// Appends eight bytes, little-endian.
    fn put_u64(&mut self, v: u64);
    /// Appends raw bytes.
    fn put_bytes(&mut self, v: &[u8]);
}

impl Put for Vec<u8> {
    #[inline]
    fn put_u8(&mut self, v: u8) {
        self.push(v);
    }
    #[inline]
    fn put_u16(&mut self, v: u16) {
        self.extend_from_slice(&v.to_le_bytes());
    }
    #[inline]
    fn put_u32(&mut self, v: u32) {
        self.extend_from_slice(&v.to_le_bytes());
    }
    #[inline]
    fn put_u64(&mut self, v: u64) {
        self.extend_from_slice(&v.to_le_bytes());
    }
    #[inline]
    fn put_bytes(&mut self, v: &[u8]) {
        self.extend_from_slice(v);
    }
}

/// Overwrites a field in existing bytes.
#[inline]
pub fn set_at<T: Field>(bytes: &mut [u8], at: usize, value: T) {
    value.put(&mut bytes[at..at + T::LEN]);
}
/// Writes the checksum of all bytes but the last 8 into the last 8.
#[inline]
pub fn seal(bytes: &mut [u8]) {
    let sum = checksum_of_body(bytes);
    set_at(bytes, bytes.len() - 8, sum);
}

/// Returns the `u64` at a fixed offset of a slice, which must be long enough.
#[inline]
pub fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut raw = [0; 8];
    raw.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(raw)
}
/// Returns the `u32` at a fixed offset of a slice, which must be long enough.
#[inline]
pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut raw = [0; 4];
    raw.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(raw)
}
/// Returns the `u16` at a fixed offset of a slice, which must be long enough.
#[inline]
pub fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}
