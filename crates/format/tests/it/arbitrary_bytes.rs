//! Every decoder against arbitrary bytes, and against valid bytes with a few changed. It must
//! reject them or return something valid, and must never panic.

use proptest::prelude::*;
use shoal_base::limits::NODE_SIZE;
use shoal_base::{Addr, Ino, RootId};
use shoal_format::attr::{self, Attr, Attrs};
use shoal_format::bucket::{manifest, object};
use shoal_format::bytes::Reader;
use shoal_format::checkpoint::Checkpoint;
use shoal_format::claim::{ClaimBlock, OwnerClaim};
use shoal_format::copy_mark::CopyMark;
use shoal_format::dirent::Dirent;
use shoal_format::extent::{DataHeader, Extent};
use shoal_format::inode::{BlockId, Core, Inode, decode_block, encode_block, stamp_block};
use shoal_format::intent::{self, Intent};
use shoal_format::item::Item;
use shoal_format::node::{Key, Node, NodeId, TreeId};
use shoal_format::superblock::Superblock;
use shoal_format::{Codec, Coding, Compression, batch, orphan, usage};
use shoal_skip::property;

const ID: NodeId = NodeId { volume: 7, root: RootId(0), tree: TreeId::Dirents };
const ROOT: RootId = RootId(5);
const BLOCK: BlockId = BlockId { volume: 7, first: Ino(5 << 48 | 64), inode_size: 512 };

fn decode_all(raw: &[u8]) {
    let _ = Superblock::decode(raw, 0);
    let _ = Checkpoint::decode(raw, Addr(0), 7);
    let _ = orphan::decode(raw, Addr(0), 7);
    let _ = OwnerClaim::decode(raw);
    let _ = CopyMark::decode(raw);
    for codec in Codec::ALL {
        let len = raw.len() as u32;
        for logical in [len, len * 2, 5000] {
            let _ = decode_block(raw, Coding { codec, len, logical }, BLOCK, Addr(0));
        }
    }
    let _ = Inode::decode(ROOT, raw, 512).map(|inode| inode.to_text());
    let _ = Core::read(raw).map(|core| core.fields_text());
    let _ = Dirent::decode(ROOT, raw).map(|d| d.to_text());
    let _ = Extent::decode_value(3, raw).map(|e| e.to_text());
    let _ = DataHeader::decode(raw, 7);
    let _ = Intent::decode(raw).map(|i| i.to_text());
    let _ = intent::decode_open(raw, Addr(0), 7);
    let _ = attr::has_remote(raw);
    use_fork(raw);
    let _ = batch::BatchHeader::decode(raw);
    if let Ok((_, pieces)) = object::unpack(raw, "x", 7) {
        pieces.iter().for_each(|piece| drop(object::bytes_of(piece, raw, "x")));
    }
    let _ = manifest::decode(raw, 1);
    let geometry = shoal_format::Geometry { segment_size: 1 << 20, segments: 32, inode_size: 512 };
    let of = usage::Expected { geometry: &geometry, volume: 7, epoch: 9 };
    let _ = usage::UsagePage::decode(raw, Addr(0), 0, &of).map(|page| page.to_text());
    let _ = usage::UsageIndex::decode(raw, Addr(0), 0, &of).map(|index| index.to_text());
    let _ = usage::UsageRoot::decode(raw, Addr(0), &of).map(|root| root.to_text());
    let mut r = Reader::new(raw);
    while let Some(item) = Item::decode(&mut r) {
        let _ = item.to_text();
        if r.is_empty() {
            break;
        }
    }
    for record in batch::records(raw) {
        let Some(record) = record else { break };
        assert!(record.len() <= raw.len());
    }
}

/// Reads an accepted attribute fork to its end; it must encode to the same bytes.
fn use_fork(raw: &[u8]) {
    let mut again = Vec::new();
    for attr in Attrs::new(raw) {
        let Some(attr) = attr else {
            assert!(attr::verify_fork(ROOT, raw).is_err());
            return;
        };
        let before = again.len();
        attr.encode(&mut again);
        assert_eq!(again.len() - before, attr.encoded_len());
        assert_eq!(Attr::decode_whole(&again[before..]), Some(attr));
        assert!(!attr.to_text(ROOT).is_empty());
    }
    assert_eq!(again, raw);
}

/// An accepted node must be usable to its end.
fn use_node(raw: &[u8]) {
    let place = (ID, None, Addr(0));
    let Ok(mut node) = Node::decode_found(raw, Node::frame(), place) else { return };
    for i in 0..node.count() {
        assert_eq!(node.search(node.key(i)), Ok(i));
        assert!(node.value(i).len() < NODE_SIZE);
    }
    if let Err(at) = node.search(Key::new(5, 5)) {
        let fits = node.fits(10);
        assert_eq!(node.insert(at, Key::new(5, 5), &[1; 10]), fits);
    }
    while node.count() > 0 {
        node.remove(node.count() / 2);
    }
}

fn valid_node(how: Compression) -> Vec<u8> {
    let mut node = Node::init(Node::frame(), ID, 0, Key::MIN);
    for i in 0..100u64 {
        let at = node.count();
        assert!(node.insert(at, Key::new(i / 10, i * 3), &vec![i as u8; (i % 60) as usize]));
    }
    node.remove(17);
    let mut raw = Vec::new();
    node.encode(how, 1, ROOT, &mut raw);
    raw
}

fn valid_block(how: Compression) -> (Vec<u8>, Coding) {
    let mut raw = Vec::new();
    let coding = encode_block((BLOCK, 1), how, &mut raw, |i, out| {
        if i >= 3 {
            let mut inode = Inode::free(i as u32);
            inode.core.mode = 0o100_644;
            inode.data = vec![i as u8; i * 3].into();
            inode.encode(ROOT, out);
        }
    });
    stamp_block(&mut raw, Addr(8192));
    assert!(decode_block(&raw, coding, BLOCK, Addr(0)).is_err());
    assert!(decode_block(&raw, coding, BLOCK, Addr(8192)).is_ok());
    stamp_block(&mut raw, Addr(0));
    assert!(decode_block(&raw, coding, BLOCK, Addr(0)).is_ok());
    (raw, coding)
}

fn how() -> impl Strategy<Value = Compression> {
    let zstd = Compression::zstd(3).expect("a level");
    prop_oneof![Just(Compression::NONE), Just(Compression::LZ4), Just(zstd)]
}

proptest! {
    #![proptest_config(property(256))]

    #[test]
    fn arbitrary(raw in prop::collection::vec(any::<u8>(), 0..6000)) {
        decode_all(&raw);
        use_node(&raw);
    }

    #[test]
    fn items_with_a_valid_type(kind in 1u8..19, raw in prop::collection::vec(any::<u8>(), 0..300)) {
        let mut bytes = vec![kind];
        bytes.extend(raw);
        decode_all(&bytes);
    }

    #[test]
    fn changed_fork(
        names in prop::collection::vec((1u8..6, prop::collection::vec(any::<u8>(), 1..40)), 1..6),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
    ) {
        let mut raw = Vec::new();
        for (space, name) in &names {
            let value = attr::Link { dir: Ino(9), generation: 1 }.encode(ROOT);
            let space = attr::Namespace::from_number(*space).unwrap();
            Attr { space, name, value: attr::Value::Local(&value) }.encode(&mut raw);
        }
        use_fork(&raw);
        for (at, byte) in changes {
            let at = at.index(raw.len());
            raw[at] = byte;
        }
        decode_all(&raw);
    }

    #[test]
    fn changed_node(
        changes in prop::collection::vec((0..NODE_SIZE, any::<u8>()), 1..6),
        how in how(),
    ) {
        let mut raw = valid_node(how);
        // Changes near the front hit the header and the slots, which matter most.
        for (at, byte) in changes {
            let at = if at % 2 == 0 { at % 700 } else { at } % raw.len();
            raw[at] = byte;
        }
        use_node(&raw);
    }

    #[test]
    fn changed_claim(changes in prop::collection::vec((0..300usize, any::<u8>()), 1..6)) {
        let mut raw = OwnerClaim { patience_ms: 2000, ..OwnerClaim::default() }.encode();
        for (at, byte) in changes {
            raw[at] = byte;
        }
        // With a matching checksum, so that the rules behind it are reached.
        let sum = shoal_base::checksum::checksum_of_body(&raw);
        let at = raw.len() - 8;
        raw[at..].copy_from_slice(&sum.to_le_bytes());
        if let ClaimBlock::Claim(claim) = OwnerClaim::decode(&raw) {
            assert!(!claim.to_text().is_empty());
            assert_eq!(OwnerClaim::decode(&claim.encode()), ClaimBlock::Claim(claim));
        }
    }

    #[test]
    fn changed_block(
        changes in prop::collection::vec((0..4000usize, any::<u8>()), 1..6),
        how in how(),
    ) {
        let (mut raw, coding) = valid_block(how);
        for (at, byte) in changes {
            let at = at % raw.len();
            raw[at] = byte;
        }
        let _ = decode_block(&raw, coding, BLOCK, Addr(0));
    }
}
