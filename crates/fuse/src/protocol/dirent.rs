//! Directory listings: records built in place, one after the other, each padded to 8 bytes.

use super::wire::{Dirent, EntryOut};
use super::{Errno, reply};
use shoal::raw::{Attr, DirEntry};
use zerocopy::{FromBytes, IntoBytes};

/// Bytes of an entry in front of each record of READDIRPLUS.
const ENTRY: usize = size_of::<EntryOut>();
/// Bytes of a record without its name.
const HEAD: usize = size_of::<Dirent>();
/// Offset of `off` in a record.
const OFF: usize = std::mem::offset_of!(Dirent, off);
/// The place behind all entries, as ext4 has one: greater than every cookie, and no negative
/// offset.
const END: u64 = u64::MAX >> 1;

/// Fills a reply with records until there is no room.
#[derive(Debug)]
pub struct Listing<'a> {
    room: &'a mut [u8],
    used: usize,
    /// Offset of the last record, behind its node.
    last: Option<usize>,
}

impl<'a> Listing<'a> {
    /// Starts a listing in `room`, which is as large as the kernel asked for.
    #[inline]
    pub fn new(room: &'a mut [u8]) -> Listing<'a> {
        Listing { room, used: 0, last: None }
    }

    /// Returns the bytes of the records so far.
    #[inline]
    pub fn len(&self) -> usize {
        self.used
    }

    /// Returns whether there is no record yet.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Adds a record of READDIR; `false` when there is no room for it.
    #[inline]
    #[must_use]
    pub fn add(&mut self, entry: &DirEntry<'_>) -> bool {
        let at = self.used;
        let size = (HEAD + entry.name.len()).next_multiple_of(8);
        self.reserve(size) && self.put_dirent(at, entry)
    }

    /// Adds a record of READDIRPLUS; `false` when there is no room for it. The entries "." and ".."
    /// have no node: the kernel takes no reference for them.
    #[inline]
    #[must_use]
    pub fn add_plus(&mut self, entry: &DirEntry<'_>, attr: &Attr) -> bool {
        let at = self.used;
        let size = (ENTRY + HEAD + entry.name.len()).next_multiple_of(8);
        if !self.reserve(size) {
            return false;
        }
        let known = match is_dot(entry.name) {
            true => EntryOut::default(),
            false => reply::entry(attr),
        };
        reply::put(self.room, at, &known).is_ok() && self.put_dirent(at + ENTRY, entry)
    }

    /// Adds a record of READDIRPLUS without a node; `false` when there is no room for it.
    #[must_use]
    pub fn add_bare(&mut self, entry: &DirEntry<'_>) -> bool {
        let at = self.used;
        let size = (ENTRY + HEAD + entry.name.len()).next_multiple_of(8);
        self.reserve(size)
            && reply::put(self.room, at, &EntryOut::default()).is_ok()
            && self.put_dirent(at + ENTRY, entry)
    }

    /// Records that there is no entry behind the last record: whoever goes on from there is at the
    /// end of the directory, whatever is added meanwhile.
    ///
    /// Without it the kernel (Linux 6.18, `fs/fuse/readdir.c`) may go on in what another process
    /// has been listing at the same time, which it keeps: a name that was moved was then listed
    /// under its old name, too, by a listing that began when the call that moved it had ended.
    #[inline]
    pub fn end(&mut self) {
        if let Some(off) = self.last.and_then(|at| self.room.get_mut(at + OFF..at + OFF + 8)) {
            off.copy_from_slice(END.as_bytes());
        }
    }

    fn reserve(&mut self, size: usize) -> bool {
        if self.room.len() - self.used < size {
            return false;
        }
        self.used += size;
        true
    }

    /// Writes record and name at `at`, and zeros up to the end of the record.
    fn put_dirent(&mut self, at: usize, entry: &DirEntry<'_>) -> bool {
        let record = Dirent {
            ino: entry.ino.0,
            off: entry.cookie,
            namelen: entry.name.len() as u32,
            kind: entry.kind as u32,
        };
        let Some(room) = self.room.get_mut(at..self.used) else { return false };
        let (head, tail) = room.split_at_mut(HEAD);
        let (name, padding) = tail.split_at_mut(entry.name.len());
        name.copy_from_slice(entry.name);
        padding.fill(0);
        self.last = Some(at);
        record.write_to(head).is_ok()
    }
}

/// Returns whether the kernel treats `name` as the directory itself or its parent.
#[inline]
fn is_dot(name: &[u8]) -> bool {
    matches!(name, b"." | b"..")
}

/// Action for the node of a record.
pub enum Node {
    /// Leaves it as it is.
    Keep,
    /// Removes it: the name is still listed, and looked up when needed.
    Drop,
    /// Replaces it.
    Show(EntryOut),
}

/// Calls `each` with every record of a READDIRPLUS reply that has a node.
pub fn for_each_node(
    records: &mut [u8],
    mut each: impl FnMut(&EntryOut) -> Node,
) -> Result<(), Errno> {
    let mut rest = records;
    while !rest.is_empty() {
        let (entry, _) = EntryOut::read_from_prefix(rest).map_err(|_| Errno::EIO)?;
        let head = rest.get(ENTRY..).ok_or(Errno::EIO)?;
        let (dirent, _) = Dirent::read_from_prefix(head).map_err(|_| Errno::EIO)?;
        let node = if entry.nodeid == 0 { Node::Keep } else { each(&entry) };
        match node {
            Node::Keep => {}
            Node::Drop => drop(reply::put(rest, 0, &EntryOut::default())?),
            Node::Show(entry) => drop(reply::put(rest, 0, &entry)?),
        }
        let size = (ENTRY + HEAD + dirent.namelen as usize).next_multiple_of(8);
        rest = rest.get_mut(size..).ok_or(Errno::EIO)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::reply::tests::sample;
    use super::*;
    use proptest::prelude::*;
    use shoal::raw::{FileKind, Ino};
    use shoal_skip::property;

    fn entry(name: &[u8], cookie: u64) -> DirEntry<'_> {
        DirEntry { name, ino: Ino(0x77), kind: FileKind::Directory, cookie }
    }

    #[test]
    fn plain_record_bytes() {
        let mut room = [0xAA; 64];
        let mut listing = Listing::new(&mut room);
        assert!(listing.add(&entry(b"abc", 5)));
        assert_eq!(listing.len(), 32);
        assert!(listing.add(&entry(b"12345678", 6)));
        assert!(!listing.add(&entry(b"x", 7)), "full");
        assert_eq!(listing.len(), 64);
        assert_eq!(room[0], 0x77);
        assert_eq!(room[8], 5);
        assert_eq!(room[16], 3);
        assert_eq!(room[20], 4, "DT_DIR");
        assert_eq!(&room[24..32], b"abc\0\0\0\0\0");
        assert_eq!(&room[32 + 24..], b"12345678");
    }

    #[test]
    fn plus_record_bytes() {
        let mut room = [0xAA; 160 + 160];
        let mut listing = Listing::new(&mut room);
        assert!(listing.add_plus(&entry(b".", 1), &sample()));
        assert!(listing.add_plus(&entry(b"name", 2), &sample()));
        assert_eq!(listing.len(), 320);
        assert_eq!(room[..8], [0; 8], "no node for \".\"");
        assert_eq!(room[152], b'.');
        assert_eq!(room[160..168], 0x1122_3344_5566_7788u64.to_le_bytes());
        assert_eq!(&room[160 + 152..160 + 156], b"name");
        assert_eq!(room[160 + 136], 2, "cookie");
    }

    #[test]
    fn the_last_record_leads_to_the_end() {
        let mut room = [0; 4096];
        Listing::new(&mut room).end();
        assert_eq!(room, [0; 4096], "there is none");
        let mut listing = Listing::new(&mut room);
        assert!(listing.add(&entry(b"first", 5)) && listing.add(&entry(b"last", 6)));
        listing.end();
        assert_eq!(listing.len(), 64);
        assert_eq!((room[8], &room[40..48]), (5, &i64::MAX.to_le_bytes()[..]));
        let mut listing = Listing::new(&mut room);
        assert!(listing.add_plus(&entry(b"last", 6), &sample()));
        listing.end();
        assert_eq!(room[136..144], i64::MAX.to_le_bytes());
    }

    #[test]
    fn a_node_that_cannot_be_held_is_taken_back() {
        let mut room = [0; 4096];
        let mut listing = Listing::new(&mut room);
        for (at, name) in [&b"."[..], b"..", b"a", b"longer name"].into_iter().enumerate() {
            assert!(listing.add_plus(&entry(name, at as u64 + 1), &sample()));
        }
        let used = listing.len();
        let mut asked = 0;
        for_each_node(&mut room[..used], |_| {
            asked += 1;
            if asked == 1 { Node::Keep } else { Node::Drop }
        })
        .unwrap();
        assert_eq!(asked, 2, "not for . and ..");
        let mut left = 0;
        for_each_node(&mut room[..used], |entry| {
            assert_eq!(entry.nodeid, 0x1122_3344_5566_7788);
            left += 1;
            Node::Show(EntryOut { nodeid: 7, ..*entry })
        })
        .unwrap();
        assert_eq!(left, 1);
        for_each_node(&mut room[..used], |entry| {
            assert_eq!((entry.nodeid, entry.attr.ino), (7, 0x1122_3344_5566_7788));
            Node::Keep
        })
        .unwrap();
    }

    fn names() -> impl Strategy<Value = Vec<Vec<u8>>> {
        proptest::collection::vec(proptest::collection::vec(1u8..=255, 1..=255), 0..20)
    }

    proptest! {
        #![proptest_config(property(256))]

        #[test]
        fn records_never_leave_their_room(
            names in names(),
            size in 0usize..3000,
        ) {
            let mut room = vec![0u8; size];
            let mut listing = Listing::new(&mut room);
            let fitting = names
                .iter()
                .take_while(|name| listing.add_plus(&entry(name, 9), &sample()))
                .filter(|name| !is_dot(name))
                .count();
            let used = listing.len();
            prop_assert!(used <= size && used.is_multiple_of(8));
            let mut seen = 0;
            for_each_node(&mut room[..used], |_| { seen += 1; Node::Keep }).unwrap();
            prop_assert_eq!(seen, fitting);
        }

        #[test]
        fn arbitrary_records_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..700)) {
            let mut bytes = bytes;
            let _ = for_each_node(&mut bytes, |entry| match entry.nodeid % 3 {
                0 => Node::Keep,
                1 => Node::Drop,
                _ => Node::Show(EntryOut::default()),
            });
        }
    }
}
