//! Reads of a file that do not wait for its disk: what the kernel has in its page cache
//! (`RWF_NOWAIT`).

use rustix::fs::fstatfs;
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use std::fs::File;
use std::io::IoSliceMut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// Reads that wait, from which on others are not even tried: the kernel begins to read what it does
/// not have, and a disk that hangs takes only so many requests before the next one waits to be
/// taken.
const WAITING_MAX: u32 = 16;
/// Filesystems in memory, which know no reads without waiting, and need none.
const MEMORY: [u32; 2] = [0x0102_1994, 0x8584_58f6];

/// How it can be known whether a read waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    /// The kernel says so.
    Asked,
    /// It never does.
    InMemory,
    /// It cannot: every read may.
    Unknown,
}

/// Knowledge about the reads of a file.
#[derive(Default)]
pub(crate) struct Now {
    way: OnceLock<Way>,
    waiting: AtomicU32,
}

/// A read that may wait, until it is dropped.
pub(crate) struct Waiting<'n>(&'n Now);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Now {
    /// Notes a read that may wait.
    pub(crate) fn waiting(&self) -> Waiting<'_> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        Waiting(self)
    }

    /// Reads what is there without waiting. `None`: nothing is, or nobody knows.
    pub(crate) fn read(&self, file: &File, buf: &mut [u8], at: u64) -> Option<usize> {
        let way = *self.way.get_or_init(|| way_of(file));
        if way == Way::Unknown || self.waiting.load(Ordering::Relaxed) >= WAITING_MAX {
            return None;
        }
        let flags = match way {
            Way::Asked => ReadWriteFlags::NOWAIT,
            Way::InMemory | Way::Unknown => ReadWriteFlags::empty(),
        };
        // Whatever else is wrong, the read that may wait finds out, and says so.
        preadv2(file, &mut [IoSliceMut::new(buf)], at, flags).ok()
    }
}

fn way_of(file: &File) -> Way {
    match preadv2(file, &mut [IoSliceMut::new(&mut [0])], 0, ReadWriteFlags::NOWAIT) {
        Ok(_) | Err(Errno::AGAIN) => Way::Asked,
        Err(_) => match fstatfs(file) {
            Ok(fs) if MEMORY.contains(&(fs.f_type as u32)) => Way::InMemory,
            _ => Way::Unknown,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn what_was_written_just_now_is_read_without_waiting_unless_many_wait() {
        let path = std::env::temp_dir().join(format!("shoal-now-{}", std::process::id()));
        let mut file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        file.write_all(&[7; 8192]).unwrap();
        let now = Now::default();
        let mut buf = [0; 4096];
        if way_of(&file) == Way::Unknown {
            return shoal_skip::skipped("a filesystem that can say whether a read would wait");
        }
        assert_eq!(now.read(&file, &mut buf, 4096), Some(4096));
        assert_eq!(buf, [7; 4096]);
        assert_eq!(now.read(&file, &mut buf, 8192), Some(0), "the end");
        let waiting: Vec<_> = (0..WAITING_MAX).map(|_| now.waiting()).collect();
        assert_eq!(now.read(&file, &mut buf, 0), None);
        drop(waiting);
        assert_eq!(now.read(&file, &mut buf, 0), Some(4096));
    }
}
