//! Sizes by directory, as `du` counts them, by a walk on several threads.
//!
//! ```sh
//! cargo run -p shoal --example du [[--connect] VOLUME [DIRECTORY]]
//! ```
//!
//! The walk hands out each entry with its metadata, so nothing is looked up a second time. With
//! several threads the entries come in any order. A file of several names is counted once, in the
//! directory where it is met first.

mod common;

use shoal::{Dir, Result};
use std::collections::{BTreeMap, HashSet};
use std::time::Instant;

/// Sums of a directory and everything below it.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct Sum {
    /// Bytes on the volume.
    used: u64,
    /// Bytes of contents.
    length: u64,
    files: u64,
}

/// Sums by path, the top's under the empty path; and the entries that could not be read.
type Sums = (BTreeMap<Vec<u8>, Sum>, Vec<shoal::Error>);

fn sizes(top: &Dir, threads: usize) -> Sums {
    let (mut sums, mut errors) =
        (BTreeMap::<Vec<u8>, Sum>::from([(Vec::new(), Sum::default())]), Vec::new());
    let mut linked = HashSet::new();
    for found in top.walk().threads(threads) {
        let found = match found {
            Ok(found) => found,
            // A directory that may not be listed; the walk goes on.
            Err(error) => {
                errors.push(error);
                continue;
            }
        };
        let (path, metadata) = (found.path_bytes(), found.metadata());
        if metadata.is_dir() {
            sums.entry(path.to_vec()).or_default();
        }
        if !metadata.is_dir() && metadata.nlink() > 1 && !linked.insert(metadata.ino()) {
            continue;
        }
        let length = if metadata.is_file() { metadata.len() } else { 0 };
        let own = Sum { used: metadata.blocks() * 512, length, files: 1 };
        for above in directories_above(path) {
            add(sums.entry(above.to_vec()).or_default(), own);
        }
    }
    (sums, errors)
}

fn add(sum: &mut Sum, other: Sum) {
    sum.used += other.used;
    sum.length += other.length;
    sum.files += other.files;
}

/// The empty path, `a` and `a/b` of `a/b/c`.
fn directories_above(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
    std::iter::once(&path[..0]).chain(slashes.map(|(at, _)| &path[..at]))
}

/// A tree of 2,000 files in 100 directories; `n` bytes in the n-th file of each.
fn make_tree(top: &Dir) -> Result<()> {
    for project in 0..10 {
        for part in 0..10 {
            let dir = top.create_dir_all(format!("project-{project}/part-{part}"))?;
            dir.batch(|batch| {
                (0..20).try_for_each(|n| batch.write(format!("{n}"), vec![b'x'; n]))
            })?;
        }
    }
    // One more name of a file; one more file.
    top.hard_link("project-0/part-0/19", "project-1/same")?;
    top.write("project-0/large", vec![7; 1_000_000])
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let place = common::Place::from_arguments("du");
    let volume = place.open()?;
    // All of a volume that is named; with nothing named, a tree of our own.
    let is_own = !place.is_named();
    let top = place.directory(&volume, 0, "")?;
    if is_own {
        make_tree(&top)?;
    }

    let start = Instant::now();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let (sums, errors) = sizes(&top, threads);
    let elapsed = start.elapsed();
    let mut largest: Vec<_> = sums.iter().collect();
    largest.sort_by_key(|(path, sum)| (std::cmp::Reverse(sum.used), *path));
    for (path, sum) in largest.iter().take(10) {
        println!("{:>12} {:>8} ./{}", sum.used, sum.files, path.escape_ascii());
    }
    for error in &errors {
        eprintln!("{error}");
    }
    let all = sums[&b""[..]];
    println!("{} files and directories in {elapsed:?} on {threads} threads", all.files);

    let (alone, _) = sizes(&top, 1);
    if is_own {
        assert!(errors.is_empty());
        // The directories with names of the shared file have it or not, in each walk.
        for (path, sum) in &alone {
            let has_shared = [&b"project-0"[..], b"project-0/part-0", b"project-1"];
            if !has_shared.contains(&&path[..]) {
                assert_eq!(sum, &sums[path], "threads do not change the sums");
            }
        }
        assert_eq!(all.files, 2001 + 110, "2,000 files, 1 large, 10 + 100 directories");
        assert_eq!(all.length, 100 * (0..20).sum::<u64>() + 1_000_000);
        assert!(all.used >= 1_000_000);
        // Counted under one of its names: the one that the walk met first.
        let part = sums[&b"project-1/part-1"[..]];
        assert_eq!((part.files, part.length), (20, (0..20).sum()));
        assert_eq!(*largest[1].0, b"project-0");
    }
    Ok(())
}
