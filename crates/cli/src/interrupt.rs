//! Ctrl-C, and SIGTERM, in commands that change a volume.
//!
//! A command that is killed would lose everything that is not in the journal yet, perhaps all of
//! its work. So the first signal only asks it to stop: it checks [`pending`] between two files and
//! between two pieces of a large one, closes the volume, which writes everything to the disk, and
//! says how far it came. A second signal ends the process at once, which is like a crash: synced
//! changes are there.

use std::fmt::Display;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use crate::failure::{Failure, Result};

/// Number that shells add to a signal's for the exit status of a process that it ended.
const STATUS_BASE: usize = 128;

/// Exit status of the first signal that came; 0: none.
static STATUS: OnceLock<Arc<AtomicUsize>> = OnceLock::new();

/// Makes the first signal only be recorded, and the second end the process. If that fails, the
/// first one does.
pub(crate) fn defer() {
    STATUS.get_or_init(|| {
        let (status, again) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        for signal in [SIGINT, SIGTERM] {
            let code = STATUS_BASE + signal as usize;
            // In the order in which they run: the first signal sets the flag that the second one
            // finds.
            let _ = flag::register_conditional_shutdown(signal, code as i32, again.clone())
                .and_then(|_| flag::register(signal, again.clone()))
                .and_then(|_| flag::register_usize(signal, status.clone(), code));
        }
        status
    });
}

/// Returns the exit status that a command should stop with, if it should.
pub(crate) fn pending() -> Option<u8> {
    let status = STATUS.get()?.load(Ordering::Relaxed);
    u8::try_from(status).ok().filter(|status| *status != 0)
}

/// Fails if the command should stop. `done` says how far it came.
pub(crate) fn check<T: Display>(done: impl FnOnce() -> T) -> Result<()> {
    match pending() {
        Some(status) => Err(stopped(status, done())),
        None => Ok(()),
    }
}

/// Failure of a command that was interrupted.
pub(crate) fn stopped(status: u8, done: impl Display) -> Failure {
    let line = format!("interrupted: {done}; completed changes are on disk");
    Failure::Line { line, status }
}
