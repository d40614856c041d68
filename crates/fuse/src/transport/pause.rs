//! A stop of the threads that read requests, before another process takes over.
//!
//! A thread is busy from the moment in which it has read a request until it has answered it. After
//! the stop it gives up what it reads: the kernel sends that again, to the next server.

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// First pause between two looks at a busy thread.
const LOOK: Duration = Duration::from_micros(50);
/// Longest pause.
const LOOK_MAX: Duration = Duration::from_millis(2);

/// The stop, and the threads that it concerns.
#[derive(Clone, Default)]
pub(crate) struct Pause(Arc<Inner>);

#[derive(Default)]
struct Inner {
    stopped: AtomicBool,
    busy: Mutex<Vec<Arc<Busy>>>,
}

/// A thread is busy. In cache lines of its own.
#[derive(Default)]
#[repr(align(128))]
struct Busy(AtomicBool);

/// A thread that reads requests.
pub(crate) struct Reading {
    pause: Pause,
    busy: Arc<Busy>,
}

impl Pause {
    /// Adds a thread.
    pub(crate) fn join(&self) -> Reading {
        let busy = Arc::<Busy>::default();
        self.0.busy.lock().push(busy.clone());
        Reading { pause: self.clone(), busy }
    }

    /// Stops all threads. Returns whether none has a request in work any more; `false` after
    /// `at_most`. There is no way back.
    pub(crate) fn stop(&self, at_most: Duration) -> bool {
        self.0.stopped.store(true, SeqCst);
        let (end, mut rest) = (Instant::now() + at_most, LOOK);
        loop {
            // A thread that joins later finds the stop before it begins anything.
            let is_busy = self.0.busy.lock().iter().any(|busy| busy.0.load(SeqCst));
            if !is_busy || Instant::now() > end {
                return !is_busy;
            }
            std::thread::sleep(rest);
            rest = (rest * 2).min(LOOK_MAX);
        }
    }

    /// Returns whether the threads were stopped.
    pub(crate) fn is_stopped(&self) -> bool {
        self.0.stopped.load(SeqCst)
    }
}

impl Reading {
    /// Begins the work on a request; `false`: it must be given up.
    #[inline]
    pub(crate) fn begin(&self) -> bool {
        self.busy.0.store(true, SeqCst);
        let goes_on = !self.pause.is_stopped();
        if !goes_on {
            self.end();
        }
        goes_on
    }

    /// Records that it was answered.
    #[inline]
    pub(crate) fn end(&self) {
        self.busy.0.store(false, SeqCst);
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.end();
        self.pause.0.busy.lock().retain(|busy| !Arc::ptr_eq(busy, &self.busy));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn nothing_is_in_work_after_a_stop() {
        let (pause, done) = (Pause::default(), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                let (reading, done) = (pause.join(), &done);
                scope.spawn(move || {
                    while reading.begin() {
                        done.fetch_add(1, SeqCst);
                        std::thread::yield_now();
                        done.fetch_add(1, SeqCst);
                        reading.end();
                    }
                });
            }
            while done.load(SeqCst) < 1000 {
                std::thread::yield_now();
            }
            assert!(pause.stop(Duration::from_secs(60)));
            let after = done.load(SeqCst);
            assert_eq!(after % 2, 0, "a request was cut in two");
            assert!(!pause.join().begin());
        });
        assert!(pause.0.busy.lock().is_empty());
    }

    #[test]
    fn a_request_that_lasts_is_not_waited_for_without_end() {
        let pause = Pause::default();
        let reading = pause.join();
        assert!(reading.begin());
        assert!(!pause.stop(Duration::from_millis(5)));
        reading.end();
        assert!(pause.stop(Duration::from_millis(5)));
    }
}
