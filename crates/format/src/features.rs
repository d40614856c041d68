//! Feature bits in three words. An unknown *incompat* bit refuses the volume by name; an unknown
//! *read-only-compat* bit lets it be read; unknown *compat* bits are ignored.

/// One feature of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Feature {
    /// Which word it is in.
    pub word: Word,
    /// Bit number in that word; never reused.
    pub bit: u8,
    /// Name shown to people.
    pub name: &'static str,
    /// Day on which it was declared.
    pub since: &'static str,
    /// What a reader that does not know it would get wrong.
    pub what: &'static str,
}

/// A version of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    /// Its number, as in the superblock.
    pub number: u32,
    /// Day on which it was declared.
    pub since: &'static str,
    /// Why it is there, and what it means for volumes.
    pub what: &'static str,
}

/// Version of the volumes that this code makes and opens. A draft of one has the draft's number in
/// the upper half: its volumes are opened by the Shoal that made them, and by no other.
pub const VERSION: u32 = 2;

/// Every version that was ever written, a row each.
pub const VERSIONS: &[Version] = &[
    Version {
        number: 1,
        since: "2026-11-21",
        what: "the first one, of which no byte was pinned; it is not read any more",
    },
    Version {
        number: VERSION,
        since: "2026-11-22",
        what: "every structure is declared once; a pointer knows when its object was written; \
               numbers are relative to their root; data is checked by pieces; the usage table is \
               in pages; nodes, inode blocks and data may be compressed; what is flushed together \
               is aligned to 4 KiB",
    },
];

/// Why a volume of another version is refused, and what helps; `None`: it is of this one.
pub fn refuse_version(version: u32) -> Option<String> {
    let (number, draft) = (version & 0xffff, version >> 16);
    Some(match version {
        VERSION => return None,
        1 => "volume has format version 1, which was never pinned and is not read any more: copy \
              its files out with the shoal that made it, and in with this one"
            .into(),
        _ if draft != 0 => format!(
            "volume has draft {draft} of format version {number}, which only the shoal that made \
             it opens: copy its files out with that, and in with this one"
        ),
        _ => format!(
            "volume has format version {number}, this shoal knows {}: use a newer shoal",
            VERSION & 0xffff
        ),
    })
}

/// The three words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// Harmless when unknown.
    Compat,
    /// Readable when unknown.
    ReadOnlyCompat,
    /// Unusable when unknown.
    Incompat,
}

/// Incompat bit 0: objects may be coded with LZ4.
pub const INCOMPAT_LZ4: u64 = 1 << 0;
/// Incompat bit 1: objects may be coded with Zstandard.
pub const INCOMPAT_ZSTD: u64 = 1 << 1;
/// Incompat bit 2: the number of a segment is never used twice, so the space of numbers is sparse,
/// and the volume has no fixed size. Reserved for volumes in a bucket.
pub const INCOMPAT_SEGMENTS_ONCE: u64 = 1 << 2;
/// Incompat bits this code understands.
pub const INCOMPAT_KNOWN: u64 = INCOMPAT_LZ4 | INCOMPAT_ZSTD;
/// Read-only-compat bit 0: every name has a parent pointer in its child.
pub const RO_COMPAT_PARENTS: u64 = 1 << 0;
/// Read-only-compat bits this code understands.
pub const RO_COMPAT_KNOWN: u64 = RO_COMPAT_PARENTS;

/// Every feature, a row each.
pub const FEATURES: &[Feature] = &[
    Feature {
        word: Word::ReadOnlyCompat,
        bit: 0,
        name: "parent-pointers",
        since: "2026-11-22",
        what: "every name has a parent pointer in its child; a Shoal that does not know them \
               would make and remove names without",
    },
    Feature {
        word: Word::Incompat,
        bit: 0,
        name: "lz4",
        since: "2026-11-22",
        what: "nodes, inode blocks and data may be coded with LZ4",
    },
    Feature {
        word: Word::Incompat,
        bit: 1,
        name: "zstd",
        since: "2026-11-22",
        what: "nodes, inode blocks and data may be coded with Zstandard",
    },
    Feature {
        word: Word::Incompat,
        bit: 2,
        name: "segments-once",
        since: "2026-11-22",
        what: "the number of a segment is never used twice, and the volume has no fixed size: for \
               volumes in a bucket. Reserved: no Shoal makes or opens such a volume yet",
    },
];

/// Names of the bits set in `word`, unknown ones as `None`.
pub fn names(word: Word, bits: u64) -> impl Iterator<Item = (u8, Option<&'static str>)> {
    (0..64u8).filter(move |bit| bits >> bit & 1 == 1).map(move |bit| {
        let known = FEATURES.iter().find(|f| f.word == word && f.bit == bit);
        (bit, known.map(|f| f.name))
    })
}

/// Returns `name` or `incompat bit 7` for every bit set, comma separated.
pub fn describe_bits(word: Word, bits: u64) -> String {
    let one = |(bit, name): (u8, Option<&str>)| match name {
        Some(name) => name.to_string(),
        None => format!("{word:?} bit {bit}").to_lowercase(),
    };
    names(word, bits).map(one).collect::<Vec<_>>().join(", ")
}

/// Returns the reason for refusing a volume with these incompatible features, and the remedy;
/// `None` if all are known.
pub fn refuse_incompat(bits: u64) -> Option<String> {
    let unknown = bits & !INCOMPAT_KNOWN;
    let list = describe_bits(Word::Incompat, unknown);
    (unknown != 0).then(|| {
        format!("volume needs features this shoal does not know: {list}: use a newer shoal")
    })
}
