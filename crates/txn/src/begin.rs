//! Beginning and committing a transaction.

use crate::pressure::BEHIND;
use crate::quiesce::InFlight;
use crate::record::{RecordKind, framed};
use crate::removed::{RemovedName, inodes_named};
use crate::store::Store;
use crate::undo::Undo;
use shoal_base::cold;
use shoal_base::counters::Counter;
use shoal_base::invariant;
use shoal_base::phase::{self, Phase};
use shoal_base::planted::{self, Defect};
use shoal_base::{Code, Epoch, Error, Lsn, Result, memory};
use shoal_format::item::Item;
use shoal_itable::Locked;
use shoal_journal::Numbered;
use std::cell::RefCell;
use std::sync::atomic::Ordering;

/// The space that a transaction needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Need {
    /// New space: about this many bytes of data. Refused (`ENOSPC`) if only the reserve is left.
    Space(u64),
    /// None: it frees space, or changes existing data. May use the reserve.
    Release,
}

thread_local! {
    /// The record under construction; its memory is reused.
    static RECORD: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A transaction. It must be committed. Dropping it after a change leaves memory and journal
/// inconsistent, and makes the volume read-only.
#[must_use = "a transaction that is not committed makes the volume read-only"]
pub struct Txn<'s> {
    pub(crate) store: &'s Store,
    pub(crate) record: Vec<u8>,
    /// The number of the record, if it was allocated before the record is complete.
    numbered: Option<Numbered<'s>>,
    _in_flight: InFlight<'s>,
    /// Memory has a change that is not in the record yet.
    pub(crate) changing: bool,
    /// The kind of its records.
    kind: RecordKind,
    /// Number of emergency allocations when it began.
    emergency_allocations: u64,
    /// Nothing is journaled: the volume is read-only, or only an unlinked but open inode changes.
    in_memory: bool,
    /// The error because of which a record that announces the following ones could not be made
    /// durable.
    failed: Option<Error>,
    /// LSNs of the records staged before the one under construction; `None` if not journaled.
    staged: Vec<Option<u64>>,
    /// Number of inodes whose core has an item, but not yet the LSN of its record.
    pub(crate) unstamped: u32,
    /// Names that the record under construction removes, for the change feed.
    pub(crate) removed: Vec<RemovedName>,
    /// State that is needed to roll it back ([`Txn::make_revocable`]).
    pub(crate) undo: Option<Box<Undo>>,
    pub(crate) epoch: Epoch,
}

impl Store {
    /// Begins a transaction whose records are of this kind. Must be called without inode locks,
    /// because it may wait for a checkpoint.
    #[inline]
    pub fn begin(&self, need: Need, kind: RecordKind) -> Result<Txn<'_>> {
        self.writable()?;
        memory::ready()?;
        if cold::must_not_wait() && self.would_wait() {
            return Err(cold::refuse());
        }
        let pressure = self.pressure.load(Ordering::Relaxed);
        if pressure & BEHIND != 0 || (pressure != 0 && !self.options.background) {
            self.throttle()?;
        }
        if let Need::Space(bytes) = need
            && !self.room().has(bytes)
        {
            return Err(Error::Code(Code::NoSpace));
        }
        Ok(self.enter(false, kind))
    }

    /// Returns whether a transaction may have to wait for the device: for a checkpoint, for room in
    /// the journal, or because it is behind with writes.
    fn would_wait(&self) -> bool {
        self.pressure.load(Ordering::Relaxed) & BEHIND != 0
            || self.journal().is_ok_and(|journal| journal.is_nearly_full())
            || self.device.is_behind()
    }

    /// Begins a transaction that changes only memory: for recovery work on a volume that is opened
    /// read-only.
    pub fn begin_in_memory(&self) -> Txn<'_> {
        invariant!(self.options.read_only, "changes of a writable volume are journaled");
        self.enter(true, RecordKind::in_memory())
    }

    #[inline]
    fn enter(&self, in_memory: bool, kind: RecordKind) -> Txn<'_> {
        let in_flight = self.quiesce.enter();
        if kind.ends_copies {
            self.states.change();
        }
        cold::entered();
        let record = RECORD.with(|cell| std::mem::take(&mut *cell.borrow_mut()));
        let (epoch, failed) = (self.epoch(), None);
        Txn {
            store: self,
            record,
            numbered: None,
            _in_flight: in_flight,
            changing: false,
            kind,
            emergency_allocations: memory::dips(),
            in_memory,
            failed,
            staged: Vec::new(),
            unstamped: 0,
            removed: Vec::new(),
            undo: None,
            epoch,
        }
    }

    /// Without background threads: writes a checkpoint. With them: waits until they are no longer
    /// far behind.
    #[cold]
    fn throttle(&self) -> Result<()> {
        let _waiting = phase::waiting(Phase::Checkpoint);
        if !self.options.background {
            return self.checkpoints().write();
        }
        // The caller does the work instead of waiting for it: it may be the background thread
        // itself.
        let behind = || self.is_behind(self.lsn());
        if behind() {
            self.checkpoint_if(behind)?;
        }
        if !behind() {
            self.pressure.fetch_and(!BEHIND, Ordering::Relaxed);
        }
        self.writable()
    }
}

impl Txn<'_> {
    /// Epoch of its changes.
    #[inline]
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }
    /// Adds an item. From the first item on the transaction must be committed.
    #[inline]
    pub fn log(&mut self, item: Item<'_>) {
        cold::changing();
        item.encode(&mut self.record);
    }
    /// Announces the first change in memory, before its item is logged. From here on the
    /// transaction must be committed.
    #[inline]
    pub fn changing(&mut self) {
        cold::changing();
        self.changing = true;
    }
    /// Must be called before the first change. Later allocations may be emergency allocations.
    ///
    /// # Errors
    /// `ENOMEM` if an emergency allocation was needed since the transaction began.
    #[inline]
    pub fn check_memory(&self) -> Result<()> {
        match memory::dips() == self.emergency_allocations {
            true => Ok(()),
            false => Err(Error::Code(Code::NoMemory)),
        }
    }
    /// Announces that the transaction only changes an unlinked but open inode, in memory: nothing
    /// is journaled. Must be called before the first change.
    pub fn stay_in_memory(&mut self) {
        invariant!(self.is_untouched(), "a transaction that has changed something");
        self.in_memory = true;
    }
    /// Returns whether nothing has been changed or logged.
    pub(crate) fn is_untouched(&self) -> bool {
        !self.changing && self.record.is_empty()
    }
    /// Notes a name that this record removes, for the change feed. Its LSN is not known yet.
    #[cold]
    pub fn name_removed(&mut self, removed: RemovedName) {
        self.removed.push(removed);
    }
    /// Adds an item of an inode's core: a `Core`, a `DirTouch` or a `Links`. [`Txn::stamp`] must be
    /// called before the inode's lock is released.
    #[inline]
    pub fn log_core(&mut self, inode: &mut Locked<'_>, item: Item<'_>) {
        self.will_log_core(inode);
        self.log(item);
    }
    /// As [`Txn::log_core`], for an item that the caller adds later to the record under
    /// construction.
    #[inline]
    pub fn will_log_core(&mut self, inode: &mut Locked<'_>) {
        if !self.in_memory && inode.note_record(self.staged.len() as u32) {
            self.unstamped += 1;
        }
    }
    /// Sets the LSN in an inode's core to that of the last record with an item of it, as replay
    /// will ([`Core::lsn`](shoal_format::inode::Core::lsn)). If that is the record under
    /// construction, it must be complete or numbered, and its number is allocated.
    #[inline]
    pub fn stamp(&mut self, inode: &mut Locked<'_>) -> Result<()> {
        let Some(record) = inode.take_record() else { return Ok(()) };
        self.unstamped -= 1;
        let lsn = match self.staged.get(record as usize) {
            Some(lsn) => *lsn,
            None => {
                if self.numbered.is_none() {
                    self.number(0)?;
                }
                self.numbered.as_ref().map(|numbered| numbered.before().0)
            }
        };
        lsn.into_iter().for_each(|lsn| inode.set_lsn(lsn));
        Ok(())
    }
    /// Bytes of the record so far.
    pub fn len(&self) -> usize {
        self.record.len()
    }
    /// Bytes that still fit in the record.
    pub fn room(&self) -> usize {
        (self.kind.bytes_max as usize).saturating_sub(self.record.len())
    }
    /// Returns whether the record is empty.
    pub fn is_empty(&self) -> bool {
        self.record.is_empty()
    }
    /// Allocates the number of the record, which will be `more` bytes longer than it is now.
    /// Everything changed must be locked until here; later changes by others are ordered after it.
    /// From here on the lock of an inode that does not change again in this transaction may be
    /// released, while the rest of the record is encoded and staged. Until [`Txn::commit`], which
    /// must follow, the caller must not wait for anything that another transaction holds: the
    /// durability of all later records waits for this one.
    #[inline]
    pub fn number(&mut self, more: usize) -> Result<()> {
        invariant!(self.numbered.is_none(), "a record with two numbers");
        if self.in_memory {
            return Ok(());
        }
        let len = self.record.len() + more;
        self.check_len(len);
        match self.store.journal().and_then(|journal| journal.number(len)) {
            Ok(numbered) => {
                self.numbered = Some(numbered);
                Ok(())
            }
            Err(e) => {
                self.store.poison(&format!("journal: {e}"));
                Err(e)
            }
        }
    }

    #[inline]
    fn check_len(&self, bytes: usize) {
        let RecordKind { name, bytes_max, .. } = self.kind;
        invariant!(bytes <= bytes_max as usize, "{name}: a record of {bytes} bytes");
    }

    /// Numbers and stages the record. Must be called with the locks of everything changed still
    /// held, except as allowed by [`Txn::number`]. Returns the LSN to wait for if the change must
    /// be durable.
    #[inline]
    pub fn commit(mut self) -> Result<Lsn> {
        let early = planted::is(Defect::UnlockedTooEarly);
        invariant!(self.unstamped == 0 || early, "{}: an inode without its LSN", self.kind.name);
        let journaled = !self.record.is_empty() && !self.in_memory;
        let lsn = self.stage()?;
        if journaled && let Ok(journal) = self.store.journal() {
            // The caller is about to be told: nothing that comes earlier may be missing from what a
            // killed process leaves.
            journal.wait_complete(lsn);
        }
        if planted::is(Defect::MemoryTooLate) {
            self.check_memory()?;
        }
        match self.failed.take() {
            None => Ok(lsn),
            Some(error) => Err(error),
        }
    }

    /// Commits the record and continues as the next transaction, in the same epoch: no checkpoint
    /// comes between the two. The locks must be kept, so that others see one transaction. Only a
    /// crash can separate them.
    pub fn roll(&mut self) -> Result<Lsn> {
        let (bytes, journaled) = (self.record.len(), !self.in_memory && !self.record.is_empty());
        let staged = self.stage();
        let start = |lsn: &Lsn| lsn.0 - framed(bytes);
        self.staged.push(staged.as_ref().ok().filter(|_| journaled).map(start));
        let lsn = staged?;
        #[cfg(feature = "lab")]
        if self.store.options.flush_rolls && !self.in_memory {
            self.store.journal()?.commit(lsn)?;
        }
        Ok(lsn)
    }

    /// As [`Txn::roll`], after a record that announces the following changes. If it cannot be made
    /// durable, it is unknown whether it is, and the next recovery may make the changes. So the
    /// call makes them too, in memory only, so that everybody sees all of them. [`Txn::commit`]
    /// then returns the failure.
    pub fn roll_announced(&mut self) {
        if let Err(error) = self.roll() {
            self.store.poison(&format!("journal: {error}"));
            self.failed.get_or_insert(error);
            self.in_memory = true;
        }
    }

    /// Adds the removed names to the window, before the record is complete: whoever sees a later
    /// LSN durable finds them.
    #[cold]
    fn add_removed(&mut self) -> Result<()> {
        if self.numbered.is_none() {
            self.number(0)?;
        }
        let lsn = self.numbered.as_ref().map_or(Lsn(0), |numbered| numbered.before());
        let named = inodes_named(&self.record);
        for mut removed in self.removed.drain(..) {
            removed.lsn = lsn;
            removed.moved = named.contains(&removed.ino);
            self.store.removed_names.add(&removed);
        }
        Ok(())
    }

    #[inline]
    fn stage(&mut self) -> Result<Lsn> {
        if self.record.is_empty() || self.in_memory {
            self.record.clear();
            self.removed.clear();
            self.changing = false;
            return Ok(self.store.lsn());
        }
        let bytes = self.record.len();
        self.check_len(bytes);
        self.store.records.note(self.kind, bytes);
        if !self.removed.is_empty() {
            self.add_removed()?;
        }
        let staged = match self.numbered.take() {
            Some(numbered) => numbered.fill(&self.record),
            None => self.store.journal()?.stage(&self.record),
        };
        self.record.clear();
        self.changing = false;
        let lsn = match staged {
            Ok(lsn) => lsn,
            Err(e) => {
                self.store.poison(&format!("journal: {e}"));
                return Err(e);
            }
        };
        self.store.counters.add(Counter::Transactions, 1);
        self.store.note_due(lsn, self.epoch);
        Ok(lsn)
    }
}

impl Drop for Txn<'_> {
    fn drop(&mut self) {
        cold::left();
        // A number without a record would stop the journal for good.
        if self.changing || !self.record.is_empty() || self.numbered.is_some() {
            self.store.poison("a transaction failed half-way; the last record is whole: reopen");
            self.record.clear();
        }
        let record = std::mem::take(&mut self.record);
        RECORD.with(|cell| *cell.borrow_mut() = record);
    }
}
