//! Names of files that survive renames and restarts.

use crate::error::{Doing, Error, Result};
use crate::raw::{self, Attr, Code, Generation, Ino};
use std::fmt;
use std::str::FromStr;

/// A file or directory by inode number and generation, as `name_to_handle_at` returns it. It stays
/// valid when the file is renamed and when the volume is opened again, and no other file ever gets
/// it. It grants no rights: opening it checks the credentials.
///
/// As text it is the two numbers in decimal: `4711.3`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Handle(pub(crate) raw::Handle);

impl Handle {
    pub(crate) fn of(attr: &Attr) -> Handle {
        Handle(raw::Handle { ino: attr.ino, generation: attr.generation })
    }

    /// Inode number.
    pub fn ino(&self) -> Ino {
        self.0.ino
    }

    /// The handle as bytes, for storing.
    pub fn to_bytes(self) -> [u8; 12] {
        let mut bytes = [0; 12];
        bytes[..8].copy_from_slice(&self.0.ino.0.to_le_bytes());
        bytes[8..].copy_from_slice(&self.0.generation.0.to_le_bytes());
        bytes
    }

    /// A handle from its bytes. Any bytes make one; opening it fails if no file has it.
    pub fn from_bytes(bytes: [u8; 12]) -> Handle {
        let [a, b, c, d, e, f, g, h, w, x, y, z] = bytes;
        Handle(raw::Handle {
            ino: Ino(u64::from_le_bytes([a, b, c, d, e, f, g, h])),
            generation: Generation(u32::from_le_bytes([w, x, y, z])),
        })
    }
}

impl fmt::Display for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0.ino.0, self.0.generation.0)
    }
}

impl FromStr for Handle {
    type Err = Error;

    /// # Errors
    /// `InvalidInput` if the text is no handle.
    fn from_str(text: &str) -> Result<Handle> {
        let numbers = text.split_once('.').and_then(|(ino, generation)| {
            let (ino, generation) = (Ino(ino.parse().ok()?), Generation(generation.parse().ok()?));
            Some(Handle(raw::Handle { ino, generation }))
        });
        let message = || raw::Error::refused(Code::Invalid, format!("\"{text}\" is no handle"));
        numbers.ok_or_else(message).done("read handle")
    }
}
