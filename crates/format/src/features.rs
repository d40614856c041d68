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
    /// What a reader that does not know it would get wrong.
    pub what: &'static str,
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

/// Incompat bit 0: the names of directory entries are hashed with the volume's seed.
pub const INCOMPAT_SEEDED_NAMES: u64 = 1 << 0;
/// Incompat bit 1: trees without entries have no root node. Set when a volume is made, or first
/// written to.
pub const INCOMPAT_EMPTY_TREES: u64 = 1 << 1;
/// Incompat bit 2: the roots are in pages, and the pointers to orphan blocks in lists. Set when a
/// volume is made, or first written to.
pub const INCOMPAT_PAGED_ROOTS: u64 = 1 << 2;
/// Incompat bits this code understands.
pub const INCOMPAT_KNOWN: u64 = INCOMPAT_SEEDED_NAMES | INCOMPAT_EMPTY_TREES | INCOMPAT_PAGED_ROOTS;
/// Read-only-compat bit 0: inodes may have attributes.
pub const RO_COMPAT_ATTRS: u64 = 1 << 0;
/// Read-only-compat bit 1: every name has a parent pointer in its child.
pub const RO_COMPAT_PARENTS: u64 = 1 << 1;
/// Read-only-compat bit 2: slots of the orphan table may name removed directories with entries, and
/// files with names whose tail is being cut. Set when a volume is made, or first written to.
pub const RO_COMPAT_ORPHAN_TREES: u64 = 1 << 2;
/// Read-only-compat bit 3: data objects may be longer than their headers say. Set when a volume is
/// made, or first written to.
pub const RO_COMPAT_GROWN_OBJECTS: u64 = 1 << 3;
/// Read-only-compat bits this code understands.
pub const RO_COMPAT_KNOWN: u64 =
    RO_COMPAT_ATTRS | RO_COMPAT_PARENTS | RO_COMPAT_ORPHAN_TREES | RO_COMPAT_GROWN_OBJECTS;

/// Every feature, a row each.
pub const FEATURES: &[Feature] = &[
    Feature {
        word: Word::Incompat,
        bit: 0,
        name: "seeded-names",
        what: "name hashes are XXH3-64 seeded with the volume id; without it no name would be \
               found",
    },
    Feature {
        word: Word::Incompat,
        bit: 1,
        name: "empty-trees",
        what: "a tree without entries has a null pointer instead of a root node; who does not \
               know that would take it for damage",
    },
    Feature {
        word: Word::Incompat,
        bit: 2,
        name: "paged-roots",
        what: "a checkpoint names pages of roots and lists of orphan blocks instead of holding \
               them; who does not know that would find no root",
    },
    Feature {
        word: Word::ReadOnlyCompat,
        bit: 0,
        name: "attributes",
        what: "inodes have extended attributes; who does not know them would lose the space of \
               large values, and access control lists when a mode changes",
    },
    Feature {
        word: Word::ReadOnlyCompat,
        bit: 1,
        name: "parent-pointers",
        what: "every name has a parent pointer in its child; who does not know them would make \
               and remove names without",
    },
    Feature {
        word: Word::ReadOnlyCompat,
        bit: 2,
        name: "orphan-trees",
        what: "slots of the orphan table may name removed directories with entries, and files \
               whose tail is being cut; who does not know them would lose what they hold",
    },
    Feature {
        word: Word::ReadOnlyCompat,
        bit: 3,
        name: "grown-objects",
        what: "data objects may have grown since their headers were written; who does not know \
               that would call them another's, and repair what is well",
    },
];

/// Names of the bits set in `word`, unknown ones as `None`.
pub fn names(word: Word, bits: u64) -> impl Iterator<Item = (u8, Option<&'static str>)> {
    (0..64u8).filter(move |bit| bits >> bit & 1 == 1).map(move |bit| {
        let known = FEATURES.iter().find(|f| f.word == word && f.bit == bit);
        (bit, known.map(|f| f.name))
    })
}
