//! Items: the parts of a transaction's record. They are absolute (they state the new value), so
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

/// Encodings of fields that vary in length or depend on another field: a module each. `LEN` is the
/// minimum length in bytes.
mod codec {
    use crate::bytes::{Put, Reader};
    use crate::declare::Field;
    use crate::dirent::{self, Dirent};
    use shoal_base::RootId;
    use shoal_base::limits::TREE_VALUE_MAX;

    pub(super) fn put<T: Field>(value: &T, out: &mut Vec<u8>) {
        let start = out.len();
        out.resize(start + T::LEN, 0);
        value.put(&mut out[start..]);
    }

    /// Bytes, preceded by their number (2 bytes).
    pub(super) mod len16 {
        use super::*;
        pub(crate) const LEN: usize = 2;
        pub(crate) fn put(bytes: &[u8], out: &mut Vec<u8>) {
            out.put_u16(bytes.len() as u16);
            out.put_bytes(bytes);
        }
        pub(crate) fn get<'a>(r: &mut Reader<'a>) -> Option<&'a [u8]> {
            let len = r.u16()?;
            r.take(len.into())
        }
    }

    /// The same, but at most as long as a tree value may be. A longer value would make a tree split
    /// its leaf forever.
    pub(super) mod value {
        use super::*;
        pub(crate) const LEN: usize = super::len16::LEN;
        pub(crate) use super::len16::put;
        pub(crate) fn get<'a>(r: &mut Reader<'a>) -> Option<&'a [u8]> {
            super::len16::get(r).filter(|value| value.len() <= TREE_VALUE_MAX)
        }
    }

    /// Bytes, preceded by their number (1 byte).
    pub(super) mod len8 {
        use super::*;
        pub(crate) const LEN: usize = 1;
        pub(crate) fn put(bytes: &[u8], out: &mut Vec<u8>) {
            out.put_u8(bytes.len() as u8);
            out.put_bytes(bytes);
        }
        pub(crate) fn get<'a>(r: &mut Reader<'a>) -> Option<&'a [u8]> {
            let len = r.u8()?;
            r.take(len.into())
        }
    }

    /// The core of an inode.
    pub(super) mod core {
        use super::*;
        use crate::inode::Core;
        pub(crate) const LEN: usize = Core::SIZE;
        pub(crate) fn put(core: &Core, root: RootId, out: &mut Vec<u8>) {
            core.encode(root, out);
        }
        pub(crate) fn get(r: &mut Reader<'_>, root: RootId) -> Option<Core> {
            Core::decode(root, r)
        }
    }

    /// A directory entry, preceded by the length of its name (1 byte).
    pub(super) mod entry {
        use super::*;
        pub(crate) const LEN: usize = 1 + dirent::HEADER;
        pub(crate) fn put(entry: &Dirent<'_>, root: RootId, out: &mut Vec<u8>) {
            out.put_u8(entry.name.len() as u8);
            entry.encode(root, out);
        }
        pub(crate) fn get<'a>(r: &mut Reader<'a>, root: RootId) -> Option<Dirent<'a>> {
            let len = dirent::HEADER + usize::from(r.u8()?);
            Dirent::decode(root, r.take(len)?)
        }
    }
}

/// Encodes a field: directly, with a codec, or with a codec that needs the subvolume of an inode.
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

/// Minimum length of a field in bytes.
macro_rules! len {
    ($type:ty) => {
        <$type as Field>::LEN
    };
    ($type:ty, $codec:ident $(, $of:ident)?) => {
        codec::$codec::LEN
    };
}

/// Declares the items: number, name, description; and for each field offset, name, type, codec and
/// description.
macro_rules! items {
    ($($number:literal $name:ident: $doc:literal {
        $($at:literal $field:ident: $type:ty $(as $codec:ident $(of $of:ident)?)?, $what:literal;)*
    })*) => {
        /// One change. Its first byte on disk is its number. Numbers must never be reused.
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
            /// Decodes the next item; `None` if the bytes are invalid.
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

        /// The items' tables in the document, with minimum lengths. The compiler proves every
        /// offset.
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

        /// Minimum length in bytes of the item with this number.
        const fn fixed(number: u8) -> usize {
            match number {
                $($number => 1 $(+ len!($type $(, $codec $(, $of)?)?))*,)*
                _ => panic!("no item has this number"),
            }
        }
    };
}

items! {
    1 Core: "sets the inode's core." {
        1 ino: Ino, "inode";
        9 core: Core as core of ino, "new core";
    }
    2 DataFork: "sets the inode's data fork." {
        1 ino: Ino, "inode";
        9 form: Form, "representation";
        10 bytes: &'a [u8] as len16, "contents, preceded by their length (2 bytes)";
    }
    3 AttrFork: "sets the inode's attribute fork." {
        1 ino: Ino, "inode";
        9 form: Form, "representation";
        10 bytes: &'a [u8] as len16, "contents, preceded by their length (2 bytes)";
    }
    4 DirTouch: "an entry was added to or removed from this directory." {
        1 ino: Ino, "directory";
        9 nlink: u32, "new number of links";
        13 size: u64, "new number of entries";
        21 stamp: Stamp, "new mtime and ctime";
    }
    5 Free: "frees the inode number." {
        1 ino: Ino, "inode";
        9 generation: u32, "generation of the last user";
    }
    6 TreePut: "sets the value of a key in a tree." {
        1 root: RootId, "subvolume of the tree, which the key does not contain";
        3 tree: TreeId, "tree";
        4 key: Key, "key";
        20 value: &'a [u8] as value, "value, preceded by its length (2 bytes)";
    }
    7 TreeDel: "removes a key from a tree." {
        1 root: RootId, "subvolume of the tree";
        3 tree: TreeId, "tree";
        4 key: Key, "key";
    }
    8 TreeDelRange: "removes all keys from `key` up to, not including, `key.hi, end`." {
        1 root: RootId, "subvolume of the tree";
        3 tree: TreeId, "tree";
        4 key: Key, "first key";
        20 end: u64, "lower half of the first key that stays";
    }
    9 OrphanAdd: "puts the inode into the orphan table: it is unlinked, or a truncate is in \
                  progress." {
        1 ino: Ino, "inode";
    }
    10 OrphanDel: "removes the inode from the orphan table." {
        1 ino: Ino, "inode";
    }
    11 Links: "sets number of links and change time of an inode." {
        1 ino: Ino, "inode";
        9 nlink: u32, "new number of links";
        13 ctime: Stamp, "new ctime";
    }
    12 IntentLog: "opens an intent, which the following transactions or recovery must carry \
                   out." {
        1 id: u64, "number of the intent";
        9 body: &'a [u8] as len16, "the intent, preceded by its length (2 bytes)";
    }
    13 IntentProgress: "replaces an open intent by its remaining part." {
        1 id: u64, "number of the intent";
        9 body: &'a [u8] as len16, "the remaining intent, preceded by its length (2 bytes)";
    }
    14 IntentDone: "closes an intent. Number 15 is reserved for intents." {
        1 id: u64, "number of the intent";
    }
    16 Root: "sets state and name of a subvolume." {
        1 ino: Ino, "top directory of the subvolume, which identifies it";
        9 state: RootState, "live, deleted or vacant";
        10 floor: u32, "lowest generation of inodes made from now on, volume-wide";
        14 name: &'a [u8] as len8,
            "name in the top directory, preceded by its length (1 byte); empty unless live";
    }
    17 Named: "adds an entry to the directory and sets the child's attribute fork to inline, \
               with the parent pointer of this entry only. Two items in one, for the most \
               frequent operation." {
        1 dir: Ino, "directory";
        9 generation: u32, "its generation";
        13 lo: u64, "lower half of the entry's key";
        21 entry: Dirent<'a> as entry of dir,
            "the entry, preceded by the length of its name (1 byte)";
    }
    18 Unnamed: "removes an entry from the directory. Replay needs only the key; the rest tells \
                 readers of the journal which name was removed, and its inode." {
        1 dir: Ino, "directory";
        9 generation: u32, "its generation";
        13 lo: u64, "lower half of the entry's key";
        21 entry: Dirent<'a> as entry of dir,
            "the removed entry, preceded by the length of its name (1 byte)";
    }
    19 Moved: "the cleaner moved data of the file: sets the bytes that the data takes. Neither the \
               contents nor the LSN in the core change." {
        1 ino: Ino, "inode";
        9 bytes: u64, "new number of bytes";
    }
}

impl Item<'_> {
    /// The item as text, for logs and fsck.
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

/// Bytes of items in a record, from which the engine computes the longest record of each kind of
/// call.
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
