//! Attributes: forks and the `attrs` tree; values in data objects.

use super::Check;
use super::census::Census;
use super::work::{LEAVES, Parts, Worker};
use crate::xattr::Side;
use shoal_base::{Ino, Result};
use shoal_format::attr::{Attr, Attrs, SUFFIX_MASK, verify_fork};
use shoal_format::inode::{FLAG_ACL, FLAG_CAPABILITY, FLAG_DEFAULT_ACL, Form, Inode};
use shoal_format::node::{Key, TreeId};
use shoal_tree::Part;
use shoal_txn::Root;
use std::collections::HashSet;

impl Check<'_> {
    /// Checks the attributes in the trees. Attribute forks and flags are checked with the inodes.
    pub(crate) fn attributes(&mut self) -> Result<()> {
        let roots = self.volume.0.store.roots().iter();
        let pieces = Parts::new(self.volume, roots, TreeId::Attrs, LEAVES);
        self.spread(pieces, |worker, census, piece| worker.tree_attrs(census, piece))
    }
}

impl Worker<'_> {
    /// Checks an inode's attribute fork and flags, and adds its parent pointers.
    pub(super) fn attributes(&mut self, ino: Ino, inode: &Inode) -> Result<()> {
        self.fork(ino, inode)?;
        let checked = self.flags(ino, inode);
        self.damage_of(ino, "attrs", checked)?;
        self.add_pointers(ino, inode);
        Ok(())
    }

    /// Checks the attribute fork of an inode: its form and its contents.
    fn fork(&mut self, ino: Ino, inode: &Inode) -> Result<()> {
        let fork = &inode.attr[..];
        let possible = match inode.core.attr_form {
            Form::Empty | Form::Tree => fork.is_empty(),
            Form::Inline => !fork.is_empty(),
            Form::Extents => false,
        };
        if !possible {
            let message = format!("inode {ino}: {}", inode.to_text());
            self.problem("inode-attr-fork", message);
            return Ok(());
        }
        if let Err(rule) = verify_fork(ino.root(), fork) {
            self.problem("attr-fork", format!("attributes of inode {ino}: {rule}"));
            return Ok(());
        }
        for attr in Attrs::new(fork).flatten() {
            self.found.report.attributes += 1;
            if let Some(extent) = attr.value.extent() {
                self.value(ino, &extent)?;
            }
        }
        Ok(())
    }

    /// Compares the flags of the core with the attributes.
    fn flags(&mut self, ino: Ino, inode: &Inode) -> Result<()> {
        let mut flags = 0;
        self.volume.xattrs().each_attr(ino, inode, Side::Plain, &mut |attr| {
            flags |= crate::permissions::flag_of(&attr.id(ino.root()));
            Ok(true)
        })?;
        let said = inode.core.flags & (FLAG_ACL | FLAG_DEFAULT_ACL | FLAG_CAPABILITY);
        if flags != said {
            self.problem("attr-flags", format!("inode {ino}: flags {said:#x}, not {flags:#x}"));
        }
        Ok(())
    }

    /// Checks the entries of an `attrs` tree: the inode has attributes there, the key is right, and
    /// no name occurs twice.
    fn tree_attrs(&mut self, census: &Census, (root, part): (&Root, Part)) -> Result<()> {
        self.begin(TreeId::Attrs, &part);
        let volume = self.volume;
        let (mut owner, mut form) = (Ino(0), Form::Empty);
        let mut ids = self.ids_before(root, part.low);
        let mut nodes = Vec::new();
        let mut entry = |key: Key, raw: &[u8]| {
            let ino = key.ino(root.id);
            if ino != owner {
                owner = ino;
                form = match (census.get(ino).is_some(), volume.0.place_of(ino)) {
                    (true, Ok(inode)) if ino.root() == root.id => inode.read().inode.core.attr_form,
                    _ => Form::Empty,
                };
            }
            if form != Form::Tree {
                let message = format!(
                    "entry {:#x} of inode {ino}, which has no attributes in the tree",
                    key.lo
                );
                self.problem("attr-owner", message);
            }
            let Some(attr) = Attr::decode_whole(raw) else {
                self.problem("attr", format!("entry {:#x} of inode {ino}: invalid", key.lo));
                return Ok(());
            };
            self.found.report.attributes += 1;
            let text = attr.id(root.id).to_text();
            if attr.id(root.id).hash(root.id, volume.0.store.volume()) != key.lo & !SUFFIX_MASK {
                self.problem("attr-hash", format!("{text} of inode {ino}: wrong key"));
            }
            // Only attributes with the same hash can have the same name.
            if ids.0 != hash_of(key) {
                ids = (hash_of(key), HashSet::new());
            }
            if !ids.1.insert(text.clone().into_bytes()) {
                self.problem("attr-twice", format!("{text} of inode {ino}"));
            }
            match attr.value.extent() {
                Some(extent) => self.value(ino, &extent),
                None => Ok(()),
            }
        };
        let mut lost = |error, low, high| nodes.push((error, low, high));
        root.attrs.for_each_readable(part.low, part.high, &mut entry, &mut lost)?;
        self.lost_nodes(root, TreeId::Attrs, nodes);
        Ok(())
    }

    /// Returns the attributes of the same hash in the piece before; none if they cannot be read.
    fn ids_before(&self, root: &Root, key: Key) -> Ids {
        let mut ids = HashSet::new();
        let mut entry = |_, raw: &[u8]| {
            let text = |attr: Attr<'_>| attr.id(root.id).to_text().into_bytes();
            ids.extend(Attr::decode_whole(raw).map(text));
            Ok(true)
        };
        if root.attrs.for_each(hash_of(key), key, &mut entry).is_err() {
            ids.clear();
        }
        (hash_of(key), ids)
    }
}

/// Attributes of one hash: the first key, and their names.
type Ids = (Key, HashSet<Vec<u8>>);

fn hash_of(key: Key) -> Key {
    Key::new(key.hi, key.lo & !SUFFIX_MASK)
}
