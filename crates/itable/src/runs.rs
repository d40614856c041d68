//! Reading several inode blocks by one call of the device: those that are next to each other there,
//! as checkpoints write blocks with adjacent numbers.

use crate::block::InodeBlock;
use crate::table::{InodeTable, decode_imap, no_memory};
use shoal_base::Result;
use shoal_base::counters::Counter;
use shoal_base::sync::Instant;
use shoal_format::Ptr;
use shoal_tree::Key;
use std::ops::Range;
use std::time::Duration;

/// Maximum gap between two blocks of a run, in bytes.
pub(crate) const GAP: u64 = 16 << 10;
/// Maximum length of a run that is read ahead, in bytes: about 700 inodes. Further runs are read by
/// other threads at the same time.
const AHEAD: u64 = 128 << 10;

/// Adjacent blocks on the device, by number and pointer.
#[derive(Default)]
pub struct Run {
    pub(crate) blocks: Vec<(u64, Ptr)>,
}

impl Run {
    /// Returns its range on the device.
    pub(crate) fn span(&self) -> Option<Range<u64>> {
        let ((_, first), (_, last)) = (self.blocks.first()?, self.blocks.last()?);
        Some(first.addr.0..end_of(*last))
    }

    /// Returns whether a block can be the next of a run of at most `most` bytes.
    pub(crate) fn takes(&self, ptr: Ptr, most: u64) -> bool {
        self.span().is_none_or(|span| {
            let near = ptr.addr.0 >= span.end && ptr.addr.0 - span.end <= GAP;
            near && end_of(ptr) - span.start <= most
        })
    }
}

pub(crate) fn end_of(ptr: Ptr) -> u64 {
    ptr.addr.0.saturating_add(u64::from(ptr.len))
}

impl InodeTable {
    /// Returns runs of those of these blocks that are not in memory, for
    /// [`InodeTable::read_ahead`]. Leaves out what cannot be found: its users get the error.
    pub fn cold_runs(&self, numbers: impl IntoIterator<Item = u64>) -> Vec<Run> {
        let ptr_of = |number: u64| {
            let ptr = self.imap.get(Key::new(number, 0), decode_imap).ok()??.map(|(ptr, _)| ptr);
            ptr.filter(|ptr| self.may_be_at(*ptr)).map(|ptr| (number, ptr))
        };
        let cold = numbers.into_iter().filter(|number| self.is_cold(*number));
        let mut blocks: Vec<(u64, Ptr)> = cold.filter_map(ptr_of).collect();
        blocks.sort_unstable_by_key(|(_, ptr)| ptr.addr);
        let mut runs: Vec<Run> = Vec::new();
        for (number, ptr) in blocks {
            match runs.last_mut() {
                Some(run) if run.takes(ptr, AHEAD) => run.blocks.push((number, ptr)),
                _ => runs.push(Run { blocks: vec![(number, ptr)] }),
            }
        }
        runs
    }

    /// Reads a run into memory, and returns the time that the device took for it. What cannot be
    /// read is left to its users, who get the error.
    ///
    /// No lock is held during the read. Meanwhile a block may have been read by others, changed,
    /// written elsewhere and evicted; then what was read here is dropped.
    pub fn read_ahead(&self, run: &Run) -> Duration {
        let Some(span) = run.span() else { return Duration::ZERO };
        let mut raw = vec![0; (span.end - span.start) as usize];
        let begun = Instant::now();
        let read = self.config.device.read_at(&mut raw, span.start);
        let took = begun.elapsed();
        if read.is_ok() {
            for (number, ptr) in &run.blocks {
                let at = (ptr.addr.0 - span.start) as usize;
                let _its_user_says_so =
                    self.enter_read(*number, *ptr, &raw[at..][..ptr.len as usize]);
            }
        }
        took
    }

    /// Adds a block to memory that was read at a place where it may no longer be.
    fn enter_read(&self, number: u64, ptr: Ptr, raw: &[u8]) -> Result<()> {
        let _one = self.loading(number).lock();
        if self.blocks.get(number).is_some() {
            return Ok(());
        }
        let place = self.blocks.reserve(number).map_err(no_memory)?;
        let found = self.imap.get(Key::new(number, 0), decode_imap)?.flatten();
        if found.is_none_or(|(now, _)| now != ptr) {
            return Ok(());
        }
        self.config.counters.add(Counter::InodeBlockReads, 1);
        let inodes = self.decode_read(number, ptr, raw)?;
        self.enter(place, InodeBlock::new(number, inodes, ptr, &self.config.budget));
        Ok(())
    }
}
