//! Feature bits in three words. A volume with an unknown *incompat* bit is refused, with the name
//! of the feature; one with an unknown *read-only-compat* bit can only be read; unknown *compat*
//! bits are ignored.

/// One feature of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Feature {
    /// The word that contains it.
    pub word: Word,
    /// Bit number in that word. Must never be reused.
    pub bit: u8,
    /// Name shown to people.
    pub name: &'static str,
    /// Day of its declaration.
    pub since: &'static str,
    /// The error that a reader without support for it would make.
    pub what: &'static str,
}

/// A version of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    /// Its number, as in the superblock.
    pub number: u32,
    /// Day of its declaration.
    pub since: &'static str,
    /// Reason for the version, and consequences for volumes.
    pub what: &'static str,
}

/// Version of the volumes that this code makes and opens. A draft has its number in the upper half;
/// its volumes can be opened only by the Shoal that made them.
pub const VERSION: u32 = 2;

/// Every version ever written.
pub const VERSIONS: &[Version] = &[
    Version {
        number: 1,
        since: "2026-11-21",
        what: "the first version; no byte of it was pinned; no longer readable",
    },
    Version {
        number: VERSION,
        since: "2026-11-22",
        what: "every structure is declared once; a pointer records when its object was written; \
               numbers are relative to their subvolume; data is verified by pieces; the usage \
               table is in pages; nodes, inode blocks and data may be compressed; data that is \
               flushed together is aligned to 4 KiB",
    },
];

/// Returns the reason for refusing a volume of this version, and the remedy; `None` if the version
/// is supported.
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

/// The three words of feature bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// Harmless when unknown.
    Compat,
    /// Readable when unknown.
    ReadOnlyCompat,
    /// Unusable when unknown.
    Incompat,
}

/// Incompat bit 0: objects may be compressed with LZ4.
pub const INCOMPAT_LZ4: u64 = 1 << 0;
/// Incompat bit 1: objects may be compressed with Zstandard.
pub const INCOMPAT_ZSTD: u64 = 1 << 1;
/// Incompat bit 2: segment numbers are never reused, so they are sparse and the volume has no fixed
/// size. Reserved for volumes in a bucket.
pub const INCOMPAT_SEGMENTS_ONCE: u64 = 1 << 2;
/// Incompat bit 3: recovery must verify the data of the journal's last records. Set while a volume
/// is open for writing, and until it has been recovered after a crash.
pub const INCOMPAT_VERIFIED_TAIL: u64 = 1 << 3;
/// Compat bit 0: the checkpoint was written by a recovery that had not ended. It says nothing of
/// the data of the records behind it. Set only together with [`INCOMPAT_VERIFIED_TAIL`].
pub const COMPAT_REPLAYING: u64 = 1 << 0;
/// Incompat bits this code understands.
pub const INCOMPAT_KNOWN: u64 = INCOMPAT_LZ4 | INCOMPAT_ZSTD | INCOMPAT_VERIFIED_TAIL;
/// Read-only-compat bit 0: every name has a parent pointer in its child.
pub const RO_COMPAT_PARENTS: u64 = 1 << 0;
/// Read-only-compat bits this code understands.
pub const RO_COMPAT_KNOWN: u64 = RO_COMPAT_PARENTS;

/// Every feature.
pub const FEATURES: &[Feature] = &[
    Feature {
        word: Word::ReadOnlyCompat,
        bit: 0,
        name: "parent-pointers",
        since: "2026-11-22",
        what: "every name has a parent pointer in its child; a Shoal without support for them \
               would make and remove names without updating them",
    },
    Feature {
        word: Word::Incompat,
        bit: 0,
        name: "lz4",
        since: "2026-11-22",
        what: "nodes, inode blocks and data may be compressed with LZ4",
    },
    Feature {
        word: Word::Incompat,
        bit: 1,
        name: "zstd",
        since: "2026-11-22",
        what: "nodes, inode blocks and data may be compressed with Zstandard",
    },
    Feature {
        word: Word::Incompat,
        bit: 2,
        name: "segments-once",
        since: "2026-11-22",
        what: "segment numbers are never reused and the volume has no fixed size. Reserved for \
               volumes in a bucket, which do without it: no Shoal makes or opens such a volume",
    },
    Feature {
        word: Word::Incompat,
        bit: 3,
        name: "verified-tail",
        since: "2026-11-29",
        what: "one flush covers records of the journal and the data that they point to. Set while \
               the volume is open for writing or not recovered after a crash; a Shoal without \
               support for it would replay records whose data did not arrive. One that was closed \
               does not have it",
    },
    Feature {
        word: Word::Compat,
        bit: 0,
        name: "replaying",
        since: "2026-11-29",
        what: "the checkpoint was written by a recovery that had not ended: that data was written \
               before it does not mean that it arrived. Only with verified-tail",
    },
];

/// Returns the bits set in `bits`, each with its name; `None` for an unknown one.
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
