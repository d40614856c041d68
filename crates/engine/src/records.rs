//! The largest record of each kind of call, in bytes. A transaction names its kind when it begins;
//! that every one fits in the journal of the smallest volume is checked when this is compiled, and
//! that no call makes a larger one is an invariant of every commit.
//!
//! What could grow without bound is cut into steps, each a transaction of its own: fallocate and
//! the removal of extents by records ([`STEP_RECORDS`]), the removal of trees by records and by
//! bytes ([`REAP_TREE`]), writes by MiB. Everything else touches a fixed number of inodes, entries
//! and attributes. The worst inode is the largest that `mkfs` makes, with a literal area of 1,936
//! bytes full of the shortest attributes or of extent records.

use crate::types::RecordSize;
use crate::volume::Inner;
use shoal_base::limits::{EXTENT_MAX, INODE_SIZE_MAX, NAME_MAX};
use shoal_format::attr::{HEADER as ATTR_HEADER, LOCAL_MAX};
use shoal_format::dirent;
use shoal_format::extent::{INLINE_MIN, VALUE_MAX};
use shoal_format::inode::CORE;
use shoal_format::intent;
use shoal_format::item::size;
use shoal_txn::RecordKind;

/// Extent records that one transaction removes, at most; `OpenOptions::step_records` may
/// say less.
pub(crate) const STEP_RECORDS: usize = 2048;
/// Extent records that one step of a `fallocate` replaces, at most: each may be put again, with the
/// sums of a whole object, and one of preallocated space behind it.
pub(crate) const MAP_RECORDS: usize = 1024;
/// Extents of one data object that the cleaner moves in one transaction, at most.
pub(crate) const CLEAN_EXTENTS: usize = 256;
/// Bytes written in one transaction.
pub(crate) const WRITE_STEP: usize = 1 << 20;
/// Extent records from which a change logs their removal as one range.
pub(crate) const RANGE_FROM: usize = 64;

/// Literal area of the largest inode.
const AREA: usize = INODE_SIZE_MAX - CORE;
/// A whole fork.
const FORK: usize = size::fork(AREA);
/// An entry that is put; with another of the same hash, which gets a mark.
const ENTRY: usize = size::tree_put(dirent::HEADER + NAME_MAX);
const ENTRY_ADDED: usize = 2 * ENTRY;
/// An entry that is removed from among others of its hash: the last takes its place, two marks.
const ENTRY_REMOVED: usize = size::NAMED_MAX + size::TREE_DEL + 3 * ENTRY;
/// The longest attribute: encoded, in the tree, in an intent beside another.
const ATTR: usize = ATTR_HEADER + NAME_MAX + LOCAL_MAX;
const ATTR_PUT: usize = size::tree_put(ATTR);
const INTENT: usize = size::intent(intent::HEADER + 2 * ATTR);
/// An extent record in the tree, and how many a fork holds.
const EXTENT_PUT: usize = size::tree_put(VALUE_MAX);
const FORK_EXTENTS: usize = AREA / INLINE_MIN;

/// A map of extents of which `new` appear, and two keep a part. The records of a fork may go to the
/// tree; those removed are named singly below [`RANGE_FROM`], else as a range.
const fn map(new: usize) -> usize {
    FORK + (FORK_EXTENTS + new + 2) * EXTENT_PUT + RANGE_FROM * size::TREE_DEL
}

/// One change of attributes that takes no intent: the fork is replaced, and data gives way to it.
/// An intent that is logged instead is smaller.
pub(crate) const ATTR_CHANGED: usize = FORK + size::fork(0) + map(1) + size::CORE;
/// A record in the chain of an intent: the shortest attributes (a name of one byte) leave the
/// inode for the tree; or some come back.
const CHAIN: usize = 2 * FORK
    + AREA / (ATTR_HEADER + 1) * size::tree_put(0)
    + AREA
    + 2 * ATTR_PUT
    + INTENT
    + size::LINKS;
/// An inode is freed, or gets a slot.
const FREED: usize = 2 * size::TREE_DEL_RANGE + size::FREE + size::LINKS + 2 * size::ORPHAN;
/// A detached inode is recorded as a whole.
const TAKEN_BACK: usize = size::CORE + 2 * FORK + size::ORPHAN;

const fn max(a: usize, b: usize) -> usize {
    if a > b { a } else { b }
}

macro_rules! kinds {
    ($($(#[doc = $doc:literal])* $index:literal $name:ident $text:literal = $bytes:expr;)*) => {
        $($(#[doc = $doc])*
        pub(crate) const $name: RecordKind =
            RecordKind::new($index, $text, max(CHAIN, max(TAKEN_BACK, $bytes)));)*
        /// Every kind, by index, and what its records hold.
        const ALL: &[(RecordKind, &str)] = &[$(($name, concat!($($doc),*))),*];
    };
}

kinds! {
    /// A new inode with its entry, what it inherits, its target.
    0 CREATE "create" = size::CORE + 2 * FORK + ENTRY_ADDED + size::NAMED_MAX + size::DIR_TOUCH
        + EXTENT_PUT + 3 * INTENT;
    /// A new inode without a name.
    1 TMPFILE "tmpfile" = size::CORE + 2 * FORK + EXTENT_PUT + size::ORPHAN + 3 * INTENT;
    /// A further name; of an `O_TMPFILE` the first.
    2 LINK "link" = ENTRY_ADDED + ATTR_CHANGED + size::LINKS + size::CORE + size::ORPHAN
        + size::DIR_TOUCH;
    /// A name goes, and with the last the inode; also the top of a removed tree.
    3 UNLINK "unlink" = ENTRY_REMOVED + ATTR_CHANGED + size::LINKS + FREED + size::DIR_TOUCH;
    /// Two entries, two inodes and their parent pointers, two directories.
    4 RENAME "rename" = ENTRY_ADDED + ENTRY_REMOVED + size::NAMED_MAX
        + 2 * (ATTR_CHANGED + size::CORE + size::LINKS) + FREED + 2 * size::DIR_TOUCH;
    /// Attributes, a new size, the lists that follow a mode.
    5 SETATTR "setattr" = map(0) + size::fork(0) + 3 * size::CORE + 2 * ATTR_CHANGED
        + 2 * size::ORPHAN;
    /// An extended attribute or access control list is set or removed.
    6 XATTR "xattr" = ATTR_CHANGED + size::CORE;
    /// Up to 1 MiB is written: an object for each window of 128 KiB, or two, and for what was
    /// inline.
    7 WRITE "write" = map(2 * (WRITE_STEP / EXTENT_MAX + 3)) + 2 * size::fork(0) + 2 * size::CORE
        + ATTR_CHANGED;
    /// A step of an allocation, of a hole or of zeros.
    8 FALLOCATE "fallocate" = map(2 * MAP_RECORDS + 1) + 2 * size::fork(0) + 2 * size::CORE
        + ATTR_CHANGED;
    /// A step of a truncate of more than 2,048 records.
    9 TRUNCATE "truncate step" = size::TREE_DEL_RANGE + size::fork(0) + size::CORE + size::ORPHAN;
    /// An access time.
    10 ATIME "atime" = size::CORE;
    /// A subvolume is made.
    11 ROOT_CREATE "root create" = CREATE.bytes_max as usize + size::root(NAME_MAX);
    /// A subvolume is deleted, or has become vacant.
    12 ROOT_DELETE "root delete" = ENTRY_REMOVED + size::root(0) + size::DIR_TOUCH;
    /// A step that frees an unlinked file.
    13 REAP_FILE "reap file" = size::TREE_DEL_RANGE + size::CORE + FREED;
    /// A step that empties a removed directory: ends before the child for which there is no room.
    14 REAP_TREE "reap tree" = 256 << 10;
    /// An inode, or 4,096 entries, of a deleted subvolume.
    15 REAP_ROOT "reap root" = FREED + size::TREE_DEL_RANGE;
    /// Extents of one object are moved by the cleaner.
    16 CLEAN "clean" = max(FORK_EXTENTS * FORK, CLEAN_EXTENTS * 3 * EXTENT_PUT) + ATTR_PUT + FORK
        + size::MOVED;
    /// An intent is completed by recovery.
    17 RECOVERY "recovery" = size::INTENT_DONE;
    /// A parent pointer is written by a repair.
    18 REPAIR "repair" = ATTR_CHANGED;
}

/// What one child costs the record that empties its directory, its attributes apart: its links go
/// down, or it is freed or gets a slot.
pub(crate) const CHILD_DROPPED: usize = size::LINKS + FREED;

/// What the directory itself adds to such a record: the range of its entries, its counts, its end.
pub(crate) const STEP_ENDED: usize = size::TREE_DEL_RANGE + size::DIR_TOUCH + FREED;

/// The largest change of one child, and the directory, fit in such a record: each step gets on.
const _: () = assert!(CHILD_DROPPED + ATTR_CHANGED + STEP_ENDED < REAP_TREE.bytes_max as usize);

impl Inner {
    /// The kinds of records that calls make, with their bounds and the largest so far.
    pub fn record_sizes(&self) -> Vec<RecordSize> {
        let size = |(kind, text): &(RecordKind, &'static str)| RecordSize {
            name: kind.name,
            text: text.trim(),
            bytes_max: kind.bytes_max,
            bytes_largest: self.store.record_largest(*kind),
        };
        ALL.iter().map(size).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_their_place_and_a_name_of_their_own() {
        for (i, (kind, _)) in ALL.iter().enumerate() {
            assert_eq!(usize::from(kind.index), i, "{}", kind.name);
            assert!(ALL[..i].iter().all(|(other, _)| other.name != kind.name), "{}", kind.name);
        }
    }
}
