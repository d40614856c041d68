//! Declaration of on-disk structures, each once. One declaration generates the Rust type, its
//! encoding, its decoding with a check of each field, its text, an assertion of every offset, and
//! its table in `docs/on-disk-format.md`.
//!
//! ```text
//! layout! {
//!     /// Header of a thing.
//!     #[derive(Clone, Copy, PartialEq, Eq, Debug)]
//!     pub struct Head: "thing", 24 of varying, "Text for readers of the document." { 0 magic: u32
//!     = MAGIC, "`STH1`";        a constant: written, checked, not a field 4 kind: Kind, "1 small,
//!     2 large";      a field of any type that implements `Field` 6 reserved[2], "zero";
//!     bytes written as zeros and not read 8 volume: u64, "first half of the volume id"; 16
//!     checksum[8], "of all bytes before"; the same; the structure's code fills them in + name:
//!     Vec<u8>, "its name";           a field of the type that is not in these bytes
//!     }
//! }
//! ```
//!
//! `24 of 24` is a structure of that size, `24 of 4096` the head of one that is 4096 bytes long,
//! `24 of varying` a head followed by data of varying length (names, values, lists), which the
//! module of the structure encodes.
//!
//! `numbered!` declares enumerations with on-disk numbers, `items!` (`item.rs`) the items of the
//! journal.

mod field;
mod table;

pub use field::{Field, U24, U48};
pub use table::{Row, Table};

/// Full length of a structure in a declaration: a number, or 0 for `varying`.
macro_rules! whole {
    (varying) => {
        0
    };
    ($size:literal) => {
        $size
    };
}

/// Declares a structure; see the module documentation.
macro_rules! layout {
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident: $word:literal, $size:literal of $whole:tt, $doc:literal
        { $($body:tt)* }
    ) => {
        $crate::declare::layout! {
            @munch { $(#[$meta])* $vis $name $word $size $whole $doc } [] [] [] [] $($body)*
        }
    };
    // A constant.
    (
        @munch $head:tt [$($field:tt)*] [$($fixed:tt)*] [$($row:tt)*] [$($extra:tt)*]
        $at:literal $f:ident: $type:ty = $value:expr, $what:literal; $($rest:tt)*
    ) => {
        $crate::declare::layout! {
            @munch $head [$($field)*] [$($fixed)* { $at $f $type, $value }]
            [$($row)* { $at $f (<$type as $crate::declare::Field>::LEN) $what }]
            [$($extra)*] $($rest)*
        }
    };
    // A field.
    (
        @munch $head:tt [$($field:tt)*] [$($fixed:tt)*] [$($row:tt)*] [$($extra:tt)*]
        $at:literal $f:ident: $type:ty, $what:literal; $($rest:tt)*
    ) => {
        $crate::declare::layout! {
            @munch $head [$($field)* { $at $f $type, $what }] [$($fixed)*]
            [$($row)* { $at $f (<$type as $crate::declare::Field>::LEN) $what }]
            [$($extra)*] $($rest)*
        }
    };
    // Bytes that are not read.
    (
        @munch $head:tt [$($field:tt)*] [$($fixed:tt)*] [$($row:tt)*] [$($extra:tt)*]
        $at:literal $f:ident[$len:literal], $what:literal; $($rest:tt)*
    ) => {
        $crate::declare::layout! {
            @munch $head [$($field)*] [$($fixed)*] [$($row)* { $at $f ($len) $what }]
            [$($extra)*] $($rest)*
        }
    };
    // A field of the type that is not in these bytes.
    (
        @munch $head:tt [$($field:tt)*] [$($fixed:tt)*] [$($row:tt)*] [$($extra:tt)*]
        + $f:ident: $type:ty, $what:literal; $($rest:tt)*
    ) => {
        $crate::declare::layout! {
            @munch $head [$($field)*] [$($fixed)*] [$($row)*] [$($extra)* { $f $type, $what }]
            $($rest)*
        }
    };
    (
        @munch {
            $(#[$meta:meta])* $vis:vis $name:ident $word:literal $size:literal $whole:tt
            $doc:literal
        }
        [$({ $at:literal $f:ident $type:ty, $what:literal })*]
        [$({ $fixed_at:literal $fixed:ident $fixed_type:ty, $value:expr })*]
        [$({ $row_at:literal $row:ident ($row_len:expr) $row_what:literal })*]
        [$({ $extra:ident $extra_type:ty, $extra_what:literal })*]
    ) => {
        $(#[$meta])*
        $vis struct $name {
            $(#[doc = $what] pub $f: $type,)*
            $(#[doc = $extra_what] pub $extra: $extra_type,)*
        }

        impl $name {
            /// Bytes on disk of the declared part.
            $vis const SIZE: usize = $size;
            /// Its table in the document. The compiler proves every offset.
            $vis const TABLE: $crate::declare::Table = $crate::declare::Table {
                name: $word,
                doc: $doc,
                size: $crate::declare::whole!($whole),
                rows: &[$($crate::declare::Row {
                    at: $row_at, len: $row_len, name: stringify!($row), what: $row_what,
                },)*],
            }
            .proved($size);
            /// Encodes it. Bytes that are not fields are zero.
            #[inline]
            $vis fn store(&self) -> [u8; $size] {
                let mut raw = [0; $size];
                $($crate::declare::Field::put(
                    &{ self.$f },
                    &mut raw[$at..$at + <$type as $crate::declare::Field>::LEN],
                );)*
                $(
                    let value: $fixed_type = $value;
                    let here = $fixed_at..$fixed_at + <$fixed_type as $crate::declare::Field>::LEN;
                    $crate::declare::Field::put(&value, &mut raw[here]);
                )*
                raw
            }
            /// Decodes it.
            ///
            /// # Errors
            /// The name of the first field that is invalid, or of a constant that does not match.
            #[inline]
            $vis fn load(raw: &[u8; $size]) -> std::result::Result<$name, &'static str> {
                $(
                    let len = <$fixed_type as $crate::declare::Field>::LEN;
                    let here = &raw[$fixed_at..$fixed_at + len];
                    let found: Option<$fixed_type> = $crate::declare::Field::get(here);
                    if found != Some($value) {
                        return Err(stringify!($fixed));
                    }
                )*
                Ok($name {
                    $($f: $crate::declare::Field::get(
                        &raw[$at..$at + <$type as $crate::declare::Field>::LEN],
                    )
                    .ok_or(stringify!($f))?,)*
                    $($extra: Default::default(),)*
                })
            }
            /// Appends the encoding.
            #[inline]
            $vis fn append(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.store());
            }
            /// Decodes it from the start of `raw`, which may be longer.
            ///
            /// # Errors
            /// `length` if there are too few bytes; otherwise as [`Self::load`].
            #[inline]
            $vis fn read(raw: &[u8]) -> std::result::Result<$name, &'static str> {
                Self::load(raw.first_chunk().ok_or("length")?)
            }
            /// Every field by name, in one line.
            $vis fn fields_text(&self) -> String {
                let mut text = String::from($word);
                $(
                    text.push_str(concat!(" ", stringify!($f), " "));
                    text.push_str(&$crate::declare::Field::text(&{ self.$f }));
                )*
                text
            }
        }

        impl $crate::declare::Field for $name {
            const LEN: usize = $size;
            #[inline]
            fn put(&self, to: &mut [u8]) {
                to.copy_from_slice(&self.store());
            }
            #[inline]
            fn get(from: &[u8]) -> Option<Self> {
                $name::read(from).ok()
            }
            fn text(&self) -> String {
                format!("({})", self.fields_text())
            }
        }
    };
}

/// Declares an enumeration with on-disk numbers: one byte, or as many as its `repr` has. A number
/// must never be reused.
macro_rules! numbered {
    (
        $(#[$meta:meta])*
        $vis:vis enum $name:ident: $repr:ident {
            $($(#[$variant_meta:meta])* $number:literal $variant:ident,)*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
        #[repr($repr)]
        $vis enum $name { $($(#[$variant_meta])* $variant = $number,)* }

        impl $name {
            /// All variants, by number.
            $vis const ALL: [$name; [$(stringify!($variant)),*].len()] =
                [$($name::$variant,)*];
            /// The variant with this on-disk number.
            #[inline]
            $vis const fn from_number(number: $repr) -> Option<$name> {
                match number {
                    $($number => Some($name::$variant),)*
                    _ => None,
                }
            }
        }

        impl $crate::declare::Field for $name {
            const LEN: usize = size_of::<$repr>();
            #[inline]
            fn put(&self, to: &mut [u8]) {
                (*self as $repr).put(to);
            }
            #[inline]
            fn get(from: &[u8]) -> Option<Self> {
                $name::from_number($crate::declare::Field::get(from)?)
            }
            fn text(&self) -> String {
                format!("{self:?}")
            }
        }
    };
}

pub(crate) use {layout, numbered, whole};

#[cfg(test)]
mod tests;
