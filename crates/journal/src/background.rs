//! The background thread: writes when much is staged, and makes everything durable at intervals.

use crate::core::Core;
use shoal_base::error::DeviceFailure;
use shoal_base::sync::{Instant, thread};
use shoal_base::{Error, Result};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Starts the thread.
pub(crate) fn spawn(core: Arc<Core>, interval: Duration) -> Result<thread::JoinHandle<()>> {
    let named = thread::Builder::new().name("shoal-journal".into());
    named.spawn(move || run(&core, interval)).map_err(|e| {
        let errno = e.raw_os_error().unwrap_or(0);
        let device = "the journal's thread".into();
        Error::Device(Box::new(DeviceFailure {
            operation: "start",
            device,
            offset: 0,
            len: 0,
            errno,
        }))
    })
}

fn run(core: &Core, interval: Duration) {
    let _careful = Careful(core);
    let mut deadline = Instant::now() + interval;
    loop {
        {
            let mut wake = core.wake.lock();
            while !wake.stop && !wake.write {
                if core.wake_changed.wait_until(&mut wake, deadline).timed_out() {
                    break;
                }
            }
            if wake.stop {
                return;
            }
            wake.write = false;
        }
        // A device failure poisons the journal, which reports it to all callers. If no segment is
        // free, the next commit reports that; a checkpoint may free some before the next round.
        let staged = core.ring.tail();
        if Instant::now() >= deadline {
            if core.durable.load(Ordering::Acquire) < staged {
                let _ = core.commit(staged);
            }
            deadline = Instant::now() + interval;
        } else {
            let _ = core.write_some();
        }
        if core.check_poison().is_err() {
            return;
        }
    }
}

/// Poisons the journal if its thread panics: a journal without a writer must not accept records.
struct Careful<'c>(&'c Core);

impl Drop for Careful<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.poison("a check failed in the journal's thread; the log says which: reopen");
        }
    }
}

impl Core {
    /// Wakes the thread, because much is staged.
    #[cold]
    pub(crate) fn wake_background(&self) {
        self.wake.lock().write = true;
        self.wake_changed.notify_one();
    }

    pub(crate) fn stop_background(&self) {
        self.wake.lock().stop = true;
        self.wake_changed.notify_one();
    }
}
