//! Counters and gauges of a volume: rows for people and scripts.

use shoal_engine::{Counter, VolumeInfo};
use shoal_session::Metric;
use std::borrow::Cow;

/// Returns all counters of a volume, then all gauges, then what the storage below counts.
pub fn metrics(info: &VolumeInfo) -> Vec<Metric> {
    let what = |name| {
        let counter = Counter::ALL.iter().find(|counter| counter.name() == name);
        counter.map_or("", |counter| counter.what())
    };
    let counters = info.counters.iter().map(|(name, value)| Metric {
        name: Cow::Borrowed(*name),
        value: *value,
        what: Cow::Borrowed(what(*name)),
        gauge: false,
    });
    let storage = info.storage.iter().map(|fact| Metric {
        name: format!("store_{}", fact.name).into(),
        value: fact.value,
        what: fact.what.into(),
        gauge: fact.gauge,
    });
    counters.chain(gauges(info)).chain(storage).collect()
}

fn gauges(info: &VolumeInfo) -> [Metric; 11] {
    [
        ("orphan_slots_used", info.orphans, "slots of the orphan table in use now"),
        ("detached_alive", info.detached, "files that live on in memory alone now"),
        ("inodes", info.inodes, "inodes in use now"),
        ("live_bytes", info.live_bytes, "bytes of metadata and data in use now"),
        ("segments", info.segments.into(), "segments of the volume"),
        ("segments_free", info.segments_free.into(), "segments that are free now"),
        ("pinned_bytes", info.pinned_bytes, "bytes of files that live on in memory alone now"),
        (
            "journal_replay_bytes",
            info.lsn.saturating_sub(info.checkpoint_lsn),
            "bytes of records since the newest checkpoint",
        ),
        ("tree_changes", info.tree_changes, "interrupted changes of trees that go on now"),
        ("cache_bytes", info.cache_bytes, "bytes of cache in use now"),
        ("resident_bytes", resident_bytes(), "bytes of memory of the process in use now"),
    ]
    .map(|(name, value, what)| Metric {
        name: name.into(),
        value,
        what: what.into(),
        gauge: true,
    })
}

/// Returns the memory of this process that is in use; 0: unknown.
fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split_ascii_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or(0) * rustix::param::page_size() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_its_words() {
        let counters = Counter::ALL.iter().map(|counter| (counter.name(), 1)).collect();
        let stats = metrics(&VolumeInfo { counters, orphans: 3, ..VolumeInfo::default() });
        assert!(stats.iter().all(|stat| !stat.name.is_empty() && !stat.what.is_empty()));
        let names: std::collections::HashSet<_> = stats.iter().map(|stat| &stat.name).collect();
        assert_eq!(names.len(), stats.len(), "each once");
        assert_eq!(stats.iter().find(|stat| stat.gauge).map(|stat| stat.value), Some(3));
    }
}
