//! Attributes: stored one after another in an inode's attribute fork, or each as a value of the
//! `attrs` tree. The encoding is the same in both places.
//!
//! ```text
//! attribute := namespace 1 | name length 1 | value length 2 | name | value
//! ```
//!
//! A value longer than [`LOCAL_MAX`] is stored in a data object. The attribute then has bit 7 of
//! the namespace set and a pointer in place of the value. A *parent pointer* is an attribute whose
//! name is that of a directory entry and whose value names the directory and its generation (after
//! XFS parent pointers, Darrick J. Wong). A file has one for each of its names. Two of them may
//! have the same name, so a parent pointer is identified by name and value together. The
//! directory's number is relative to the subvolume of the inode ([`Ino::relative_to`]).

use crate::Ptr;
use crate::bytes::{Put, Reader};
use crate::declare::{layout, numbered};
use crate::extent::Extent;
use crate::node::Key;
use crate::sums::Sums;
use shoal_base::{Ino, RootId, limits};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Longest value, as on Linux.
pub const VALUE_MAX: usize = 65_536;
/// Longest value, in bytes, that is stored next to its name. Longer ones are stored in a data
/// object.
pub const LOCAL_MAX: usize = 1024;
/// Bytes of a parent pointer's value.
pub const PARENT_SIZE: usize = Link::SIZE;
/// Bytes of the pointer to a value in a data object.
pub const REMOTE_SIZE: usize = Ptr::SIZE;
/// Set in the namespace byte if the value is in a data object.
pub const REMOTE: u8 = 0x80;
/// Mask of the suffix in the lowest byte of the key, which distinguishes names whose hashes
/// collide.
pub const SUFFIX_MASK: u64 = 0xff;
/// Set in the lower key half of a parent pointer, which sorts them after all other attributes of an
/// inode. Also set in the file offset recorded in the data object of an attribute value: no file
/// can have such an offset.
pub const KEY_HIGH: u64 = 1 << 63;

// The longest attribute with a local value fits in a tree value.
const _: () = assert!(HEADER + limits::NAME_MAX + LOCAL_MAX <= limits::TREE_VALUE_MAX);
// A remote value is one object.
const _: () = assert!(VALUE_MAX <= limits::EXTENT_MAX);

numbered! {
    /// The class of an attribute, which decides who may access it.
    pub enum Namespace: u8 {
        /// Anybody who may write to the file.
        1 User,
        /// Privileged processes.
        2 Trusted,
        /// Security modules.
        3 Security,
        /// The system: access control lists.
        4 System,
        /// Shoal itself: parent pointers. No call can see or set them.
        5 Parent,
    }
}

impl Namespace {
    /// The prefix of full names.
    pub fn prefix(self) -> &'static str {
        ["user.", "trusted.", "security.", "system.", "parent."][self as usize - 1]
    }
}

layout! {
    /// Header of an attribute.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct AttrHeader: "attribute", 4 of varying,
    "An attribute, in an inode's attribute fork or as a value in the `attrs` tree; name and value \
     follow. A value of more than 1024 bytes is stored in a data object, and a pointer to it takes \
     the place of the value." {
        0 space: u8, "1 user, 2 trusted, 3 security, 4 system, 5 parent; bit 7: value in an object";
        1 name_len: u8, "bytes of the name";
        2 value_len: u16, "bytes of the value, or of the pointer to it";
    }
}

/// Bytes of an attribute before its name.
pub const HEADER: usize = AttrHeader::SIZE;

layout! {
    /// A parent pointer's value.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
    pub struct Link: "parent-pointer", 12 of 12,
    "Value of an attribute of namespace 5, whose name is that of the directory entry." {
        0 dir: Ino, "the directory";
        8 generation: u32, "its generation";
    }
}

impl Link {
    /// Encodes it for an inode of the subvolume `root`.
    #[inline]
    pub fn encode(&self, root: RootId) -> [u8; PARENT_SIZE] {
        Link { dir: Ino(self.dir.relative_to(root)), ..*self }.store()
    }
    /// Decodes the bytes of an inode of the subvolume `root`.
    #[inline]
    pub fn decode(root: RootId, raw: &[u8]) -> Option<Link> {
        let Link { dir, generation } = Link::load(raw.try_into().ok()?).ok()?;
        (dir.0 != 0).then(|| Link { dir: Ino::from_relative(root, dir.0), generation })
    }
}

/// The identity of an attribute among those of an inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Id<'a> {
    /// Namespace.
    pub space: Namespace,
    /// Name, without the namespace's prefix.
    pub name: &'a [u8],
    /// The directory, if it is a parent pointer.
    pub link: Option<Link>,
}

impl<'a> Id<'a> {
    /// An attribute that is not a parent pointer.
    pub fn new(space: Namespace, name: &'a [u8]) -> Id<'a> {
        Id { space, name, link: None }
    }
    /// A parent pointer.
    #[inline]
    pub fn parent(link: Link, name: &'a [u8]) -> Id<'a> {
        Id { space: Namespace::Parent, name, link: Some(link) }
    }
    /// The lower half of its key in the `attrs` tree of `root`, before the suffix.
    pub fn hash(&self, root: RootId, seed: u64) -> u64 {
        let (salt, high) = match self.link {
            Some(Link { dir, generation }) => {
                let link = dir.relative_to(root) ^ u64::from(generation) << 32;
                (shoal_base::shard::spread(link), KEY_HIGH)
            }
            None => (self.space as u64, 0),
        };
        (xxh3_64_with_seed(self.name, seed ^ salt) >> 1) & !SUFFIX_MASK | high
    }
    /// Its first key in the `attrs` tree.
    pub fn key(&self, ino: Ino, seed: u64) -> Key {
        Key::of(ino, self.hash(ino.root(), seed))
    }
    /// The identity as text, for messages.
    pub fn to_text(&self) -> String {
        let name = format!("{}{}", self.space.prefix(), self.name.escape_ascii());
        match self.link {
            Some(Link { dir, generation }) => format!("{name} in {dir} generation {generation}"),
            None => name,
        }
    }
}

/// The place of a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Value<'a> {
    /// In the attribute itself.
    Local(&'a [u8]),
    /// In a data object.
    Remote(Ptr),
}

impl Value<'_> {
    fn stored_len(&self) -> usize {
        match self {
            Value::Local(bytes) => bytes.len(),
            Value::Remote(_) => REMOTE_SIZE,
        }
    }
    /// Bytes of the value itself.
    pub fn len(&self) -> usize {
        match self {
            Value::Local(bytes) => bytes.len(),
            Value::Remote(ptr) => ptr.logical.get() as usize,
        }
    }
    /// Returns whether the value is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// The value's object on the device as an extent, for uniform space accounting.
    #[inline]
    pub fn extent(&self) -> Option<Extent> {
        match self {
            Value::Local(_) => None,
            Value::Remote(ptr) => {
                let len = ptr.logical.get();
                Some(Extent { offset: 0, len, skip: 0, ptr: *ptr, sums: Sums::NONE })
            }
        }
    }
}

/// An attribute.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attr<'a> {
    /// Namespace.
    pub space: Namespace,
    /// Name, without the namespace's prefix.
    pub name: &'a [u8],
    /// Value.
    pub value: Value<'a>,
}

impl<'a> Attr<'a> {
    /// Bytes of the encoding.
    #[inline]
    pub fn encoded_len(&self) -> usize {
        HEADER + self.name.len() + self.value.stored_len()
    }
    /// Appends the encoding.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let flag = if matches!(self.value, Value::Remote(_)) { REMOTE } else { 0 };
        let head = AttrHeader {
            space: self.space as u8 | flag,
            name_len: self.name.len() as u8,
            value_len: self.value.stored_len() as u16,
        };
        head.append(out);
        out.put_bytes(self.name);
        match self.value {
            Value::Local(bytes) => out.put_bytes(bytes),
            Value::Remote(ptr) => ptr.append(out),
        }
    }
    /// Returns the encoding.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.encoded_len());
        self.encode(&mut out);
        out
    }
    /// Decodes the next attribute and verifies it.
    #[inline]
    pub fn decode(r: &mut Reader<'a>) -> Option<Attr<'a>> {
        let head: AttrHeader = r.field()?;
        let space = Namespace::from_number(head.space & !REMOTE)?;
        let (name, raw) = (r.take(head.name_len.into())?, r.take(head.value_len.into())?);
        let value = match head.space & REMOTE {
            0 => Value::Local(raw),
            _ => {
                let ptr = Ptr::load(raw.try_into().ok()?).ok()?;
                let whole =
                    !ptr.is_null() && ptr.is_valid() && ptr.logical.get() as usize <= VALUE_MAX;
                Value::Remote(whole.then_some(ptr)?)
            }
        };
        let attr = Attr { space, name, value };
        attr.is_valid().then_some(attr)
    }
    /// Decodes an attribute that must fill `raw`: a value of the `attrs` tree.
    pub fn decode_whole(raw: &'a [u8]) -> Option<Attr<'a>> {
        let mut r = Reader::new(raw);
        Attr::decode(&mut r).filter(|_| r.is_empty())
    }
    /// Verifies: the name is not empty, the value has an allowed length, and a parent pointer is
    /// well-formed.
    fn is_valid(&self) -> bool {
        let value = match (self.space, self.value) {
            // The check does not depend on the subvolume.
            (Namespace::Parent, Value::Local(raw)) => Link::decode(RootId(0), raw).is_some(),
            (Namespace::Parent, Value::Remote(_)) => false,
            (_, Value::Local(raw)) => raw.len() <= LOCAL_MAX,
            (_, Value::Remote(_)) => true,
        };
        !self.name.is_empty() && value
    }
    /// Returns whether it is a parent pointer.
    #[inline]
    pub fn is_parent(&self) -> bool {
        self.space == Namespace::Parent
    }
    /// Its identity, among the attributes of an inode of `root`.
    #[inline]
    pub fn id(&self, root: RootId) -> Id<'a> {
        Id { space: self.space, name: self.name, link: self.link(root) }
    }
    /// The directory, if it is a parent pointer of an inode of `root`.
    #[inline]
    pub fn link(&self, root: RootId) -> Option<Link> {
        match (self.space, self.value) {
            (Namespace::Parent, Value::Local(raw)) => Link::decode(root, raw),
            _ => None,
        }
    }
    /// An attribute of an inode of `root` as text, for logs and fsck.
    pub fn to_text(&self, root: RootId) -> String {
        let id = self.id(root).to_text();
        match self.value {
            _ if self.space == Namespace::Parent => id,
            Value::Local(raw) => format!("{id} = {} bytes", raw.len()),
            Value::Remote(ptr) => format!("{id} = {} bytes at {}", ptr.logical.get(), ptr.addr.0),
        }
    }
}

/// Encodes the parent pointer of an inode of `root` for an entry `name` (1 to 255 bytes) of the
/// directory in `link`, in one allocation of the exact size: the whole attribute fork of a file
/// with one name.
#[inline]
pub fn parent_bytes(root: RootId, link: Link, name: &[u8]) -> Box<[u8]> {
    let mut raw = Vec::with_capacity(HEADER + name.len() + PARENT_SIZE);
    let head = AttrHeader {
        space: Namespace::Parent as u8,
        name_len: name.len() as u8,
        value_len: PARENT_SIZE as u16,
    };
    head.append(&mut raw);
    raw.extend_from_slice(name);
    raw.extend_from_slice(&link.encode(root));
    raw.into_boxed_slice()
}

/// The attributes of a fork, in order. Yields `None` for the first broken one, and ends there.
#[derive(Clone, Copy)]
pub struct Attrs<'a> {
    fork: &'a [u8],
    rest: Reader<'a>,
}

impl<'a> Attrs<'a> {
    /// Iterates over the attributes of this fork.
    #[inline]
    pub fn new(fork: &'a [u8]) -> Attrs<'a> {
        Attrs { fork, rest: Reader::new(fork) }
    }
    /// Offset in the fork at which the next attribute begins.
    #[inline]
    pub fn position(&self) -> usize {
        self.fork.len() - self.rest.rest().len()
    }
}

impl<'a> Iterator for Attrs<'a> {
    type Item = Option<Attr<'a>>;
    #[inline]
    fn next(&mut self) -> Option<Option<Attr<'a>>> {
        if self.rest.is_empty() {
            return None;
        }
        let attr = Attr::decode(&mut self.rest);
        if attr.is_none() {
            self.rest = Reader::new(&[]);
        }
        Some(attr)
    }
}

/// Verifies a fork of an inode of `root`: every attribute is valid, none occurs twice. The error
/// names the broken rule.
pub fn verify_fork(root: RootId, fork: &[u8]) -> Result<(), String> {
    let mut ids: Vec<Id<'_>> = Vec::new();
    let mut attrs = Attrs::new(fork);
    let mut at = 0;
    while let Some(attr) = attrs.next() {
        let id = attr.ok_or_else(|| format!("not an attribute at byte {at}"))?.id(root);
        if ids.contains(&id) {
            return Err(format!("{} twice", id.to_text()));
        }
        ids.push(id);
        at = attrs.position();
    }
    Ok(())
}

/// The contents of a fork of an inode of `root`, for logs and fsck.
pub fn fork_to_text(root: RootId, fork: &[u8]) -> String {
    let line = |attr: Option<Attr<'_>>| attr.map_or("broken".into(), |a| a.to_text(root));
    Attrs::new(fork).map(line).collect::<Vec<_>>().join(", ")
}

/// Returns whether a fork has a value in a data object, without decoding the attributes.
#[inline]
pub fn has_remote(fork: &[u8]) -> bool {
    let mut at = 0;
    while let Some(head) = fork.get(at..at + HEADER) {
        if head[0] & REMOTE != 0 {
            return true;
        }
        at += HEADER + head[1] as usize + u16::from_le_bytes([head[2], head[3]]) as usize;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: RootId = RootId(5);
    const LINK: Link = Link { dir: Ino(5 << 48 | 77), generation: 3 };

    #[test]
    fn a_parent_pointer_is_the_same_however_it_is_built() {
        let value = LINK.encode(ROOT);
        let attr = Attr { space: Namespace::Parent, name: b"name", value: Value::Local(&value) };
        let raw = attr.to_bytes();
        assert_eq!(raw[..], parent_bytes(ROOT, LINK, b"name")[..]);
        assert_eq!(raw.len(), HEADER + 4 + PARENT_SIZE);
        assert_eq!(Attr::decode_whole(&raw), Some(attr));
        assert_eq!(attr.id(ROOT), Id::parent(LINK, b"name"));
    }

    #[test]
    fn equal_names_in_two_directories_have_different_keys() {
        let other = Link { dir: Ino(5 << 48 | 78), generation: 3 };
        let (a, b) = (Id::parent(LINK, b"x").hash(ROOT, 9), Id::parent(other, b"x").hash(ROOT, 9));
        assert_ne!(a, b);
        assert!(a & KEY_HIGH != 0 && a & SUFFIX_MASK == 0);
        assert_eq!(Id::new(Namespace::User, b"x").hash(ROOT, 9) & (KEY_HIGH | SUFFIX_MASK), 0);
    }

    #[test]
    fn parent_pointers_of_the_same_tree_in_two_roots_have_the_same_bytes_and_keys() {
        let in_root = |root: RootId| {
            let link = Link { dir: Ino::new(root, 77), generation: 3 };
            assert_eq!(Link::decode(root, &link.encode(root)), Some(link));
            let key = Id::parent(link, b"x").key(Ino::new(root, 5), 9);
            (parent_bytes(root, link, b"x"), key)
        };
        assert_eq!(in_root(RootId(0)), in_root(RootId(9)));
        assert_eq!(Link::decode(ROOT, &[0; PARENT_SIZE]), None, "no directory has the index 0");
    }

    #[test]
    fn rules_are_kept() {
        let ptr = Ptr::sealed(shoal_base::Addr(8 << 20), 1, 65_536, 1);
        let good = Attr { space: Namespace::User, name: b"n", value: Value::Remote(ptr) };
        let raw = good.to_bytes();
        assert_eq!(Attr::decode_whole(&raw), Some(good));
        assert!(has_remote(&raw) && verify_fork(ROOT, &raw).is_ok());
        assert!(verify_fork(ROOT, &[&raw[..], &raw[..]].concat()).unwrap_err().contains("twice"));
        let long = Attr { value: Value::Remote(Ptr::sealed(ptr.addr, 1, 65_537, 1)), ..good };
        assert_eq!(Attr::decode_whole(&long.to_bytes()), None);
        let nameless = Attr { name: b"", ..good };
        assert_eq!(Attr::decode_whole(&nameless.to_bytes()), None);
        let stray = Attr { space: Namespace::Parent, name: b"n", value: Value::Local(b"short") };
        assert_eq!(Attr::decode_whole(&stray.to_bytes()), None);
    }
}
