//! Scrub of a mounted volume, in steps.

use crate::common::*;
use shoal::raw::{Caller, ScrubAt};
use shoal_session::ScrubStep;
use std::collections::HashSet;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};

/// Number of all scrubs.
const RUN: u32 = 1;

fn scrub(top: &OwnedFd, at: ScrubAt, bytes: u64) -> Res<ScrubStep> {
    errno(calls(top).scrub(&Caller::root(), RUN, at, bytes))
}

/// Scrubs everything in steps; returns the sum of the results and the number of steps.
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

/// Makes files with data, in the newest checkpoint.
fn plant(m: &mut TestMount, files: usize, size: usize) {
    mkdir(m.path("d"), 0o755).unwrap();
    for n in 0..files {
        std::fs::write(m.path(&format!("d/f{n}")), pattern(size, n as u64)).unwrap();
    }
    // Closing a volume makes a checkpoint.
    m.remount();
}

/// Changes a byte of each of these files in the volume's file.
fn flip(m: &TestMount, files: std::ops::Range<usize>, size: usize) {
    let volume = std::fs::read(m.volume()).unwrap();
    let beginning = |n: usize| pattern(size, n as u64)[..64].to_vec();
    let mut wanted: HashSet<Vec<u8>> = files.map(beginning).collect();
    let file = std::fs::OpenOptions::new().write(true).open(m.volume()).unwrap();
    for at in (0..volume.len() - 64).step_by(8) {
        // Most of it is zeros.
        if volume[at..at + 2] != [0; 2] && wanted.remove(&volume[at..at + 64]) {
            file.write_all_at(&[volume[at + 20] ^ 1], at as u64 + 20).unwrap();
        }
    }
    assert!(wanted.is_empty());
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
    flip(&m, 7..8, 9000);
    let top = dir(&m.dir);
    for bytes in [1, 1 << 20] {
        let (sum, _) = whole(&top, bytes);
        let [(rule, text)] = &sum.problems[..] else { panic!("{sum:?}") };
        assert_eq!(rule, "data-checksum");
        assert!(text.contains("/d/f7"), "{text}");
    }
    unlink(m.path("d/f7")).unwrap();
}

/// Problems that do not fit on a page are counted, and smaller steps return them.
#[test]
fn what_does_not_fit_comes_in_smaller_steps() {
    let Some(mut m) = mount_only("") else { return };
    const FILES: usize = 80;
    mkdir(m.path("d"), 0o755).unwrap();
    let name = |n: usize| m.path(&format!("d/{}-{n}", "a-long-name".repeat(22)));
    let names: Vec<_> = (0..FILES).map(name).collect();
    for (n, name) in names.iter().enumerate() {
        std::fs::write(name, pattern(3000, n as u64)).unwrap();
    }
    m.remount();
    flip(&m, 0..FILES, 3000);
    let top = dir(&m.dir);
    let (once, _) = whole(&top, u64::MAX);
    assert!(once.left_out > 0 && once.problems.len() > 20, "{}", once.left_out);
    assert_eq!(once.problems.len() + once.left_out as usize, FILES);
    let (all, _) = whole(&top, 1);
    assert_eq!((all.problems.len(), all.left_out), (FILES, 0));
    for name in &names {
        let name = name.file_name().unwrap().to_str().unwrap();
        assert!(all.problems.iter().any(|(_, text)| text.contains(&format!("/d/{name})"))));
    }
    names.iter().for_each(|name| unlink(name).unwrap());
}

#[test]
fn only_for_the_superuser_and_who_mounted() {
    let Some(m) = mount_only("allow_other") else { return };
    let top = dir(&m.dir);
    as_user(USER, &[], || fails!(PERM, scrub(&dir(&m.dir), ScrubAt::default(), 1)));
    // The caller counts, not the user who opened the directory.
    as_user(USER, &[], || fails!(PERM, scrub(&top, ScrubAt::default(), 1)));
    scrub(&top, ScrubAt::default(), 1).unwrap();
}

#[test]
fn places_that_there_are_not() {
    let Some(m) = mount_only("") else { return };
    let top = dir(&m.dir);
    fails!(INVAL, scrub(&top, ScrubAt::default(), 0));
    fails!(INVAL, scrub(&dir("/"), ScrubAt::default(), 1));
    // Places that do not exist are behind the end: at most the page of the root table is read that
    // would know.
    for stage in [5, 1 << 40, u64::MAX] {
        let step = scrub(&top, ScrubAt { stage, key: (u64::MAX, 0) }, 1 << 20).unwrap();
        assert_eq!(step.next, None);
        assert!(step.bytes < 24 << 10, "{}", step.bytes);
    }
}
