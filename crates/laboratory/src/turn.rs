//! Turns with other work on the same machine: a file's lock that is held while measurements are
//! made. A build that is started by `flock FILE cargo build` then never runs beside one.

use crate::error::{LabError, Result};
use crate::interrupt;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

/// Time for which the lock is left to others between two turns: the kernel wakes them in it.
const PAUSE: Duration = Duration::from_millis(100);
/// Time between two looks at whether the lock has come.
const POLL: Duration = Duration::from_millis(20);

/// The turns of a run.
#[derive(Debug)]
pub(crate) struct Turns {
    file: File,
    /// Time for which a turn goes on while others may wait.
    length: Duration,
    since: Option<Instant>,
}

impl Turns {
    /// Opens the file, and makes it if it is missing. The lock is not taken yet.
    pub(crate) fn of(path: &Path, length: Duration) -> Result<Turns> {
        let file = File::options().create(true).append(true).open(path);
        let file = file.map_err(|e| LabError::failed("opening", path.display(), e))?;
        Ok(Turns { file, length, since: None })
    }

    /// Returns when a measurement may begin, or when the run is interrupted. May wait for as long
    /// as others hold the lock.
    pub(crate) fn take(&mut self) -> Result<()> {
        let failed = |e: std::io::Error| LabError::failed("locking", "the file of turns", e);
        if self.since.is_some_and(|since| since.elapsed() >= self.length) {
            flock(&self.file, FlockOperation::Unlock).map_err(|e| failed(e.into()))?;
            std::thread::sleep(PAUSE);
            self.since = None;
        }
        if self.since.is_none() {
            // A lock that is waited for comes in turn; one that is tried again and again may never.
            // The thread waits in the kernel, where no flag of a signal is seen.
            let file = self.file.try_clone().map_err(failed)?;
            let lock = move || flock(file, FlockOperation::LockExclusive);
            let waits = std::thread::spawn(lock);
            while !waits.is_finished() {
                if interrupt::pending().is_some() {
                    return Ok(());
                }
                std::thread::sleep(POLL);
            }
            waits.join().unwrap_or(Err(Errno::INTR)).map_err(|e| failed(e.into()))?;
            self.since = Some(Instant::now());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn a_turn_that_was_long_enough_goes_to_others() {
        let path = std::env::temp_dir().join(format!("shoal-turns-{}", std::process::id()));
        let turns = || Turns::of(&path, Duration::from_secs(600)).unwrap();
        let (mut ours, mut theirs) = (turns(), turns());
        ours.take().unwrap();
        ours.take().expect("the same turn");
        let had = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let had = &had;
            scope.spawn(move || {
                theirs.take().unwrap();
                had.store(true, Ordering::SeqCst);
            });
            std::thread::sleep(Duration::from_millis(20));
            assert!(!had.load(Ordering::SeqCst), "a turn is not shared");
            // They may wait for the lock later than we leave it: then they get the next pause.
            ours.length = Duration::ZERO;
            while !had.load(Ordering::SeqCst) {
                ours.take().unwrap();
            }
        });
        std::fs::remove_file(&path).unwrap();
    }
}
