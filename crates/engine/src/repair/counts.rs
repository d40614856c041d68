//! Counts and other fields of inodes that follow from other structures: links, entries, parent
//! directory, bytes.

use super::{Node, Repair};
use shoal_base::{Ino, Result};
use shoal_format::inode::{Core, FLAG_TMPFILE};

impl Repair<'_> {
    pub(crate) fn counts(&mut self) -> Result<()> {
        let volume = self.volume;
        for ino in self.sorted(|node| !node.agrees()) {
            let Some(node) = self.nodes.get(&ino) else { continue };
            let place = volume.0.place_of(ino)?;
            let core = place.read().inode.core;
            let orphan = node.names == 0 && ino != Ino::ROOT;
            let mut new = Core { bytes: node.bytes, ..core };
            if node.is_dir() {
                new.nlink = if orphan { 0 } else { 2 + node.subdirs };
                new.size = node.entries;
                new.parent_or_rdev = if orphan { core.parent_or_rdev } else { node.parent.0 };
                if ino == Ino::ROOT {
                    new.parent_or_rdev = Ino::ROOT.0;
                }
            } else {
                new.nlink = node.names;
            }
            if node.names > 0 {
                new.flags &= !FLAG_TMPFILE;
            }
            if new != core {
                place.write().edit(&volume.0.store.root(ino)?.table, self.epoch).core = new;
                self.did(format!(
                    "inode {ino}{}: {}",
                    volume.inspection().path_hint(ino),
                    changes(&core, &new)
                ));
            }
        }
        Ok(())
    }
}

impl Node {
    /// Returns whether the core agrees with the counts.
    fn agrees(&self) -> bool {
        let said = &self.said;
        let counts = match self.is_dir() {
            true => {
                self.nlink == 2 + self.subdirs
                    && said.entries == self.entries
                    && said.parent == self.parent
            }
            false => self.nlink == self.names,
        };
        counts && said.bytes == self.bytes && self.names > 0 && !said.tmpfile
    }
}

fn changes(was: &Core, is: &Core) -> String {
    let fields = [
        ("links", u64::from(was.nlink), u64::from(is.nlink)),
        ("entries", was.size, is.size),
        ("bytes", was.bytes, is.bytes),
        ("parent", was.parent_or_rdev, is.parent_or_rdev),
        ("flags", u64::from(was.flags), u64::from(is.flags)),
    ];
    let changed = fields.iter().filter(|(_, was, is)| was != is);
    changed.map(|(what, was, is)| format!("{what} {is}, was {was}")).collect::<Vec<_>>().join("; ")
}
