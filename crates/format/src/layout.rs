//! Every structure on disk, by its table: what `docs/on-disk-format.md` prints. The tables come
//! from the declarations ([`crate::declare`]), in which every offset is proved.

use crate::declare::Table;
use crate::{
    Geometry, Ptr, attr, batch, checkpoint, claim, dirent, extent, flush, inode, intent, node,
    orphan, root, superblock, usage,
};

/// All of them, from the outside in.
pub const TABLES: &[Table] = &[
    superblock::Superblock::TABLE,
    Geometry::TABLE,
    claim::OwnerClaim::TABLE,
    Ptr::TABLE,
    checkpoint::Checkpoint::TABLE,
    usage::RootHead::TABLE,
    usage::IndexHead::TABLE,
    usage::PageHead::TABLE,
    usage::UsageEntry::TABLE,
    usage::Total::TABLE,
    root::PagePtr::TABLE,
    root::RootPage::TABLE,
    root::RootRecord::TABLE,
    node::NodeHeader::TABLE,
    node::Slot::TABLE,
    inode::ImapEntry::TABLE,
    inode::BlockHeader::TABLE,
    inode::Core::TABLE,
    inode::Stamp::TABLE,
    dirent::DirentHeader::TABLE,
    attr::AttrHeader::TABLE,
    attr::Link::TABLE,
    extent::Extent::TABLE,
    extent::DataHeader::TABLE,
    intent::Intent::TABLE,
    intent::OpenHeader::TABLE,
    batch::BatchHeader::TABLE,
    orphan::ListHeader::TABLE,
    orphan::BlockHeader::TABLE,
    flush::FlushHeader::TABLE,
    flush::FlushRange::TABLE,
];

// What is written in place is in sectors of its own; no segment but the first has any.
const _: () = {
    use shoal_base::limits::{SECTOR, SEGMENT_SIZE_MIN};
    let [first, second] = superblock::COPIES;
    let places =
        [(first, superblock::BLOCK), (second, superblock::BLOCK), (claim::ADDR, claim::SIZE)];
    let (mut n, mut end) = (0, 0);
    while n < places.len() {
        let (at, len) = places[n];
        assert!(at.is_multiple_of(SECTOR) && len as u64 == SECTOR && at >= end);
        end = at + len as u64;
        n += 1;
    }
    assert!(end <= SEGMENT_SIZE_MIN && superblock::SIZE <= superblock::BLOCK);
};
// A fork always fits the 16-bit lengths, and the largest inode its slot.
const _: () = assert!(shoal_base::limits::INODE_SIZE_MAX < u16::MAX as usize);
// Slots and header are what `node` computes with.
const _: () = assert!(shoal_base::limits::NODE_SIZE <= u16::MAX as usize + 1);
