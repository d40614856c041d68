//! Marks of the change feed: a moment of a subvolume, as bytes and as text.

use super::{Time, base64};
use shoal_base::checksum::checksum;
use shoal_base::{Code, Epoch, Error, Generation, Lsn, Result, RootId};
use shoal_format::bytes::{Put, Reader};
use std::fmt;
use std::str::FromStr;

/// First bytes of a mark: its kind and the version of its layout.
const MAGIC: [u8; 3] = *b"cm\x01";
/// Bytes before the checksum.
const CHECKED: usize = ChangeMark::SIZE - 8;

/// A moment of a subvolume: the changes of everything before it have been told.
///
/// It is 57 bytes, or 76 letters, digits, `-` and `_` as text. It says nothing that must be kept
/// secret, and may be forged: a forged mark only makes its user miss changes.
///
/// | bytes | contents, little-endian |
/// | --- | --- |
/// | 0–2 | `cm`, version 1 |
/// | 3–10 | low half of the volume's id |
/// | 11–12 | subvolume |
/// | 13–16 | generation of its top directory |
/// | 17–20 | series of the volume's marks |
/// | 21–28 | LSN |
/// | 29–36 | epoch that had ended |
/// | 37–48 | time: seconds since 1970, nanoseconds |
/// | 49–56 | XXH3-64 of the bytes before |
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ChangeMark {
    pub(crate) volume: u64,
    pub(crate) root: RootId,
    pub(crate) generation: Generation,
    /// Replaced by a repair, which may take changes back: marks of another series are too old.
    pub(crate) series: u32,
    /// All records before it had been told.
    pub(crate) lsn: Lsn,
    /// Records from `lsn` on are of later epochs.
    pub(crate) epoch: Epoch,
    pub(crate) time: Time,
}

fn not_a_mark() -> Error {
    let message = "not a mark of this version: use the text that an earlier call has returned, \
                   or none to be told everything";
    Error::refused(Code::Invalid, message)
}

impl ChangeMark {
    /// Bytes of a mark.
    pub const SIZE: usize = 57;
    /// Length of a mark as text.
    pub const TEXT_LEN: usize = ChangeMark::SIZE / 3 * 4;

    /// A mark from its bytes.
    ///
    /// # Errors
    /// `EINVAL` for bytes that no version of a mark has.
    pub fn from_bytes(bytes: &[u8]) -> Result<ChangeMark> {
        if bytes.len() != ChangeMark::SIZE || bytes[..MAGIC.len()] != MAGIC {
            return Err(not_a_mark());
        }
        let (checked, sum) = bytes.split_at(CHECKED);
        if checksum(checked).to_le_bytes() != *sum {
            return Err(not_a_mark());
        }
        ChangeMark::read(&mut Reader::new(&checked[MAGIC.len()..])).ok_or_else(not_a_mark)
    }

    fn read(r: &mut Reader<'_>) -> Option<ChangeMark> {
        let mark = ChangeMark {
            volume: r.u64()?,
            root: RootId(r.u16()?),
            generation: Generation(r.u32()?),
            series: r.u32()?,
            lsn: Lsn(r.u64()?),
            epoch: r.u64()?,
            time: Time { sec: r.u64()? as i64, nsec: r.u32()? },
        };
        // Nothing larger exists, and sums with it must not overflow.
        let possible = mark.lsn.0 < 1 << 63 && mark.epoch < 1 << 63;
        (possible && mark.time.nsec < 1_000_000_000).then_some(mark)
    }

    /// Returns its bytes.
    pub fn to_bytes(&self) -> [u8; ChangeMark::SIZE] {
        let mut checked = MAGIC.to_vec();
        checked.put_u64(self.volume);
        checked.put_u16(self.root.0);
        checked.put_u32(self.generation.0);
        checked.put_u32(self.series);
        checked.put_u64(self.lsn.0);
        checked.put_u64(self.epoch);
        checked.put_u64(self.time.sec as u64);
        checked.put_u32(self.time.nsec);
        let mut bytes = [0; ChangeMark::SIZE];
        bytes[..CHECKED].copy_from_slice(&checked);
        bytes[CHECKED..].copy_from_slice(&checksum(&checked).to_le_bytes());
        bytes
    }

    /// Returns the LSN: all records before it have been told.
    pub fn lsn(&self) -> Lsn {
        self.lsn
    }
    /// Returns the time at which it was made.
    pub fn time(&self) -> Time {
        self.time
    }
}

/// Base 64 for URLs.
impl fmt::Display for ChangeMark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        base64::write(&self.to_bytes(), f)
    }
}

impl FromStr for ChangeMark {
    type Err = Error;

    /// # Errors
    /// `EINVAL` for a text that no version of a mark has.
    fn from_str(text: &str) -> Result<ChangeMark> {
        let bytes: [u8; ChangeMark::SIZE] = base64::read(text).ok_or_else(not_a_mark)?;
        ChangeMark::from_bytes(&bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_its_bytes_and_its_text_and_nothing_else_is() {
        let mark = ChangeMark {
            volume: u64::MAX / 3,
            root: RootId(7),
            generation: Generation(9),
            series: 11,
            lsn: Lsn(1 << 40),
            epoch: 13,
            time: Time { sec: -5, nsec: 999_999_999 },
        };
        let (bytes, text) = (mark.to_bytes(), mark.to_string());
        assert_eq!(ChangeMark::from_bytes(&bytes), Ok(mark));
        assert_eq!(text.len(), ChangeMark::TEXT_LEN);
        assert_eq!(text.parse(), Ok(mark));
        for at in 0..bytes.len() {
            let mut other = bytes;
            other[at] ^= 1;
            assert_eq!(ChangeMark::from_bytes(&other), Err(not_a_mark()), "byte {at}");
            assert_eq!(ChangeMark::from_bytes(&bytes[..at]), Err(not_a_mark()));
            assert!(text[..at].parse::<ChangeMark>().is_err());
        }
        assert!(format!("{text}A").parse::<ChangeMark>().is_err());
        assert!("!".repeat(76).parse::<ChangeMark>().is_err());
        let far = ChangeMark { lsn: Lsn(1 << 63), ..mark };
        assert_eq!(ChangeMark::from_bytes(&far.to_bytes()), Err(not_a_mark()));
    }
}
