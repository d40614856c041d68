//! The checkpoint: the exact image of the volume at one LSN. Named by the superblock; names
//! everything else.

use crate::Ptr;
use crate::bytes::{Put, Reader};
use shoal_base::limits;
use shoal_base::{Addr, Error, Lsn, Result, RootId};

/// Bytes before the orphan pointers.
pub const FIXED: usize = 80;
/// Bytes of a root without its name.
pub const ROOT_FIXED: usize = 4 + 4 * Ptr::SIZE + 16;

/// `SCP1`.
pub const MAGIC: u32 = u32::from_le_bytes(*b"SCP1");

/// What a root's number stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum RootState {
    /// A root with a name.
    #[default]
    Live = 0,
    /// It has lost its name; what is in it is being freed.
    Deleted = 1,
    /// Nothing is in it: the number can be given out again.
    Vacant = 2,
}

impl RootState {
    /// The state of this number.
    pub fn from_u8(n: u8) -> Option<RootState> {
        [RootState::Live, RootState::Deleted, RootState::Vacant].into_iter().find(|s| *s as u8 == n)
    }
}

/// The four trees of a root and its allocation state.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RootRecord {
    /// Number of the root.
    pub id: RootId,
    /// Whether it lives.
    pub state: RootState,
    /// Name under the volume's top; empty for root 0.
    pub name: Vec<u8>,
    /// Root node of each tree, indexed by [`crate::node::TreeId`]; null: the tree is empty.
    pub trees: [Ptr; 4],
    /// Inode blocks from this number on have never been used.
    pub next_block: u64,
    /// Inodes in use.
    pub inodes: u64,
}

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
    /// Segment usage table.
    pub usage: Ptr,
    /// Bytes promised to preallocated (unwritten) extents.
    pub prealloc: u64,
    /// Inodes made from now on have at least this generation: numbers of roots that are gone are
    /// given out again, and a handle from before must not name their new owner.
    pub floor: u32,
    /// Orphan table blocks.
    pub orphans: Vec<Ptr>,
    /// Roots, by number.
    pub roots: Vec<RootRecord>,
    /// Intents that are open; usually there are none. Stored only if there are: a pointer after the
    /// roots.
    pub intents: Ptr,
}

impl Checkpoint {
    /// Length on disk of this checkpoint.
    pub fn encoded_len(&self) -> usize {
        let roots: usize = self.roots.iter().map(|r| ROOT_FIXED + r.name.len()).sum();
        let intents = if self.intents.is_null() { 0 } else { Ptr::SIZE };
        FIXED + self.orphans.len() * Ptr::SIZE + roots + intents
    }

    /// Encodes: magic 4, generation floor 4, volume 8, epoch 8, lsn 8, journal 8, usage 24,
    /// prealloc 8, count of orphan blocks 4, count of roots 4, the orphan pointers, the roots.
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
        out.put_u32(self.orphans.len() as u32);
        out.put_u32(self.roots.len() as u32);
        for block in &self.orphans {
            block.encode(&mut out);
        }
        for root in &self.roots {
            out.put_u16(root.id.0);
            out.put_u8(root.name.len() as u8);
            out.put_u8(root.state as u8);
            out.put_bytes(&root.name);
            for tree in &root.trees {
                tree.encode(&mut out);
            }
            out.put_u64(root.next_block);
            out.put_u64(root.inodes);
        }
        if !self.intents.is_null() {
            self.intents.encode(&mut out);
        }
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
        let first = checkpoint.roots.first();
        if first.is_none_or(|r| r.id != RootId(0) || r.state != RootState::Live) {
            return Err(bad("root 0 is missing".into()));
        }
        Ok(checkpoint)
    }

    fn fields(raw: &[u8]) -> Option<Checkpoint> {
        let mut r = Reader::new(raw);
        if r.u32()? != MAGIC {
            return None;
        }
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
        let (orphans, roots) = (r.u32()?, r.u32()?);
        for _ in 0..orphans {
            c.orphans.push(Ptr::decode(&mut r)?);
        }
        for _ in 0..roots {
            let id = RootId(r.u16()?);
            let (len, state) = (r.u8()? as usize, RootState::from_u8(r.u8()?)?);
            let name = r.take(len)?.to_vec();
            let mut trees = [Ptr::NULL; 4];
            for tree in &mut trees {
                *tree = Ptr::decode(&mut r)?;
            }
            c.roots.push(RootRecord {
                id,
                state,
                name,
                trees,
                next_block: r.u64()?,
                inodes: r.u64()?,
            });
        }
        if !r.is_empty() {
            c.intents = Ptr::decode(&mut r).filter(|ptr| !ptr.is_null())?;
        }
        r.is_empty().then_some(c)
    }
}
