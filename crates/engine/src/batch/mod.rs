//! Batches: several changes of names and attributes, in several directories, as one transaction.
//!
//! The problem: a program that installs a package, delivers to several folders or replaces a
//! generation of files wants all of it or nothing, for readers and after a crash. Single calls give
//! that for one name each.
//!
//! The rule, in four steps ([`Batches::batch`]):
//!
//! 1. *Resolve* (`view.rs`), without locks: walk the paths, as the changes before each would leave
//!    them; take numbers for new inodes. Write contents that do not fit in inodes to the device.
//! 2. *Lock* (`locks.rs`) every inode concerned, never waiting for one while holding another.
//! 3. *Apply* (`apply.rs`) one change after the other, in the steps that its single call takes:
//!    resolve, check, plan, apply. The transaction is revocable (`txn/src/rollback.rs`): when a
//!    change fails, all is taken back, and the error names it.
//! 4. *Commit*: one record.
//!
//! The proof: until the record is staged all inodes concerned are locked, and every reader of an
//! inode or of a directory's entries takes its lock, so readers see all or nothing. One record is
//! replayed whole or not at all. If a name means something else under the locks than when it was
//! resolved, all is taken back and begun again. So is a batch that fails for what a name meant then
//! (`premises.rs`).
//!
//! The cost: a batch is limited by its record, [`BATCH_MAX`] bytes: 156 and the name for each
//! new file, more for contents in the inode. An inode whose attributes need an intent (`xattr/`)
//! takes one change in a batch. Other writers of the same directories wait for the whole batch.

mod apply;
mod hashed;
mod locks;
mod premises;
mod prepared;
mod rights;
mod view;

use self::apply::Applying;
use self::locks::Locks;
use self::prepared::Prepared;
use crate::attributes::Attributes;
use crate::directories::Directories;
use crate::files::Files;
use crate::intents::Intents;
use crate::namei::{NAME_COST, Namespace};
use crate::objects::Objects;
use crate::orphans::{Left, Orphans};
use crate::paths::Paths;
use crate::permissions::Permissions;
use crate::records;
use crate::state::room;
use crate::types::{BatchOp, Caller};
use crate::xattr::Xattrs;
use shoal_base::sync::thread;
use shoal_base::timing::Call;
use shoal_base::{Code, Error, Ino, Result, memory};
use shoal_format::item::size;
use shoal_txn::Txn;

/// Bytes of a batch's record, at most. The rest of what a record can take is for counts and times
/// of the directories, which are added at the end.
pub(crate) const BATCH_MAX: usize =
    records::BATCH.bytes_max as usize - DIRS_MAX * (size::DIR_TOUCH + size::LINKS);
/// Directories that a batch may change.
const DIRS_MAX: usize = 1024;
/// Times that a batch is begun again because others change the names that it uses.
const ATTEMPTS: usize = 1000;

/// The end of an attempt that has changed nothing.
pub(super) enum Stop {
    /// A name has come to mean something else: resolve again.
    Changed,
    /// The change of this index fails.
    Failed(usize, Error),
}

room! {
    /// Several changes as one transaction.
    pub(crate) struct Batches {
        attributes: Attributes,
        directories: Directories,
        files: Files,
        intents: Intents,
        namespace: Namespace,
        objects: Objects,
        orphans: Orphans,
        paths: Paths,
        permissions: Permissions,
        xattrs: Xattrs,
    }
}

impl Batches<'_> {
    /// Makes several changes as one transaction: all of them, or none. Other calls see all or none,
    /// and so does a recovery after a crash. Paths are relative to `start`, and never lead out of
    /// it. Each change sees those before it.
    ///
    /// A listing shows a consistent state of each part that one call returns; a directory that
    /// takes several calls to list may have changed between them, as always.
    ///
    /// # Errors
    /// That of the first change that fails, as its single call would, with its index and paths in
    /// the message: nothing has been changed. `E2BIG` when the batch's record would exceed what the
    /// journal takes (the message says how much), `EXDEV` for paths of another subvolume.
    pub(crate) fn batch(self, who: &Caller, start: Ino, ops: &[BatchOp<'_>]) -> Result<()> {
        self.0.measured(Call::Batch, || self.make_all(who, start, ops))
    }

    fn make_all(self, who: &Caller, start: Ino, ops: &[BatchOp<'_>]) -> Result<()> {
        // Resolving allocates, before the transaction asks.
        memory::ready()?;
        for attempt in 0..ATTEMPTS {
            match self.try_batch(who, start, ops) {
                Ok(left) => return self.orphans().settle(left),
                Err(Stop::Changed) => pause(attempt),
                Err(Stop::Failed(index, e)) => return Err(name_error(ops, index, e)),
            }
        }
        let message =
            format!("batch of {} changes: others keep changing the same names", ops.len());
        Err(Error::refused(Code::Busy, message + "; try again"))
    }

    fn try_batch(self, who: &Caller, start: Ino, ops: &[BatchOp<'_>]) -> Result<Vec<Left>, Stop> {
        let mut batch = view::resolve(self, who, start, ops)?;
        let room = batch.bytes + ops.len() as u64 * NAME_COST;
        let failed = |e| Stop::Failed(0, e);
        // What is written now is not yet counted when the transaction asks for room.
        drop(self.0.begin_space(room, records::BATCH).map_err(failed)?);
        batch.write_contents()?;
        match self.0.reading_first(|| self.run_batch(who, &batch, room)) {
            Ok(done) => done,
            Err(e) => Err(failed(e)),
        }
    }

    /// Locks, applies, commits. An error outside is one that the call may meet before its first
    /// change, and begins again for.
    fn run_batch(
        self,
        who: &Caller,
        batch: &Prepared<'_, '_>,
        room: u64,
    ) -> Result<Result<Vec<Left>, Stop>> {
        let mut txn = self.0.begin_space(room, records::BATCH)?;
        let root = self.0.root(batch.start)?;
        let _renames = batch.moves.then(|| root.rename.lock());
        let locks = Locks::take(&batch.inodes);
        if !batch.premises.hold(self, &locks)? {
            return Ok(Err(Stop::Changed));
        }
        txn.make_revocable();
        let mut applying = Applying::new(self, root, who, batch, &locks);
        match applying.all(&mut txn) {
            Ok(()) => {
                batch.used();
                let left = applying.finish(&mut txn)?;
                txn.commit()?;
                Ok(Ok(left))
            }
            Err(stop) => {
                drop(applying);
                self.undo_batch(txn, &locks, root)?;
                match stop {
                    Stop::Failed(_, cold @ Error::Cold(_)) => Err(cold),
                    stop => Ok(Err(stop)),
                }
            }
        }
    }

    fn undo_batch(self, mut txn: Txn<'_>, locks: &Locks<'_>, root: &shoal_txn::Root) -> Result<()> {
        locks.restore(&mut txn, &root.table);
        txn.roll_back()
    }
}

/// Waits before the next attempt, of varied length and longer the more there were. Attempts at a
/// constant pace may meet another thread's changes at the same point every time, for as long as
/// that one keeps its own pace: a thousand in a row did.
#[cold]
fn pause(attempt: usize) {
    // The golden ratio spreads the lengths evenly, the same in every run.
    let part = (attempt as u32).wrapping_mul(0x9e37_79b9) >> 16;
    let turns = (part as usize * attempt) >> 16;
    (0..=turns).for_each(|_| thread::yield_now());
}

/// An error that names the change.
#[cold]
fn name_error(ops: &[BatchOp<'_>], index: usize, error: Error) -> Error {
    let Some(op) = ops.get(index) else { return error };
    match error {
        Error::Code(_) | Error::Refused { .. } => {
            let (code, count, number) = (error.code(), ops.len(), index + 1);
            let message = format!("change {number} of {count} of a batch, {op}: {error}");
            Error::refused(code, message + "; nothing has been changed")
        }
        other => other,
    }
}
