//! The root table: a record for each subvolume, in pages of [`ROOTS`] numbers. A checkpoint writes
//! the changed pages, each twice, and points to all pages from its own record, which therefore
//! stays short however many subvolumes there are.

use crate::Ptr;
use crate::bytes::{Put, Reader, seal, set_at, u16_at, u32_at, u64_at};
use crate::declare::{layout, numbered};
use shoal_base::checksum::checksum_of_body;
use shoal_base::{Addr, Error, Result, RootId, invariant, limits, rootset};

/// `SRP2`.
pub const MAGIC: u32 = u32::from_le_bytes(*b"SRP2");
/// Subvolume numbers that a page covers.
pub const ROOTS: usize = rootset::GROUP;
/// Largest number of pages of a volume.
pub const PAGES_MAX: usize = (u16::MAX as usize + 1) / ROOTS;
/// Bytes of the longest page: every subvolume with the longest name.
pub const PAGE_MAX: usize = RootPage::SIZE + ROOTS * (RootRecord::SIZE + limits::NAME_MAX) + 8;

// The length of a name has one byte.
const _: () = assert!(limits::NAME_MAX <= u8::MAX as usize);
// A page and its backup copy fit in the smallest segment several times over.
const _: () = assert!(4 * PAGE_MAX as u64 <= limits::SEGMENT_SIZE_MIN);

numbered! {
    /// The state of a subvolume number.
    #[derive(Default)]
    pub enum RootState: u8 {
        /// A subvolume with a name.
        #[default]
        0 Live,
        /// Deleted: it has no name, and its contents are being freed.
        1 Deleted,
        /// Empty: the number can be reused.
        2 Vacant,
    }
}

layout! {
    /// A subvolume: its four trees and its allocation state.
    #[derive(Clone, PartialEq, Eq, Debug, Default)]
    pub struct RootRecord: "root", 224 of varying, "A subvolume in a page; its name follows." {
        0 id: RootId, "number of the subvolume";
        2 state: RootState, "0 live, 1 deleted, 2 vacant";
        3 name_len[1], "bytes of the name";
        4 flags[4], "zero";
        8 trees: [Ptr; 4],
            "root nodes of `imap`, `dirents`, `attrs`, `extents`; null for an empty tree";
        136 more_trees[64],
            "zero; reserved for two more trees: quotas and the contents of each directory";
        200 next_block: u64, "first inode block number never used";
        208 inodes: u64, "inodes in use";
        216 origin[4], "zero; reserved for the snapshot that it was made from";
        220 key[4], "zero; reserved for the number of its encryption key";
        + name: Vec<u8>, "name in the volume's top directory; empty for subvolume 0";
    }
}

const AT_NAME_LEN: usize = RootRecord::TABLE.at("name_len");

impl RootRecord {
    /// Returns the record of an unused number.
    pub fn vacant(id: RootId) -> RootRecord {
        RootRecord { id, state: RootState::Vacant, ..RootRecord::default() }
    }
    /// Returns whether the subvolume is vacant and has no trees. Its page then has no record of it.
    pub fn is_nothing(&self) -> bool {
        self.state == RootState::Vacant && self.trees.iter().all(Ptr::is_null)
    }
    /// Bytes on disk.
    pub fn encoded_len(&self) -> usize {
        Self::SIZE + self.name.len()
    }
    fn encode(&self, out: &mut Vec<u8>) {
        let mut raw = self.store();
        raw[AT_NAME_LEN] = self.name.len() as u8;
        out.put_bytes(&raw);
        out.put_bytes(&self.name);
    }
    fn decode(r: &mut Reader<'_>) -> Option<RootRecord> {
        let raw = r.take(Self::SIZE)?;
        let mut root = RootRecord::read(raw).ok()?;
        root.name = r.take(usize::from(raw[AT_NAME_LEN]))?.to_vec();
        Some(root)
    }
    /// The record as text, for logs and fsck.
    pub fn to_text(&self) -> String {
        format!("{} name {:?}", self.fields_text(), self.name.escape_ascii().to_string())
    }
}

layout! {
    /// The addresses of a page: two copies, so that damage to one loses no subvolume.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct PagePtr: "page-pointer", 40 of 40,
    "Points to a page of the root table; null if none of its subvolumes is in use." {
        0 first: Ptr, "pointer to the page";
        32 second: Addr,
           "address of the backup copy, which has the same length and checksum; 0: none";
    }
}

impl PagePtr {
    /// The pointer of a page whose numbers are all vacant.
    pub const NULL: PagePtr = PagePtr { first: Ptr::NULL, second: Addr(0) };

    /// The pointer to the backup copy; null if there is none.
    pub fn copy(&self) -> Ptr {
        match self.second {
            Addr(0) => Ptr::NULL,
            addr => Ptr { addr, ..self.first },
        }
    }
}

layout! {
    /// A page of the root table. Numbers without a record are vacant and have no trees.
    #[derive(Clone, PartialEq, Eq, Debug, Default)]
    pub struct RootPage: "root-page", 32 of varying,
    "Header of a page of the root table, which covers 64 numbers. The records of subvolumes in use \
     follow, ascending, then a checksum of all bytes before, 8 bytes." {
        0 magic: u32 = MAGIC, "`SRP2`";
        4 length[4], "bytes, from the magic to the checksum";
        8 volume: u64, "first half of the volume id";
        16 epoch: u64, "number of the checkpoint that wrote it";
        24 number: u16, "number of the page: its first subvolume divided by 64";
        26 count[2], "number of records that follow";
        28 reserved[4], "zero";
        + roots: Vec<RootRecord>, "the subvolumes in use, ascending";
    }
}

const AT_LENGTH: usize = RootPage::TABLE.at("length");
const AT_COUNT: usize = RootPage::TABLE.at("count");
const AT_VOLUME: usize = RootPage::TABLE.at("volume");

impl RootPage {
    /// Encodes the whole page.
    pub fn encode(&self) -> Vec<u8> {
        let roots: usize = self.roots.iter().map(RootRecord::encoded_len).sum();
        let len = Self::SIZE + roots + 8;
        invariant!(len <= PAGE_MAX, "page {} of the root table has {len} bytes", self.number);
        let mut out = Vec::with_capacity(len);
        self.append(&mut out);
        set_at(&mut out, AT_LENGTH, len as u32);
        set_at(&mut out, AT_COUNT, self.roots.len() as u16);
        self.roots.iter().for_each(|root| root.encode(&mut out));
        out.put_u64(0);
        seal(&mut out);
        out
    }

    /// Decodes and verifies a page.
    pub fn decode(raw: &[u8], addr: Addr, volume: u64) -> Result<RootPage> {
        let bad = |rule: &str| Err(Error::corrupt("root page", Some(addr.0), rule));
        let whole = Self::SIZE + 8 <= raw.len() && raw.len() <= PAGE_MAX;
        if !whole || u32_at(raw, AT_LENGTH) as usize != raw.len() {
            return bad("length");
        }
        if u64_at(raw, raw.len() - 8) != checksum_of_body(raw) {
            return bad("checksum");
        }
        let mut page = match RootPage::read(raw) {
            Ok(page) if page.volume == volume => page,
            Ok(_) => return bad("another volume's id"),
            Err(field) => return bad(field),
        };
        if page.read_roots(&raw[..raw.len() - 8]).is_none() {
            return bad("length of its roots");
        }
        match page.rule() {
            None => Ok(page),
            Some(rule) => bad(rule),
        }
    }

    fn read_roots(&mut self, raw: &[u8]) -> Option<()> {
        let mut r = Reader::new(&raw[Self::SIZE..]);
        for _ in 0..u16_at(raw, AT_COUNT) {
            self.roots.push(RootRecord::decode(&mut r)?);
        }
        r.is_empty().then_some(())
    }

    /// Returns the rule that the page breaks.
    fn rule(&self) -> Option<&'static str> {
        let mine = |root: &RootRecord| usize::from(root.id.0) / ROOTS == usize::from(self.number);
        let first = self.roots.first();
        if !self.roots.iter().all(mine) {
            Some("a subvolume of another page")
        } else if self.roots.windows(2).any(|pair| pair[0].id >= pair[1].id) {
            Some("subvolumes out of order")
        } else if self.roots.iter().any(RootRecord::is_nothing) {
            Some("a vacant subvolume without a tree")
        } else if first.is_none() {
            Some("no subvolume")
        } else if self.number == 0
            && first.is_none_or(|r| r.id != RootId(0) || r.state != RootState::Live)
        {
            Some("subvolume 0 is missing")
        } else {
            None
        }
    }

    /// Returns the length of the page, if `raw` begins like a page of this volume. For a search on
    /// the device.
    pub fn len_at(raw: &[u8], volume: u64) -> Option<usize> {
        let head = raw.get(..Self::SIZE)?;
        let len = u32_at(head, AT_LENGTH) as usize;
        let known = u32_at(head, 0) == MAGIC && u64_at(head, AT_VOLUME) == volume;
        (known && (Self::SIZE + 8..=PAGE_MAX).contains(&len)).then_some(len)
    }
    /// Number of the page, in a header that [`RootPage::len_at`] accepts.
    pub fn number_at(raw: &[u8]) -> u16 {
        u16_at(raw, const { RootPage::TABLE.at("number") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(number: u16, ids: &[u16]) -> RootPage {
        let root = |id: &u16| RootRecord {
            id: RootId(*id),
            name: vec![b'n'; limits::NAME_MAX],
            trees: [Ptr::sealed(Addr(1 << 22), 2, 9, 3); 4],
            next_block: 5,
            inodes: 6,
            ..RootRecord::default()
        };
        RootPage { volume: 9, number, epoch: 7, roots: ids.iter().map(root).collect() }
    }

    #[test]
    fn the_fullest_page_has_the_size_said_and_reads_back() {
        let ids: Vec<u16> = (64..128).collect();
        let full = page(1, &ids);
        let raw = full.encode();
        assert_eq!(raw.len(), PAGE_MAX);
        assert_eq!(RootPage::decode(&raw, Addr(0), 9), Ok(full));
        assert_eq!(RootPage::len_at(&raw, 9), Some(PAGE_MAX));
        assert_eq!((RootPage::number_at(&raw), RootPage::len_at(&raw, 8)), (1, None));
    }

    #[test]
    fn a_page_that_breaks_a_rule_is_refused_by_it() {
        let mut vacant = page(1, &[64]);
        (vacant.roots[0].state, vacant.roots[0].trees) = (RootState::Vacant, [Ptr::NULL; 4]);
        let mut deleted = page(0, &[0, 1]);
        deleted.roots[0].state = RootState::Deleted;
        let cases = [
            (page(1, &[63]), "a subvolume of another page"),
            (page(1, &[65, 64]), "subvolumes out of order"),
            (page(1, &[65, 65]), "subvolumes out of order"),
            (vacant, "a vacant subvolume without a tree"),
            (page(1, &[]), "no subvolume"),
            (page(0, &[1]), "subvolume 0 is missing"),
            (deleted, "subvolume 0 is missing"),
        ];
        for (page, rule) in cases {
            let error = RootPage::decode(&page.encode(), Addr(0), 9).unwrap_err().to_string();
            assert!(error.contains(rule), "{error}");
        }
        let raw = page(1, &[64]).encode();
        assert!(RootPage::decode(&raw, Addr(0), 10).is_err());
        for bit in 0..raw.len() * 8 {
            let mut bad = raw.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(RootPage::decode(&bad, Addr(0), 9).is_err(), "bit {bit}");
        }
    }
}
