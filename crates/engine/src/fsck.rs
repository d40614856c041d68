//! Checking and repairing a volume that nobody uses: `shoal fsck`, `shoal fsck --repair`.
//!
//! 1. *Look*: the check, as of any volume. What is clean is left alone.
//! 2. *Salvage* (`shoal_txn::salvage`): everything that can be read, together in memory.
//! 3. *Mend*: the passes of `passes.rs`, in memory.
//! 4. *Ask*. Nothing has been written so far.
//! 5. *Publish*: one checkpoint has it all. A crash before it is durable leaves the volume as it
//!    was; after it, mended.
//! 6. *Finish* what needs space, by ordinary transactions; free the orphans; check again.

use crate::open::store_options;
use crate::passes;
use crate::repair::memory;
use crate::repair::{Action, Name, Passed, RepairReport};
use crate::types::{CheckReport, OpenOptions, Problem, Progress, RecoveryReport};
use crate::volume::{Inner, Volume};
use shoal_base::sync::Mutex;
use shoal_base::{Code, Error, Result};
use shoal_device::{Device, FileDevice, OpenMode};
use shoal_format::superblock::{Superblock, spare_of};
use shoal_txn::{Held, Lost, Salvaged};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Rules that contents break: they are recorded once, and nothing brings them back.
const OF_CONTENTS: [&str; 7] = [
    "data-checksum",
    "data-header",
    "data-unreadable",
    "value-checksum",
    "value-header",
    "value-unreadable",
    "extents-shared",
];

/// Called with what was found and what would be done: whether to go on.
pub type Ask<'a> = &'a mut dyn FnMut(&RepairReport) -> bool;

impl Volume {
    /// Checks the volume in a file or on a block device that nobody uses, and repairs it.
    pub fn repair(
        path: &Path,
        options: &OpenOptions,
        progress: Progress<'_>,
        ask: Ask<'_>,
    ) -> Result<RepairReport> {
        let device = FileDevice::open_with(path, OpenMode::ReadWrite, &options.claim())?;
        Volume::repair_on(Arc::new(device), options, progress, ask)
    }

    /// The same on a device.
    pub fn repair_on(
        device: Arc<dyn Device>,
        options: &OpenOptions,
        progress: Progress<'_>,
        ask: Ask<'_>,
    ) -> Result<RepairReport> {
        let options = OpenOptions { background: false, read_only: true, ..options.clone() };
        let Looked { mut report, unfinished, spares } = look(&device, &options, progress)?;
        if report.found.is_empty() && !unfinished {
            return Ok(report);
        }
        memory::allow(needed(&report.checked, &options), &options)?;
        let start = Instant::now();
        let Some(mended) = attempt(&device, &options, &spares, &mut report, progress)? else {
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
        let Mended { mut inner, held, passed } = mended;
        publish(&mut inner, &held, &passed)?;
        report.written = true;
        let volume = Volume { inner: Arc::new(inner), background: Mutex::new(None) };
        volume.finish_repair(passed.later, &mut report)?;
        report.seconds += start.elapsed().as_secs_f64();
        let after = volume.check_showing("checking again:", progress)?;
        report.left = after.problems.clone();
        report.checked = after;
        volume.close()?;
        Ok(report)
    }

    /// Checks the volume in a file or on a block device that nobody uses, and says what a repair
    /// would do. Writes nothing.
    pub fn inspect(
        path: &Path,
        options: &OpenOptions,
        progress: Progress<'_>,
    ) -> Result<RepairReport> {
        let device = FileDevice::open_with(path, OpenMode::ReadOnly, &options.claim())?;
        let device: Arc<dyn Device> = Arc::new(device);
        Volume::inspect_on(&device, options, progress)
    }

    /// The same on a device.
    pub fn inspect_on(
        device: &Arc<dyn Device>,
        options: &OpenOptions,
        progress: Progress<'_>,
    ) -> Result<RepairReport> {
        let options = OpenOptions { background: false, read_only: true, ..options.clone() };
        let Looked { mut report, spares, .. } = look(device, &options, progress)?;
        if report.found.is_empty() {
            return Ok(report);
        }
        let known = needed(&report.checked, &options);
        let tried = memory::allow(known, &options)
            .and_then(|()| attempt(device, &options, &spares, &mut report, progress).map(|_| ()));
        match tried {
            Err(refused @ Error::Refused { code: Code::NoMemory, .. }) => {
                report.unmended = Some(refused.to_string());
                Ok(report)
            }
            other => other.map(|()| report),
        }
    }

    /// What needs space or the journal.
    fn finish_repair(&self, later: Vec<Name>, report: &mut RepairReport) -> Result<()> {
        for name in later {
            self.write_pointer(&name, true)?;
        }
        let reaped = self.adopt_orphans()?;
        while self.reap_orphan()? {}
        if reaped > 0 {
            let message = format!("{reaped} files without a name freed");
            report.actions.push(Action { pass: "orphans", message });
        }
        Ok(())
    }
}

/// Bytes that a repair takes, as far as a check can tell; it may not have been possible.
fn needed(checked: &CheckReport, options: &OpenOptions) -> u64 {
    memory::needed(checked, checked.inodes, options.cache_bytes)
}

/// What the check of a volume found.
struct Looked {
    report: RepairReport,
    /// It was not closed, or has orphans: a repair completes what opening it would.
    unfinished: bool,
    /// No copy of the superblock is left: what was found in its stead, newest first.
    spares: Vec<Superblock>,
}

/// The check of a volume opened as any reader would. Damage that keeps it from being opened is a
/// problem found.
fn look(device: &Arc<dyn Device>, options: &OpenOptions, progress: Progress<'_>) -> Result<Looked> {
    let checked = Volume::open_on(device.clone(), options).and_then(|volume| {
        let report = volume.check_showing("checking", progress)?;
        let info = volume.info();
        Ok((report, info.recovery, info.orphans))
    });
    let mut spares = Vec::new();
    let (checked, recovery, orphans) = match checked {
        Ok(checked) => checked,
        Err(error) => {
            if is_beheaded(&**device)? {
                let mut show = |done, total| progress("looking for a superblock", done, total);
                spares = shoal_txn::find_superblocks(&**device, &mut show)?;
            }
            if !error.is_damage() && spares.is_empty() {
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
    Ok(Looked { report, unfinished, spares })
}

/// Whether no copy of the superblock says anything.
fn is_beheaded(device: &dyn Device) -> Result<bool> {
    let copies = shoal_txn::superblock_copies(device)?;
    Ok(copies.iter().all(|copy| copy.as_ref().is_err_and(Error::is_damage)))
}

/// A volume mended in memory.
struct Mended {
    inner: Inner,
    held: Held,
    passed: Passed,
}

/// Salvages and mends. `None`: too much is lost; the report says what.
fn attempt(
    device: &Arc<dyn Device>,
    options: &OpenOptions,
    spares: &[Superblock],
    report: &mut RepairReport,
    progress: Progress<'_>,
) -> Result<Option<Mended>> {
    let salvage =
        |sb: &Superblock| shoal_txn::salvage(device.clone(), *sb, store_options(sb, options));
    let mut mend = || -> Result<Mended> {
        let salvaged = match spares {
            [] => salvage(&shoal_txn::read_superblock(&**device)?)?,
            spares => salvage_by_spare(spares, &salvage, report)?,
        };
        let Salvaged { store, recovered, losses, held } = salvaged;
        if recovered.needed && recovered.records > 0 {
            let message = format!("{} records of the journal replayed", recovered.records);
            report.actions.push(Action { pass: "journal", message });
        }
        let inner = Inner::new(store, options);
        // The check that has counted them could not be made.
        if report.checked.inodes == 0 {
            let counted = CheckReport { inodes: inner.inodes_at_most(), ..CheckReport::default() };
            memory::allow(needed(&counted, options), options)?;
        }
        let passed = passes::mend(&inner, &losses, report, progress)?;
        report.inodes = inner.store.inodes();
        Ok(Mended { inner, held, passed })
    };
    match mend() {
        Ok(mended) => Ok(Some(mended)),
        Err(error) if error.is_damage() => {
            let message = format!("{error}: restore the volume from a copy");
            report.found.push(Problem { rule: "beyond-repair", message });
            Ok(None)
        }
        Err(e) => Err(e),
    }
}

/// The volume of a spare superblock: the newest; but if that is not whole, and the one before it is
/// and its journal leads to the newest, that one: a crash in the midst of a checkpoint leaves the
/// spare of an image of which not everything was written.
fn salvage_by_spare(
    spares: &[Superblock],
    salvage: &dyn Fn(&Superblock) -> Result<Salvaged>,
    report: &mut RepairReport,
) -> Result<Salvaged> {
    let is_whole = |it: &Salvaged| {
        it.losses.iter().all(|loss| matches!(loss.what, Lost::Superblock | Lost::Checkpoint))
    };
    let first = &spares[0];
    let before = spares.iter().find(|sb| sb.sequence < first.sequence);
    let newest = salvage(first)?;
    let wanted = newest.store.newest_checkpoint().checkpoint.lsn;
    let older = match before.filter(|_| !is_whole(&newest)) {
        Some(before) => Some((before, salvage(before)?)),
        None => None,
    };
    let older = older.filter(|(_, it)| is_whole(it) && it.store.checkpoint_lsn() >= wanted);
    let (superblock, chosen) = older.unwrap_or((first, newest));
    let message = format!(
        "both copies of the superblock are lost; the spare one at byte {} says: volume {}, made {} \
         s after 1970, checkpoint {}; make sure that this is the volume you mean",
        spare_of(superblock.checkpoint),
        superblock.id.iter().map(|byte| format!("{byte:02x}")).collect::<String>(),
        superblock.created,
        chosen.store.newest_checkpoint().checkpoint.epoch,
    );
    report.actions.push(Action { pass: "superblock", message });
    Ok(chosen)
}

/// One checkpoint with everything.
fn publish(inner: &mut Inner, held: &Held, passed: &Passed) -> Result<()> {
    let (live, prealloc) = &passed.live;
    inner.store.prealloc.store(*prealloc as i64, Ordering::Relaxed);
    inner.options.read_only = false;
    inner.store.publish_salvaged(held, live)
}
