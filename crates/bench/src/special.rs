//! `recover`: the time of a recovery.

use crate::args::Args;
use crate::driver::Target;
use crate::error::{BenchError, Result};
use crate::library::{VolumeTarget, open_options};
use crate::meter::Measured;
use crate::report::{Report, Results};
use crate::resources;
use crate::workload::{make_directories, make_files, run_phase, stat_all};
use shoal::raw::OpenOptions;
use std::path::Path;
use std::time::Instant;

/// Makes files that are only in the journal, drops the volume as a crash would, and times opening
/// it. Then looks at every file: a recovery that lost one has no time.
pub(crate) fn recover(args: &Args, path: &Path, report: &mut Report) -> Result<()> {
    let options = OpenOptions { checkpoint_bytes: u64::MAX, ..open_options(args) };
    let target = VolumeTarget::prepare_with(args, path, &options)?;
    make_directories(args, &target)?;
    target.settle()?;
    let before = target.usage();
    make_files(args, &target, 0, false)?;
    // What is not in the journal cannot be replayed: this is the fsync before the crash.
    target.volume().sync().map_err(|e| BenchError::failed("sync of", path.display(), e))?;
    let written = target.usage();
    let (cpu, start) = (resources::cpu_seconds(), Instant::now());
    let target = target.reopen(true, &open_options(args))?;
    let mut measured = Measured::empty();
    measured.seconds = start.elapsed().as_secs_f64();
    measured.cpu_seconds = resources::cpu_seconds() - cpu;
    measured.ops = args.files * args.threads as u64;
    let recovery = target.volume().info().recovery;
    if !recovery.needed {
        return Err(BenchError::new("the volume was recovered without needing to: nothing timed"));
    }
    run_phase(args, &target, 0, |driver, share, meter| stat_all(driver, share, meter, false))?;
    let mut results = Results::new(measured);
    results.grow(before, written);
    results.extra = vec![
        ("recovery_records", recovery.records as f64),
        ("recovery_bytes", recovery.bytes as f64),
        ("recovery_seconds", recovery.seconds),
    ];
    report.whole(&results)?;
    target.finish()
}
