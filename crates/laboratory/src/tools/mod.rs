//! `laboratory tools`: programs that people use, run on the mounted directory of a system.
//!
//! Each case is a line of JSON on standard output. A case whose program is missing is left out,
//! with a line on standard error; a workload of which no case is left fails.
//!
//! On a mount of Shoal (`--own`) its own tools do the same work, as lines of their own. A cold case
//! begins with the kernel's caches dropped; those of a mount's server stay.

mod children;
mod full_disk;
mod strace;

mod fs_mark;
mod phases;
mod planted;
mod programs;
mod source_tree;

mod calls;
mod trees;

use crate::error::{LabError, Result};
use crate::process::Scratch;
use std::path::{Path, PathBuf};

/// Command line.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Workload
    #[arg(value_enum)]
    workload: Workload,
    /// Mounted directory of the system, as dir:PATH
    #[arg(long, value_name = "TARGET")]
    target: String,
    /// The command `shoal`, which makes the tree; by default the one found in PATH
    #[arg(long, value_name = "FILE", default_value = "shoal")]
    shoal: PathBuf,
    /// The directory is a mount of Shoal: measure its own tools as well
    #[arg(long)]
    own: bool,
    /// Files of the tree; `fs-mark`: of each thread and iteration; `phases`: of each thread
    #[arg(long, default_value_t = 10_000, value_name = "N")]
    files: u64,
    /// `full-disk`: most bytes to write
    #[arg(long, default_value_t = 4 << 30, value_name = "BYTES")]
    bytes_max: u64,
    /// Leave the files in the directory
    #[arg(long)]
    keep: bool,
}

/// Workloads.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Workload {
    /// System calls of programs that walk a mail server's tree, by strace
    Calls,
    /// Times of the same programs
    Trees,
    /// tar extracts, reads, and rm removes a tree of source-like files
    SourceTree,
    /// Programs that people use, on real files
    Programs,
    /// fs_mark: empty files by two threads, five iterations
    FsMark,
    /// The phases of mdtest: directories, then files of 3,901 bytes, by two threads
    Phases,
    /// Files of 64 KiB until there is no space left
    FullDisk,
}

/// Place and extent of a workload.
#[derive(Debug)]
struct Plan<'a> {
    /// The mounted directory.
    root: &'a Path,
    /// The command `shoal`.
    shoal: &'a Path,
    own: bool,
    files: u64,
    keep: bool,
    /// Folder of this process, in memory where possible.
    scratch: &'a Path,
}

/// A folder of measured files, removed when dropped unless it is to stay.
struct Folder {
    path: PathBuf,
    keep: bool,
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !self.keep {
            let _left = std::fs::remove_dir_all(&self.path);
        }
    }
}

/// Runs the workload, and prints a line for each case.
pub(crate) fn run(args: &Args) -> Result<()> {
    let root = args.target.strip_prefix("dir:").filter(|path| !path.is_empty());
    let root = root.ok_or_else(|| LabError::failed("target", &args.target, "is not dir:PATH"))?;
    // Absolute: programs run in a folder of their own.
    let root = std::path::absolute(root).map_err(|e| LabError::failed("target", root, e))?;
    let root = &*root;
    if !root.is_dir() {
        return Err(LabError::failed("target", root.display(), "is not a directory"));
    }
    if args.files == 0 {
        return Err(LabError::failed("option", "--files", "must be at least 1"));
    }
    let scratch = Scratch::new("tools")?;
    let plan = Plan {
        root,
        shoal: &args.shoal,
        own: args.own,
        files: args.files,
        keep: args.keep,
        scratch: scratch.path(),
    };
    match args.workload {
        Workload::Calls => calls::run(&plan),
        Workload::Trees => trees::run(&plan),
        Workload::SourceTree => source_tree::run(&plan),
        Workload::Programs => programs::run(&plan),
        Workload::FsMark => fs_mark::run(&plan),
        Workload::Phases => phases::run(&plan),
        Workload::FullDisk => full_disk::run(root, args.bytes_max, args.keep),
    }
}
