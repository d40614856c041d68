//! Emptying the directories of a removed tree, some entries per transaction.
//!
//! The directory has no name any more, so nothing can be created in it, and only processes already
//! inside can reach its contents. Its children lose their names as by `unlink`: a file with names
//! elsewhere keeps those, an open one stays usable, small ones are freed here. Large files and
//! subdirectories with entries get their own orphan slots and are queued.

use super::ReapStep;
use crate::clock::now;
use crate::name::NameIn;
use crate::namei::{Loss, touch_dir};
use crate::reap::Reaper;
use crate::records::{self, CHILD_DROPPED, STEP_ENDED, STEP_RECORDS};
use crate::state::Orphan;
use crate::xattr::Plan;
use shoal_base::planted::{self, Defect};
use shoal_base::{Code, Error, Ino, Result};
use shoal_format::dirent::{Dirent, SUFFIX_MASK};
use shoal_format::inode::Form;
use shoal_format::item::Item;
use shoal_format::node::{Key, TreeId};
use shoal_itable::{InodeRef, Locked};
use shoal_tree::Batch;
use shoal_txn::{OrphanSlot, Root, Txn};

/// The first children of a directory, locked, each with its planned loss of a name.
struct Children<'c> {
    locked: Vec<Locked<'c>>,
    losses: Vec<Loss>,
}

impl Reaper<'_> {
    pub(super) fn tree_step(self, ino: Ino, slot: OrphanSlot) -> Result<ReapStep> {
        let root = self.0.root(ino)?;
        self.read_children(root, ino)?;
        let mut txn = self.0.begin(records::REAP_TREE)?;
        let dir_ref = root.table.get(ino)?;
        let mut dir = dir_ref.write();
        let core = dir.inode().core;
        let ours = core.is_dir() && core.nlink == 0 && self.0.store.orphans().has(slot, ino);
        if !ours {
            return Ok(self.overtaken(ino, slot));
        }
        let mut batch = Batch::default();
        let (from, end) = (Key::of(ino, 0), Key::behind(ino));
        let next = root.dirents.scan(from, end, self.step_records(), &mut batch)?;
        let refs = children_of(root, ino, &batch)?;
        let mut children = self.lock_children_of(&dir, &batch, &refs, txn.room())?;
        let done = whole_chains(&batch, children.locked.len());
        children.locked.truncate(done);
        children.losses.truncate(done);
        // Attributes outside the inode are read before they are removed, so never after other
        // changes.
        let apart = done > 0 && core.attr_form == Form::Tree;
        let mut is_last = next.is_none() && done == refs.len() && !apart;
        txn.check_memory()?;
        let mut left = Vec::with_capacity(done + 1);
        if done > 0 {
            txn.changing();
            self.drop_children(&mut txn, root, &mut dir, &batch, &mut children, &mut left)?;
        } else if !self.0.holds.may_be_held(ino) {
            is_last = !self.remove_some(&mut txn, &mut dir)?;
        }
        if is_last {
            left.extend(self.drop_empty(&mut txn, &mut dir, slot)?);
        }
        children.locked.iter_mut().try_for_each(|child| txn.stamp(child))?;
        txn.stamp(&mut dir)?;
        let lsn = txn.commit()?;
        drop((children, dir));
        self.tell_links(refs[..done].iter().map(|child| child.ino).chain([ino]));
        self.count_reaped(left.len() as u64);
        // The thread of this step performs the steps of the queued children too.
        self.orphans().let_go(left)?;
        self.0.step_done(lsn)?;
        Ok(if is_last { ReapStep::Done } else { ReapStep::More })
    }

    fn step_records(self) -> usize {
        self.0.options.lab().step_records.clamp(1, STEP_RECORDS)
    }

    /// Reads the next entries and the inodes of their files into memory, outside of a transaction:
    /// thousands of reads of a cold tree would delay all other calls. Errors and concurrent
    /// removals are left to the step.
    fn read_children(self, root: &Root, dir: Ino) -> Result<()> {
        let mut batch = Batch::default();
        let (from, end) = (Key::of(dir, 0), Key::behind(dir));
        root.dirents.scan(from, end, self.step_records(), &mut batch)?;
        for (_, raw) in batch.iter() {
            if let Some(entry) = Dirent::decode(dir.root(), raw)
                && entry.child.root() == dir.root()
            {
                let _ = root.table.get(entry.child);
                self.0.holds.find_out(entry.child);
            }
        }
        Ok(())
    }

    /// Locks the first children for whose removal the record has space; at least one. A further
    /// child is locked only if that needs no waiting, because there is no lock order here.
    fn lock_children_of<'c>(
        self,
        dir: &Locked<'_>,
        batch: &Batch,
        refs: &'c [InodeRef],
        room: usize,
    ) -> Result<Children<'c>> {
        let (ino, core) = (dir.ino(), dir.inode().core);
        let mut children = Children { locked: Vec::new(), losses: Vec::new() };
        // Reserved for the directory itself.
        let mut room = room.saturating_sub(STEP_ENDED);
        for ((key, raw), child) in batch.iter().zip(refs) {
            let is_first = children.locked.is_empty();
            let locked = match child.try_write() {
                Some(locked) => locked,
                None if is_first => child.write(),
                None => break,
            };
            let entry = Dirent::decode(ino.root(), raw).ok_or_else(|| broken(ino, key))?;
            let inode = locked.inode();
            if !inode.core.in_use() || inode.core.nlink == 0 {
                return Err(broken(ino, key));
            }
            let loss = self.namespace().plan_drop(&locked, &NameIn::new(ino, &core, entry.name))?;
            // A change of several transactions must be the only one of its step.
            let alone = matches!(loss, Loss::Name(Plan::Intent(_)));
            let cost = CHILD_DROPPED + loss.record_bytes(locked.inode());
            if !is_first && (alone || cost > room) {
                break;
            }
            room = room.saturating_sub(cost);
            children.locked.push(locked);
            children.losses.push(loss);
            if alone {
                break;
            }
        }
        Ok(children)
    }

    fn drop_children(
        self,
        txn: &mut Txn<'_>,
        root: &Root,
        dir: &mut Locked<'_>,
        batch: &Batch,
        children: &mut Children<'_>,
        left: &mut Vec<crate::orphans::Left>,
    ) -> Result<()> {
        let (ino, stamp, count) = (dir.ino(), now(), children.locked.len());
        let from = match planted::is(Defect::EntryLeft) {
            true => batch.iter().next().map_or(0, |(key, _)| key.lo + 1),
            false => 0,
        };
        let last = batch.iter().nth(count - 1).map_or(Key::of(ino, 0), |(key, _)| key);
        let (from, to) = (Key::of(ino, from), last.next());
        root.dirents.delete_range(from, to, txn.epoch(), &mut |_, _| {})?;
        let end = if to.hi == ino.index() { to.lo } else { u64::MAX };
        txn.log(Item::TreeDelRange { root: ino.root(), tree: TreeId::Dirents, key: from, end });
        let mut alone = None;
        for (child, loss) in children.locked.iter_mut().zip(children.losses.drain(..)) {
            let (free, pending) = self.namespace().drop_link(txn, child, loss, stamp)?;
            left.extend(free);
            if let Some(pending) = pending {
                alone = Some((child, pending));
            }
        }
        touch_dir(txn, &root.table, dir, -(count as i64), 0, stamp);
        match alone {
            Some((child, pending)) => self.intents().finish(txn, child, Some(pending)),
            None => Ok(()),
        }
    }

    /// Frees the directory itself, or keeps it in memory only while it is in use.
    fn drop_empty(
        self,
        txn: &mut Txn<'_>,
        dir: &mut Locked<'_>,
        slot: OrphanSlot,
    ) -> Result<Option<crate::orphans::Left>> {
        let ino = dir.ino();
        if self.0.holds.may_be_held(ino) {
            let within = dir.inode().core.attr_form != Form::Tree;
            match within && self.orphans().detach(txn, dir)? {
                true => self.orphans().free_slot(txn, slot, ino),
                false => {
                    self.0.holds.keep(ino, Orphan::Slot(slot));
                }
            }
            return Ok(None);
        }
        self.orphans().free_inode(txn, dir)?;
        self.orphans().free_slot(txn, slot, ino);
        Ok(Some(crate::orphans::Left::Number(dir.place(self.0.table(ino)?))))
    }
}

fn broken(dir: Ino, key: Key) -> Error {
    let object = format!("entry {:#x} of removed directory {dir}", key.lo);
    Error::corrupt(object, None, "does not match an inode in use")
}

/// Returns the places of a batch's children, which must be in the same subvolume.
fn children_of(root: &Root, dir: Ino, batch: &Batch) -> Result<Vec<InodeRef>> {
    let place = |(key, raw)| {
        let entry = Dirent::decode(dir.root(), raw).filter(|entry| {
            entry.child.root() == dir.root() && entry.child != dir && entry.child != root.top()
        });
        match root.table.get(entry.ok_or_else(|| broken(dir, key))?.child) {
            Err(Error::Code(Code::Stale)) => Err(broken(dir, key)),
            other => other,
        }
    };
    batch.iter().map(place).collect()
}

/// Returns how many of the first `count` entries to remove, so that names of one hash stay
/// together.
fn whole_chains(batch: &Batch, count: usize) -> usize {
    let base = |n: usize| batch.iter().nth(n).map(|(key, _)| key.lo & !SUFFIX_MASK);
    let mut whole = count;
    while whole > 0 && base(whole).is_some() && base(whole) == base(whole - 1) {
        whole -= 1;
    }
    if whole == 0 { count } else { whole }
}
