//! Rename: within a directory and across, replacing, exchanging.

use super::unlink::Loss;
use super::{NAME_COST, touch_dir};
use crate::clock::now;
use crate::dir::Found;
use crate::orphan::Left;
use crate::parent::NameIn;
use crate::perm;
use crate::records;
use crate::types::{Caller, FileKind, RenameFlags, check_name};
use crate::volume::Inner;
use crate::xattr::Plan;
use shoal_base::planted::{self, Defect};
use shoal_base::sync::thread;
use shoal_base::{Code, Error, Ino, Result};
use shoal_format::attr::Link;
use shoal_format::dirent::Dirent;
use shoal_format::inode::{Inode, Stamp};
use shoal_format::item::Item;
use shoal_format::node::Key;
use shoal_itable::{InodeRef, Locked};
use shoal_txn::{Root, Txn};

/// The two names of a rename.
struct Names<'a> {
    from_dir: Ino,
    from: &'a [u8],
    to_dir: Ino,
    to: &'a [u8],
}

/// The directories of a rename, locked; `to` is `None` when they are one.
struct Dirs<'a> {
    from: Locked<'a>,
    to: Option<Locked<'a>>,
}

impl Dirs<'_> {
    fn to_inode(&self) -> &Inode {
        self.to.as_ref().unwrap_or(&self.from).inode()
    }

    /// Stamps all that a rename has locked ([`Txn::stamp`]).
    fn stamp(
        &mut self,
        txn: &mut Txn<'_>,
        source: &mut Locked<'_>,
        target: Option<&mut Locked<'_>>,
    ) -> Result<()> {
        txn.stamp(source)?;
        txn.stamp(&mut self.from)?;
        target.map_or(Ok(()), |inode| txn.stamp(inode))?;
        self.to.as_mut().map_or(Ok(()), |inode| txn.stamp(inode))
    }
}

/// What becomes of the parent pointers of what moves and of what is at its new name, and the time
/// of it all.
struct Pointers {
    source: Plan,
    target: Loss,
    stamp: Stamp,
}

/// What was found about the names of a rename across directories before anything was locked.
struct Ancestry {
    source: Option<Ino>,
    target: Option<Ino>,
    /// What moves is a directory, and would be in a removed tree, and go with it.
    into_removed: bool,
    /// What moves is the new directory or above it.
    source_above: bool,
    /// What is replaced is the old directory or above it.
    target_above: bool,
}

/// A directory must not move into itself or below; what is replaced must not be above.
fn check_loops(ancestry: Option<&Ancestry>, exchange: bool) -> Result<()> {
    match ancestry {
        Some(a) if a.into_removed => Err(Error::Code(Code::NotFound)),
        Some(a) if a.source_above => Err(Error::Code(Code::Invalid)),
        Some(a) if a.target_above && exchange => Err(Error::Code(Code::Invalid)),
        Some(a) if a.target_above => Err(Error::Code(Code::NotEmpty)),
        _ => Ok(()),
    }
}

fn is_dir(found: &Found) -> bool {
    found.kind == FileKind::Directory as u8
}

impl Inner {
    /// Renames `from` in `from_dir` to `to` in `to_dir`, replacing what is there as POSIX says.
    pub fn rename(
        &self,
        who: &Caller,
        from_dir: Ino,
        from: &[u8],
        to_dir: Ino,
        to: &[u8],
        flags: RenameFlags,
    ) -> Result<()> {
        if [from, to].iter().any(|name| *name == b"." || *name == b"..") {
            return Err(Error::Code(Code::Busy));
        }
        if flags.noreplace && flags.exchange {
            return Err(Error::Code(Code::Invalid));
        }
        if from_dir.root() != to_dir.root() {
            return Err(Error::Code(Code::CrossRoot));
        }
        let names = Names { from_dir, from, to_dir, to };
        loop {
            if let Some(done) = self.reading_first(|| self.try_rename(who, &names, flags))? {
                return self.settle(done);
            }
        }
    }

    /// `None`: the names came to mean something else while their ancestors were looked at.
    fn try_rename(
        &self,
        who: &Caller,
        names: &Names<'_>,
        flags: RenameFlags,
    ) -> Result<Option<Option<Left>>> {
        let across = names.from_dir != names.to_dir;
        let root = self.root(names.from_dir)?;
        // Inside the gate: whoever has the mutex waits for no checkpoint, and makes no space.
        let txn = self.begin_space(NAME_COST, records::RENAME)?;
        let _shape = across.then(|| root.rename.lock());
        // Ancestors are looked at before anything is locked: waiting for one while holding the lock
        // of a directory below it could be for ever. Under the mutex they stay ancestors.
        let ancestry = if across { Some(self.ancestry(names)?) } else { None };
        let from_ref = root.table.get(names.from_dir)?;
        let to_ref = root.table.get(names.to_dir)?;
        let mut dirs = lock_both(&from_ref, &to_ref, across);
        self.rename_locked(who, txn, root, &mut dirs, names, flags, ancestry)
    }

    /// The rename itself, which ends the transaction: with both inodes still locked, or the record
    /// of what another changes of them next could come before this one.
    fn rename_locked(
        &self,
        who: &Caller,
        mut txn: Txn<'_>,
        root: &Root,
        dirs: &mut Dirs<'_>,
        names: &Names<'_>,
        flags: RenameFlags,
        ancestry: Option<Ancestry>,
    ) -> Result<Option<Option<Left>>> {
        let source = self.source_of(who, dirs, names)?;
        check_name(names.to)?;
        let target = self.find_entry(names.to_dir, names.to)?;
        let seen = Some((Some(source.child), target.map(|t| t.child)));
        if ancestry.as_ref().map(|a| (a.source, a.target)).is_some_and(|a| Some(a) != seen) {
            return Ok(None);
        }
        match (&target, flags.exchange) {
            (Some(_), _) if flags.noreplace => return Err(Error::Code(Code::Exists)),
            (None, true) => return Err(Error::Code(Code::NotFound)),
            _ => {}
        }
        check_loops(ancestry.as_ref(), flags.exchange)?;
        if target.is_some_and(|t| t.child == source.child) {
            // Two names of one file: nothing to do, says POSIX.
            return Ok(Some(None));
        }
        target.map_or(Ok(()), |t| self.check_removable(names.to_dir, &t))?;
        let source_ref = root.table.get(source.child)?;
        let target_ref = target.map(|t| root.table.get(t.child)).transpose()?;
        let (mut source_inode, mut target_inode) =
            lock_children(&source_ref, target_ref.as_ref(), &source, target.as_ref());
        self.check_child(&source, &source_inode)?;
        if let (Some(found), Some(inode)) = (&target, &target_inode) {
            self.check_child(found, inode)?;
        }
        let replaced = target.as_ref().zip(target_inode.as_ref());
        self.check_permissions(who, dirs, names, (&source, &source_inode), replaced, flags)?;
        let pointers =
            self.plan_pointers(dirs, names, &source_inode, target_inode.as_ref(), flags)?;
        if flags.exchange
            && let (Some(found), Some(inode)) = (&target, &mut target_inode)
        {
            self.exchange(
                &mut txn,
                root,
                dirs,
                names,
                (&source, &mut source_inode),
                (found, inode),
                pointers,
            )?;
            dirs.stamp(&mut txn, &mut source_inode, Some(inode))?;
            txn.commit()?;
            return Ok(Some(None));
        }
        let replaced = target.as_ref().zip(target_inode.as_mut());
        let moved = (&source, &mut source_inode);
        let left = self.move_entry(&mut txn, root, dirs, names, moved, replaced, pointers)?;
        if planted::is(Defect::UnlockedTooEarly) {
            drop((source_inode, target_inode));
        } else {
            dirs.stamp(&mut txn, &mut source_inode, target_inode.as_mut())?;
        }
        txn.commit()?;
        Ok(Some(left))
    }

    /// Plans what becomes of the parent pointers of both: everything that can fail.
    fn plan_pointers(
        &self,
        dirs: &Dirs<'_>,
        names: &Names<'_>,
        source: &Locked<'_>,
        target: Option<&Locked<'_>>,
        flags: RenameFlags,
    ) -> Result<Pointers> {
        let from = NameIn::new(names.from_dir, &dirs.from.inode().core, names.from);
        let to = NameIn::new(names.to_dir, &dirs.to_inode().core, names.to);
        let moves = self.plan_parent(source.ino(), source.inode(), Some(&from), Some(&to))?;
        let other = match target {
            None => Loss::Name(Plan::Nothing),
            Some(target) if flags.exchange => {
                let plan =
                    self.plan_parent(target.ino(), target.inode(), Some(&to), Some(&from))?;
                Loss::Name(plan)
            }
            Some(target) => {
                target.leaves(names.to_dir);
                self.plan_drop(target, &to)?
            }
        };
        Ok(Pointers { source: moves, target: other, stamp: now() })
    }

    fn source_of(&self, who: &Caller, dirs: &Dirs<'_>, names: &Names<'_>) -> Result<Found> {
        self.check_search(who, names.from_dir, dirs.from.inode())?;
        self.check_search(who, names.to_dir, dirs.to_inode())?;
        check_name(names.from)?;
        let source = self.find_entry(names.from_dir, names.from)?;
        let source = source.ok_or(Error::Code(Code::NotFound))?;
        self.check_removable(names.from_dir, &source)?;
        Ok(source)
    }

    /// How the two names stand to each other's directories. Under the rename mutex, without locks.
    fn ancestry(&self, names: &Names<'_>) -> Result<Ancestry> {
        let source = self.find_entry(names.from_dir, names.from)?;
        let target = self.find_entry(names.to_dir, names.to)?;
        let above = |found: &Option<Found>, dir| match found {
            Some(f) if is_dir(f) => self.is_above(f.child, dir),
            _ => Ok(Some(false)),
        };
        let source_above = above(&source, names.to_dir)?;
        Ok(Ancestry {
            source: source.map(|f| f.child),
            target: target.map(|f| f.child),
            into_removed: source_above.is_none(),
            source_above: source_above.unwrap_or(false),
            target_above: above(&target, names.from_dir)?.unwrap_or(false),
        })
    }

    /// Whether `above` is `dir` or one of its ancestors; `None`: neither, and `dir` is a removed
    /// directory, or in one.
    fn is_above(&self, above: Ino, dir: Ino) -> Result<Option<bool>> {
        let mut at = dir;
        // Far deeper than anything real; a damaged volume may have a loop.
        for _ in 0..1 << 20 {
            if at == above {
                return Ok(Some(true));
            }
            if at == Ino::ROOT {
                return Ok(Some(false));
            }
            let inode = match self.inode(at) {
                Err(Error::Code(Code::Stale)) => return Ok(Some(false)),
                other => other?,
            };
            let core = inode.read().inode.core;
            if !core.in_use() || !core.is_dir() {
                return Ok(Some(false));
            }
            if core.nlink == 0 {
                return Ok(None);
            }
            at = Ino(core.parent_or_rdev);
        }
        Err(Error::corrupt(format!("directory {dir}"), None, "its parents form a loop"))
    }

    fn move_entry(
        &self,
        txn: &mut Txn<'_>,
        root: &Root,
        dirs: &mut Dirs<'_>,
        names: &Names<'_>,
        (source, source_inode): (&Found, &mut Locked<'_>),
        mut replaced: Option<(&Found, &mut Locked<'_>)>,
        pointers: Pointers,
    ) -> Result<Option<Left>> {
        let stamp = pointers.stamp;
        let (moves_dir, mut left, mut dropped) = (is_dir(source), None, None);
        let _shape = moves_dir.then(|| self.shape.change());
        let replaces = replaced.is_some();
        let to = NameIn::new(names.to_dir, &dirs.to_inode().core, names.to);
        let mut key = None;
        match &mut replaced {
            Some((found, inode)) => {
                self.replace_entry(txn, found, &to, source.child, source.kind, true)?;
                (left, dropped) = self.drop_link(txn, inode, pointers.target, stamp)?;
            }
            None => {
                let Found { child, kind, .. } = *source;
                key = self.insert_entry(txn, names.to_dir, names.to, child, kind)?;
            }
        }
        // What is done most is one item: the entry and, all that the inode has, its pointer.
        let entry = Dirent { child: source.child, kind: source.kind, name: names.to };
        let moved = match (key, pointers.source) {
            (Some(Key { lo, .. }), Plan::Sole) => {
                self.move_sole(txn, &root.table, source_inode, &to);
                let Link { dir, generation } = to.link;
                txn.log(Item::Named { dir, generation, lo, entry });
                None
            }
            (key, plan) => {
                key.into_iter().for_each(|key| self.log_entry(txn, names.to_dir, key, entry));
                self.apply_parent(txn, source_inode, plan, &to)?
            }
        };
        // Found again: the insertion may have moved a name of the same hash.
        let source_now = self.find_entry(names.from_dir, names.from)?;
        let from = NameIn::new(names.from_dir, &dirs.from.inode().core, names.from);
        self.remove_entry(txn, &source_now.ok_or(Error::Code(Code::Io))?, &from)?;
        self.moved(txn, root, source_inode, names.to_dir, stamp);
        let gone = i64::from(replaces);
        match &mut dirs.to {
            None => {
                let links = -i64::from(moves_dir && replaces);
                touch_dir(txn, &root.table, &mut dirs.from, -gone, links, stamp);
            }
            Some(to) => {
                let links = i64::from(moves_dir);
                touch_dir(txn, &root.table, &mut dirs.from, -1, -links, stamp);
                let links = if replaces { 0 } else { links };
                touch_dir(txn, &root.table, to, 1 - gone, links, stamp);
            }
        }
        self.finish(txn, source_inode, moved)?;
        if let Some((_, inode)) = replaced {
            self.finish(txn, inode, dropped)?;
        }
        Ok(left)
    }

    fn exchange(
        &self,
        txn: &mut Txn<'_>,
        root: &Root,
        dirs: &mut Dirs<'_>,
        names: &Names<'_>,
        (source, source_inode): (&Found, &mut Locked<'_>),
        (target, target_inode): (&Found, &mut Locked<'_>),
        pointers: Pointers,
    ) -> Result<()> {
        let stamp = pointers.stamp;
        let _shape = (is_dir(source) || is_dir(target)).then(|| self.shape.change());
        let from = NameIn::new(names.from_dir, &dirs.from.inode().core, names.from);
        let to = NameIn::new(names.to_dir, &dirs.to_inode().core, names.to);
        self.replace_entry(txn, source, &from, target.child, target.kind, false)?;
        // Found again: read after the first change, in case the two share a hash.
        self.replace_entry(txn, target, &to, source.child, source.kind, false)?;
        self.moved(txn, root, source_inode, names.to_dir, stamp);
        self.moved(txn, root, target_inode, names.from_dir, stamp);
        let moved = self.apply_parent(txn, source_inode, pointers.source, &to)?;
        let Loss::Name(other) = pointers.target else { unreachable!("an exchange keeps both") };
        let other = self.apply_parent(txn, target_inode, other, &from)?;
        let links = i64::from(is_dir(target)) - i64::from(is_dir(source));
        match &mut dirs.to {
            None => touch_dir(txn, &root.table, &mut dirs.from, 0, 0, stamp),
            Some(to) => {
                touch_dir(txn, &root.table, &mut dirs.from, 0, links, stamp);
                touch_dir(txn, &root.table, to, 0, -links, stamp);
            }
        }
        self.finish(txn, source_inode, moved)?;
        self.finish(txn, target_inode, other)
    }

    /// The moved inode's ctime, and a directory's parent.
    fn moved(
        &self,
        txn: &mut Txn<'_>,
        root: &Root,
        inode: &mut Locked<'_>,
        parent: Ino,
        stamp: Stamp,
    ) {
        let ino = inode.ino();
        let core = &mut inode.edit(&root.table, txn.epoch).core;
        core.ctime = stamp;
        let moves = core.is_dir() && core.parent_or_rdev != parent.0;
        if moves && !planted::is(Defect::ParentKept) {
            core.parent_or_rdev = parent.0;
            let core = *core;
            txn.log_core(inode, Item::Core { ino, core });
        } else {
            let nlink = core.nlink;
            txn.log_core(inode, Item::Links { ino, nlink, ctime: stamp });
        }
    }
}

impl Inner {
    /// Permissions and types, in Linux's order: what leaves the old directory, what leaves the new
    /// one,
    /// the ".." of directories that change their parent, and at last whether what goes is empty.
    fn check_permissions(
        &self,
        who: &Caller,
        dirs: &Dirs<'_>,
        names: &Names<'_>,
        (source, source_inode): (&Found, &Locked<'_>),
        target: Option<(&Found, &Locked<'_>)>,
        flags: RenameFlags,
    ) -> Result<()> {
        let across = names.from_dir != names.to_dir;
        let (from, to) = (dirs.from.inode(), dirs.to_inode());
        self.check_change(who, names.from_dir, from)?;
        perm::check_sticky(who, &from.core, &source_inode.inode().core)?;
        self.check_change(who, names.to_dir, to)?;
        if let Some((found, inode)) = target {
            perm::check_sticky(who, &to.core, &inode.inode().core)?;
            match (is_dir(source), is_dir(found)) {
                _ if flags.exchange => {}
                (true, false) => return Err(Error::Code(Code::NotDirectory)),
                (false, true) => return Err(Error::Code(Code::IsDirectory)),
                _ => {}
            }
        }
        if across && is_dir(source) {
            self.permit(who, source.child, source_inode.inode(), perm::WRITE)?;
        }
        if let Some((found, inode)) = target
            && is_dir(found)
        {
            if flags.exchange && across {
                self.permit(who, found.child, inode.inode(), perm::WRITE)?;
            }
            if !flags.exchange && inode.inode().core.size != 0 {
                return Err(Error::Code(Code::NotEmpty));
            }
        }
        Ok(())
    }
}

/// Locks one or two directories, never waiting for one while holding the other.
fn lock_both<'a>(from: &'a InodeRef, to: &'a InodeRef, across: bool) -> Dirs<'a> {
    if !across {
        return Dirs { from: from.write(), to: None };
    }
    loop {
        let first = from.write();
        if let Some(second) = to.try_write() {
            return Dirs { from: first, to: Some(second) };
        }
        drop(first);
        let second = to.write();
        if let Some(first) = from.try_write() {
            return Dirs { from: first, to: Some(second) };
        }
        drop(second);
        thread::yield_now();
    }
}

/// Locks the moved inode and the one at its new name: directories first, then by number.
fn lock_children<'a>(
    source: &'a InodeRef,
    target: Option<&'a InodeRef>,
    source_found: &Found,
    target_found: Option<&Found>,
) -> (Locked<'a>, Option<Locked<'a>>) {
    let Some(target) = target else { return (source.write(), None) };
    let rank = |f: &Found| (!is_dir(f), f.child);
    if target_found.is_none_or(|t| rank(source_found) < rank(t)) {
        let first = source.write();
        (first, Some(target.write()))
    } else {
        let second = target.write();
        (source.write(), Some(second))
    }
}
