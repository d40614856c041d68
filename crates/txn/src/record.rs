//! Limits for record sizes: every kind of transaction declares its largest record before it begins,
//! so that no change is made whose record the journal cannot take. The engine's `records.rs` has
//! the kinds.

use shoal_base::limits::RECORD_MAX;
use shoal_base::sync::AtomicU32;
use shoal_format::batch::RECORD_HEADER;
use std::sync::atomic::Ordering;

/// Bytes in the journal of a record of `record` bytes.
pub(crate) fn framed(record: usize) -> u64 {
    (RECORD_HEADER + record) as u64
}

/// A kind of transaction, with the size of its largest record. It is known before the transaction
/// begins, so that no change is made whose record the journal cannot take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordKind {
    /// Index in the volume's statistics, below [`RecordKind::COUNT`].
    pub index: u8,
    /// Name in messages and statistics.
    pub name: &'static str,
    /// Largest record in bytes, at most [`RECORD_MAX`].
    pub bytes_max: u32,
    /// Copies of what was read before it do not hold after it ([`crate::States`]).
    pub ends_copies: bool,
}

impl RecordKind {
    /// Maximum number of kinds.
    pub const COUNT: usize = 32;

    /// The kind of what is not journaled.
    pub(crate) const fn in_memory() -> RecordKind {
        RecordKind { index: 0, name: "in memory", bytes_max: u32::MAX, ends_copies: true }
    }

    /// The same for changes after which copies still hold.
    #[must_use]
    pub const fn beside_copies(self) -> RecordKind {
        RecordKind { ends_copies: false, ..self }
    }

    /// Makes a kind whose records have at most `bytes_max` bytes. Does not compile if the journal
    /// of the smallest volume could not take such a record.
    pub const fn new(index: u8, name: &'static str, bytes_max: usize) -> RecordKind {
        assert!(bytes_max <= RECORD_MAX, "a record that does not fit in a batch");
        assert!((index as usize) < RecordKind::COUNT);
        RecordKind { index, name, bytes_max: bytes_max as u32, ends_copies: true }
    }
}

/// Size of the largest record of each kind since the volume was opened.
pub(crate) struct Largest(Box<[AtomicU32]>);

impl Default for Largest {
    fn default() -> Largest {
        Largest((0..RecordKind::COUNT).map(|_| AtomicU32::new(0)).collect())
    }
}

impl Largest {
    /// Notes the size of a record. Writes only if it is the largest of its kind, so that threads
    /// can share the cache line for reading.
    #[inline]
    pub(crate) fn note(&self, kind: RecordKind, bytes: usize) {
        let largest = &self.0[kind.index as usize];
        if bytes as u32 > largest.load(Ordering::Relaxed) {
            largest.fetch_max(bytes as u32, Ordering::Relaxed);
        }
    }
    /// Bytes of the largest record of this kind.
    pub(crate) fn of(&self, kind: RecordKind) -> u32 {
        self.0[kind.index as usize].load(Ordering::Relaxed)
    }
}
