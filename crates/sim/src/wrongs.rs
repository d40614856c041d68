//! Silent errors of a device: a write that goes elsewhere, never arrives, or arrives with other
//! bytes; a read that returns other bytes, once or for ever. The contract is point 5 at the head of
//! `device.rs`.

use crate::log::SECTOR;
use crate::rng::Rng;
use std::ops::Range;

/// A kind of silent wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// The write goes to another place: its target keeps the old bytes, others are overwritten.
    Misdirected,
    /// The write never arrives.
    Dropped,
    /// One bit of the write arrives inverted.
    FlippedWrite,
    /// One sector of the write arrives as zeros.
    ZeroedSector,
    /// The read returns one bit inverted; read again, it is right.
    FlippedRead,
    /// The same, and that bit stays so for every read until something is written there.
    BadPlace,
}

impl Effect {
    /// Errors of a write.
    pub const OF_WRITES: [Effect; 4] =
        [Effect::Misdirected, Effect::Dropped, Effect::FlippedWrite, Effect::ZeroedSector];
    /// Errors of a read.
    pub const OF_READS: [Effect; 2] = [Effect::FlippedRead, Effect::BadPlace];

    fn is_of_reads(self) -> bool {
        Effect::OF_READS.contains(&self)
    }
}

/// A silent wrong to be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Silent {
    /// Kind of error.
    pub effect: Effect,
    /// To the how-manieth read or write from now on (1: the next).
    pub nth: u64,
    /// Decides which bit, which sector, which other place.
    pub seed: u64,
}

/// Errors that a device has still to make, and places that are bad for ever.
#[derive(Default)]
pub(crate) struct Wrongs {
    waiting: Vec<Silent>,
    bad: Vec<(u64, u8)>,
}

impl Wrongs {
    pub(crate) fn add(&mut self, silent: Silent) {
        assert!(silent.nth > 0);
        self.waiting.push(silent);
    }

    /// Counts a read or write; the wrong whose turn it is.
    fn due(&mut self, reads: bool) -> Option<Silent> {
        let mut found = None;
        self.waiting.retain_mut(|silent| {
            if silent.effect.is_of_reads() != reads {
                return true;
            }
            silent.nth -= 1;
            if silent.nth == 0 {
                found = Some(*silent);
            }
            silent.nth > 0
        });
        found
    }

    /// Returns the bytes of a write that arrive, and where. `None`: it is as it should be.
    pub(crate) fn of_write(
        &mut self,
        data: &[u8],
        offset: u64,
        capacity: u64,
        earlier: &dyn Fn() -> Vec<Range<u64>>,
    ) -> Option<Vec<(u64, Vec<u8>)>> {
        let here = offset..offset + data.len() as u64;
        self.bad.retain(|(at, _)| !here.contains(at));
        let Silent { effect, seed, .. } = self.due(false)?;
        let mut rng = Rng::new(seed);
        let mut bytes = data.to_vec();
        match effect {
            Effect::Misdirected => {
                let to = elsewhere(&mut rng, offset, capacity, &earlier());
                bytes.truncate((capacity - to) as usize);
                return Some(vec![(to, bytes)]);
            }
            Effect::Dropped => return Some(Vec::new()),
            Effect::FlippedWrite => flip(&mut bytes, &mut rng),
            _ => {
                let from = rng.below(bytes.len() as u64) / SECTOR * SECTOR;
                let end = (from + SECTOR).min(bytes.len() as u64);
                bytes[from as usize..end as usize].fill(0);
            }
        }
        Some(vec![(offset, bytes)])
    }

    /// Spoils what a read returns, if it is to be; says whether it did.
    pub(crate) fn of_read(&mut self, buf: &mut [u8], offset: u64) -> bool {
        let (mut spoilt, len) = (false, buf.len() as u64);
        if let Some(Silent { effect, seed, .. }) = self.due(true)
            && len > 0
        {
            let mut rng = Rng::new(seed);
            let (at, bit) = (rng.below(len), (rng.next() % 8) as u8);
            if effect == Effect::BadPlace {
                self.bad.push((offset + at, bit));
            } else {
                buf[at as usize] ^= 1 << bit;
                spoilt = true;
            }
        }
        for (at, bit) in &self.bad {
            if (offset..offset + len).contains(at) {
                buf[(at - offset) as usize] ^= 1 << bit;
                spoilt = true;
            }
        }
        spoilt
    }
}

fn flip(bytes: &mut [u8], rng: &mut Rng) {
    let at = rng.below(bytes.len() as u64) as usize;
    bytes[at] ^= 1 << (rng.next() % 8);
}

/// Returns the place of a misdirected write: as a rule over something that was written, else
/// anywhere.
fn elsewhere(rng: &mut Rng, offset: u64, capacity: u64, earlier: &[Range<u64>]) -> u64 {
    let other = if !earlier.is_empty() && rng.chance(75) {
        rng.pick(earlier).start / SECTOR * SECTOR
    } else {
        rng.below(capacity / SECTOR) * SECTOR
    };
    // Not where it belongs.
    if other == offset { (offset + SECTOR) % (capacity / SECTOR * SECTOR) } else { other }
}

/// Returns whether two images hold the same bytes in a range.
#[cfg(test)]
fn same(a: &crate::image::Image, b: &crate::image::Image, range: Range<u64>) -> bool {
    let bytes = |image: &crate::image::Image| {
        let mut buf = vec![0; (range.end - range.start) as usize];
        image.read(&mut buf, range.start);
        buf
    };
    bytes(a) == bytes(b)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::FaultyDevice;
    use crate::image::Image;
    use shoal_device::Device;

    const WHOLE: Range<u64> = 0..1 << 20;

    fn written(effect: Option<Effect>, seed: u64) -> Image {
        let device = FaultyDevice::new(1 << 20);
        device.write_at(&[1; 4096], 8192).unwrap();
        if let Some(effect) = effect {
            device.inject_silent(Silent { effect, nth: 2, seed });
        }
        device.write_at(&[2; 2048], 16384).unwrap();
        device.write_at(&[3; 1024], 0).unwrap();
        assert_eq!(device.counts().silent, u64::from(effect.is_some()));
        device.write_at(&[4; 512], 65536).unwrap();
        device.image()
    }

    #[test]
    fn writes_go_wrong_as_they_should() {
        let right = written(None, 0);
        for seed in 0..64 {
            for effect in Effect::OF_WRITES {
                let image = written(Some(effect), seed);
                assert!(!same(&right, &image, 0..1024), "{effect:?} of seed {seed}");
                let elsewhere = same(&right, &image, 1024..1 << 20);
                assert_eq!(elsewhere, effect != Effect::Misdirected, "{effect:?} of seed {seed}");
            }
            let image = written(Some(Effect::Misdirected), seed);
            assert!(!same(&image, &right, WHOLE) && same(&image, &Image::new(1 << 20), 0..512));
        }
    }

    #[test]
    fn reads_go_wrong_once_or_until_written() {
        for effect in Effect::OF_READS {
            let device = FaultyDevice::new(1 << 20);
            device.write_at(&[1; 4096], 0).unwrap();
            device.inject_silent(Silent { effect, nth: 2, seed: 5 });
            let wrong = || {
                let mut buf = [0; 4096];
                device.read_at(&mut buf, 0).unwrap();
                buf.iter().map(|b| (b ^ 1).count_ones()).sum::<u32>()
            };
            let forever = u32::from(effect == Effect::BadPlace);
            assert_eq!([wrong(), wrong(), wrong(), wrong()], [0, 1, forever, forever]);
            device.write_at(&[1; 4096], 0).unwrap();
            assert_eq!(wrong(), 0, "written anew");
        }
    }
}
