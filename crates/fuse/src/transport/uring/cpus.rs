//! Processors. The kernel has a queue for each possible one, and sends a request to the queue of
//! its caller's processor.

use rustix::thread::{CpuSet, sched_setaffinity};
use std::fs;

/// Returns the number of the kernel's queues.
pub(super) fn possible() -> Option<u16> {
    let count = read("possible")?.len();
    u16::try_from(count).ok().filter(|count| *count > 0)
}

/// Returns the processors that are online; at least one.
pub(super) fn online() -> Vec<u16> {
    read("online").filter(|list| !list.is_empty()).unwrap_or_else(|| vec![0])
}

/// Binds the calling thread to a processor, if it is one it may run on. Answering on the caller's
/// processor is what makes rings fast: the wake-up stays there.
pub(super) fn stay_on(cpu: u16) {
    let mut set = CpuSet::new();
    if usize::from(cpu) >= CpuSet::MAX_CPU {
        return;
    }
    set.set(cpu.into());
    if let Err(error) = sched_setaffinity(None, &set) {
        tracing::debug!(cpu, %error, "thread not bound to its processor");
    }
}

fn read(which: &str) -> Option<Vec<u16>> {
    parse(&fs::read_to_string(format!("/sys/devices/system/cpu/{which}")).ok()?)
}

/// Parses a list as the kernel writes it: `0-3,8`.
fn parse(list: &str) -> Option<Vec<u16>> {
    let mut cpus = Vec::new();
    for range in list.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        cpus.extend(first.parse::<u16>().ok()?..=last.parse().ok()?);
    }
    Some(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists() {
        assert_eq!(parse("0\n"), Some(vec![0]));
        assert_eq!(parse("0-3,8,10-11\n"), Some(vec![0, 1, 2, 3, 8, 10, 11]));
        assert_eq!(parse(""), None);
        assert_eq!(parse("a-b"), None);
    }

    #[test]
    fn of_this_machine() {
        let possible = usize::from(possible().unwrap());
        assert!(online().len() <= possible);
    }
}
