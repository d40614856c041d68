//! Keys and rows: the bytes that every engine stores.
//!
//! | table | key | value |
//! | --- | --- | --- |
//! | entries | directory, 8 bytes; name, 40 | inode, 8 bytes; type, 1 |
//! | parents | inode, 8 bytes; directory, 8; name, 40 | |
//! | inodes | inode, 8 bytes | row of 200 bytes, which begins with mtime and size |
//!
//! Numbers are big-endian, so that the order of the bytes is that of the numbers. Names are in
//! random order. In SQLite, and in Shoal, the same fields have the form that it has for them.

/// Bytes of a name.
pub(crate) const NAME_BYTES: usize = 40;
/// A name.
pub(crate) type Name = [u8; NAME_BYTES];
/// Key of a directory entry.
pub(crate) type EntryKey = [u8; 8 + NAME_BYTES];
/// Value of a directory entry.
pub(crate) type EntryValue = [u8; 9];
/// Key of a parent pointer.
pub(crate) type ParentKey = [u8; 16 + NAME_BYTES];
/// Key of an inode.
pub(crate) type InodeKey = [u8; 8];
/// Row of an inode.
pub(crate) type Row = [u8; 200];

/// Files of a directory.
pub(crate) const FILES_PER_DIR: u64 = 1000;
/// Type of a regular file, in an entry.
const TYPE_FILE: u8 = 8;
/// Inode number of the first file. Directories are below.
const FIRST_FILE: u64 = 1 << 32;

/// A file to create.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewFile {
    pub name: Name,
    /// Its inode number, for engines that have none of their own.
    pub ino: u64,
}

impl NewFile {
    /// The file of this index. Its name is a mixed index in hexadecimal, and the same end for all.
    #[inline]
    pub(crate) fn of(index: u64) -> NewFile {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut name = *b"0000000000000000.M77131P4242Q9.host.mail";
        let mixed = mix(index);
        for (place, digit) in name.iter_mut().take(16).enumerate() {
            *digit = DIGITS[(mixed >> (60 - 4 * place) & 15) as usize];
        }
        NewFile { name, ino: FIRST_FILE + index }
    }
}

/// Mixes a number's bits, so that no two numbers give the same (the end of SplitMix64).
fn mix(index: u64) -> u64 {
    let mut mixed = index.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Key of an entry.
#[inline]
pub(crate) fn entry_key(dir: u64, name: &Name) -> EntryKey {
    let mut key = [0; size_of::<EntryKey>()];
    key[..8].copy_from_slice(&dir.to_be_bytes());
    key[8..].copy_from_slice(name);
    key
}

/// Value of an entry: a regular file.
#[inline]
pub(crate) fn entry_value(ino: u64) -> EntryValue {
    let mut value = [TYPE_FILE; size_of::<EntryValue>()];
    value[..8].copy_from_slice(&ino.to_be_bytes());
    value
}

/// Key of a parent pointer.
#[inline]
pub(crate) fn parent_key(ino: u64, dir: u64, name: &Name) -> ParentKey {
    let mut key = [0; size_of::<ParentKey>()];
    key[..8].copy_from_slice(&ino.to_be_bytes());
    key[8..16].copy_from_slice(&dir.to_be_bytes());
    key[16..].copy_from_slice(name);
    key
}

/// Key of an inode, and the first bytes of other keys.
#[inline]
pub(crate) fn inode_key(number: u64) -> InodeKey {
    number.to_be_bytes()
}

/// Row of a new inode. Bytes that are no field are not zero, as the other times, the owner and the
/// permissions of an inode would not be.
#[inline]
pub(crate) fn new_row(now_ns: u64) -> Row {
    let mut row = [0x5a; size_of::<Row>()];
    row[..8].copy_from_slice(&now_ns.to_be_bytes());
    row[8..16].fill(0);
    row
}

/// Changes a directory's row for one more entry: mtime and size.
#[inline]
pub(crate) fn add_entry(row: &mut Row, now_ns: u64) {
    let size = number_at(row, 8) + 1;
    row[..8].copy_from_slice(&now_ns.to_be_bytes());
    row[8..16].copy_from_slice(&size.to_be_bytes());
}

/// The number at an offset of a key, a value or a row; 0 where it is too short.
#[inline]
pub(crate) fn number_at(bytes: &[u8], offset: usize) -> u64 {
    bytes.get(offset..).and_then(<[u8]>::first_chunk).copied().map_or(0, u64::from_be_bytes)
}

/// The name at the end of a key.
pub(crate) fn name_of(key: &[u8]) -> Option<Name> {
    key.last_chunk().copied()
}
