//! Completing what calls before the crash had promised. After the replay, before anybody uses the
//! volume: open intents are checked, carried out in the order in which they were logged, or dropped
//! with a warning when what they name is not there any more.

use super::{Chain, State};
use crate::records;
use crate::volume::Inner;
use crate::xattr::inline::all;
use shoal_base::planted::{self, Defect};
use shoal_base::{Code, Error, Result};
use shoal_format::intent::Intent;
use shoal_format::item::Item;
use shoal_itable::{InodeRef, Locked};
use shoal_txn::{Need, Txn};

impl Inner {
    /// Completes all open intents; in memory alone on a volume opened read-only. Returns how many.
    pub(crate) fn complete_intents(&self) -> Result<u64> {
        let open = self.store.intents.all();
        let count = open.len() as u64;
        if planted::is(Defect::IntentDropped) {
            open.iter().for_each(|(id, _)| self.forget_intent(*id));
            return Ok(count);
        }
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
                    if let Err(e @ Error::Corrupt(_)) = self.can_run(&locked, &intent) {
                        tracing::warn!(id, what = intent.to_text(), error = %e, "intent dropped");
                        txn.log(Item::IntentDone { id });
                        self.forget_intent(id);
                        txn.commit()?;
                        continue;
                    }
                    let chain = Chain { id, intent, state: State::Logged, recovered: true };
                    self.run_chain(&mut txn, &mut locked, chain)?;
                    txn.stamp(&mut locked)?;
                }
            }
            txn.commit()?;
        }
        Ok(count)
    }

    /// Reads what the chain is going to: damage must not be met half-way.
    fn can_run(&self, locked: &Locked<'_>, intent: &Intent) -> Result<()> {
        let (ino, inode) = (locked.ino(), locked.inode());
        let ids = [intent.to_remove(), intent.to_set()].into_iter().flatten();
        let there = all(ino, &inode.attr)?;
        let mut ids = ids.chain(there).map(|attr| attr.id(ino.root()));
        self.can_gather(ino)?;
        ids.try_for_each(|id| self.can_put_in_tree(ino, &id))
    }

    fn begin_recovery(&self) -> Result<Txn<'_>> {
        match self.store.options.read_only {
            true => Ok(self.store.begin_in_memory()),
            false => self.store.begin(Need::Release, records::RECOVERY),
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use crate::mkfs::mkfs_on;
    use crate::types::{Caller, MkfsOptions, OpenOptions};
    use crate::volume::Volume;
    use shoal_base::Ino;
    use shoal_device::MemDevice;
    use shoal_format::attr::{Attr, Namespace, Value};
    use shoal_format::intent::Intent;
    use shoal_format::item::Item;
    use std::sync::Arc;

    fn open(device: &Arc<MemDevice>, read_only: bool) -> Volume {
        let options = OpenOptions { background: false, read_only, ..OpenOptions::default() };
        Volume::open_on(device.clone(), &options).unwrap()
    }

    /// Intents in the journal that nobody carried out: of an inode that is there, of one that is
    /// not, of one whose number has been used again.
    #[test]
    fn open_intents_are_completed_or_dropped() {
        let device = Arc::new(MemDevice::new(64 << 20));
        mkfs_on(device.clone(), &MkfsOptions::default()).unwrap();
        let volume = open(&device, false);
        let who = Caller::root();
        let f = volume.create(&who, Ino::ROOT, b"f", 0o644).unwrap();
        let value = Value::Local(b"promised");
        let set = Attr { space: Namespace::User, name: b"x", value }.to_bytes();
        let missing = Ino(f.ino.0 + 20_000);
        let generation = f.generation.0;
        for (ino, generation) in [(f.ino, generation), (f.ino, generation + 7), (missing, 1)] {
            let mut txn = volume.begin(crate::records::XATTR).unwrap();
            let intent = Intent { ino, generation, set: set.clone(), ..Intent::default() };
            let _ = volume.log_intent(&mut txn, intent);
            txn.commit().unwrap();
        }
        volume.sync().unwrap();
        let crash = volume.staged_lsn().0;
        drop(volume);
        for round in 0..4 {
            // Read-only first: completed in memory alone, each time anew.
            let volume = open(&device, round < 2);
            let wanted = if round < 3 { 3 } else { 0 };
            assert_eq!(volume.recovery.lock().intents, wanted);
            assert_eq!(volume.getxattr(&who, f.ino, b"user.x").unwrap(), b"promised");
            // Completed by a record behind the crash, unless it could only be in memory.
            let lsn = volume.inode(f.ino).unwrap().read().inode.core.lsn;
            assert_eq!(lsn >= crash, round >= 2, "round {round}: {lsn}, {crash}");
            assert_eq!(volume.check(&mut |_, _| {}).unwrap().problems, []);
            if round == 2 {
                volume.create(&who, Ino::ROOT, b"usable", 0o644).unwrap();
                volume.sync().unwrap();
            }
        }
    }

    /// What recovery's own checkpoint finds open is in it, and completed by the next recovery.
    #[test]
    fn a_checkpoint_carries_open_intents() {
        let device = Arc::new(MemDevice::new(64 << 20));
        mkfs_on(device.clone(), &MkfsOptions::default()).unwrap();
        let volume = open(&device, false);
        let who = Caller::root();
        let f = volume.create(&who, Ino::ROOT, b"f", 0o644).unwrap();
        let long = vec![9; 9000];
        let id = shoal_format::attr::Id::new(Namespace::User, b"x");
        let value = volume.store_value(f.ino, &id, &long).unwrap();
        let set = Attr { space: id.space, name: id.name, value }.to_bytes();
        let generation = f.generation.0;
        let intent = Intent { ino: f.ino, generation, set, ..Intent::default() };
        let mut txn = volume.begin(crate::records::XATTR).unwrap();
        txn.log(Item::IntentLog { id: 5, body: &intent.to_bytes() });
        txn.commit().unwrap();
        // As recovery leaves it: open, its value counted.
        volume.store.intents.note(5, intent.clone());
        let extent = intent.to_set().unwrap().value.extent().unwrap();
        volume.store.account(&extent, shoal_txn::ExtentChange::Appears);
        volume.checkpoint().unwrap();
        drop(volume);
        let volume = open(&device, false);
        assert_eq!(volume.recovery.lock().intents, 1);
        assert_eq!(volume.getxattr(&who, f.ino, b"user.x").unwrap(), long);
        assert_eq!(volume.check(&mut |_, _| {}).unwrap().problems, []);
        volume.checkpoint().unwrap();
        assert_eq!(volume.check(&mut |_, _| {}).unwrap().problems, []);
    }
}
