//! The bytes of a file: pages of 4 KiB, those that are all zero left out, so that a file of 2^62
//! bytes with three of them set costs three pages. Holes and written zeros are the same to it.

use shoal_base::checksum;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Bytes of a page.
pub(super) const PAGE: u64 = 4096;

/// A sparse sequence of bytes with its hash.
#[derive(Clone, Debug, Default)]
pub struct Content {
    size: u64,
    pages: BTreeMap<u64, Arc<[u8]>>,
    hash: u64,
}

impl Content {
    /// Length in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }
    /// Hash of the bytes that are not zero and their places (the size is not in it).
    pub fn hash(&self) -> u64 {
        self.hash
    }
    /// Bytes of pages in use.
    pub fn data_bytes(&self) -> u64 {
        self.pages.len() as u64 * PAGE
    }

    /// The bytes in `offset..offset + len`, cut at the end.
    pub fn read(&self, offset: u64, len: u64) -> Vec<u8> {
        let end = offset.saturating_add(len).min(self.size).max(offset);
        let mut out = vec![0; (end - offset) as usize];
        for (number, page) in self.pages.range(offset / PAGE..end.div_ceil(PAGE)) {
            let start = number * PAGE;
            let from = start.max(offset);
            let to = (start + PAGE).min(end);
            let source = &page[(from - start) as usize..(to - start) as usize];
            out[(from - offset) as usize..(to - offset) as usize].copy_from_slice(source);
        }
        out
    }

    /// Writes, extending the size when needed.
    pub fn write(&mut self, offset: u64, data: &[u8]) {
        let end = offset + data.len() as u64;
        let mut at = offset;
        while at < end {
            let number = at / PAGE;
            let to = ((number + 1) * PAGE).min(end);
            let within = (at - number * PAGE) as usize;
            let source = &data[(at - offset) as usize..(to - offset) as usize];
            self.change(number, |page| page[within..within + source.len()].copy_from_slice(source));
            at = to;
        }
        if !data.is_empty() {
            self.size = self.size.max(end);
        }
    }

    /// Makes a range zero, without changing the size.
    pub fn zero(&mut self, offset: u64, end: u64) {
        let touched: Vec<u64> =
            self.pages.range(offset / PAGE..end.div_ceil(PAGE)).map(|(n, _)| *n).collect();
        for number in touched {
            let start = number * PAGE;
            let from = (start.max(offset) - start) as usize;
            let to = (end.min(start + PAGE) - start) as usize;
            self.change(number, |page| page[from..to].fill(0));
        }
    }

    /// Cuts or extends.
    pub fn resize(&mut self, size: u64) {
        if size < self.size {
            // Bytes behind the end must read as zero when the file grows again.
            self.zero(size, self.size);
        }
        self.size = size;
    }

    /// Returns whether everything in a range is zero.
    pub fn is_zero(&self, offset: u64, end: u64) -> bool {
        self.pages.range(offset / PAGE..end.div_ceil(PAGE)).all(|(number, page)| {
            let start = number * PAGE;
            let from = (start.max(offset) - start) as usize;
            let to = (end.min(start + PAGE) - start) as usize;
            page[from..to].iter().all(|b| *b == 0)
        })
    }

    /// Returns the contents on the way while `[offset, end)` is zeroed from its start on: how far
    /// it has come, and the hash of the contents; as they are first, then with one more byte zero
    /// each time.
    pub fn zeroed_gradually(&self, offset: u64, end: u64) -> impl Iterator<Item = (u64, u64)> {
        let mut left = self.clone();
        let places: Vec<u64> = self
            .pages
            .range(offset / PAGE..end.div_ceil(PAGE))
            .flat_map(|(number, page)| {
                let start = number * PAGE;
                (start..).zip(page.iter()).filter(|(_, byte)| **byte != 0).map(|(at, _)| at)
            })
            .filter(|at| (offset..end).contains(at))
            .collect();
        std::iter::once((offset, left.hash())).chain(places.into_iter().map(move |at| {
            left.zero(at, at + 1);
            (at + 1, left.hash())
        }))
    }

    fn change(&mut self, number: u64, edit: impl FnOnce(&mut [u8])) {
        let mut page = [0; PAGE as usize];
        let old = self.pages.get_mut(&number);
        if let Some(old) = &old {
            self.hash = self.hash.wrapping_sub(page_hash(number, old));
            page.copy_from_slice(old);
        }
        edit(&mut page);
        let zero = page == [0; PAGE as usize];
        if !zero {
            self.hash = self.hash.wrapping_add(page_hash(number, &page));
        }
        match old {
            None if zero => {}
            None => drop(self.pages.insert(number, Arc::from(page))),
            Some(_) if zero => drop(self.pages.remove(&number)),
            // A page that only this content has is changed in place.
            Some(old) => match Arc::get_mut(old) {
                Some(bytes) => bytes.copy_from_slice(&page),
                None => *old = Arc::from(page),
            },
        }
    }
}

fn page_hash(number: u64, page: &[u8]) -> u64 {
    checksum(page).wrapping_mul(number.wrapping_mul(2).wrapping_add(0x9E37_79B9_7F4A_7C15))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    #[test]
    fn behaves_like_a_vector_of_bytes() {
        let mut rng = Rng::new(3);
        let mut plain: Vec<u8> = Vec::new();
        let mut content = Content::default();
        for round in 1..500 {
            let offset = rng.below(30_000);
            let len = rng.below(9_000);
            let end = (offset + len) as usize;
            match rng.below(4) {
                0 => {
                    plain.resize(offset as usize, 0);
                    content.resize(offset);
                }
                1 => {
                    let end = end.min(plain.len());
                    plain[(offset as usize).min(end)..end].fill(0);
                    content.zero(offset, offset.max(end as u64));
                }
                _ if len > 0 => {
                    plain.resize(plain.len().max(end), 0);
                    plain[offset as usize..end].fill(round as u8);
                    content.write(offset, &vec![round as u8; len as usize]);
                }
                _ => {}
            }
            assert_eq!(content.size(), plain.len() as u64);
            assert_eq!(content.read(0, u64::MAX), plain);
            let mut fresh = Content::default();
            fresh.write(0, &plain);
            assert_eq!(fresh.hash(), content.hash(), "the hash depends on the bytes alone");
        }
    }

    #[test]
    fn far_bytes_are_cheap() {
        let mut content = Content::default();
        content.resize(1 << 62);
        content.write((1 << 62) - 1, b"x");
        assert_eq!((content.data_bytes(), content.size()), (PAGE, 1 << 62));
        assert!(content.is_zero(0, (1 << 62) - 1) && !content.is_zero(0, 1 << 62));
        assert_eq!(content.read((1 << 62) - 2, 9), b"\0x");
    }
}
