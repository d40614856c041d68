//! A volume's objects, as far as its pointers lead, and their checksums put right from the leaves
//! to the superblock: damage behind a correct checksum is what a fault of our own would leave.

use crate::overlay::{PAGE, Pages, page_of};
use shoal_base::{Addr, RootId, checksum};
use shoal_format::batch::BatchHeader;
use shoal_format::bytes::{Reader, u16_at, u32_at, u64_at};
use shoal_format::checkpoint::Checkpoint;
use shoal_format::node::{HEADER, Node, NodeId, SLOT, TreeId};
use shoal_format::root::RootPage;
use shoal_format::superblock::{self, Superblock};
use shoal_format::usage::{HEADER as USAGE_HEADER, INDEX_MAGIC, ROOT_FIXED, ROOT_MAGIC};
use shoal_format::{Geometry, Ptr, orphan};
use std::collections::BTreeSet;

/// A volume in memory, as bytes.
pub struct Image {
    /// All of it.
    pub bytes: Vec<u8>,
    geometry: Geometry,
    volume: u64,
    /// Places and lengths of what was found, superblocks first.
    pub objects: Vec<(usize, usize)>,
    seen: BTreeSet<u64>,
    /// Numbers of the pages that were written.
    written: BTreeSet<usize>,
}

/// What is called with the place of a pointer.
type Each<'f> = &'f mut dyn FnMut(&mut Image, usize);

fn newest(bytes: &[u8]) -> Option<Superblock> {
    let copies = superblock::COPIES.map(|at| Superblock::decode(&bytes[at as usize..], at));
    copies.into_iter().flatten().flatten().max_by_key(|sb| sb.sequence)
}

/// Where the length and the checksum stand in a pointer, and the checkpoint in a superblock.
const LEN: usize = Ptr::TABLE.at("len");
const SUM: usize = Ptr::TABLE.at("checksum");
const CHECKPOINT: usize = Superblock::TABLE.at("checkpoint");

impl Image {
    /// Finds the objects of a volume that opens.
    pub fn new(bytes: Vec<u8>) -> Option<Image> {
        let newest = newest(&bytes)?;
        let objects = superblock::COPIES.map(|at| (at as usize, superblock::SIZE)).to_vec();
        let (geometry, volume) = (newest.geometry, newest.volume());
        let (seen, written) = (BTreeSet::new(), BTreeSet::new());
        let mut image = Image { bytes, geometry, volume, objects, seen, written };
        let at = newest.checkpoint;
        let checkpoint = Checkpoint::decode(image.get(at)?, at.addr, volume).ok()?;
        image.walk(&mut |_, _| ());
        image.journal(checkpoint.journal);
        Some(image)
    }

    /// A copy to damage.
    pub fn copy(&self) -> Image {
        let (bytes, objects) = (self.bytes.clone(), self.objects.clone());
        Image { bytes, objects, seen: BTreeSet::new(), written: BTreeSet::new(), ..*self }
    }

    /// Overwrites bytes; nothing and `None` if that would be outside.
    pub fn put(&mut self, at: usize, bytes: &[u8]) -> Option<()> {
        let end = at.checked_add(bytes.len())?;
        self.bytes.get_mut(at..end)?.copy_from_slice(bytes);
        self.written.extend(at / PAGE..end.div_ceil(PAGE));
        Some(())
    }

    /// The pages that were written, which are put back as they are in `sound`.
    pub fn take_written(&mut self, sound: &Image) -> Pages {
        let take = |page| {
            let own = Box::new(*page_of(&self.bytes, page));
            self.bytes[page * PAGE..][..PAGE].copy_from_slice(page_of(&sound.bytes, page));
            (page, own)
        };
        let pages = std::mem::take(&mut self.written).into_iter().map(take).collect();
        self.objects.clone_from(&sound.objects);
        pages
    }

    fn get(&self, ptr: Ptr) -> Option<&[u8]> {
        self.bytes.get(ptr.addr.0 as usize..)?.get(..ptr.len as usize)
    }

    fn journal(&mut self, start: Addr) {
        let mut at = start.0 as usize;
        while let Some(header) = self.bytes.get(at..).and_then(BatchHeader::decode) {
            let len = BatchHeader::SIZE + header.len as usize;
            self.objects.push((at, len));
            at += BatchHeader::padded(header.len as usize);
        }
    }

    /// Puts all checksums right.
    pub fn seal(&mut self) {
        self.walk(&mut |image, at| {
            let (addr, len) = (u64_at(&image.bytes, at), u32_at(&image.bytes, at + LEN));
            let object = image.bytes.get(addr as usize..).and_then(|b| b.get(..len as usize));
            if let Some(sum) = object.map(checksum) {
                image.put(at + SUM, &sum.to_le_bytes());
            }
        });
        for at in superblock::COPIES.map(|at| at as usize) {
            let end = at + superblock::SIZE;
            let sum = shoal_base::checksum::checksum_of_body(&self.bytes[at..end]);
            self.put(end - 8, &sum.to_le_bytes());
        }
        for (at, len) in self.objects.clone() {
            let Some(header) = BatchHeader::decode(&self.bytes[at..]) else { continue };
            // A damaged pointer may lead to a few bytes of a batch.
            let Some(body) = self.bytes.get(at + BatchHeader::SIZE..at + len) else { continue };
            let body = body.to_vec();
            let raw = header.encode(&body);
            self.put(at + 56, &raw[56..]);
        }
    }

    /// Calls `each` with the place of every pointer, after those inside what it points to.
    fn walk(&mut self, each: Each<'_>) {
        self.seen.clear();
        self.objects.retain(|(at, _)| *at < self.geometry.segment_size as usize);
        let journals: Vec<_> = self.objects.split_off(self.objects.len().min(2));
        for copy in superblock::COPIES {
            self.checkpoint(copy as usize + CHECKPOINT, each);
        }
        self.objects.extend(journals);
    }

    fn ptr_at(&self, at: usize) -> Option<Ptr> {
        let raw = self.bytes.get(at..at + Ptr::SIZE)?;
        let ptr: Ptr = Reader::new(raw).field()?;
        let inside = self.geometry.contains(ptr.addr, u64::from(ptr.len));
        (inside && self.get(ptr).is_some()).then_some(ptr)
    }

    fn found(&mut self, ptr: Ptr) -> bool {
        let fresh = self.seen.insert(ptr.addr.0);
        if fresh {
            self.objects.push((ptr.addr.0 as usize, ptr.len as usize));
        }
        fresh
    }

    fn checkpoint(&mut self, at: usize, each: Each<'_>) {
        let Some(ptr) = self.ptr_at(at) else { return };
        if self.found(ptr) {
            let raw = self.get(ptr).unwrap_or_default().to_vec();
            if let Ok(checkpoint) = Checkpoint::decode(&raw, ptr.addr, self.volume) {
                self.checkpoint_ptrs(&raw, ptr.addr.0 as usize, &checkpoint, each);
            }
        }
        each(self, at);
    }

    /// The pointers in a checkpoint record, and what they lead to.
    fn checkpoint_ptrs(
        &mut self,
        raw: &[u8],
        base: usize,
        checkpoint: &Checkpoint,
        each: Each<'_>,
    ) {
        if let Some(at) = place(raw, &checkpoint.usage) {
            self.usage(base + at, each);
        }
        for at in checkpoint.intents.iter().filter_map(|ptr| place(raw, ptr)) {
            self.object(base + at, each);
        }
        for at in checkpoint.orphan_lists.iter().filter_map(|ptr| place(raw, ptr)) {
            self.orphan_list(base + at, each);
        }
        for at in checkpoint.pages.iter().filter_map(|page| place(raw, &page.first)) {
            self.root_page(base + at, each);
        }
    }

    /// An object without pointers in it.
    fn object(&mut self, at: usize, each: Each<'_>) {
        if let Some(ptr) = self.ptr_at(at) {
            self.found(ptr);
            each(self, at);
        }
    }

    /// A part of the usage table, and what it leads to.
    fn usage(&mut self, at: usize, each: Each<'_>) {
        let Some(ptr) = self.ptr_at(at) else { return };
        if self.found(ptr) {
            let (start, end) = (ptr.addr.0 as usize, (ptr.addr.0 + u64::from(ptr.len)) as usize);
            let magic = self.get(ptr).filter(|raw| raw.len() >= 4).map(|raw| u32_at(raw, 0));
            let first = match magic {
                Some(ROOT_MAGIC) => start + ROOT_FIXED,
                Some(INDEX_MAGIC) => start + USAGE_HEADER,
                _ => end,
            };
            for at in (first..end.saturating_sub(Ptr::SIZE - 1)).step_by(Ptr::SIZE) {
                self.usage(at, each);
            }
        }
        each(self, at);
    }

    fn orphan_list(&mut self, at: usize, each: Each<'_>) {
        let Some(ptr) = self.ptr_at(at) else { return };
        if self.found(ptr) {
            let raw = self.get(ptr).unwrap_or_default().to_vec();
            let blocks = orphan::decode_list(&raw, ptr.addr, self.volume).unwrap_or_default();
            for block in blocks.iter().filter_map(|block| place(&raw, block)) {
                self.object(ptr.addr.0 as usize + block, each);
            }
        }
        each(self, at);
    }

    /// A page of roots, its own checksum put right too; the second copy becomes the same.
    fn root_page(&mut self, at: usize, each: Each<'_>) {
        let Some(ptr) = self.ptr_at(at) else { return };
        if self.found(ptr) {
            let raw = self.get(ptr).unwrap_or_default().to_vec();
            let base = ptr.addr.0 as usize;
            for root in page_of_roots(&raw, ptr.addr, self.volume).iter().flat_map(|p| &p.roots) {
                for (tree, node) in TreeId::ALL.iter().zip(&root.trees) {
                    let id = NodeId { volume: self.volume, root: RootId(root.id.0), tree: *tree };
                    if let Some(at) = place(&raw, node) {
                        self.node(base + at, id, 8, each);
                    }
                }
            }
            if let Some(body) = raw.len().checked_sub(8) {
                let raw = self.get(ptr).unwrap_or_default().to_vec();
                let sum = shoal_base::checksum::checksum_of_body(&raw);
                self.put(base + body, &sum.to_le_bytes());
            }
        }
        each(self, at);
        let (sealed, copy) = (self.get(ptr).unwrap_or_default().to_vec(), at + Ptr::SIZE);
        if let Some(second) = self.bytes.get(copy..copy + 8).map(|raw| u64_at(raw, 0)) {
            let second = Ptr { addr: Addr(second), ..ptr };
            if self.geometry.contains(second.addr, u64::from(second.len)) {
                self.put(second.addr.0 as usize, &sealed);
            }
        }
    }

    fn node(&mut self, at: usize, id: NodeId, depth: u8, each: Each<'_>) {
        let Some(ptr) = self.ptr_at(at) else { return };
        let frame = self.get(ptr).and_then(|raw| <Box<[u8; 16384]>>::try_from(raw.to_vec()).ok());
        if let Some(frame) = frame
            && self.found(ptr)
            && depth > 0
            && let Ok(node) = Node::from_disk(frame, id, None, ptr.addr)
        {
            for i in 0..node.count() {
                let slot = ptr.addr.0 as usize + HEADER + i * SLOT + 16;
                let value = ptr.addr.0 as usize + u16_at(&self.bytes, slot) as usize;
                if node.level() > 0 {
                    self.node(value, id, depth - 1, each);
                } else if id.tree == TreeId::Imap && node.value(i).len() >= Ptr::SIZE {
                    if let Some(block) = self.ptr_at(value) {
                        self.found(block);
                        each(self, value);
                    }
                }
            }
        }
        each(self, at);
    }
}

/// Where a pointer stands in an object: found by its bytes, as the layout is not known here.
fn place(raw: &[u8], ptr: &Ptr) -> Option<usize> {
    let mut bytes = Vec::new();
    ptr.append(&mut bytes);
    raw.windows(Ptr::SIZE).position(|w| w == bytes).filter(|_| !ptr.is_null())
}

/// A page of roots, whatever its checksum says.
fn page_of_roots(raw: &[u8], addr: Addr, volume: u64) -> Option<RootPage> {
    let mut raw = raw.to_vec();
    let body = raw.len().checked_sub(8)?;
    let sum = shoal_base::checksum::checksum_of_body(&raw);
    raw[body..].copy_from_slice(&sum.to_le_bytes());
    RootPage::decode(&raw, addr, volume).ok()
}
