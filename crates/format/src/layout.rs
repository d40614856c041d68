//! Every structure on disk, by its table: what `docs/on-disk-format.md` prints. The tables come
//! from the declarations ([`crate::declare`]), in which every offset is proved.

use crate::declare::Table;
use crate::{
    Geometry, Ptr, attr, batch, checkpoint, claim, dirent, extent, inode, intent, node, orphan,
    root, superblock, usage,
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
];

// A fork always fits the 16-bit lengths, and the largest inode its slot.
const _: () = assert!(shoal_base::limits::INODE_SIZE_MAX < u16::MAX as usize);
// Slots and header are what `node` computes with.
const _: () = assert!(shoal_base::limits::NODE_SIZE <= u16::MAX as usize + 1);
