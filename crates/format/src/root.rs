//! The root table: a record for each root, in pages of [`ROOTS`] numbers. A checkpoint writes the
//! pages that changed, each twice, and its own record names all of them. So that record stays
//! short, however many roots there are.

use crate::Ptr;
use crate::bytes::{Put, Reader, u32_at, u64_at};
use shoal_base::checksum::checksum_of_body;
use shoal_base::{Addr, Error, Result, RootId, invariant, limits, rootset};

/// Bytes of a root without its name.
pub const ROOT_FIXED: usize = 4 + 4 * Ptr::SIZE + 16;
/// `SRP1`.
pub const MAGIC: u32 = u32::from_le_bytes(*b"SRP1");
/// Numbers of roots that a page answers for.
pub const ROOTS: usize = rootset::GROUP;
/// Pages of a volume, at most.
pub const PAGES_MAX: usize = (u16::MAX as usize + 1) / ROOTS;
/// Bytes before the first root.
pub const HEADER: usize = 32;
/// Bytes of the longest page: every root with the longest name.
pub const PAGE_MAX: usize = HEADER + ROOTS * (ROOT_FIXED + limits::NAME_MAX) + 8;

// The length of a name has one byte.
const _: () = assert!(limits::NAME_MAX <= u8::MAX as usize);
// A page and its second copy fit in the smallest segment, with room to spare.
const _: () = assert!(4 * PAGE_MAX as u64 <= limits::SEGMENT_SIZE_MIN);

/// What a root's number stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum RootState {
    /// A root with a name.
    #[default]
    Live = 0,
    /// It has lost its name; what is in it is being freed.
    Deleted = 1,
    /// Nothing is in it: the number can be given out again.
    Vacant = 2,
}

impl RootState {
    /// The state of this number.
    pub fn from_u8(n: u8) -> Option<RootState> {
        [RootState::Live, RootState::Deleted, RootState::Vacant].into_iter().find(|s| *s as u8 == n)
    }
}

/// The four trees of a root and its allocation state.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RootRecord {
    /// Number of the root.
    pub id: RootId,
    /// Whether it lives.
    pub state: RootState,
    /// Name under the volume's top; empty for root 0.
    pub name: Vec<u8>,
    /// Root node of each tree, indexed by [`crate::node::TreeId`]; null: the tree is empty.
    pub trees: [Ptr; 4],
    /// Inode blocks from this number on have never been used.
    pub next_block: u64,
    /// Inodes in use.
    pub inodes: u64,
}

impl RootRecord {
    /// Returns a root number that nothing is in.
    pub fn vacant(id: RootId) -> RootRecord {
        RootRecord { id, state: RootState::Vacant, ..RootRecord::default() }
    }
    /// Whether nothing is left of the root: its page has no record of it.
    pub fn is_nothing(&self) -> bool {
        self.state == RootState::Vacant && self.trees.iter().all(Ptr::is_null)
    }
    /// Bytes on disk.
    pub fn encoded_len(&self) -> usize {
        ROOT_FIXED + self.name.len()
    }
    /// Appends the bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u16(self.id.0);
        out.put_u8(self.name.len() as u8);
        out.put_u8(self.state as u8);
        out.put_bytes(&self.name);
        for tree in &self.trees {
            tree.encode(out);
        }
        out.put_u64(self.next_block);
        out.put_u64(self.inodes);
    }
    /// Reads the bytes.
    pub fn decode(r: &mut Reader<'_>) -> Option<RootRecord> {
        let id = RootId(r.u16()?);
        let (len, state) = (r.u8()? as usize, RootState::from_u8(r.u8()?)?);
        let name = r.take(len)?.to_vec();
        let mut trees = [Ptr::NULL; 4];
        for tree in &mut trees {
            *tree = Ptr::decode(r)?;
        }
        Some(RootRecord { id, state, name, trees, next_block: r.u64()?, inodes: r.u64()? })
    }
}

/// Where a page is: in two places, so that damage to one of them loses no root. 32 bytes on disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PagePtr {
    /// The page; null when all its numbers are vacant.
    pub first: Ptr,
    /// Address of the second copy, 0 if there is none.
    pub second: Addr,
}

impl PagePtr {
    /// Bytes on disk.
    pub const SIZE: usize = Ptr::SIZE + 8;
    /// All numbers of the page are vacant.
    pub const NULL: PagePtr = PagePtr { first: Ptr::NULL, second: Addr(0) };

    /// The second copy; null when there is none.
    pub fn copy(&self) -> Ptr {
        match self.second {
            Addr(0) => Ptr::NULL,
            addr => Ptr { addr, ..self.first },
        }
    }
    /// Appends the bytes: the pointer 24, address of the second copy 8.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.first.encode(out);
        out.put_u64(self.second.0);
    }
    /// Reads the bytes.
    pub fn decode(r: &mut Reader<'_>) -> Option<PagePtr> {
        Some(PagePtr { first: Ptr::decode(r)?, second: Addr(r.u64()?) })
    }
}

/// A page of the root table. Numbers without a record are vacant, and nothing is left of them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RootPage {
    /// Number of the page; its first root is this times [`ROOTS`].
    pub number: u16,
    /// Epoch whose checkpoint wrote it.
    pub epoch: u64,
    /// The roots of which there is something, ascending.
    pub roots: Vec<RootRecord>,
}

impl RootPage {
    /// Encodes: magic 4, length 4, volume 8, epoch 8, number 2, count of roots 2, reserved 4, the
    /// roots, checksum 8.
    pub fn encode(&self, volume: u64) -> Vec<u8> {
        let roots: usize = self.roots.iter().map(RootRecord::encoded_len).sum();
        let len = HEADER + roots + 8;
        invariant!(len <= PAGE_MAX, "page {} of the root table has {len} bytes", self.number);
        let mut out = Vec::with_capacity(len);
        out.put_u32(MAGIC);
        out.put_u32(len as u32);
        out.put_u64(volume);
        out.put_u64(self.epoch);
        out.put_u16(self.number);
        out.put_u16(self.roots.len() as u16);
        out.put_u32(0);
        self.roots.iter().for_each(|root| root.encode(&mut out));
        out.put_u64(0);
        let sum = checksum_of_body(&out);
        out[len - 8..].copy_from_slice(&sum.to_le_bytes());
        out
    }

    /// Decodes and verifies a page.
    pub fn decode(raw: &[u8], addr: Addr, volume: u64) -> Result<RootPage> {
        let bad = |rule: &str| Err(Error::corrupt("root page", Some(addr.0), rule));
        if raw.len() < HEADER + 8 || raw.len() > PAGE_MAX || u32_at(raw, 4) as usize != raw.len() {
            return bad("length");
        }
        if u64_at(raw, raw.len() - 8) != checksum_of_body(raw) {
            return bad("checksum");
        }
        if u32_at(raw, 0) != MAGIC {
            return bad("magic");
        }
        if u64_at(raw, 8) != volume {
            return bad("another volume's id");
        }
        let Some(page) = RootPage::fields(&raw[16..raw.len() - 8]) else {
            return bad("length of its roots");
        };
        match page.rule() {
            None => Ok(page),
            Some(rule) => bad(rule),
        }
    }

    fn fields(raw: &[u8]) -> Option<RootPage> {
        let mut r = Reader::new(raw);
        let (epoch, number, count, _reserved) = (r.u64()?, r.u16()?, r.u16()?, r.u32()?);
        let mut page = RootPage { number, epoch, roots: Vec::new() };
        for _ in 0..count {
            page.roots.push(RootRecord::decode(&mut r)?);
        }
        r.is_empty().then_some(page)
    }

    /// Which rule the page breaks.
    fn rule(&self) -> Option<&'static str> {
        let mine = |root: &RootRecord| usize::from(root.id.0) / ROOTS == usize::from(self.number);
        let first = self.roots.first();
        if !self.roots.iter().all(mine) {
            Some("a root of another page")
        } else if self.roots.windows(2).any(|pair| pair[0].id >= pair[1].id) {
            Some("roots out of order")
        } else if self.roots.iter().any(RootRecord::is_nothing) {
            Some("a vacant root without a tree")
        } else if first.is_none() {
            Some("no root")
        } else if self.number == 0
            && first.is_none_or(|r| r.id != RootId(0) || r.state != RootState::Live)
        {
            Some("root 0 is missing")
        } else {
            None
        }
    }

    /// Whether `raw` begins like a page of this volume, for a search on the device: its length.
    pub fn len_at(raw: &[u8], volume: u64) -> Option<usize> {
        let head = raw.get(..HEADER)?;
        let len = u32_at(head, 4) as usize;
        let known = u32_at(head, 0) == MAGIC && u64_at(head, 8) == volume;
        (known && (HEADER + 8..=PAGE_MAX).contains(&len)).then_some(len)
    }
    /// Number in a header that [`RootPage::len_at`] knows.
    pub fn number_at(raw: &[u8]) -> u16 {
        crate::bytes::u16_at(raw, 24)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(number: u16, ids: &[u16]) -> RootPage {
        let root = |id: &u16| RootRecord {
            id: RootId(*id),
            name: vec![b'n'; limits::NAME_MAX],
            trees: [Ptr { addr: Addr(1 << 22), len: 9, checksum: 3 }; 4],
            next_block: 5,
            inodes: 6,
            ..RootRecord::default()
        };
        RootPage { number, epoch: 7, roots: ids.iter().map(root).collect() }
    }

    #[test]
    fn the_fullest_page_has_the_size_said_and_reads_back() {
        let ids: Vec<u16> = (64..128).collect();
        let full = page(1, &ids);
        let raw = full.encode(9);
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
            (page(1, &[63]), "a root of another page"),
            (page(1, &[65, 64]), "roots out of order"),
            (page(1, &[65, 65]), "roots out of order"),
            (vacant, "a vacant root without a tree"),
            (page(1, &[]), "no root"),
            (page(0, &[1]), "root 0 is missing"),
            (deleted, "root 0 is missing"),
        ];
        for (page, rule) in cases {
            let error = RootPage::decode(&page.encode(9), Addr(0), 9).unwrap_err().to_string();
            assert!(error.contains(rule), "{error}");
        }
        let raw = page(1, &[64]).encode(9);
        assert!(RootPage::decode(&raw, Addr(0), 10).is_err());
        for bit in 0..raw.len() * 8 {
            let mut bad = raw.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(RootPage::decode(&bad, Addr(0), 9).is_err(), "bit {bit}");
        }
    }
}
