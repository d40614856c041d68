//! Threads of the connection with a descriptor table of their own ([`crate::apart`]).

use super::Threads;
use crate::apart::leave_process_table;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::mpsc;

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
        let left = leave_process_table(Some(number));
        // SAFETY: the thread's own table has it, and nothing else owns it there.
        let own = left.is_ok().then(|| unsafe { OwnedFd::from_raw_fd(number) });
        // The receiver waits for it.
        let _ = ready.send(left);
        if let Some(own) = own {
            life(own);
        }
    })?;
    // The process's own `device` is open until then, so the copied one is the same.
    let outcome = is_ready.recv();
    drop(device);
    outcome.map_err(|_| io::Error::other("the thread has ended"))?
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apart::open_numbers;
    use std::fs::File;
    use std::os::fd::RawFd;
    use std::path::{Path, PathBuf};

    fn files_of_this_thread() -> Vec<PathBuf> {
        let link = |number: RawFd| format!("/proc/thread-self/fd/{number}");
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
