//! The tables of all on-disk structures, which `docs/on-disk-format.md` prints. They come from the
//! declarations ([`crate::declare`]), which prove every offset.

use crate::declare::Table;
use crate::{
    Geometry, Ptr, attr, batch, bucket, checkpoint, claim, copy_mark, dirent, extent, inode,
    intent, node, orphan, root, superblock, usage,
};

/// All tables, from the outermost structure inwards.
pub const TABLES: &[Table] = &[
    superblock::Superblock::TABLE,
    Geometry::TABLE,
    claim::OwnerClaim::TABLE,
    copy_mark::CopyMark::TABLE,
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
    bucket::object::ObjectHeader::TABLE,
    bucket::object::Piece::TABLE,
    bucket::manifest::ManifestHeader::TABLE,
    bucket::manifest::ObjectEntry::TABLE,
    bucket::manifest::Extent::TABLE,
];

// Structures written in place have their own sectors, and only segment 0 has any.
const _: () = {
    use shoal_base::limits::{SECTOR, SEGMENT_SIZE_MIN};
    let [first, second] = superblock::COPIES;
    let [first_mark, second_mark] = copy_mark::COPIES;
    let places = [
        (first, superblock::BLOCK),
        (second, superblock::BLOCK),
        (claim::ADDR, claim::SIZE),
        (first_mark, copy_mark::SIZE),
        (second_mark, copy_mark::SIZE),
    ];
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
// `node` stores offsets in 16 bits.
const _: () = assert!(shoal_base::limits::NODE_SIZE <= u16::MAX as usize + 1);
