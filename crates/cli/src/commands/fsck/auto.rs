//! `shoal fsck --auto`: what is safe without a question, for boot scripts.
//!
//! | the volume | without `--full` | with it |
//! | --- | --- | --- |
//! | was closed | nothing is read but its roots | checked |
//! | was not closed | its journal is replayed, and it is closed | checked; then the same |
//! | cannot be opened | checked, and repaired if nothing is given up by that | the same |
//!
//! A crash leaves nothing to repair but the journal, so a whole check at each boot would cost much
//! and find nothing; `shoal scrub` looks for what a disk has lost.

use shoal::raw::text::counted;
use shoal::raw::{Code, Error, OpenOptions, RecoveryReport, RepairReport, Volume};

use super::{
    CORRECTED, OPERATIONAL, UNCORRECTED, actions, agree_in_log, end_log, failed, json, print,
    progress,
};
use crate::args::FsckArgs;
use crate::commands::info::json_recovery;
use crate::direct::Direct;
use crate::failure::{OK, Result};
use crate::json::Object;
use crate::output::Out;

/// Checks and repairs without questions; returns the exit status.
pub(super) fn run(args: &FsckArgs, options: &OpenOptions, out: &mut Out) -> Result<u8> {
    Direct::take_ring(&args.volume).map_err(|failure| failure.with_status(OPERATIONAL))?;
    if !args.full {
        let look = OpenOptions { read_only: true, ..options.clone() };
        match Volume::open(&args.volume, &look).and_then(|volume| {
            let info = volume.info();
            volume.close().map(|()| info)
        }) {
            Ok(info) if !info.recovery.needed => {
                quick(args, out, info.inodes, &info.recovery)?;
                return Ok(OK);
            }
            Ok(info) => match replay(args, options) {
                Ok(()) => {
                    quick(args, out, info.inodes, &info.recovery)?;
                    return Ok(OK);
                }
                Err(error) if !needs_check(&error) => return Err(failed(&args.volume, &error)),
                Err(_) => {}
            },
            Err(error) if !needs_check(&error) => return Err(failed(&args.volume, &error)),
            Err(_) => {}
        }
    }
    let (report, declined) = repair(args, options)?;
    if args.json {
        out.json(json(args, &report, args.log.as_deref()))?;
    } else {
        print(out, args, &report, args.log.as_deref())?;
        if report.written && args.log.is_none() {
            actions(out, &report.actions, args.log.as_deref(), usize::MAX)?;
        }
        if declined {
            let path = args.volume.display();
            out.line(&format!(
                "{path}: NOT REPAIRED: a repair would lose data, and needs your consent: run \
                 'shoal fsck --repair {path}'"
            ))?;
        }
    }
    out.flush()?;
    if report.written {
        // Nothing but the journal: that is no problem.
        let done = if report.found.is_empty() { OK } else { CORRECTED };
        return Ok(if report.left.is_empty() { done } else { UNCORRECTED });
    }
    if !report.found.is_empty() || !report.left.is_empty() {
        return Ok(UNCORRECTED);
    }
    if report.recovery.needed {
        replay(args, options).map_err(|error| failed(&args.volume, &error))?;
    }
    Ok(OK)
}

/// Returns whether a volume that cannot be opened may be damaged, rather than in use or missing.
/// One that has lost its superblocks is refused as no volume; the check looks for another one.
fn needs_check(error: &Error) -> bool {
    use Code::{Access, Busy, NoMemory, NotFound, NotPermitted, NotSupported};
    !matches!(error.code(), Access | Busy | NoMemory | NotFound | NotPermitted | NotSupported)
}

/// Replays the journal and closes the volume.
fn replay(args: &FsckArgs, options: &OpenOptions) -> shoal::raw::Result<()> {
    Volume::open(&args.volume, options)?.close()
}

/// Repairs if nothing is given up by that. Returns the report, and whether it was not.
fn repair(args: &FsckArgs, options: &OpenOptions) -> Result<(RepairReport, bool)> {
    let (mut shown, mut declined, mut stopped) = (progress(args), false, None);
    let mut show = |stage: &str, done, total| shown.set(stage, done, total);
    let mut ask = |report: &RepairReport| {
        declined = report.loses();
        let log = args.log.as_deref().filter(|_| !declined);
        match log.map_or(Ok(()), |log| agree_in_log(args, report, log)) {
            Ok(()) => !declined,
            Err(failure) => {
                stopped = Some(failure);
                false
            }
        }
    };
    let report = Volume::repair(&args.volume, options, &mut show, &mut ask);
    shown.finish();
    stopped.map_or(Ok(()), Err)?;
    let report = report.map_err(|error| failed(&args.volume, &error))?;
    if let Some(log) = args.log.as_deref().filter(|_| !declined) {
        end_log(args, &report, log)?;
    }
    Ok((report, declined))
}

/// Prints the verdict on a volume that was not read.
fn quick(args: &FsckArgs, out: &mut Out, inodes: u64, recovery: &RecoveryReport) -> Result<()> {
    let path = args.volume.display();
    if args.json {
        let object = Object::new()
            .put_name("volume", args.volume.as_os_str().as_encoded_bytes())
            .put("clean", true)
            .put("checked", false)
            .put("inodes", inodes)
            .put_object("recovery", json_recovery(recovery));
        out.json(object)?;
    } else if recovery.needed {
        let records = recovery.records;
        out.line(&format!(
            "{path}: was not closed; {} of its journal replayed; {}",
            counted(records, "record"),
            counted(inodes, "inode")
        ))?;
    } else {
        let inodes = counted(inodes, "inode");
        out.line(&format!("{path}: clean, was closed; {inodes}; not read (-f does)"))?;
    }
    out.flush()
}
