//! Limits of the format, in one place, each proved against the others at compile time.

/// Longest name of a directory entry, in bytes (POSIX `NAME_MAX`).
pub const NAME_MAX: usize = 255;
/// Longest path in one call, in bytes (POSIX `PATH_MAX`), and longest symlink target.
pub const PATH_MAX: usize = 4096;
/// Symlinks followed in one path walk before `ELOOP`.
pub const SYMLOOP_MAX: usize = 40;
/// Bytes of a B+tree node, on disk and in memory.
pub const NODE_SIZE: usize = 16 * 1024;
/// Inodes in one inode block.
pub const INODES_PER_BLOCK: usize = 32;
/// Inode blocks that a root can have: as many as its 48 bits of inode number reach.
pub const INODE_BLOCKS_MAX: u64 = (crate::Ino::INDEX_MASK + 1) / INODES_PER_BLOCK as u64;
/// Largest epoch, LSN and sequence number that a volume is opened with: none comes so far by
/// counting, and there is room to go on.
pub const COUNT_MAX: u64 = u64::MAX >> 1;
/// Smallest and largest inode size that `mkfs` accepts, in bytes (a power of two between them).
pub const INODE_SIZE_MIN: usize = 256;
/// Largest inode size.
pub const INODE_SIZE_MAX: usize = 2048;
/// Default inode size.
pub const INODE_SIZE_DEFAULT: usize = 512;
/// Longest data extent, in bytes.
pub const EXTENT_MAX: usize = 128 * 1024;
/// Largest file size.
pub const FILE_SIZE_MAX: u64 = i64::MAX as u64;
/// Default segment size, in bytes.
pub const SEGMENT_SIZE_DEFAULT: u64 = 4 << 20;
/// Smallest segment: must hold the largest object with room to spare.
pub const SEGMENT_SIZE_MIN: u64 = 1 << 20;
/// Largest segment.
pub const SEGMENT_SIZE_MAX: u64 = 64 << 20;
/// Smallest volume, in segments: superblocks, journal, two generations of metadata, data, reserve.
pub const SEGMENTS_MIN: u64 = 16;
/// Largest volume, in segments: 16 TiB of the smallest ones, 1 PiB of the largest. An open volume
/// keeps some 50 bytes of each in memory, whether it is in use or not.
pub const SEGMENTS_MAX: u32 = 1 << 24;
/// Largest value that a tree can hold; larger ones go to data extents.
pub const TREE_VALUE_MAX: usize = 2048;
/// Largest number of links to one inode.
pub const LINK_MAX: u32 = u32::MAX;
/// Unit in which objects are placed on the device, in bytes.
pub const ALIGN: usize = 8;
/// Bytes that a device writes, tears and loses as one, at most. What a flush has made durable never
/// shares a sector with what is written afterwards.
pub const SECTOR: u64 = 4096;
/// Journal batches are padded to whole sectors.
pub const JOURNAL_ALIGN: usize = SECTOR as usize;

/// Largest record that a transaction may make, in bytes: fits in a journal batch of the smallest
/// segments, half of one with its header. No kind of call makes a larger one (the engine's
/// `records.rs` has the table).
pub const RECORD_MAX: usize = SEGMENT_SIZE_MIN as usize / 2 - JOURNAL_ALIGN;

// A leaf must hold at least four of the largest values, or splitting could fail.
const _: () = assert!(TREE_VALUE_MAX * 4 < NODE_SIZE);
// The largest dirent value (name + header) fits in a tree value.
const _: () = assert!(NAME_MAX + 64 < TREE_VALUE_MAX);
// A block of the largest inodes, and the largest extent with its header, fit in the smallest
// segment.
const _: () = assert!((INODES_PER_BLOCK * INODE_SIZE_MAX) as u64 * 4 < SEGMENT_SIZE_MIN);
const _: () = assert!((EXTENT_MAX as u64 + 4096) * 4 < SEGMENT_SIZE_MIN);
const _: () = assert!(SECTOR.is_power_of_two() && ALIGN.is_power_of_two());
const _: () = assert!(SEGMENT_SIZE_MIN.is_multiple_of(SECTOR));
