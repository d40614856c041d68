//! Decoders of what is on disk: they refuse or give something that is encoded again to the same.

use shoal_base::checksum::checksum_of_body;
use shoal_base::limits::SEGMENTS_MAX;
use shoal_base::{Addr, Ino, RootId};
use shoal_format::batch::{BatchHeader, RECORD_HEADER, records};
use shoal_format::bucket::manifest;
use shoal_format::bucket::object::{self, ObjectHeader, ObjectKind, Packed, Piece};
use shoal_format::bytes::{Reader, u64_at};
use shoal_format::checkpoint::{self as checkpoints, Checkpoint};
use shoal_format::claim::{self as claims, ClaimBlock, OwnerClaim};
use shoal_format::copy_mark::{self as marks, CopyMark};
use shoal_format::dirent::{Dirent, name_hash};
use shoal_format::extent::{DataHeader, Extent};
use shoal_format::item::Item;
use shoal_format::quota;
use shoal_format::root::{self, RootPage};
use shoal_format::superblock::{self, Superblock};
use shoal_format::tree_change::TreeChange;
use shoal_format::usage::{self as usages, Expected, UsageIndex, UsagePage, UsageRoot};
use shoal_format::{Codec, Geometry, Ptr, extent, orphan as orphans};

const ADDR: Addr = Addr(1 << 22);
/// A root other than the first.
const ROOT: RootId = RootId(5);

/// `data` with `head` at its start and its last 8 bytes the checksum of the others.
fn sealed(data: &[u8], len: usize, head: &[u8]) -> Vec<u8> {
    let mut raw = data.to_vec();
    raw.resize(len, 0);
    raw[..head.len()].copy_from_slice(head);
    let sum = checksum_of_body(&raw);
    raw[len - 8..].copy_from_slice(&sum.to_le_bytes());
    raw
}

/// A copy of the superblock.
pub fn superblock(data: &[u8]) {
    let head = [&superblock::MAGIC[..], &shoal_format::features::VERSION.to_le_bytes()].concat();
    for raw in [data, &sealed(data, superblock::SIZE, &head)] {
        let Ok(Some(sb)) = Superblock::decode(raw, 0) else { continue };
        let again = Superblock::decode(&sb.encode(), 0).ok().flatten();
        assert_eq!(again.as_ref(), Some(&sb));
        assert_eq!(sb.incompat & !shoal_format::features::INCOMPAT_KNOWN, 0);
        assert!(sb.compression.is_valid());
        assert_eq!(sb.compression.feature() & !sb.incompat, 0);
        assert_eq!(sb.compression.to_string().parse(), Ok(sb.compression));
        assert!(sb.geometry.contains(sb.checkpoint.addr, u64::from(sb.checkpoint.len)));
    }
}

/// A checkpoint record.
pub fn checkpoint(data: &[u8]) {
    let mut right = data.to_vec();
    if let Some(place) = right.first_chunk_mut() {
        *place = checkpoints::MAGIC.to_le_bytes();
    }
    let volume = data.get(8..16).map_or(0, |b| u64_at(b, 0));
    for raw in [data, &right] {
        let Ok(checkpoint) = Checkpoint::decode(raw, ADDR, volume) else { continue };
        let bytes = checkpoint.encode();
        assert_eq!(bytes.len(), checkpoint.encoded_len());
        assert!(bytes.len() <= checkpoints::RECORD_MAX);
        let again = Checkpoint::decode(&bytes, ADDR, volume).ok();
        assert_eq!(again.as_ref(), Some(&checkpoint));
    }
}

/// A page of the root table.
pub fn root_page(data: &[u8]) {
    let len = data.len().clamp(RootPage::SIZE + 8, root::PAGE_MAX);
    let head = [root::MAGIC.to_le_bytes(), (len as u32).to_le_bytes()].concat();
    for raw in [data, &sealed(&data[..data.len().min(len)], len, &head)] {
        let volume = raw.get(8..16).map_or(0, |b| u64_at(b, 0));
        let Ok(page) = RootPage::decode(raw, ADDR, volume) else { continue };
        assert_eq!(RootPage::len_at(raw, volume), Some(raw.len()));
        let again = RootPage::decode(&page.encode(), ADDR, volume).ok();
        assert_eq!(again, Some(page));
    }
}

/// A log object or a data object of a bucket: as it is, and pieces that the input tells, packed,
/// with a table that lies under a checksum that is right.
pub fn bucket_object(data: &[u8]) {
    let volume = data.get(8..16).map_or(0, |b| u64_at(b, 0));
    use_object(data, volume);
    let header = ObjectHeader {
        kind: ObjectKind::Flush,
        volume,
        epoch: 2,
        writer: 3,
        sequence: 4,
        count: 0,
        lease_ms: 5,
        length: 0,
    };
    let chunks = data.chunks(100).take(1000);
    let pieces: Vec<Packed<'_>> = chunks
        .map(|raw| Packed::Here(Addr(u64::from(raw[0]) << 8), raw.len() as u32, Codec::None, raw))
        .collect();
    if pieces.is_empty() {
        return;
    }
    let (mut raw, table) = object::pack(header, &pieces);
    assert_eq!(object::unpack(&raw, "x", volume).ok().map(|found| found.1), Some(table));
    let head = ObjectHeader::SIZE..ObjectHeader::SIZE + Piece::SIZE;
    for (to, from) in raw[head].iter_mut().zip(data) {
        *to ^= from;
    }
    object::reseal(&mut raw);
    use_object(&raw, volume);
}

fn use_object(raw: &[u8], volume: u64) {
    if let Ok((_, pieces)) = object::unpack(raw, "x", volume) {
        pieces.iter().for_each(|piece| drop(object::bytes_of(piece, raw, "x")));
    }
}

/// A manifest of a bucket: as it is, and with checksums that are right.
pub fn bucket_manifest(data: &[u8]) {
    let mut raw = data.to_vec();
    let number = data.get(32..40).map_or(1, |b| u64_at(b, 0));
    for _ in 0..2 {
        if let Ok(found) = manifest::decode(&raw, number) {
            let again = manifest::encode(found.header, &found.body);
            assert_eq!(manifest::decode(&again, number).map(|it| it.body).ok(), Some(found.body));
        }
        manifest::reseal(&mut raw);
    }
}

/// A list of orphan blocks.
pub fn orphan_list(data: &[u8]) {
    let mut raw = data.to_vec();
    if let Some(place) = raw.first_chunk_mut() {
        *place = orphans::LIST_MAGIC.to_le_bytes();
    }
    for raw in [data, &raw] {
        let volume = raw.get(8..16).map_or(0, |b| u64_at(b, 0));
        let Ok(blocks) = orphans::decode_list(raw, ADDR, volume) else { continue };
        let again = orphans::decode_list(&orphans::encode_list(volume, &blocks), ADDR, volume);
        assert_eq!(again.ok(), Some(blocks));
    }
}

/// Segments of the volume of a usage table, so that as many rows as there are bytes for are all.
fn usage_geometry(segments: u64) -> Geometry {
    let segments = segments.clamp(1, u64::from(SEGMENTS_MAX)) as u32;
    Geometry { segment_size: 4 << 20, segments, inode_size: 512 }
}

/// As a reader expects it: magic, count, number and reserved of a header put right.
fn usage_sealed(data: &[u8], magic: u32, count: u32, number: u32) -> Vec<u8> {
    let mut raw = data.to_vec();
    if let Some(head) = raw.get_mut(..usages::HEADER) {
        head[..4].copy_from_slice(&magic.to_le_bytes());
        head[4..8].copy_from_slice(&count.to_le_bytes());
        head[24..28].copy_from_slice(&number.to_le_bytes());
        head[28..].fill(0);
    }
    raw
}

/// Calls `look` with the input as it is and put right, and what its header lets a reader expect.
fn usage_inputs(
    data: &[u8],
    geometry: &Geometry,
    right: &[u8],
    look: &mut dyn FnMut(&[u8], &Expected<'_>),
) {
    for raw in [data, right] {
        let (volume, epoch) = raw.get(..24).map_or((0, 0), |b| (u64_at(b, 8), u64_at(b, 16)));
        look(raw, &Expected { geometry, volume, epoch });
        look(raw, &Expected { geometry, volume, epoch: 5 });
    }
}

/// A page of the segment usage table, an index page, the root.
pub fn usage(data: &[u8]) {
    let rows = |fixed: usize, row: usize| (data.len().saturating_sub(fixed) / row) as u64;
    let count = rows(usages::HEADER, usages::ENTRY);
    let geometry = usage_geometry(count.min(u64::from(usages::PAGE_SEGMENTS)));
    let right = usage_sealed(data, usages::PAGE_MAGIC, geometry.segments, 0);
    let right = &right[..right.len().min(usages::page_len(&geometry, 0))];
    usage_inputs(data, &geometry, right, &mut |raw, of| {
        let Ok(page) = UsagePage::decode(raw, ADDR, 0, of) else { return };
        let _ = page.to_text();
        assert_eq!(page.encode(of.volume), raw);
    });
    let count = rows(usages::HEADER, Ptr::SIZE).min(u64::from(usages::INDEX_PAGES));
    let geometry = usage_geometry(count * u64::from(usages::PAGE_SEGMENTS));
    let right = usage_sealed(data, usages::INDEX_MAGIC, count as u32, 0);
    let right = &right[..right.len().min(usages::index_len(&geometry, 0))];
    usage_inputs(data, &geometry, right, &mut |raw, of| {
        let Ok(index) = UsageIndex::decode(raw, ADDR, 0, of) else { return };
        let _ = index.to_text();
        let again = UsageIndex::decode(&index.encode(of.volume), ADDR, 0, of);
        assert_eq!(again.as_ref(), Ok(&index));
    });
    usage_root(data, rows(usages::ROOT_FIXED, Ptr::SIZE));
}

fn usage_root(data: &[u8], pointers: u64) {
    let each = u64::from(usages::PAGE_SEGMENTS * usages::INDEX_PAGES);
    let geometry = usage_geometry(pointers * each);
    let count = usages::indexes(&geometry);
    let right = usage_sealed(data, usages::ROOT_MAGIC, geometry.segments, count);
    let right = &right[..right.len().min(usages::root_len(&geometry))];
    usage_inputs(data, &geometry, right, &mut |raw, of| {
        let Ok(root) = UsageRoot::decode(raw, ADDR, of) else { return };
        let _ = root.to_text();
        let again = UsageRoot::decode(&root.encode(of.volume, geometry.segments), ADDR, of);
        assert_eq!(again.as_ref(), Ok(&root));
    });
}

/// A batch of the journal: header, records, items. The same bytes as one record, too.
pub fn batch(data: &[u8]) {
    if let Some(header) = BatchHeader::decode(data) {
        let body = &data[BatchHeader::SIZE..];
        let _ = BatchHeader::sum_matches(data, body);
        let raw = header.encode(body);
        assert!(BatchHeader::sum_matches(&raw, body));
        assert_eq!(BatchHeader::decode(&raw).map(|h| h.encode(body)), Some(raw));
    }
    let body = data.get(BatchHeader::SIZE..).unwrap_or_default();
    let mut total = 0;
    for record in records(body).flatten() {
        total += RECORD_HEADER + record.len();
        items(record);
    }
    assert!(total <= body.len());
    items(data);
}

fn items(record: &[u8]) {
    let mut r = Reader::new(record);
    while !r.is_empty() {
        let Some(item) = Item::decode(&mut r) else { return };
        let _ = item.to_text();
        let mut bytes = Vec::new();
        item.encode(&mut bytes);
        let mut again = Vec::new();
        let decoded = Item::decode(&mut Reader::new(&bytes));
        decoded.expect("an item that was encoded").encode(&mut again);
        assert_eq!(bytes, again);
    }
}

/// A block of orphans.
pub fn orphan(data: &[u8]) {
    for raw in [data, &sealed(data, orphans::BLOCK_SIZE, &orphans::MAGIC.to_le_bytes())] {
        let volume = raw.get(8..16).map_or(0, |b| u64_at(b, 0));
        let Ok(inodes) = orphans::decode(raw, ADDR, volume) else { continue };
        let (shard, list) = &inodes;
        let again = orphans::decode(&orphans::encode(volume, *shard, list), ADDR, volume).ok();
        assert_eq!(again, Some(inodes));
    }
}

/// The mark of an unfinished copy.
pub fn copy_mark(data: &[u8]) {
    let head = [&marks::MAGIC[..], &marks::VERSION.to_le_bytes()].concat();
    for raw in [data, &sealed(data, marks::SIZE, &head)] {
        let Some(mark) = CopyMark::decode(raw) else { continue };
        assert_eq!(CopyMark::decode(&mark.encode()), Some(mark));
        assert!(marks::COPIES.contains(&mark.addr()));
    }
}

/// The owner claim.
pub fn claim(data: &[u8]) {
    let head = [&claims::MAGIC[..], &claims::VERSION.to_le_bytes()].concat();
    for raw in [data, &sealed(data, claims::SIZE, &head)] {
        let ClaimBlock::Claim(claim) = OwnerClaim::decode(raw) else { continue };
        let _ = (claim.to_text(), claim.owner_text());
        assert_eq!(OwnerClaim::decode(&claim.encode()), ClaimBlock::Claim(claim));
    }
}

/// Extent records in both forms, and the header of a data object.
pub fn extent(data: &[u8]) {
    let mut r = Reader::new(data);
    while let Some(extent) = Extent::decode_inline(&mut r) {
        use_extent(extent);
    }
    let offset = data.first_chunk().map_or(0, |b| u64::from_le_bytes(*b));
    if let Some(extent) = Extent::decode_value(offset, data.get(8..).unwrap_or_default()) {
        use_extent(extent);
    }
    let _ = Ptr::of_value(data);
    let mut raw = data.to_vec();
    raw.resize(extent::HEADER, 0);
    raw[..4].copy_from_slice(&extent::MAGIC.to_le_bytes());
    let sum = shoal_base::checksum(&raw[..24]) ^ 7;
    raw[24..32].copy_from_slice(&sum.to_le_bytes());
    for raw in [data, &raw] {
        if let Some(header) = DataHeader::decode(raw, 7) {
            assert_eq!(DataHeader::decode(&header.encode(7), 7), Some(header));
        }
    }
}

fn use_extent(extent: Extent) {
    let _ = (extent.to_text(), extent.data_addr());
    let middle = extent.offset + u64::from(extent.len) / 2;
    let left = extent.slice(extent.offset, middle.max(extent.offset + 1));
    let right = extent.slice(middle, extent.end());
    assert!(left.is_valid() && right.is_valid());
    if !extent.is_prealloc() {
        let share = extent.share();
        for part in [&extent, &left, &right] {
            let at = part.data_addr().0 - part.ptr.addr.0;
            assert!(part.stored_len() >= 1 && part.share().end <= part.ptr.len);
            assert!(at + u64::from(part.stored_len()) <= u64::from(part.ptr.len));
        }
        if extent.len > 1 {
            assert_eq!((left.share().start, right.share().end), (share.start, share.end));
            assert_eq!(left.share().end, right.share().start);
        }
        let ino = Ino::new(ROOT, 3);
        let header = DataHeader::new(ino, extent.offset, extent.ptr.len, extent.ptr.codec);
        assert!(header.may_be_of(&extent.ptr));
    }
    for part in [extent, left, right] {
        let mut bytes = Vec::new();
        part.encode_inline(&mut bytes);
        assert_eq!(Extent::decode_inline(&mut Reader::new(&bytes)), Some(part));
    }
}

/// A directory entry.
pub fn dirent(data: &[u8]) {
    for root in [RootId(0), ROOT] {
        let Some(entry) = Dirent::decode(root, data) else { continue };
        let _ = (entry.to_text(), name_hash(1, entry.name));
        let mut bytes = Vec::new();
        entry.encode(root, &mut bytes);
        assert_eq!(bytes, data);
    }
}

/// The state of a change of a tree.
pub fn tree_change(data: &[u8]) {
    if let Some(state) = TreeChange::decode(data) {
        assert!(!state.levels.is_empty());
        assert_eq!(state.to_bytes(), data);
    }
}

/// The table of quotas.
pub fn quota(data: &[u8]) {
    if let Some(table) = quota::Table::decode(data) {
        assert_eq!(table.to_bytes(), data);
        assert!(table.rows.len() <= quota::ROWS_MAX);
    }
}
