//! Intents: promised changes of an inode's attributes, carried out in follow-up transactions. They
//! are logged in the journal (items 12 to 14). Intents that are open at a checkpoint are also in an
//! object of that checkpoint.
//!
//! ```text
//! intent := inode 8 | generation 4 | length 2 | length 2 | attribute to remove | attribute to set
//! object := magic 4 | count 4 | volume 8 | (id 8 | length 4 | intent)...
//! ```
//!
//! The attribute to remove is stored whole, but only its identity counts. One of the two may be
//! missing: with both it is a *replace*, otherwise a *set* or a *remove*. A replace that has
//! removed the old attribute is logged again as a set, never as a replace of a missing attribute.

use crate::attr::Attr;
use crate::bytes::{Put, Reader, set_at, u16_at};
use crate::declare::layout;
use shoal_base::{Addr, Error, Ino, Result};

/// `SIN1`, at the start of a checkpoint's object of open intents.
pub const MAGIC: u32 = u32::from_le_bytes(*b"SIN1");

layout! {
    /// An intent. Both attributes are encoded; empty means none.
    #[derive(Clone, PartialEq, Eq, Debug, Default)]
    pub struct Intent: "intent", 16 of varying,
    "A change of the attributes of an inode; the attribute to remove and that to set follow." {
        0 ino: Ino, "inode whose attributes change";
        8 generation: u32, "generation of the inode";
        12 remove_len[2], "bytes of the attribute to remove; 0: none";
        14 set_len[2], "bytes of the attribute to set; 0: none";
        + remove: Vec<u8>, "attribute to remove";
        + set: Vec<u8>, "attribute to set";
    }
}

layout! {
    /// Header of a checkpoint's object of open intents.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct OpenHeader: "open-intents", 16 of varying,
    "Open intents of a checkpoint; each follows, preceded by its number (8) and length (4)." {
        0 magic: u32 = MAGIC, "`SIN1`";
        4 count: u32, "number of intents";
        8 volume: u64, "first half of the volume id";
    }
}

/// Bytes of an intent before its attributes.
pub const HEADER: usize = Intent::SIZE;
const AT_REMOVE_LEN: usize = Intent::TABLE.at("remove_len");
const AT_SET_LEN: usize = Intent::TABLE.at("set_len");

impl Intent {
    /// The attribute to remove.
    pub fn to_remove(&self) -> Option<Attr<'_>> {
        Attr::decode_whole(&self.remove)
    }
    /// The attribute to set.
    pub fn to_set(&self) -> Option<Attr<'_>> {
        Attr::decode_whole(&self.set)
    }
    /// Appends the encoding.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut raw = self.store();
        set_at(&mut raw, AT_REMOVE_LEN, self.remove.len() as u16);
        set_at(&mut raw, AT_SET_LEN, self.set.len() as u16);
        out.put_bytes(&raw);
        out.put_bytes(&self.remove);
        out.put_bytes(&self.set);
    }
    /// Returns the encoding.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER + self.remove.len() + self.set.len());
        self.encode(&mut out);
        out
    }
    /// Decodes an intent that must fill `raw`, and verifies it.
    pub fn decode(raw: &[u8]) -> Option<Intent> {
        let mut intent = Intent::read(raw).ok()?;
        let mut r = Reader::new(&raw[HEADER..]);
        intent.remove = r.take(usize::from(u16_at(raw, AT_REMOVE_LEN)))?.to_vec();
        intent.set = r.take(usize::from(u16_at(raw, AT_SET_LEN)))?.to_vec();
        (r.is_empty() && intent.is_valid()).then_some(intent)
    }
    /// Verifies: an inode, something to do, and well-formed attributes.
    fn is_valid(&self) -> bool {
        let whole = |raw: &[u8]| raw.is_empty() || Attr::decode_whole(raw).is_some();
        let something = !self.remove.is_empty() || !self.set.is_empty();
        self.ino.0 != 0 && something && whole(&self.remove) && whole(&self.set)
    }
    /// Its type: set, remove or replace.
    pub fn kind(&self) -> &'static str {
        match (self.remove.is_empty(), self.set.is_empty()) {
            (true, _) => "attr set",
            (false, true) => "attr remove",
            (false, false) => "attr replace",
        }
    }
    /// The intent as text, for logs and fsck.
    pub fn to_text(&self) -> String {
        let mut text = format!("{} inode {}/{}", self.kind(), self.ino, self.generation);
        let root = self.ino.root();
        if let Some(old) = self.to_remove() {
            text += &format!(" of {}", old.id(root).to_text());
        }
        if let Some(new) = self.to_set() {
            text += &format!(" to {}", new.to_text(root));
        }
        text
    }
}

/// Encodes the open intents of a checkpoint.
pub fn encode_open(volume: u64, open: &[(u64, Intent)]) -> Vec<u8> {
    let mut out = Vec::new();
    OpenHeader { count: open.len() as u32, volume }.append(&mut out);
    for (id, intent) in open {
        let raw = intent.to_bytes();
        out.put_u64(*id);
        out.put_u32(raw.len() as u32);
        out.put_bytes(&raw);
    }
    out
}

/// Decodes the open intents of a checkpoint. The caller has verified the checksum.
pub fn decode_open(raw: &[u8], addr: Addr, volume: u64) -> Result<Vec<(u64, Intent)>> {
    let bad = |rule: &str| Error::corrupt("open intents", Some(addr.0), rule);
    let head = match OpenHeader::read(raw) {
        Ok(head) if head.volume == volume => head,
        Ok(_) => return Err(bad("another volume's id")),
        Err(field) => return Err(bad(field)),
    };
    let mut r = Reader::new(&raw[OpenHeader::SIZE..]);
    let mut next = || {
        let (id, len) = (r.u64()?, r.u32()? as usize);
        Some((id, Intent::decode(r.take(len)?)?))
    };
    let mut open = Vec::new();
    for _ in 0..head.count {
        open.push(next().ok_or_else(|| bad("an intent"))?);
    }
    match r.is_empty() {
        true => Ok(open),
        false => Err(bad("length")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attr::{Namespace, Value};

    #[test]
    fn intents_read_back_and_say_what_they_are() {
        let old = Attr { space: Namespace::User, name: b"a", value: Value::Local(b"") };
        let new = Attr { space: Namespace::User, name: b"a", value: Value::Local(b"xyz") };
        let mut intent =
            Intent { ino: Ino(5), generation: 2, remove: old.to_bytes(), set: new.to_bytes() };
        assert_eq!(intent.to_text(), "attr replace inode 5/2 of user.a to user.a = 3 bytes");
        assert_eq!(Intent::decode(&intent.to_bytes()), Some(intent.clone()));
        intent.remove.clear();
        assert_eq!(intent.to_text(), "attr set inode 5/2 to user.a = 3 bytes");
        let open = vec![(3, intent.clone()), (9, intent)];
        let raw = encode_open(7, &open);
        assert_eq!(decode_open(&raw, Addr(0), 7), Ok(open));
        assert!(decode_open(&raw, Addr(0), 8).is_err());
        assert_eq!(Intent::decode(&Intent { ino: Ino(5), ..Intent::default() }.to_bytes()), None);
    }
}
