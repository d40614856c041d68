//! Trees removed whole: gone from the namespace at once, as one change, or refused as one.

use super::{Model, Node, Outcome};
use shoal::raw::{Caller, Code, FileKind, Ino, SetAttr, TreeChange};
use std::collections::BTreeSet;

/// To list a directory and to take entries out of it.
const EMPTY: u32 = 7;

impl Model {
    /// Removes what `name` is, with all that is below: names elsewhere stay, what is held lives on.
    pub(crate) fn remove_tree(&mut self, who: &Caller, dir: Ino, name: &[u8]) -> Outcome<()> {
        if matches!(name, b"." | b"..") {
            return Err(Code::Invalid);
        }
        let top = self.lookup(who, dir, name)?;
        if self.nodes[&top].kind != FileKind::Directory {
            return self.unlink(who, dir, name);
        }
        if !who.bypasses() && top.root() == dir.root() {
            self.may_empty_all(who, top)?;
        }
        self.may_delete(who, dir, top)?;
        self.remove(dir, name);
        self.trees_removed = true;
        let mut queue = vec![top];
        while let Some(dir) = queue.pop() {
            for (name, child) in self.entries(dir)?.clone() {
                self.remove(dir, &name);
                match self.nodes[&child].kind {
                    FileKind::Directory => queue.push(child),
                    _ => self.lose_name(child),
                }
            }
            self.lose_name(dir);
        }
        Ok(())
    }

    /// Changes an inode and everything below it, a directory before its contents. Returns how many
    /// could be changed, and how many not, with the directories that could not be listed.
    pub(crate) fn change_tree(
        &mut self,
        who: &Caller,
        top: Ino,
        change: &TreeChange,
    ) -> Outcome<(u64, u64)> {
        let (mut changed, mut failed) = (0, 0);
        if self.node(top).ok_or(Code::Stale)?.nlink == 0 {
            return Ok((0, 0));
        }
        let mut queue = vec![top];
        while let Some(ino) = queue.pop() {
            let (kind, perm) = (self.nodes[&ino].kind, self.nodes[&ino].perm);
            let is_dir = kind == FileKind::Directory;
            let mode = change.mode.as_ref().filter(|_| kind != FileKind::Symlink);
            let set = SetAttr {
                uid: change.uid,
                gid: change.gid,
                mode: mode.map(|mode| mode.apply(perm, is_dir, who.umask)),
                atime: change.atime,
                mtime: change.mtime,
                ..SetAttr::default()
            };
            if set != SetAttr::default() {
                match self.setattr(who, ino, &set) {
                    Ok(()) => changed += 1,
                    Err(_) => failed += 1,
                }
            }
            if !is_dir {
                continue;
            }
            match self.permit(who, ino, 5) {
                Ok(()) => queue.extend(self.entries(ino)?.values()),
                Err(_) => failed += 1,
            }
        }
        Ok((changed, failed))
    }

    /// Returns the inodes below an inode, itself included; each once.
    pub(crate) fn below(&self, top: Ino) -> impl Iterator<Item = &Node> {
        let mut found = BTreeSet::from([top]);
        let mut queue = vec![top];
        while let Some(dir) = queue.pop() {
            let children = self.entries(dir).into_iter().flatten().map(|(_, child)| *child);
            queue.extend(children.filter(|child| found.insert(*child)));
        }
        found.into_iter().filter_map(|ino| self.node(ino))
    }

    /// Returns whether `who` could remove everything in a directory, and so on down.
    fn may_empty_all(&self, who: &Caller, dir: Ino) -> Outcome<()> {
        let entries = self.entries(dir)?;
        if entries.is_empty() {
            return Ok(());
        }
        self.permit(who, dir, EMPTY)?;
        for child in entries.values() {
            self.may_delete(who, dir, *child)?;
            if self.nodes[child].kind == FileKind::Directory {
                self.may_empty_all(who, *child)?;
            }
        }
        Ok(())
    }
}
