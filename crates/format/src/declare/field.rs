//! Types of fields: integers, arrays of them, and the newtypes of `shoal_base`.

use shoal_base::{Addr, Ino, Lsn, RootId};

/// A value of fixed length on disk. Integers are little-endian.
pub trait Field: Sized {
    /// Bytes on disk.
    const LEN: usize;
    /// Writes the bytes; `to` must have [`Field::LEN`] bytes.
    fn put(&self, to: &mut [u8]);
    /// Reads [`Field::LEN`] bytes; `None` if they are invalid.
    fn get(from: &[u8]) -> Option<Self>;
    /// The value as text.
    fn text(&self) -> String;
}

macro_rules! integers {
    ($($type:ty)*) => {$(
        impl Field for $type {
            const LEN: usize = size_of::<$type>();
            #[inline]
            fn put(&self, to: &mut [u8]) {
                to.copy_from_slice(&self.to_le_bytes());
            }
            #[inline]
            fn get(from: &[u8]) -> Option<Self> {
                Some(<$type>::from_le_bytes(*from.first_chunk()?))
            }
            fn text(&self) -> String {
                self.to_string()
            }
        }
    )*};
}
integers! { u8 u16 u32 u64 i64 }

macro_rules! newtypes {
    ($($type:ident)*) => {$(
        impl Field for $type {
            const LEN: usize = size_of::<$type>();
            #[inline]
            fn put(&self, to: &mut [u8]) {
                self.0.put(to);
            }
            #[inline]
            fn get(from: &[u8]) -> Option<Self> {
                Some($type(Field::get(from)?))
            }
            fn text(&self) -> String {
                self.0.text()
            }
        }
    )*};
}
newtypes! { Addr Ino Lsn RootId }

macro_rules! odd_integers {
    ($($(#[$doc:meta])* $type:ident($inner:ty) $len:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
        pub struct $type($inner);

        impl $type {
            /// Makes the number; bits above its length are dropped.
            pub const fn new(number: $inner) -> $type {
                $type(number & ((1 << (8 * $len)) - 1))
            }
            /// The number.
            pub const fn get(self) -> $inner {
                self.0
            }
        }

        impl Field for $type {
            const LEN: usize = $len;
            #[inline]
            fn put(&self, to: &mut [u8]) {
                to.copy_from_slice(&self.0.to_le_bytes()[..$len]);
            }
            #[inline]
            fn get(from: &[u8]) -> Option<Self> {
                let mut raw = [0; size_of::<$inner>()];
                raw[..$len].copy_from_slice(from.get(..$len)?);
                Some($type(<$inner>::from_le_bytes(raw)))
            }
            fn text(&self) -> String {
                self.0.to_string()
            }
        }
    )*};
}
odd_integers! {
    /// A three-byte number.
    U24(u32) 3;
    /// A six-byte number.
    U48(u64) 6;
}

/// One byte: 0 or 1.
impl Field for bool {
    const LEN: usize = 1;
    #[inline]
    fn put(&self, to: &mut [u8]) {
        u8::from(*self).put(to);
    }
    #[inline]
    fn get(from: &[u8]) -> Option<Self> {
        match u8::get(from)? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }
    fn text(&self) -> String {
        self.to_string()
    }
}

/// The elements in order.
impl<T: Field + Copy + Default, const N: usize> Field for [T; N] {
    const LEN: usize = N * T::LEN;
    #[inline]
    fn put(&self, to: &mut [u8]) {
        for (value, here) in self.iter().zip(to.chunks_exact_mut(T::LEN)) {
            value.put(here);
        }
    }
    #[inline]
    fn get(from: &[u8]) -> Option<Self> {
        let mut values = [T::default(); N];
        for (value, here) in values.iter_mut().zip(from.chunks_exact(T::LEN)) {
            *value = T::get(here)?;
        }
        Some(values)
    }
    fn text(&self) -> String {
        let texts: Vec<String> = self.iter().map(Field::text).collect();
        format!("[{}]", texts.join(" "))
    }
}
