//! Volumes as a Shoal without paged roots left them: the newest checkpoint's record has the roots
//! and the pointers to orphan blocks in it.

use super::common::{image, roots as roots_of};
use shoal_base::Addr;
use shoal_base::RootId;
use shoal_engine::{Device, MemDevice};
use shoal_format::Ptr;
use shoal_format::bytes::Put;
use shoal_format::checkpoint::RootRecord;
use shoal_format::checkpoint::{FIXED, MAGIC_INLINE};
use shoal_format::features::INCOMPAT_PAGED_ROOTS;
use shoal_format::superblock::COPIES;
use shoal_format::superblock::{SIZE, Superblock, spare_of, twin_of};
use shoal_format::usage::{Expected, SegKind, Totals, UsageEntry, UsageIndex, UsagePage};
use shoal_format::usage::{UsageRoot, pages};
use shoal_txn::Image;
use shoal_txn::ObjectKind;

/// The record of the old form.
fn record(image: &Image, roots: &[RootRecord], usage: Ptr) -> Vec<u8> {
    let c = &image.checkpoint;
    let mut out = Vec::new();
    out.put_u32(MAGIC_INLINE);
    out.put_u32(c.floor);
    out.put_u64(c.volume);
    out.put_u64(c.epoch);
    out.put_u64(c.lsn.0);
    out.put_u64(c.journal.0);
    usage.encode(&mut out);
    out.put_u64(c.prealloc);
    out.put_u32(image.orphan_blocks.len() as u32);
    out.put_u32(roots.len() as u32);
    assert_eq!(out.len(), FIXED);
    image.orphan_blocks.iter().for_each(|ptr| ptr.encode(&mut out));
    roots.iter().for_each(|root| root.encode(&mut out));
    assert!(c.intents.len() <= 1);
    c.intents.iter().for_each(|ptr| ptr.encode(&mut out));
    out
}

/// The usage table of a volume that has one page of it.
struct Usage {
    at: [Ptr; 3],
    volume: u64,
    page: UsagePage,
    index: UsageIndex,
    root: UsageRoot,
}

impl Usage {
    fn read(device: &MemDevice, image: &Image, sb: &Superblock) -> Usage {
        let (geometry, volume, epoch) = (&sb.geometry, sb.volume(), image.checkpoint.epoch);
        assert_eq!(pages(geometry), 1);
        let of = Expected { geometry, volume, epoch };
        let mut at = [Ptr::NULL; 3];
        image.for_each_object(&mut |kind, ptr| match kind {
            ObjectKind::Usage => at[0] = ptr,
            ObjectKind::UsageIndex(_) => at[1] = ptr,
            ObjectKind::UsagePage(_) => at[2] = ptr,
            _ => {}
        });
        let raw = at.map(|ptr| {
            let mut raw = vec![0; ptr.len as usize];
            device.read_at(&mut raw, ptr.addr.0).unwrap();
            raw
        });
        let root = UsageRoot::decode(&raw[0], at[0].addr, &of).unwrap();
        let index = UsageIndex::decode(&raw[1], at[1].addr, 0, &of).unwrap();
        let page = UsagePage::decode(&raw[2], at[2].addr, 0, &of).unwrap();
        Usage { at, volume, page, index, root }
    }

    /// Writes it in its old place; returns the pointer to the root.
    fn write(mut self, device: &MemDevice) -> Ptr {
        let put = |ptr: Ptr, raw: Vec<u8>| {
            device.write_at(&raw, ptr.addr.0).unwrap();
            Ptr { checksum: shoal_base::checksum(&raw), ..ptr }
        };
        self.index.pages[0] = put(self.at[2], self.page.encode(self.volume));
        self.root.indexes[0] = put(self.at[1], self.index.encode(self.volume));
        self.root.totals = Totals::default();
        self.page.entries.iter().for_each(|entry| self.root.totals.add(entry));
        let segments = self.page.entries.len() as u32;
        put(self.at[0], self.root.encode(self.volume, segments))
    }
}

/// Rewrites the newest checkpoint of a volume in the old form. The journal behind it stays.
pub fn to_old_form(device: &MemDevice) {
    let sb = shoal_txn::read_superblock(device).unwrap();
    let image = image(device);
    let geometry = sb.geometry;
    let mut roots: Vec<RootRecord> = Vec::new();
    for root in roots_of(device) {
        roots.extend((roots.len()..root.id.0.into()).map(|n| RootRecord::vacant(RootId(n as u16))));
        roots.push(root);
    }
    let mut usage = Usage::read(device, &image, &sb);
    let table = &mut usage.page;
    // What is not part of it any more, but for the table itself, which is written in its place.
    image.for_each_object(&mut |kind, ptr| {
        let gone = [
            ObjectKind::Record,
            ObjectKind::RootPage,
            ObjectKind::RootPageCopy,
            ObjectKind::OrphanList,
        ];
        let entry = &mut table.entries[geometry.segment_of(ptr.addr).0 as usize];
        entry.live -= if gone.contains(&kind) { ptr.len } else { 0 };
    });
    for entry in table.entries.iter_mut().filter(|entry| entry.sealed && entry.live == 0) {
        *entry = UsageEntry::default();
    }
    // A segment that nothing has used, the journal behind the checkpoint included.
    let is_unused = |n: &usize| {
        let mut raw = vec![0; geometry.segment_size as usize];
        device.read_at(&mut raw, geometry.start_of(shoal_base::SegNo(*n as u32)).0).unwrap();
        table.entries[*n].kind == SegKind::Free && raw.iter().all(|byte| *byte == 0)
    };
    let unused = (1..table.entries.len()).rev().find(is_unused).unwrap();
    let at = geometry.start_of(shoal_base::SegNo(unused as u32));
    let len = record(&image, &roots, Ptr::NULL).len();
    let entry = &mut table.entries[unused];
    (entry.kind, entry.live, entry.sealed) = (SegKind::Meta, len as u32, true);
    let usage = usage.write(device);
    let raw = record(&image, &roots, usage);
    let checkpoint = Ptr { addr: at, len: raw.len() as u32, checksum: shoal_base::checksum(&raw) };
    let sb = Superblock { checkpoint, incompat: sb.incompat & !INCOMPAT_PAGED_ROOTS, ..sb };
    let end = spare_of(checkpoint) + SIZE as u64;
    assert!(end <= at.0 + geometry.segment_size, "an older Shoal could not have written it");
    device.write_at(&raw, at.0).unwrap();
    device.write_at(&sb.encode(), spare_of(checkpoint)).unwrap();
    if let Some(Ptr { addr: Addr(twin), .. }) = twin_of(checkpoint) {
        device.write_at(&raw, twin).unwrap();
    }
    for copy in COPIES {
        device.write_at(&sb.encode(), copy).unwrap();
    }
}
