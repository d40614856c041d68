//! The choice of what to clean: where a byte gained costs least, and stays gained longest (cost and
//! benefit, after Rosenblum and Ousterhout's log-structured file system).

use crate::{SegKind, Space};
use shoal_base::SegNo;
use std::sync::atomic::Ordering;

/// A segment worth emptying.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Victim {
    /// The segment.
    pub seg: SegNo,
    /// What is in it.
    pub kind: SegKind,
    /// Bytes to be moved.
    pub live: u32,
    /// Time of its newest data, for [`Space::stamp_moved`].
    pub stamp: u32,
}

impl Space {
    /// Up to `max` sealed segments worth emptying, best first, none with more than
    /// `max_live_fraction` of it live. Segments with no live byte are not listed: the next
    /// checkpoint frees them. Nor are those with something pinned: emptying them frees nothing.
    ///
    /// A segment of live share u whose data is of age a is worth (1 − u) · a / (1 + u): reading it
    /// and writing what lives costs 1 + u, the gain is 1 − u, and what has not died for long will
    /// not soon: where data dies fast, it pays to wait.
    pub fn victims(&self, max: usize, max_live_fraction: f64) -> Vec<Victim> {
        let size = self.geometry.segment_size as f64;
        let most = (size * max_live_fraction) as u32;
        let now = self.clock.load(Ordering::Relaxed);
        let mut found: Vec<(f64, Victim)> = Vec::new();
        for (n, segment) in self.segments.iter().enumerate() {
            let (kind, live) = (segment.kind(), segment.live(&self.geometry));
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

    /// Segments that the next checkpoint frees.
    pub fn ready_segments(&self) -> u32 {
        let is_ready = |segment: &&crate::Segment| {
            matches!(segment.kind(), SegKind::Data | SegKind::Meta)
                && segment.sealed.load(Ordering::Acquire)
                && segment.live.load(Ordering::Relaxed) == 0
                && segment.pinned.load(Ordering::Relaxed) == 0
        };
        self.segments.iter().filter(is_ready).count() as u32
    }

    /// The clock by which segments age: how many have been filled in this session.
    pub fn tick(&self) -> u32 {
        self.clock.load(Ordering::Relaxed)
    }

    /// Data of a victim's age is about to be moved: the segment that the cleaner fills is as old as
    /// the newest data in it.
    pub fn stamp_moved(&self, stamp: u32) {
        if let Some(open) = *self.streams[crate::COLD.index()].lock() {
            self.segments[open.seg.0 as usize].stamp.fetch_max(stamp, Ordering::Relaxed);
        }
    }

    /// Bytes in sealed segments that nothing needs: what cleaning and a checkpoint could gain, by
    /// and large.
    pub fn dead_bytes(&self) -> u64 {
        let used = self.geometry.segments.saturating_sub(1 + self.free_segments());
        let used = u64::from(used) * self.geometry.segment_size;
        used.saturating_sub(self.live_bytes() + self.pinned_bytes())
    }
}

/// Age as the choice sees it: it counts by its logarithm, so that a full segment of last year's is
/// not preferred to an empty one of today.
fn age(now: u32, stamp: u32) -> f64 {
    f64::from(1 + now.saturating_sub(stamp)).log2() + 1.0
}
