//! Checker of the engine's duty towards a device that loses whole sectors: nothing is written into
//! a sector which holds bytes that a flush has made durable, until its segment has been given out
//! again.
//!
//! The device does not know when a segment is given out. It is always filled from its first sector
//! on, and nothing else is ever written there, so a write to that is taken for it.
//!
//! With several threads it is not checked: a flush may cover, by chance, what was written after its
//! caller had closed the sectors. Nobody relies on that, and another write may follow it into its
//! sector. There, crash images with garbled sectors show whether it is right.
//!
//! Written in place are, each of them one sector: the two copies of the superblock, and the owner
//! claim. Nothing else is in segment 0.

use crate::image::Image;
use crate::log::WHOLE_SECTOR;
use shoal_format::claim;
use shoal_format::superblock::{self, Superblock};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::thread::ThreadId;

/// Sectors that a flush has made durable, of a volume that is in use.
#[derive(Default)]
pub(crate) struct Sectors {
    /// 0: no volume has been seen.
    segment_size: u64,
    /// Written since the last flush.
    open: Vec<Range<u64>>,
    /// The thread that writes.
    thread: Option<ThreadId>,
    /// There are several.
    threads: bool,
    /// By segment, numbers from the start of the device.
    durable: BTreeMap<u64, BTreeSet<u64>>,
}

impl Sectors {
    /// Looks for a volume in an image. What is on it already is not watched.
    pub(crate) fn of_image(image: &Image) -> Sectors {
        let mut sectors = Sectors::default();
        for copy in superblock::COPIES.into_iter().filter(|copy| image.contains(*copy, 4096)) {
            let mut raw = [0; 4096];
            image.read(&mut raw, copy);
            sectors.look(&raw, copy);
        }
        sectors
    }

    /// A superblock says how long segments are.
    fn look(&mut self, raw: &[u8], at: u64) {
        if !superblock::COPIES.contains(&at) {
            return;
        }
        if let Ok(Some(sb)) = Superblock::decode(raw, at)
            && sb.geometry.segment_size != self.segment_size
        {
            self.segment_size = sb.geometry.segment_size;
            self.open.clear();
            self.durable.clear();
        }
    }

    /// Notes a write, and says which rule it breaks.
    pub(crate) fn write(&mut self, data: &[u8], offset: u64) -> Result<(), String> {
        self.look(data, offset);
        let thread = std::thread::current().id();
        self.threads |= *self.thread.get_or_insert(thread) != thread;
        if self.segment_size == 0 || self.threads || data.is_empty() {
            return Ok(());
        }
        let end = offset + data.len() as u64;
        if offset < self.segment_size {
            let [first, second] = superblock::COPIES;
            let whole = data.len() as u64 == WHOLE_SECTOR;
            return match whole && [first, second, claim::ADDR].contains(&offset) {
                true => Ok(()),
                false => Err(format!("bytes {offset} to {end} of the first segment are written")),
            };
        }
        // A checkpoint's write may go on in the next segment.
        for segment in offset.div_ceil(self.segment_size)..end.div_ceil(self.segment_size) {
            self.durable.remove(&segment);
        }
        if offset % self.segment_size < WHOLE_SECTOR {
            self.durable.remove(&(offset / self.segment_size));
        }
        let touched = offset / WHOLE_SECTOR..end.div_ceil(WHOLE_SECTOR);
        let durable = self.durable.values().find_map(|d| d.range(touched.clone()).next());
        if let Some(sector) = durable {
            let at = sector * WHOLE_SECTOR;
            return Err(format!(
                "bytes {offset} to {end} are written into the sector at {at}, of which a flush has \
                 made something durable"
            ));
        }
        self.open.push(offset..end);
        Ok(())
    }

    /// A flush has succeeded.
    pub(crate) fn flushed(&mut self) {
        for Range { start, end } in self.open.drain(..) {
            for sector in start / WHOLE_SECTOR..end.div_ceil(WHOLE_SECTOR) {
                let segment = sector * WHOLE_SECTOR / self.segment_size;
                self.durable.entry(segment).or_default().insert(sector);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sector_is_written_again_only_with_its_segment() {
        let mut sectors = Sectors { segment_size: 1 << 20, ..Sectors::default() };
        let segment = 3 << 20;
        sectors.write(&[1; 5000], segment).unwrap();
        sectors.write(&[1; 100], segment + 5000).unwrap();
        sectors.flushed();
        sectors.write(&[1; 100], segment + 5100).unwrap_err();
        sectors.write(&[1; 100], segment + 8192).unwrap();
        sectors.write(&[1; 4096], segment + 4096).unwrap_err();
        sectors.write(&[1; 100], segment).unwrap();
        sectors.write(&[1; 4096], segment + 4096).unwrap();
        for place in [0, 65_536, 524_288] {
            sectors.write(&[1; 4096], place).unwrap();
            sectors.flushed();
            sectors.write(&[1; 4096], place).unwrap();
            sectors.write(&[1; 512], place).unwrap_err();
        }
        sectors.write(&[1; 4096], 4096).unwrap_err();
        // Over the end of a segment, to the start of the next.
        sectors.write(&[1; 100], segment + (2 << 20) - 4096).unwrap();
        sectors.flushed();
        sectors.write(&[1; 8192], segment + (1 << 20) - 4096).unwrap();
        sectors.write(&[1; 8192], segment + (2 << 20) - 4096).unwrap();
    }
}
