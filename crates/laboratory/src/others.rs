//! Work of other programs beside a measurement: the processor time that they use meanwhile.
//!
//! The load of the machine says little: it is a mean of the past, and the measured program is in
//! it. The kernel's own threads are left out, as they work for the measured filesystem.

use crate::process::cpu_fields;
use std::collections::HashMap;
use std::fs;
use std::time::Instant;

/// The kernel's parent of all its threads.
const KTHREADD: u32 = 2;

/// A moment before a measurement.
#[derive(Debug)]
pub(crate) struct Before {
    at: Instant,
    seconds: f64,
}

impl Before {
    pub(crate) fn now() -> Before {
        Before { at: Instant::now(), seconds: seconds() }
    }

    /// Returns how many processors other programs have used since then, as a mean.
    pub(crate) fn others(&self) -> f64 {
        ((seconds() - self.seconds) / self.at.elapsed().as_secs_f64().max(0.001)).max(0.0)
    }
}

/// A process: its parent, and its processor time with that of its children that have ended.
type Process = (u32, f64);

/// Returns the processor time of all processes that neither descend from this one nor are the
/// kernel's. The time of one that ends is its parent's from then on, so nothing is lost.
fn seconds() -> f64 {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let processes: HashMap<u32, Process> = entries
        .filter_map(|entry| {
            let id = entry.file_name().to_str()?.parse().ok()?;
            Some((id, parse(&fs::read_to_string(entry.path().join("stat")).ok()?)?))
        })
        .collect();
    sum(&processes, std::process::id())
}

/// Returns the parent and the time in the line of a process.
fn parse(stat: &str) -> Option<Process> {
    let parent = stat.rsplit(") ").next()?.split(' ').nth(1)?.parse().ok()?;
    Some((parent, cpu_fields(stat).iter().sum()))
}

/// Sums up the time of all but those that descend from one.
fn sum(processes: &HashMap<u32, Process>, own: u32) -> f64 {
    let is_other = |mut id: u32| {
        // A table that changes while it is read may have a circle in it.
        for _ in 0..processes.len() {
            if id == own || id == KTHREADD {
                return false;
            }
            let Some((parent, _)) = processes.get(&id) else { break };
            id = *parent;
        }
        true
    };
    let others = processes.iter().filter(|(id, _)| is_other(**id));
    others.map(|(_, (_, seconds))| seconds).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descendants_and_the_kernel_are_no_others() {
        let all = [(1, (0, 1.0)), (2, (0, 2.0)), (3, (2, 4.0)), (7, (1, 8.0)), (8, (7, 16.0))];
        let mut all = HashMap::from(all);
        all.extend([(9, (8, 32.0)), (11, (10, 64.0)), (10, (11, 128.0))]);
        assert_eq!(sum(&all, 8), 1.0 + 8.0 + 64.0 + 128.0);
        assert_eq!(sum(&all, 1), 64.0 + 128.0);
        assert_eq!(parse("7 (a) b) S 5 7 7 0 -1 0 1 2 3 4 0 0 0 0 20 0"), Some((5, 0.0)));
        assert_eq!(parse("nothing"), None);
    }

    #[test]
    fn a_process_of_this_one_is_not_counted() {
        let before = Before::now();
        let spin = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done";
        let ended = std::process::Command::new("sh").args(["-c", spin]).status();
        assert!(ended.expect("run").success());
        let own = crate::process::processor_seconds("self")[1];
        assert!(own > 0.0 && before.others().is_finite());
    }
}
