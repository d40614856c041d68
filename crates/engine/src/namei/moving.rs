//! The changes of a rename, once its names are resolved, locked and checked: the entries, the moved
//! inodes with their parent pointers, the directories.

use super::rename::{Dirs, Names, RenamePending, Renamed, Resolved};
use super::unlink::Loss;
use super::whiteout::Whiteout;
use super::{is_dir, set_links, touch_dir};
use crate::clock::now;
use crate::directories::Found;
use crate::name::NameIn;
use crate::namei::Namespace;
use crate::orphans::Left;
use crate::types::Caller;
use crate::xattr::Plan;
use shoal_base::planted::{self, Defect};
use shoal_base::{Code, Error, Ino, Result};
use shoal_format::attr::Link;
use shoal_format::dirent::Dirent;
use shoal_format::inode::{Core, Stamp};
use shoal_format::item::Item;
use shoal_format::node::Key;
use shoal_itable::Locked;
use shoal_txn::{Root, Txn};

/// Changes of the parent pointers of source and target, and the timestamp for all.
pub(crate) struct RenamePlan {
    source: Plan,
    target: Loss,
    whiteout: Option<Whiteout>,
    stamp: Stamp,
}

/// The two names of a rename, in the form of parent pointers.
struct Pointers<'n> {
    from: NameIn<'n>,
    to: NameIn<'n>,
}

impl<'n> Pointers<'n> {
    fn new(dirs: &Dirs<'_, '_>, names: &Names<'n>) -> Pointers<'n> {
        Pointers {
            from: NameIn::new(names.from_dir, &dirs.from.inode().core, names.from),
            to: NameIn::new(names.to_dir, &dirs.to_inode().core, names.to),
        }
    }
}

impl Namespace<'_> {
    /// Plans the parent pointers of both, and the whiteout: all steps that can fail.
    pub(crate) fn plan_rename(
        self,
        who: &Caller,
        dirs: &Dirs<'_, '_>,
        names: &Names<'_>,
        inodes: &Renamed<'_, '_>,
    ) -> Result<RenamePlan> {
        let (Pointers { from, to }, stamp) = (Pointers::new(dirs, names), now());
        let source = &inodes.source;
        let moves =
            self.paths().plan_parent(source.ino(), source.inode(), Some(&from), Some(&to))?;
        let other = match &inodes.target {
            None => Loss::Name(Plan::Nothing),
            Some(target) if names.flags.exchange => {
                let inode = target.inode();
                Loss::Name(self.paths().plan_parent(target.ino(), inode, Some(&to), Some(&from))?)
            }
            Some(target) => {
                target.leaves(names.to_dir);
                self.plan_drop(target, &to)?
            }
        };
        let whiteout = match &inodes.whiteout {
            Some(new) => Some(self.plan_whiteout(who, dirs.from, &from, new.ino(), stamp)?),
            None => None,
        };
        Ok(RenamePlan { source: moves, target: other, whiteout, stamp })
    }

    /// Applies a rename, in memory and in the record. The caller must pass the returned rest to
    /// [`Namespace::settle`].
    pub(crate) fn apply_rename(
        self,
        txn: &mut Txn<'_>,
        root: &Root,
        dirs: &mut Dirs<'_, '_>,
        names: &Names<'_>,
        found: &Resolved,
        inodes: Renamed<'_, '_>,
        plan: RenamePlan,
    ) -> Result<(Option<Left>, RenamePending)> {
        let moves_dir = [Some(found.source), found.target.filter(|_| names.flags.exchange)];
        let moves_dir = moves_dir.iter().flatten().any(is_dir);
        let _shape = moves_dir.then(|| self.0.shape.change());
        match (&found.target, inodes) {
            (Some(entry), Renamed { source, target: Some(target), .. }) if names.flags.exchange => {
                let both = (source, target);
                let pending =
                    self.exchange(txn, root, dirs, names, (&found.source, entry), both, plan)?;
                Ok((None, pending))
            }
            (_, inodes) => self.move_entry(txn, root, dirs, names, found, inodes, plan),
        }
    }

    fn move_entry(
        self,
        txn: &mut Txn<'_>,
        root: &Root,
        dirs: &mut Dirs<'_, '_>,
        names: &Names<'_>,
        found: &Resolved,
        inodes: Renamed<'_, '_>,
        plan: RenamePlan,
    ) -> Result<(Option<Left>, RenamePending)> {
        let (source, Renamed { source: inode, target, whiteout }) = (&found.source, inodes);
        let mut replaced = found.target.as_ref().zip(target);
        let (stamp, replaces) = (plan.stamp, replaced.is_some());
        let Pointers { from, to } = Pointers::new(dirs, names);
        let (mut left, mut dropped, mut key) = (None, None, None);
        match &mut replaced {
            Some((found, target)) => {
                let (generation, new) = (generation_of(target), (source.child, source.kind));
                self.directories().replace_entry(txn, found, &to, generation, new, true)?;
                (left, dropped) = self.drop_link(txn, target, plan.target, stamp)?;
            }
            None => {
                let Found { child, kind, .. } = *source;
                key = self.directories().insert_entry(txn, names.to_dir, names.to, child, kind)?;
            }
        }
        // The most frequent case is one item: the entry, and the parent pointer as the inode's only
        // attribute.
        let entry = Dirent { child: source.child, kind: source.kind, name: names.to };
        let moved = match (key, plan.source) {
            (Some(Key { lo, .. }), Plan::Sole) => {
                self.paths().move_sole(txn, &root.table, inode, &to);
                let Link { dir, generation } = to.link;
                txn.log(Item::Named { dir, generation, lo, entry });
                None
            }
            (key, plan) => {
                key.into_iter()
                    .for_each(|key| self.directories().log_entry(txn, names.to_dir, key, entry));
                self.paths().apply_parent(txn, inode, plan, &to)?
            }
        };
        // Found again, because the insertion may have moved a name of the same hash.
        let source_now = self.directories().find_entry(names.from_dir, names.from)?;
        let source_now = source_now.ok_or(Error::Code(Code::Io))?;
        let old = (&source_now, generation_of(inode));
        let (whitened, whiteout) = match whiteout.zip(plan.whiteout) {
            Some((new, plan)) => (1, self.apply_whiteout(txn, root, new, plan, old, &from)?),
            None => {
                self.directories().remove_entry(txn, old.0, &from, old.1)?;
                (0, Vec::new())
            }
        };
        self.note_moved(txn, root, inode, names.to_dir, stamp);
        let (gone, links) = (i64::from(replaces), i64::from(is_dir(source)));
        match &mut dirs.to {
            None => {
                touch_dir(txn, &root.table, dirs.from, whitened - gone, -links * gone, stamp);
            }
            Some(to) => {
                touch_dir(txn, &root.table, dirs.from, whitened - 1, -links, stamp);
                touch_dir(txn, &root.table, to, 1 - gone, links * (1 - gone), stamp);
            }
        }
        Ok((left, RenamePending { source: moved, target: dropped, whiteout }))
    }

    fn exchange(
        self,
        txn: &mut Txn<'_>,
        root: &Root,
        dirs: &mut Dirs<'_, '_>,
        names: &Names<'_>,
        (source, target): (&Found, &Found),
        (source_inode, target_inode): (&mut Locked<'_>, &mut Locked<'_>),
        plan: RenamePlan,
    ) -> Result<RenamePending> {
        let stamp = plan.stamp;
        let Pointers { from, to } = Pointers::new(dirs, names);
        for (old, name, inode, new) in
            [(source, &from, &*source_inode, target), (target, &to, &*target_inode, source)]
        {
            let (generation, new) = (generation_of(inode), (new.child, new.kind));
            self.directories().replace_entry(txn, old, name, generation, new, false)?;
        }
        self.note_moved(txn, root, source_inode, names.to_dir, stamp);
        self.note_moved(txn, root, target_inode, names.from_dir, stamp);
        let moved = self.paths().apply_parent(txn, source_inode, plan.source, &to)?;
        let Loss::Name(other) = plan.target else { unreachable!("an exchange keeps both") };
        let other = self.paths().apply_parent(txn, target_inode, other, &from)?;
        let links = i64::from(is_dir(target)) - i64::from(is_dir(source));
        match &mut dirs.to {
            None => touch_dir(txn, &root.table, dirs.from, 0, 0, stamp),
            Some(to) => {
                touch_dir(txn, &root.table, dirs.from, 0, links, stamp);
                touch_dir(txn, &root.table, to, 0, -links, stamp);
            }
        }
        Ok(RenamePending { source: moved, target: other, ..RenamePending::default() })
    }

    /// Sets the ctime of a moved inode, and the parent of a moved directory.
    fn note_moved(
        self,
        txn: &mut Txn<'_>,
        root: &Root,
        inode: &mut Locked<'_>,
        parent: Ino,
        stamp: Stamp,
    ) {
        let core = inode.inode().core;
        let moves = core.is_dir() && core.parent_or_rdev != parent.0;
        if !moves || planted::is(Defect::ParentKept) {
            return set_links(txn, &root.table, inode, core.nlink, stamp);
        }
        let (ino, core) = (inode.ino(), Core { ctime: stamp, parent_or_rdev: parent.0, ..core });
        inode.edit(&root.table, txn.epoch()).core = core;
        txn.log_core(inode, Item::Core { ino, core });
    }
}

fn generation_of(inode: &Locked<'_>) -> u32 {
    inode.inode().core.generation
}
