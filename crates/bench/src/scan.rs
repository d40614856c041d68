//! Calls that look at all inodes of a volume.

use crate::args::{Args, Workload};
use crate::driver::Target;
use crate::error::{BenchError, Result};
use crate::library::VolumeTarget;
use crate::meter::Measured;
use crate::report::{Report, Results};
use crate::resources;
use crate::workload::{make_directories, make_files, run_phase, stat_all};
use shoal::raw::{Caller, Ino, InodeScan, TotalsScan};
use std::hint::black_box;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Makes the files unless they are there, scans once without timing, then --rounds times.
pub(crate) fn run(args: &Args, path: &Path, report: &mut Report<'_>) -> Result<()> {
    let target = VolumeTarget::prepare(args, path)?;
    if target.reused() {
        run_phase(args, &target, 0, |driver, share, meter| stat_all(driver, share, meter, false))?;
    } else {
        make_directories(args, &target)?;
        make_files(args, &target, 0, false)?;
    }
    target.settle()?;
    scan(args, &target)?;
    let mut whole = Results::new(Measured::empty());
    for round in 0..args.rounds {
        let (cpu, start) = (resources::cpu_seconds(), Instant::now());
        let inodes = scan(args, &target)?;
        let mut measured = Measured::empty();
        measured.seconds = start.elapsed().as_secs_f64();
        measured.cpu_seconds = resources::cpu_seconds() - cpu;
        measured.ops = inodes;
        let results = Results::new(measured);
        if args.rounds > 1 {
            report.round(round, &results)?;
        }
        whole.add(&results);
    }
    report.whole(&whole)?;
    target.finish()
}

/// Scans the volume; returns the number of inodes.
fn scan(args: &Args, target: &VolumeTarget) -> Result<u64> {
    let (bulk, who) = (target.volume().bulk(), Caller::root());
    let failed = |e| BenchError::failed("scanning", "the volume", e);
    let found = if args.workload == Workload::Totals {
        let scan = TotalsScan { threads: args.threads, ..TotalsScan::of(Ino::ROOT) };
        let totals = bulk.totals(&who, scan).map_err(failed)?;
        totals.files + totals.dirs + totals.others
    } else {
        let found = AtomicU64::new(0);
        let scan = InodeScan { after: Ino(0), threads: args.threads };
        let add = |batch: &[_]| {
            found.fetch_add(black_box(batch).len() as u64, Ordering::Relaxed);
            ControlFlow::Continue(())
        };
        bulk.bulkstat(&who, scan, |attr| attr, add).map_err(failed)?;
        found.into_inner()
    };
    let expected = args.files * args.threads as u64;
    match found >= expected {
        true => Ok(found),
        false => Err(BenchError::new(format!("{found} of {expected} inodes were found"))),
    }
}
