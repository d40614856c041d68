//! Resources that this process has used: processor time and resident memory.

use rustix::time::{ClockId, clock_gettime};
use std::fs;

/// User and system time of all threads so far, in seconds.
///
/// On a `dir:` target that is a FUSE mount, the daemon's time is not in it: it is another process.
pub(crate) fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// User and system time of the calling thread so far, in seconds.
#[cfg(feature = "lab")]
pub(crate) fn thread_cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Resident bytes of this process; 0 where the kernel does not say.
///
/// `smaps_rollup` counts pages; `statm` adds up per-thread counters that lag behind by up to 64
/// pages a thread, so it is only the fallback.
pub(crate) fn resident_bytes() -> u64 {
    let field = |path: &str, name: &str| -> Option<u64> {
        let text = fs::read_to_string(path).ok()?;
        let line = text.lines().find(|line| line.starts_with(name))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok()
    };
    let kib = field("/proc/self/smaps_rollup", "Rss:")
        .or_else(|| field("/proc/self/status", "VmRSS:"))
        .unwrap_or(0);
    kib * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_grow_with_use() {
        let (cpu, rss) = (cpu_seconds(), resident_bytes());
        let block = std::hint::black_box(vec![1u8; 32 << 20]);
        let sum: u64 = block.iter().map(|b| u64::from(*b)).sum();
        assert_eq!(sum, 32 << 20);
        assert!(cpu_seconds() > cpu);
        assert!(resident_bytes() > rss + (16 << 20));
    }
}
