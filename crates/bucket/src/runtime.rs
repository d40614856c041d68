//! The threads on which requests run.

use shoal_base::{Code, Error, Result};
use std::future::Future;
use tokio::runtime::{Builder, Runtime as Tokio};
use tokio::task::JoinHandle;

/// Threads for requests. They mostly wait for the network; encoding is done on them too.
const THREADS: usize = 4;
/// Threads for calls that block: those to a local disk. Each keeps some memory of what it has read.
const BLOCKING: usize = 8;

/// A runtime whose futures a thread outside of it waits for.
pub struct Runtime(Option<Tokio>);

impl Runtime {
    /// Starts threads.
    ///
    /// # Errors
    /// The system has no more threads.
    pub fn start() -> Result<Runtime> {
        let threads = std::thread::available_parallelism().map_or(THREADS, |n| n.get());
        let built = Builder::new_multi_thread()
            .worker_threads(threads.clamp(2, THREADS))
            .max_blocking_threads(BLOCKING)
            .thread_name("shoal-bucket")
            .enable_all()
            .build();
        built
            .map(Runtime::from)
            .map_err(|e| Error::refused(Code::NoMemory, format!("threads: {e}")))
    }

    /// Waits for a future. Must not be called from one.
    pub fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        self.tokio().block_on(future)
    }

    /// Starts a future.
    pub fn spawn<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        self.tokio().spawn(future)
    }

    fn tokio(&self) -> &Tokio {
        match &self.0 {
            Some(tokio) => tokio,
            // It is taken by `drop` alone.
            None => unreachable!("the runtime has ended"),
        }
    }
}

impl From<Tokio> for Runtime {
    fn from(tokio: Tokio) -> Runtime {
        Runtime(Some(tokio))
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        // Whoever needs a request to end has waited for it.
        if let Some(tokio) = self.0.take() {
            tokio.shutdown_background();
        }
    }
}
