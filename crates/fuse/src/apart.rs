//! Threads with a descriptor table of their own.
//!
//! Problem: a notice about pages waits in the kernel for the lock of a page, which its writer holds
//! until the server has answered. A server that is killed meanwhile does not end: this thread
//! cannot be interrupted there, and the writer waits for the next server, which its keeper starts
//! when the killed one has ended.
//!
//! Rule: such a thread has descriptors of its own, without the keeper's socket. So the socket is
//! closed when all *other* threads have ended, and the keeper waits for that: none of them is in a
//! system call any more, nothing of the process touches the volume, and a thread like this one
//! returns to no code of ours.
//!
//! It keeps one descriptor of the process, or none. A new table is a copy of the process's, with
//! whatever another thread has open at that moment: a file of the mount, which would keep it busy
//! for ever. So the thread closes everything else first. What starts threads for the connection
//! returns only then: whatever its caller opens later is in no copy.
//!
//! The threads that look names up in the mount itself ([`crate::sweep`]) have such a table too: of
//! a server that is killed they wait for the next one's answer.

use rustix::fs::{Mode, OFlags};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use std::io;
use std::os::fd::RawFd;

/// List of the calling thread's descriptors.
const OWN: &str = "/proc/thread-self/fd";

/// Gives this thread a descriptor table with `kept`, if there is one, and nothing else: standard
/// input, output and error become `/dev/null`. Input is the keeper's socket, and a program reads
/// output to its end.
///
/// No value of this thread may own a descriptor, `kept` included: it is another one from then on.
pub(crate) fn leave_process_table(kept: Option<RawFd>) -> io::Result<()> {
    // SAFETY: all descriptors of the copied table are closed or replaced below, except `kept`. No
    // value of this thread owns one of them.
    unsafe { unshare_unsafe(UnshareFlags::FILES)? };
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    drop(null);
    for number in open_numbers()?.into_iter().filter(|number| *number > 2 && Some(*number) != kept)
    {
        // SAFETY: the table is this thread's alone, and no value owns this number in it.
        unsafe { rustix::io::close(number) };
    }
    Ok(())
}

/// Returns the descriptors of this thread, whose table no other thread has.
pub(crate) fn open_numbers() -> io::Result<Vec<RawFd>> {
    let mut numbers = Vec::new();
    for entry in std::fs::read_dir(OWN)? {
        numbers.extend(entry?.file_name().to_str().and_then(|name| name.parse::<RawFd>().ok()));
    }
    // The list has its own descriptor, which is closed by now.
    numbers.retain(|number| std::fs::symlink_metadata(format!("{OWN}/{number}")).is_ok());
    Ok(numbers)
}
