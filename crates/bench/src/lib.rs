//! Workloads with two drivers: system calls on any mounted directory, or the Shoal library on a
//! volume. This is what `shoal bench` runs, and what every number in `docs/performance.md` is from.
//!
//! Both drivers run the same workload code, monomorphised, so that a comparison of Shoal with
//! another filesystem compares the filesystems. Modules, bottom-up:
//!
//! | module | what |
//! | --- | --- |
//! | `error`, `resources` | the one error type; processor time and resident memory of this process |
//! | `plot` | curves as SVG |
//! | `args` | the command line |
//! | `driver` | what a workload may ask of a target |
//! | `meter` | sampled latency and progress marks of one thread, and their sum |
//! | `layout` | which files there are: names, directories, who owns which |
//! | `library`, `syscalls` | the two drivers |
//! | `report` | JSON lines, or a table and a histogram |
//! | `workload` | the workloads, and the phases they run in |
//! | `overwrite` | random overwrites of a nearly full volume |
//! | `orphans` | files cut a byte at a time, and whole trees |
//! | `tree` | trees as people have them |
//! | `age` | a volume that grows old |
//! | `attributes` | security labels replaced, paths asked for |
//! | `scan` | all inodes of a volume: `bulkstat`, totals |
//! | `special` | `recover`: the time of a recovery |
//! | `replay` | a trace again; the format of its file |
//! | `lab` | studies of how Shoal is made: only in the program `shoal-lab` |

mod error;
mod plot;
mod resources;

mod args;
mod driver;
mod meter;

mod layout;

mod library;
mod report;
mod sessions;
mod syscalls;

mod overwrite;
mod workload;

mod orphans;
mod tree;

mod age;
mod attributes;
#[cfg(feature = "lab")]
mod lab;
pub mod replay;
mod scan;
mod special;

pub use args::{Args, Like, Target, Workload};
pub use error::BenchError;

use error::Result;
use std::path::Path;

/// Runs one workload as the arguments say and prints its results on standard output.
pub fn run(args: Args) -> Result<()> {
    run_into(&args, &mut std::io::stdout().lock())
}

/// The same, printing to `out`.
pub fn run_into(args: &Args, out: &mut dyn std::io::Write) -> Result<()> {
    args.check()?;
    #[cfg(feature = "lab")]
    if lab::run(args, out)? {
        return Ok(());
    }
    let Some(target) = &args.target else {
        return Err(BenchError::new(format!("{} needs a --target", args.workload.name())));
    };
    let mut report = report::Report::new(args, out);
    match (target, args.workload) {
        (target, Workload::Replay) => replay::run(args, target, &mut report),
        (Target::Session(path), _) => by_session(args, path, &mut report),
        (Target::Volume(path), Workload::Recover) => special::recover(args, path, &mut report),
        (Target::Volume(path), Workload::Truncate) => {
            orphans::truncate_volume(args, path, &mut report)
        }
        (Target::Directory(path), Workload::Truncate) => {
            orphans::truncate_directory(args, path, &mut report)
        }
        (Target::Volume(path), Workload::RemoveTree) => {
            orphans::remove_tree_volume(args, path, &mut report)
        }
        (Target::Directory(path), Workload::RemoveTree) => {
            orphans::remove_tree_directory(args, path, &mut report)
        }
        (Target::Volume(path), Workload::Overwrite) => overwrite::run(args, path, &mut report),
        (Target::Volume(path), workload) if workload.scans() => scan::run(args, path, &mut report),
        (Target::Volume(path), Workload::Setxattr | Workload::Paths) => {
            attributes::run(args, path, &mut report)
        }
        (Target::Volume(path), Workload::MakeTree) => {
            let target = library::VolumeTarget::prepare(args, path)?;
            tree::run(args, &target, &mut report)?;
            target.finish()
        }
        (Target::Directory(path), Workload::MakeTree) => {
            let target = syscalls::DirectoryTarget::prepare(args, path)?;
            tree::run(args, &target, &mut report)?;
            target.finish()
        }
        (Target::Volume(path), Workload::Age) => {
            let target = library::VolumeTarget::prepare(args, path)?;
            age::run(args, &target, &mut report)?;
            target.finish()
        }
        (Target::Directory(path), Workload::Age) => {
            let target = syscalls::DirectoryTarget::prepare(args, path)?;
            age::run(args, &target, &mut report)?;
            target.finish()
        }
        (Target::Volume(path), _) => {
            let target = library::VolumeTarget::prepare(args, path)?;
            workload::run_rounds(args, &target, &mut report)?;
            target.finish()
        }
        (Target::Directory(path), _) => {
            let target = syscalls::DirectoryTarget::prepare(args, path)?;
            workload::run_rounds(args, &target, &mut report)?;
            target.finish()
        }
    }
}

/// Runs a workload by a session of the mount that a directory is in.
fn by_session(args: &Args, mount: &Path, report: &mut report::Report<'_>) -> Result<()> {
    use Workload::{Age, MakeTree, RemoveTree, Truncate};
    if matches!(args.workload, Truncate | RemoveTree | MakeTree | Age) {
        let name = args.workload.name();
        return Err(BenchError::new(format!("{name} takes no session: target")));
    }
    let target = sessions::SessionTarget::prepare(args, mount)?;
    workload::run_rounds(args, &target, report)?;
    target.finish()
}
