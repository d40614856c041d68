//! `memory` and `checkpoint`: the memory of a cached inode, and the time of a checkpoint that has
//! little to write.

use crate::args::Args;
use crate::driver::{Driver, Target};
use crate::error::{BenchError, Result};
use crate::layout;
use crate::library::{VolumeTarget, open_options};
use crate::meter::Measured;
use crate::report::{Report, Results};
use crate::resources;
use crate::workload::{make_directories, make_files, run_phase, stat_all};
use std::path::Path;
use std::time::Instant;

/// Resident bytes for each cached inode: as the files are made, and when a volume just opened has
/// looked at each of them.
///
/// The process is the same, so memory that its allocator kept when the volume was closed counts
/// for the second figure, which is an upper bound therefore.
pub(crate) fn memory(args: &Args, path: &Path, report: &mut Report) -> Result<()> {
    let empty = resources::resident_bytes();
    let target = VolumeTarget::prepare(args, path)?;
    make_directories(args, &target)?;
    make_files(args, &target, 0, false)?;
    target.settle()?;
    let files = (args.files * args.threads as u64) as f64;
    let grown = |now: u64| now.saturating_sub(empty) as f64 / files;
    let created = grown(resources::resident_bytes());
    let cache_created = target.volume().info().cache_bytes as f64 / files;
    let target = target.reopen(false, &open_options(args))?;
    let opened = grown(resources::resident_bytes());
    let shuffle = args.shuffle;
    let measured = run_phase(args, &target, 0, |d, s, m| stat_all(d, s, m, shuffle))?;
    let resident = resources::resident_bytes();
    let mut results = Results::new(measured);
    results.rss_bytes = Some(resident as i64 - empty as i64);
    results.extra = vec![
        ("rss_per_inode_created", created),
        ("rss_per_inode_opened", opened),
        ("rss_per_inode_cached", grown(resident)),
        ("cache_per_inode_created", cache_created),
        ("cache_per_inode_cached", target.volume().info().cache_bytes as f64 / files),
    ];
    report.whole(&results)?;
    target.finish()
}

/// Checkpoints that are timed.
const CHECKPOINTS: usize = 201;

/// Times checkpoints that have one new file to write, with all the others in the cache.
pub(crate) fn checkpoint(args: &Args, path: &Path, report: &mut Report) -> Result<()> {
    let target = VolumeTarget::prepare(args, path)?;
    make_directories(args, &target)?;
    make_files(args, &target, 0, false)?;
    target.settle()?;
    run_phase(args, &target, 0, |driver, share, meter| stat_all(driver, share, meter, false))?;
    let mut driver = target.driver()?;
    let dir = driver.open_dir(&layout::dir_path(0, 0)?)?;
    let (before, cells) = (target.usage(), target.counter("checkpoint_cells"));
    let (cpu, start) = (resources::cpu_seconds(), Instant::now());
    let mut times = Vec::with_capacity(CHECKPOINTS);
    for n in 0..CHECKPOINTS {
        let (volume, name) = (target.volume(), format!("one more {n}"));
        let failed = |e| BenchError::failed("checkpoint of", path.display(), e);
        volume.namespace().create(driver.who(), dir, name.as_bytes(), 0o644).map_err(failed)?;
        volume.sync().map_err(failed)?;
        let start = Instant::now();
        volume.maintenance().checkpoint().map_err(failed)?;
        times.push(start.elapsed().as_secs_f64());
    }
    let mut measured = Measured::empty();
    measured.seconds = start.elapsed().as_secs_f64();
    measured.cpu_seconds = resources::cpu_seconds() - cpu;
    measured.ops = CHECKPOINTS as u64;
    let cells = (target.counter("checkpoint_cells") - cells) as f64 / CHECKPOINTS as f64;
    times.sort_by(f64::total_cmp);
    let mut results = Results::new(measured);
    results.grow(before, target.usage());
    results.extra = vec![
        ("checkpoint_seconds_median", times[CHECKPOINTS / 2]),
        ("checkpoint_seconds_max", times[CHECKPOINTS - 1]),
        ("cells_per_checkpoint", cells),
        ("cached_files", (args.files * args.threads as u64) as f64),
        ("cache_bytes", target.volume().info().cache_bytes as f64),
    ];
    report.whole(&results)?;
    drop(driver);
    target.finish()
}
