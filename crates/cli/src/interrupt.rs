//! Ctrl-C, and SIGTERM, in commands that change a volume.
//!
//! Killed in the midst of its work, a command would lose what is not in the journal yet, perhaps
//! all of it. So the first signal only asks it to stop: it looks at [`pending`] between two files
//! and between two pieces of a large one, closes the volume, which brings everything onto the disk,
//! and says how far it came. A second signal ends the process at once, which is like a crash: what
//! was synced is there.

use std::fmt::Display;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use crate::failure::{Failure, Result};

/// What shells add to a signal's number for the exit status of a process that it ended.
const STATUS_BASE: usize = 128;

/// The exit status of the first signal that came; 0: none.
static STATUS: OnceLock<Arc<AtomicUsize>> = OnceLock::new();

/// From now on the first signal is noted, and the second ends the process. If that cannot be had,
/// the first one does.
pub fn defer() {
    STATUS.get_or_init(|| {
        let (status, again) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        for signal in [SIGINT, SIGTERM] {
            let code = STATUS_BASE + signal as usize;
            // In the order in which they run: the first signal sets what the second one finds.
            let _ = flag::register_conditional_shutdown(signal, code as i32, again.clone())
                .and_then(|_| flag::register(signal, again.clone()))
                .and_then(|_| flag::register_usize(signal, status.clone(), code));
        }
        status
    });
}

/// Returns the exit status that a command should stop with, if it should.
pub fn pending() -> Option<u8> {
    let status = STATUS.get()?.load(Ordering::Relaxed);
    u8::try_from(status).ok().filter(|status| *status != 0)
}

/// Fails if the command should stop. `done` says how far it came.
pub fn check<T: Display>(done: impl FnOnce() -> T) -> Result<()> {
    match pending() {
        Some(status) => Err(stopped(status, done())),
        None => Ok(()),
    }
}

/// How a command ends that was stopped.
pub fn stopped(status: u8, done: impl Display) -> Failure {
    let line = format!("interrupted: {done}; what was done is on disk");
    Failure::Line { line, status }
}
