//! Ctrl-C, and SIGTERM, in a run.
//!
//! The first signal only asks the run to stop. It looks at [`pending`] while it waits, ends the
//! program that it measures, unmounts and removes what it made. A second signal ends the process at
//! once. The signals are handled even where they were ignored at the start, as a shell without job
//! control does with SIGINT for what it starts in the background.

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

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
            let _ = flag::register_conditional_shutdown(signal, code as i32, Arc::clone(&again))
                .and_then(|_| flag::register(signal, Arc::clone(&again)))
                .and_then(|_| flag::register_usize(signal, Arc::clone(&status), code));
        }
        status
    });
}

/// Returns the exit status that a run should stop with, if it should.
pub(crate) fn pending() -> Option<u8> {
    let status = STATUS.get()?.load(Ordering::Relaxed);
    u8::try_from(status).ok().filter(|status| *status != 0)
}
