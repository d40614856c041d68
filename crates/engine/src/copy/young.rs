//! The blocks of a volume that were written since an epoch, and are in use.

use super::Source;
use crate::objects::inline_extents;
use shoal_base::{Addr, Epoch, Error, Ino, Result, limits};
use shoal_format::Ptr;
use shoal_format::attr::Attr;
use shoal_format::checkpoint::{RootRecord, RootState};
use shoal_format::extent::{Extent, HEADER};
use shoal_format::inode::{Form, Inode};
use shoal_format::node::{Key, TreeId};
use shoal_format::superblock::{backup_copy_of, backup_superblock_at};
use shoal_tree::Met;
use shoal_txn::{Image, remote_extents};
use std::collections::BTreeMap;
use std::ops::Range;

/// Bytes of a block: no write to a device is smaller.
pub(super) const BLOCK: u64 = limits::SECTOR;

/// A set of blocks.
#[derive(Default)]
pub(super) struct Blocks {
    /// A bit for each block of a segment, by segment.
    segments: BTreeMap<u32, Box<[u64]>>,
}

impl Blocks {
    /// Adds the blocks of a range, which must be within a segment.
    fn add(&mut self, range: Range<u64>, segment_size: u64) {
        let segment = (range.start / segment_size) as u32;
        let words = (segment_size / BLOCK).div_ceil(64) as usize;
        let bits = self.segments.entry(segment).or_insert_with(|| vec![0; words].into());
        let within = |at: u64| at - u64::from(segment) * segment_size;
        for block in within(range.start) / BLOCK..within(range.end).div_ceil(BLOCK) {
            if let Some(word) = bits.get_mut(block as usize / 64) {
                *word |= 1 << (block % 64);
            }
        }
    }

    /// Returns the blocks of each segment, in the order of their numbers.
    pub(super) fn by_segment(self) -> impl Iterator<Item = (u32, Box<[u64]>)> {
        self.segments.into_iter()
    }
}

/// Returns the ranges of a segment that these bits name, with gaps of up to `gap` bytes, in bytes
/// from its start.
pub(super) fn runs(bits: &[u64], gap: u64) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    for (n, word) in bits.iter().enumerate() {
        let mut left = *word;
        while left != 0 {
            let start = (n as u64 * 64 + u64::from(left.trailing_zeros())) * BLOCK;
            left &= left - 1;
            match runs.last_mut() {
                Some(last) if start - last.end <= gap => last.end = start + BLOCK,
                _ => runs.push(start..start + BLOCK),
            }
        }
    }
    runs
}

/// Finds the blocks of everything that was written in epoch `since` or later.
pub(super) fn find(source: &Source, since: Epoch) -> Result<Blocks> {
    source.volume.state.store.checkpoints().with_newest(|image| {
        let mut finder = Finder { source, since, blocks: Blocks::default() };
        finder.tables(image)?;
        for page in 0..image.checkpoint.pages.len() {
            let geometry = &source.superblock.geometry;
            for root in image.read_roots(&*source.device, geometry, page)? {
                if root.state != RootState::Vacant {
                    finder.root(&root)?;
                }
            }
        }
        Ok(finder.blocks)
    })
}

struct Finder<'a> {
    source: &'a Source,
    since: Epoch,
    blocks: Blocks,
}

impl Finder<'_> {
    /// Adds bytes that something points to. A pointer with a valid checksum may be wrong too.
    fn bytes(&mut self, addr: u64, len: u64) -> Result<()> {
        let geometry = &self.source.superblock.geometry;
        if !geometry.contains(Addr(addr), len) {
            let rule = format!("a pointer to {len} bytes outside any segment: run shoal fsck");
            return Err(Error::corrupt("volume to be copied", Some(addr), rule));
        }
        self.blocks.add(addr..addr + len, geometry.segment_size);
        Ok(())
    }

    fn object(&mut self, ptr: Ptr) -> Result<()> {
        match ptr.birth >= self.since {
            true => self.bytes(ptr.addr.0, ptr.len.into()),
            false => Ok(()),
        }
    }

    /// Adds a data object, with its header.
    fn data(&mut self, extent: &Extent) -> Result<()> {
        let ptr = extent.ptr;
        if extent.is_prealloc() || ptr.birth < self.since {
            return Ok(());
        }
        self.bytes(ptr.addr.0.saturating_sub(HEADER as u64), HEADER as u64 + u64::from(ptr.len))
    }

    /// Adds the structures that exist once per volume, with the copies for a repair.
    fn tables(&mut self, image: &Image) -> Result<()> {
        let mut added = Ok(());
        image.for_each_object(&mut |_, ptr| {
            if added.is_ok() {
                added = self.object(ptr);
            }
        });
        added?;
        let at = backup_superblock_at(image.at);
        let end =
            backup_copy_of(image.at).map_or(at + BLOCK, |copy| copy.addr.0 + u64::from(copy.len));
        let start = image.at.addr.0;
        self.bytes(start, end.saturating_sub(start))
    }

    fn root(&mut self, record: &RootRecord) -> Result<()> {
        for id in TreeId::ALL {
            self.tree(record, id)?;
        }
        Ok(())
    }

    fn tree(&mut self, record: &RootRecord, id: TreeId) -> Result<()> {
        let source = self.source;
        let root = source.volume.state.store.root(Ino::new(record.id, 0))?;
        let (at, from) = (record.trees[id as usize], (Key::MIN, self.since));
        root.tree(id).read_image_since(at, from, &mut |met| {
            match met {
                Met::Node(ptr) => self.object(ptr)?,
                Met::Lost(lost) => return Err(lost.error),
                Met::Entry(key, raw) => self.entry(record, id, key, raw)?,
            }
            Ok(true)
        })?;
        Ok(())
    }

    fn entry(&mut self, record: &RootRecord, id: TreeId, key: Key, raw: &[u8]) -> Result<()> {
        let bad = || {
            let object = format!("{} entry {}:{:#x}", id.name(), key.ino(record.id), key.lo);
            Error::corrupt(object, None, "not a record: run shoal fsck")
        };
        match id {
            TreeId::Dirents => {}
            TreeId::Attrs => {
                let attr = Attr::decode_whole(raw).ok_or_else(bad)?;
                attr.value.extent().iter().try_for_each(|extent| self.data(extent))?;
            }
            TreeId::Extents => self.data(&Extent::decode_value(key.lo, raw).ok_or_else(bad)?)?,
            TreeId::Imap => {
                let ptr = raw.get(..Ptr::SIZE).and_then(Ptr::of_value).ok_or_else(bad)?;
                self.inodes(record, key.hi, ptr)?;
            }
        }
        Ok(())
    }

    /// Adds an inode block, and what its inodes point to directly.
    fn inodes(&mut self, record: &RootRecord, number: u64, ptr: Ptr) -> Result<()> {
        if ptr.birth < self.since {
            return Ok(());
        }
        self.object(ptr)?;
        let root = self.source.volume.state.store.root(Ino::new(record.id, 0))?;
        let inodes: Vec<Inode> = root.table.read_block(number, ptr)?;
        for (slot, inode) in inodes.iter().enumerate().filter(|(_, inode)| inode.core.in_use()) {
            if inode.core.data_form == Form::Extents {
                let index = number * inodes.len() as u64 + slot as u64;
                let extents = inline_extents(Ino::new(record.id, index), inode)?;
                extents.iter().try_for_each(|extent| self.data(extent))?;
            }
            remote_extents(&inode.attr).try_for_each(|extent| self.data(&extent))?;
        }
        Ok(())
    }
}
