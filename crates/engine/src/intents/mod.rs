//! Intents: attribute changes that need more than the caller's transaction.
//!
//! The call's own record contains the intent. The transactions that complete it follow at once,
//! under the same locks and within one epoch, so neither other calls nor a checkpoint see an
//! incomplete change. A crash between them leaves the intent open in the journal; recovery
//! completes it (`recover.rs`). Each step checks the current state before it acts, so repeating one
//! changes nothing.
//!
//! ```text
//!            ┌───────────────────────────────────────┐ (it fits in the inode)
//!            │                                       ▼
//! Logged ────┼──────────────► Removed ────────────► Done
//!            │                   ▲  ▲                ▲
//!            └────► Spread ──────┘  └ replace only   │
//!                     └──────────────────────────────┘
//! ```
//!
//! | state | done | remaining, and recorded |
//! | --- | --- | --- |
//! | `Logged` | nothing | all |
//! | `Spread` | the inode's attributes are in the tree | all |
//! | `Removed` | the old attribute of a replace is removed | the new one: a *set* |
//! | `Done` | all | nothing |
//!
//! (After the deferred attribute operations of XFS, Darrick J. Wong and Allison Henderson.)

mod recover;

use crate::objects::Objects;
use crate::state::room;
use crate::xattr::inline::{all, find, spliced};
use crate::xattr::{Pending, Xattrs};
use shoal_base::invariant;
use shoal_base::{Ino, Result};
use shoal_format::inode::{Core, Form};
use shoal_format::intent::Intent;
use shoal_format::item::Item;
use shoal_itable::Locked;
use shoal_txn::{ExtentChange, Txn};

/// Progress of an intent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum IntentState {
    Logged,
    Spread,
    Removed,
    Done,
}

impl IntentState {
    /// Returns whether a step may lead from here to `next`.
    fn may_lead_to(self, next: IntentState) -> bool {
        use IntentState::*;
        matches!(
            (self, next),
            (Logged, Spread | Removed | Done) | (Spread, Removed | Done) | (Removed, Done)
        )
    }
    /// Returns the name for messages.
    pub(crate) fn to_text(self) -> &'static str {
        match self {
            IntentState::Logged => "logged",
            IntentState::Spread => "spread",
            IntentState::Removed => "removed",
            IntentState::Done => "done",
        }
    }
}

/// An intent that is being completed.
struct Chain {
    id: u64,
    intent: Intent,
    state: IntentState,
    /// Recovery found the intent, and accounts for the value that it will set.
    recovered: bool,
}

room! {
    /// Completing intents.
    pub(crate) struct Intents { objects: Objects, xattrs: Xattrs }
}

impl Intents<'_> {
    /// Completes an intent: commits the record that announces it, and leaves the record of the last
    /// step to the caller. Everything else of the call must be in the record already.
    pub(crate) fn finish(
        self,
        txn: &mut Txn<'_>,
        locked: &mut Locked<'_>,
        pending: Option<Pending>,
    ) -> Result<()> {
        match pending {
            None => Ok(()),
            Some(Pending { id, intent }) => {
                txn.roll_announced();
                let chain = Chain { id, intent, state: IntentState::Logged, recovered: false };
                self.run_chain(txn, locked, chain)
            }
        }
    }

    #[cold]
    fn run_chain(self, txn: &mut Txn<'_>, locked: &mut Locked<'_>, mut chain: Chain) -> Result<()> {
        loop {
            // The step that stores the value accounts for it; it must not be counted twice.
            if chain.recovered {
                self.count_value(&chain.intent, ExtentChange::Goes);
            }
            let next = match self.step(txn, locked, &mut chain) {
                Ok(next) => next,
                Err(e) => {
                    // Memory and journal must not diverge: only a recovery can complete it now.
                    let what = format!("{} ({})", chain.intent.to_text(), chain.state.to_text());
                    self.0.store.poison(&format!("intent not completed: {what}: {e}: reopen"));
                    return Err(e);
                }
            };
            invariant!(chain.state.may_lead_to(next), "{:?} after {:?}", next, chain.state);
            chain.state = next;
            if next == IntentState::Done {
                // This record, not the announcing one, completes the change, so the inode must get
                // its LSN. The inode is edited in memory too if a recovery finds the whole change
                // done.
                let ino = locked.ino();
                let Core { nlink, ctime, .. } = locked.edit(self.0.table(ino)?, txn.epoch()).core;
                txn.log_core(locked, Item::Links { ino, nlink, ctime });
                txn.log(Item::IntentDone { id: chain.id });
                if chain.recovered {
                    self.0.store.intents().done(chain.id);
                }
                return Ok(());
            }
            txn.log(Item::IntentProgress { id: chain.id, body: &chain.intent.to_bytes() });
            if chain.recovered {
                self.count_value(&chain.intent, ExtentChange::Appears);
                self.0.store.intents().note(chain.id, chain.intent.clone());
            }
            txn.roll_announced();
        }
    }

    /// Drops a recovered intent, and the value that it would have set.
    fn forget_intent(self, id: u64) {
        if let Some(intent) = self.0.store.intents().done(id) {
            self.count_value(&intent, ExtentChange::Goes);
        }
    }

    /// Adds the value that a recovered intent will set to the space accounting, or removes it.
    fn count_value(self, intent: &Intent, change: ExtentChange) {
        if let Some(extent) = intent.to_set().and_then(|attr| attr.value.extent()) {
            self.0.store.account(&extent, change);
        }
    }

    /// Performs the next transaction of a chain.
    fn step(
        self,
        txn: &mut Txn<'_>,
        locked: &mut Locked<'_>,
        chain: &mut Chain,
    ) -> Result<IntentState> {
        let ino = locked.ino();
        if locked.inode().core.attr_form != Form::Tree {
            if self.step_inline(txn, locked, &chain.intent)? {
                return Ok(IntentState::Done);
            }
            self.xattrs().spread_attrs(txn, locked)?;
            return Ok(IntentState::Spread);
        }
        let root = ino.root();
        if let Some(old) = chain.intent.to_remove() {
            let same = chain.intent.to_set().is_some_and(|new| new.id(root) == old.id(root));
            // A value that replaces another of the same name needs only one step.
            if !same {
                self.xattrs().remove_from_tree(txn, ino, &old.id(root))?;
            }
            if chain.intent.set.is_empty() {
                self.xattrs().gather_attrs(txn, locked)?;
                return Ok(IntentState::Done);
            }
            if !same {
                chain.intent.remove.clear();
                return Ok(IntentState::Removed);
            }
        }
        if let Some(new) = chain.intent.to_set() {
            self.xattrs().put_in_tree(txn, ino, &new)?;
        }
        Ok(IntentState::Done)
    }

    /// Makes the whole change in the inode, if it fits there beside the existing data. Returns
    /// whether it did.
    fn step_inline(
        self,
        txn: &mut Txn<'_>,
        locked: &mut Locked<'_>,
        intent: &Intent,
    ) -> Result<bool> {
        let ino = locked.ino();
        let mut fork = locked.inode().attr.to_vec();
        let (mut gone, new) = (Vec::new(), intent.to_set());
        for attr in [intent.to_remove(), new].into_iter().flatten() {
            let place = find(ino, &fork, &attr.id(ino.root()))?;
            gone.extend(place.as_ref().and_then(|p| p.attr.value.extent()));
            if let Some(range) = place.map(|p| p.range) {
                fork = spliced(&fork, Some(&range), None);
            }
        }
        if let Some(new) = &new {
            new.encode(&mut fork);
        }
        if fork.len() + locked.inode().data.len() > self.objects().inline_max() {
            return Ok(false);
        }
        all(ino, &fork)?;
        let form = if fork.is_empty() { Form::Empty } else { Form::Inline };
        self.xattrs().set_fork(txn, locked, form, fork.into())?;
        gone.iter().for_each(|extent| txn.account(extent, ExtentChange::Goes));
        let appears = new.and_then(|attr| attr.value.extent());
        appears.iter().for_each(|extent| txn.account(extent, ExtentChange::Appears));
        Ok(true)
    }

    /// Describes the inode of an intent, for messages.
    fn named(ino: Ino, generation: u32) -> String {
        format!("inode {ino} of generation {generation}")
    }
}
