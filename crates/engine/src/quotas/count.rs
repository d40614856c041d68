//! The use of quotas at open: stored by the close before, or counted.
//!
//! | the session before | use | numbers in inodes |
//! | --- | --- | --- |
//! | closed the volume | as stored | right |
//! | ended in a crash | counted, by reading all inode blocks | right: each change of a number is in the journal, as the inode itself |
//! | was of an older Shoal, or a repair | counted | looked at, by a walk of all directories, and set right |
//!
//! How the last session is known: the table has the number of the checkpoint in which its uses are
//! right, and the incarnation of the journal of the last session that kept the numbers right. Each
//! session that writes has an incarnation of its own, one higher than the one before.
//!
//! Both is done in the background (without threads: by the open). Until then the uses are lower
//! bounds, and shown as such; limits hold for what is counted. How inodes that change meanwhile are
//! counted exactly once: `shoal_itable`, `projects.rs`.

use super::Quotas;
use crate::state::QuotaPart as Part;
use shoal_base::limits::INODE_BLOCKS_MAX;
use shoal_base::planted::{self, Defect};
use shoal_base::{Epoch, Error, Ino, Result, RootId};
use shoal_format::checkpoint::RootState;
use shoal_format::quota::{NAME, State, Table};
use shoal_itable::ProjectUse;
use std::sync::atomic::Ordering;

/// Attempts to store the use in one epoch.
const TRIES: usize = 3;

impl Quotas<'_> {
    /// At open, before the volume is used: reads the table. `epoch` is the number of the checkpoint
    /// with which the open began, `crashed` whether its journal has been replayed.
    pub(crate) fn resume(self, epoch: Epoch, crashed: bool) {
        let mut table = match self.stored() {
            Ok(Some(table)) => table,
            Ok(None) => return,
            Err(error) => {
                tracing::warn!(%error, "quotas are not kept");
                return;
            }
        };
        let projects = self.0.store.roots().projects();
        for row in &table.rows {
            let dir = if row.state == State::Removed { Ino(0) } else { row.dir };
            projects.declare(row.project, dir, row.inodes_max, row.bytes_max);
        }
        if !crashed && table.epoch == epoch || planted::is(Defect::QuotaBelieved) {
            for row in &table.rows {
                let (inodes, bytes) = (row.inodes, row.bytes);
                projects.set_used(row.project, ProjectUse { inodes, bytes });
            }
        } else {
            projects.forget();
        }
        let own = u32::from(self.0.store.journal().is_ok());
        let is_known = table.incarnation.wrapping_add(own) == self.incarnation();
        let is_whole = table.rows.iter().all(|row| row.state == State::Ready);
        self.0.quotas.is_tag_due.store(!is_known || !is_whole, Ordering::Release);
        table.epoch = 0;
        *self.0.quotas.table.lock() = table;
    }

    /// Begins a session that may write: notes that it keeps the numbers right. Determines numbers
    /// and uses if that is to be done `now`.
    pub(crate) fn begin(self, now: bool) {
        let table = self.0.quotas.table.lock().clone();
        if table.rows.is_empty() || self.0.store.writable().is_err() {
            return;
        }
        // Otherwise the numbers are looked at by the next session.
        if !self.0.quotas.is_tag_due.load(Ordering::Acquire)
            && let Err(error) = self.put(table)
        {
            tracing::warn!(%error, "the session is not noted in the table of quotas");
        }
        if now {
            self.complete(&|| false);
        }
    }

    fn stored(self) -> Result<Option<Table>> {
        let Some(value) = self.attributes().hidden(Ino::ROOT, NAME)? else { return Ok(None) };
        let table = Table::decode(&value).ok_or_else(|| {
            let object = "attribute 'shoal.quota' of the volume's top directory";
            Error::corrupt(object, None, "not a table of quotas")
        })?;
        Ok(Some(table))
    }

    pub(super) fn incarnation(self) -> u32 {
        self.0.store.checkpoints().superblock().incarnation
    }

    /// Returns whether uses or numbers are still to be determined.
    pub(crate) fn is_incomplete(self) -> bool {
        let is_due = self.0.quotas.is_tag_due.load(Ordering::Acquire);
        self.0.store.writable().is_ok() && (is_due || !self.0.store.roots().projects().is_counted())
    }

    /// Counts the uses now if they are not known, also on a volume that is opened read-only.
    ///
    /// # Errors
    /// Damage, errors of the device.
    pub fn settle(self) -> Result<()> {
        self.count(&|| false)
    }

    /// Determines numbers and uses, until `stop` returns `true`. After an error they stay lower
    /// bounds until the next open.
    pub(crate) fn complete(self, stop: &dyn Fn() -> bool) {
        if let Err(error) = self.try_complete(stop) {
            tracing::warn!(%error, "the use of quotas cannot be counted");
        }
    }

    fn try_complete(self, stop: &dyn Fn() -> bool) -> Result<()> {
        if self.0.quotas.is_tag_due.load(Ordering::Acquire) {
            let _one = self.0.quotas.tagging.lock();
            if !self.tag_all(stop)? {
                return Ok(());
            }
            let table = self.0.quotas.table.lock().clone();
            self.put(table)?;
        }
        self.count(stop)?;
        let _one = self.0.quotas.tagging.lock();
        self.prune();
        Ok(())
    }

    /// Counts all inodes, from where it was stopped or failed. The blocks that a subvolume has at
    /// the beginning are visited while other calls go on; those that it gets meanwhile at the end,
    /// while no transaction runs: so no block is used for the first time when it is visited.
    fn count(self, stop: &dyn Fn() -> bool) -> Result<()> {
        let projects = self.0.store.roots().projects();
        let checkpoints = self.0.store.checkpoints();
        let mut part = self.0.quotas.counting.lock();
        if projects.is_counted() {
            return Ok(());
        }
        if part.is_none() {
            *part = checkpoints.quiesced(|_| self.part(RootId(0)));
        }
        while let Some((id, blocks)) = &mut *part {
            let Some(root) = self.0.store.roots().get(*id) else { break };
            if !projects.count_blocks(&root.table, blocks, stop)? {
                return Ok(());
            }
            let next = checkpoints.quiesced(|_| -> Result<Part> {
                blocks.end = root.next_block();
                projects.count_blocks(&root.table, blocks, &|| false)?;
                let next = id.0.checked_add(1).and_then(|next| self.part(RootId(next)));
                projects.counted(next.as_ref().map(|(id, _)| Ino::new(*id, 0)));
                Ok(next)
            })?;
            *part = next;
        }
        Ok(())
    }

    /// Returns the blocks of the first subvolume in use from this one on.
    fn part(self, from: RootId) -> Part {
        let mut roots = self.0.store.roots().iter().skip(usize::from(from.0));
        let root = roots.find(|root| root.state() != RootState::Vacant)?;
        Some((root.id, 0..root.next_block().min(INODE_BLOCKS_MAX)))
    }

    /// Stores the uses, before the checkpoint of a close. No other call may be in progress.
    pub(crate) fn store_use(self) -> Result<()> {
        self.prune();
        let mut table = self.0.quotas.table.lock().clone();
        let is_due = self.0.quotas.is_tag_due.load(Ordering::Acquire);
        let projects = self.0.store.roots().projects();
        let is_known = projects.is_counted() && !is_due && self.0.detached.len() == 0;
        if table.rows.is_empty() && self.stored()?.is_none() {
            return Ok(());
        }
        for row in &mut table.rows {
            let used = projects.used(row.project);
            (row.inodes, row.bytes) = (used.inodes, used.bytes);
        }
        for _ in 0..TRIES {
            table.epoch = if is_known { self.0.store.epoch() } else { 0 };
            self.put(table.clone())?;
            // Otherwise a checkpoint came between, for space, and the next one has another number.
            if !is_known || self.0.store.epoch() == table.epoch {
                break;
            }
        }
        Ok(())
    }
}
