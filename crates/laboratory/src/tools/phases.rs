//! `phases`: the phases of mdtest, the usual benchmark of metadata on parallel filesystems, by two
//! threads: each makes a tree of directories of its own, and in it directories, then files of 3,901
//! bytes (the size in IO500). All threads begin a phase together; its time is that of the slowest.

use super::children::{self, Times};
use super::{Folder, Plan};
use crate::error::{LabError, Result};
use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

const THREADS: usize = 2;
/// Directories in a directory of the tree, and its levels below the top (mdtest's -b and -z).
const FAN_OUT: usize = 3;
const DEPTH: usize = 3;
/// Bytes of a file (mdtest's -w and -e).
const FILE_BYTES: usize = 3901;

/// Runs the workload: as many directories, then as many files, for each thread.
pub(crate) fn run(plan: &Plan<'_>) -> Result<()> {
    let top = Folder { path: plan.root.join("phases"), keep: plan.keep };
    let failed = |e: io::Error| LabError::failed("making files in", top.path.display(), e);
    fs::create_dir(&top.path).map_err(failed)?;
    let shares: Vec<Share> =
        (0..THREADS).map(|thread| Share::new(&top.path, thread, plan.files)).collect();
    for phase in PHASES {
        let (start, before) = (Instant::now(), children::cpu_of_self());
        let ops = at_once(&shares, phase.work).map_err(|e| {
            LabError::failed("phase", phase.name, format!("{} in {}", e, top.path.display()))
        })?;
        let seconds = start.elapsed().as_secs_f64();
        let times = Times { seconds, cpu_seconds: children::cpu_of_self() - before };
        if !phase.name.starts_with("tree") {
            children::print(["phases", phase.name, "usual"], ops, times, &[])?;
        }
    }
    Ok(())
}

/// Paths of one thread, made before the clock starts.
struct Share {
    /// The directories of its tree, each after the one that holds it.
    tree: Vec<PathBuf>,
    dirs: Vec<PathBuf>,
    /// The names that the directories are given.
    renamed: Vec<PathBuf>,
    files: Vec<PathBuf>,
}

impl Share {
    fn new(top: &Path, thread: usize, items: u64) -> Share {
        let tree = tree(&top.join(format!("t{thread}")));
        // Items go to the directories of the tree in turn, a run of them to each.
        let per_dir = items.div_ceil(tree.len() as u64).max(1);
        let items = |kind: &str| -> Vec<PathBuf> {
            let of = |n: u64| tree[(n / per_dir) as usize].join(format!("{kind}.{n}"));
            (0..items).map(of).collect()
        };
        let [dirs, renamed, files] = ["dir", "renamed", "file"].map(items);
        Share { tree, dirs, renamed, files }
    }
}

/// Returns the directories of a tree, each after the one that holds it.
fn tree(top: &Path) -> Vec<PathBuf> {
    let mut all = vec![top.to_owned()];
    let mut level = 0..1;
    for _ in 0..DEPTH {
        let next = all.len();
        for parent in level {
            let children = (0..FAN_OUT).map(|n| all[parent].join(format!("b{n}")));
            let children: Vec<PathBuf> = children.collect();
            all.extend(children);
        }
        level = next..all.len();
    }
    all
}

/// Work of one thread in a phase: returns the number of its operations.
type Work = fn(&Share) -> io::Result<u64>;

struct Phase {
    name: &'static str,
    work: Work,
}

/// In mdtest's order. Those of the trees, of 80 directories, take a millisecond: they are done, and
/// not shown.
const PHASES: [Phase; 10] = [
    Phase { name: "tree creation", work: |it| each(&it.tree, fs::create_dir) },
    Phase { name: "directory creation", work: |it| each(&it.dirs, fs::create_dir) },
    Phase { name: "directory stat", work: |it| each(&it.dirs, stat) },
    Phase { name: "directory rename", work: rename },
    Phase { name: "directory removal", work: |it| each(&it.renamed, fs::remove_dir) },
    Phase { name: "file creation", work: |it| each(&it.files, create) },
    Phase { name: "file stat", work: |it| each(&it.files, stat) },
    Phase { name: "file read", work: |it| each(&it.files, read) },
    Phase { name: "file removal", work: |it| each(&it.files, fs::remove_file) },
    Phase { name: "tree removal", work: |it| each(it.tree.iter().rev(), fs::remove_dir) },
];

fn each<'p>(
    paths: impl IntoIterator<Item = &'p PathBuf>,
    mut call: impl FnMut(&'p PathBuf) -> io::Result<()>,
) -> io::Result<u64> {
    let mut ops = 0;
    for path in paths {
        call(path)?;
        ops += 1;
    }
    Ok(ops)
}

fn stat(path: &PathBuf) -> io::Result<()> {
    std::hint::black_box(fs::symlink_metadata(path)?);
    Ok(())
}

fn rename(share: &Share) -> io::Result<u64> {
    let mut pairs = share.dirs.iter().zip(&share.renamed);
    pairs.try_fold(0, |ops, (from, to)| fs::rename(from, to).map(|()| ops + 1))
}

fn create(path: &PathBuf) -> io::Result<()> {
    fs::File::create_new(path)?.write_all(&[0x5a; FILE_BYTES])
}

/// Reads a file, and refuses one that is not as it was written: a fast wrong answer is no result.
fn read(path: &PathBuf) -> io::Result<()> {
    let mut bytes = [0; FILE_BYTES + 1];
    let (mut file, mut len) = (fs::File::open(path)?, 0);
    loop {
        match file.read(&mut bytes[len..])? {
            0 => break,
            more => len += more,
        }
    }
    match bytes[..len] == [0x5a; FILE_BYTES] {
        true => Ok(()),
        false => Err(io::Error::other(format!("{}: not what was written", path.display()))),
    }
}

/// Does the work of a phase, a thread for each share. Returns the operations of all.
fn at_once(shares: &[Share], work: Work) -> io::Result<u64> {
    std::thread::scope(|scope| {
        let running: Vec<_> = shares.iter().map(|share| scope.spawn(move || work(share))).collect();
        let ended = running
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|p| std::panic::resume_unwind(p)));
        ended.sum()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::Scratch;

    #[test]
    fn a_tree_lists_parents_first() {
        let all = tree(Path::new("t"));
        assert_eq!(all.len(), 1 + 3 + 9 + 27);
        for (at, path) in all.iter().enumerate().skip(1) {
            let parent = path.parent().expect("has one");
            assert!(all[..at].iter().any(|it| it == parent), "{}", path.display());
        }
    }

    #[test]
    fn phases_leave_nothing_and_count_each_item() {
        let scratch = Scratch::new("test-phases").expect("a folder");
        let shares = [0, 1].map(|thread| Share::new(scratch.path(), thread, 50));
        let counts: Vec<u64> =
            PHASES.iter().map(|phase| at_once(&shares, phase.work).expect(phase.name)).collect();
        assert_eq!(counts, [80, 100, 100, 100, 100, 100, 100, 100, 100, 80]);
        assert_eq!(fs::read_dir(scratch.path()).expect("a folder").count(), 0);
    }

    #[test]
    fn a_file_that_was_changed_is_no_result() {
        let scratch = Scratch::new("test-phases-read").expect("a folder");
        let path = scratch.path().join("a");
        create(&path).expect("made");
        read(&path).expect("as written");
        fs::write(&path, [0x5a; FILE_BYTES + 1]).expect("longer");
        assert!(read(&path).is_err());
    }
}
