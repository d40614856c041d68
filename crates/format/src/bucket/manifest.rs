//! Manifests: which piece of which object holds which addresses.
//!
//! ```text
//! manifest := header (112 bytes) | body
//! ```
//!
//! Manifests are numbered from 1 without a gap, and each is created only if its number is free:
//!
//! | kind | body | meaning |
//! | --- | --- | --- |
//! | complete | objects, then extents; compressed | the volume as of the log objects before a slot |
//! | changes | the same: objects that came, grew or went, and extents | the volume as of the log objects before a slot, if these changes are made to an earlier manifest, its *base* |
//! | claim | the owner ([`crate::claim`]), compressed | an opening for writing, which owns the volume from now on; kept for ever |
//! | superseded | none | stands in place of an old complete one or of changes |
//!
//! The manifests from a complete one to the newest, each the base of the next, are *layers*: only
//! together do they say what the volume is. So what is written for a few changes does not grow with
//! the volume.
//!
//! No number ever becomes free again. So a writer of an earlier epoch that wakes up finds the
//! number taken that it would use next, and a reader finds the newest manifest by numbers alone,
//! without a list.

use crate::bytes::{set_at, u64_at};
use crate::codec::{Codec, Coding, Compression};
use crate::declare::{layout, numbered};
use shoal_base::{Addr, Error, Result, checksum, limits};

use super::{FRAME, Name, manifest_name};

/// `SBM1`.
pub const MAGIC: u32 = u32::from_le_bytes(*b"SBM1");
/// Longest body, decoded, in bytes: 22 million extents.
pub const BODY_MAX: u64 = 1 << 30;

numbered! {
    /// The type of a manifest.
    pub enum ManifestKind: u32 {
        /// The complete state.
        1 Complete,
        /// An opening for writing.
        2 Claim,
        /// Stands in place of an old one.
        3 Superseded,
        /// Changes of another one.
        4 Changes,
    }
}

layout! {
    /// Header of a manifest.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct ManifestHeader: "bucket-manifest", 112 of varying,
    "Header of a manifest in a bucket; its body follows, compressed with Zstandard." {
        0 magic: u32 = MAGIC, "`SBM1`";
        4 kind: ManifestKind, "1 complete, 2 claim, 3 superseded, 4 changes";
        8 volume: u64, "random number of the volume in the bucket";
        16 epoch: u64, "the opening that wrote it: sequence number of its claim";
        24 writer: u64, "random number of that opening";
        32 sequence: u64, "number of the manifest, from 1";
        40 base: u64,
           "changes: the manifest that they change; claim: the newest complete one or changes, \
            which it continues; superseded: a newer one of these";
        48 log_next: u64, "complete, changes: first slot of the log that is not in it";
        56 capacity: u64, "bytes of the address space";
        64 objects: u32, "complete, changes: number of objects";
        68 extents: u32, "complete, changes: number of extents";
        72 closed: u8, "1: the owner has closed the volume";
        73 reserved[3], "zero";
        76 body: u32, "bytes of the body as stored";
        80 written: i64, "time of writing, seconds since 1970, for messages";
        88 decoded: u64, "bytes of the body, decoded";
        96 body_sum: u64, "XXH3-64 of the body as stored";
        104 checksum[8], "of the bytes before";
    }
}

layout! {
    /// An object in a manifest.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct ObjectEntry: "bucket-manifest-object", 24 of 24,
    "An object that a manifest refers to, or that is to be deleted." {
        0 epoch: u64, "of a data object; 0: a log object";
        8 number: u64, "of a data object; slot of a log object";
        16 size: u32, "bytes; 0, in changes: it was deleted";
        20 reserved[4], "zero";
    }
}

layout! {
    /// An extent in a manifest: addresses, and the part of a piece that holds them.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Extent: "bucket-manifest-extent", 48 of 48,
    "An extent of a manifest. Extents ascend and do not overlap. In changes, each lies within the \
     last cleared range before it; what a cleared range held in the base is not valid any more." {
        0 addr: Addr, "address of its first byte";
        8 len: u32, "bytes";
        12 skip: u32, "bytes of the decoded piece before it";
        16 decoded: u32, "bytes of the piece, decoded; 0, in changes: a cleared range";
        20 stored: u32, "bytes of the piece, as stored";
        24 object: u32, "index of its object in the manifest";
        28 offset: u32, "offset of the piece in its object";
        32 codec: Codec, "0 none, 1 lz4, 2 zstd";
        33 reserved[7], "zero";
        40 checksum: u64, "XXH3-64 of the piece as stored";
    }
}

const AT_CHECKSUM: usize = ManifestHeader::TABLE.at("checksum");

impl ObjectEntry {
    /// Returns the entry of an object.
    pub fn of(name: Name, size: u32) -> ObjectEntry {
        match name {
            Name::Log(slot) => ObjectEntry { epoch: 0, number: slot, size },
            Name::Data(epoch, number) => ObjectEntry { epoch, number, size },
        }
    }
    /// Returns the object's name.
    pub fn name(&self) -> Name {
        match self.epoch {
            0 => Name::Log(self.number),
            epoch => Name::Data(epoch, self.number),
        }
    }
}

impl Extent {
    /// Returns a range of which the extents behind it say all that it holds.
    pub fn cleared(addr: Addr, len: u32) -> Extent {
        let (skip, decoded, stored, object, offset) = (0, 0, 0, 0, 0);
        let (codec, checksum) = (Codec::None, 0);
        Extent { addr, len, skip, decoded, stored, object, offset, codec, checksum }
    }
    /// Returns whether it is a cleared range.
    pub fn is_cleared(&self) -> bool {
        self.decoded == 0
    }
}

/// A manifest.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Manifest {
    /// Header, with the counts and lengths as they are stored.
    pub header: ManifestHeader,
    /// Its content.
    pub body: Body,
}

/// Content of a manifest.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Body {
    /// Objects; extents by address.
    Complete(Vec<ObjectEntry>, Vec<Extent>),
    /// The same, of what has changed since the base.
    Changes(Vec<ObjectEntry>, Vec<Extent>),
    /// The owner, as its claim encodes it.
    Claim(Vec<u8>),
    /// Nothing.
    Superseded,
}

/// Encodes a manifest. The header needs no kind, counts, lengths and checksums.
pub fn encode(header: ManifestHeader, body: &Body) -> Vec<u8> {
    let mut plain = Vec::new();
    let (kind, objects, extents) = match body {
        Body::Complete(objects, extents) | Body::Changes(objects, extents) => {
            plain.reserve(objects.len() * ObjectEntry::SIZE + extents.len() * Extent::SIZE);
            objects.iter().for_each(|object| object.append(&mut plain));
            extents.iter().for_each(|extent| extent.append(&mut plain));
            let kind = match body {
                Body::Changes(..) => ManifestKind::Changes,
                _ => ManifestKind::Complete,
            };
            (kind, objects.len() as u32, extents.len() as u32)
        }
        Body::Claim(owner) => {
            plain.extend_from_slice(owner);
            (ManifestKind::Claim, 0, 0)
        }
        Body::Superseded => (ManifestKind::Superseded, 0, 0),
    };
    let mut stored = Vec::new();
    let zstd = Compression::zstd(crate::codec::LEVEL_DEFAULT).unwrap_or(Compression::NONE);
    zstd.encode(&plain, plain.len(), &mut stored);
    let header = ManifestHeader {
        kind,
        objects,
        extents,
        body: stored.len() as u32,
        decoded: plain.len() as u64,
        body_sum: checksum(&stored),
        ..header
    };
    let mut out = Vec::with_capacity(ManifestHeader::SIZE + stored.len());
    header.append(&mut out);
    let sum = checksum(&out[..AT_CHECKSUM]);
    set_at(&mut out, AT_CHECKSUM, sum);
    out.extend_from_slice(&stored);
    out
}

/// Decodes a manifest and verifies every byte.
///
/// # Errors
/// Corruption, with the broken rule.
pub fn decode(raw: &[u8], sequence: u64) -> Result<Manifest> {
    let object = || format!("object {}", manifest_name(sequence));
    let bad = |rule: String| Error::corrupt(object(), None, rule);
    let header = decode_header(raw, sequence)?;
    let stored = &raw[ManifestHeader::SIZE..];
    if stored.len() as u64 != u64::from(header.body) || checksum(stored) != header.body_sum {
        return Err(bad(format!("checksum of its body of {} bytes", stored.len())));
    }
    let mut plain = vec![0; header.decoded as usize];
    let codec = if header.decoded == u64::from(header.body) { Codec::None } else { Codec::Zstd };
    codec.decode(stored, &mut plain).map_err(bad)?;
    let body = match header.kind {
        ManifestKind::Superseded => Body::Superseded,
        ManifestKind::Claim => Body::Claim(plain),
        ManifestKind::Complete | ManifestKind::Changes => {
            let (objects, extents) = plain.split_at(header.objects as usize * ObjectEntry::SIZE);
            let objects = entries(objects, ObjectEntry::SIZE, ObjectEntry::read).map_err(bad)?;
            let extents = entries(extents, Extent::SIZE, Extent::read).map_err(bad)?;
            object_rules(&header, &objects).map_err(bad)?;
            extent_rules(&header, &objects, &extents).map_err(bad)?;
            match header.kind {
                ManifestKind::Changes => Body::Changes(objects, extents),
                _ => Body::Complete(objects, extents),
            }
        }
    };
    Ok(Manifest { header, body })
}

/// Decodes the header at the beginning of an object, which must have this number.
///
/// # Errors
/// Corrupt.
pub fn decode_header(raw: &[u8], sequence: u64) -> Result<ManifestHeader> {
    let object = || format!("object {}", manifest_name(sequence));
    let bad = |rule: String| Error::corrupt(object(), None, rule);
    let is_whole = raw.len() >= ManifestHeader::SIZE
        && u64_at(raw, AT_CHECKSUM) == checksum(&raw[..AT_CHECKSUM]);
    let header = ManifestHeader::read(raw).map_err(|rule| match is_whole {
        true => super::unknown(&object(), rule),
        false => bad(rule.to_string()),
    })?;
    if !is_whole {
        return Err(bad("checksum of the header".into()));
    }
    if header.sequence != sequence {
        return Err(bad(format!("is number {}", header.sequence)));
    }
    header_rules(&header).map_err(bad)?;
    Ok(header)
}

fn entries<T, E: ToString>(
    raw: &[u8],
    size: usize,
    read: impl Fn(&[u8]) -> Result<T, E>,
) -> Result<Vec<T>, String> {
    raw.chunks_exact(size).map(|raw| read(raw).map_err(|rule| rule.to_string())).collect()
}

fn header_rules(header: &ManifestHeader) -> Result<(), String> {
    let ManifestHeader { sequence, epoch, base, log_next, .. } = *header;
    let largest = sequence.max(epoch).max(base).max(log_next);
    if sequence == 0 || epoch == 0 || largest > limits::COUNT_MAX {
        return Err(format!("numbers {sequence}, {epoch}, {base}, {log_next}"));
    }
    let tables = u64::from(header.objects) * ObjectEntry::SIZE as u64
        + u64::from(header.extents) * Extent::SIZE as u64;
    let lengths = match header.kind {
        ManifestKind::Complete => header.decoded == tables && log_next > 0 && epoch <= sequence,
        ManifestKind::Changes => {
            let fits = header.decoded == tables && log_next > 0 && epoch <= sequence;
            fits && base > 0 && base < sequence
        }
        ManifestKind::Claim => tables == 0 && epoch == sequence && base < sequence,
        ManifestKind::Superseded => tables == 0 && header.decoded == 0 && base > sequence,
    };
    let capacity = header.capacity.is_multiple_of(limits::SECTOR) && header.capacity > 0;
    if !lengths || header.decoded > BODY_MAX || !capacity || header.closed > 1 {
        return Err(format!(
            "{} objects and {} extents in {} bytes, base {base}, capacity {}",
            header.objects, header.extents, header.decoded, header.capacity
        ));
    }
    Ok(())
}

fn object_rules(header: &ManifestHeader, objects: &[ObjectEntry]) -> Result<(), String> {
    for (n, object) in objects.iter().enumerate() {
        let known = match object.name() {
            Name::Log(slot) => slot > 0 && slot < header.log_next,
            Name::Data(epoch, number) => epoch <= header.epoch && number <= limits::COUNT_MAX,
        };
        if !known || (n > 0 && objects[n - 1].name() >= object.name()) {
            return Err(format!("object {n} is {}", object.name().text()));
        }
    }
    Ok(())
}

fn extent_rules(
    header: &ManifestHeader,
    objects: &[ObjectEntry],
    extents: &[Extent],
) -> Result<(), String> {
    // Extents may lie from `end` up to `bound`.
    let (mut end, mut bound) = match header.kind {
        ManifestKind::Changes => (0, 0),
        _ => (0, header.capacity),
    };
    for (n, extent) in extents.iter().enumerate() {
        let start = extent.addr.0;
        let last = start.checked_add(u64::from(extent.len));
        let Some(last) = last.filter(|last| *last <= header.capacity && extent.len > 0) else {
            return Err(format!("extent {n}: {} bytes at {start}", extent.len));
        };
        if start < end {
            return Err(format!("extent {n} overlaps the one before"));
        }
        if header.kind == ManifestKind::Changes && extent.is_cleared() {
            if *extent != Extent::cleared(extent.addr, extent.len) {
                return Err(format!("extent {n}: a cleared range with bytes"));
            }
            if start < bound {
                return Err(format!("extent {n} overlaps the cleared range before"));
            }
            (end, bound) = (start, last);
            continue;
        }
        if last > bound {
            return Err(format!("extent {n} is not in a cleared range"));
        }
        end = last;
        let size = objects.get(extent.object as usize).map(|object| u64::from(object.size));
        let stored = u64::from(extent.offset) + u64::from(extent.stored);
        let Some(_) = size.filter(|size| stored <= *size) else {
            return Err(format!("extent {n}: its place in object {}", extent.object));
        };
        let Extent { codec, stored: len, decoded: logical, .. } = *extent;
        let part = u64::from(extent.skip) + u64::from(extent.len) <= u64::from(logical);
        if !part || logical > FRAME || !(Coding { codec, len, logical }).is_valid() {
            return Err(format!("extent {n}: its part of a piece of {logical} bytes"));
        }
    }
    Ok(())
}

/// Corrects the checksums of a changed manifest, for tests of the rules behind them. Does nothing
/// if
/// `raw` is too short.
pub fn reseal(raw: &mut [u8]) {
    if raw.len() < ManifestHeader::SIZE {
        return;
    }
    let body = checksum(&raw[ManifestHeader::SIZE..]);
    set_at(raw, ManifestHeader::TABLE.at("body_sum"), body);
    let sum = checksum(&raw[..AT_CHECKSUM]);
    set_at(raw, AT_CHECKSUM, sum);
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: ManifestHeader = ManifestHeader {
        kind: ManifestKind::Complete,
        volume: 7,
        epoch: 3,
        writer: 9,
        sequence: 5,
        base: 3,
        log_next: 40,
        capacity: 1 << 30,
        objects: 0,
        extents: 0,
        closed: 1,
        body: 0,
        written: 1_700_000_000,
        decoded: 0,
        body_sum: 0,
    };

    fn extent(addr: u64, len: u32, object: u32) -> Extent {
        let addr = Addr(addr);
        let (decoded, stored, codec) = (len + 8, len / 2, Codec::Zstd);
        Extent { addr, len, skip: 8, decoded, stored, object, offset: 72, codec, checksum: 1 }
    }

    fn complete() -> Body {
        let objects = [Name::Log(3), Name::Log(39), Name::Data(3, 1)];
        let objects = objects.map(|name| ObjectEntry::of(name, 90_000));
        let extents = (0..100).map(|n| extent(n * 8192, 4096, n as u32 % 3)).collect();
        Body::Complete(objects.to_vec(), extents)
    }

    fn changes() -> Body {
        let gone = ObjectEntry::of(Name::Log(2), 0);
        let objects = [gone, ObjectEntry::of(Name::Data(3, 1), 90_000)];
        let cleared = |addr, len| Extent::cleared(Addr(addr), len);
        let extents = [
            cleared(0, 4096),
            cleared(8192, 16_384),
            extent(8192, 4096, 1),
            extent(20_480, 4096, 1),
            cleared(24_576, 4096),
            extent(24_576, 4096, 1),
        ];
        Body::Changes(objects.to_vec(), extents.to_vec())
    }

    #[test]
    fn each_kind_comes_back() {
        let claim = ManifestHeader { epoch: 5, ..HEADER };
        let newer = ManifestHeader { base: 9, ..HEADER };
        let owner = Body::Claim(b"somebody".to_vec());
        let kinds =
            [(HEADER, complete()), (HEADER, changes()), (claim, owner), (newer, Body::Superseded)];
        for (header, body) in kinds {
            let raw = encode(header, &body);
            let found = decode(&raw, 5).expect("it is right");
            assert_eq!(found.body, body);
            assert_eq!(encode(found.header, &found.body), raw);
            assert!(decode(&raw, 6).expect_err("another number").to_string().contains("is number"));
            for at in 0..raw.len() {
                let mut changed = raw.clone();
                changed[at] ^= 1;
                assert!(decode(&changed, 5).is_err(), "byte {at}");
                assert!(decode(&raw[..at], 5).is_err(), "{at} bytes");
            }
        }
    }

    #[test]
    fn lies_are_refused_by_name() {
        type Change = fn(&mut Vec<ObjectEntry>, &mut Vec<Extent>);
        let refusal = |mut body: Body, change: Change| {
            let (Body::Complete(objects, extents) | Body::Changes(objects, extents)) = &mut body
            else {
                unreachable!("it has tables")
            };
            change(objects, extents);
            decode(&encode(HEADER, &body), 5).expect_err("it is refused").to_string()
        };
        let cases: [(&str, Change); 9] = [
            ("object 1 is log/", |objects, _| objects[1].number = 40),
            ("object 1 is log/", |objects, _| objects[1].number = 3),
            ("object 2 is data/", |objects, _| objects[2].epoch = 4),
            ("extent 4 overlaps", |_, extents| extents[4].addr = Addr(3 * 8192)),
            ("extent 99: 4096 bytes", |_, extents| extents[99].addr = Addr(1 << 30)),
            ("extent 1: its place", |_, extents| extents[1].object = 3),
            ("extent 1: its place", |_, extents| extents[1].offset = 89_000),
            ("extent 1: its part", |_, extents| extents[1].skip = 9),
            ("extent 1: its part", |_, extents| extents[1] = Extent::cleared(Addr(8192), 4096)),
        ];
        for (rule, change) in cases {
            let said = refusal(complete(), change);
            assert!(said.contains(rule), "{said}, not {rule}");
        }
        let cases: [(&str, Change); 6] = [
            ("extent 0: a cleared range with", |_, extents| extents[0].checksum = 1),
            ("extent 1 overlaps the cleared", |_, extents| extents[1].addr = Addr(2048)),
            ("extent 2 is not in a cleared", |_, extents| extents[1].len = 2048),
            ("extent 3 is not in a cleared", |_, extents| extents[3].addr = Addr(20_992)),
            ("extent 2: its place", |_, extents| extents[2].object = 0),
            ("extent 3 overlaps the one", |_, extents| extents[3].addr = Addr(8192)),
        ];
        for (rule, change) in cases {
            let said = refusal(changes(), change);
            assert!(said.contains(rule), "{said}, not {rule}");
        }
        for base in [0, 5] {
            let raw = encode(ManifestHeader { base, ..HEADER }, &changes());
            let said = decode(&raw, 5).expect_err("changes of nothing").to_string();
            assert!(said.contains(&format!("base {base}")), "{said}");
        }
        let mut raw = encode(HEADER, &complete());
        raw[ManifestHeader::TABLE.at("kind")] = 99;
        reseal(&mut raw);
        let said = decode(&raw, 5).expect_err("another kind");
        assert!(said.to_string().contains("a newer version of Shoal"), "{said}");
        assert!(!said.is_damage());
        let mut raw = encode(HEADER, &complete());
        raw[ManifestHeader::TABLE.at("decoded")] ^= 1;
        reseal(&mut raw);
        let said = decode(&raw, 5).expect_err("a wrong length").to_string();
        assert!(said.contains("3 objects and 100 extents in"), "{said}");
    }
}
