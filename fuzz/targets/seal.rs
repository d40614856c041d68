//! A volume's objects, as far as its pointers lead, and their checksums put right from the leaves
//! to the superblock: damage behind a correct checksum is what a fault of our own would leave.

use crate::overlay::{PAGE, Pages, page_of};
use shoal_base::{Addr, RootId, checksum};
use shoal_format::batch::BatchHeader;
use shoal_format::bytes::{Reader, u16_at, u32_at, u64_at};
use shoal_format::checkpoint::Checkpoint;
use shoal_format::node::{HEADER, Node, NodeHeader, NodeId, SLOT, TreeId, stamp_node};
use shoal_format::root::RootPage;
use shoal_format::superblock::{self, Superblock};
use shoal_format::usage::{HEADER as USAGE_HEADER, INDEX_MAGIC, ROOT_FIXED, ROOT_MAGIC};
use shoal_format::{Codec, Coding, Compression, Geometry, Ptr, orphan};
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
    /// Whether a walk puts checksums right.
    sealing: bool,
}

fn newest(bytes: &[u8]) -> Option<Superblock> {
    let copies = superblock::COPIES.map(|at| Superblock::decode(&bytes[at as usize..], at));
    copies.into_iter().flatten().flatten().max_by_key(|sb| sb.sequence)
}

/// Where the length and the checksum stand in a pointer, and the checkpoint in a superblock.
const LEN: usize = Ptr::TABLE.at("len");
const SUM: usize = Ptr::TABLE.at("checksum");
const AT_HEAP: usize = NodeHeader::TABLE.at("heap");
const CHECKPOINT: usize = Superblock::TABLE.at("checkpoint");

impl Image {
    /// Finds the objects of a volume that opens.
    pub fn new(bytes: Vec<u8>) -> Option<Image> {
        let newest = newest(&bytes)?;
        let objects = superblock::COPIES.map(|at| (at as usize, superblock::SIZE)).to_vec();
        let (geometry, volume) = (newest.geometry, newest.volume());
        let (seen, written) = (BTreeSet::new(), BTreeSet::new());
        let sealing = false;
        let mut image = Image { bytes, geometry, volume, objects, seen, written, sealing };
        let at = newest.checkpoint;
        let checkpoint = Checkpoint::decode(image.get(at)?, at.addr, volume).ok()?;
        image.walk();
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
        self.sealing = true;
        self.walk();
        self.sealing = false;
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

    /// Puts the checksum of the pointer at `at` right, if this walk does.
    fn sum(&mut self, at: usize) {
        let (addr, len) = (u64_at(&self.bytes, at), u32_at(&self.bytes, at + LEN));
        let object = self.bytes.get(addr as usize..).and_then(|b| b.get(..len as usize));
        if self.sealing
            && let Some(sum) = object.map(checksum)
        {
            self.put(at + SUM, &sum.to_le_bytes());
        }
    }

    /// Visits every pointer, after those inside what it points to.
    fn walk(&mut self) {
        self.seen.clear();
        self.objects.retain(|(at, _)| *at < self.geometry.segment_size as usize);
        let journals: Vec<_> = self.objects.split_off(self.objects.len().min(2));
        for copy in superblock::COPIES {
            self.checkpoint(copy as usize + CHECKPOINT);
        }
        self.objects.extend(journals);
    }

    fn ptr_at(&self, at: usize) -> Option<Ptr> {
        self.ptr_in(self.bytes.get(at..at + Ptr::SIZE)?)
    }

    fn ptr_in(&self, raw: &[u8]) -> Option<Ptr> {
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

    fn checkpoint(&mut self, at: usize) {
        let Some(ptr) = self.ptr_at(at) else { return };
        if self.found(ptr) {
            let raw = self.get(ptr).unwrap_or_default().to_vec();
            if let Ok(checkpoint) = Checkpoint::decode(&raw, ptr.addr, self.volume) {
                self.checkpoint_ptrs(&raw, ptr.addr.0 as usize, &checkpoint);
            }
        }
        self.sum(at);
    }

    /// The pointers in a checkpoint record, and what they lead to.
    fn checkpoint_ptrs(&mut self, raw: &[u8], base: usize, checkpoint: &Checkpoint) {
        if let Some(at) = place(raw, &checkpoint.usage) {
            self.usage(base + at);
        }
        for at in checkpoint.intents.iter().filter_map(|ptr| place(raw, ptr)) {
            self.object(base + at);
        }
        for at in checkpoint.orphan_lists.iter().filter_map(|ptr| place(raw, ptr)) {
            self.orphan_list(base + at);
        }
        for at in checkpoint.pages.iter().filter_map(|page| place(raw, &page.first)) {
            self.root_page(base + at);
        }
    }

    /// An object without pointers in it.
    fn object(&mut self, at: usize) {
        if let Some(ptr) = self.ptr_at(at) {
            self.found(ptr);
            self.sum(at);
        }
    }

    /// A part of the usage table, and what it leads to.
    fn usage(&mut self, at: usize) {
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
                self.usage(at);
            }
        }
        self.sum(at);
    }

    fn orphan_list(&mut self, at: usize) {
        let Some(ptr) = self.ptr_at(at) else { return };
        if self.found(ptr) {
            let raw = self.get(ptr).unwrap_or_default().to_vec();
            let blocks = orphan::decode_list(&raw, ptr.addr, self.volume).unwrap_or_default();
            for block in blocks.iter().filter_map(|block| place(&raw, block)) {
                self.object(ptr.addr.0 as usize + block);
            }
        }
        self.sum(at);
    }

    /// A page of roots, its own checksum put right too; the second copy becomes the same.
    fn root_page(&mut self, at: usize) {
        let Some(ptr) = self.ptr_at(at) else { return };
        if self.found(ptr) {
            let raw = self.get(ptr).unwrap_or_default().to_vec();
            let base = ptr.addr.0 as usize;
            for root in page_of_roots(&raw, ptr.addr, self.volume).iter().flat_map(|p| &p.roots) {
                for (tree, node) in TreeId::ALL.iter().zip(&root.trees) {
                    let id = NodeId { volume: self.volume, root: RootId(root.id.0), tree: *tree };
                    if let Some(at) = place(&raw, node) {
                        self.node(base + at, id, 8);
                    }
                }
            }
            if let Some(body) = raw.len().checked_sub(8) {
                let raw = self.get(ptr).unwrap_or_default().to_vec();
                let sum = shoal_base::checksum::checksum_of_body(&raw);
                self.put(base + body, &sum.to_le_bytes());
            }
        }
        self.sum(at);
        let (sealed, copy) = (self.get(ptr).unwrap_or_default().to_vec(), at + Ptr::SIZE);
        if let Some(second) = self.bytes.get(copy..copy + 8).map(|raw| u64_at(raw, 0)) {
            let second = Ptr { addr: Addr(second), ..ptr };
            if self.geometry.contains(second.addr, u64::from(second.len)) {
                self.put(second.addr.0 as usize, &sealed);
            }
        }
    }

    fn node(&mut self, at: usize, id: NodeId, depth: u8) {
        let Some(ptr) = self.ptr_at(at) else { return };
        if self.found(ptr) {
            let len = self.inside_node(ptr, id, depth).len;
            self.put(at + LEN, &len.to_le_bytes());
        }
        self.sum(at);
    }

    /// Visits the pointers in a node; the pointer to it after that.
    fn inside_node(&mut self, ptr: Ptr, id: NodeId, depth: u8) -> Ptr {
        let stored = self.get(ptr).unwrap_or_default();
        let node = Node::decode(stored, ptr.coding(), Node::frame(), (id, None, ptr.addr));
        let Some(mut node) = node.ok().filter(|_| depth > 0) else { return ptr };
        if node.level() == 0 && id.tree != TreeId::Imap {
            return ptr;
        }
        if ptr.is_coded() {
            return self.inside_coded(ptr, &mut node, id, depth);
        }
        // Values follow the slots, which have their place in a node with its free bytes.
        let base = ptr.addr.0 as usize;
        let heap = u16_at(&self.bytes, base + AT_HEAP) as usize;
        for i in (0..node.count()).filter(|i| node.value(*i).len() >= Ptr::SIZE) {
            let offset = u16_at(&self.bytes, base + HEADER + i * SLOT + 16) as usize;
            let value = base + HEADER + node.count() * SLOT + offset - heap;
            match node.level() {
                0 => self.object(value),
                _ => self.node(value, id, depth - 1),
            }
        }
        ptr
    }

    /// As [`Image::inside_node`], of a node that is coded: it is encoded anew, if there is room.
    fn inside_coded(&mut self, ptr: Ptr, node: &mut Node, id: NodeId, depth: u8) -> Ptr {
        for i in 0..node.count() {
            let mut value = node.value(i).to_vec();
            let Some(child) = value.get(..Ptr::SIZE).and_then(|raw| self.ptr_in(raw)) else {
                continue;
            };
            let child = match (self.found(child), node.level()) {
                (true, 1..) => self.inside_node(child, id, depth - 1),
                _ => child,
            };
            let sealed = Ptr { checksum: self.get(child).map_or(0, checksum), ..child };
            value.splice(..Ptr::SIZE, sealed.store());
            node.replace(i, &value);
        }
        let level = if ptr.codec == Codec::Zstd { 3 } else { 0 };
        let how = Compression { codec: ptr.codec, level };
        let mut raw = Vec::new();
        let coding = node.encode(how, node.epoch(), node.root(), &mut raw);
        stamp_node(&mut raw, ptr.addr);
        let fits = raw.len() <= (ptr.len as usize).next_multiple_of(8);
        let same = Coding { len: ptr.len, ..coding } == ptr.coding();
        if !self.sealing || !fits || !same || self.put(ptr.addr.0 as usize, &raw).is_none() {
            return ptr;
        }
        Ptr { len: coding.len, ..ptr }
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

#[cfg(test)]
mod tests {
    use super::*;
    use shoal::raw::{Device, MemDevice, OpenOptions, Volume};
    use std::sync::Arc;

    /// What a check says of a volume, or opening it.
    fn problems(bytes: &[u8]) -> String {
        let device = Arc::new(MemDevice::new(bytes.len() as u64));
        for (n, page) in
            bytes.chunks(PAGE).enumerate().filter(|(_, page)| page.iter().any(|b| *b != 0))
        {
            device.write_at(page, (n * PAGE) as u64).expect("inside");
        }
        let options = OpenOptions { background: false, ..OpenOptions::default() };
        let checked = Volume::open_on(device, &options).and_then(|v| v.check(&mut |_, _| ()));
        let shown = |mut report: shoal::raw::CheckReport| {
            // Copies of the checkpoint's record, which is another now.
            report.problems.retain(|p| !["superblock-copy", "table"].contains(&p.rule));
            format!("{:?}", report.problems)
        };
        checked.map_or_else(|e| e.to_string(), shown)
    }

    #[test]
    fn what_is_sealed_has_right_checksums_behind_coded_nodes_too() {
        let mut images = crate::frozen::images(crate::image::SIZE).expect("images");
        images.retain(|image| image.name.ends_with("-lz4") || image.name.ends_with("-zstd"));
        let (mut sound, mut damaged) = (0, 0);
        for frozen in images {
            let image = Image::new(frozen.bytes).expect("a volume");
            let mut copy = image.copy();
            copy.seal();
            assert!(copy.bytes == image.bytes, "{}: sealed to other bytes", frozen.name);
            for (at, len) in &image.objects {
                if ![b"SND2", b"SIB2"].iter().any(|magic| image.bytes[*at..].starts_with(*magic)) {
                    continue;
                }
                let mut copy = image.copy();
                let byte = at + len - 9;
                copy.put(byte, &[!image.bytes[byte]]);
                copy.seal();
                let found = problems(&copy.bytes);
                assert!(!found.contains("checksum is"), "{}, {at}: {found}", frozen.name);
                (sound, damaged) = match &found[..] {
                    "[]" => (sound + 1, damaged),
                    _ => (sound, damaged + 1),
                };
            }
        }
        assert!(damaged > 30, "{damaged} of {} objects are damaged", sound + damaged);
    }
}
