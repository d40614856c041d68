//! One process at a time: an advisory lock on the device's file, and the name of its holder.
//!
//! `flock` belongs to the open file, so a second open conflicts even within one process, and the
//! kernel releases the lock when a process dies: there are no stale lock files. It locks a file,
//! not the bytes; `backing` and `claim` handle openers that reach the bytes as another file.

use crate::backing::{self, Backing};
use rustix::fs::{FlockOperation, flock, fstat, major, minor};
use rustix::io::Errno;
use shoal_base::{Code, Error, Result};
use std::fs::File;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::time::Duration;

/// Attempts, 10 ms apart. A holder that is killed may have a child, forked by another of its
/// threads, that keeps the lock until it calls `exec`.
const PATIENCE: u32 = 25;
/// Reads of `/proc/locks` that may miss the lock.
const READS_MAX: u32 = 20;

/// Takes the lock of an opened device: shared for readers, exclusive for a writer. Also takes the
/// locks of the files below a block device. Those are returned, and hold their locks until they are
/// dropped.
pub(crate) fn lock_all(file: &File, path: &Path, shared: bool) -> Result<Vec<File>> {
    lock(file, &path.display().to_string(), shared)?;
    let failed = |e: std::io::Error| {
        let errno = e.raw_os_error().unwrap_or(0);
        crate::device::failure("stat", path.display().to_string(), 0, 0, errno)
    };
    let meta = file.metadata().map_err(failed)?;
    if !shared && let Some(device) = backing::used_loop_over(&meta) {
        let (path, device) = (path.display(), device.display());
        let message = format!("{path} is in use through {device}: unmount that, or wait");
        return Err(Error::refused(Code::Busy, message));
    }
    let mut held = Vec::new();
    if meta.file_type().is_block_device() {
        for Backing { path: below, is_whole } in backing::below(meta.rdev()) {
            // A file that cannot be opened is left to the claim in the volume.
            let Some(file) = backing::open(&below) else { continue };
            let name = format!("{}, in which {} lies,", below.display(), path.display());
            lock(&file, &name, shared || !is_whole)?;
            held.push(file);
        }
    }
    Ok(held)
}

fn lock(file: &File, name: &str, shared: bool) -> Result<()> {
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
            Err(Errno::WOULDBLOCK) => return Err(busy(name, holder(file))),
            Err(errno) => {
                return Err(crate::device::failure(
                    "lock",
                    name.into(),
                    0,
                    0,
                    errno.raw_os_error(),
                ));
            }
        }
    }
}

/// Releases the lock of an open file, for every process that has it open.
pub(crate) fn unlock(file: &File) {
    // It fails for no reason that a caller could do something about.
    let _ = flock(file, FlockOperation::Unlock);
}

/// The refusal, with the holder if it is known.
pub(crate) fn busy(name: &str, holder: Option<u32>) -> Error {
    let who = match holder {
        Some(pid) if pid == std::process::id() => format!("this process ({pid})"),
        Some(pid) => format!("process {pid}{}", command_of(pid)),
        None => "another process".into(),
    };
    Error::refused(Code::Busy, format!("{name} is in use by {who}: unmount it there, or wait"))
}

/// The process that holds a lock on this file, from `/proc/locks`. The kernel gives that file in
/// parts of a page, the next one from a number of locks on: while other processes release locks, a
/// lock may be in none of the parts.
fn holder(file: &File) -> Option<u32> {
    let stat = fstat(file).ok()?;
    let exact = format!("{:02x}:{:02x}:{}", major(stat.st_dev), minor(stat.st_dev), stat.st_ino);
    (0..READS_MAX).find_map(|_| {
        let locks = std::fs::read_to_string("/proc/locks").ok()?;
        holder_in(&locks, &exact).or_else(|| {
            // Some filesystems show another device number there than `stat`; the inode number
            // matches.
            holder_in(&locks, &format!(":{}", stat.st_ino))
        })
    })
}

/// Parses rows like `3: FLOCK  ADVISORY  WRITE 1234 08:01:5678 0 EOF`.
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
