//! Transports: each reads a request, has a worker ([`Serve`](crate::service::Serve)) answer it, and
//! sends the [`Reply`](crate::protocol::Reply). Nothing outside this module depends on whether that
//! goes through reads and writes or shared rings.

pub mod apart;
mod crew;
pub mod device;
pub mod pause;
pub mod uring;

use parking_lot::Mutex;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

/// The threads that serve one mount, whatever the transport.
#[derive(Clone, Default)]
pub struct Threads {
    running: Arc<Mutex<Vec<JoinHandle<()>>>>,
}

impl Threads {
    /// Starts one more thread.
    pub fn start(&self, name: String, life: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
        // Held over the start, so that a waiter cannot miss the thread.
        let mut running = self.running.lock();
        running.push(Builder::new().name(name).spawn(life)?);
        Ok(())
    }

    /// Returns the number of threads.
    pub fn count(&self) -> usize {
        self.running.lock().len()
    }

    /// Waits until all have ended, which they do after the connection.
    pub fn wait(&self) {
        // Some start others meanwhile.
        loop {
            let Some(thread) = self.running.lock().pop() else { return };
            // A panic outside the handlers has been printed; there is nothing to add.
            let _ = thread.join();
        }
    }
}
