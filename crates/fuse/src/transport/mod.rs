//! Transports: each reads a request, has a worker ([`Serve`](crate::service::Serve)) answer it, and
//! sends the [`Reply`](crate::protocol::Reply). Nothing outside this module depends on whether that
//! goes through reads and writes or shared rings.

pub(crate) mod apart;
mod crew;
pub(crate) mod device;
mod next;
pub(crate) mod pause;
pub(crate) mod readers;
pub(crate) mod uring;
mod waiting;

use parking_lot::Mutex;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

/// The threads that serve one mount, whatever the transport.
#[derive(Clone, Default)]
pub(crate) struct Threads {
    running: Arc<Mutex<Vec<JoinHandle<()>>>>,
}

impl Threads {
    /// Starts one more thread.
    pub(crate) fn start(
        &self,
        name: String,
        life: impl FnOnce() + Send + 'static,
    ) -> std::io::Result<()> {
        // Held over the start, so that a waiter cannot miss the thread.
        let mut running = self.running.lock();
        // Some end before the mount does.
        running.retain(|thread| !thread.is_finished());
        running.push(Builder::new().name(name).spawn(life)?);
        Ok(())
    }

    /// Returns the number of threads.
    pub(crate) fn count(&self) -> usize {
        self.running.lock().len()
    }

    /// Waits until all have ended, which they do after the connection.
    pub(crate) fn wait(&self) {
        // Some start others meanwhile.
        loop {
            let Some(thread) = self.running.lock().pop() else { return };
            // A panic outside the handlers has been printed; there is nothing to add.
            let _ = thread.join();
        }
    }
}
