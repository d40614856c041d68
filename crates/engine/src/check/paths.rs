//! Paths of the files affected by damage, from parent pointers.

use crate::check::Inspection;
use shoal_base::limits::INODES_PER_BLOCK;
use shoal_base::{Code, Error, Ino, Result, RootId};
use shoal_format::inode::{Form, Inode};
use shoal_format::node::{Key, TreeId};
use shoal_txn::Root;

/// Maximum number of paths listed for one inode.
const PATHS_MAX: usize = 4;
/// Maximum number of directories on a path.
const DEPTH_MAX: usize = 4096;

impl Inspection<'_> {
    /// Returns ` (/a/b, /c)`: the paths of an inode as far as its parent pointers lead; empty if
    /// there are none. For messages about a volume that may be damaged. Nothing may change the
    /// volume meanwhile.
    pub(crate) fn path_hint(self, ino: Ino) -> String {
        let Ok(inode) = self.0.place_of(ino) else { return String::new() };
        let slot = inode.read();
        let Ok(parents) = self.parents_if_any(ino, &slot.inode) else { return String::new() };
        drop(slot);
        let more = parents.len() > PATHS_MAX;
        let paths = parents.iter().take(PATHS_MAX).map(|(dir, name)| self.path_below(*dir, name));
        let mut paths: Vec<String> = paths.collect();
        paths.extend(more.then(|| format!("{} more", parents.len() - PATHS_MAX)));
        if paths.is_empty() { String::new() } else { format!(" ({})", paths.join(", ")) }
    }

    /// Returns the path of a name in a directory. A directory without a parent pointer is shown by
    /// its number.
    pub(crate) fn path_below(self, dir: Ino, name: &[u8]) -> String {
        let mut path = format!("/{}", name.escape_ascii());
        let mut at = dir;
        for _ in 0..DEPTH_MAX {
            if at == Ino::ROOT {
                return path;
            }
            let above = self.0.place_of(at).and_then(|inode| {
                let slot = inode.read();
                self.parents_if_any(at, &slot.inode)
            });
            let Some((up, name)) = above.ok().and_then(|mut parents| parents.pop()) else {
                return format!("inode {at}:{path}");
            };
            path.insert_str(0, &format!("/{}", name.escape_ascii()));
            at = up;
        }
        format!("...{path}")
    }

    /// Describes the inodes of a tree's entries in `[low, high)`: `; of inode 7 (/a/b)` or `; of
    /// inodes 32 (/a) to 63`.
    pub(crate) fn whose(self, root: RootId, tree: TreeId, low: Key, high: Key) -> String {
        let (first, end) = match tree {
            TreeId::Imap => {
                let at = |number: u64| number.saturating_mul(INODES_PER_BLOCK as u64);
                (at(low.hi), at(high.hi))
            }
            _ if high.lo == 0 => (low.hi, high.hi),
            _ => (low.hi, high.hi.saturating_add(1)),
        };
        let count = end.saturating_sub(first);
        let first = Ino::from_relative(root, first);
        let from = self.path_hint(first);
        match count {
            0 | 1 => format!("; of inode {first}{from}"),
            _ if end > Ino::INDEX_MASK => format!("; of inodes from {first}{from} on"),
            _ => {
                let last = Ino::new(root, end - 1);
                let to = self.path_hint(last);
                format!("; of inodes {first}{from} to {last}{to}")
            }
        }
    }

    /// Calls `each` with a message for each inode that may have entries among the lost ones of a
    /// tree in `[low, high)`. Not for `imap`, whose inodes are found by their directory entries.
    pub(crate) fn affected(
        self,
        root: &Root,
        tree: TreeId,
        low: Key,
        high: Key,
        each: &mut dyn FnMut(Ino, &'static str, String),
    ) {
        let (rule, what) = match tree {
            TreeId::Imap => return,
            TreeId::Dirents => ("entries-lost", "some of its names cannot be read"),
            TreeId::Attrs => ("attributes-lost", "some of its attributes cannot be read"),
            TreeId::Extents => ("extents-lost", "some of its extent records cannot be read"),
        };
        let per_block = INODES_PER_BLOCK as u64;
        let wanted = |inode: &Inode| match tree {
            TreeId::Dirents => inode.core.is_dir(),
            TreeId::Attrs => inode.core.attr_form == Form::Tree,
            _ => inode.core.data_form == Form::Tree,
        };
        let in_range = |ino: Ino| Key::of(ino, u64::MAX) >= low && Key::of(ino, 0) < high;
        let mut next = root.table.next_in_use(low.hi / per_block);
        // Damage of `imap` is reported with the inodes.
        while let Ok(Some(number)) = next {
            if number * per_block > high.hi {
                break;
            }
            for slot in 0..per_block {
                let ino = Ino::new(root.id, number * per_block + slot);
                let Ok(place) = root.table.get(ino) else { break };
                let named = in_range(ino) && {
                    let slot = place.read();
                    slot.inode.core.in_use() && wanted(&slot.inode)
                };
                if named {
                    each(ino, rule, format!("inode {ino}{}: {what}", self.path_hint(ino)));
                }
            }
            next = root.table.next_in_use(number + 1);
        }
    }

    fn parents_if_any(self, ino: Ino, inode: &Inode) -> Result<Vec<(Ino, Vec<u8>)>> {
        if !inode.core.in_use() {
            return Err(Error::Code(Code::Stale));
        }
        let parents = self.paths().parents_in(ino, inode)?;
        Ok(parents.into_iter().map(|parent| (parent.dir, parent.name)).collect())
    }
}
