//! Completing the intents of calls before the crash. After the replay, before the volume is used,
//! open intents are checked and completed in the order in which they were logged. An intent whose
//! inode no longer exists is dropped with a warning.

use super::{Chain, IntentState};
use crate::intents::Intents;
use crate::records;
use crate::xattr::inline::all;
use shoal_base::planted::{self, Defect};
use shoal_base::{Code, Error, Result};
use shoal_format::intent::Intent;
use shoal_format::item::Item;
use shoal_itable::{InodeRef, Locked};
use shoal_txn::{Need, Txn};

impl<'v> Intents<'v> {
    /// Completes all open intents; only in memory on a volume opened read-only. Returns their
    /// number.
    pub(crate) fn complete_intents(self) -> Result<u64> {
        let open = self.0.store.intents().all();
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
                        (intent.to_text(), Intents::named(intent.ino, intent.generation));
                    tracing::warn!(id, what, "intent for {who}, which does not exist: dropped");
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
                    let chain = Chain { id, intent, state: IntentState::Logged, recovered: true };
                    self.run_chain(&mut txn, &mut locked, chain)?;
                    txn.stamp(&mut locked)?;
                }
            }
            txn.commit()?;
        }
        Ok(count)
    }

    /// Reads the nodes that the chain will change: damage must be found before the first change.
    fn can_run(self, locked: &Locked<'_>, intent: &Intent) -> Result<()> {
        let (ino, inode) = (locked.ino(), locked.inode());
        let ids = [intent.to_remove(), intent.to_set()].into_iter().flatten();
        let there = all(ino, &inode.attr)?;
        let mut ids = ids.chain(there).map(|attr| attr.id(ino.root()));
        self.xattrs().can_gather(ino)?;
        ids.try_for_each(|id| self.xattrs().can_put_in_tree(ino, &id))
    }

    fn begin_recovery(self) -> Result<Txn<'v>> {
        match self.0.store.options().read_only {
            true => Ok(self.0.store.begin_in_memory()),
            false => self.0.store.begin(Need::Release, records::RECOVERY),
        }
    }

    /// Returns the inode of an intent; `None` if it is free or has another generation.
    fn intended(self, intent: &Intent) -> Result<Option<InodeRef>> {
        let found = self.0.store.root(intent.ino).and_then(|root| root.table.get(intent.ino));
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
    use crate::xattr::Xattrs;
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

    /// Open intents in the journal: of an existing inode, of a missing one, and of a reused number.
    #[test]
    fn open_intents_are_completed_or_dropped() {
        let device = Arc::new(MemDevice::new(64 << 20));
        mkfs_on(device.clone(), &MkfsOptions::default()).unwrap();
        let volume = open(&device, false);
        let who = Caller::root();
        let f = volume.namespace().create(&who, Ino::ROOT, b"f", 0o644).unwrap();
        let value = Value::Local(b"promised");
        let set = Attr { space: Namespace::User, name: b"x", value }.to_bytes();
        let missing = Ino(f.ino.0 + 20_000);
        let generation = f.generation.0;
        for (ino, generation) in [(f.ino, generation), (f.ino, generation + 7), (missing, 1)] {
            let mut txn = volume.state.begin(crate::records::XATTR).unwrap();
            let intent = Intent { ino, generation, set: set.clone(), ..Intent::default() };
            let _ = Xattrs(&volume.state).log_intent(&mut txn, intent);
            txn.commit().unwrap();
        }
        volume.sync().unwrap();
        let crash = volume.staged_lsn().0;
        drop(volume);
        for round in 0..4 {
            // Read-only first: completed only in memory, again at each open.
            let volume = open(&device, round < 2);
            let wanted = if round < 3 { 3 } else { 0 };
            assert_eq!(volume.state.recovery.lock().intents, wanted);
            assert_eq!(volume.attributes().getxattr(&who, f.ino, b"user.x").unwrap(), b"promised");
            // Completed by a record after the crash, unless it could only be completed in memory.
            let lsn = volume.state.inode(f.ino).unwrap().read().inode.core.lsn;
            assert_eq!(lsn >= crash, round >= 2, "round {round}: {lsn}, {crash}");
            assert_eq!(volume.check(&mut |_, _| {}).unwrap().problems, []);
            if round == 2 {
                volume.namespace().create(&who, Ino::ROOT, b"usable", 0o644).unwrap();
                volume.sync().unwrap();
            }
        }
    }

    /// An open intent is part of recovery's own checkpoint, and the next recovery completes it.
    #[test]
    fn a_checkpoint_carries_open_intents() {
        let device = Arc::new(MemDevice::new(64 << 20));
        mkfs_on(device.clone(), &MkfsOptions::default()).unwrap();
        let volume = open(&device, false);
        let who = Caller::root();
        let f = volume.namespace().create(&who, Ino::ROOT, b"f", 0o644).unwrap();
        let long = vec![9; 9000];
        let id = shoal_format::attr::Id::new(Namespace::User, b"x");
        let value = Xattrs(&volume.state).store_value(f.ino, &id, &long).unwrap();
        let set = Attr { space: id.space, name: id.name, value }.to_bytes();
        let generation = f.generation.0;
        let intent = Intent { ino: f.ino, generation, set, ..Intent::default() };
        let mut txn = volume.state.begin(crate::records::XATTR).unwrap();
        txn.log(Item::IntentLog { id: 5, body: &intent.to_bytes() });
        txn.commit().unwrap();
        // The state that recovery leaves: open, with its value accounted for.
        volume.state.store.intents().note(5, intent.clone());
        let extent = intent.to_set().unwrap().value.extent().unwrap();
        volume.state.store.account(&extent, shoal_txn::ExtentChange::Appears);
        volume.maintenance().checkpoint().unwrap();
        drop(volume);
        let volume = open(&device, false);
        assert_eq!(volume.state.recovery.lock().intents, 1);
        assert_eq!(volume.attributes().getxattr(&who, f.ino, b"user.x").unwrap(), long);
        assert_eq!(volume.check(&mut |_, _| {}).unwrap().problems, []);
        volume.maintenance().checkpoint().unwrap();
        assert_eq!(volume.check(&mut |_, _| {}).unwrap().problems, []);
    }
}
