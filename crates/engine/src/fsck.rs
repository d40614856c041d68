//! Checking and repairing a volume that is not in use: `shoal fsck`, `shoal fsck --repair`.
//!
//! 1. *Look*: the check, as of any volume. A clean volume is left alone.
//! 2. *Salvage* (`shoal_txn::salvage`): everything readable is collected in memory.
//! 3. *Mend*: the passes of `passes.rs`, in memory.
//! 4. *Ask*. Nothing has been written so far.
//! 5. *Publish*: one checkpoint writes everything. After a crash the volume is as it was before, or
//!    repaired if the checkpoint was durable.
//! 6. *Finish* the changes that need space, with ordinary transactions; free the orphans; check
//!    again.

use crate::identity::uuid;
use crate::passes;
use crate::reap::Reaper;
use crate::relief::FromBelow;
use crate::repair::memory;
use crate::repair::{Action, Mending, Name, Passed, RepairReport};
use crate::state::State;
use crate::storage;
use crate::text::{counted, minutes};
use crate::types::{CheckReport, OpenOptions, Problem, Progress, RecoveryReport};
use crate::volume::{Volume, store_options};
use shoal_base::{Code, Error, Result};
use shoal_device::{Device, OpenMode};
use shoal_format::superblock::{Superblock, backup_superblock_at};
use shoal_txn::{Held, LostKind, Salvaged};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// Rules about file contents: the damage is reported once, and nothing can restore the contents.
const OF_CONTENTS: [&str; 7] = [
    "data-checksum",
    "data-header",
    "data-unreadable",
    "value-checksum",
    "value-header",
    "value-unreadable",
    "extents-shared",
];

/// Callback with the problems and planned repairs. Returns whether to continue.
pub(crate) type Ask<'a> = &'a mut dyn FnMut(&RepairReport) -> bool;

impl Volume {
    /// Checks the volume in a file or on a block device that is not in use, and repairs it.
    pub fn repair(
        path: &Path,
        options: &OpenOptions,
        progress: Progress<'_>,
        ask: Ask<'_>,
    ) -> Result<RepairReport> {
        let device = storage::open(path, OpenMode::ReadWrite, options)?;
        let report = Volume::repair_on(device.clone(), options, progress, ask)?;
        device.close()?;
        Ok(report)
    }

    /// As [`Volume::repair`], on a device.
    pub fn repair_on(
        device: Arc<dyn Device>,
        options: &OpenOptions,
        progress: Progress<'_>,
        ask: Ask<'_>,
    ) -> Result<RepairReport> {
        let options = OpenOptions { background: false, read_only: true, ..options.clone() };
        let Looked { mut report, unfinished, backups } = look(&device, &options, progress)?;
        if report.found.is_empty() && !unfinished {
            return Ok(report);
        }
        memory::allow(needed(&report.checked, &options), &options)?;
        let start = Instant::now();
        let Some(mended) = attempt(&device, &options, &backups, &mut report, progress)? else {
            return Ok(report);
        };
        report.seconds = start.elapsed().as_secs_f64();
        let beyond = |p: &Problem| OF_CONTENTS.contains(&p.rule);
        if !unfinished && report.actions.is_empty() && report.found.iter().all(beyond) {
            report.left = report.found.clone();
            return Ok(report);
        }
        if !ask(&report) {
            return Ok(report);
        }
        let start = Instant::now();
        let Mended { mut state, held, passed } = mended;
        publish(&mut state, &held, &passed)?;
        report.written = true;
        let volume = Volume::checked(state);
        volume.changes().forget_marks()?;
        volume.forget_copies()?;
        volume.finish_repair(passed.later, &mut report)?;
        report.seconds += start.elapsed().as_secs_f64();
        let after = volume.check_showing("checking again:", progress)?;
        report.left = after.problems.clone();
        report.checked = after;
        volume.close()?;
        Ok(report)
    }

    /// Checks the volume in a file or on a block device that is not in use, and reports what a
    /// repair would do. Writes nothing.
    pub fn inspect(
        path: &Path,
        options: &OpenOptions,
        progress: Progress<'_>,
    ) -> Result<RepairReport> {
        let device = storage::open(path, OpenMode::ReadOnly, options)?;
        Volume::inspect_on(&device, options, progress)
    }

    /// As [`Volume::inspect`], on a device.
    pub fn inspect_on(
        device: &Arc<dyn Device>,
        options: &OpenOptions,
        progress: Progress<'_>,
    ) -> Result<RepairReport> {
        let options = OpenOptions { background: false, read_only: true, ..options.clone() };
        let Looked { mut report, backups, .. } = look(device, &options, progress)?;
        if report.found.is_empty() {
            return Ok(report);
        }
        let known = needed(&report.checked, &options);
        let tried = memory::allow(known, &options)
            .and_then(|()| attempt(device, &options, &backups, &mut report, progress).map(|_| ()));
        match tried {
            Err(refused @ Error::Refused { code: Code::NoMemory, .. }) => {
                report.unmended = Some(refused.to_string());
                Ok(report)
            }
            other => other.map(|()| report),
        }
    }

    /// Makes the changes that need space or the journal.
    fn finish_repair(&self, later: Vec<Name>, report: &mut RepairReport) -> Result<()> {
        for name in later {
            Mending(&self.state).write_pointer(&name, true)?;
        }
        let reaped = Reaper(&self.state).adopt_orphans()?;
        while Reaper(&self.state).reap_orphan()? {}
        if reaped > 0 {
            let message = format!("{reaped} unlinked files freed");
            report.actions.push(Action { pass: "orphans", message, loses: false });
        }
        Ok(())
    }
}

/// Estimates the memory in bytes that a repair needs, from a check, which may have been impossible.
fn needed(checked: &CheckReport, options: &OpenOptions) -> u64 {
    memory::needed(checked, checked.inodes, options.cache_bytes)
}

/// Result of the check of a volume.
struct Looked {
    report: RepairReport,
    /// It was not closed, or has orphans: a repair completes the same changes as an open.
    unfinished: bool,
    /// If no copy of the superblock is left: the backup superblocks found, newest first.
    backups: Vec<Superblock>,
}

/// Checks a volume that is opened as by any reader. Damage that prevents this is reported as a
/// problem.
fn look(device: &Arc<dyn Device>, options: &OpenOptions, progress: Progress<'_>) -> Result<Looked> {
    let checked = Volume::open_on(device.clone(), options).and_then(|volume| {
        let report = volume.check_showing("checking", progress)?;
        let info = volume.info();
        Ok((report, info.recovery, info.orphans))
    });
    let mut backups = Vec::new();
    let (checked, recovery, orphans) = match checked {
        Ok(checked) => checked,
        Err(error) => {
            if has_no_superblock(&**device)? {
                if shoal_txn::unfinished_copy(&**device)?.is_some() && !options.force {
                    let message = format!(
                        "{}: is an unfinished copy of a volume: give the same 'shoal copy' again, \
                         or, if its source is lost, repair what is there by --force",
                        device.describe()
                    );
                    return Err(Error::refused(Code::Invalid, message));
                }
                let mut show = |done, total| progress("looking for a superblock", done, total);
                backups = shoal_txn::find_superblocks(&**device, &mut show)?;
            }
            if !error.is_damage() && backups.is_empty() {
                return Err(error);
            }
            let problem = Problem { rule: "volume-unreadable", message: error.to_string() };
            let report = CheckReport { problems: vec![problem], ..CheckReport::default() };
            (report, RecoveryReport::default(), 0)
        }
    };
    let unfinished = recovery.needed || orphans > 0 || recovery.intents > 0;
    let found = checked.problems.clone();
    let report = RepairReport { found, checked, recovery, ..RepairReport::default() };
    Ok(Looked { report, unfinished, backups })
}

/// Returns whether no copy of the superblock is readable.
fn has_no_superblock(device: &dyn Device) -> Result<bool> {
    let copies = shoal_txn::superblock_copies(device)?;
    Ok(copies.iter().all(|copy| copy.as_ref().is_err_and(Error::is_damage)))
}

/// A volume repaired in memory.
struct Mended {
    state: State,
    held: Held,
    passed: Passed,
}

/// Salvages and repairs. Returns `None` if too much is lost; the report has the reason.
fn attempt(
    device: &Arc<dyn Device>,
    options: &OpenOptions,
    backups: &[Superblock],
    report: &mut RepairReport,
    progress: Progress<'_>,
) -> Result<Option<Mended>> {
    let salvage =
        |sb: &Superblock| shoal_txn::salvage(device.clone(), *sb, store_options(sb, options));
    let mut mend = || -> Result<Mended> {
        let salvaged = match backups {
            [] => salvage(&shoal_txn::read_superblock(&**device)?)?,
            backups => salvage_by_backup(backups, &salvage, report)?,
        };
        let Salvaged { store, recovered, losses, held } = salvaged;
        if recovered.needed && recovered.records > 0 {
            let message =
                format!("{} of the journal replayed", counted(recovered.records, "record"));
            report.actions.push(Action { pass: "journal", message, loses: false });
        }
        let state = State::new(store, options, &FromBelow);
        // The check, which would have counted them, was not possible.
        if report.checked.inodes == 0 {
            let counted =
                CheckReport { inodes: Mending(&state).inodes_at_most(), ..CheckReport::default() };
            memory::allow(needed(&counted, options), options)?;
        }
        let passed = passes::mend(&state, &losses, report, progress)?;
        report.inodes = state.store.roots().inodes();
        Ok(Mended { state, held, passed })
    };
    match mend() {
        Ok(mended) => Ok(Some(mended)),
        Err(error) if error.is_damage() => {
            let message = format!("{error}: restore the volume from a backup");
            report.found.push(Problem { rule: "beyond-repair", message });
            Ok(None)
        }
        Err(e) => Err(e),
    }
}

/// Salvages the volume of a backup superblock, normally the newest. If that volume is incomplete,
/// the one before is used, provided that it is complete and its journal reaches the newest: a crash
/// during a checkpoint leaves the backup superblock of an incomplete image.
fn salvage_by_backup(
    backups: &[Superblock],
    salvage: &dyn Fn(&Superblock) -> Result<Salvaged>,
    report: &mut RepairReport,
) -> Result<Salvaged> {
    let is_whole = |it: &Salvaged| {
        it.losses
            .iter()
            .all(|loss| matches!(loss.kind, LostKind::Superblock | LostKind::Checkpoint))
    };
    let first = &backups[0];
    let before = backups.iter().find(|sb| sb.sequence < first.sequence);
    let newest = salvage(first)?;
    let wanted = newest.store.checkpoints().newest().checkpoint.lsn;
    let older = match before.filter(|_| !is_whole(&newest)) {
        Some(before) => Some((before, salvage(before)?)),
        None => None,
    };
    let older =
        older.filter(|(_, it)| is_whole(it) && it.store.checkpoints().newest_lsn() >= wanted);
    let (superblock, chosen) = older.unwrap_or((first, newest));
    let message = format!(
        "both copies of the superblock are lost; the backup superblock at byte {} is of volume {}, \
         made {} UTC, checkpoint {}; make sure that this is the intended volume",
        backup_superblock_at(superblock.checkpoint),
        uuid(&superblock.id),
        minutes(superblock.created),
        chosen.store.checkpoints().newest().checkpoint.epoch,
    );
    report.actions.push(Action { pass: "superblock", message, loses: true });
    Ok(chosen)
}

/// Writes one checkpoint with everything.
fn publish(state: &mut State, held: &Held, passed: &Passed) -> Result<()> {
    let (live, prealloc) = &passed.live;
    state.store.promises().set(*prealloc);
    state.options.read_only = false;
    state.store.publish_salvaged(held, live)
}
