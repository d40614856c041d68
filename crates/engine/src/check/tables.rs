//! Structures that exist once per volume: the superblock copies, the checkpoint record, usage and
//! root pages, orphan blocks, open intents, the journal. For check and scrub, read from the device.

use super::Check;
use super::scrub::ScrubReport;
use crate::check::Inspection;
use shoal_base::{Lsn, Result};
use shoal_format::Ptr;
use shoal_format::checkpoint::Checkpoint;
use shoal_format::superblock::{Superblock, backup_copy_of};
use shoal_format::usage::Expected;
use shoal_journal::JournalPos;
use shoal_txn::{Image, ObjectKind};

/// Number of reads before a problem is reported: the object may just be being written.
const TRIES: usize = 4;
/// Rule for damage of the usage table.
const USAGE: &str = "usage-table";

impl Check<'_> {
    pub(crate) fn volume(&mut self) -> Result<()> {
        for damage in self.volume.0.store.orphans().damage() {
            self.problem("orphan-block", damage.clone());
        }
        let mut report = ScrubReport::default();
        self.volume.tables(&self.superblock, self.image, &mut report)?;
        // Orphan blocks that were unreadable at open have been reported.
        for problem in report.problems {
            if !self.sum.report.problems.iter().any(|known| known.message == problem.message) {
                self.problem(problem.rule, problem.message);
            }
        }
        Ok(())
    }
}

impl Inspection<'_> {
    pub(crate) fn tables(
        self,
        superblock: &Superblock,
        image: &Image,
        report: &mut ScrubReport,
    ) -> Result<()> {
        let (store, checkpoint, at) = (&self.0.store, &image.checkpoint, image.at);
        for problem in settled(|| self.superblocks(superblock, at))? {
            report.problem("superblock-copy", problem);
        }
        report.block(3 * 4096);
        let mut objects = vec![(backup_copy_of(at).unwrap_or(Ptr::NULL), None)];
        image.for_each_object(&mut |kind, ptr| objects.push((ptr, Some(kind))));
        let (geometry, volume, epoch) = (store.geometry(), store.volume(), checkpoint.epoch);
        let of = Expected { geometry, volume, epoch };
        for (ptr, kind) in objects.into_iter().filter(|(ptr, _)| !ptr.is_null()) {
            report.block(ptr.len);
            let what = kind.map_or("checkpoint's second copy".to_owned(), |kind| {
                kind.describe(store.geometry())
            });
            let read = shoal_txn::read_object(store.device(), store.geometry(), ptr, &what);
            let read = read.and_then(|raw| match kind {
                Some(kind) => kind.verify(&raw, ptr, &of),
                None => Ok(()),
            });
            let rule = rule_of(kind);
            let read = if rule == USAGE { read.map_err(shoal_txn::with_remedy) } else { read };
            report.damage(rule, read)?;
        }
        for problem in settled(|| self.journal_problem(superblock, checkpoint, report))? {
            report.problem("journal", problem);
        }
        Ok(())
    }

    /// Returns the problems of the superblock copies and of the backup superblock.
    fn superblocks(self, superblock: &Superblock, at: Ptr) -> Result<Vec<String>> {
        let device = self.0.store.device();
        let mut wrong = Vec::new();
        for copy in shoal_txn::superblock_copies(device)? {
            match copy {
                Ok(sb) if sb.id == superblock.id => {}
                Ok(_) => wrong.push("a copy of the superblock is of another volume".to_owned()),
                Err(e) => wrong.push(e.to_string()),
            }
        }
        let spare = shoal_txn::backup_superblock(device, at)?;
        wrong.extend(spare.err().map(|e| e.to_string()));
        Ok(wrong)
    }

    /// Returns the problems of the journal since the checkpoint: all durable records must be
    /// readable.
    fn journal_problem(
        self,
        superblock: &Superblock,
        checkpoint: &Checkpoint,
        report: &mut ScrubReport,
    ) -> Result<Vec<String>> {
        let store = &self.0.store;
        if superblock.clean {
            return Ok(Vec::new());
        }
        let durable = store.journal().map_or(Lsn(0), |journal| journal.durable_lsn());
        let start = JournalPos { addr: checkpoint.journal, lsn: checkpoint.lsn };
        let scanned = shoal_journal::scan(
            store.device(),
            store.geometry(),
            store.volume(),
            superblock.incarnation,
            start,
            |_, _| Ok(()),
        );
        match scanned {
            Ok(end) => {
                report.bytes += end.bytes;
                let (addr, lsn) = (end.end.addr.0, end.end.lsn);
                let short = (lsn < durable).then(|| {
                    format!(
                        "corrupt journal at byte {addr}: no valid batch for LSN {}, durable up to \
                         {}; memory still has it: unmounting writes it anew",
                        lsn.0, durable.0
                    )
                });
                Ok(short.into_iter().collect())
            }
            Err(e) if e.is_damage() => Ok(vec![e.to_string()]),
            Err(e) => Err(e),
        }
    }
}

/// Returns the rule for a damaged object.
fn rule_of(kind: Option<ObjectKind>) -> &'static str {
    match kind {
        Some(ObjectKind::OrphanBlock) => "orphan-block",
        Some(ObjectKind::OrphanList) => "orphan-list",
        Some(ObjectKind::RootPage | ObjectKind::RootPageCopy) => "root-page",
        Some(ObjectKind::Usage | ObjectKind::UsageIndex(_) | ObjectKind::UsagePage(_)) => USAGE,
        Some(ObjectKind::Record | ObjectKind::Intents) | None => "table",
    }
}

/// Calls `look` until it returns no problems, or the same twice in a row, at most [`TRIES`] times:
/// a volume in use may be writing the object.
fn settled(mut look: impl FnMut() -> Result<Vec<String>>) -> Result<Vec<String>> {
    let mut before = look()?;
    for _ in 1..TRIES {
        if before.is_empty() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
        let now = look()?;
        if now == before {
            break;
        }
        before = now;
    }
    Ok(before)
}
