//! A node on disk: the header, then slots and values without the free bytes between them, encoded
//! as stated by the header and the pointer.

use super::{AT_ADDR, AT_EPOCH, AT_ROOT, HEADER, Node, NodeHeader, NodeId, SLOT};
use crate::bytes::set_at;
use crate::codec::{Codec, Coding, Compression};
use shoal_base::limits::{ALIGN, NODE_SIZE};
use shoal_base::{Addr, Error, Result, RootId};

/// Bytes of removed values that may be written instead of compacting the node.
const GARBAGE_MAX: usize = 1024;

const AT_LEN: usize = NodeHeader::TABLE.at("len");
const AT_CODEC: usize = NodeHeader::TABLE.at("codec");

/// Sets the address in a node that was encoded without it.
pub fn stamp_node(stored: &mut [u8], addr: Addr) {
    set_at(stored, AT_ADDR, addr);
}

impl NodeHeader {
    /// Returns the coding of the node; `None` if its fields contradict each other.
    pub fn coding(&self) -> Option<Coding> {
        let (slots, heap) = (HEADER + usize::from(self.count) * SLOT, usize::from(self.heap));
        let values = NODE_SIZE.checked_sub(heap).filter(|_| slots <= heap)?;
        let logical = (slots + values) as u32;
        let coding = Coding { codec: self.codec, len: self.len.into(), logical };
        (coding.is_valid() && coding.len as usize >= HEADER).then_some(coding)
    }
}

impl Node {
    /// Appends the node in its on-disk form, written by `root` in `epoch`: without its free bytes,
    /// and compressed by `how`. [`stamp_node`] sets the address later.
    pub fn encode(
        &mut self,
        how: Compression,
        epoch: u64,
        root: RootId,
        out: &mut Vec<u8>,
    ) -> Coding {
        if self.garbage() > GARBAGE_MAX {
            self.compact();
        }
        let start = out.len();
        let (slots, heap) = (HEADER + self.count() * SLOT, self.heap());
        out.extend_from_slice(&self.raw[..HEADER]);
        let logical = slots + NODE_SIZE - heap;
        let codec = match how.codec {
            Codec::None => {
                out.extend_from_slice(&self.raw[HEADER..slots]);
                out.extend_from_slice(&self.raw[heap..]);
                Codec::None
            }
            _ => {
                let plain = [&self.raw[HEADER..slots], &self.raw[heap..]].concat();
                how.encode(&plain, plain.len().saturating_sub(ALIGN), out)
            }
        };
        let len = out.len() - start;
        let head = &mut out[start..];
        set_at(head, AT_ROOT, root);
        set_at(head, AT_EPOCH, epoch);
        set_at(head, AT_LEN, len as u16);
        set_at(head, AT_CODEC, codec);
        Coding { codec, len: len as u32, logical: logical as u32 }
    }

    /// Decodes a node read from `addr`, whose checksum has been verified, into `frame`, and
    /// verifies its rules. Any subvolume may have written it.
    ///
    /// # Errors
    /// Corruption, with the broken rule.
    pub fn decode(
        stored: &[u8],
        coding: Coding,
        frame: Box<[u8; NODE_SIZE]>,
        (id, level, addr): (NodeId, Option<u8>, Addr),
    ) -> Result<Node> {
        let mut node = Node { raw: frame };
        let broken = match node.unpack(stored, coding) {
            Ok(()) => node.broken_rule(id, level, addr),
            Err(rule) => Some(rule),
        };
        match broken {
            None => Ok(node),
            Some(rule) => {
                Err(Error::corrupt(format!("{} node", id.tree.name()), Some(addr.0), rule))
            }
        }
    }

    /// Decodes a node that nothing points to and that may begin here. Its header gives the coding.
    /// The checksum cannot be verified, because nothing holds it.
    ///
    /// # Errors
    /// As [`Node::decode`].
    pub fn decode_found(
        here: &[u8],
        frame: Box<[u8; NODE_SIZE]>,
        place: (NodeId, Option<u8>, Addr),
    ) -> Result<Node> {
        let coding = NodeHeader::read(here).ok().and_then(|header| header.coding());
        let stored = coding.and_then(|coding| here.get(..coding.len as usize).zip(Some(coding)));
        let Some((stored, coding)) = stored else {
            let (NodeId { tree, .. }, _, addr) = place;
            let object = format!("{} node", tree.name());
            return Err(Error::corrupt(object, Some(addr.0), "the header"));
        };
        Node::decode(stored, coding, frame, place)
    }

    /// Fills the frame from the on-disk bytes, or returns the broken rule.
    fn unpack(&mut self, stored: &[u8], coding: Coding) -> std::result::Result<(), String> {
        let Some((head, body)) = stored.split_at_checked(HEADER) else {
            return Err(format!("{} bytes", stored.len()));
        };
        let header = NodeHeader::read(head).map_err(str::to_string)?;
        if header.coding() != Some(coding) || coding.len as usize != stored.len() {
            let NodeHeader { len, codec, count, heap, .. } = header;
            return Err(format!(
                "{} of {len} bytes, {count} entries, heap at {heap}: does not match its pointer",
                codec.name()
            ));
        }
        self.raw[..HEADER].copy_from_slice(head);
        let (slots, heap) = (HEADER + usize::from(header.count) * SLOT, usize::from(header.heap));
        match coding.codec {
            Codec::None => {
                let (first, second) = body.split_at(slots - HEADER);
                self.raw[HEADER..slots].copy_from_slice(first);
                self.raw[heap..].copy_from_slice(second);
            }
            codec => {
                // Decode next to the slots, then move the heap to its place.
                let end = slots + NODE_SIZE - heap;
                codec.decode(body, &mut self.raw[HEADER..end])?;
                self.raw.copy_within(slots..end, heap);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::super::tests::ID;
    use super::super::{AT_COUNT, AT_HEAP, Key, TreeId};
    use super::*;
    use shoal_base::limits::TREE_VALUE_MAX;

    #[test]
    fn a_node_is_refused_for_its_volume_and_place_but_not_for_its_root() {
        let (addr, level) = (Addr(8192), Some(0));
        let mut node = Node::init(Node::frame(), ID, 0, Key::MIN);
        assert!(node.insert(0, Key::new(5, 6), b"value"));
        let mut raw = Vec::new();
        node.encode(Compression::NONE, 4, RootId(9), &mut raw);
        stamp_node(&mut raw, addr);
        let read = |id, level, addr| Node::decode_found(&raw, Node::frame(), (id, level, addr));
        for root in [ID.root, RootId(9), RootId(u16::MAX)] {
            let read = read(NodeId { root, ..ID }, level, addr).unwrap();
            assert_eq!((read.root(), read.epoch(), read.key(0)), (RootId(9), 4, Key::new(5, 6)));
        }
        assert!(read(NodeId { volume: 8, ..ID }, level, addr).is_err());
        assert!(read(NodeId { tree: TreeId::Attrs, ..ID }, level, addr).is_err());
        assert!(read(ID, Some(1), addr).is_err());
        assert!(read(ID, level, Addr(16384)).is_err());
    }

    /// A leaf with this number of entries, some of them removed again.
    fn leaf(entries: u64) -> Node {
        let mut node = Node::init(Node::frame(), ID, 0, Key::MIN);
        for n in 0..entries {
            let value = vec![n as u8; 30 + n as usize % 7];
            assert!(node.insert(node.count(), Key::new(n, n * 3), &value));
        }
        (0..node.count() / 9).for_each(|i| node.remove(i * 4));
        node
    }

    #[test]
    fn a_node_is_stored_without_its_free_bytes_and_read_back() {
        for how in [Compression::NONE, Compression::LZ4, Compression::zstd(3).unwrap()] {
            for entries in [0, 1, 20, 290] {
                let mut node = leaf(entries);
                let mut raw = vec![9; 5];
                let coding = node.encode(how, 4, ID.root, &mut raw);
                let raw = &raw[5..];
                assert_eq!(raw.len(), coding.len as usize);
                assert_eq!(coding.logical as usize, HEADER + node.used() + node.garbage());
                assert_eq!(coding.codec != Codec::None, how.codec != Codec::None && entries > 0);
                let place = (ID, Some(0), Addr(0));
                let back = Node::decode(raw, coding, Node::frame(), place).unwrap();
                assert_eq!(back.count(), node.count());
                for i in 0..node.count() {
                    assert_eq!((back.key(i), back.value(i)), (node.key(i), node.value(i)));
                }
            }
        }
    }

    #[test]
    fn a_pointer_or_header_with_another_length_or_codec_is_refused() {
        for how in [Compression::NONE, Compression::LZ4] {
            let mut raw = Vec::new();
            let right = leaf(100).encode(how, 4, ID.root, &mut raw);
            let place = (ID, Some(0), Addr(0));
            let Coding { len, logical, .. } = right;
            let refused = |raw: &[u8], coding| {
                let error = Node::decode(raw, coding, Node::frame(), place).err().unwrap();
                assert!(error.to_string().contains("node"), "{error}");
            };
            for coding in [
                Coding { len: len - 1, ..right },
                Coding { logical: logical - 1, ..right },
                Coding { logical: 1 << 20, ..right },
                Coding { codec: Codec::Zstd, ..right },
            ] {
                refused(&raw, coding);
            }
            refused(&raw[..raw.len() - 1], right);
            refused(&raw[..HEADER - 1], right);
            for (at, value) in [(AT_LEN, 3), (AT_COUNT, 2000), (AT_HEAP, 0), (AT_CODEC, 2)] {
                let mut raw = raw.clone();
                raw[at..at + 2].copy_from_slice(&u16::to_le_bytes(value));
                refused(&raw, right);
            }
        }
    }

    #[test]
    fn what_no_leaf_can_hold_is_refused() {
        let written = |key: Key, value: &[u8]| {
            let mut node = Node::init(Node::frame(), ID, 0, Key::MIN);
            assert!(node.insert(0, key, value));
            let mut raw = Vec::new();
            node.encode(Compression::NONE, 1, ID.root, &mut raw);
            Node::decode_found(&raw, Node::frame(), (ID, Some(0), Addr(0))).map(|_| ())
        };
        assert!(written(Key::MIN, &[0; TREE_VALUE_MAX]).is_ok());
        assert!(written(Key::MIN, &[0; TREE_VALUE_MAX + 1]).is_err(), "splitting would not end");
        assert!(written(Key::MAX, b"").is_err(), "no leaf answers for it");
    }
}
