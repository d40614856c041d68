//! The maximum record size of each kind of call, in bytes. A transaction has its kind from the
//! beginning. It is checked at compile time that every record fits in the journal of the smallest
//! volume, and at every commit that the record is not larger than its kind allows.
//!
//! Calls without a natural bound are split into steps, each a separate transaction: fallocate and
//! the removal of extents by records ([`STEP_RECORDS`]), the removal of trees by records and by
//! bytes ([`REAP_TREE`]), writes by MiB. All others change a fixed number of inodes, entries and
//! attributes. The worst inode is the largest that `mkfs` makes, with a literal area of 1,936 bytes
//! full of the shortest attributes or of extent records.

pub(crate) use crate::types::lab::STEP_RECORDS;

use crate::types::RecordSize;
use shoal_base::limits::{EXTENT_MAX, INODE_SIZE_MAX, NAME_MAX, RECORD_MAX};
use shoal_format::attr::{HEADER as ATTR_HEADER, LOCAL_MAX};
use shoal_format::dirent;
use shoal_format::extent::{INLINE_MIN, VALUE_MAX};
use shoal_format::inode::CORE;
use shoal_format::intent;
use shoal_format::item::size;
use shoal_txn::{RecordKind, Store};

/// Maximum extent records that one step of a `fallocate` replaces. Each may be put again, with the
/// checksums of a whole object, followed by one of preallocated space.
pub(crate) const MAP_RECORDS: usize = 1024;
/// Maximum extents of one data object that the cleaner moves in one transaction.
pub(crate) const CLEAN_EXTENTS: usize = 256;
/// Maximum bytes written in one transaction.
pub(crate) const WRITE_STEP: usize = 1 << 20;
/// Number of extent records from which on a change logs their removal as one range.
pub(crate) const RANGE_FROM: usize = 64;

/// Literal area of the largest inode.
const AREA: usize = INODE_SIZE_MAX - CORE;
/// A whole fork.
const FORK: usize = size::fork(AREA);
/// An inserted entry; with another of the same hash, which gets a mark.
const ENTRY: usize = size::tree_put(dirent::HEADER + NAME_MAX);
const ENTRY_ADDED: usize = 2 * ENTRY;
/// An entry that is removed from several of its hash: the last moves into its place, with two
/// marks.
const ENTRY_REMOVED: usize = size::NAMED_MAX + size::TREE_DEL + 3 * ENTRY;
/// The longest attribute: encoded, in the tree, in an intent with another one.
const ATTR: usize = ATTR_HEADER + NAME_MAX + LOCAL_MAX;
const ATTR_PUT: usize = size::tree_put(ATTR);
const INTENT: usize = size::intent(intent::HEADER + 2 * ATTR);
/// An extent record in the tree, and the maximum number in a fork.
const EXTENT_PUT: usize = size::tree_put(VALUE_MAX);
const FORK_EXTENTS: usize = AREA / INLINE_MIN;

/// A change of an extent map in which `new` extents appear, and two keep a part. The records of a
/// fork may move to the tree. Removed records are logged singly below [`RANGE_FROM`], otherwise as
/// a range.
const fn map(new: usize) -> usize {
    FORK + (FORK_EXTENTS + new + 2) * EXTENT_PUT + RANGE_FROM * size::TREE_DEL
}

/// A change of attributes without an intent: the fork is replaced, and data moves out. An intent
/// logged instead is smaller.
pub(crate) const ATTR_CHANGED: usize = FORK + size::fork(0) + map(1) + size::CORE;
/// A record of a step of an intent: the shortest attributes (a name of one byte) move from the
/// inode to the tree, or some move back.
const CHAIN: usize = 2 * FORK
    + AREA / (ATTR_HEADER + 1) * size::tree_put(0)
    + AREA
    + 2 * ATTR_PUT
    + INTENT
    + size::LINKS;
/// An inode is freed, or gets an orphan slot.
const FREED: usize = 2 * size::TREE_DEL_RANGE + size::FREE + size::LINKS + 2 * size::ORPHAN;
/// An inode that is unlinked but open, and in memory only, is logged as a whole.
const TAKEN_BACK: usize = size::CORE + 2 * FORK + size::ORPHAN;

const fn max(a: usize, b: usize) -> usize {
    if a > b { a } else { b }
}

macro_rules! kinds {
    ($($(#[doc = $doc:literal])* $index:literal $name:ident $text:literal = $bytes:expr;)*) => {
        $($(#[doc = $doc])*
        pub(crate) const $name: RecordKind =
            RecordKind::new($index, $text, max(CHAIN, max(TAKEN_BACK, $bytes)));)*
        /// All kinds, by index, with the contents of their records.
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
    /// Several changes of names as one: bounded by its caller, who is told.
    19 BATCH "batch" = RECORD_MAX;
    /// A step of a change of a tree: some inodes, how far it is, perhaps a new unit. Ends before
    /// the inode for which there is no room.
    20 TREE_CHANGE "tree change" = 64 << 10;
    /// A rename that leaves a whiteout: also a new inode with its entry, and what it inherits.
    21 WHITEOUT "rename whiteout" = RENAME.bytes_max as usize + CREATE.bytes_max as usize;
}

/// Bytes that one child adds to the record that empties its directory, without its attributes: its
/// link count decreases, or it is freed or gets an orphan slot.
pub(crate) const CHILD_DROPPED: usize = size::LINKS + FREED;

/// Bytes that the directory itself adds to such a record: the range of its entries, its counts, its
/// own removal.
pub(crate) const STEP_ENDED: usize = size::TREE_DEL_RANGE + size::DIR_TOUCH + FREED;

/// The largest change of one child, and the directory, fit in such a record, so each step makes
/// progress.
const _: () = assert!(CHILD_DROPPED + ATTR_CHANGED + STEP_ENDED < REAP_TREE.bytes_max as usize);

/// Bytes that a step of a change of a tree needs for its state: in the inode of its unit, in that
/// of a new unit, or for the end of the unit.
pub(crate) const UNIT_CHANGED: usize =
    size::LINKS + max(FORK, ATTR_PUT) + size::CORE + 2 * FORK + INTENT + size::ORPHAN + FREED;

/// The largest change of one inode fits in such a record beside the state, so each step makes
/// progress.
const _: () = assert!(SETATTR.bytes_max as usize + UNIT_CHANGED < TREE_CHANGE.bytes_max as usize);

/// Returns the kinds of records, with their limits and the largest so far.
pub(crate) fn sizes(store: &Store) -> Vec<RecordSize> {
    let size = |(kind, text): &(RecordKind, &'static str)| RecordSize {
        name: kind.name,
        text: text.trim(),
        bytes_max: kind.bytes_max,
        bytes_largest: store.record_largest(*kind),
    };
    ALL.iter().map(size).collect()
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
