//! Changing attributes: set, remove and replace are one operation, a [`Change`], with one contract
//! (after XFS's short-form shortcut, Darrick J. Wong):
//!
//! * If the attributes are in the inode, or can be, and the result fits, the change is part of the
//!   caller's transaction and no intent is logged. A value of the same length is overwritten in
//!   place; any other replace is one step as well.
//! * Otherwise an intent is logged with the caller's other items, and completed in follow-up
//!   transactions (`intents/mod.rs`).
//!
//! A change is first *planned* under the inode's lock. All steps that can fail are there (reading,
//! finding space, writing a value or contents to the device), and nothing changes. Then it is
//! *applied*. So a shortcut that is impossible leaves no incomplete change.

use super::inline::{self, find, spliced};
use super::room::Data;
use crate::records::ATTR_CHANGED;
use crate::xattr::Xattrs;
use shoal_base::counters::Counter;
use shoal_base::planted::{self, Defect};
use shoal_base::{Ino, Result};
use shoal_format::attr::{Attr, Id};
use shoal_format::extent::Extent;
use shoal_format::inode::{Form, Inode};
use shoal_format::intent::Intent;
use shoal_format::item::{Item, size};
use shoal_itable::Locked;
use shoal_txn::{ExtentChange, Txn};
use std::ops::Range;

/// A change of an inode's attributes. One attribute is removed, one is set; the latter replaces one
/// of the same name.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Change<'a> {
    pub remove: Option<Id<'a>>,
    pub set: Option<Attr<'a>>,
}

impl<'a> Change<'a> {
    pub(crate) fn set(attr: Attr<'a>) -> Change<'a> {
        Change { remove: None, set: Some(attr) }
    }
    pub(crate) fn remove(id: Id<'a>) -> Change<'a> {
        Change { remove: Some(id), set: None }
    }
}

/// Extent of a value that a change adds or removes. Boxed, because most changes have none.
type Moved = Option<Box<Extent>>;

/// Planned form of a change.
#[must_use = "a planned change has to be applied"]
#[derive(Debug)]
pub(crate) enum Plan {
    /// No change is needed.
    Nothing,
    /// A parent pointer that is the whole fork is replaced by another (`paths/`).
    Sole,
    /// Bytes of the fork are overwritten by the same number of others.
    InPlace { at: Range<usize>, bytes: Vec<u8>, gone: Moved, new: Moved },
    /// The fork is replaced.
    Fork { bytes: Box<[u8]>, data: Data, gone: Moved, new: Moved },
    /// An intent is needed.
    Intent(Intent),
}

impl Plan {
    /// Returns whether it changes only the inode itself.
    pub(crate) fn is_within(&self) -> bool {
        match self {
            Plan::Nothing | Plan::Sole => true,
            Plan::InPlace { gone, new, .. } => gone.is_none() && new.is_none(),
            Plan::Fork { data, gone, new, .. } => {
                *data == Data::Stays && gone.is_none() && new.is_none()
            }
            Plan::Intent(_) => false,
        }
    }

    /// Maximum bytes of its items in a record for this inode; for an intent, of the announcing
    /// item.
    pub(crate) fn record_bytes(&self, inode: &Inode) -> usize {
        match self {
            Plan::Nothing | Plan::Sole | Plan::InPlace { .. } => size::fork(inode.attr.len()),
            Plan::Fork { bytes, data: Data::Stays, .. } => size::fork(bytes.len()),
            Plan::Fork { .. } => ATTR_CHANGED,
            Plan::Intent(intent) => size::intent(intent.to_bytes().len()),
        }
    }
}

/// A change whose intent is in the record under construction. It must be finished once the record
/// has everything else of the call.
#[must_use = "an intent that is not finished waits for the next recovery"]
#[derive(Debug)]
pub(crate) struct Pending {
    pub id: u64,
    pub intent: Intent,
}

impl Xattrs<'_> {
    /// Plans a change of a locked inode.
    pub(crate) fn plan(self, ino: Ino, inode: &Inode, change: &Change<'_>) -> Result<Plan> {
        match inode.core.attr_form {
            Form::Empty | Form::Inline => self.plan_inline(ino, inode, change),
            Form::Tree | Form::Extents => self.plan_intent(ino, inode, change),
        }
    }

    fn plan_inline(self, ino: Ino, inode: &Inode, change: &Change<'_>) -> Result<Plan> {
        let fork = &inode.attr[..];
        let place = |id: Option<Id<'_>>| match id {
            Some(id) => find(ino, fork, &id),
            None => Ok(None),
        };
        let old = place(change.remove)?;
        let same = place(change.set.map(|attr| attr.id(ino.root())))?;
        let new = change.set.and_then(|attr| attr.value.extent()).map(Box::new);
        // If attributes of both the old and the new name exist, two become one. No call does this,
        // so the general method is enough.
        let gone = match (&old, &same) {
            (Some(a), Some(b)) if a.range != b.range => {
                return self.plan_intent(ino, inode, change);
            }
            (Some(a), _) | (None, Some(a)) => Some(a),
            (None, None) if change.set.is_none() => return Ok(Plan::Nothing),
            (None, None) => None,
        };
        if self.0.options.lab().attr_intents {
            return self.plan_intent(ino, inode, change);
        }
        let range = gone.map(|place| place.range.clone());
        let gone = gone.and_then(|place| place.attr.value.extent()).map(Box::new);
        if let (Some(range), Some(set)) = (&range, &change.set)
            && set.encoded_len() == range.len()
        {
            let bytes = set.to_bytes();
            return Ok(Plan::InPlace { at: range.clone(), bytes, gone, new });
        }
        let bytes = spliced(fork, range.as_ref(), change.set.as_ref()).into_boxed_slice();
        match self.room_for_attrs(ino, inode, &bytes)? {
            Some(data) => Ok(Plan::Fork { bytes, data, gone, new }),
            None => self.plan_intent(ino, inode, change),
        }
    }

    /// Reads everything that the transactions of the intent will read, so that they do not fail.
    #[cold]
    fn plan_intent(self, ino: Ino, inode: &Inode, change: &Change<'_>) -> Result<Plan> {
        for attr in inline::all(ino, &inode.attr)? {
            self.can_put_in_tree(ino, &attr.id(ino.root()))?;
        }
        let removed = match change.remove {
            Some(id) => self.find_in_tree(ino, &id)?.map(|found| found.raw),
            None => None,
        };
        let removed = match (removed, change.remove) {
            (Some(raw), _) => raw,
            (None, Some(id)) => match find(ino, &inode.attr, &id)? {
                Some(place) => place.attr.to_bytes(),
                None => Vec::new(),
            },
            (None, None) => Vec::new(),
        };
        match &change.set {
            Some(set) => self.can_put_in_tree(ino, &set.id(ino.root()))?,
            None => self.can_gather(ino)?,
        }
        let set = change.set.map(|attr| attr.to_bytes()).unwrap_or_default();
        if removed.is_empty() && set.is_empty() {
            return Ok(Plan::Nothing);
        }
        let generation = inode.core.generation;
        Ok(Plan::Intent(Intent { ino, generation, remove: removed, set }))
    }

    /// Applies a plan. The lock under which it was made must still be held.
    pub(crate) fn apply(
        self,
        txn: &mut Txn<'_>,
        locked: &mut Locked<'_>,
        plan: Plan,
    ) -> Result<Option<Pending>> {
        let table = &self.0.store.root(locked.ino())?.table;
        let (gone, new) = match plan {
            Plan::Nothing => return Ok(None),
            Plan::Sole => unreachable!("a sole parent pointer is applied with its new name"),
            Plan::Intent(intent) => return Ok(Some(self.log_intent(txn, intent))),
            Plan::InPlace { at, bytes, gone, new } => {
                let inode = locked.edit(table, txn.epoch());
                inode.attr[at].copy_from_slice(&bytes);
                let (ino, form) = (locked.ino(), Form::Inline);
                txn.log(Item::AttrFork { ino, form, bytes: &locked.inode().attr });
                (gone, new)
            }
            Plan::Fork { bytes, data, gone, new } => {
                let form = if bytes.is_empty() { Form::Empty } else { Form::Inline };
                self.set_fork(txn, locked, form, bytes)?;
                self.give_way(txn, locked, data)?;
                (gone, new)
            }
        };
        if !planted::is(Defect::OldValueCounted) {
            gone.iter().for_each(|extent| txn.account(extent, ExtentChange::Goes));
        }
        new.iter().for_each(|extent| txn.account(extent, ExtentChange::Appears));
        self.0.store.counters().add(Counter::AttrShortcuts, 1);
        Ok(None)
    }

    /// Adds an intent to the record under construction.
    #[cold]
    pub(crate) fn log_intent(self, txn: &mut Txn<'_>, intent: Intent) -> Pending {
        let id = self.0.store.intents().next();
        txn.log(Item::IntentLog { id, body: &intent.to_bytes() });
        self.0.store.counters().add(Counter::AttrIntents, 1);
        Pending { id, intent }
    }
}
