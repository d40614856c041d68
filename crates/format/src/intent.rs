//! Intents: what a call has promised to do to an inode's attributes, in follow-up transactions.
//! They stand in the journal (items 12 to 14), and, while some are open when a checkpoint is made,
//! in an object of that checkpoint.
//!
//! ```text
//! intent := inode 8 | generation 4 | length 2 | length 2 | attribute to remove | attribute to set
//! object := magic 4 | count 4 | volume 8 | (id 8 | length 4 | intent)...
//! ```
//!
//! What to remove is a whole attribute, of which only what names it counts. One of the two may be
//! missing: with both it is a *replace*, otherwise a *set* or a *remove*. A replace that has
//! removed the old attribute is recorded anew as a set: never as a replace of something that is
//! gone.

use crate::attr::Attr;
use crate::bytes::{Put, Reader};
use shoal_base::{Addr, Error, Ino, Result};

/// `SIN1`, at the start of a checkpoint's object of open intents.
pub const MAGIC: u32 = u32::from_le_bytes(*b"SIN1");
/// Bytes of an intent before its attributes.
pub const HEADER: usize = 16;

/// An intent. The attributes are encoded; empty: none.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Intent {
    /// Whose attributes.
    pub ino: Ino,
    /// Generation of that inode.
    pub generation: u32,
    /// What is to go.
    pub remove: Vec<u8>,
    /// What is to come.
    pub set: Vec<u8>,
}

impl Intent {
    /// The attribute that is to go.
    pub fn to_remove(&self) -> Option<Attr<'_>> {
        Attr::decode_whole(&self.remove)
    }
    /// The attribute that is to come.
    pub fn to_set(&self) -> Option<Attr<'_>> {
        Attr::decode_whole(&self.set)
    }
    /// Appends it.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.ino.0);
        out.put_u32(self.generation);
        out.put_u16(self.remove.len() as u16);
        out.put_u16(self.set.len() as u16);
        out.put_bytes(&self.remove);
        out.put_bytes(&self.set);
    }
    /// The bytes by themselves.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER + self.remove.len() + self.set.len());
        self.encode(&mut out);
        out
    }
    /// Reads one that is all of `raw`, and must obey the rules.
    pub fn decode(raw: &[u8]) -> Option<Intent> {
        let mut r = Reader::new(raw);
        let (ino, generation) = (Ino(r.u64()?), r.u32()?);
        let (remove, set) = (r.u16()? as usize, r.u16()? as usize);
        let (remove, set) = (r.take(remove)?.to_vec(), r.take(set)?.to_vec());
        let intent = Intent { ino, generation, remove, set };
        (r.is_empty() && intent.is_valid()).then_some(intent)
    }
    /// The rules: an inode, something to do, and what is there are attributes.
    fn is_valid(&self) -> bool {
        let whole = |raw: &[u8]| raw.is_empty() || Attr::decode_whole(raw).is_some();
        let something = !self.remove.is_empty() || !self.set.is_empty();
        self.ino.0 != 0 && something && whole(&self.remove) && whole(&self.set)
    }
    /// Set, remove or replace.
    pub fn kind(&self) -> &'static str {
        match (self.remove.is_empty(), self.set.is_empty()) {
            (true, _) => "attr set",
            (false, true) => "attr remove",
            (false, false) => "attr replace",
        }
    }
    /// For logs and fsck.
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

/// Encodes the intents that are open at a checkpoint.
pub fn encode_open(volume: u64, open: &[(u64, Intent)]) -> Vec<u8> {
    let mut out = Vec::new();
    out.put_u32(MAGIC);
    out.put_u32(open.len() as u32);
    out.put_u64(volume);
    for (id, intent) in open {
        let raw = intent.to_bytes();
        out.put_u64(*id);
        out.put_u32(raw.len() as u32);
        out.put_bytes(&raw);
    }
    out
}

/// Decodes them; the checksum has been verified against the pointer.
pub fn decode_open(raw: &[u8], addr: Addr, volume: u64) -> Result<Vec<(u64, Intent)>> {
    let fields = || {
        let mut r = Reader::new(raw);
        let known = r.u32()? == MAGIC;
        let (count, of) = (r.u32()?, r.u64()?);
        let mut open = Vec::new();
        for _ in 0..count {
            let (id, len) = (r.u64()?, r.u32()? as usize);
            open.push((id, Intent::decode(r.take(len)?)?));
        }
        (known && of == volume && r.is_empty()).then_some(open)
    };
    fields().ok_or_else(|| Error::corrupt("open intents", Some(addr.0), "magic, volume or length"))
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
