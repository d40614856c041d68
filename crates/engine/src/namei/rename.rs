//! Rename: within a directory and across, replacing, exchanging.
//!
//! Steps of [`Namespace::try_rename`]: lock the directories, *resolve* the names, lock their
//! inodes, *check*, *plan* (the steps that can fail), *apply* to memory and record (`moving.rs`),
//! commit. A batch takes the same steps (`batch/apply.rs`).

use super::create::Unused;
use super::{NAME_COST, check_project, is_dir};
use crate::directories::Found;
use crate::namei::Namespace;
use crate::orphans::Left;
use crate::permissions;
use crate::records;
use crate::types::{Caller, RenameFlags, check_name};
use crate::xattr::Pending;
use shoal_base::planted::{self, Defect};
use shoal_base::sync::thread;
use shoal_base::timing::Call;
use shoal_base::{Code, Error, Ino, Result};
use shoal_format::inode::{Core, Inode};
use shoal_itable::{InodeRef, Locked};
use shoal_txn::Txn;

/// Intents that must be finished once the record is complete.
#[derive(Default)]
pub(crate) struct RenamePending {
    pub source: Option<Pending>,
    pub target: Option<Pending>,
    pub whiteout: Vec<Pending>,
}

/// The two names of a rename.
#[derive(Clone, Copy)]
pub(crate) struct Names<'a> {
    pub from_dir: Ino,
    pub from: &'a [u8],
    pub to_dir: Ino,
    pub to: &'a [u8],
    pub flags: RenameFlags,
}

impl Names<'_> {
    /// Checks the conditions of a rename that do not depend on the volume.
    ///
    /// # Errors
    /// `EBUSY` for `.` and `..`, `EINVAL` for contradictory flags, `EXDEV` for directories of
    /// different subvolumes.
    pub(crate) fn check(&self) -> Result<()> {
        if [self.from, self.to].iter().any(|name| *name == b"." || *name == b"..") {
            return Err(Error::Code(Code::Busy));
        }
        if self.flags.exchange && (self.flags.noreplace || self.flags.whiteout) {
            return Err(Error::Code(Code::Invalid));
        }
        if self.from_dir.root() != self.to_dir.root() {
            return Err(Error::Code(Code::CrossRoot));
        }
        Ok(())
    }
    pub(crate) fn is_across(&self) -> bool {
        self.from_dir != self.to_dir
    }
}

/// The locked directories of a rename; `to` is `None` if both are the same.
pub(crate) struct Dirs<'d, 'a> {
    pub from: &'d mut Locked<'a>,
    pub to: Option<&'d mut Locked<'a>>,
}

impl Dirs<'_, '_> {
    pub(crate) fn to_inode(&self) -> &Inode {
        self.to.as_deref().unwrap_or(self.from).inode()
    }
}

/// The locked inodes of a rename.
pub(crate) struct Renamed<'d, 'a> {
    pub source: &'d mut Locked<'a>,
    /// Inode that is replaced or exchanged.
    pub target: Option<&'d mut Locked<'a>>,
    /// Free inode that becomes the whiteout.
    pub whiteout: Option<&'d mut Locked<'a>>,
}

/// The entries of a rename's names, found while their directories are locked.
#[derive(Clone, Copy)]
pub(crate) struct Resolved {
    pub source: Found,
    /// Entry that is replaced or exchanged.
    pub target: Option<Found>,
}

/// Ancestor relations between the renamed inodes and the directories.
#[derive(Clone, Copy, Default)]
pub(crate) struct Ancestry {
    /// The source is a directory, and the new directory has been unlinked or is below an unlinked
    /// one.
    pub into_removed: bool,
    /// The source is the new directory or an ancestor of it.
    pub source_above: bool,
    /// The target is the old directory or an ancestor of it.
    pub target_above: bool,
}

impl Ancestry {
    /// Checks that no directory moves below itself, and that no replaced directory contains the
    /// source.
    fn check(&self, exchange: bool) -> Result<()> {
        match self {
            Ancestry { into_removed: true, .. } => Err(Error::Code(Code::NotFound)),
            Ancestry { source_above: true, .. } => Err(Error::Code(Code::Invalid)),
            Ancestry { target_above: true, .. } if exchange => Err(Error::Code(Code::Invalid)),
            Ancestry { target_above: true, .. } => Err(Error::Code(Code::NotEmpty)),
            _ => Ok(()),
        }
    }
}

/// The ancestry of two names, and the inodes that they had at that time.
struct SeenAncestry {
    source: Option<Ino>,
    target: Option<Ino>,
    ancestry: Ancestry,
}

impl<'v> Namespace<'v> {
    /// Renames `from` in `from_dir` to `to` in `to_dir`. Replaces an existing target as POSIX
    /// specifies.
    pub fn rename(
        self,
        who: &Caller,
        from_dir: Ino,
        from: &[u8],
        to_dir: Ino,
        to: &[u8],
        flags: RenameFlags,
    ) -> Result<()> {
        let names = Names { from_dir, from, to_dir, to, flags };
        self.0.measured(Call::Rename, || {
            names.check()?;
            loop {
                if let Some(done) = self.0.reading_first(|| self.try_rename(who, &names))? {
                    return self.orphans().settle(done);
                }
            }
        })
    }

    /// Returns `None`, without a change, if the inodes of the names changed while their ancestors
    /// were determined.
    fn try_rename(self, who: &Caller, names: &Names<'_>) -> Result<Option<Option<Left>>> {
        let across = names.is_across();
        let root = self.0.root(names.from_dir)?;
        // Locked inside the transaction, so that its holder never waits for a checkpoint and never
        // has to free space.
        let (mut txn, is_short) = self.begin_rename(names.flags)?;
        let _shape = across.then(|| root.rename.lock());
        // Ancestors are determined before anything is locked: waiting for one while holding the
        // lock of a directory below it could deadlock. The mutex keeps them ancestors.
        let seen = if across { Some(self.seen_ancestry(names)?) } else { None };
        let from_ref = root.table.get(names.from_dir)?;
        let to_ref = root.table.get(names.to_dir)?;
        let (mut from_dir, mut to_dir) = lock_both(&from_ref, &to_ref, across);
        let mut dirs = Dirs { from: &mut from_dir, to: to_dir.as_mut() };

        let found = self.resolve_rename(who, &dirs, names)?;
        let target_ino = found.target.map(|target| target.child);
        let now = (Some(found.source.child), target_ino);
        if seen.as_ref().is_some_and(|seen| (seen.source, seen.target) != now) {
            return Ok(None);
        }
        self.check_names(names, &found, seen.map(|seen| seen.ancestry).unwrap_or_default())?;
        if found.is_one_file() {
            return Ok(Some(None));
        }
        let source_ref = root.table.get(found.source.child)?;
        let target_ref = target_ino.map(|ino| root.table.get(ino)).transpose()?;
        let number = self.whiteout_number(root, &from_ref, dirs.from, names.flags)?;
        let new = number.as_ref().map(Unused::place).transpose()?;
        let (mut source, mut target) = lock_children(&source_ref, target_ref.as_ref(), &found);

        self.check_rename(who, &dirs, names, &found, &source, target.as_ref())?;
        if is_short && found.grows(names) {
            return Err(Error::Code(Code::NoSpace));
        }
        let mut whiteout = new.as_ref().map(InodeRef::write);
        if let Some(whiteout) = &mut whiteout {
            whiteout.pay(self.charge_whiteout(dirs.from)?);
        }
        let inodes =
            Renamed { source: &mut source, target: target.as_mut(), whiteout: whiteout.as_mut() };
        let plan = self.plan_rename(who, &dirs, names, &inodes)?;
        let (left, pending) =
            self.apply_rename(&mut txn, root, &mut dirs, names, &found, inodes, plan)?;
        number.map(Unused::take).transpose()?;
        let inodes =
            Renamed { source: &mut source, target: target.as_mut(), whiteout: whiteout.as_mut() };
        self.finish_rename(&mut txn, inodes, pending)?;
        // All must still be locked. Otherwise the record of another call's next change could
        // precede this one.
        if planted::is(Defect::UnlockedTooEarly) && !names.flags.exchange {
            drop((source, target, whiteout));
        } else {
            stamp_all(&mut txn, [Some(&mut source), target.as_mut(), whiteout.as_mut()])?;
            stamp_all(&mut txn, [Some(&mut from_dir), to_dir.as_mut()])?;
        }
        txn.commit()?;
        Ok(Some(left))
    }

    /// Begins a rename. Returns whether it may use no more space than there is now.
    fn begin_rename(self, flags: RenameFlags) -> Result<(Txn<'v>, bool)> {
        let (cost, kind) = match flags.whiteout {
            false => (NAME_COST, records::RENAME),
            true => (2 * NAME_COST, records::WHITEOUT),
        };
        match self.0.begin_space(cost, kind) {
            Err(e) if e.is(Code::NoSpace) => Ok((self.0.begin_from_reserve(kind)?, true)),
            begun => Ok((begun?, false)),
        }
    }

    /// Finishes the intents of a rename.
    fn finish_rename(
        self,
        txn: &mut Txn<'_>,
        inodes: Renamed<'_, '_>,
        pending: RenamePending,
    ) -> Result<()> {
        self.intents().finish(txn, inodes.source, pending.source)?;
        if let Some(target) = inodes.target {
            self.intents().finish(txn, target, pending.target)?;
        }
        match inodes.whiteout {
            Some(whiteout) => self.finish_all(txn, whiteout, pending.whiteout),
            None => Ok(()),
        }
    }

    /// Finds the entries of the names in the locked directories.
    pub(crate) fn resolve_rename(
        self,
        who: &Caller,
        dirs: &Dirs<'_, '_>,
        names: &Names<'_>,
    ) -> Result<Resolved> {
        self.check_search(who, names.from_dir, dirs.from.inode())?;
        self.check_search(who, names.to_dir, dirs.to_inode())?;
        check_name(names.from)?;
        let source = self.directories().find_entry(names.from_dir, names.from)?;
        let source = source.ok_or(Error::Code(Code::NotFound))?;
        self.check_removable(names.from_dir, &source)?;
        check_name(names.to)?;
        Ok(Resolved { source, target: self.directories().find_entry(names.to_dir, names.to)? })
    }

    /// Checks the flags against the entries found, and that no directory would become its own
    /// ancestor.
    pub(crate) fn check_names(
        self,
        names: &Names<'_>,
        found: &Resolved,
        ancestry: Ancestry,
    ) -> Result<()> {
        match (&found.target, names.flags.exchange) {
            (Some(_), _) if names.flags.noreplace => return Err(Error::Code(Code::Exists)),
            (None, true) => return Err(Error::Code(Code::NotFound)),
            _ => {}
        }
        ancestry.check(names.flags.exchange)?;
        match &found.target {
            Some(target) if !found.is_one_file() => self.check_removable(names.to_dir, target),
            _ => Ok(()),
        }
    }

    /// Checks permissions and types in the order of Linux: removal from the old directory, removal
    /// from the new one, the ".." of directories that change their parent, and last that a replaced
    /// directory is empty.
    pub(crate) fn check_rename(
        self,
        who: &Caller,
        dirs: &Dirs<'_, '_>,
        names: &Names<'_>,
        found: &Resolved,
        source: &Locked<'_>,
        target: Option<&Locked<'_>>,
    ) -> Result<()> {
        self.check_child(&found.source, source)?;
        let target = found.target.as_ref().zip(target);
        if let Some((entry, inode)) = target {
            self.check_child(entry, inode)?;
        }
        let (across, exchange) = (names.is_across(), names.flags.exchange);
        let (from, to) = (dirs.from.inode(), dirs.to_inode());
        self.check_change(who, names.from_dir, from)?;
        permissions::check_sticky(who, &from.core, &source.inode().core)?;
        self.check_change(who, names.to_dir, to)?;
        if let Some((entry, inode)) = target {
            permissions::check_sticky(who, &to.core, &inode.inode().core)?;
            match (is_dir(&found.source), is_dir(entry)) {
                _ if exchange => {}
                (true, false) => return Err(Error::Code(Code::NotDirectory)),
                (false, true) => return Err(Error::Code(Code::IsDirectory)),
                _ => {}
            }
        }
        if across && is_dir(&found.source) {
            self.permissions().permit(who, source.ino(), source.inode(), permissions::WRITE)?;
        }
        if let Some((entry, inode)) = target
            && is_dir(entry)
        {
            if exchange && across {
                self.permissions().permit(who, entry.child, inode.inode(), permissions::WRITE)?;
            }
            if !exchange && inode.inode().core.size != 0 {
                return Err(Error::Code(Code::NotEmpty));
            }
        }
        if across {
            self.check_projects(dirs, source)?;
            if let Some((_, inode)) = target.filter(|_| exchange) {
                self.check_projects(dirs, inode)?;
            }
        }
        Ok(())
    }

    /// Checks that an inode stays in its project when it changes its directory. The directory of a
    /// project is in the project of its parent, so to speak.
    fn check_projects(self, dirs: &Dirs<'_, '_>, inode: &Locked<'_>) -> Result<()> {
        let (from, to) = (&dirs.from.inode().core, &dirs.to_inode().core);
        let core = &inode.inode().core;
        match self.0.store.roots().projects().is_top(core.project, inode.ino()) {
            false => check_project(core, to).and_then(|()| check_project(core, from)),
            true => check_project(from, to),
        }
    }

    /// Determines the ancestry of the two names. The rename mutex must be held, and no inode lock.
    fn seen_ancestry(self, names: &Names<'_>) -> Result<SeenAncestry> {
        let source = self.directories().find_entry(names.from_dir, names.from)?;
        let target = self.directories().find_entry(names.to_dir, names.to)?;
        let ancestry = ancestry_of(names, source.as_ref(), target.as_ref(), &mut |ino| match self
            .0
            .inode(ino)
        {
            Err(Error::Code(Code::Stale)) => Ok(None),
            inode => Ok(Some(inode?.read().inode.core)),
        })?;
        let [source, target] = [source, target].map(|found| found.map(|found| found.child));
        Ok(SeenAncestry { source, target, ancestry })
    }
}

impl Resolved {
    /// Returns whether both are names of one file: then POSIX requires that nothing is done.
    pub(crate) fn is_one_file(&self) -> bool {
        self.target.is_some_and(|target| target.child == self.source.child)
    }

    /// Returns whether the names need more space afterwards. Those of a target are there already.
    fn grows(&self, names: &Names<'_>) -> bool {
        names.flags.whiteout || self.target.is_none() && names.to.len() > names.from.len()
    }
}

/// Determines the ancestry of two entries. `core_of` returns the core of a directory, `None` if
/// there is no such inode.
pub(crate) fn ancestry_of(
    names: &Names<'_>,
    source: Option<&Found>,
    target: Option<&Found>,
    core_of: &mut dyn FnMut(Ino) -> Result<Option<Core>>,
) -> Result<Ancestry> {
    let mut above = |found: Option<&Found>, dir| match found {
        Some(found) if is_dir(found) => is_above(found.child, dir, core_of),
        _ => Ok(Some(false)),
    };
    let source_above = above(source, names.to_dir)?;
    Ok(Ancestry {
        into_removed: source_above.is_none(),
        source_above: source_above.unwrap_or(false),
        target_above: above(target, names.from_dir)?.unwrap_or(false),
    })
}

/// Returns whether `above` is `dir` or one of its ancestors; `None` if it is neither, and `dir` is
/// an unlinked directory or below one.
fn is_above(
    above: Ino,
    dir: Ino,
    core_of: &mut dyn FnMut(Ino) -> Result<Option<Core>>,
) -> Result<Option<bool>> {
    let mut at = dir;
    // The limit is far deeper than any real tree; a damaged volume may have a loop.
    for _ in 0..1 << 20 {
        if at == above {
            return Ok(Some(true));
        }
        if at == Ino::ROOT {
            return Ok(Some(false));
        }
        let core = core_of(at)?.filter(|core| core.in_use() && core.is_dir());
        let Some(core) = core else { return Ok(Some(false)) };
        if core.nlink == 0 {
            return Ok(None);
        }
        at = Ino(core.parent_or_rdev);
    }
    Err(Error::corrupt(format!("directory {dir}"), None, "its parents form a loop"))
}

/// Stamps the inodes locked by a rename ([`Txn::stamp`]).
fn stamp_all<const N: usize>(
    txn: &mut Txn<'_>,
    inodes: [Option<&mut Locked<'_>>; N],
) -> Result<()> {
    inodes.into_iter().flatten().try_for_each(|inode| txn.stamp(inode))
}

/// Locks one or two directories, and never waits for one while it holds the other.
fn lock_both<'a>(
    from: &'a InodeRef,
    to: &'a InodeRef,
    across: bool,
) -> (Locked<'a>, Option<Locked<'a>>) {
    if !across {
        return (from.write(), None);
    }
    loop {
        let first = from.write();
        if let Some(second) = to.try_write() {
            return (first, Some(second));
        }
        drop(first);
        let second = to.write();
        if let Some(first) = from.try_write() {
            return (first, Some(second));
        }
        drop(second);
        thread::yield_now();
    }
}

/// Locks the source and the target: directories first, then by number.
fn lock_children<'a>(
    source: &'a InodeRef,
    target: Option<&'a InodeRef>,
    found: &Resolved,
) -> (Locked<'a>, Option<Locked<'a>>) {
    let Some(target) = target else { return (source.write(), None) };
    let rank = |f: &Found| (!is_dir(f), f.child);
    if found.target.is_none_or(|t| rank(&found.source) < rank(&t)) {
        let first = source.write();
        (first, Some(target.write()))
    } else {
        let second = target.write();
        (source.write(), Some(second))
    }
}
