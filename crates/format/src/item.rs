//! Items: what a transaction's record is made of. They are absolute ("this is now so"), so that
//! replaying a record twice changes nothing.
//!
//! ```text
//! record := item...          item := type 1 | fields
//! ```

use crate::attr::{Attr, fork_to_text};
use crate::bytes::{Put, Reader};
use crate::checkpoint::RootState;
use crate::dirent::{Dirent, HEADER as DIRENT_HEADER};
use crate::inode::{Core, Form, Stamp};
use crate::intent::Intent;
use crate::node::{Key, TreeId};
use shoal_base::limits::TREE_VALUE_MAX;
use shoal_base::{Ino, RootId};

/// One change. The number in the table is the byte on disk; numbers are never reused.
#[derive(Clone, PartialEq, Debug)]
pub enum Item<'a> {
    /// 1: the inode's core is now this.
    Core {
        /// Inode.
        ino: Ino,
        /// Its core.
        core: Core,
    },
    /// 2: the inode's data fork is now this.
    DataFork {
        /// Inode.
        ino: Ino,
        /// What it holds.
        form: Form,
        /// Contents.
        bytes: &'a [u8],
    },
    /// 3: the inode's attribute fork is now this.
    AttrFork {
        /// Inode.
        ino: Ino,
        /// What it holds.
        form: Form,
        /// Contents.
        bytes: &'a [u8],
    },
    /// 4: an entry was added to or removed from this directory.
    DirTouch {
        /// Directory.
        ino: Ino,
        /// Its links.
        nlink: u32,
        /// Its number of entries.
        size: u64,
        /// Its mtime and ctime.
        stamp: Stamp,
    },
    /// 5: the number is free; generation of its last user.
    Free {
        /// Inode.
        ino: Ino,
        /// Generation that was freed.
        generation: u32,
    },
    /// 6: the tree holds this value under this key.
    TreePut {
        /// Root of the tree, which the key does not tell.
        root: RootId,
        /// Tree.
        tree: TreeId,
        /// Key.
        key: Key,
        /// Value.
        value: &'a [u8],
    },
    /// 7: the tree holds nothing under this key.
    TreeDel {
        /// Root of the tree.
        root: RootId,
        /// Tree.
        tree: TreeId,
        /// Key.
        key: Key,
    },
    /// 8: the tree holds nothing from `key` to before `key.hi, end`.
    TreeDelRange {
        /// Root of the tree.
        root: RootId,
        /// Tree.
        tree: TreeId,
        /// First key.
        key: Key,
        /// One past the last lower half.
        end: u64,
    },
    /// 9: the inode has no name but is in use: it is in the orphan table.
    OrphanAdd {
        /// Inode.
        ino: Ino,
    },
    /// 10: it is not in the orphan table any more.
    OrphanDel {
        /// Inode.
        ino: Ino,
    },
    /// 11: links and change time of an inode.
    Links {
        /// Inode.
        ino: Ino,
        /// Its links.
        nlink: u32,
        /// Its ctime.
        ctime: Stamp,
    },
    /// 12: from here on this is to be done, by the transactions that follow or by recovery.
    IntentLog {
        /// Number of the intent.
        id: u64,
        /// The intent ([`crate::intent::Intent`]).
        body: &'a [u8],
    },
    /// 13: this is what is left of it to be done.
    IntentProgress {
        /// Number of the intent.
        id: u64,
        /// The intent as it is now.
        body: &'a [u8],
    },
    /// 14: it is done.
    IntentDone {
        /// Number of the intent.
        id: u64,
    },
    // 15 is kept for intents.
    /// 16: the root is in this state and has this name.
    Root {
        /// The root's top directory, which names the root.
        ino: Ino,
        /// Live, deleted or vacant.
        state: RootState,
        /// Generation from which inodes made from now on are numbered, volume-wide.
        floor: u32,
        /// Name under the volume's top; empty unless live.
        name: &'a [u8],
    },
    /// 17: the directory holds this entry, and the child's attribute fork is inline and holds the
    /// parent pointer of this entry, nothing else. Two items in one, for what is done most.
    Named {
        /// Directory.
        dir: Ino,
        /// Its generation.
        generation: u32,
        /// Lower half of the entry's key.
        lo: u64,
        /// The entry.
        entry: Dirent<'a>,
    },
}

impl<'a> Item<'a> {
    /// Appends the item.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Item::Core { ino, ref core } => {
                head(out, 1, ino);
                core.encode(ino.root(), out);
            }
            Item::DataFork { ino, form, bytes } => fork(out, 2, ino, form, bytes),
            Item::AttrFork { ino, form, bytes } => fork(out, 3, ino, form, bytes),
            Item::DirTouch { ino, nlink, size, stamp } => {
                head(out, 4, ino);
                out.put_u32(nlink);
                out.put_u64(size);
                stamp.encode(out);
            }
            Item::Free { ino, generation } => {
                head(out, 5, ino);
                out.put_u32(generation);
            }
            Item::TreePut { root, tree, key, value } => {
                tree_head(out, 6, root, tree, key);
                out.put_u16(value.len() as u16);
                out.put_bytes(value);
            }
            Item::TreeDel { root, tree, key } => tree_head(out, 7, root, tree, key),
            Item::TreeDelRange { root, tree, key, end } => {
                tree_head(out, 8, root, tree, key);
                out.put_u64(end);
            }
            Item::OrphanAdd { ino } => head(out, 9, ino),
            Item::OrphanDel { ino } => head(out, 10, ino),
            Item::Links { ino, nlink, ctime } => {
                head(out, 11, ino);
                out.put_u32(nlink);
                ctime.encode(out);
            }
            Item::Root { ino, state, floor, name } => {
                head(out, 16, ino);
                out.put_u8(state as u8);
                out.put_u32(floor);
                out.put_u8(name.len() as u8);
                out.put_bytes(name);
            }
            Item::IntentLog { id, body } => intent(out, 12, id, body),
            Item::IntentProgress { id, body } => intent(out, 13, id, body),
            Item::IntentDone { id } => head(out, 14, Ino(id)),
            Item::Named { dir, generation, lo, entry } => {
                head(out, 17, dir);
                out.put_u32(generation);
                out.put_u64(lo);
                out.put_u8(entry.name.len() as u8);
                entry.encode(dir.root(), out);
            }
        }
    }

    /// Reads the next item; `None`: the bytes are not an item.
    pub fn decode(r: &mut Reader<'a>) -> Option<Item<'a>> {
        let kind = r.u8()?;
        if (6..=8).contains(&kind) {
            let (root, tree) = (RootId(r.u16()?), TreeId::from_u8(r.u8()?)?);
            let key = Key::new(r.u64()?, r.u64()?);
            return Some(match kind {
                6 => {
                    let len = r.u16()? as usize;
                    // A tree would split its leaf for ever.
                    let value = r.take(len).filter(|v| v.len() <= TREE_VALUE_MAX)?;
                    Item::TreePut { root, tree, key, value }
                }
                7 => Item::TreeDel { root, tree, key },
                _ => Item::TreeDelRange { root, tree, key, end: r.u64()? },
            });
        }
        let ino = Ino(r.u64()?);
        Some(match kind {
            1 => Item::Core { ino, core: Core::decode(ino.root(), r)? },
            2 | 3 => {
                let form = match r.u8()? {
                    0 => Form::Empty,
                    1 => Form::Inline,
                    2 => Form::Extents,
                    3 => Form::Tree,
                    _ => return None,
                };
                let len = r.u16()? as usize;
                let bytes = r.take(len)?;
                match kind {
                    2 => Item::DataFork { ino, form, bytes },
                    _ => Item::AttrFork { ino, form, bytes },
                }
            }
            4 => Item::DirTouch {
                ino,
                nlink: r.u32()?,
                size: r.u64()?,
                stamp: Stamp { sec: r.i64()?, nsec: r.u32()? },
            },
            5 => Item::Free { ino, generation: r.u32()? },
            9 => Item::OrphanAdd { ino },
            10 => Item::OrphanDel { ino },
            11 => {
                Item::Links { ino, nlink: r.u32()?, ctime: Stamp { sec: r.i64()?, nsec: r.u32()? } }
            }
            16 => {
                let (state, floor) = (RootState::from_u8(r.u8()?)?, r.u32()?);
                let len = r.u8()? as usize;
                Item::Root { ino, state, floor, name: r.take(len)? }
            }
            12 | 13 => {
                let len = r.u16()? as usize;
                let (id, body) = (ino.0, r.take(len)?);
                match kind {
                    12 => Item::IntentLog { id, body },
                    _ => Item::IntentProgress { id, body },
                }
            }
            14 => Item::IntentDone { id: ino.0 },
            17 => {
                let (generation, lo) = (r.u32()?, r.u64()?);
                let len = DIRENT_HEADER + r.u8()? as usize;
                let entry = Dirent::decode(ino.root(), r.take(len)?)?;
                Item::Named { dir: ino, generation, lo, entry }
            }
            _ => return None,
        })
    }

    /// For logs and fsck.
    pub fn to_text(&self) -> String {
        match self {
            Item::TreePut { root, tree: TreeId::Dirents, key, value } => {
                let entry = Dirent::decode(*root, value).map(|d| d.to_text());
                format!("dirents of root {} put {key:?} {}", root.0, entry.unwrap_or_default())
            }
            Item::TreePut { root, tree: TreeId::Attrs, key, value } => {
                let attr = Attr::decode_whole(value).map(|a| a.to_text(*root));
                format!("attrs of root {} put {key:?} {}", root.0, attr.unwrap_or_default())
            }
            Item::AttrFork { ino, form, bytes } => {
                format!("inode {ino} attributes {form:?}: {}", fork_to_text(ino.root(), bytes))
            }
            Item::IntentLog { id, body } => format!("intent {id} log: {}", body_to_text(body)),
            Item::IntentProgress { id, body } => {
                format!("intent {id} progress: {}", body_to_text(body))
            }
            Item::IntentDone { id } => format!("intent {id} done"),
            Item::Named { dir, generation, lo, entry } => {
                format!("named in {dir}/{generation} at {lo:#x}: {}", entry.to_text())
            }
            other => format!("{other:?}"),
        }
    }
}

fn body_to_text(body: &[u8]) -> String {
    Intent::decode(body).map_or_else(|| "broken".into(), |intent| intent.to_text())
}

fn intent(out: &mut Vec<u8>, kind: u8, id: u64, body: &[u8]) {
    head(out, kind, Ino(id));
    out.put_u16(body.len() as u16);
    out.put_bytes(body);
}

#[inline]
fn head(out: &mut Vec<u8>, kind: u8, ino: Ino) {
    out.put_u8(kind);
    out.put_u64(ino.0);
}

fn tree_head(out: &mut Vec<u8>, kind: u8, root: RootId, tree: TreeId, key: Key) {
    out.put_u8(kind);
    out.put_u16(root.0);
    out.put_u8(tree as u8);
    out.put_u64(key.hi);
    out.put_u64(key.lo);
}

fn fork(out: &mut Vec<u8>, kind: u8, ino: Ino, form: Form, bytes: &[u8]) {
    head(out, kind, ino);
    out.put_u8(form as u8);
    out.put_u16(bytes.len() as u16);
    out.put_bytes(bytes);
}

/// Bytes that items take in a record, from which the engine derives the largest record of each
/// kind of call.
pub mod size {
    use crate::dirent::HEADER as DIRENT_HEADER;
    use shoal_base::limits::NAME_MAX;

    /// Type and inode number.
    const HEAD: usize = 9;
    /// [`Item::Core`](super::Item::Core).
    pub const CORE: usize = HEAD + crate::inode::CORE;
    /// [`Item::DirTouch`](super::Item::DirTouch).
    pub const DIR_TOUCH: usize = HEAD + 24;
    /// [`Item::Free`](super::Item::Free).
    pub const FREE: usize = HEAD + 4;
    /// [`Item::Links`](super::Item::Links).
    pub const LINKS: usize = HEAD + 16;
    /// [`Item::OrphanAdd`](super::Item::OrphanAdd), [`Item::OrphanDel`](super::Item::OrphanDel).
    pub const ORPHAN: usize = HEAD;
    /// [`Item::IntentDone`](super::Item::IntentDone).
    pub const INTENT_DONE: usize = HEAD;
    /// [`Item::TreeDel`](super::Item::TreeDel): type, root, tree and key.
    pub const TREE_DEL: usize = 20;
    /// [`Item::TreeDelRange`](super::Item::TreeDelRange).
    pub const TREE_DEL_RANGE: usize = TREE_DEL + 8;
    /// [`Item::Named`](super::Item::Named) with the longest name.
    pub const NAMED_MAX: usize = named(NAME_MAX);

    /// [`Item::DataFork`](super::Item::DataFork), [`Item::AttrFork`](super::Item::AttrFork).
    pub const fn fork(bytes: usize) -> usize {
        HEAD + 3 + bytes
    }
    /// [`Item::TreePut`](super::Item::TreePut).
    pub const fn tree_put(value: usize) -> usize {
        TREE_DEL + 2 + value
    }
    /// [`Item::IntentLog`](super::Item::IntentLog) and
    /// [`Item::IntentProgress`](super::Item::IntentProgress).
    pub const fn intent(body: usize) -> usize {
        HEAD + 2 + body
    }
    /// [`Item::Named`](super::Item::Named).
    pub const fn named(name: usize) -> usize {
        HEAD + 13 + DIRENT_HEADER + name
    }
    /// [`Item::Root`](super::Item::Root).
    pub const fn root(name: usize) -> usize {
        HEAD + 6 + name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_the_encoding() {
        let (root, ino) = (RootId(5), Ino(3));
        let (tree, key) = (TreeId::Extents, Key::new(3, 4));
        let name = [b'n'; 255];
        let stamp = Stamp { sec: 1, nsec: 2 };
        let entry = Dirent { child: ino, kind: 8, name: &name };
        let rows = [
            (Item::Core { ino, core: Core::default() }, size::CORE),
            (Item::DataFork { ino, form: Form::Inline, bytes: &name }, size::fork(255)),
            (Item::AttrFork { ino, form: Form::Inline, bytes: &name }, size::fork(255)),
            (Item::DirTouch { ino, nlink: 2, size: 1, stamp }, size::DIR_TOUCH),
            (Item::Free { ino, generation: 1 }, size::FREE),
            (Item::TreePut { root, tree, key, value: &name }, size::tree_put(255)),
            (Item::TreeDel { root, tree, key }, size::TREE_DEL),
            (Item::TreeDelRange { root, tree, key, end: 9 }, size::TREE_DEL_RANGE),
            (Item::OrphanAdd { ino }, size::ORPHAN),
            (Item::OrphanDel { ino }, size::ORPHAN),
            (Item::Links { ino, nlink: 1, ctime: stamp }, size::LINKS),
            (Item::IntentLog { id: 1, body: &name }, size::intent(255)),
            (Item::IntentProgress { id: 1, body: &name }, size::intent(255)),
            (Item::IntentDone { id: 1 }, size::INTENT_DONE),
            (Item::Root { ino, state: RootState::Live, floor: 1, name: &name }, size::root(255)),
            (Item::Named { dir: ino, generation: 1, lo: 2, entry }, size::NAMED_MAX),
        ];
        for (item, bytes) in rows {
            let mut raw = Vec::new();
            item.encode(&mut raw);
            assert_eq!(raw.len(), bytes, "{}", item.to_text());
        }
    }

    #[test]
    fn changes_of_trees_name_their_root_and_entries_are_relative_to_it() {
        let (root, key, tree) = (RootId(0x1234), Key::new(7, 8), TreeId::Dirents);
        let read = |item: &Item<'_>| {
            let mut raw = Vec::new();
            item.encode(&mut raw);
            assert_eq!(Item::decode(&mut Reader::new(&raw)).as_ref(), Some(item));
            raw
        };
        for item in [
            Item::TreePut { root, tree, key, value: b"x" },
            Item::TreeDel { root, tree, key },
            Item::TreeDelRange { root, tree, key, end: 9 },
        ] {
            assert_eq!(read(&item)[1..4], [0x34, 0x12, tree as u8]);
        }
        let (dir, child) = (Ino::new(root, 7), Ino::new(root, 0x55));
        let entry = Dirent { child, kind: 8, name: b"n" };
        let raw = read(&Item::Named { dir, generation: 1, lo: 8, entry });
        assert_eq!(raw[raw.len() - 10..raw.len() - 2], 0x55u64.to_le_bytes());
        let core = Core { mode: 0o040_755, parent_or_rdev: dir.0, ..Core::default() };
        let raw = read(&Item::Core { ino: child, core });
        assert_eq!(
            (&raw[1..9], &raw[49..57]),
            (&child.0.to_le_bytes()[..], &7u64.to_le_bytes()[..])
        );
    }

    #[test]
    fn a_value_that_no_tree_can_hold_is_refused() {
        let decoded = |len: usize| {
            let (value, mut bytes) = (vec![7; len], Vec::new());
            let (tree, key) = (TreeId::Attrs, Key::MIN);
            let root = RootId(0);
            Item::TreePut { root, tree, key, value: &value }.encode(&mut bytes);
            Item::decode(&mut Reader::new(&bytes)).is_some()
        };
        assert!(decoded(TREE_VALUE_MAX));
        assert!(!decoded(TREE_VALUE_MAX + 1), "replay would not end");
    }
}
