//! Trees as people have them, for tools that walk: the same tree for the same seed, on any target.
//!
//! *Maildir*: a mail server with inboxes and folders, each with `cur`, `new` and `tmp`. With the
//! default number of files there are 3,221 directories, as in the tree of 543,337 files on which
//! the POSIX extensions for high-performance computing were argued for in 2006. Folders are of very
//! different sizes, and so are mails.

use crate::args::{Args, Like};
use crate::driver::{Driver, Target};
use crate::error::{BenchError, Result};
use crate::layout::mix;
use crate::meter::Meter;
use crate::report::Report;
use crate::workload::{measure, run_phase};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::CString;

/// Files for each folder, on average: 805 folders with four directories each, and the top.
const FILES_PER_FOLDER: u64 = 675;
/// Users among whom the folders are divided.
const USERS: u64 = 23;
/// Mail that nobody has seen yet, which is in `new` instead of `cur`: one in so many.
const UNSEEN: u64 = 20;
/// Sizes of mails: the share of mails, in thousandths, that are smaller than so many bytes.
const SIZES: [(u64, u64); 9] = [
    (0, 400),
    (100, 1200),
    (250, 1900),
    (500, 3000),
    (750, 5500),
    (900, 9000),
    (970, 22_000),
    (995, 60_000),
    (1000, 200_000),
];

/// Directories that a thread has open at a time: fewer than the usual limit of descriptors.
const OPEN_MAX: usize = 400;

/// The directory of a file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Place {
    folder: u64,
    unseen: bool,
}

/// The directories and files of a tree.
struct Maildir {
    seed: u64,
    files: u64,
    folders: u64,
    /// Sums of the folders' weights, in order.
    weights: Vec<u64>,
}

impl Maildir {
    fn new(args: &Args) -> Maildir {
        let folders = args.files.div_ceil(FILES_PER_FOLDER);
        let mut sum = 0;
        // The n-th largest is an n-th of the largest, about.
        let weight = |folder| (1 << 32) / (folder + 3);
        let weights = (0..folders).map(weight).map(|weight| {
            sum += weight;
            sum
        });
        Maildir { seed: args.seed, files: args.files, folders, weights: weights.collect() }
    }

    /// A number that looks random, for a file and a purpose.
    fn draw(&self, file: u64, purpose: u64) -> u64 {
        mix(self.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ mix(file << 3 | purpose))
    }

    /// The directory of a folder. The first ones are the users' inboxes.
    fn folder(&self, folder: u64) -> String {
        let user = folder % USERS;
        match folder < USERS.min(self.folders) {
            true => format!("mail/user{user:02}"),
            false => format!("mail/user{user:02}/.folder{folder:03}"),
        }
    }

    fn folder_of(&self, file: u64) -> u64 {
        let sum = self.weights.last().copied().unwrap_or(1);
        let at = self.draw(file, 0) % sum;
        self.weights.partition_point(|weight| *weight <= at) as u64
    }

    fn is_unseen(&self, file: u64) -> bool {
        self.draw(file, 1).is_multiple_of(UNSEEN)
    }

    fn size(&self, file: u64) -> u64 {
        let drawn = self.draw(file, 2) % 1_000_000;
        let above =
            SIZES.partition_point(|(share, _)| share * 1000 <= drawn).clamp(1, SIZES.len() - 1);
        let ((from, small), (to, large)) = (SIZES[above - 1], SIZES[above]);
        small + (large - small) * (drawn - from * 1000) / ((to - from) * 1000)
    }

    /// The name that a delivery gives it: time, something unique, host, size, flags.
    fn name(&self, file: u64) -> Result<CString> {
        let micros = self.draw(file, 3) % 1_000_000;
        let flags = if self.is_unseen(file) { "" } else { ":2,S" };
        let (time, size) = (1_150_000_000 + file * 60, self.size(file));
        text(format!("{time}.M{micros:06}P{}.mx1,S={size}{flags}", 1000 + file % 30_000))
    }

    /// The files of the folders of a thread, in the order in which they are made: their directory
    /// and number.
    fn files_of(&self, thread: u64, args: &Args) -> Vec<(Place, u64)> {
        let place = |file| Place { folder: self.folder_of(file), unseen: self.is_unseen(file) };
        let mut files: Vec<(Place, u64)> = (0..self.files)
            .map(|file| (place(file), file))
            .filter(|(place, _)| place.folder % args.threads as u64 == thread)
            .collect();
        if !args.by_arrival {
            files.sort_unstable();
        }
        files
    }

    /// Makes all directories. A user's folders are in the user's inbox, which comes before them.
    fn make_directories(&self, driver: &mut impl Driver) -> Result<()> {
        driver.mkdir(c"mail")?;
        for folder in 0..self.folders {
            let path = self.folder(folder);
            driver.mkdir(&text(path.clone())?)?;
            for inner in ["cur", "new", "tmp"] {
                driver.mkdir(&text(format!("{path}/{inner}"))?)?;
            }
        }
        Ok(())
    }

    /// Makes files, with contents from somewhere in `data`.
    fn fill<D: Driver>(
        &self,
        files: &[(Place, u64)],
        data: &[u8],
        driver: &mut D,
        meter: &mut Meter,
    ) -> Result<()> {
        let mut open = HashMap::new();
        for (place, file) in files {
            if open.len() > OPEN_MAX {
                open.clear();
            }
            let dir = match open.entry(*place) {
                Entry::Occupied(open) => open.into_mut(),
                Entry::Vacant(new) => {
                    let inner = if place.unseen { "new" } else { "cur" };
                    let path = text(format!("{}/{inner}", self.folder(place.folder)))?;
                    new.insert(driver.open_dir(&path)?)
                }
            };
            let (name, size) = (self.name(*file)?, self.size(*file) as usize);
            let from = self.draw(*file, 4) as usize % (data.len() - size);
            meter.op(|| driver.write_new(dir, &name, &data[from..from + size]))?;
        }
        Ok(())
    }
}

fn text(text: String) -> Result<CString> {
    CString::new(text).map_err(|e| BenchError::failed("path", "with NUL", e))
}

/// Makes a tree.
pub(crate) fn run<T: Target>(args: &Args, target: &T, report: &mut Report<'_>) -> Result<()> {
    let Like::Maildir = args.like;
    let tree = Maildir::new(args);
    tree.make_directories(&mut target.driver()?)?;
    let data = words(args.seed, SIZES[SIZES.len() - 1].1 as usize);
    let results = measure(target, || {
        run_phase(args, target, 0, |driver, share, meter| {
            let files = tree.files_of(share.thread as u64, args);
            tree.fill(&files, &data, driver, meter)
        })
    })?;
    report.whole(&results)
}

/// Text that compresses like text, somewhat more than so many bytes.
fn words(seed: u64, bytes: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes + (1 << 16) + 16);
    let mut state = seed;
    while out.len() < bytes + (1 << 16) {
        state = mix(state.wrapping_add(0x9E37_79B9_7F4A_7C15));
        // 4,096 words, the first ones much more often.
        let mut word = mix((state >> 32) % ((state & 0xfff) + 1));
        for _ in 0..2 + word % 9 {
            word = word.rotate_right(5);
            out.push(b'a' + (word % 26) as u8);
        }
        out.push(if state >> 60 == 0 { b'\n' } else { b' ' });
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::MAIL;

    #[test]
    fn the_tree_is_that_of_2006() {
        let tree = Maildir {
            seed: 1,
            files: 0,
            folders: 543_337_u64.div_ceil(FILES_PER_FOLDER),
            weights: vec![1],
        };
        // Each folder with its three directories, and the top.
        assert_eq!(tree.folders * 4 + 1, 3221);
        let sizes: u64 = (0..100_000).map(|file| tree.size(file)).sum();
        assert!((MAIL * 8 / 10..MAIL * 12 / 10).contains(&(sizes / 100_000)));
        let names: std::collections::BTreeSet<_> =
            (0..10_000).map(|file| tree.name(file).expect("a name")).collect();
        assert_eq!(names.len(), 10_000);
    }
}
