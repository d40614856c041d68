//! Beginning and committing a transaction.

use crate::gate::Inside;
use crate::record::{RecordKind, framed};
use crate::store::Store;
use shoal_base::cold;
use shoal_base::counters::Counter;
use shoal_base::invariant;
use shoal_base::planted::{self, Defect};
use shoal_base::{Code, Epoch, Error, Lsn, Result, memory};
use shoal_format::item::Item;
use shoal_itable::Locked;
use shoal_journal::Numbered;
use std::cell::RefCell;
use std::sync::atomic::Ordering;

/// In `Store::pressure`: a checkpoint is due for what has gathered since the newest one, running or
/// done, began.
pub(crate) const DUE: u8 = 1;
/// In `Store::pressure`: so much waits to be written that calls must wait too.
pub(crate) const BEHIND: u8 = 2;

/// What a transaction is going to want.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Need {
    /// New space: about this many bytes of data. Refused (`ENOSPC`) when only the reserve is left.
    Space(u64),
    /// It gives space back, or changes what exists: may use the reserve.
    Release,
}

thread_local! {
    /// The record under construction; its memory is used again and again.
    static RECORD: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A transaction. It must be committed; one that is dropped after it has changed something leaves
/// memory and journal apart, and makes the volume read-only.
#[must_use = "a transaction that is not committed makes the volume read-only"]
pub struct Txn<'s> {
    store: &'s Store,
    record: Vec<u8>,
    /// The number of the record, when it was taken before the record is complete.
    numbered: Option<Numbered<'s>>,
    _inside: Inside<'s>,
    /// Something has changed in memory that the record does not say yet.
    changing: bool,
    /// What it may log.
    kind: RecordKind,
    /// What the reserve of memory had served when it began.
    dips: u64,
    /// Nothing is journaled: the volume is read-only.
    in_memory: bool,
    /// Why a record could not be made durable that announces what follows it.
    failed: Option<Error>,
    /// LSNs of the records staged before the one under construction; `None`: not journaled.
    staged: Vec<Option<u64>>,
    /// Inodes whose core has an item, but not yet the LSN of its record.
    unstamped: u32,
    /// Epoch in which its changes are made.
    pub epoch: Epoch,
}

impl Store {
    /// Begins a transaction whose records are of this kind. Take no inode lock before: this may
    /// wait for a checkpoint.
    #[inline]
    pub fn begin(&self, need: Need, kind: RecordKind) -> Result<Txn<'_>> {
        self.writable()?;
        memory::ready()?;
        let pressure = self.pressure.load(Ordering::Relaxed);
        if pressure & BEHIND != 0 || (pressure != 0 && !self.options.background) {
            self.throttle()?;
        }
        if let Need::Space(bytes) = need
            && !self.has_room(bytes)
        {
            return Err(Error::Code(Code::NoSpace));
        }
        Ok(self.enter(false, kind))
    }

    /// Begins a transaction that changes memory alone: what recovery has to complete of a volume
    /// that is opened read-only.
    pub fn begin_in_memory(&self) -> Txn<'_> {
        invariant!(self.options.read_only, "changes of a writable volume are journaled");
        self.enter(true, RecordKind { index: 0, name: "in memory", bytes_max: u32::MAX })
    }

    #[inline]
    fn enter(&self, in_memory: bool, kind: RecordKind) -> Txn<'_> {
        let inside = self.gate.enter();
        cold::entered();
        let record = RECORD.with(|cell| std::mem::take(&mut *cell.borrow_mut()));
        let (dips, epoch, failed) = (memory::dips(), self.epoch(), None);
        Txn {
            store: self,
            record,
            numbered: None,
            _inside: inside,
            changing: false,
            kind,
            dips,
            in_memory,
            failed,
            staged: Vec::new(),
            unstamped: 0,
            epoch,
        }
    }

    /// Writes a checkpoint without background threads; with them, waits until they are no longer
    /// far behind.
    #[cold]
    fn throttle(&self) -> Result<()> {
        if !self.options.background {
            return self.checkpoint();
        }
        // The caller does the work rather than wait for it: it may be the background thread itself.
        let behind = || self.is_behind(self.lsn());
        if behind() {
            self.checkpoint_if(behind)?;
        }
        if !behind() {
            self.pressure.fetch_and(!BEHIND, Ordering::Relaxed);
        }
        self.writable()
    }

    /// Returns whether calls must wait: for all that is not in a finished checkpoint.
    #[inline]
    fn is_behind(&self, lsn: Lsn) -> bool {
        let journal = lsn.0.saturating_sub(self.checkpoint_lsn.load(Ordering::Relaxed));
        let dirty = self.dirty_bytes();
        dirty.max(self.dirty_held()) > self.options.cache_bytes * 3 / 4
            || self.share(dirty) > 0.5
            || journal > self.options.checkpoint_bytes.saturating_mul(4)
    }

    /// Dirty bytes as a part of the space that is free: calls that may use the reserve must leave
    /// room for the checkpoints that write them.
    #[inline]
    fn share(&self, dirty: u64) -> f64 {
        let free = u64::from(self.sure_segments()) * self.geometry.segment_size;
        (dirty * 5 / 4).min(self.likely_to_write()) as f64 / free.max(1) as f64
    }

    /// Notes after a transaction whether a checkpoint is due, and whether calls must wait.
    ///
    /// What a running checkpoint is about to write does not count for the next one: only journal
    /// bytes and dirty metadata since the running one closed the gate do. Else a single commit
    /// during a checkpoint would ask for another. Called inside the gate, so that the flag belongs
    /// to the epoch: [`Store::checkpoint`] clears it while the gate is closed.
    #[inline]
    pub(crate) fn note_due(&self, lsn: Lsn, epoch: Epoch) {
        let journal = lsn.0.saturating_sub(self.cut_lsn.load(Ordering::Relaxed));
        let (nodes, blocks) = (self.cache.to_write_in(epoch), self.budget.dirty_in(epoch));
        let most = self.cache.dirty_in(epoch) + blocks.max(self.budget.dirty_held_in(epoch));
        let due = journal > self.options.checkpoint_bytes
            || most > self.options.cache_bytes * 3 / 8
            || self.share(nodes + blocks) > 0.25;
        let mut pressure = if due { DUE } else { 0 };
        if self.is_behind(lsn) {
            pressure |= BEHIND;
        }
        // Written only when it changes: every transaction reads it.
        if pressure & !self.pressure.load(Ordering::Relaxed) != 0 {
            let before = self.pressure.fetch_or(pressure, Ordering::Relaxed);
            if pressure & !before & DUE != 0 && self.options.background {
                self.wake_checkpointer();
            }
        }
    }

    /// Asks the background thread for a checkpoint.
    pub fn wake_checkpointer(&self) {
        *self.wake.0.lock() = true;
        self.wake.1.notify_one();
    }

    /// For the background thread: waits until a checkpoint is asked for, at most this long.
    pub fn wait_for_work(&self, at_most: std::time::Duration) -> bool {
        let mut asked = self.wake.0.lock();
        if !*asked {
            self.wake.1.wait_for(&mut asked, at_most);
        }
        std::mem::take(&mut *asked)
    }

    /// Whether a checkpoint is due.
    pub fn checkpoint_is_due(&self) -> bool {
        self.pressure.load(Ordering::Relaxed) & DUE != 0
    }
}

impl Txn<'_> {
    /// Adds an item. From the first item on the transaction has to be committed.
    #[inline]
    pub fn log(&mut self, item: Item<'_>) {
        cold::changing();
        item.encode(&mut self.record);
    }
    /// The first change in memory is about to be made, before its item is logged: from here on the
    /// transaction has to be committed.
    #[inline]
    pub fn changing(&mut self) {
        cold::changing();
        self.changing = true;
    }
    /// To be asked before the first change: `ENOMEM` when memory has run out since the transaction
    /// began. What is allocated from here on may come from the reserve.
    #[inline]
    pub fn check_memory(&self) -> Result<()> {
        match memory::dips() == self.dips {
            true => Ok(()),
            false => Err(Error::Code(Code::NoMemory)),
        }
    }
    /// What follows changes a detached inode within itself: memory alone, nothing is journaled.
    /// To be said before the first change.
    pub fn stay_in_memory(&mut self) {
        let nothing = !self.changing && self.record.is_empty();
        invariant!(nothing, "a transaction that has changed something");
        self.in_memory = true;
    }
    /// Adds an item of an inode's core: a `Core`, a `DirTouch` or a `Links`. Call
    /// [`Txn::stamp`] before the inode's lock is released.
    #[inline]
    pub fn log_core(&mut self, inode: &mut Locked<'_>, item: Item<'_>) {
        self.will_log_core(inode);
        self.log(item);
    }
    /// The same for an item that the caller adds later to the record under construction.
    #[inline]
    pub fn will_log_core(&mut self, inode: &mut Locked<'_>) {
        if !self.in_memory && inode.note_record(self.staged.len() as u32) {
            self.unstamped += 1;
        }
    }
    /// Enters in an inode's core the LSN of the last record that has an item of it, as replay will
    /// ([`Core::lsn`](shoal_format::inode::Core::lsn)). Takes the number of the record under
    /// construction if that is the one, so the record must be complete or numbered.
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
    /// Bytes gathered so far.
    pub fn len(&self) -> usize {
        self.record.len()
    }
    /// Bytes that the record can still take.
    pub fn room(&self) -> usize {
        (self.kind.bytes_max as usize).saturating_sub(self.record.len())
    }
    /// Whether nothing has been gathered.
    pub fn is_empty(&self) -> bool {
        self.record.is_empty()
    }
    /// Takes the number of the record, which is to be `more` bytes longer than it is now. What is
    /// changed must be locked until here, and what others may change next is in order from here on:
    /// a lock may be released whose inode will not change again in this transaction, while the rest
    /// of the record is encoded and staged. Until [`Txn::commit`], which must follow, wait for
    /// nothing that another transaction holds: all that have later numbers wait for this record to
    /// become durable.
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

    /// Numbers and stages the record. Call it with the locks of everything changed still held, but
    /// for what [`Txn::number`] says.
    /// Returns the LSN to wait for if the change shall be durable.
    #[inline]
    pub fn commit(mut self) -> Result<Lsn> {
        let early = planted::is(Defect::UnlockedTooEarly);
        invariant!(self.unstamped == 0 || early, "{}: an inode without its LSN", self.kind.name);
        let lsn = self.stage()?;
        if planted::is(Defect::MemoryTooLate) {
            self.check_memory()?;
        }
        match self.failed.take() {
            None => Ok(lsn),
            Some(error) => Err(error),
        }
    }

    /// Commits what has been gathered and goes on as the next transaction, in the same epoch and
    /// without leaving the gate: no checkpoint comes between the two. Keep the locks: for others
    /// the transactions are one. Only a crash can come between them.
    pub fn roll(&mut self) -> Result<Lsn> {
        let (bytes, journaled) = (self.record.len(), !self.in_memory && !self.record.is_empty());
        let staged = self.stage();
        let start = |lsn: &Lsn| lsn.0 - framed(bytes);
        self.staged.push(staged.as_ref().ok().filter(|_| journaled).map(start));
        let lsn = staged?;
        if self.store.options.flush_rolls && !self.in_memory {
            self.store.journal()?.commit(lsn)?;
        }
        Ok(lsn)
    }

    /// The same, after a record that announces what follows. When it cannot be made durable, nobody
    /// knows whether it is, and the next recovery may do what it announces: so the call does it as
    /// well, in memory alone, for everybody to see all of it; [`Txn::commit`] returns the failure.
    pub fn roll_announced(&mut self) {
        if let Err(error) = self.roll() {
            self.store.poison(&format!("journal: {error}"));
            self.failed.get_or_insert(error);
            self.in_memory = true;
        }
    }

    #[inline]
    fn stage(&mut self) -> Result<Lsn> {
        if self.record.is_empty() || self.in_memory {
            self.record.clear();
            self.changing = false;
            return Ok(self.store.lsn());
        }
        let bytes = self.record.len();
        self.check_len(bytes);
        self.store.records.note(self.kind, bytes);
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
        // A number without a record would stop the journal for ever.
        if self.changing || !self.record.is_empty() || self.numbered.is_some() {
            self.store.poison("a transaction failed half-way; the last record is whole: reopen");
            self.record.clear();
        }
        let record = std::mem::take(&mut self.record);
        RECORD.with(|cell| *cell.borrow_mut() = record);
    }
}
