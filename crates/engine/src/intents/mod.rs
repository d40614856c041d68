//! Intents: attribute changes that need more than the caller's transaction.
//!
//! The call's own record holds the intent. The transactions that carry it out follow at once, under
//! the same locks and within one pass of the checkpoint's gate, so nobody sees the change half
//! done, and no checkpoint does. A crash between them leaves the intent open in the journal;
//! recovery carries it out (`recover.rs`). Each step looks at what is there before it acts, so
//! doing one again changes nothing.
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
//! | state | what is done | what is left, and recorded |
//! | --- | --- | --- |
//! | `Logged` | nothing | all |
//! | `Spread` | the inode's attributes are in the tree | all |
//! | `Removed` | the old attribute of a replace is gone | the new one: a *set* |
//! | `Done` | all | nothing |
//!
//! (After the deferred attribute operations of XFS, Darrick J. Wong and Allison Henderson.)

mod recover;

use crate::volume::Inner;
use crate::xattr::Pending;
use crate::xattr::inline::{all, find, spliced};
use shoal_base::invariant;
use shoal_base::{Ino, Result};
use shoal_format::inode::{Core, Form};
use shoal_format::intent::Intent;
use shoal_format::item::Item;
use shoal_itable::Locked;
use shoal_txn::{ExtentChange, Txn};

/// How far an intent has got.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    Logged,
    Spread,
    Removed,
    Done,
}

impl State {
    /// Whether a step may lead from here to `next`.
    fn may_lead_to(self, next: State) -> bool {
        use State::*;
        matches!(
            (self, next),
            (Logged, Spread | Removed | Done) | (Spread, Removed | Done) | (Removed, Done)
        )
    }
    /// For messages.
    pub(crate) fn to_text(self) -> &'static str {
        match self {
            State::Logged => "logged",
            State::Spread => "spread",
            State::Removed => "removed",
            State::Done => "done",
        }
    }
}

/// An intent being carried out.
struct Chain {
    id: u64,
    intent: Intent,
    state: State,
    /// Recovery found it, and counts the value that it is to set.
    recovered: bool,
}

impl Inner {
    /// Carries out an intent: commits the record that announces it, and leaves the last step's for
    /// the caller to commit. Everything else of the call must be in the record already.
    pub(crate) fn finish(
        &self,
        txn: &mut Txn<'_>,
        locked: &mut Locked<'_>,
        pending: Option<Pending>,
    ) -> Result<()> {
        match pending {
            None => Ok(()),
            Some(Pending { id, intent }) => {
                txn.roll_announced();
                let chain = Chain { id, intent, state: State::Logged, recovered: false };
                self.run_chain(txn, locked, chain)
            }
        }
    }

    #[cold]
    fn run_chain(
        &self,
        txn: &mut Txn<'_>,
        locked: &mut Locked<'_>,
        mut chain: Chain,
    ) -> Result<()> {
        loop {
            // The step that puts the value where it belongs counts it: it must not count twice.
            if chain.recovered {
                self.count_value(&chain.intent, ExtentChange::Goes);
            }
            let next = match self.step(txn, locked, &mut chain) {
                Ok(next) => next,
                Err(e) => {
                    // Memory and journal must not part: only a recovery can finish it now.
                    let what = format!("{} ({})", chain.intent.to_text(), chain.state.to_text());
                    self.store.poison(&format!("intent failed half-way: {what}: {e}: reopen"));
                    return Err(e);
                }
            };
            invariant!(chain.state.may_lead_to(next), "{:?} after {:?}", next, chain.state);
            chain.state = next;
            if next == State::Done {
                // The change is complete with this record, not with the one that announced it.
                // In memory it changes too, when a recovery finds all of it done.
                let ino = locked.ino();
                let Core { nlink, ctime, .. } = locked.edit(self.table(ino)?, txn.epoch).core;
                txn.log_core(locked, Item::Links { ino, nlink, ctime });
                txn.log(Item::IntentDone { id: chain.id });
                if chain.recovered {
                    self.store.intents.done(chain.id);
                }
                return Ok(());
            }
            txn.log(Item::IntentProgress { id: chain.id, body: &chain.intent.to_bytes() });
            if chain.recovered {
                self.count_value(&chain.intent, ExtentChange::Appears);
                self.store.intents.note(chain.id, chain.intent.clone());
            }
            txn.roll_announced();
        }
    }

    /// A recovered intent is dropped, and with it the value that it was to set.
    fn forget_intent(&self, id: u64) {
        if let Some(intent) = self.store.intents.done(id) {
            self.count_value(&intent, ExtentChange::Goes);
        }
    }

    /// Counts the value that a recovered intent is to set as the intent's, or no longer.
    fn count_value(&self, intent: &Intent, change: ExtentChange) {
        if let Some(extent) = intent.to_set().and_then(|attr| attr.value.extent()) {
            self.store.account(&extent, change);
        }
    }

    /// One transaction of a chain.
    fn step(&self, txn: &mut Txn<'_>, locked: &mut Locked<'_>, chain: &mut Chain) -> Result<State> {
        let ino = locked.ino();
        if locked.inode().core.attr_form != Form::Tree {
            if self.step_inline(txn, locked, &chain.intent)? {
                return Ok(State::Done);
            }
            self.spread_attrs(txn, locked)?;
            return Ok(State::Spread);
        }
        let root = ino.root();
        if let Some(old) = chain.intent.to_remove() {
            let same = chain.intent.to_set().is_some_and(|new| new.id(root) == old.id(root));
            // A value that replaces its predecessor under the same name does so in one step.
            if !same {
                self.remove_from_tree(txn, ino, &old.id(root))?;
            }
            if chain.intent.set.is_empty() {
                self.gather_attrs(txn, locked)?;
                return Ok(State::Done);
            }
            if !same {
                chain.intent.remove.clear();
                return Ok(State::Removed);
            }
        }
        if let Some(new) = chain.intent.to_set() {
            self.put_in_tree(txn, ino, &new)?;
        }
        Ok(State::Done)
    }

    /// The whole change in the inode, if it fits there beside the data as it is.
    fn step_inline(
        &self,
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
        if fork.len() + locked.inode().data.len() > self.inline_max() {
            return Ok(false);
        }
        all(ino, &fork)?;
        let form = if fork.is_empty() { Form::Empty } else { Form::Inline };
        self.set_fork(txn, locked, form, fork.into())?;
        gone.iter().for_each(|extent| self.store.account(extent, ExtentChange::Goes));
        let appears = new.and_then(|attr| attr.value.extent());
        appears.iter().for_each(|extent| self.store.account(extent, ExtentChange::Appears));
        Ok(true)
    }

    /// For messages: an inode that an intent names.
    fn named(ino: Ino, generation: u32) -> String {
        format!("inode {ino} of generation {generation}")
    }
}
