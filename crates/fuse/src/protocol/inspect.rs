//! The ioctl that lists what goes on inside a mounted volume, a page at a time: its counters, the
//! inodes in its orphan table, its deleted roots, and why it has become read-only; and the one that
//! discards its free space, a piece for each page.
//!
//! ```text
//! page    := cookie 8 | what 4 | flags 4 | count 4 | 0 4 | record...
//! counter := value 8 | length 2 | length 2 | gauge 4 | name | what it counts
//! orphan  := ino 8 | size 8 | bytes 8 | state 1 | flags 1 | length 2 | 0 4 | path
//! ```
//!
//! The reason for being read-only is told as a counter's words; no record: it is not.
//!
//! A deleted root is told as an orphan: its top, and as size how many inodes are left in it.

use super::Errno;
use super::page::{self, ALIGN, PAGE, Record};
use super::wire::{CounterRecord, InspectHead, OrphanRecord};
use shoal::OrphanState;
use zerocopy::FromBytes;

/// `what`: counters. For everybody.
pub const COUNTERS: u32 = 0;
/// Orphans.
pub const ORPHANS: u32 = 1;
/// Deleted roots.
pub const ROOTS: u32 = 2;
/// Why it takes no changes. For everybody.
pub const READ_ONLY: u32 = 3;
/// Discards free segments, about a GiB, and tells a counter of the bytes that these were. The first
/// page, of cookie 0, makes a checkpoint first.
pub const TRIM: u32 = 4;
/// Longest reason told.
pub const REASON_MAX: usize = 1024;

/// Out: these were the last.
pub const IS_END: u32 = 1 << 0;

/// Flag of an orphan: it has a slot in the table.
pub const HAS_SLOT: u8 = 1 << 0;
/// Somebody has it open, or knows it.
pub const IS_HELD: u8 = 1 << 1;
/// Its path is known.
pub const HAS_PATH: u8 = 1 << 2;

const HEAD: usize = size_of::<InspectHead>();
/// Most orphans that fit.
pub const ORPHANS_MAX: usize = (PAGE - HEAD) / size_of::<OrphanRecord>();

const _: () = assert!(HEAD.is_multiple_of(ALIGN));

impl Record for CounterRecord {
    fn tail(&self) -> usize {
        usize::from(self.name_len) + usize::from(self.what_len)
    }
}

impl Record for OrphanRecord {
    fn tail(&self) -> usize {
        usize::from(self.len)
    }
}

/// What a page asks for.
pub fn question(page: &[u8]) -> Result<InspectHead, Errno> {
    let (head, _) = InspectHead::read_from_prefix(page).map_err(|_| Errno::EINVAL)?;
    let known = head.what <= TRIM && head.flags == 0 && head.padding == 0 && head.count == 0;
    if known { Ok(head) } else { Err(Errno::EINVAL) }
}

/// A page to be filled.
pub fn writer(room: &mut [u8]) -> page::Writer<'_> {
    page::Writer::new(room, HEAD)
}

/// The records of a page that has come back.
pub fn records<R: Record>(page: &[u8]) -> impl Iterator<Item = (R, &[u8])> {
    let count = InspectHead::read_from_prefix(page).map_or(0, |(head, _)| head.count);
    page::records(page, HEAD, count)
}

/// The number of a state.
pub fn number_of(state: OrphanState) -> u8 {
    match state {
        OrphanState::Unlinked => 0,
        OrphanState::Tree => 1,
        OrphanState::Cut => 2,
        OrphanState::Broken => 3,
    }
}

/// The state with a number.
pub fn state_of(number: u8) -> OrphanState {
    match number {
        0 => OrphanState::Unlinked,
        1 => OrphanState::Tree,
        2 => OrphanState::Cut,
        _ => OrphanState::Broken,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use zerocopy::IntoBytes;

    #[test]
    fn a_page_of_each_kind_reads_back() {
        let mut room = vec![0xff; PAGE + 9];
        let mut page = writer(&mut room);
        let counter = CounterRecord { value: 7, name_len: 1, what_len: 4, gauge: 1 };
        assert!(page.push(&counter, b"nwhat"));
        let count = page.count();
        page.finish(&InspectHead { count, flags: IS_END, ..InspectHead::default() }).unwrap();
        let read: Vec<(CounterRecord, &[u8])> = records(&room).collect();
        assert_eq!(read, [(counter, &b"nwhat"[..])]);
        let mut page = writer(&mut room);
        let orphan = OrphanRecord { ino: 5, state: 1, flags: HAS_PATH, ..OrphanRecord::default() };
        while page.push(&orphan, b"") {}
        assert_eq!(page.count() as usize, ORPHANS_MAX);
    }

    #[test]
    fn states_have_numbers() {
        for number in 0..4 {
            assert_eq!(number_of(state_of(number)), number);
        }
    }

    #[test]
    fn questions_are_checked() {
        let good = InspectHead { what: ROOTS, cookie: 3, ..InspectHead::default() };
        assert_eq!(question(good.as_bytes()), Ok(good));
        for bad in [
            InspectHead { what: TRIM + 1, ..good },
            InspectHead { flags: IS_END, ..good },
            InspectHead { count: 1, ..good },
            InspectHead { padding: 1, ..good },
        ] {
            assert_eq!(question(bad.as_bytes()), Err(Errno::EINVAL));
        }
        assert_eq!(question(&[0; 23]), Err(Errno::EINVAL));
    }

    proptest! {
        #[test]
        fn arbitrary_pages_never_panic(page in proptest::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(records::<CounterRecord>(&page).count() <= page.len());
            prop_assert!(records::<OrphanRecord>(&page).count() <= page.len());
            let _ = question(&page);
        }
    }
}
