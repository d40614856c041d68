//! Directory entries: values of the `dirents` tree, keyed by directory and hashed name.

use crate::bytes::Put;
use crate::declare::layout;
use crate::node::Key;
use shoal_base::{Ino, limits};
use xxhash_rust::xxh3::xxh3_64_with_seed;

layout! {
    /// An entry before its name.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct DirentHeader: "dirent", 9 of varying,
    "Value in the `dirents` tree; the name follows." {
        0 child: Ino, "inode";
        8 kind: u8, "its type, as in `d_type`; bit 7: another name of the same hash follows";
    }
}

/// Bytes of an entry before its name.
pub const HEADER: usize = DirentHeader::SIZE;
/// Cookies (and key halves) below this are `.` and `..`.
pub const FIRST_COOKIE: u64 = 0x100;
/// Names whose hashes collide are told apart by a suffix in the lowest byte of the key.
pub const SUFFIX_MASK: u64 = 0xff;

/// The lower key half of a name before its collision suffix: 63 bits, so that it can be a
/// directory cookie, which the kernel treats as signed.
#[inline]
pub fn name_hash(seed: u64, name: &[u8]) -> u64 {
    let hash = (xxh3_64_with_seed(name, seed) >> 1) & !SUFFIX_MASK;
    hash.max(FIRST_COOKIE)
}

/// First key of a directory's entries.
#[inline]
pub fn first_key(dir: Ino) -> Key {
    Key::new(dir.0, 0)
}

/// An entry as stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dirent<'a> {
    /// Child inode.
    pub child: Ino,
    /// Type of the child, as in `DT_*`.
    pub kind: u8,
    /// Name.
    pub name: &'a [u8],
}

impl<'a> Dirent<'a> {
    /// Appends the value.
    #[inline]
    pub fn encode(&self, out: &mut Vec<u8>) {
        DirentHeader { child: self.child, kind: self.kind }.append(out);
        out.put_bytes(self.name);
    }
    /// Reads a value; `None` when it is not one.
    #[inline]
    pub fn decode(raw: &'a [u8]) -> Option<Dirent<'a>> {
        let (head, name) = raw.split_first_chunk()?;
        let DirentHeader { child, kind } = DirentHeader::load(head).ok()?;
        if name.is_empty() || name.len() > limits::NAME_MAX {
            return None;
        }
        Some(Dirent { child, kind, name })
    }
    /// For logs and fsck.
    pub fn to_text(&self) -> String {
        format!("{:?} -> {} type {}", String::from_utf8_lossy(self.name), self.child, self.kind)
    }
}
