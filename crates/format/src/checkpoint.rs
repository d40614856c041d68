//! The checkpoint: the exact image of the volume at one LSN. The superblock points to it; it points
//! to everything else.
//!
//! The length of its record is bounded, whatever the volume contains: the records of subvolumes are
//! in pages ([`crate::root`]), the pointers to orphan blocks in lists ([`crate::orphan`]).

use crate::bytes::{Reader, set_at, u32_at};
use crate::declare::layout;
use crate::root::{PAGES_MAX, PagePtr};
use crate::{Ptr, orphan, superblock};
use shoal_base::limits;
use shoal_base::{Addr, Error, Lsn, Result};

pub use crate::root::{RootRecord, RootState};

/// `SCP3`.
pub const MAGIC: u32 = u32::from_le_bytes(*b"SCP3");
/// Largest number of objects of open intents.
pub const INTENTS_MAX: usize = 256;
/// Bytes of the longest record.
pub const RECORD_MAX: usize =
    Checkpoint::SIZE + (orphan::LISTS_MAX + INTENTS_MAX) * Ptr::SIZE + PAGES_MAX * PagePtr::SIZE;

// The longest record has a backup copy, and both with the backup superblock between them fit in the
// smallest segment: a checkpoint can always be written, whatever the number of subvolumes and
// orphans.
const _: () = assert!(RECORD_MAX <= superblock::BACKUP_MAX as usize);
const _: () = assert!(superblock::EXTENT_MAX as u64 * 4 <= limits::SEGMENT_SIZE_MIN);

layout! {
    /// Contents of a checkpoint. Inodes made after it have at least the generation `floor`: numbers
    /// of deleted subvolumes are used again, and an old handle must not match a new inode.
    #[derive(Clone, PartialEq, Eq, Debug, Default)]
    pub struct Checkpoint: "checkpoint", 96 of varying,
    "The image of the volume at one LSN. The pointers to the orphan lists follow, then those to \
     the pages of the root table, then those to objects of open intents. A backup copy, for \
     repair, is 4096 bytes after the end of the backup superblock." {
        0 magic: u32 = MAGIC, "`SCP3`";
        4 floor: u32, "lowest generation of inodes made after it";
        8 volume: u64, "first half of the volume id";
        16 epoch: u64, "number of the checkpoint";
        24 lsn: Lsn, "replay starts with the record that begins at this LSN";
        32 journal: Addr, "address of the batch that starts with that record";
        40 usage: Ptr, "pointer to the root of the segment usage table";
        72 prealloc: u64, "bytes promised to preallocated (unwritten) extents";
        80 orphan_list_count[4], "number of pointers to orphan lists";
        84 page_count[4], "number of pointers to root pages";
        88 intent_count[4], "number of pointers to objects of open intents";
        92 reserved[4], "zero";
        + orphan_lists: Vec<Ptr>, "lists of the orphan table's blocks";
        + pages: Vec<PagePtr>,
           "pages of the root table, by number; null pages and pages after the last one contain \
            vacant subvolumes only";
        + intents: Vec<Ptr>, "objects of open intents; usually there are none";
    }
}

const AT_COUNTS: [usize; 3] = [
    Checkpoint::TABLE.at("orphan_list_count"),
    Checkpoint::TABLE.at("page_count"),
    Checkpoint::TABLE.at("intent_count"),
];

impl Checkpoint {
    /// Bytes of this checkpoint's record on disk.
    pub fn encoded_len(&self) -> usize {
        Self::SIZE
            + (self.orphan_lists.len() + self.intents.len()) * Ptr::SIZE
            + self.pages.len() * PagePtr::SIZE
    }

    /// Encodes the record.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.encoded_len());
        self.append(&mut out);
        let counts = [self.orphan_lists.len(), self.pages.len(), self.intents.len()];
        for (count, at) in counts.into_iter().zip(AT_COUNTS) {
            set_at(&mut out, at, count as u32);
        }
        self.orphan_lists.iter().for_each(|list| list.append(&mut out));
        self.pages.iter().for_each(|page| page.append(&mut out));
        self.intents.iter().for_each(|intents| intents.append(&mut out));
        out
    }

    /// Decodes bytes whose checksum has been verified against the pointer.
    pub fn decode(raw: &[u8], addr: Addr, volume: u64) -> Result<Checkpoint> {
        let bad = |rule: String| Error::corrupt("checkpoint", Some(addr.0), rule);
        let mut checkpoint = Checkpoint::read(raw).map_err(|field| bad(field.into()))?;
        if checkpoint.volume != volume {
            let rule = format!("volume {:#x}, expected {volume:#x}", checkpoint.volume);
            return Err(bad(rule));
        }
        checkpoint.read_pointers(raw).map_err(|rule| bad(rule.into()))?;
        let Checkpoint { epoch, lsn, .. } = checkpoint;
        if epoch > limits::COUNT_MAX || lsn.0 > limits::COUNT_MAX {
            return Err(bad(format!("epoch {epoch}, LSN {}", lsn.0)));
        }
        if checkpoint.pages.first().is_none_or(|page| page.first.is_null()) {
            return Err(bad("subvolume 0 is missing".into()));
        }
        Ok(checkpoint)
    }

    fn read_pointers(&mut self, raw: &[u8]) -> std::result::Result<(), &'static str> {
        let [lists, pages, intents] = AT_COUNTS.map(|at| u32_at(raw, at) as usize);
        if lists > orphan::LISTS_MAX || pages > PAGES_MAX || intents > INTENTS_MAX {
            return Err("number of pointers");
        }
        let mut r = Reader::new(&raw[Self::SIZE..]);
        if r.rest().len() != (lists + intents) * Ptr::SIZE + pages * PagePtr::SIZE {
            return Err("length");
        }
        let list = (0..lists).map(|_| r.field());
        self.orphan_lists = list.collect::<Option<_>>().ok_or("pointer to an orphan list")?;
        let page = (0..pages).map(|_| r.field());
        self.pages = page.collect::<Option<_>>().ok_or("pointer to a root page")?;
        let object = (0..intents).map(|_| r.field().filter(|ptr: &Ptr| !ptr.is_null()));
        self.intents = object.collect::<Option<_>>().ok_or("pointer to open intents")?;
        Ok(())
    }
}
