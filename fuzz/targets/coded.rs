//! Codecs, and the objects that are decoded before their rules are checked: nodes and inode blocks.
//! Whatever the bytes say, a decoder refuses them or fills exactly its buffer.

use shoal_base::limits::NODE_SIZE;
use shoal_base::{Addr, Ino, RootId};
use shoal_format::bytes::{u16_at, u64_at};
use shoal_format::inode::{
    self, BLOCK_HEADER, BlockHeader, BlockId, Inode, block_max, decode_block, encode_block,
    stamp_block,
};
use shoal_format::node::{HEADER, Key, Node, NodeHeader, NodeId, SLOT, TreeId, stamp_node};
use shoal_format::{Codec, Coding, Compression};

const ADDR: Addr = Addr(1 << 22);
/// Root through which everything is reached, whatever the headers say of who wrote it.
const ROOT: RootId = RootId(5);
const ID: NodeId = NodeId { volume: 7, root: ROOT, tree: TreeId::Dirents };

/// Every codec, with a level that is fast.
const HOW: [Compression; 3] =
    [Compression::NONE, Compression::LZ4, Compression { codec: Codec::Zstd, level: 3 }];

/// Bytes of the longest payload.
const LONGEST: usize = 128 << 10;
/// Bytes around a buffer that no decoder may change.
const GUARD: usize = 64;

/// A length of 3 bytes, then what is decoded to so many bytes; the same as data to be encoded.
pub fn codec(data: &[u8]) {
    let (head, rest) = data.split_at(data.len().min(3));
    let number = head.iter().rev().fold(0, |n, byte| n << 8 | usize::from(*byte));
    let len = number % (LONGEST + 1);
    for codec in Codec::ALL {
        let decoded = decoded(codec, rest, len);
        assert!(codec != Codec::None || decoded.is_some() == (rest.len() == len));
    }
    let repeated: Vec<u8> = rest.iter().copied().cycle().take(len).collect();
    for how in HOW {
        for most in [0, number, rest.len() / 2, rest.len(), usize::MAX] {
            there_and_back(how, rest, most, number);
        }
        there_and_back(how, &repeated, repeated.len(), number);
        let _ = (how.is_worth_trying(rest), how.is_worth_trying(&repeated));
    }
}

/// Decodes into a buffer that is surrounded, twice: nothing that was there before may stay.
fn decoded(codec: Codec, stored: &[u8], len: usize) -> Option<Vec<u8>> {
    let [one, two] = [0x00, 0xFF].map(|fill| {
        let mut buf = vec![fill; len + 2 * GUARD];
        let ok = codec.decode(stored, &mut buf[GUARD..GUARD + len]).is_ok();
        let (before, after) = (&buf[..GUARD], &buf[GUARD + len..]);
        assert!(before.iter().chain(after).all(|byte| *byte == fill), "{codec:?} writes beyond");
        ok.then(|| buf[GUARD..GUARD + len].to_vec())
    });
    assert!(one == two, "{codec:?} leaves a part of {len} bytes as it was");
    one
}

/// Encodes, with a limit, and decodes; `lie` chooses lengths that are not the right ones.
fn there_and_back(how: Compression, plain: &[u8], most: usize, lie: usize) {
    let mut stored = vec![7; 5];
    let codec = how.encode(plain, most, &mut stored);
    assert_eq!(stored[..5], [7; 5]);
    let stored = &stored[5..];
    let logical = plain.len() as u32;
    let coding = Coding { codec, len: stored.len() as u32, logical };
    assert!(coding.is_valid(), "{coding:?}");
    assert!(codec == Codec::None || (codec == how.codec && stored.len() <= most));
    assert!(decoded(codec, stored, plain.len()).as_deref() == Some(plain));
    for len in [0, plain.len().saturating_sub(1), plain.len() + 1, lie % (LONGEST + 1)] {
        assert!(len == plain.len() || decoded(codec, stored, len).is_none(), "{coding:?}: {len}");
    }
    if !stored.is_empty() {
        let cut = &stored[..lie % stored.len()];
        assert!(decoded(codec, cut, plain.len()).is_none(), "{coding:?}: cut at {}", cut.len());
    }
}

/// Overwrites bytes of a header, as far as it is there.
fn put(raw: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(place) = raw.get_mut(at..at + bytes.len()) {
        place.copy_from_slice(bytes);
    }
}

/// A stored node: as it is; with a header that fits it, in plain; with its body as what each codec
/// has written; with the plain body encoded. What is accepted can be searched, changed and split.
pub fn node(data: &[u8]) {
    let data = &data[..data.len().min(NODE_SIZE)];
    let place = |id| (id, None, ADDR);
    let _ = Node::decode_found(data, Node::frame(), place(ID));
    if data.len() < HEADER {
        return;
    }
    let plain = node_of(data);
    if let Ok(node) = Node::decode_found(&plain, Node::frame(), place(ID)) {
        use_node(node, data);
    }
    let header = NodeHeader::read(&plain).expect("a header that was put right");
    for codec in [Codec::Lz4, Codec::Zstd] {
        let mut raw = plain.clone();
        // Count and heap as the input says: they are what the body has to decode to.
        put(&mut raw, NodeHeader::TABLE.at("count"), &data[NodeHeader::TABLE.at("count")..][..4]);
        put(&mut raw, NodeHeader::TABLE.at("codec"), &[codec as u8]);
        if let Ok(node) = Node::decode_found(&raw, Node::frame(), place(ID)) {
            use_node(node, data);
        }
    }
    for how in HOW {
        // Rules behind a codec are those in plain.
        let mut raw = plain[..HEADER].to_vec();
        let codec = how.encode(&plain[HEADER..], plain.len() - HEADER, &mut raw);
        let len = raw.len() as u16;
        put(&mut raw, NodeHeader::TABLE.at("len"), &len.to_le_bytes());
        put(&mut raw, NodeHeader::TABLE.at("codec"), &[codec as u8]);
        let coding = NodeHeader::read(&raw).expect("a header").coding();
        let Some(coding) = coding else { continue };
        let coded = Node::decode(&raw, coding, Node::frame(), place(ID)).map_err(|e| e.to_string());
        let found = Node::decode_found(&plain, Node::frame(), place(ID)).map_err(|e| e.to_string());
        match (coded, found) {
            (Ok(coded), Ok(found)) => same_entries(&coded, &found),
            (coded, found) => assert_eq!(coded.err(), found.err(), "{header:?}"),
        }
    }
}

/// A node stored in plain, with a header that fits: its length gives where the heap begins.
fn node_of(data: &[u8]) -> Vec<u8> {
    let mut fresh = Vec::new();
    let level = data[NodeHeader::TABLE.at("level")];
    Node::init(Node::frame(), ID, level, Key::MIN).encode(Compression::NONE, 1, ROOT, &mut fresh);
    stamp_node(&mut fresh, ADDR);
    let (count_at, low_at) = (NodeHeader::TABLE.at("count"), NodeHeader::TABLE.at("low"));
    let mut raw = data.to_vec();
    raw[..count_at].copy_from_slice(&fresh[..count_at]);
    raw[low_at + 16..HEADER].copy_from_slice(&fresh[low_at + 16..HEADER]);
    let count = usize::from(u16_at(data, count_at)).min((data.len() - HEADER) / SLOT);
    let slots = HEADER + count * SLOT;
    let heap = NODE_SIZE - (data.len() - slots).min(NODE_SIZE - slots);
    raw.truncate(slots + NODE_SIZE - heap);
    let lens = raw[HEADER..slots].chunks_exact(SLOT).map(|slot| usize::from(u16_at(slot, 18)));
    let garbage = (NODE_SIZE - heap).saturating_sub(lens.sum());
    for (field, number) in
        [("count", count), ("heap", heap), ("garbage", garbage), ("len", raw.len())]
    {
        put(&mut raw, NodeHeader::TABLE.at(field), &(number as u16).to_le_bytes());
    }
    raw
}

fn same_entries(one: &Node, other: &Node) {
    assert_eq!((one.count(), one.level(), one.low()), (other.count(), other.level(), other.low()));
    for i in 0..one.count() {
        assert_eq!((one.key(i), one.value(i)), (other.key(i), other.value(i)));
    }
}

/// Asserts that a node, encoded and decoded, is the same.
fn assert_well_formed(node: &Node, how: Compression) {
    let mut copy = node.copy_into(Node::frame());
    let mut raw = vec![1; 3];
    let coding = copy.encode(how, 4, ROOT, &mut raw);
    let raw = &mut raw[3..];
    stamp_node(raw, ADDR);
    assert!(coding.is_valid() && raw.len() == coding.len as usize, "{coding:?}");
    assert_eq!(NodeHeader::read(raw).expect("a header").coding(), Some(coding));
    match Node::decode(raw, coding, Node::frame(), (ID, Some(node.level()), ADDR)) {
        Ok(back) => same_entries(&back, node),
        Err(e) => panic!("{e}"),
    }
}

fn use_node(mut node: Node, data: &[u8]) {
    for i in 0..node.count() {
        assert_eq!(node.search(node.key(i)), Ok(i));
    }
    HOW.iter().for_each(|how| assert_well_formed(&node, *how));
    for (op, how) in data.chunks_exact(4).take(64).zip(HOW.into_iter().cycle()) {
        let key = Key::new(u64::from(op[0]), u64::from(op[1]));
        let value = vec![op[2]; usize::from(op[2]) * 8];
        match (op[3] % 4, node.search(key)) {
            (0, Ok(i)) => node.remove(i),
            (1, Ok(i) | Err(i)) if i < node.count() => node.remove(i),
            (_, Ok(i)) => drop(node.replace(i, &value)),
            (_, Err(i)) if key >= node.low() => drop(node.insert(i, key, &value)),
            _ => {}
        }
        assert_well_formed(&node, how);
    }
    if node.count() > 1 {
        let at = node.count() / 2;
        let (low, count) = (node.key(at), node.count());
        let right = node.split_off(at, low, Node::frame());
        HOW.iter().for_each(|how| assert_well_formed(&node, *how));
        HOW.iter().for_each(|how| assert_well_formed(&right, *how));
        assert_eq!(node.count() + right.count(), count);
        node.append_all(&right);
        HOW.iter().for_each(|how| assert_well_formed(&node, *how));
    }
}

/// A stored block of inodes, of any size that a superblock may name: as it is; with a header that
/// fits it, in plain; with its body as what each codec has written; with the plain body encoded.
pub fn inode_block(data: &[u8]) {
    let inode_size = 256 << (data.len() & 3);
    let volume = data.get(8..16).map_or(0, |bytes| u64_at(bytes, 0));
    let id = BlockId { volume, first: Ino::new(ROOT, 3 * 32), inode_size };
    let _ = inode::BlockPlace::decode(data);
    let as_it_is = BlockHeader::read(data).ok().and_then(|header| header.coding());
    let _ = as_it_is.map(|coding| decode_block(data, coding, id, ADDR));
    if data.len() < BLOCK_HEADER {
        return;
    }
    let body = &data[BLOCK_HEADER..];
    // As many bytes as the input says, when decoded.
    let logical = data.len() as u32 + u32::from(u16_at(data, BlockHeader::TABLE.at("logical")));
    for codec in [Codec::Lz4, Codec::Zstd] {
        let coding = Coding { codec, len: data.len() as u32, logical };
        let raw = block_of(data, id, coding, body);
        if let Ok(inodes) = decode_block(&raw, coding, id, ADDR) {
            use_inodes(id, &inodes);
        }
    }
    let plain = Coding::plain(data.len() as u32);
    let raw = block_of(data, id, plain, body);
    let inodes = decode_block(&raw, plain, id, ADDR);
    if let Ok(inodes) = &inodes {
        use_inodes(id, inodes);
    }
    for how in HOW {
        let mut coded = Vec::new();
        let codec = how.encode(body, body.len(), &mut coded);
        let len = (BLOCK_HEADER + coded.len()) as u32;
        let coding = Coding { codec, len, logical: data.len() as u32 };
        let raw = block_of(data, id, coding, &coded);
        // Rules behind a codec are those in plain.
        assert_eq!(decode_block(&raw, coding, id, ADDR).ok(), inodes.as_ref().ok().cloned());
        let other = Coding { logical: coding.logical - 1, ..coding };
        assert!(decode_block(&raw, other, id, ADDR).is_err());
    }
}

/// A block with the header of `data`, put right.
fn block_of(data: &[u8], id: BlockId, coding: Coding, body: &[u8]) -> Vec<u8> {
    let mut raw = [&data[..BLOCK_HEADER], body].concat();
    let at = |name| BlockHeader::TABLE.at(name);
    put(&mut raw, at("magic"), &inode::MAGIC.to_le_bytes());
    put(&mut raw, at("inode_size"), &(id.inode_size as u16).to_le_bytes());
    put(&mut raw, at("number"), &id.number().to_le_bytes());
    put(&mut raw, at("addr"), &ADDR.0.to_le_bytes());
    put(&mut raw, at("len"), &coding.len.to_le_bytes());
    put(&mut raw, at("logical"), &coding.logical.to_le_bytes()[..3]);
    put(&mut raw, at("codec"), &[coding.codec as u8]);
    raw
}

/// Encodes inodes with each codec, decodes them and encodes them again.
fn use_inodes(id: BlockId, inodes: &[Inode]) {
    let encoded = |inodes: &[Inode], how: Compression| {
        let mut out = vec![9; 3];
        let coding = encode_block((id, 1), how, &mut out, |n, out| {
            let Some(inode) = inodes.get(n) else { return };
            let _ = inode.to_text();
            let start = out.len();
            inode.encode(ROOT, out);
            assert!(out.len() - start <= id.inode_size as usize);
        });
        stamp_block(&mut out[3..], ADDR);
        assert!(coding.is_valid() && coding.logical <= block_max(id.inode_size as usize));
        (out.split_off(3), coding)
    };
    let (plain, _) = encoded(inodes, Compression::NONE);
    for how in HOW {
        let (raw, coding) = encoded(inodes, how);
        let place = inode::BlockPlace::decode(&raw).expect("a block");
        assert_eq!((place.id, place.coding), (id, coding));
        match decode_block(&raw, coding, id, ADDR) {
            Ok(again) => assert_eq!(encoded(&again, Compression::NONE).0, plain),
            Err(e) => panic!("{e}"),
        }
    }
}
