//! The block of 512 bytes that begins a member.

use std::ops::Range;

/// Bytes of a block.
pub(crate) const BLOCK: usize = 512;

pub(crate) const NAME: Range<usize> = 0..100;
pub(crate) const MODE: Range<usize> = 100..108;
pub(crate) const UID: Range<usize> = 108..116;
pub(crate) const GID: Range<usize> = 116..124;
pub(crate) const SIZE: Range<usize> = 124..136;
pub(crate) const MTIME: Range<usize> = 136..148;
const SUM: Range<usize> = 148..156;
const TYPE: usize = 156;
pub(crate) const LINK: Range<usize> = 157..257;
const MAGIC: Range<usize> = 257..265;
pub(crate) const UNAME: Range<usize> = 265..297;
pub(crate) const GNAME: Range<usize> = 297..329;
pub(crate) const MAJOR: Range<usize> = 329..337;
pub(crate) const MINOR: Range<usize> = 337..345;
/// Directories of a long name, in ustar.
pub(crate) const PREFIX: Range<usize> = 345..500;
/// Sparse map of GNU's old format: four pairs of offset and length.
pub(crate) const SPARSE: Range<usize> = 386..482;
/// Size of a sparse file in GNU's old format.
pub(crate) const REAL_SIZE: Range<usize> = 483..495;
/// The sparse map goes on in further blocks.
pub(crate) const SPARSE_MORE: usize = 482;

const USTAR: &[u8; 8] = b"ustar\x0000";

/// A header.
#[derive(Clone)]
pub(crate) struct Header(pub [u8; BLOCK]);

impl Header {
    /// An empty header of a type.
    pub(crate) fn new(kind: u8) -> Header {
        let mut bytes = [0; BLOCK];
        bytes[TYPE] = kind;
        bytes[MAGIC].copy_from_slice(USTAR);
        Header(bytes)
    }

    /// Returns whether the checksum is right. Old programs added the bytes as signed numbers.
    pub(crate) fn is_sound(&self) -> bool {
        let stored = self.number(SUM);
        let (mut unsigned, mut signed) = (0i64, 0i64);
        for (at, byte) in self.0.iter().enumerate() {
            let byte = if SUM.contains(&at) { b' ' } else { *byte };
            unsigned += i64::from(byte);
            signed += i64::from(byte.cast_signed());
        }
        stored == Some(unsigned) || stored == Some(signed)
    }

    /// Sets the checksum.
    pub(crate) fn seal(&mut self) {
        self.0[SUM].fill(b' ');
        let sum: u32 = self.0.iter().map(|byte| u32::from(*byte)).sum();
        self.0[SUM].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    }

    /// Returns whether all bytes are 0.
    pub(crate) fn is_zero(&self) -> bool {
        self.0.iter().all(|byte| *byte == 0)
    }

    /// Returns the type.
    pub(crate) fn kind(&self) -> u8 {
        self.0[TYPE]
    }

    /// Returns whether names may begin in [`PREFIX`].
    pub(crate) fn has_prefix(&self) -> bool {
        self.0[MAGIC].starts_with(b"ustar\0")
    }

    /// Returns a string without what follows its NUL.
    pub(crate) fn text(&self, field: Range<usize>) -> &[u8] {
        let bytes = &self.0[field];
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        &bytes[..end]
    }

    /// Returns a number, octal or binary; 0 if the field is empty, `None` if it has none.
    pub(crate) fn number(&self, field: Range<usize>) -> Option<i64> {
        number(&self.0[field])
    }

    /// Sets a string that fits.
    pub(crate) fn set_text(&mut self, field: Range<usize>, text: &[u8]) {
        let len = text.len().min(field.len());
        self.0[field.start..field.start + len].copy_from_slice(&text[..len]);
    }

    /// Sets a number: octal if it has room, else binary as GNU tar does.
    pub(crate) fn set_number(&mut self, field: Range<usize>, number: u64) {
        let digits = field.len() - 1;
        match fits(number, digits) {
            true => {
                let text = format!("{number:0digits$o}");
                self.0[field.start..field.start + digits].copy_from_slice(text.as_bytes());
            }
            false => {
                self.0[field.end - 8..field.end].copy_from_slice(&number.to_be_bytes());
                self.0[field.start] |= 0x80;
            }
        }
    }
}

/// Returns whether a number has at most so many octal digits.
pub(crate) fn fits(number: u64, digits: usize) -> bool {
    number < 1 << (3 * digits)
}

/// Returns a number of a header: octal digits, or binary with the highest bit set.
pub(crate) fn number(field: &[u8]) -> Option<i64> {
    if let Some((first, rest)) = field.split_first()
        && first & 0x80 != 0
    {
        // Two's complement, of which the highest bit is the mark; the next one is the sign.
        let high = i64::from(first.cast_signed() << 1 >> 1);
        let add = |sum: i64, byte: &u8| sum.checked_mul(256)?.checked_add(i64::from(*byte));
        return rest.iter().try_fold(high, add);
    }
    let start = field.iter().position(|byte| *byte != b' ').unwrap_or(field.len());
    let digits = &field[start..];
    let end = digits.iter().position(|byte| matches!(byte, b' ' | 0)).unwrap_or(digits.len());
    digits[..end].iter().try_fold(0i64, |sum, byte| match byte {
        b'0'..=b'7' => sum.checked_mul(8)?.checked_add(i64::from(byte - b'0')),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back() {
        for value in [0, 7, 0o7777777, 0o7777777 + 1, 1 << 33, (1 << 33) - 1, i64::MAX as u64] {
            let mut header = Header::new(b'0');
            header.set_number(SIZE, value);
            assert_eq!(header.number(SIZE), Some(value as i64), "{value}");
        }
        for value in [0, 0o7777777, 0o7777777 + 1, u64::from(u32::MAX)] {
            let mut header = Header::new(b'0');
            header.set_number(UID, value);
            assert_eq!(header.number(UID), Some(value as i64), "{value}");
        }
    }

    #[test]
    fn numbers_of_other_programs() {
        assert_eq!(number(b"   644 \0"), Some(0o644));
        assert_eq!(number(b"\0\0\0\0"), Some(0));
        assert_eq!(number(b"8\0"), None);
        assert_eq!(number(b"-1\0"), None);
        assert_eq!(number(&[0xff; 12]), Some(-1), "binary and negative");
        assert_eq!(number(&[&[0x80, 0, 0, 0x7f][..], &[0xff; 8]].concat()), None, "too large");
    }

    #[test]
    fn a_checksum_is_of_all_other_bytes() {
        let mut header = Header::new(b'5');
        header.seal();
        assert!(header.is_sound());
        header.0[0] = 1;
        assert!(!header.is_sound());
    }
}
