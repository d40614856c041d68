//! Progress for the program that has started a check: lines of four words, `PASS DONE TOTAL
//! DEVICE`, as e2fsck writes them and systemd-fsck reads them.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::text::printable;

/// Number of the last pass: readers know five.
const PASSES: usize = 5;
/// Time between two lines.
const PERIOD: Duration = Duration::from_millis(100);

/// The other end of `-C FD`.
pub(super) struct Pipe {
    file: File,
    volume: String,
    stage: String,
    pass: usize,
    told: Option<Instant>,
}

impl Pipe {
    /// Opens a descriptor that this process has inherited; `None` for 0, which means a bar, and for
    /// one that cannot be written: a check does not fail for want of a reader.
    pub(super) fn open(fd: u32, volume: &Path) -> Option<Pipe> {
        let path = format!("/proc/self/fd/{fd}");
        let file = (fd > 0).then(|| OpenOptions::new().append(true).open(path).ok())??;
        let name = printable(volume.as_os_str().as_encoded_bytes()).into_owned();
        // The reader splits at spaces.
        let volume = name.replace(' ', "_");
        Some(Pipe { file, volume, stage: String::new(), pass: 0, told: None })
    }

    /// Writes a line, if it is time for one.
    pub(super) fn set(&mut self, stage: &str, done: u64, total: u64) {
        let is_new = self.stage != stage;
        if is_new {
            self.stage = stage.to_owned();
            self.pass = (self.pass + 1).min(PASSES);
        }
        if !is_new && self.told.is_some_and(|told| told.elapsed() < PERIOD) {
            return;
        }
        self.told = Some(Instant::now());
        self.write(self.pass, done.min(total), total);
    }

    /// Writes the last line.
    pub(super) fn finish(&mut self) {
        self.write(PASSES, 1, 1);
    }

    fn write(&mut self, pass: usize, done: u64, total: u64) {
        let line = format!("{pass} {done} {total} {}\n", self.volume);
        // A reader that has gone away is not missed.
        let _ = self.file.write_all(line.as_bytes());
    }
}
