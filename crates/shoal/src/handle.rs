//! Names of files that survive renames and restarts.

use crate::raw::{self, Attr, Generation, Ino};

/// A file or directory by inode number and generation, as `name_to_handle_at` returns it. It stays
/// valid when the file is renamed and when the volume is opened again, and no other file ever gets
/// it. It grants no rights: opening it checks the credentials.
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
