//! Completing what calls before the crash had promised. After the replay, before anybody uses the
//! volume: open intents are checked, carried out in the order in which they were logged, or dropped
//! with a warning when what they name is not there any more.

use super::{Chain, State};
use crate::volume::Inner;
use shoal_base::{Code, Error, Result};
use shoal_format::intent::Intent;
use shoal_format::item::Item;
use shoal_itable::InodeRef;
use shoal_txn::{Need, Txn};

impl Inner {
    /// Completes all open intents; in memory alone on a volume opened read-only. Returns how many.
    pub(crate) fn complete_intents(&self) -> Result<u64> {
        let open = self.store.intents.all();
        let count = open.len() as u64;
        for (id, intent) in open {
            let mut txn = self.begin_recovery()?;
            match self.intended(&intent)? {
                None => {
                    let (what, who) =
                        (intent.to_text(), Inner::named(intent.ino, intent.generation));
                    tracing::warn!(id, what, "intent names {who}, which is not there: dropped");
                    txn.log(Item::IntentDone { id });
                    self.forget_intent(id);
                }
                Some(inode) => {
                    let mut locked = inode.write();
                    let chain = Chain { id, intent, state: State::Logged, recovered: true };
                    self.run_chain(&mut txn, &mut locked, chain)?;
                }
            }
            txn.commit()?;
        }
        Ok(count)
    }

    fn begin_recovery(&self) -> Result<Txn<'_>> {
        match self.store.options.read_only {
            true => Ok(self.store.begin_in_memory()),
            false => self.store.begin(Need::Release),
        }
    }

    /// The inode that an intent is about, if it is still that one.
    fn intended(&self, intent: &Intent) -> Result<Option<InodeRef>> {
        let found = self.store.root(intent.ino).and_then(|root| root.table.get(intent.ino));
        let inode = match found {
            Ok(inode) => inode,
            Err(Error::Code(Code::Stale)) => return Ok(None),
            Err(e) => return Err(e),
        };
        let core = inode.read().inode.core;
        let same = core.in_use() && core.generation == intent.generation;
        Ok(same.then_some(inode))
    }
}
