//! The choice of segments to clean: where a gained byte costs least and stays gained longest
//! (cost-benefit, after Rosenblum and Ousterhout's log-structured file system).

use crate::{SegKind, Space};
use shoal_base::SegNo;
use std::sync::atomic::Ordering;

/// A segment worth cleaning.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Victim {
    /// The segment.
    pub seg: SegNo,
    /// Its kind.
    pub kind: SegKind,
    /// Bytes to move.
    pub live: u32,
    /// Time of its newest data, for [`Cleaning::stamp_moved`].
    pub stamp: u32,
}

/// The choice of segments to clean: [`Space::cleaning`].
#[derive(Clone, Copy)]
pub struct Cleaning<'s>(&'s Space);

impl Space {
    /// Returns the calls for the cleaner.
    #[inline]
    pub fn cleaning(&self) -> Cleaning<'_> {
        Cleaning(self)
    }
}

impl Cleaning<'_> {
    /// Returns up to `max` sealed segments worth cleaning, best first, each at most
    /// `max_live_fraction` live. Segments without live bytes are excluded, because the next
    /// checkpoint frees them; so are segments with pinned bytes, because cleaning them frees
    /// nothing.
    ///
    /// A segment with live share u and data of age a is worth (1 − u) · a / (1 + u). Reading it and
    /// writing the live data costs 1 + u, the gain is 1 − u. Data that has not died for long is
    /// unlikely to die soon; where data dies fast, waiting pays.
    pub fn victims(self, max: usize, max_live_fraction: f64) -> Vec<Victim> {
        let size = self.0.geometry.segment_size as f64;
        let most = (size * max_live_fraction) as u32;
        let now = self.0.clock.load(Ordering::Relaxed);
        let mut found: Vec<(f64, Victim)> = Vec::new();
        for (n, segment) in self.0.segments.iter().enumerate() {
            let (kind, live) = (segment.kind(), segment.live(&self.0.geometry));
            if !matches!(kind, SegKind::Data | SegKind::Meta)
                || !(1..=most).contains(&live)
                || !segment.sealed.load(Ordering::Acquire)
                || segment.pinned.load(Ordering::Relaxed) != 0
                || segment.held.load(Ordering::Relaxed) != 0
            {
                continue;
            }
            let stamp = segment.stamp.load(Ordering::Relaxed);
            let share = f64::from(live) / size;
            let worth = (1.0 - share) * age(now, stamp) / (1.0 + share);
            found.push((worth, Victim { seg: SegNo(n as u32), kind, live, stamp }));
        }
        let better = |a: &(f64, Victim), b: &(f64, Victim)| {
            b.0.total_cmp(&a.0).then(a.1.seg.0.cmp(&b.1.seg.0))
        };
        if found.len() > max {
            found.select_nth_unstable_by(max, better);
            found.truncate(max);
        }
        found.sort_unstable_by(better);
        found.into_iter().map(|(_, victim)| victim).collect()
    }

    /// Notes that data of this age is about to be moved: the segment that the cleaner fills is as
    /// old as its newest data.
    pub fn stamp_moved(self, stamp: u32) {
        if let Some(open) = *self.0.streams[crate::space::COLD.index()].lock() {
            self.0.segments[open.seg.0 as usize].stamp.fetch_max(stamp, Ordering::Relaxed);
        }
    }
}

/// Age as used by the choice: its logarithm, so that a full old segment is not preferred to an
/// empty new one.
fn age(now: u32, stamp: u32) -> f64 {
    f64::from(1 + now.saturating_sub(stamp)).log2() + 1.0
}
