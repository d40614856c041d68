//! Workloads with two drivers: system calls on any mounted directory, or the Shoal library on a
//! volume. This is what `shoal bench` runs, and what every number in `docs/performance.md` is from.
//!
//! Both drivers run the same workload code, monomorphised, so that a comparison of Shoal with
//! another filesystem compares the filesystems. Modules, bottom-up:
//!
//! | module | what |
//! | --- | --- |
//! | `error`, `resources` | the one error type; processor time and resident memory of this process |
//! | `args` | the command line |
//! | `layout` | which files there are: names, directories, who owns which |
//! | `meter` | sampled latency and progress marks of one thread, and their sum |
//! | `driver` | what a workload may ask of a target |
//! | `syscalls`, `library` | the two drivers |
//! | `workload` | the workloads, and the phases they run in |
//! | `special` | `recover`, `memory`, `checkpoint`: workloads about a volume as a whole |
//! | `parents` | what parent pointers cost |
//! | `attributes` | security labels replaced, paths asked for |
//! | `orphans` | files cut a byte at a time, removed while open, and whole trees |
//! | `plot`, `age` | curves as SVG; a volume that grows old |
//! | `overwrite` | random overwrites of a nearly full volume |
//! | `report` | JSON lines, or a table and a histogram |
//! | `index` | `inode-index`, which needs no target: structures in memory |

mod age;
mod args;
mod attributes;
mod driver;
mod error;
mod index;
mod layout;
mod library;
mod meter;
mod orphans;
mod overwrite;
mod parents;
mod plot;
mod report;
mod resources;
mod special;
mod syscalls;
mod workload;

pub use args::{Args, Target, Workload};
pub use error::BenchError;

use error::Result;

/// Runs one workload as the arguments say and prints its results on standard output.
pub fn run(args: Args) -> Result<()> {
    run_into(&args, &mut std::io::stdout().lock())
}

/// The same, printing to `out`.
pub fn run_into(args: &Args, out: &mut dyn std::io::Write) -> Result<()> {
    args.check()?;
    let Some(target) = &args.target else { return index::run(args, out) };
    let mut report = report::Report::new(args, out);
    match (target, args.workload) {
        (Target::Volume(path), Workload::Recover) => special::recover(args, path, &mut report),
        (Target::Volume(path), Workload::Memory) => special::memory(args, path, &mut report),
        (Target::Volume(path), Workload::Checkpoint) => {
            special::checkpoint(args, path, &mut report)
        }
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
        (Target::Volume(path), Workload::Parents) => parents::run(args, path, &mut report),
        (Target::Volume(path), Workload::Overwrite) => overwrite::run(args, path, &mut report),
        (Target::Volume(path), Workload::Setxattr | Workload::Paths) => {
            attributes::run(args, path, &mut report)
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
