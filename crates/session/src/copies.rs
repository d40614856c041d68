//! Copies of directories, with which a client answers for itself what it would have to ask.
//!
//! A copy holds as long as the volume has the same state ([`Session::state`]): every change of the
//! volume raises the state's number before it is made (`shoal_txn::States`). So a client that has
//! compared the numbers may answer from its copy, as if it had asked at that moment.
//!
//! Copies stay the bytes that were sent, and are read where they lie: most of an answer is never
//! looked at.
//!
//! ```text
//! copies    := directory*
//! directory := attributes | bytes of the entries 4 | entry*
//! entry     := bytes of the name 2 | type 1 | flags 1 | inode number 8 | cookie 8 | name
//!              | attributes, if there are some
//! ```
//!
//! [`Session::state`]: crate::Session::state

use crate::wire::{Put, Reader, Take, Writer};
use shoal_engine::{Attr, Code, DirEntry, FileKind, Ino, Result, Stat};

/// Entries of one answer.
pub const ENTRIES_MAX: u32 = 1 << 13;
/// Bytes of one answer: it comes as a whole, so that none waits at the server until it is fetched.
pub const BYTES_MAX: usize = 1 << 20;
/// Entries that a thread may copy while others wait for it.
pub const ENTRIES_QUICK: u32 = 1024;

/// Flags of an entry.
const HAS_ATTRIBUTES: u8 = 1;
const HAS_NO_XATTRS: u8 = 2;

/// An entry of a copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EntryCopy<'c> {
    /// Its name.
    pub name: &'c [u8],
    /// Inode number.
    pub ino: Ino,
    /// Type.
    pub kind: FileKind,
    /// Position behind it in a listing.
    pub cookie: u64,
    /// It has no extended attributes: known if that was wanted.
    pub has_no_xattrs: bool,
    /// Attributes, if they were wanted.
    attributes: Option<&'c [u8]>,
}

impl EntryCopy<'_> {
    /// Returns the attributes, if they were wanted.
    #[inline]
    pub fn attr(&self) -> Option<Attr> {
        Attr::take(&mut Reader::new(self.attributes?)).ok()
    }

    /// Returns whether there are attributes.
    pub fn has_attributes(&self) -> bool {
        self.attributes.is_some()
    }
}

/// Appends copies to an answer.
#[derive(Debug)]
pub struct CopyWriter<'o> {
    out: &'o mut Vec<u8>,
    /// Begin of the directory, and of the number of bytes of its entries.
    begin: usize,
    counted: usize,
}

impl<'o> CopyWriter<'o> {
    /// Begins a directory.
    pub fn begin(out: &'o mut Vec<u8>, attr: &Attr) -> CopyWriter<'o> {
        let begin = out.len();
        attr.put(&mut Writer::new(out));
        let counted = out.len();
        0u32.put(&mut Writer::new(out));
        CopyWriter { out, begin, counted }
    }

    /// Appends an entry, with its attributes if they are wanted.
    #[inline]
    pub fn entry(&mut self, entry: &DirEntry<'_>, stat: Option<&Stat>, has_no_xattrs: bool) {
        let attributes = if stat.is_some() { HAS_ATTRIBUTES } else { 0 };
        let flags = attributes | if has_no_xattrs { HAS_NO_XATTRS } else { 0 };
        let mut head = [0; ENTRY_HEAD];
        head[..2].copy_from_slice(&(entry.name.len() as u16).to_le_bytes());
        (head[2], head[3]) = (entry.kind as u8, flags);
        head[4..12].copy_from_slice(&entry.ino.0.to_le_bytes());
        head[12..].copy_from_slice(&entry.cookie.to_le_bytes());
        self.out.extend_from_slice(&head);
        self.out.extend_from_slice(entry.name);
        if let Some(stat) = stat {
            stat.put(&mut Writer::new(self.out));
        }
    }

    /// Bytes of the answer so far.
    pub fn bytes(&self) -> usize {
        self.out.len()
    }

    /// Ends the directory.
    pub fn end(self) {
        let len = (self.out.len() - self.counted - 4) as u32;
        self.out[self.counted..][..4].copy_from_slice(&len.to_le_bytes());
    }

    /// Takes the directory back.
    pub fn cancel(self) {
        self.out.truncate(self.begin);
    }
}

/// Bytes of an entry before its name.
const ENTRY_HEAD: usize = 20;

const _: () = assert!(BYTES_MAX + size_of::<u64>() <= crate::memory::ROOM);

/// Takes a directory off copies: its attributes, and the bytes of its entries.
///
/// # Errors
/// `EINVAL` for what is none.
pub fn take_dir<'c>(from: &mut Reader<'c>) -> Result<(Attr, &'c [u8])> {
    let (attr, len): (Attr, u32) = Take::take(from)?;
    Ok((attr, from.bytes(len as usize)?))
}

/// Reads the entry at a place in the bytes of entries.
///
/// # Errors
/// `EINVAL` for what is none.
#[inline]
pub fn entry_at(entries: &[u8], at: usize) -> Result<EntryCopy<'_>> {
    let rest = entries.get(at..).ok_or(Code::Invalid)?;
    let (head, rest) = rest.split_first_chunk::<ENTRY_HEAD>().ok_or(Code::Invalid)?;
    let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| head[at + byte]));
    let name = usize::from(u16::from_le_bytes([head[0], head[1]]));
    let kind = FileKind::from_dirent_type(head[2]).ok_or(Code::Invalid)?;
    let (name, rest) = rest.split_at_checked(name).ok_or(Code::Invalid)?;
    let attributes = match head[3] & HAS_ATTRIBUTES {
        0 => None,
        _ => Some(rest.get(..ATTRIBUTES).ok_or(Code::Invalid)?),
    };
    Ok(EntryCopy {
        name,
        ino: Ino(word(4)),
        kind,
        cookie: word(12),
        has_no_xattrs: head[3] & HAS_NO_XATTRS != 0,
        attributes,
    })
}

/// Returns where the entry behind the one at a place begins. Whether there is one, and whether the
/// rest of this one is, [`entry_at`] finds out.
#[inline]
pub fn behind(entries: &[u8], at: usize) -> Option<usize> {
    let head = entries.get(at..)?.first_chunk::<ENTRY_HEAD>()?;
    let attributes = if head[3] & HAS_ATTRIBUTES == 0 { 0 } else { ATTRIBUTES };
    Some(at + ENTRY_HEAD + usize::from(u16::from_le_bytes([head[0], head[1]])) + attributes)
}

/// Bytes of attributes.
const ATTRIBUTES: usize = crate::wire::STAT_WORDS * 8;

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_engine::Fields;

    fn attr(ino: u64) -> Attr {
        let mode = FileKind::Directory.mode_bits() | 0o755;
        Stat { valid: Fields::ALL, ino, mode, ..Stat::default() }.attr().unwrap()
    }

    fn written() -> Vec<u8> {
        let mut out = Vec::new();
        for ino in [7, 9] {
            let mut dir = CopyWriter::begin(&mut out, &attr(ino));
            for (name, cookie) in [(&b"a"[..], 5), (b"long name", 9)] {
                let (kind, child) = (FileKind::Regular, Ino(ino * 10));
                let entry = DirEntry { name, ino: child, kind, cookie };
                let stat = Stat::from(attr(child.0));
                dir.entry(&entry, (cookie == 9).then_some(&stat), ino == 7);
            }
            dir.end();
        }
        CopyWriter::begin(&mut out, &attr(11)).cancel();
        out
    }

    fn read(bytes: &[u8]) -> Result<Vec<String>> {
        let (mut from, mut found) = (Reader::new(bytes), Vec::new());
        while !from.is_at_end() {
            let (attr, entries) = take_dir(&mut from)?;
            let mut at = 0;
            while at < entries.len() {
                let entry = entry_at(entries, at)?;
                let of = entry.attr().map(|attr| attr.ino.0);
                let name = String::from_utf8_lossy(entry.name);
                let (cookie, plain) = (entry.cookie, entry.has_no_xattrs);
                found.push(format!("{} {name} {cookie} {of:?} {plain}", attr.ino.0));
                at = behind(entries, at).unwrap();
            }
        }
        Ok(found)
    }

    #[test]
    fn copies_are_read_as_they_were_written_and_nothing_else_is() {
        let bytes = written();
        let all = [
            "7 a 5 None true",
            "7 long name 9 Some(70) true",
            "9 a 5 None false",
            "9 long name 9 Some(90) false",
        ];
        assert_eq!(read(&bytes).unwrap(), all);
        let ends = (0..bytes.len()).filter(|len| read(&bytes[..*len]).is_ok()).count();
        assert_eq!(ends, 2, "nothing, and one directory");
        for at in 0..bytes.len() {
            for change in [1, 0x80, 0xff] {
                let mut bytes = bytes.clone();
                bytes[at] ^= change;
                // It ends, without a panic.
                let _ = read(&bytes);
            }
        }
    }
}
