//! Base 64 for URLs (RFC 4648, section 5), of bytes whose number is a multiple of 3: each value has
//! one text, without padding.

use std::fmt;

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Writes the text of `bytes`.
pub(super) fn write(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for three in bytes.chunks(3) {
        let bits = three.iter().fold(0, |bits, byte| bits << 8 | usize::from(*byte));
        for shift in [18, 12, 6, 0] {
            fmt::Write::write_char(f, char::from(DIGITS[bits >> shift & 63]))?;
        }
    }
    Ok(())
}

/// Reads the text of exactly `N` bytes; `None` if it is not one.
pub(super) fn read<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    if text.len() != N / 3 * 4 {
        return None;
    }
    for (four, three) in text.as_bytes().chunks(4).zip(bytes.chunks_mut(3)) {
        let mut bits = 0_u32;
        for digit in four {
            let value = DIGITS.iter().position(|d| d == digit)?;
            bits = bits << 6 | value as u32;
        }
        three.copy_from_slice(&bits.to_be_bytes()[1..]);
    }
    Some(bytes)
}
