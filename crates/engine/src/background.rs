//! The thread that checkpoints when it is due, cleans when segments run low, and frees what was in
//! deleted roots.

use crate::volume::Inner;
use parking_lot::Mutex;
use shoal_base::{Code, Error, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often the thread looks around unasked.
const LOOK: Duration = Duration::from_millis(500);

/// The running thread.
pub(crate) struct Background {
    stop: Arc<AtomicBool>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Background {
    pub fn start(inner: Arc<Inner>) -> Result<Background> {
        let stop = Arc::new(AtomicBool::new(false));
        let seen = stop.clone();
        let spawned = std::thread::Builder::new()
            .name("shoal-checkpoint".into())
            .spawn(move || run(&inner, &seen));
        let thread = spawned.map_err(|e| {
            Error::refused(Code::Again, format!("cannot start the checkpoint thread: {e}"))
        })?;
        Ok(Background { stop, thread: Mutex::new(Some(thread)) })
    }

    /// Stops the thread and waits for it.
    pub fn stop(&self, inner: &Inner) {
        self.stop.store(true, Ordering::Release);
        inner.store.wake_checkpointer();
        if let Some(thread) = self.thread.lock().take() {
            // Its panic, if any, has been reported by the panic hook; the volume is as it was.
            let _ = thread.join();
        }
    }
}

fn run(inner: &Inner, stop: &AtomicBool) {
    // A slice in every session, however short: else a volume that only ever sees single commands
    // would never be rid of what was deleted.
    let mut reaping = free_some(inner);
    while !stop.load(Ordering::Acquire) {
        if !inner.options.checkpoint_always && !reaping {
            inner.store.wait_for_work(LOOK);
        }
        if stop.load(Ordering::Acquire) || inner.store.writable().is_err() {
            // Read-only: nothing to do until the volume is closed.
            if inner.store.writable().is_err() {
                std::thread::sleep(LOOK / 10);
            }
            continue;
        }
        let due = inner.store.checkpoint_is_due() || inner.options.checkpoint_always;
        let done = if due { inner.store.checkpoint() } else { Ok(()) };
        let done = done.and_then(|()| match inner.should_clean() {
            true => inner.clean_in_background(),
            false => Ok(()),
        });
        // A slice at a time: a checkpoint that is due comes first.
        reaping = done.is_ok() && free_some(inner);
        if let Err(e) = done {
            tracing::error!(error = %e, "background checkpoint");
        }
    }
}

/// Frees a slice of what is in deleted roots; whether there is more.
fn free_some(inner: &Inner) -> bool {
    inner.reap_some().unwrap_or_else(|e| {
        tracing::error!(error = %e, "freeing deleted roots");
        false
    })
}
