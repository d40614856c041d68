//! Cleaning a volume on a device that is never full, while it is in use.
//!
//! On such a device, as a bucket, few free segments are no reason to clean, because there are
//! always many; but every byte that it stores is paid for. A volume that is never idle would store
//! ever more: what a checkpoint replaces is dead in the middle of segments. So when twice as much
//! is dead as live, what is live in the emptiest segments is moved, between two checkpoints, and
//! the next one that is due frees them. A checkpoint of its own would write again what the load is
//! changing in any case. To begin earlier costs a load more than it saves (`docs/performance.md`).

use crate::clean::Cleaner;
use crate::state::State;
use shoal_base::{Result, SegNo};
use shoal_format::usage::SegKind;
use shoal_space::Victim;
use std::collections::HashMap;
use std::time::Duration;

/// Dead bytes that are allowed for each live one.
const TIMES: u64 = 2;
/// Dead bytes, in segments, that are always allowed: 1 GiB with segments of the default size.
const LEAST: u64 = 64;
/// Metadata that is moved stays in memory until the next checkpoint: one part in so many of the
/// memory for metadata, at most.
const SHARE: u64 = 8;
/// Segments moved before the thread looks whether a checkpoint is due.
const AT_ONCE: usize = 2;
/// If no checkpoint is due for so long, one is written for what was moved.
const PATIENCE: Duration = Duration::from_secs(10);

/// The segments that were moved out of.
#[derive(Default)]
pub(crate) struct Waste {
    /// Number of the newest checkpoint.
    epoch: u64,
    /// Segments moved out of since then.
    moved: u32,
    /// Bytes of metadata in them.
    metadata: u64,
    /// Segments that were moved out of: the number of the checkpoint before, and what was live.
    tried: HashMap<SegNo, (u64, u32)>,
}

impl Waste {
    /// Moves the live data of a few segments, if too much of the volume is dead. Returns whether
    /// there is more to do.
    pub(crate) fn reduce(&mut self, state: &State) -> Result<bool> {
        let store = &state.store;
        let epoch = store.checkpoints().newest_epoch();
        if self.epoch != epoch {
            (self.epoch, self.moved, self.metadata) = (epoch, 0, 0);
        }
        if is_wasteful(state) && self.metadata < store.cache_bytes().1 / SHARE {
            let moved = Cleaner(state).move_few(AT_ONCE, |victim| self.is_new(victim))?;
            for victim in &moved {
                self.moved += 1;
                if victim.kind == SegKind::Meta {
                    self.metadata += u64::from(victim.live);
                }
                self.tried.insert(victim.seg, (epoch, victim.live));
            }
            if !moved.is_empty() {
                return Ok(true);
            }
        }
        if self.moved > 0 && store.checkpoints().newest_age().is_none_or(|age| age >= PATIENCE) {
            store.checkpoints().write()?;
        }
        Ok(false)
    }

    /// Returns whether moving may gain a segment: it was not moved out of since the last
    /// checkpoint, nor in vain, because it has damaged objects.
    fn is_new(&self, victim: &Victim) -> bool {
        let tried = self.tried.get(&victim.seg);
        tried.is_none_or(|(epoch, live)| *epoch != self.epoch && *live != victim.live)
    }
}

/// Returns whether too much of a device that is never full is dead.
fn is_wasteful(state: &State) -> bool {
    let counts = state.store.space().counts();
    let least = LEAST * state.store.geometry().segment_size;
    let most = (TIMES * counts.live_bytes()).max(least);
    state.store.device().never_full() && counts.dead_bytes() > most
}
