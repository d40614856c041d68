//! `shoal shrink`: makes a volume smaller that is not in use.

use std::path::Path;

use shoal::raw::{OpenOptions, ShrinkPlan};

use crate::args::ShrinkArgs;
use crate::direct::{Access, Direct};
use crate::failure::{Failure, OK, Result};
use crate::interrupt;
use crate::output::Out;
use crate::progress::{Progress, eprint_line};
use crate::size::human;
use crate::tags;

/// Makes the volume smaller, and says by how much.
pub(crate) fn run(args: &ShrinkArgs) -> Result<u8> {
    let volume = &tags::resolve(&args.volume)?;
    if volume.is_dir() {
        let reason = "is a directory: unmount the volume, and give its file or device";
        return Err(Failure::usage(volume.display(), reason));
    }
    let wanted = args.size.unwrap_or(0);
    let line = match args.dry_run {
        true => plan(volume, wanted)?,
        false => shrink(volume, wanted)?,
    };
    let mut out = Out::new();
    out.line(&format!("{}: {line}", volume.display()))?;
    out.flush()?;
    Ok(OK)
}

fn plan(volume: &Path, wanted: u64) -> Result<String> {
    let plan = Direct::with(volume, Access::Read, |direct| {
        let plan = ShrinkPlan::of(&direct.volume, wanted);
        plan.map_err(|error| Failure::volume(volume.display(), &error))
    })?;
    let (before, after, moved) = (human(plan.before), human(plan.wanted), human(plan.moved));
    Ok(format!(
        "{before} now, {after} then, at least {moved} to be moved; the least is about {} \
         ({} bytes)",
        human(plan.least),
        plan.least
    ))
}

fn shrink(volume: &Path, wanted: u64) -> Result<String> {
    Direct::take_ring(volume)?;
    interrupt::defer();
    let mut progress = Progress::share_in_lines(&volume.display());
    let options = OpenOptions { notice: eprint_line, ..OpenOptions::default() };
    let mut left = 0;
    let shrunk = shoal::raw::shrink(volume, wanted, &options, &mut |done, total| {
        left = total - done;
        progress.set("moving", done, total);
        interrupt::pending().is_none()
    });
    progress.finish();
    let shrunk = shrunk.map_err(|error| Failure::volume(volume.display(), &error))?;
    let (before, now) = (human(shrunk.before), human(shrunk.now));
    match interrupt::pending() {
        Some(status) if shrunk.now == shrunk.before => {
            let left = human(left);
            let done = format!("{}: {before} as before, {left} left to move", volume.display());
            Err(interrupt::stopped(status, done))
        }
        _ => Ok(format!("{before} before, {now} now")),
    }
}
