//! Limits of the format, each proved against the others at compile time.

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
/// Largest number of inode blocks in a subvolume: all that 48 bits of inode number reach.
pub const INODE_BLOCKS_MAX: u64 = (crate::Ino::INDEX_MASK + 1) / INODES_PER_BLOCK as u64;
/// Largest epoch, LSN and sequence number with which a volume is opened. Counting never gets this
/// far, and there is room above it.
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
/// Smallest segment size, in bytes. Must hold several of the largest objects.
pub const SEGMENT_SIZE_MIN: u64 = 1 << 20;
/// Largest segment size, in bytes.
pub const SEGMENT_SIZE_MAX: u64 = 64 << 20;
/// Smallest volume, in segments: superblocks, journal, two generations of metadata, data, reserve.
pub const SEGMENTS_MIN: u64 = 16;
/// Largest volume, in segments: 16 TiB of the smallest segments, 1 PiB of the largest. An open
/// volume keeps about 50 bytes per segment in memory, used or not.
pub const SEGMENTS_MAX: u32 = 1 << 24;
/// Longest value that a tree can hold, in bytes. Longer values go to data extents.
pub const TREE_VALUE_MAX: usize = 2048;
/// Largest number of links to one inode.
pub const LINK_MAX: u32 = u32::MAX;
/// Unit in which objects are placed on the device, in bytes.
pub const ALIGN: usize = 8;
/// Largest unit, in bytes, that a device writes, tears and loses as a whole. Data made durable by a
/// flush must never share a sector with data written later.
pub const SECTOR: u64 = 4096;
/// Journal batches are padded to whole sectors.
pub const JOURNAL_ALIGN: usize = SECTOR as usize;

/// Longest record of a transaction, in bytes. Fits in half a journal batch of the smallest segment
/// size, with its header. No call makes a longer one (table in the engine's `records.rs`).
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
