//! Requests that wait, and callers of theirs that are killed.
//!
//! The kernel does not let go of a caller whose request the server has: a killed program waits
//! until it is answered, for as long as the device hangs. When a caller is interrupted the kernel
//! says so (INTERRUPT). If it is being killed, its request is answered with `EINTR` here, and
//! whoever works on it finds, when that is done, that nobody waits.
//!
//! A caller that is only interrupted waits on, as on every filesystem on a disk: programs do not
//! expect `EINTR` from a regular file, and use timers. The kernel tells of the first signal alone,
//! so a watcher looks at such callers again and again.

use super::Threads;
use parking_lot::{Condvar, Mutex};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// Pause between two looks at interrupted callers.
const LOOK: Duration = Duration::from_millis(100);
/// Further pause for each of them: whoever interrupts thousands keeps no processor busy.
const LOOK_EACH: Duration = Duration::from_millis(1);
/// Interrupted requests that are remembered: more than threads can be about to wait.
const EARLY: usize = 256;
/// Bit of SIGKILL in a mask of signals.
const KILL: u64 = 1 << 8;

/// Answers a request with `EINTR`.
pub(super) type Release = Box<dyn FnOnce() + Send>;

/// The requests of a mount that wait.
#[derive(Default)]
pub(crate) struct Waiting {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Default)]
struct State {
    requests: HashMap<u64, Caller>,
    /// Requests whose callers were interrupted before they were known to wait, the newest.
    early: VecDeque<u64>,
    /// A watcher runs.
    is_watched: bool,
    closed: bool,
}

struct Caller {
    tid: u32,
    is_interrupted: bool,
    release: Release,
}

impl Waiting {
    /// Records that the request `unique` of a thread waits; `release` answers it.
    pub(super) fn begin(
        self: &Arc<Self>,
        unique: u64,
        tid: u32,
        release: Release,
        threads: &Threads,
    ) {
        let mut state = self.state.lock();
        let is_interrupted = state.early.contains(&unique);
        state.requests.insert(unique, Caller { tid, is_interrupted, release });
        drop(state);
        if is_interrupted {
            self.interrupt(unique, threads);
        }
    }

    /// Returns whether a request waits: its caller has not been killed.
    pub(super) fn is_waiting(&self, unique: u64) -> bool {
        self.state.lock().requests.contains_key(&unique)
    }

    /// Records that a request has been carried out. `false`: its caller is gone, and it was
    /// answered.
    pub(super) fn end(&self, unique: u64) -> bool {
        // The release holds what it would answer by; dropped outside of the lock.
        let caller = self.state.lock().requests.remove(&unique);
        caller.is_some()
    }

    /// Records that the caller of a request has been interrupted, if that waits.
    pub(super) fn interrupt(self: &Arc<Self>, unique: u64, threads: &Threads) {
        let mut state = self.state.lock();
        let Some(caller) = state.requests.get_mut(&unique) else {
            state.early.push_back(unique);
            if state.early.len() > EARLY {
                state.early.pop_front();
            }
            return;
        };
        if is_killed(caller.tid) {
            let caller = state.requests.remove(&unique);
            drop(state);
            return caller.into_iter().for_each(|caller| (caller.release)());
        }
        caller.is_interrupted = true;
        if state.is_watched {
            return;
        }
        let waiting = self.clone();
        let watch = move || waiting.watch();
        state.is_watched = threads.start("shoal-interrupts".into(), watch).is_ok();
    }

    /// Watches interrupted callers until there are none.
    fn watch(&self) {
        let mut state = self.state.lock();
        loop {
            let count = state.requests.values().filter(|caller| caller.is_interrupted).count();
            self.ended.wait_for(&mut state, LOOK + LOOK_EACH * count as u32);
            let killed =
                |(_, caller): &(&u64, &Caller)| caller.is_interrupted && is_killed(caller.tid);
            let killed: Vec<u64> =
                state.requests.iter().filter(killed).map(|(unique, _)| *unique).collect();
            for unique in killed {
                if let Some(caller) = state.requests.remove(&unique) {
                    (caller.release)();
                }
            }
            if state.closed || !state.requests.values().any(|caller| caller.is_interrupted) {
                state.is_watched = false;
                return;
            }
        }
    }

    /// Ends the watcher.
    pub(super) fn close(&self) {
        self.state.lock().closed = true;
        self.ended.notify_all();
    }
}

/// Returns whether a thread is being killed: by SIGKILL, or by another signal that ends it, for
/// which the kernel puts a SIGKILL into the threads' own queues. `false` if nobody knows: it is in
/// a namespace that is not seen from here, or hidden.
fn is_killed(tid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{tid}/status")).unwrap_or_default();
    let pending = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        u64::from_str_radix(line.trim(), 16).ok()
    };
    ["SigPnd:", "ShdPnd:"].iter().any(|name| pending(name).is_some_and(|mask| mask & KILL != 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

    #[test]
    fn only_a_request_that_waits_is_released_and_only_if_its_caller_is_killed() {
        let (waiting, released) = (Arc::<Waiting>::default(), Arc::<AtomicU32>::default());
        let threads = Threads::default();
        let release = || -> Release {
            let released = released.clone();
            Box::new(move || _ = released.fetch_add(1, SeqCst))
        };
        waiting.interrupt(3, &threads);
        // This process lives.
        waiting.begin(4, std::process::id(), release(), &threads);
        waiting.interrupt(4, &threads);
        waiting.interrupt(6, &threads);
        waiting.begin(6, 0, release(), &threads);
        assert!(waiting.state.lock().is_watched);
        assert!(waiting.end(4) && waiting.end(6), "answered by who worked on it");
        assert!(!waiting.end(4));
        threads.wait();
        assert_eq!(released.load(SeqCst), 0);
        assert!(!waiting.state.lock().is_watched);
    }
}
