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
//! It keeps one descriptor of the process, the connection's. A new table is a copy of the
//! process's, with whatever another thread has open at that moment: a file of the mount, which
//! would keep it busy for ever. So the thread closes everything else first, and [`start`] returns
//! only then: whatever its caller opens later is in no copy.

use super::Threads;
use rustix::fs::{Mode, OFlags};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::mpsc;

/// List of the calling thread's descriptors.
const OWN: &str = "/proc/thread-self/fd";

/// Starts a thread that has only `device` of the process's descriptors. It must not use any other
/// one: it writes neither to the volume nor to a log.
pub(crate) fn start(
    threads: &Threads,
    name: &str,
    device: OwnedFd,
    life: impl FnOnce(OwnedFd) + Send + 'static,
) -> io::Result<()> {
    let number = device.as_raw_fd();
    let (ready, is_ready) = mpsc::sync_channel(1);
    threads.start(name.to_owned(), move || {
        let own = leave_process_table(number);
        let (own, outcome) = match own {
            Ok(own) => (Some(own), Ok(())),
            Err(error) => (None, Err(error)),
        };
        // The receiver waits for it.
        let _ = ready.send(outcome);
        if let Some(own) = own {
            life(own);
        }
    })?;
    // The process's own `device` is open until then, so the copied one is the same.
    let outcome = is_ready.recv();
    drop(device);
    outcome.map_err(|_| io::Error::other("the thread has ended"))?
}

/// Gives this thread a descriptor table with `kept` and nothing else: standard input, output and
/// error become `/dev/null`. Input is the keeper's socket, and a program reads output to its end.
fn leave_process_table(kept: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: all descriptors of the copied table are closed or replaced below, except `kept`. No
    // value of this thread owns one of them: it has been given none but `kept`.
    unsafe { unshare_unsafe(UnshareFlags::FILES)? };
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    drop(null);
    for number in open_numbers()?.into_iter().filter(|number| *number > 2 && *number != kept) {
        // SAFETY: the table is this thread's alone, and no value owns this number in it.
        unsafe { rustix::io::close(number) };
    }
    // SAFETY: the copied table has it, and nothing else owns it there.
    Ok(unsafe { OwnedFd::from_raw_fd(kept) })
}

/// Returns the descriptors of this thread, whose table no other thread has.
fn open_numbers() -> io::Result<Vec<RawFd>> {
    let mut numbers = Vec::new();
    for entry in std::fs::read_dir(OWN)? {
        numbers.extend(entry?.file_name().to_str().and_then(|name| name.parse::<RawFd>().ok()));
    }
    // The list has its own descriptor, which is closed by now.
    numbers.retain(|number| std::fs::symlink_metadata(format!("{OWN}/{number}")).is_ok());
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::path::{Path, PathBuf};

    fn files_of_this_thread() -> Vec<PathBuf> {
        let link = |number: RawFd| format!("{OWN}/{number}");
        let targets = open_numbers().unwrap().into_iter();
        targets.filter_map(|number| std::fs::read_link(link(number)).ok()).collect()
    }

    /// A thread copied the table while the server had a file of its own mount open for an instant,
    /// and kept it: the mount was busy for ever.
    #[test]
    fn a_thread_keeps_no_file_that_is_open_when_it_starts() {
        let path = std::env::temp_dir().join(format!("shoal-apart-{}", std::process::id()));
        let open = File::create(&path).unwrap();
        let device: OwnedFd = File::options().write(true).open("/dev/full").unwrap().into();
        let threads = Threads::default();
        let (tell, told) = mpsc::channel();
        let life = move |device: OwnedFd| {
            let refused = rustix::io::write(&device, b"x").unwrap_err();
            tell.send((files_of_this_thread(), refused)).unwrap();
        };
        // When it returns the thread has its table: nothing opened from here on can be in it.
        start(&threads, "apart", device, life).unwrap();
        let (mut files, refused) = told.recv().unwrap();
        files.sort();
        let null = Path::new("/dev/null");
        assert_eq!(files, [Path::new("/dev/full"), null, null, null]);
        assert_eq!(refused, rustix::io::Errno::NOSPC);
        threads.wait();
        drop(open);
        std::fs::remove_file(path).unwrap();
    }

    /// The caller waits for a thread that is slow to begin: until then its table is the process's.
    #[test]
    fn the_caller_waits_until_the_thread_has_its_table() {
        let threads = Threads::default();
        for _ in 0..50 {
            let device: OwnedFd = File::open("/dev/null").unwrap().into();
            let (tell, told) = mpsc::channel();
            let (go, gone) = mpsc::channel::<()>();
            start(&threads, "apart", device, move |_device| {
                gone.recv().unwrap();
                tell.send(files_of_this_thread()).unwrap();
            })
            .unwrap();
            let late = File::open("/proc/self/stat").unwrap();
            go.send(()).unwrap();
            assert_eq!(told.recv().unwrap(), vec![Path::new("/dev/null"); 4]);
            drop(late);
        }
        threads.wait();
    }
}
