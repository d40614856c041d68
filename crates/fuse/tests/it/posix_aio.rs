//! Asynchronous direct writes beside buffered reads of the same file.

use crate::common::*;
use io_uring::{IoUring, opcode, types};
use rustix::fs::OFlags;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};

const PAGE: usize = 4096;
const PAGES: usize = 8;
/// A block aligned for direct I/O at any offset.
#[repr(align(4096))]
struct Block([u8; PAGE]);

/// A completed write is visible to every reader, also if the old data was read, and cached, while
/// it was under way.
#[test]
fn what_has_been_written_is_read() {
    let Some(m) = mount("") else { return };
    let path = m.path("file");
    std::fs::write(&path, vec![0; PAGES * PAGE]).unwrap();
    let Ok(mut ring) = IoUring::new(PAGES as u32) else { return skipped("no io_uring") };
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let file = open(&path, OFlags::RDONLY).unwrap();
                while !stop.load(Ordering::Relaxed) {
                    pread(&file, 0, PAGES * PAGE);
                }
            });
        }
        let stale = (1..=ROUNDS).find_map(|round| write_and_read(&mut ring, &path, round));
        stop.store(true, Ordering::Relaxed);
        assert_eq!(stale, None, "round, page, and the round of what was read");
    });
}

/// Without the server's notices, one of a few hundred shows old data.
const ROUNDS: u64 = 800;

/// Writes all pages at a time, then reads each; returns the old data that was read.
fn write_and_read(
    ring: &mut IoUring,
    path: &std::path::Path,
    round: u64,
) -> Option<(u64, usize, u64)> {
    let direct = open(path, OFlags::WRONLY | OFlags::DIRECT).unwrap();
    let mut block = Box::new(Block([0; PAGE]));
    block.0[..8].copy_from_slice(&round.to_le_bytes());
    for page in 0..PAGES {
        let fd = types::Fd(direct.as_raw_fd());
        let write = opcode::Write::new(fd, block.0.as_ptr(), PAGE as u32);
        let entry = write.offset((page * PAGE) as u64).build().user_data(page as u64);
        // SAFETY: the block and the file live until all writes have completed, below.
        unsafe { ring.submission().push(&entry).unwrap() };
    }
    ring.submit_and_wait(PAGES).unwrap();
    for done in ring.completion() {
        assert_eq!(done.result(), PAGE as i32);
    }
    let buffered = open(path, OFlags::RDONLY).unwrap();
    (0..PAGES).find_map(|page| {
        let read = pread(&buffered, (page * PAGE) as u64, 8);
        let found = u64::from_le_bytes(read.try_into().unwrap());
        (found != round).then_some((round, page, found))
    })
}
