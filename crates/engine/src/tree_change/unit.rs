//! Units: the inodes that hold the state of a change.

use super::TreeChanges;
use super::gather::Ahead;
use crate::clock::now;
use crate::namei::birth::Birth;
use crate::namei::create::Unused;
use crate::records;
use crate::types::FileKind;
use crate::xattr::{Change, Pending};
use shoal_base::{Code, Error, Ino, Result};
use shoal_format::attr::{Attr, Id, Namespace, Value};
use shoal_format::inode::{Core, Form, Inode};
use shoal_format::item::Item;
use shoal_format::tree_change::{NAME, TreeChange};
use shoal_itable::{InodeRef, Locked};
use shoal_txn::{OrphanSlot, Txn};

/// Estimated bytes that a new unit needs.
const UNIT_COST: u64 = 2048;
/// Units that end in one transaction.
const ENDED: usize = 256;
const _: () = assert!(ENDED * records::CHILD_DROPPED < records::TREE_CHANGE.bytes_max as usize);

/// A part of a change that one thread makes at a time.
pub(super) struct Unit {
    pub ino: Ino,
    pub slot: OrphanSlot,
    pub state: TreeChange,
    pub ahead: Ahead,
}

/// A unit that is about to be made.
pub(super) struct NewUnit<'v> {
    number: Unused<'v>,
    birth: Birth,
    state: TreeChange,
    /// Path of its first directory.
    path: Vec<u8>,
}

/// A unit that has been made, and is still locked.
pub(super) struct Made<'p> {
    pub locked: Locked<'p>,
    pub unit: Unit,
    pub pending: Vec<Pending>,
}

fn attr_of_state(bytes: &[u8]) -> Attr<'_> {
    Attr { space: Namespace::System, name: NAME, value: Value::Local(bytes) }
}

impl<'v> TreeChanges<'v> {
    /// Returns whether an unlinked inode is a unit. No user can set its attribute.
    pub(crate) fn is_unit(self, ino: Ino, inode: &Inode) -> Result<bool> {
        let core = &inode.core;
        if ino.root() != Ino::ROOT.root() || core.nlink != 0 || core.attr_form == Form::Empty {
            return Ok(false);
        }
        let id = Id::new(Namespace::System, NAME);
        let found = self.xattrs().with_attr(ino, inode, &id, |_| Ok(()))?;
        Ok(core.is_file() && found.is_some())
    }

    /// Reads a unit.
    pub(super) fn load(self, ino: Ino, slot: OrphanSlot) -> Result<Unit> {
        if !self.0.store.orphans().has(slot, ino) {
            return Err(Error::Code(Code::Stale));
        }
        let value = self.attributes().hidden(ino, NAME)?;
        let state = value.and_then(|raw| TreeChange::decode(&raw)).ok_or_else(|| {
            Error::corrupt(format!("inode {ino}"), None, "not the state of a change of a tree")
        })?;
        Ok(Unit { ino, slot, state, ahead: Ahead::default() })
    }

    /// Makes the first unit of a change.
    pub(super) fn begin_unit(self, state: &TreeChange) -> Result<Unit> {
        self.0.reading_first(|| {
            let mut txn = self.0.begin_space(UNIT_COST, records::TREE_CHANGE)?;
            let new = self.plan_unit(state.clone(), Vec::new())?;
            let place = new.place()?;
            let mut made = self.make_unit(&mut txn, new, &place)?;
            self.namespace().finish_all(&mut txn, &mut made.locked, made.pending)?;
            txn.stamp(&mut made.locked)?;
            txn.commit()?;
            Ok(made.unit)
        })
    }

    /// Allocates and plans a unit. Nothing is changed, and nothing remains if it is dropped.
    pub(super) fn plan_unit(self, state: TreeChange, path: Vec<u8>) -> Result<NewUnit<'v>> {
        let table = &self.0.root(Ino::ROOT)?.table;
        let top = table.get(Ino::ROOT)?;
        let number = Unused::new(table, Some(table.numbers().allocate(top.at(), 1)?));
        let ino = number.ino()?;
        let birth = self.namespace().birth_with(ino, &attr_of_state(&state.to_bytes()))?;
        Ok(NewUnit { number, birth, state, path })
    }

    /// Makes a planned unit, whose place is [`NewUnit::place`].
    pub(super) fn make_unit<'p>(
        self,
        txn: &mut Txn<'_>,
        new: NewUnit<'_>,
        place: &'p InodeRef,
    ) -> Result<Made<'p>> {
        let stamp = now();
        let [uid, gid, _] = new.state.caller;
        let core = Core {
            mode: FileKind::Regular.mode_bits(),
            uid,
            gid,
            atime: stamp,
            mtime: stamp,
            ctime: stamp,
            btime: stamp,
            ..Core::default()
        };
        new.number.take()?;
        let mut locked = place.write();
        let root = self.0.root(Ino::ROOT)?;
        let pending = self.namespace().fill(txn, root, &mut locked, core, new.birth)?;
        let slot = self.orphans().take_slot(txn, place.ino)?;
        let (ino, ahead) = (place.ino, Ahead::at(new.path));
        let unit = Unit { ino, slot, state: new.state, ahead };
        Ok(Made { locked, unit, pending })
    }

    /// Reads what [`TreeChanges::put_state`] needs. Must be called before the first change.
    pub(super) fn can_put_state(self, own: &Locked<'_>) -> Result<()> {
        match own.inode().core.attr_form {
            Form::Tree => {
                let id = Id::new(Namespace::System, NAME);
                self.xattrs().can_put_in_tree(own.ino(), &id)
            }
            _ => Ok(()),
        }
    }

    /// Replaces the state in a locked unit. All states of a change have the same length, so none
    /// needs more space than the first one. The caller must finish the returned intent.
    pub(super) fn put_state(
        self,
        txn: &mut Txn<'_>,
        own: &mut Locked<'_>,
        state: &TreeChange,
    ) -> Result<Option<Pending>> {
        let (ino, bytes) = (own.ino(), state.to_bytes());
        let attr = attr_of_state(&bytes);
        let pending = match own.inode().core.attr_form {
            Form::Tree => {
                self.xattrs().put_in_tree(txn, ino, &attr)?;
                None
            }
            _ => {
                let plan = self.xattrs().plan(ino, own.inode(), &Change::set(attr))?;
                self.xattrs().apply(txn, own, plan)?
            }
        };
        let ctime = now();
        own.edit(self.0.table(ino)?, txn.epoch()).core.ctime = ctime;
        txn.log_core(own, Item::Links { ino, nlink: 0, ctime });
        Ok(pending)
    }

    /// Ends units: frees their inodes. The changes made so far stay.
    pub(super) fn end_units(self, units: &[Unit]) -> Result<()> {
        for some in units.chunks(ENDED) {
            self.0.reading_first(|| self.try_end(some))?;
        }
        Ok(())
    }

    fn try_end(self, units: &[Unit]) -> Result<()> {
        let mut txn = self.0.begin(records::TREE_CHANGE)?;
        let places = units.iter().map(|unit| self.0.inode(unit.ino)).collect::<Result<Vec<_>>>()?;
        txn.check_memory()?;
        for (unit, place) in units.iter().zip(&places) {
            let mut own = place.write();
            self.free_unit(&mut txn, &mut own, unit.slot)?;
        }
        txn.commit()?;
        self.give_back(&places)
    }

    /// Frees a locked unit. After the commit, [`TreeChanges::give_back`] must be called.
    pub(super) fn free_unit(
        self,
        txn: &mut Txn<'_>,
        own: &mut Locked<'_>,
        slot: OrphanSlot,
    ) -> Result<()> {
        self.orphans().free_inode(txn, own)?;
        self.orphans().free_slot(txn, slot, own.ino());
        Ok(())
    }

    pub(super) fn give_back(self, places: &[InodeRef]) -> Result<()> {
        for place in places {
            self.0.table(place.ino)?.numbers().give_back(place);
        }
        Ok(())
    }
}

impl NewUnit<'_> {
    /// The place of its inode.
    pub(super) fn place(&self) -> Result<InodeRef> {
        self.number.place()
    }
}
