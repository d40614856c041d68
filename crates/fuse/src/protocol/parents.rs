//! The ioctl that tells a file's names: a page that goes in with the question and comes back with
//! records. It is what GETPARENTS and GETPARENTS_BY_HANDLE are on XFS, in one, with the paths too.
//!
//! ```text
//! page   := ino 8 | generation 4 | flags 4 | cookie 8 | count 4 | 0 4 | record...
//! record := ino 8 | generation 4 | length 2 | 0 2 | name, and zeros up to a multiple of 8
//! ```
//!
//! | field | in | out |
//! | --- | --- | --- |
//! | ino, generation | the file; inode 0: the one that the ioctl is made on; generation 0: any | the file |
//! | flags | [`WANT_PATHS`]: whole paths in place of names | [`IS_END`], [`IS_TOP`] |
//! | cookie | 0, then what came back | where to go on |
//! | count | 0 | records |
//!
//! In a record stand inode and generation of the directory, and the name in it, without a NUL.

use super::Errno;
use super::page::{self, ALIGN, PAGE};
use super::wire::{ParentsHead, ParentsRecord};
use zerocopy::FromBytes;

/// In: the records hold paths from the top of the mount.
pub const WANT_PATHS: u32 = 1 << 0;
/// Out: these were the last.
pub const IS_END: u32 = 1 << 1;
/// Out: the file is the top of the mount, which has no name in it.
pub const IS_TOP: u32 = 1 << 2;

const HEAD: usize = size_of::<ParentsHead>();
const RECORD: usize = size_of::<ParentsRecord>();

/// Most records that fit.
pub const RECORDS_MAX: usize = (PAGE - HEAD) / (RECORD + ALIGN);

const _: () = assert!(HEAD.is_multiple_of(ALIGN) && RECORD.is_multiple_of(ALIGN));

impl page::Record for ParentsRecord {
    fn tail(&self) -> usize {
        usize::from(self.len)
    }
}

/// What a page asks for.
pub fn question(page: &[u8]) -> Result<ParentsHead, Errno> {
    let (head, _) = ParentsHead::read_from_prefix(page).map_err(|_| Errno::EINVAL)?;
    let known = head.flags & !WANT_PATHS == 0 && head.padding == 0 && head.count == 0;
    if known { Ok(head) } else { Err(Errno::EINVAL) }
}

/// Writes a page.
pub struct Writer<'a>(page::Writer<'a>);

impl<'a> Writer<'a> {
    /// Over `room`, of which no more than a page is used.
    pub fn new(room: &'a mut [u8]) -> Writer<'a> {
        Writer(page::Writer::new(room, HEAD))
    }

    /// Adds a record; `false`: it does not fit.
    pub fn push(&mut self, ino: u64, generation: u32, name: &[u8]) -> bool {
        let Ok(len) = u16::try_from(name.len()) else { return false };
        self.0.push(&ParentsRecord { ino, generation, len, padding: 0 }, name)
    }

    /// Whether there is no record yet.
    pub fn is_empty(&self) -> bool {
        self.0.count() == 0
    }

    /// Puts the head; the length of it all.
    pub fn finish(self, head: &ParentsHead) -> Result<usize, Errno> {
        let count = self.0.count();
        self.0.finish(&ParentsHead { count, ..*head })
    }
}

/// The records of a page that has come back: directory, its generation, name.
pub fn records(page: &[u8]) -> impl Iterator<Item = (u64, u32, &[u8])> {
    let count = ParentsHead::read_from_prefix(page).map_or(0, |(head, _)| head.count);
    let records = page::records::<ParentsRecord>(page, HEAD, count);
    records.map(|(record, name)| (record.ino, record.generation, name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use zerocopy::IntoBytes;

    #[test]
    fn a_full_page_reads_back() {
        let mut page = vec![0xff; PAGE + 100];
        let mut writer = Writer::new(&mut page);
        let mut n = 0;
        while writer.push(n, n as u32 + 1, &vec![b'n'; n as usize % 20]) {
            n += 1;
        }
        let head = ParentsHead { flags: IS_END, cookie: 9, ..ParentsHead::default() };
        let len = writer.finish(&head).unwrap();
        assert!(len <= PAGE && len > PAGE - 48);
        assert!(page[PAGE..].iter().all(|byte| *byte == 0xff), "no more than a page");
        let read: Vec<_> = records(&page).collect();
        assert_eq!(read.len() as u64, n);
        assert!(read.len() <= RECORDS_MAX);
        assert_eq!(read[39], (39, 40, &[b'n'; 19][..]));
    }

    #[test]
    fn questions_are_checked() {
        let good = ParentsHead { ino: 7, flags: WANT_PATHS, ..ParentsHead::default() };
        assert_eq!(question(good.as_bytes()), Ok(good));
        for bad in [
            ParentsHead { flags: 8, ..good },
            ParentsHead { padding: 1, ..good },
            ParentsHead { count: 1, ..good },
        ] {
            assert_eq!(question(bad.as_bytes()), Err(Errno::EINVAL));
        }
        assert_eq!(question(&[0; 31]), Err(Errno::EINVAL));
    }

    proptest! {
        #[test]
        fn arbitrary_pages_never_panic(page in proptest::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(records(&page).count() <= page.len());
            let _ = question(&page);
        }
    }
}
