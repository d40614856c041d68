//! A mounted volume checked piece by piece, by an ioctl.
// Helpers outside a #[test] fail it by unwrapping, too.
#![allow(clippy::unwrap_used)]

mod common;
use common::*;
use rustix::fs::OFlags;
use rustix::io::Errno;
use shoal::ScrubAt;
use shoal_fuse::protocol::flags::IOCTL_SCRUB;
use shoal_fuse::{ScrubStep, scrub_of};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

harness!();

fn dir(path: impl AsRef<Path>) -> OwnedFd {
    open(path, OFlags::RDONLY | OFlags::DIRECTORY).unwrap()
}

fn scrub(top: &OwnedFd, at: ScrubAt, bytes: u64) -> Res<ScrubStep> {
    scrub_of(top, at, bytes).map_err(|error| Errno::from_io_error(&error).unwrap())
}

/// All of it, in steps; what was read and found, and in how many steps.
fn whole(top: &OwnedFd, bytes: u64) -> (ScrubStep, usize) {
    let (mut sum, mut at, mut steps) = (ScrubStep::default(), Some(ScrubAt::default()), 0);
    while let Some(here) = at {
        let step = scrub(top, here, bytes).unwrap();
        (sum.blocks, sum.objects) = (sum.blocks + step.blocks, sum.objects + step.objects);
        (sum.bytes, sum.left_out) = (sum.bytes + step.bytes, sum.left_out + step.left_out);
        sum.problems.extend(step.problems);
        (at, steps) = (step.next, steps + 1);
    }
    (sum, steps)
}

/// Some files with data, in the newest checkpoint.
fn plant(m: &mut TestMount, files: usize, size: usize) {
    mkdir(m.path("d"), 0o755).unwrap();
    for n in 0..files {
        std::fs::write(m.path(&format!("d/f{n}")), pattern(size, n as u64)).unwrap();
    }
    // Closing a volume makes one.
    m.remount();
}

/// Changes the byte of the volume's file where the contents of the `n`th file are.
fn flip(m: &TestMount, n: usize, size: usize) {
    let volume = std::fs::read(m.volume()).unwrap();
    let wanted = pattern(size, n as u64);
    let at = volume.windows(64).position(|bytes| bytes == &wanted[..64]).unwrap() + 20;
    let file = std::fs::OpenOptions::new().write(true).open(m.volume()).unwrap();
    file.write_all_at(&[volume[at] ^ 1], at as u64).unwrap();
}

#[test]
fn clean_while_files_are_written() {
    let Some(mut m) = mount_only("") else { return };
    plant(&mut m, 300, 20_000);
    let top = dir(&m.dir);
    let (sum, steps) = whole(&top, 100_000);
    assert!(sum.objects >= 300 && sum.blocks > 10 && sum.bytes > 6_000_000, "{sum:?}");
    // Files of one inode block come together.
    assert!(steps > 10, "{steps}");
    assert_eq!(sum.problems, []);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for worker in 0..2usize {
            let (m, stop) = (&m, &stop);
            scope.spawn(move || {
                for round in (0..).take_while(|_| !stop.load(Ordering::Relaxed)) {
                    // Over what the scrub reads, and beside it.
                    let old = m.path(&format!("d/f{}", (round * 2 + worker) % 300));
                    let new = m.path(&format!("w{worker}-{}", round % 50));
                    std::fs::write(old, pattern(20_000, round as u64)).unwrap();
                    std::fs::write(&new, pattern(3000, round as u64)).unwrap();
                    if round % 7 == 0 {
                        unlink(new).unwrap();
                    }
                    if round % 40 == 0 {
                        shoal_fuse::sync(&m.dir).unwrap();
                    }
                }
            });
        }
        for bytes in [30_000, 200_000, u64::MAX, 200_000] {
            let (sum, _) = whole(&top, bytes);
            assert_eq!((sum.problems, sum.left_out), (vec![], 0));
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn damage_is_found_although_the_contents_are_in_memory() {
    let Some(mut m) = mount_only("") else { return };
    plant(&mut m, 20, 9000);
    assert_eq!(std::fs::read(m.path("d/f7")).unwrap(), pattern(9000, 7));
    flip(&m, 7, 9000);
    let top = dir(&m.dir);
    for bytes in [1, 1 << 20] {
        let (sum, _) = whole(&top, bytes);
        let [(rule, text)] = &sum.problems[..] else { panic!("{sum:?}") };
        assert_eq!(rule, "data-checksum");
        assert!(text.contains("/d/f7"), "{text}");
    }
    unlink(m.path("d/f7")).unwrap();
}

#[test]
fn only_for_the_superuser_and_who_mounted() {
    let Some(m) = mount_only("allow_other") else { return };
    let top = dir(&m.dir);
    as_user(USER, &[], || fails!(PERM, scrub(&dir(&m.dir), ScrubAt::default(), 1)));
    // Who asks counts, not who opened.
    as_user(USER, &[], || fails!(PERM, scrub(&top, ScrubAt::default(), 1)));
    scrub(&top, ScrubAt::default(), 1).unwrap();
}

#[test]
fn malformed_questions_are_refused() {
    let Some(m) = mount_only("") else { return };
    let top = dir(&m.dir);
    fails!(INVAL, scrub(&top, ScrubAt::default(), 0));
    fails!(NOTTY, scrub(&dir("/"), ScrubAt::default(), 1));
    let mut page = vec![0u64; 2047];
    let call = |page: &mut [u64], number: u32| {
        let arg = page.as_mut_ptr();
        // SAFETY: the page is as long as the largest number says.
        match unsafe { libc::ioctl(top.as_raw_fd(), libc::c_ulong::from(number), arg) } {
            0 => Ok(()),
            _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap()),
        }
    };
    for word in 4..8 {
        page.fill(0);
        page[3] = 1;
        call(&mut page, IOCTL_SCRUB).unwrap();
        page.fill(0);
        (page[3], page[word]) = (1, 1 << 32);
        fails!(INVAL, call(&mut page, IOCTL_SCRUB));
    }
    page.fill(0);
    fails!(NOTTY, call(&mut page, IOCTL_SCRUB & !0x3fff_0000 | 64 << 16));
    // Places that there are not are behind the end.
    for stage in [5, 1 << 40, u64::MAX] {
        let step = scrub(&top, ScrubAt { stage, key: (u64::MAX, 0) }, 1 << 20).unwrap();
        assert_eq!((step.next, step.bytes), (None, 0));
    }
}
