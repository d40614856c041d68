//! Directory entries: values of the `dirents` tree, keyed by directory and name hash. The child's
//! number is relative to the subvolume of the directory ([`Ino::relative_to`]).

use crate::bytes::Put;
use crate::declare::layout;
use crate::node::Key;
use shoal_base::{Ino, RootId, limits};
use xxhash_rust::xxh3::xxh3_64_with_seed;

layout! {
    /// An entry up to its name.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct DirentHeader: "dirent", 9 of varying,
    "Value in the `dirents` tree; the name follows." {
        0 child: Ino, "inode";
        8 kind: u8, "its type, as in `d_type`; bit 7: another name with the same hash follows";
    }
}

/// Bytes of an entry before its name.
pub const HEADER: usize = DirentHeader::SIZE;
/// Bytes of the longest value.
pub const VALUE_MAX: usize = HEADER + limits::NAME_MAX;
/// Offset of the type in a value.
pub const AT_KIND: usize = DirentHeader::TABLE.at("kind");
/// First cookie of an entry. Lower cookies (and key halves) are `.` and `..`.
pub const FIRST_COOKIE: u64 = 0x100;
/// Mask of the suffix in the lowest byte of the key, which distinguishes names whose hashes
/// collide.
pub const SUFFIX_MASK: u64 = 0xff;

/// Returns the lower key half of a name, before its collision suffix. It has 63 bits, because it is
/// also the directory cookie, which the kernel treats as signed.
#[inline]
pub fn name_hash(seed: u64, name: &[u8]) -> u64 {
    let hash = (xxh3_64_with_seed(name, seed) >> 1) & !SUFFIX_MASK;
    hash.max(FIRST_COOKIE)
}

/// First key of a directory's entries.
#[inline]
pub fn first_key(dir: Ino) -> Key {
    Key::of(dir, 0)
}

/// An entry in memory.
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
    /// Appends the value, for a directory of the subvolume `root`.
    #[inline]
    pub fn encode(&self, root: RootId, out: &mut Vec<u8>) {
        let child = Ino(self.child.relative_to(root));
        DirentHeader { child, kind: self.kind }.append(out);
        out.put_bytes(self.name);
    }
    /// Builds the value, for a directory of the subvolume `root`, in `room`. Allocates nothing.
    #[inline]
    pub fn value_in<'b>(&self, root: RootId, room: &'b mut [u8; VALUE_MAX]) -> &'b mut [u8] {
        let (child, len) = (Ino(self.child.relative_to(root)), HEADER + self.name.len());
        room[..HEADER].copy_from_slice(&DirentHeader { child, kind: self.kind }.store());
        room[HEADER..len].copy_from_slice(self.name);
        &mut room[..len]
    }
    /// Decodes a value of a directory of the subvolume `root`; `None` if it is invalid.
    #[inline]
    pub fn decode(root: RootId, raw: &'a [u8]) -> Option<Dirent<'a>> {
        let (head, name) = raw.split_first_chunk()?;
        let DirentHeader { child, kind } = DirentHeader::load(head).ok()?;
        if name.is_empty() || name.len() > limits::NAME_MAX {
            return None;
        }
        Some(Dirent { child: Ino::from_relative(root, child.0), kind, name })
    }
    /// The entry as text, for logs and fsck.
    pub fn to_text(&self) -> String {
        format!("{:?} -> {} type {}", String::from_utf8_lossy(self.name), self.child, self.kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_the_same_tree_in_two_roots_have_the_same_bytes() {
        let encoded = |root: RootId, child: Ino| {
            let mut raw = Vec::new();
            let entry = Dirent { child, kind: 8, name: b"name" };
            entry.encode(root, &mut raw);
            assert_eq!(Dirent::decode(root, &raw), Some(entry));
            raw
        };
        let [a, b] = [RootId(0), RootId(9)];
        assert_eq!(encoded(a, Ino::new(a, 77)), encoded(b, Ino::new(b, 77)));
        assert_ne!(encoded(a, Ino::new(b, 77)), encoded(b, Ino::new(b, 77)));
    }
}
