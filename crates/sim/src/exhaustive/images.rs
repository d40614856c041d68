//! The images that a crash just after one device operation may leave, of those the telling ones:
//!
//! | image | what of the writes since the last flush is there |
//! | --- | --- |
//! | lost | nothing |
//! | kept | everything |
//! | torn | everything, but of the last write only its first sectors, or only its last |
//! | holed | everything but one earlier write: the smallest reordering |
//! | mixed | any of them, whole, torn or not |
//!
//! Lost and kept are always there; torn only when at least two sectors of the write differ from
//! what was there before (otherwise it equals one of those); holed and mixed when there are two, or
//! three, such writes. Which sectors and which writes: chosen by the sequence's seed.

use crate::image::Image;
use crate::log::{LogOp, SECTOR};
use crate::rng::Rng;
use std::ops::Range;

/// The kinds of image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// No write since the last flush is there.
    Lost,
    /// All are.
    Kept,
    /// The last is torn.
    Torn,
    /// One is missing.
    Holed,
    /// Any are missing or torn.
    Mixed,
}

/// An image.
pub struct Candidate {
    /// Kind of image.
    pub kind: Kind,
    /// Two images with the same number are the same bytes: how many operations are wholly there.
    pub whole: Option<usize>,
    /// The bytes.
    pub image: Image,
}

/// Goes through the recorded operations of a run.
pub struct Moments {
    log: std::vec::IntoIter<LogOp>,
    /// Contents that no loss can take, and how many operations those are.
    durable: (Image, usize),
    /// Contents if nothing is lost, and how many operations those are.
    kept: (Image, usize),
    /// Contents before the last operation.
    before: Image,
    /// Operations since the last flush.
    open: Vec<LogOp>,
}

impl Moments {
    /// From recorded operations, and the image before them.
    pub fn new(base: Image, log: Vec<LogOp>) -> Moments {
        Moments {
            log: log.into_iter(),
            durable: (base.clone(), 0),
            kept: (base.clone(), 0),
            before: base,
            open: Vec::new(),
        }
    }

    /// Goes on to just after the next operation; `false`: there was none.
    pub fn advance(&mut self) -> bool {
        let Some(op) = self.log.next() else { return false };
        if let LogOp::Flush { ok } = op {
            assert!(ok, "nothing fails here");
            self.durable = self.kept.clone();
            self.open.clear();
        } else {
            self.before = self.kept.0.clone();
            apply(&mut self.kept.0, &op);
            self.kept.1 += 1;
            self.open.push(op);
        }
        true
    }

    /// The images of a crash now.
    pub fn candidates(&self, rng: &mut Rng) -> Vec<Candidate> {
        let of = |kind, (image, whole): &(Image, usize)| Candidate {
            kind,
            whole: Some(*whole),
            image: image.clone(),
        };
        let mut found = vec![of(Kind::Kept, &self.kept)];
        let Some((last, earlier)) = self.open.split_last() else { return found };
        found.push(of(Kind::Lost, &self.durable));
        let mut add = |kind, image| found.push(Candidate { kind, whole: None, image });
        for tear in [Tear::Start, Tear::End] {
            let mut torn = self.before.clone();
            if tear.apply(&mut torn, last, rng) {
                add(Kind::Torn, torn);
            }
        }
        if !earlier.is_empty() {
            let missing = rng.below(earlier.len() as u64) as usize;
            let mut image = self.durable.0.clone();
            for (_, op) in self.open.iter().enumerate().filter(|(i, _)| *i != missing) {
                apply(&mut image, op);
            }
            add(Kind::Holed, image);
        }
        if earlier.len() > 1 {
            let mut image = self.durable.0.clone();
            for op in &self.open {
                match rng.below(5) {
                    0 | 1 => apply(&mut image, op),
                    2 => _ = Tear::Any.apply(&mut image, op, rng),
                    _ => {}
                }
            }
            add(Kind::Mixed, image);
        }
        found
    }
}

fn apply(image: &mut Image, op: &LogOp) {
    match op {
        LogOp::Write { offset, data, .. } => image.write(data, *offset),
        LogOp::Discard { offset, len } => image.zero(*offset, *len),
        LogOp::Flush { .. } => {}
    }
}

/// Which sectors of a torn write arrived.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tear {
    Start,
    End,
    Any,
}

impl Tear {
    /// Writes some, not all, of the sectors that would change; `false`: fewer than two would.
    fn apply(self, image: &mut Image, op: &LogOp, rng: &mut Rng) -> bool {
        let LogOp::Write { offset, data, .. } = op else { return false };
        let changing = changing_sectors(image, *offset, data);
        if changing.len() < 2 {
            return false;
        }
        let cut = rng.range(1, changing.len() as u64 - 1) as usize;
        let (start, end) = changing.split_at(cut);
        let arrived = match self {
            Tear::Start => start.to_vec(),
            Tear::End => end.to_vec(),
            // One of the start for certain, none of the last: neither all nor nothing.
            Tear::Any => {
                let middle = &changing[1..changing.len() - 1];
                let middle = middle.iter().filter(|_| rng.chance(50));
                changing[..1].iter().chain(middle).cloned().collect()
            }
        };
        for range in arrived {
            image.write(&data[range.clone()], offset + range.start as u64);
        }
        true
    }
}

/// The sectors in which `data` differs from what is there, as ranges of `data`.
fn changing_sectors(image: &Image, offset: u64, data: &[u8]) -> Vec<Range<usize>> {
    let mut changing = Vec::new();
    let mut old = [0; SECTOR as usize];
    let mut from = 0;
    while from < data.len() {
        // To the next boundary of the device's sectors.
        let room = (SECTOR - (offset + from as u64) % SECTOR) as usize;
        let to = (from + room).min(data.len());
        let old = &mut old[..to - from];
        image.read(old, offset + from as u64);
        if *old != data[from..to] {
            changing.push(from..to);
        }
        from = to;
    }
    changing
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(sector: u64, byte: u8, sectors: usize) -> LogOp {
        let data = vec![byte; sectors * SECTOR as usize].into();
        LogOp::Write { offset: sector * SECTOR, data, ok: true }
    }

    fn bytes(image: &Image, sectors: u64) -> Vec<u8> {
        let mut byte = [0];
        let read = |sector| {
            image.read(&mut byte, sector * SECTOR);
            byte[0]
        };
        (0..sectors).map(read).collect()
    }

    #[test]
    fn every_kind_of_image_is_what_it_says() {
        let log = vec![
            write(0, 1, 1),
            LogOp::Flush { ok: true },
            write(1, 2, 1),
            write(2, 3, 2),
            write(0, 4, 3),
        ];
        let mut moments = Moments::new(Image::new(1 << 20), log);
        let mut kinds = Vec::new();
        let mut rng = Rng::new(1);
        while moments.advance() {
            let found = moments.candidates(&mut rng);
            for candidate in &found {
                let bytes = bytes(&candidate.image, 4);
                match candidate.kind {
                    Kind::Kept => assert_eq!(bytes, super::tests::bytes(&moments.kept.0, 4)),
                    Kind::Lost => assert_eq!(bytes[1..], [0, 0, 0]),
                    Kind::Torn => assert_ne!(bytes, super::tests::bytes(&moments.kept.0, 4)),
                    _ => {}
                }
            }
            kinds.push(found.iter().map(|c| c.kind).collect::<Vec<_>>());
        }
        use Kind::*;
        assert_eq!(kinds[0], [Kept, Lost], "one sector is never torn");
        assert_eq!(kinds[1], [Kept]);
        assert_eq!(kinds[2], [Kept, Lost]);
        assert_eq!(kinds[3], [Kept, Lost, Torn, Torn, Holed]);
        assert_eq!(kinds[4], [Kept, Lost, Torn, Torn, Holed, Mixed]);
    }
}
