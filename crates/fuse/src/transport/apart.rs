//! Threads with a table of descriptors of their own.
//!
//! Problem: a notice about pages waits in the kernel for the lock of a page, which its writer holds
//! until the server has answered. A server that is killed meanwhile does not end: this thread
//! cannot be interrupted there, and the writer waits for the next server, which its keeper starts
//! when the killed one has ended.
//!
//! Rule: such a thread has descriptors of its own, without that of the keeper's socket. So the
//! socket is closed when all *other* threads have ended, and that is what the keeper waits for:
//! none of them is in a system call any more, nothing of the process touches the volume, and a
//! thread like this one returns to no code of ours.

use rustix::fs::{Mode, OFlags};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use std::io;

/// Gives this thread descriptors of its own: copies of the process's, but for standard input, which
/// is the keeper's socket, and output, whose reader waits for its end. It must not write to the
/// volume from now on.
pub(crate) fn take_own_descriptors() -> io::Result<()> {
    // SAFETY: descriptors that other threads open from now on are not known here, and numbers that
    // they close stay open here. This thread uses none but those that it has got before it began.
    unsafe { unshare_unsafe(UnshareFlags::FILES)? };
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    Ok(rustix::stdio::dup2_stderr(&null)?)
}
