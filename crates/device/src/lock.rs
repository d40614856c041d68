//! One process at a time: an advisory lock on the device's file, and who holds it when it is taken.
//!
//! `flock` belongs to the open file, so a second open conflicts also within one process, and the
//! kernel releases it when a process dies, however it dies: no stale lock files.

use rustix::fs::{FlockOperation, flock, fstat, major, minor};
use rustix::io::Errno;
use shoal_base::{Code, Error, Result};
use std::fs::File;
use std::path::Path;
use std::time::Duration;

/// Attempts, 10 ms apart, before giving up: a child that another thread of the holder has forked
/// keeps the lock until it calls `exec`, a moment after the holder let go.
const PATIENCE: u32 = 5;

/// Takes the lock: shared for readers, exclusive for a writer.
pub(crate) fn lock(file: &File, path: &Path, shared: bool) -> Result<()> {
    let operation = match shared {
        true => FlockOperation::NonBlockingLockShared,
        false => FlockOperation::NonBlockingLockExclusive,
    };
    let mut patience = PATIENCE;
    loop {
        match flock(file, operation) {
            Ok(()) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(Errno::WOULDBLOCK) if patience > 0 => {
                patience -= 1;
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(Errno::WOULDBLOCK) => return Err(busy(path, holder(file))),
            Err(errno) => {
                let device = path.display().to_string();
                return Err(crate::failure("lock", device, 0, 0, errno.raw_os_error()));
            }
        }
    }
}

/// The refusal, naming the holder when it is known.
pub(crate) fn busy(path: &Path, holder: Option<u32>) -> Error {
    let who = match holder {
        Some(pid) if pid == std::process::id() => format!("this process ({pid})"),
        Some(pid) => format!("process {pid}{}", command_of(pid)),
        None => "another process".into(),
    };
    let path = path.display();
    Error::refused(Code::Busy, format!("{path} is in use by {who}: unmount it there, or wait"))
}

/// The process that holds a lock on this file, from `/proc/locks`.
fn holder(file: &File) -> Option<u32> {
    let stat = fstat(file).ok()?;
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    let exact = format!("{:02x}:{:02x}:{}", major(stat.st_dev), minor(stat.st_dev), stat.st_ino);
    holder_in(&locks, &exact).or_else(|| {
        // Some filesystems show another device number there than `stat` does; the inode agrees.
        holder_in(&locks, &format!(":{}", stat.st_ino))
    })
}

/// Rows look like `3: FLOCK  ADVISORY  WRITE 1234 08:01:5678 0 EOF`.
fn holder_in(locks: &str, place: &str) -> Option<u32> {
    locks.lines().find_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        // Waiters have an arrow in place of the type.
        if words.next()? != "FLOCK" {
            return None;
        }
        let pid = words.nth(2)?.parse().ok()?;
        words.next()?.ends_with(place).then_some(pid)
    })
}

fn command_of(pid: u32) -> String {
    let Ok(raw) = std::fs::read(format!("/proc/{pid}/cmdline")) else { return String::new() };
    let words: Vec<_> = raw.split(|b| *b == 0).filter(|w| !w.is_empty()).collect();
    let line = String::from_utf8_lossy(&words.join(&b' ')).into_owned();
    let short: String = line.chars().take(80).collect();
    if short.is_empty() { String::new() } else { format!(" ({short})") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_is_read_from_proc_locks() {
        let locks = "1: POSIX  ADVISORY  WRITE 11 08:01:77 0 EOF\n\
                     2: FLOCK  ADVISORY  WRITE 22 08:01:78 0 EOF\n\
                     3: -> FLOCK  ADVISORY  WRITE 44 08:01:77 0 EOF\n\
                     4: FLOCK  ADVISORY  READ 33 08:01:77 0 EOF\n";
        assert_eq!(holder_in(locks, "08:01:77"), Some(33));
        assert_eq!(holder_in(locks, ":78"), Some(22));
        assert_eq!(holder_in(locks, "08:01:79"), None);
        assert_eq!(holder_in("garbage\n1:\n2: FLOCK", "x"), None);
    }
}
