//! Items: what a transaction's record is made of. They are absolute ("this is now so"), so that
//! replaying a record twice changes nothing.
//!
//! ```text
//! record := item...          item := number 1 | fields
//! ```

use crate::attr::{Attr, fork_to_text};
use crate::bytes::Reader;
use crate::checkpoint::RootState;
use crate::declare::{Field, Row, Table};
use crate::dirent::Dirent;
use crate::inode::{Core, Form, Stamp};
use crate::intent::Intent;
use crate::node::{Key, TreeId};
use shoal_base::{Ino, RootId};

/// How the fields of items are encoded that are not of fixed length, or that depend on another: a
/// module each, with the bytes that it takes at least.
mod codec {
    use crate::bytes::{Put, Reader};
    use crate::declare::Field;
    use crate::dirent::{self, Dirent};
    use shoal_base::RootId;
    use shoal_base::limits::TREE_VALUE_MAX;

    pub fn put<T: Field>(value: &T, out: &mut Vec<u8>) {
        let start = out.len();
        out.resize(start + T::LEN, 0);
        value.put(&mut out[start..]);
    }

    /// Bytes behind their number in two bytes.
    pub mod len16 {
        use super::*;
        pub const LEN: usize = 2;
        pub fn put(bytes: &[u8], out: &mut Vec<u8>) {
            out.put_u16(bytes.len() as u16);
            out.put_bytes(bytes);
        }
        pub fn get<'a>(r: &mut Reader<'a>) -> Option<&'a [u8]> {
            let len = r.u16()?;
            r.take(len.into())
        }
    }

    /// The same, no longer than a value of a tree may be: a tree would split its leaf for ever.
    pub mod value {
        use super::*;
        pub const LEN: usize = super::len16::LEN;
        pub use super::len16::put;
        pub fn get<'a>(r: &mut Reader<'a>) -> Option<&'a [u8]> {
            super::len16::get(r).filter(|value| value.len() <= TREE_VALUE_MAX)
        }
    }

    /// Bytes behind their number in one byte.
    pub mod len8 {
        use super::*;
        pub const LEN: usize = 1;
        pub fn put(bytes: &[u8], out: &mut Vec<u8>) {
            out.put_u8(bytes.len() as u8);
            out.put_bytes(bytes);
        }
        pub fn get<'a>(r: &mut Reader<'a>) -> Option<&'a [u8]> {
            let len = r.u8()?;
            r.take(len.into())
        }
    }

    /// The core of an inode of a root.
    pub mod core {
        use super::*;
        use crate::inode::Core;
        pub const LEN: usize = Core::SIZE;
        pub fn put(core: &Core, root: RootId, out: &mut Vec<u8>) {
            core.encode(root, out);
        }
        pub fn get(r: &mut Reader<'_>, root: RootId) -> Option<Core> {
            Core::decode(root, r)
        }
    }

    /// An entry of a directory of a root, behind the length of its name in one byte.
    pub mod entry {
        use super::*;
        pub const LEN: usize = 1 + dirent::HEADER;
        pub fn put(entry: &Dirent<'_>, root: RootId, out: &mut Vec<u8>) {
            out.put_u8(entry.name.len() as u8);
            entry.encode(root, out);
        }
        pub fn get<'a>(r: &mut Reader<'a>, root: RootId) -> Option<Dirent<'a>> {
            let len = dirent::HEADER + usize::from(r.u8()?);
            Dirent::decode(root, r.take(len)?)
        }
    }
}

/// Encodes a field: by itself, by a codec, by a codec that must know the root of an inode.
macro_rules! put {
    ($out:ident, $value:ident) => {
        codec::put($value, $out)
    };
    ($out:ident, $value:ident, $codec:ident) => {
        codec::$codec::put($value, $out)
    };
    ($out:ident, $value:ident, $codec:ident, $of:ident) => {
        codec::$codec::put($value, $of.root(), $out)
    };
}

/// Decodes a field.
macro_rules! get {
    ($r:ident) => {
        $r.field()
    };
    ($r:ident, $codec:ident) => {
        codec::$codec::get($r)
    };
    ($r:ident, $codec:ident, $of:ident) => {
        codec::$codec::get($r, $of.root())
    };
}

/// Bytes of a field without what varies.
macro_rules! len {
    ($type:ty) => {
        <$type as Field>::LEN
    };
    ($type:ty, $codec:ident $(, $of:ident)?) => {
        codec::$codec::LEN
    };
}

/// Declares the items: number, name, meaning; offset, name, type, codec and meaning of each field.
macro_rules! items {
    ($($number:literal $name:ident: $doc:literal {
        $($at:literal $field:ident: $type:ty $(as $codec:ident $(of $of:ident)?)?, $what:literal;)*
    })*) => {
        /// One change. Its number is its first byte on disk; numbers are never used again.
        #[derive(Clone, PartialEq, Debug)]
        pub enum Item<'a> {
            $(#[doc = concat!(stringify!($number), ": ", $doc)]
            $name { $(#[doc = $what] $field: $type,)* },)*
        }

        impl<'a> Item<'a> {
            /// Appends the item.
            pub fn encode(&self, out: &mut Vec<u8>) {
                match self {
                    $(Item::$name { $($field),* } => {
                        out.push($number);
                        $(put!(out, $field $(, $codec $(, $of)?)?);)*
                    })*
                }
            }
            /// Reads the next item; `None`: the bytes are not an item.
            pub fn decode(r: &mut Reader<'a>) -> Option<Item<'a>> {
                Some(match r.u8()? {
                    $($number => {
                        $(let $field: $type = get!(r $(, $codec $(, $of)?)?)?;)*
                        Item::$name { $($field),* }
                    })*
                    _ => return None,
                })
            }
            /// Its number on disk.
            pub fn number(&self) -> u8 {
                match self {
                    $(Item::$name { .. } => $number,)*
                }
            }
        }

        /// The items' tables in the document; of what varies in length, its least bytes. Building
        /// them proves every offset.
        pub const TABLES: &[Table] = &[$(Table {
            name: concat!("item-", stringify!($number)),
            doc: concat!("Item `", stringify!($name), "`: ", $doc),
            size: 0,
            rows: &[
                Row { at: 0, len: 1, name: "number", what: stringify!($number) },
                $(Row {
                    at: $at,
                    len: len!($type $(, $codec $(, $of)?)?),
                    name: stringify!($field),
                    what: $what,
                },)*
            ],
        }
        .proved(fixed($number)),)*];

        /// Bytes of the item of this number, without what varies in length.
        const fn fixed(number: u8) -> usize {
            match number {
                $($number => 1 $(+ len!($type $(, $codec $(, $of)?)?))*,)*
                _ => panic!("no item has this number"),
            }
        }
    };
}

items! {
    1 Core: "the inode's core is now this." {
        1 ino: Ino, "inode";
        9 core: Core as core of ino, "its core";
    }
    2 DataFork: "the inode's data fork is now this." {
        1 ino: Ino, "inode";
        9 form: Form, "what it holds";
        10 bytes: &'a [u8] as len16, "contents, behind their length in two bytes";
    }
    3 AttrFork: "the inode's attribute fork is now this." {
        1 ino: Ino, "inode";
        9 form: Form, "what it holds";
        10 bytes: &'a [u8] as len16, "contents, behind their length in two bytes";
    }
    4 DirTouch: "an entry was added to or removed from this directory." {
        1 ino: Ino, "directory";
        9 nlink: u32, "its links";
        13 size: u64, "its number of entries";
        21 stamp: Stamp, "its mtime and ctime";
    }
    5 Free: "the number is free; generation of its last user." {
        1 ino: Ino, "inode";
        9 generation: u32, "generation that was freed";
    }
    6 TreePut: "the tree holds this value under this key." {
        1 root: RootId, "root of the tree, which the key does not tell";
        3 tree: TreeId, "tree";
        4 key: Key, "key";
        20 value: &'a [u8] as value, "value, behind its length in two bytes";
    }
    7 TreeDel: "the tree holds nothing under this key." {
        1 root: RootId, "root of the tree";
        3 tree: TreeId, "tree";
        4 key: Key, "key";
    }
    8 TreeDelRange: "the tree holds nothing from `key` to before `key.hi, end`." {
        1 root: RootId, "root of the tree";
        3 tree: TreeId, "tree";
        4 key: Key, "first key";
        20 end: u64, "one past the last lower half";
    }
    9 OrphanAdd: "the inode has no name but is in use: it is in the orphan table." {
        1 ino: Ino, "inode";
    }
    10 OrphanDel: "it is not in the orphan table any more." {
        1 ino: Ino, "inode";
    }
    11 Links: "links and change time of an inode." {
        1 ino: Ino, "inode";
        9 nlink: u32, "its links";
        13 ctime: Stamp, "its ctime";
    }
    12 IntentLog: "from here on this is to be done, by the transactions that follow or by \
                   recovery." {
        1 id: u64, "number of the intent";
        9 body: &'a [u8] as len16, "the intent, behind its length in two bytes";
    }
    13 IntentProgress: "this is what is left of it to be done." {
        1 id: u64, "number of the intent";
        9 body: &'a [u8] as len16, "the intent as it is now, behind its length in two bytes";
    }
    14 IntentDone: "it is done. Number 15 is kept for intents." {
        1 id: u64, "number of the intent";
    }
    16 Root: "the root is in this state and has this name." {
        1 ino: Ino, "the root's top directory, which names the root";
        9 state: RootState, "live, deleted or vacant";
        10 floor: u32, "generation from which inodes made from now on are numbered, volume-wide";
        14 name: &'a [u8] as len8,
            "name under the volume's top, behind its length in one byte; empty unless live";
    }
    17 Named: "the directory holds this entry, and the child's attribute fork is inline and holds \
               the parent pointer of this entry, nothing else. Two items in one, for what is done \
               most." {
        1 dir: Ino, "directory";
        9 generation: u32, "its generation";
        13 lo: u64, "lower half of the entry's key";
        21 entry: Dirent<'a> as entry of dir,
            "the entry, behind the length of its name in one byte";
    }
    18 Unnamed: "the directory no longer holds this entry. It says more than replay needs, the \
                 key: a reader of the journal learns which name went, and whose." {
        1 dir: Ino, "directory";
        9 generation: u32, "its generation";
        13 lo: u64, "lower half of the entry's key";
        21 entry: Dirent<'a> as entry of dir,
            "the entry that goes, behind the length of its name in one byte";
    }
    19 Moved: "data of the file was moved, and now takes this much. The file has not changed, nor \
               has the LSN in its core." {
        1 ino: Ino, "inode";
        9 bytes: u64, "bytes that its data takes";
    }
}

impl Item<'_> {
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
            Item::Unnamed { dir, generation, lo, entry } => {
                format!("unnamed in {dir}/{generation} at {lo:#x}: {}", entry.to_text())
            }
            other => format!("{other:?}"),
        }
    }
}

fn body_to_text(body: &[u8]) -> String {
    Intent::decode(body).map_or_else(|| "broken".into(), |intent| intent.to_text())
}

/// Bytes that items take in a record, from which the engine derives the largest record of each
/// kind of call.
pub mod size {
    use super::fixed;
    use shoal_base::limits::NAME_MAX;

    /// [`Item::Core`](super::Item::Core).
    pub const CORE: usize = fixed(1);
    /// [`Item::DirTouch`](super::Item::DirTouch).
    pub const DIR_TOUCH: usize = fixed(4);
    /// [`Item::Free`](super::Item::Free).
    pub const FREE: usize = fixed(5);
    /// [`Item::Links`](super::Item::Links).
    pub const LINKS: usize = fixed(11);
    /// [`Item::Moved`](super::Item::Moved).
    pub const MOVED: usize = fixed(19);
    /// [`Item::OrphanAdd`](super::Item::OrphanAdd), [`Item::OrphanDel`](super::Item::OrphanDel).
    pub const ORPHAN: usize = fixed(9);
    /// [`Item::IntentDone`](super::Item::IntentDone).
    pub const INTENT_DONE: usize = fixed(14);
    /// [`Item::TreeDel`](super::Item::TreeDel).
    pub const TREE_DEL: usize = fixed(7);
    /// [`Item::TreeDelRange`](super::Item::TreeDelRange).
    pub const TREE_DEL_RANGE: usize = fixed(8);
    /// [`Item::Named`](super::Item::Named) or [`Item::Unnamed`](super::Item::Unnamed) with the
    /// longest name.
    pub const NAMED_MAX: usize = named(NAME_MAX);

    /// [`Item::DataFork`](super::Item::DataFork), [`Item::AttrFork`](super::Item::AttrFork).
    pub const fn fork(bytes: usize) -> usize {
        fixed(2) + bytes
    }
    /// [`Item::TreePut`](super::Item::TreePut).
    pub const fn tree_put(value: usize) -> usize {
        fixed(6) + value
    }
    /// [`Item::IntentLog`](super::Item::IntentLog) and
    /// [`Item::IntentProgress`](super::Item::IntentProgress).
    pub const fn intent(body: usize) -> usize {
        fixed(12) + body
    }
    /// [`Item::Named`](super::Item::Named) and [`Item::Unnamed`](super::Item::Unnamed).
    pub const fn named(name: usize) -> usize {
        fixed(17) + name
    }
    /// [`Item::Root`](super::Item::Root).
    pub const fn root(name: usize) -> usize {
        fixed(16) + name
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_base::limits::TREE_VALUE_MAX;

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
            (Item::Unnamed { dir: ino, generation: 1, lo: 2, entry }, size::NAMED_MAX),
            (Item::Moved { ino, bytes: 1 }, size::MOVED),
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
