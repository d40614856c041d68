//! Roots: directories under the top whose inodes have numbers of their own, made and deleted whole.

use super::digest::entry_hash;
use super::{Birth, Body, Model, Name, Outcome};
use shoal::raw::{Caller, Code, FileKind, Ino};
use shoal_base::limits::NAME_MAX;
use std::collections::BTreeMap;

impl Model {
    /// A root. `ino`: the number that the volume chose.
    pub(crate) fn root_create(
        &mut self,
        who: &Caller,
        name: &[u8],
        mode: u32,
        ino: Option<Ino>,
    ) -> Outcome<Ino> {
        check_root_name(who, name)?;
        if self.entries(self.root)?.contains_key(name) {
            return Err(Code::Exists);
        }
        let body = Body::Dir(BTreeMap::new());
        let birth = Birth { kind: FileKind::Directory, perm: mode & 0o7777, rdev: 0, body };
        Ok(self.make(who, (self.root, name), birth, ino))
    }

    /// Deletes a root: everything in it is gone at once, whoever holds it.
    pub(crate) fn root_delete(&mut self, who: &Caller, name: &[u8]) -> Outcome<()> {
        check_root_name(who, name)?;
        let top = *self.entries(self.root)?.get(name).ok_or(Code::NotFound)?;
        if top.root() == self.root.root() {
            return Err(Code::Invalid);
        }
        self.remove(self.root, name);
        let inside = |ino: &&Ino| ino.root() == top.root();
        for ino in self.nodes.keys().filter(inside).copied().collect::<Vec<_>>() {
            let node = self.nodes.remove(&ino).expect("listed");
            if let Body::Dir(entries) = &node.body {
                for (name, child) in entries {
                    self.digest = self.digest.wrapping_sub(entry_hash(ino, name, *child));
                }
            }
            self.graves.push((ino, node.generation));
            self.reckon(ino);
        }
        Ok(())
    }

    /// The names of the roots.
    pub(crate) fn roots(&self) -> Vec<Name> {
        let entries = self.entries(self.root).into_iter().flatten();
        let roots = entries.filter(|(_, child)| child.root() != self.root.root());
        roots.map(|(name, _)| name.clone()).collect()
    }
}

/// The name first, then who asks.
fn check_root_name(who: &Caller, name: &[u8]) -> Outcome<()> {
    if name.len() > NAME_MAX {
        return Err(Code::NameTooLong);
    }
    if matches!(name, b"" | b"." | b"..") || name.iter().any(|b| matches!(b, b'/' | 0)) {
        return Err(Code::Invalid);
    }
    if who.bypasses() { Ok(()) } else { Err(Code::NotPermitted) }
}
