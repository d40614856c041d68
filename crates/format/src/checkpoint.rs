//! The checkpoint: the exact image of the volume at one LSN. Named by the superblock; names
//! everything else.
//!
//! Its record is of bounded length, whatever is in the volume: the roots are in pages
//! ([`crate::root`]), the pointers to orphan blocks in lists ([`crate::orphan`]). Until there were
//! pages (feature `paged-roots`) the record held the roots and the pointers themselves; that form
//! is read, and written by nothing any more.

use crate::bytes::{Put, Reader};
use crate::root::{PAGES_MAX, PagePtr};
use crate::{Ptr, orphan, superblock};
use shoal_base::limits;
use shoal_base::{Addr, Error, Lsn, Result, RootId};

pub use crate::root::{RootRecord, RootState};

/// Bytes before the pointers.
pub const FIXED: usize = 80;
/// `SCP2`.
pub const MAGIC: u32 = u32::from_le_bytes(*b"SCP2");
/// `SCP1`: the form with the roots in it.
pub const MAGIC_INLINE: u32 = u32::from_le_bytes(*b"SCP1");
/// Objects of open intents, at most.
pub const INTENTS_MAX: usize = 256;
/// Bytes of the longest record.
pub const RECORD_MAX: usize =
    FIXED + orphan::LISTS_MAX * Ptr::SIZE + PAGES_MAX * PagePtr::SIZE + INTENTS_MAX * Ptr::SIZE;

// The longest record has a second copy, and both with the spare superblock between them fit in the
// smallest segment: a checkpoint can always be written, however many roots and orphans there are.
const _: () = assert!(RECORD_MAX <= superblock::TWIN_MAX as usize);
const _: () = assert!(superblock::EXTENT_MAX as u64 * 4 <= limits::SEGMENT_SIZE_MIN);

/// Contents of a checkpoint.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Checkpoint {
    /// Low half of the volume id.
    pub volume: u64,
    /// Number of the checkpoint (its epoch).
    pub epoch: u64,
    /// Replay starts with the record that begins here.
    pub lsn: Lsn,
    /// Address of the journal batch that starts at `lsn`.
    pub journal: Addr,
    /// Root of the segment usage table.
    pub usage: Ptr,
    /// Bytes promised to preallocated (unwritten) extents.
    pub prealloc: u64,
    /// Inodes made from now on have at least this generation: numbers of roots that are gone are
    /// given out again, and a handle from before must not name their new owner.
    pub floor: u32,
    /// Lists of the orphan table's blocks.
    pub orphan_lists: Vec<Ptr>,
    /// Pages of the root table, by number. Pages behind the last one, and null ones, have vacant
    /// roots only.
    pub pages: Vec<PagePtr>,
    /// Intents that are open; usually there are none.
    pub intents: Vec<Ptr>,
    /// What a record of the old form has in place of pages and lists.
    pub inline: Option<Inline>,
}

/// Roots and orphan blocks as a record of the old form (`SCP1`) has them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Inline {
    /// Orphan table blocks.
    pub orphans: Vec<Ptr>,
    /// Roots, by number.
    pub roots: Vec<RootRecord>,
}

impl Inline {
    /// Bytes of a record of the old form with these roots and orphan blocks, without open intents.
    pub fn record_len(roots: impl Iterator<Item = usize>, orphan_blocks: usize) -> usize {
        let roots: usize = roots.map(|name| crate::root::ROOT_FIXED + name).sum();
        FIXED + orphan_blocks * Ptr::SIZE + roots
    }
}

impl Checkpoint {
    /// Length on disk of this checkpoint's record.
    pub fn encoded_len(&self) -> usize {
        FIXED
            + (self.orphan_lists.len() + self.intents.len()) * Ptr::SIZE
            + self.pages.len() * PagePtr::SIZE
    }

    /// Encodes: magic 4, generation floor 4, volume 8, epoch 8, lsn 8, journal 8, usage 24,
    /// prealloc 8, count of orphan lists 4, count of pages 4, pointers to the lists, to the pages,
    /// to the open intents. Not for the old form.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.encoded_len());
        out.put_u32(MAGIC);
        out.put_u32(self.floor);
        out.put_u64(self.volume);
        out.put_u64(self.epoch);
        out.put_u64(self.lsn.0);
        out.put_u64(self.journal.0);
        self.usage.encode(&mut out);
        out.put_u64(self.prealloc);
        out.put_u32(self.orphan_lists.len() as u32);
        out.put_u32(self.pages.len() as u32);
        self.orphan_lists.iter().for_each(|list| list.encode(&mut out));
        self.pages.iter().for_each(|page| page.encode(&mut out));
        self.intents.iter().for_each(|intents| intents.encode(&mut out));
        out
    }

    /// Decodes bytes whose checksum has been verified against the pointer.
    pub fn decode(raw: &[u8], addr: Addr, volume: u64) -> Result<Checkpoint> {
        let bad = |rule: String| Error::corrupt("checkpoint", Some(addr.0), rule);
        let checkpoint = Self::fields(raw).ok_or_else(|| bad("magic or length".into()))?;
        if checkpoint.volume != volume {
            let rule = format!("volume {:#x}, expected {volume:#x}", checkpoint.volume);
            return Err(bad(rule));
        }
        let Checkpoint { epoch, lsn, .. } = checkpoint;
        if epoch > limits::COUNT_MAX || lsn.0 > limits::COUNT_MAX {
            return Err(bad(format!("epoch {epoch}, LSN {}", lsn.0)));
        }
        match checkpoint.roots_rule() {
            None => Ok(checkpoint),
            Some(rule) => Err(bad(rule)),
        }
    }

    /// Which rule the roots break.
    fn roots_rule(&self) -> Option<String> {
        let missing = || Some("root 0 is missing".to_owned());
        let Some(inline) = &self.inline else {
            return self.pages.first().is_none_or(|page| page.first.is_null()).then(missing)?;
        };
        let first = inline.roots.first();
        if first.is_none_or(|r| r.id != RootId(0) || r.state != RootState::Live) {
            return missing();
        }
        let mut places = inline.roots.iter().enumerate();
        let (i, root) = places.find(|(i, root)| usize::from(root.id.0) != *i)?;
        Some(format!("root {} in place {i}", root.id.0))
    }

    fn fields(raw: &[u8]) -> Option<Checkpoint> {
        let mut r = Reader::new(raw);
        let magic = r.u32()?;
        let mut c = Checkpoint {
            floor: r.u32()?,
            volume: r.u64()?,
            epoch: r.u64()?,
            lsn: Lsn(r.u64()?),
            journal: Addr(r.u64()?),
            usage: Ptr::decode(&mut r)?,
            prealloc: r.u64()?,
            ..Checkpoint::default()
        };
        let (orphans, roots) = (r.u32()? as usize, r.u32()? as usize);
        match magic {
            MAGIC if orphans <= orphan::LISTS_MAX && roots <= PAGES_MAX => {
                c.paged(&mut r, orphans, roots)?;
            }
            MAGIC_INLINE => c.inline(&mut r, orphans, roots)?,
            _ => return None,
        }
        r.is_empty().then_some(c)
    }

    fn paged(&mut self, r: &mut Reader<'_>, lists: usize, pages: usize) -> Option<()> {
        for _ in 0..lists {
            self.orphan_lists.push(Ptr::decode(r)?);
        }
        for _ in 0..pages {
            self.pages.push(PagePtr::decode(r)?);
        }
        self.intents_in(r, INTENTS_MAX)
    }

    fn inline(&mut self, r: &mut Reader<'_>, orphans: usize, roots: usize) -> Option<()> {
        let mut inline = Inline::default();
        for _ in 0..orphans {
            inline.orphans.push(Ptr::decode(r)?);
        }
        for _ in 0..roots {
            inline.roots.push(RootRecord::decode(r)?);
        }
        self.inline = Some(inline);
        self.intents_in(r, 1)
    }

    fn intents_in(&mut self, r: &mut Reader<'_>, most: usize) -> Option<()> {
        while !r.is_empty() {
            self.intents.push(Ptr::decode(r).filter(|ptr| !ptr.is_null())?);
        }
        (self.intents.len() <= most).then_some(())
    }
}
