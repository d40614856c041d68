//! Crash images from recorded device operations: any moment, any of the losses that the contract at
//! the head of `device.rs` permits.

use crate::image::Image;
use crate::log::{LogOp, SECTOR, WHOLE_SECTOR};
use crate::rng::Rng;
use std::sync::Arc;

/// Treatment of the writes that no flush covers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Loss {
    /// All are lost.
    All,
    /// None is lost: the process died, the machine did not.
    Nothing,
    /// The first ones arrived, the next one is torn, the rest is lost.
    Tail,
    /// Each is there or lost, on its own.
    Some,
    /// Each is there, lost or torn, on its own.
    Torn,
    /// All but one arrived: the smallest reordering.
    One,
}

impl Loss {
    /// Every way to lose writes.
    pub const EVERY: [Loss; 6] =
        [Loss::All, Loss::Nothing, Loss::Tail, Loss::Some, Loss::Torn, Loss::One];
}

/// Makes crash images, for positions that only grow.
///
/// A position `p` means: the first `p` writes, flushes and discards were issued, no more.
pub struct CrashCursor {
    /// Durable bytes at `position`, whatever is lost.
    durable: Image,
    /// Not certain at `position`: in order; `true` once a failed flush put it in limbo.
    open: Vec<(LogOp, bool)>,
    log: Vec<LogOp>,
    start: u64,
    /// Operations of `log` folded in so far.
    done: usize,
    /// Decides what a flush leaves in doubt.
    lots: Rng,
}

impl CrashCursor {
    pub(crate) fn new(base: Image, log: Vec<LogOp>, start: u64, seed: u64) -> CrashCursor {
        let lots = Rng::new(seed).fork(start);
        CrashCursor { durable: base, open: Vec::new(), log, start, done: 0, lots }
    }

    /// The first position of which an image can be made.
    pub fn first(&self) -> u64 {
        self.start + self.done as u64
    }

    /// The last position: after every recorded operation.
    pub fn last(&self) -> u64 {
        self.start + self.log.len() as u64
    }

    /// The image of a crash at `position`, with losses of a kind and extent that `seed` chooses.
    /// Positions must not decrease from call to call.
    pub fn image_at(&mut self, position: u64, seed: u64) -> Image {
        let mut rng = Rng::new(seed).fork(position);
        let loss = *rng.pick(&Loss::EVERY);
        self.image_with(position, loss, &mut rng)
    }

    /// The image of a crash at `position` with losses of the given kind.
    pub fn image_with(&mut self, position: u64, loss: Loss, rng: &mut Rng) -> Image {
        self.advance(position);
        let mut image = self.durable.clone();
        let cut = rng.below(self.open.len() as u64 + 1) as usize;
        for (i, (op, _)) in self.open.iter().enumerate() {
            let fate = match loss {
                Loss::All => Fate::Lost,
                Loss::Nothing => Fate::Kept,
                Loss::Tail if i < cut => Fate::Kept,
                Loss::Tail if i == cut => Fate::Torn,
                Loss::Tail => Fate::Lost,
                Loss::One if i == cut => Fate::Lost,
                Loss::One => Fate::Kept,
                Loss::Some => *rng.pick(&[Fate::Kept, Fate::Lost]),
                Loss::Torn => *rng.pick(&[Fate::Kept, Fate::Lost, Fate::Torn]),
            };
            apply(&mut image, op, fate, rng);
        }
        image
    }

    fn advance(&mut self, position: u64) {
        assert!(position >= self.first() && position <= self.last());
        while self.first() < position {
            let op = self.log[self.done].clone();
            self.done += 1;
            match op {
                LogOp::Flush { ok: true } => self.settle(),
                LogOp::Flush { ok: false } => self.open.iter_mut().for_each(|o| o.1 = true),
                LogOp::Write { ok, .. } => self.open.push((op, !ok)),
                LogOp::Discard { .. } => self.open.push((op, false)),
            }
        }
    }

    /// After a successful flush: what it covers is certain. What was in limbo, and every discard
    /// (it never becomes certain), is decided by lot, once, so that all later images agree.
    fn settle(&mut self) {
        for (op, limbo) in std::mem::take(&mut self.open) {
            let doubtful = limbo || matches!(op, LogOp::Discard { .. });
            let fate = if doubtful { *self.lots.pick(&Fate::ANY) } else { Fate::Kept };
            apply(&mut self.durable, &op, fate, &mut self.lots);
        }
    }
}

/// Treatment of one operation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Kept,
    Lost,
    Torn,
}

impl Fate {
    const ANY: [Fate; 3] = [Fate::Kept, Fate::Lost, Fate::Torn];
}

fn apply(image: &mut Image, op: &LogOp, fate: Fate, rng: &mut Rng) {
    match (op, fate) {
        (_, Fate::Lost) | (LogOp::Flush { .. }, _) => {}
        (LogOp::Write { offset, data, .. }, Fate::Kept) => image.write(data, *offset),
        (LogOp::Write { offset, data, .. }, Fate::Torn) => tear(image, *offset, data, rng),
        (LogOp::Discard { offset, len }, _) => image.zero(*offset, *len),
    }
}

/// Writes some of the sectors, in one of the patterns that disks produce: a start, an end, a mix;
/// or garbles some.
fn tear(image: &mut Image, offset: u64, data: &Arc<[u8]>, rng: &mut Rng) {
    let end = offset + data.len() as u64;
    let pattern = rng.below(4);
    let size = if pattern == 3 { WHOLE_SECTOR } else { SECTOR };
    let sectors = offset / size..end.div_ceil(size);
    let cut = rng.below(sectors.end - sectors.start + 1);
    for (i, sector) in (0..).zip(sectors) {
        let arrives = match pattern {
            0 => i < cut,
            1 => i >= cut,
            2 => rng.chance(50),
            // The write had come as far as this sector.
            _ if i == cut || rng.chance(20) => {
                garble(image, sector, rng);
                continue;
            }
            _ => i < cut,
        };
        let from = (sector * size).max(offset);
        let to = ((sector + 1) * size).min(end);
        if arrives {
            image.write(&data[(from - offset) as usize..(to - offset) as usize], from);
        }
    }
}

/// Spoils a whole sector, with all that was in it.
pub(crate) fn garble(image: &mut Image, sector: u64, rng: &mut Rng) {
    let start = sector * WHOLE_SECTOR;
    let len = WHOLE_SECTOR.min(image.capacity() - start) as usize;
    let mut bytes = vec![0; len];
    if rng.chance(50) {
        bytes.fill_with(|| rng.next() as u8);
    }
    image.write(&bytes, start);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{EIO, Fault, FaultyDevice, Kind};
    use shoal_device::Device;
    use std::collections::HashSet;

    fn bytes(image: &Image, offset: u64, len: usize) -> Vec<u8> {
        let mut out = vec![0; len];
        image.read(&mut out, offset);
        out
    }

    #[test]
    fn flushed_writes_are_in_every_image_and_later_ones_in_some() {
        let device = FaultyDevice::new(1 << 20);
        device.write_at(&[1; 1024], 0).unwrap();
        device.flush().unwrap();
        device.write_at(&[2; 1024], 0).unwrap();
        device.write_at(&[3; 512], 4096).unwrap();
        let (mut seen, mut spoilt) = (HashSet::new(), 0);
        for seed in 0..2000 {
            let mut cursor = device.crashes(0);
            assert!(bytes(&cursor.image_at(0, seed), 0, 1024).iter().all(|b| *b == 0));
            let before = bytes(&cursor.image_at(1, seed), 0, 8192);
            let garbled = before[1024..4096].iter().any(|b| *b != 0);
            assert!(garbled || before.iter().all(|b| *b < 2));
            assert!(before[4096..].iter().all(|b| *b == 0), "no write touches it");
            assert!(bytes(&cursor.image_at(2, seed), 0, 1024).iter().all(|b| *b == 1));
            let image = cursor.image_at(4, seed);
            let found = bytes(&image, 0, 1024);
            let is_whole = |sector: &[u8]| sector.iter().all(|b| *b == sector[0]);
            if is_whole(&found[..512]) && is_whole(&found[512..]) {
                seen.insert((found[0], found[512], bytes(&image, 4096, 1)[0]));
            } else {
                spoilt += 1;
                assert!(bytes(&image, 1024, 3072).iter().any(|b| *b != 0), "not all of it");
            }
        }
        // Old or new for each of three sectors, independently: reordering included.
        let old_and_new = |s: &&(u8, u8, u8)| [1, 2].contains(&s.0) && [1, 2].contains(&s.1);
        assert_eq!(seen.iter().filter(old_and_new).filter(|s| [0, 3].contains(&s.2)).count(), 8);
        assert!(spoilt > 0, "some are garbled");
    }

    #[test]
    fn a_failed_flush_puts_writes_in_limbo_for_good() {
        let mut lost = false;
        for round in 0..64 {
            let device = FaultyDevice::new(1 << 20);
            device.inject(Fault { on: Kind::Flush, nth: 1, errno: EIO, sticky: false });
            device.write_at(&[7; 512], 0).unwrap();
            assert!(device.flush().is_err());
            device.write_at(&[8; 512], 512).unwrap();
            device.flush().unwrap();
            let (_, image) = device.crash_now(round);
            assert_eq!(bytes(&image, 512, 1), [8], "after the failure: durable");
            lost |= bytes(&image, 0, 1) == [0];
        }
        assert!(lost, "a write before the failed flush may be lost");
    }

    #[test]
    fn kinds_of_loss_do_what_they_say() {
        let device = FaultyDevice::new(1 << 20);
        for i in 0..10 {
            device.write_at(&[i as u8 + 1; 512], i * 512).unwrap();
        }
        let kept = |loss| {
            let image = device.crashes(0).image_with(10, loss, &mut Rng::new(5));
            (0..10).filter(|i| bytes(&image, i * 512, 1)[0] != 0).count()
        };
        assert_eq!((kept(Loss::All), kept(Loss::Nothing)), (0, 10));
        assert!(kept(Loss::One) >= 9 && kept(Loss::Tail) < 10);
    }
}
