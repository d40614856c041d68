//! The third step of a batch: its changes, one after the other, on locked inodes. Each takes the
//! steps of its single call in `namei/`.

use super::locks::{Locks, Place};
use super::prepared::{Make, Prepared, Step};
use super::{BATCH_MAX, DIRS_MAX, Stop};
use crate::batch::Batches;
use crate::clock::now;
use crate::directories::Found;
use crate::name::NameIn;
use crate::namei::birth::New;
use crate::namei::rename::{Dirs, Names, Renamed, ancestry_of};
use crate::namei::{check_project, touch_dir};
use crate::orphans::Left;
use crate::permissions;
use crate::stat::attr_of;
use crate::types::{Caller, FileKind, SetAttr, XattrFlags};
use crate::xattr::{Pending, Plan};
use shoal_base::limits::LINK_MAX;
use shoal_base::planted::{self, Defect};
use shoal_base::{Code, Error, Ino, Result};
use shoal_format::inode::{Core, FLAG_CAPABILITY, FLAG_TRUNCATING};
use shoal_format::item::Item;
use shoal_itable::Locked;
use shoal_txn::{Root, Txn};
use std::cell::RefMut;
use std::collections::BTreeSet;

/// A batch that is being applied.
pub(super) struct Applying<'b, 'l> {
    volume: Batches<'b>,
    root: &'b Root,
    who: &'b Caller,
    batch: &'b Prepared<'b, 'b>,
    locks: &'b Locks<'l>,
    /// Work that remains after the commit.
    left: Vec<Left>,
    /// Intents to finish when the record is complete, and the inodes they change.
    pending: Vec<(Ino, Pending)>,
    /// Inodes whose attributes or names have been changed. Of those that are directories, the two
    /// times may differ.
    timed: BTreeSet<Ino>,
}

/// An error of a change, or that all must be resolved again.
enum Undone {
    Error(Error),
    Stop(Stop),
}

impl From<Error> for Undone {
    fn from(error: Error) -> Undone {
        match error {
            Error::Code(Code::Again) => Undone::Stop(Stop::Changed),
            error => Undone::Error(error),
        }
    }
}

impl From<Stop> for Undone {
    fn from(stop: Stop) -> Undone {
        Undone::Stop(stop)
    }
}

type Done<T = ()> = Result<T, Undone>;

impl<'b, 'l> Applying<'b, 'l> {
    pub(super) fn new(
        volume: Batches<'b>,
        root: &'b Root,
        who: &'b Caller,
        batch: &'b Prepared<'b, 'b>,
        locks: &'b Locks<'l>,
    ) -> Applying<'b, 'l> {
        let (left, pending, timed) = (Vec::new(), Vec::new(), BTreeSet::new());
        Applying { volume, root, who, batch, locks, left, pending, timed }
    }

    /// Makes all changes, in memory and in the record.
    pub(super) fn all(&mut self, txn: &mut Txn<'_>) -> Result<(), Stop> {
        for (index, step) in self.batch.steps.iter().enumerate() {
            let done = self.one(txn, step).and_then(|()| Ok(self.check_size(txn)?));
            done.map_err(|undone| match undone {
                Undone::Error(error) => Stop::Failed(index, error),
                Undone::Stop(stop) => stop,
            })?;
        }
        Ok(())
    }

    fn check_size(&self, txn: &Txn<'_>) -> Result<()> {
        txn.check_memory()?;
        if txn.len() <= BATCH_MAX && txn.dirs_touched() <= DIRS_MAX {
            return Ok(());
        }
        let message = format!(
            "the batch takes {} bytes of journal in {} directories, of at most {BATCH_MAX} and \
             {DIRS_MAX}: split it",
            txn.len(),
            txn.dirs_touched(),
        );
        Err(Error::refused(Code::TooBig, message))
    }

    fn one(&mut self, txn: &mut Txn<'_>, step: &Step<'_>) -> Done {
        match step {
            Step::Make(make) => {
                let mut parent = self.get(make.dir)?;
                match make.replaces {
                    None => match self.make(txn, self.who, &mut parent.inode, make, &make.wanted())
                    {
                        // The name was free when it was resolved.
                        Err(Undone::Error(Error::Code(Code::Exists))) if make.may_replace => {
                            Err(Stop::Changed.into())
                        }
                        made => made,
                    },
                    Some(old) => self.replace(txn, &mut parent.inode, make, old),
                }
            }
            Step::Link { from_dir, from, file, dir, name } => {
                self.check_name_of(*from_dir, from, *file)?;
                self.link(txn, *file, *dir, name)
            }
            Step::Rename { names, whiteout } => self.rename(txn, names, *whiteout),
            Step::Remove { dir, name, want_dir } => {
                let mut parent = self.get(*dir)?;
                self.remove(txn, &mut parent.inode, name, *want_dir)
            }
            Step::SetAttr { ino, set } => self.set_attr(txn, *ino, set),
            Step::SetXattr { ino, name, value } => self.set_xattr(txn, *ino, name, *value),
            Step::Fails(error) => Err(error.clone().into()),
        }
    }

    fn make(
        &mut self,
        txn: &mut Txn<'_>,
        who: &Caller,
        parent: &mut Locked<'_>,
        make: &Make<'_>,
        new: &New<'_>,
    ) -> Done {
        let (volume, table) = (self.volume, &self.root.table);
        volume.namespace().check_make(who, parent, make.name, new.is_dir())?;
        let charge = volume.namespace().charge_new(parent, make.name, new)?;
        let planned = volume.namespace().plan_make(txn, who, parent, make.name, new, make.ino)?;
        let stamp = planned.core.ctime;
        let mut inode = self.get(make.ino)?;
        inode.inode.pay(charge);
        let (_, pending) =
            volume.namespace().apply_make(txn, self.root, &mut inode.inode, planned)?;
        touch_dir(txn, table, parent, 1, i64::from(new.is_dir()), stamp);
        self.pending.extend(pending.into_iter().map(|intent| (make.ino, intent)));
        Ok(())
    }

    /// Puts a new file in the place of another, whose permission bits it takes.
    fn replace(
        &mut self,
        txn: &mut Txn<'_>,
        parent: &mut Locked<'_>,
        make: &Make<'_>,
        old: Ino,
    ) -> Done {
        self.check_name_of(make.dir, make.name, old)?;
        let mode = {
            let old = self.get(old)?;
            let (ino, inode) = (old.inode.ino(), old.inode.inode());
            if FileKind::from_mode(inode.core.mode) == Some(FileKind::Regular) {
                self.volume.permissions().permit(self.who, ino, inode, permissions::WRITE)?;
                Some(inode.core.mode & 0o777)
            } else {
                None
            }
        };
        self.remove(txn, parent, make.name, false)?;
        let Some(mode) = mode else {
            return self.make(txn, self.who, parent, make, &make.wanted());
        };
        // The umask is not for a mode that is there already.
        let who = Caller { umask: 0, ..self.who.clone() };
        let new = New { mode: make.mode & !0o7777 | mode, ..make.wanted() };
        self.make(txn, &who, parent, make, &new)
    }

    fn link(&mut self, txn: &mut Txn<'_>, file: Ino, dir: Ino, name: &[u8]) -> Done {
        let volume = self.volume;
        let mut parent = self.get(dir)?;
        volume.namespace().check_make(self.who, &parent.inode, name, false)?;
        // A directory, `dir` itself among them, gets no further name.
        let is_dir = file == dir || self.get(file)?.inode.inode().core.is_dir();
        if is_dir {
            let exists = volume.directories().find_entry(dir, name)?.is_some();
            return Err(Error::Code(if exists { Code::Exists } else { Code::NotPermitted }).into());
        }
        let mut inode = self.get(file)?;
        let core = inode.inode.inode().core;
        attr_of(file, inode.inode.inode())?;
        // Not a name of it any more: found again.
        if core.nlink == 0 {
            return Err(Stop::Changed.into());
        }
        if core.nlink == LINK_MAX {
            return Err(Error::Code(Code::TooManyLinks).into());
        }
        check_project(&core, &parent.inode.inode().core)?;
        let here = NameIn::new(dir, &parent.inode.inode().core, name);
        self.check_intent(file)?;
        let plan = self.volume.namespace().plan_link(&inode.inode, &here)?;
        let stamp = now();
        let pending =
            volume.namespace().apply_link(txn, self.root, &mut inode.inode, &here, plan, stamp)?;
        touch_dir(txn, &self.root.table, &mut parent.inode, 1, 0, stamp);
        self.later(file, pending);
        Ok(())
    }

    fn rename(&mut self, txn: &mut Txn<'_>, names: &Names<'_>, whiteout: Option<Ino>) -> Done {
        let volume = self.volume;
        let mut from = self.get(names.from_dir)?;
        let mut to = if names.is_across() { Some(self.get(names.to_dir)?) } else { None };
        let mut dirs =
            Dirs { from: &mut from.inode, to: to.as_mut().map(|place| &mut place.inode) };
        let found = volume.namespace().resolve_rename(self.who, &dirs, names)?;
        let target = found.target.as_ref();
        let ancestry = match names.is_across() {
            true => {
                let cores = [dirs.from.inode().core, dirs.to_inode().core];
                ancestry_of(names, Some(&found.source), target, &mut |ino| match ino {
                    _ if ino == names.from_dir => Ok(Some(cores[0])),
                    _ if ino == names.to_dir => Ok(Some(cores[1])),
                    _ => self.core_of(ino),
                })?
            }
            false => Default::default(),
        };
        volume.namespace().check_names(names, &found, ancestry)?;
        // Otherwise the names mean something else than when they were resolved.
        if names.flags.whiteout && whiteout.is_some() == found.is_one_file() {
            return Err(Stop::Changed.into());
        }
        if found.is_one_file() {
            return Ok(());
        }
        let mut source = self.get(found.source.child)?;
        let mut other = target.map(|target| self.get(target.child)).transpose()?;
        let replaced = other.as_ref().map(|place| &place.inode);
        volume.namespace().check_rename(self.who, &dirs, names, &found, &source.inode, replaced)?;
        self.check_intent(found.source.child)?;
        target.map_or(Ok(()), |target| self.check_intent(target.child))?;
        let mut new = whiteout.map(|ino| self.get(ino)).transpose()?;
        if let Some(new) = &mut new {
            new.inode.pay(volume.namespace().charge_whiteout(dirs.from)?);
        }
        if let (false, Some(place)) = (names.flags.exchange, &other) {
            check_whole(&place.inode)?;
        }
        let inodes = Renamed {
            source: &mut source.inode,
            target: other.as_mut().map(|place| &mut place.inode),
            whiteout: new.as_mut().map(|place| &mut place.inode),
        };
        let plan = volume.namespace().plan_rename(self.who, &dirs, names, &inodes)?;
        let (left, pending) = volume
            .namespace()
            .apply_rename(txn, self.root, &mut dirs, names, &found, inodes, plan)?;
        self.left.extend(left);
        self.timed.extend([found.source.child].into_iter().chain(target.map(|it| it.child)));
        self.later(found.source.child, pending.source);
        if let Some(target) = target {
            self.later(target.child, pending.target);
        }
        if let Some(ino) = whiteout {
            self.pending.extend(pending.whiteout.into_iter().map(|intent| (ino, intent)));
        }
        Ok(())
    }

    fn remove(
        &mut self,
        txn: &mut Txn<'_>,
        parent: &mut Locked<'_>,
        name: &[u8],
        want_dir: bool,
    ) -> Done {
        let volume = self.volume;
        let found: Found = volume.namespace().entry_to_remove(self.who, parent, name)?;
        let mut child = self.get(found.child)?;
        volume.namespace().check_remove(self.who, parent, &child.inode, &found, want_dir)?;
        check_whole(&child.inode)?;
        let here = NameIn::new(parent.ino(), &parent.inode().core, name);
        self.check_intent(found.child)?;
        let loss = volume.namespace().plan_drop(&child.inode, &here)?;
        let stamp = now();
        let (left, pending) =
            volume.namespace().apply_remove(txn, &mut child.inode, &found, &here, loss, stamp)?;
        touch_dir(txn, &self.root.table, parent, -1, -i64::from(want_dir), stamp);
        self.left.extend(left);
        self.later(found.child, pending);
        Ok(())
    }

    /// Checks that a name in a locked directory means the inode that it meant when it was resolved.
    fn check_name_of(&self, dir: Ino, name: &[u8], ino: Ino) -> Done {
        let trusted = matches!(name, b"." | b"..") || planted::is(Defect::BatchNameUnchecked);
        match trusted
            || self.volume.directories().find_entry(dir, name)?.is_some_and(|it| it.child == ino)
        {
            true => Ok(()),
            false => Err(Stop::Changed.into()),
        }
    }

    fn set_attr(&mut self, txn: &mut Txn<'_>, ino: Ino, set: &SetAttr) -> Done {
        let volume = self.volume;
        let mut place = self.get(ino)?;
        let inode = &mut place.inode;
        attr_of(ino, inode.inode())?;
        let core = volume.attributes().changed_core(self.who, ino, inode.inode(), set)?;
        let owner = set.uid.is_some() || set.gid.is_some();
        if owner && core.flags & FLAG_CAPABILITY != 0 {
            let message = "a file with capabilities changes its owner outside of batches only";
            return Err(Error::refused(Code::NotSupported, message).into());
        }
        let list = match set.mode {
            Some(_) => volume.permissions().plan_chmod(ino, inode.inode(), core.mode)?,
            None => Plan::Nothing,
        };
        if !matches!(list, Plan::Nothing) {
            self.check_intent(ino)?;
        }
        self.timed.insert(ino);
        txn.changing();
        volume.0.put_core(txn, inode, core)?;
        let pending = volume.xattrs().apply(txn, inode, list)?;
        self.later(ino, pending);
        Ok(())
    }

    fn set_xattr(
        &mut self,
        txn: &mut Txn<'_>,
        ino: Ino,
        name: &[u8],
        value: Option<&[u8]>,
    ) -> Done {
        let attributes = self.volume.attributes();
        self.check_intent(ino)?;
        let mut place = self.get(ino)?;
        let inode = place.inode.inode();
        let (plan, core) = match value {
            Some(value) => {
                attributes.plan_set(self.who, ino, inode, name, value, XattrFlags::default())?
            }
            None => attributes.plan_remove(self.who, ino, inode, name)?,
        };
        self.timed.insert(ino);
        txn.changing();
        let pending = attributes.apply_with(txn, &mut place.inode, plan, core)?;
        self.later(ino, pending);
        Ok(())
    }

    fn get(&self, ino: Ino) -> Done<RefMut<'b, Place<'l>>> {
        Ok(self.locks.get(ino)?)
    }

    /// The core of a directory above one that is concerned. It may not be waited for.
    fn core_of(&self, ino: Ino) -> Result<Option<Core>> {
        if let Some(core) = self.locks.look(ino, |inode| inode.core) {
            return Ok(Some(core));
        }
        // Directories stand still: renames across take the mutex that this one holds, so what is
        // read without the lock of this directory stays so.
        match self.root.table.get(ino) {
            Err(Error::Code(Code::Stale)) => Ok(None),
            inode => match inode?.try_write() {
                Some(inode) => Ok(Some(inode.inode().core)),
                None => Err(Error::Code(Code::Again)),
            },
        }
    }

    /// Refuses a further change of the names or lists of an inode that has an intent pending: it is
    /// not what the plan would take it for, and must not be freed before the intent is finished.
    fn check_intent(&self, ino: Ino) -> Result<()> {
        if !self.pending.iter().any(|(other, _)| *other == ino) {
            return Ok(());
        }
        let message = format!(
            "inode {ino} has more attributes and names than it has room for, and takes one change \
             in a batch: put the next in another"
        );
        Err(Error::refused(Code::NotSupported, message))
    }

    fn later(&mut self, ino: Ino, pending: Option<Pending>) {
        self.pending.extend(pending.map(|intent| (ino, intent)));
    }

    /// Completes the record: logs the directories, leaves unlinked inodes that are in use to their
    /// last release, finishes intents. After this only the journal can make the batch fail. Returns
    /// the work that remains after the commit.
    pub(super) fn finish(self, txn: &mut Txn<'_>) -> Result<Vec<Left>> {
        let Applying { volume, locks, left, pending, timed, .. } = self;
        for dir in txn.settle() {
            let core = locks.look(dir, |inode| inode.core).filter(Core::in_use);
            let Some(Core { nlink, size, mtime: stamp, ctime, .. }) = core else { continue };
            txn.log(Item::DirTouch { ino: dir, nlink, size, stamp });
            // That sets both times. (Whether they differ is the clock's choice, and a record must
            // not depend on the clock.)
            if timed.contains(&dir) && !planted::is(Defect::BatchTimeLost) {
                txn.log(Item::Links { ino: dir, nlink, ctime });
            }
        }
        let held = |left| match left {
            Left::Slot(ino, slot) => {
                volume.orphans().left_of(ino, slot, volume.0.holds.may_be_held(ino))
            }
            number => Some(number),
        };
        let left = left.into_iter().filter_map(held).collect();
        for (ino, intent) in pending {
            if let Ok(mut place) = locks.get(ino) {
                volume.intents().finish(txn, &mut place.inode, Some(intent))?;
            }
        }
        locks.each_changed(|inode| txn.stamp(inode))?;
        Ok(left)
    }
}

/// A file whose tail is being removed by another call has a slot that is that call's.
fn check_whole(inode: &Locked<'_>) -> Result<()> {
    match inode.inode().core.flags & FLAG_TRUNCATING {
        0 => Ok(()),
        _ => Err(Error::Code(Code::Again)),
    }
}
