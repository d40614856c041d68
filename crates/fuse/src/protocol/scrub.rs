//! The ioctl that checks a piece of a mounted volume: a page each way.
//!
//! ```text
//! page    := stage 8 | key 8, 8 | bytes 8 | blocks 8 | objects 8 | flags 4 | count 4
//!            | left out 4 | 0 4 | problem...
//! problem := length 2 | length 2 | 0 4 | rule | what is wrong, and where
//! ```
//!
//! | field | in | out |
//! | --- | --- | --- |
//! | stage, key | where to begin: 0, or what the page before said | where to go on |
//! | bytes | how many to read, about; at most [`STEP_MAX`] are | how many were |
//! | blocks, objects | 0 | how many were read |
//! | flags | 0 | [`IS_END`] |
//! | left out | 0 | problems that were found and did not fit |
//!
//! Whoever wants to know what did not fit asks for the same place again, and for fewer bytes.

use super::Errno;
use super::page::{self, ALIGN, Record};
use super::wire::{ScrubHead, ScrubRecord};
use shoal::{Problem, ScrubAt};
use zerocopy::FromBytes;

/// Out: all has been read.
pub const IS_END: u32 = 1 << 0;

/// Bytes that one question can have read. While they are read nothing that has been freed is given
/// out again, so it must be a matter of tens of milliseconds.
pub const STEP_MAX: u64 = 8 << 20;

/// Longest text of a problem; what is longer (four long paths, say) is cut.
const TEXT_MAX: usize = 4000;

const HEAD: usize = size_of::<ScrubHead>();

const _: () = assert!(HEAD.is_multiple_of(ALIGN));

impl Record for ScrubRecord {
    fn tail(&self) -> usize {
        usize::from(self.rule_len) + usize::from(self.text_len)
    }
}

/// What a page asks for: where to begin, and how many bytes to read.
pub fn question(page: &[u8]) -> Result<(ScrubAt, u64), Errno> {
    let (head, _) = ScrubHead::read_from_prefix(page).map_err(|_| Errno::EINVAL)?;
    let ScrubHead { stage, key, bytes, .. } = head;
    let known = head == ScrubHead { stage, key, bytes, ..ScrubHead::default() };
    match known && bytes > 0 {
        true => Ok((ScrubAt { stage, key: key.into() }, bytes.min(STEP_MAX))),
        false => Err(Errno::EINVAL),
    }
}

/// A page to be filled.
pub fn writer(room: &mut [u8]) -> page::Writer<'_> {
    page::Writer::new(room, HEAD)
}

/// Adds a problem; `false`: it does not fit.
pub fn push(page: &mut page::Writer<'_>, problem: &Problem) -> bool {
    let rule = &problem.rule[..problem.rule.floor_char_boundary(TEXT_MAX)];
    let text = &problem.message[..problem.message.floor_char_boundary(TEXT_MAX)];
    let (rule_len, text_len) = (rule.len() as u16, text.len() as u16);
    page.push(&ScrubRecord { rule_len, text_len, padding: 0 }, [rule, text].concat().as_bytes())
}

/// Rules and texts of the problems of a page that has come back.
pub fn problems(page: &[u8]) -> impl Iterator<Item = (String, String)> {
    let count = ScrubHead::read_from_prefix(page).map_or(0, |(head, _)| head.count);
    page::records(page, HEAD, count).map(|(record, tail): (ScrubRecord, &[u8])| {
        let (rule, text) = tail.split_at(usize::from(record.rule_len).min(tail.len()));
        let text_of = |bytes| String::from_utf8_lossy(bytes).into_owned();
        (text_of(rule), text_of(text))
    })
}

#[cfg(test)]
mod tests {
    use super::super::page::PAGE;
    use super::*;
    use proptest::prelude::*;
    use zerocopy::IntoBytes;

    #[test]
    fn a_page_reads_back() {
        let mut room = vec![0xff; PAGE + 9];
        let mut page = writer(&mut room);
        let long = Problem { rule: "rule", message: "é".repeat(5000) };
        assert!(push(&mut page, &Problem { rule: "", message: String::new() }));
        let pushed = (0..9).take_while(|_| push(&mut page, &long)).count();
        assert_eq!(pushed, 4);
        let count = page.count();
        page.finish(&ScrubHead { count, flags: IS_END, ..ScrubHead::default() }).unwrap();
        let read: Vec<_> = problems(&room).collect();
        assert_eq!(read[0], (String::new(), String::new()));
        assert_eq!(read[4], ("rule".to_owned(), "é".repeat(2000)));
        assert_eq!(read.len(), 5);
    }

    #[test]
    fn questions_are_checked() {
        let good = ScrubHead { stage: 3, key: [4, 5], bytes: 7, ..ScrubHead::default() };
        let at = ScrubAt { stage: 3, key: (4, 5) };
        assert_eq!(question(good.as_bytes()), Ok((at, 7)));
        let greedy = ScrubHead { bytes: u64::MAX, ..good };
        assert_eq!(question(greedy.as_bytes()), Ok((at, STEP_MAX)));
        for bad in [
            ScrubHead { bytes: 0, ..good },
            ScrubHead { blocks: 1, ..good },
            ScrubHead { objects: 1, ..good },
            ScrubHead { flags: IS_END, ..good },
            ScrubHead { count: 1, ..good },
            ScrubHead { left_out: 1, ..good },
            ScrubHead { padding: 1, ..good },
        ] {
            assert_eq!(question(bad.as_bytes()), Err(Errno::EINVAL));
        }
        assert_eq!(question(&[0; HEAD - 1]), Err(Errno::EINVAL));
    }

    proptest! {
        #[test]
        fn arbitrary_pages_never_panic(page in proptest::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(problems(&page).count() <= page.len());
            let _ = question(&page);
        }
    }
}
