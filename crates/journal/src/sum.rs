//! CRC32C, the checksum of a record in a ring that outlives its process.
//!
//! *Why not XXH3*, the format's checksum: it takes 245 instructions for the record of a create.
//! Processors have an instruction for CRC32C of eight bytes, so this takes 69. It detects every
//! change within 32 bits of a record, and every two bits that flip; of other changes all but one in
//! 2^32, as 32 bits of XXH3 would.
//!
//! *Why no crate*: `crc32c` 0.6.9, `crc-fast` 1.10.0 and `crc32fast` 1.5.5 are made for long
//! buffers, and take 180 to 200 instructions for 200 bytes.
//!
//! The polynomial is Castagnoli's, reflected, as the processor's. A record is continued with zeros
//! to a whole number of words: its length must be a part of `seed`.

/// Returns the CRC32C of `bytes`, continued with zeros to a multiple of eight, from `seed` on and
/// not inverted. On all processors the same.
#[inline]
pub(crate) fn crc32c(seed: u32, bytes: &[u8]) -> u32 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if is_x86_feature_detected!("sse4.2") {
        // SAFETY: the processor has the instruction.
        return unsafe { by_instruction(seed, bytes) };
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    if std::arch::is_aarch64_feature_detected!("crc") {
        // SAFETY: the processor has the instruction.
        return unsafe { by_instruction(seed, bytes) };
    }
    by_table(seed, bytes)
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[target_feature(enable = "sse4.2")]
fn by_instruction(seed: u32, bytes: &[u8]) -> u32 {
    walk(seed.into(), bytes, |sum, word| std::arch::x86_64::_mm_crc32_u64(sum, word)) as u32
}

#[cfg(all(target_arch = "aarch64", not(miri)))]
#[target_feature(enable = "crc")]
fn by_instruction(seed: u32, bytes: &[u8]) -> u32 {
    let step = |sum, word| u64::from(std::arch::aarch64::__crc32cd(sum as u32, word));
    walk(seed.into(), bytes, step) as u32
}

#[cold]
fn by_table(seed: u32, bytes: &[u8]) -> u32 {
    let step = |sum: u64, word: u64| {
        let byte = |sum: u64, _| sum >> 8 ^ u64::from(TABLE[(sum & 0xff) as usize]);
        (0..8).fold(sum ^ word, byte)
    };
    walk(seed.into(), bytes, step) as u32
}

/// Calls `step` with the sum so far and each word. Few branches for a few words, because a record
/// has about 25.
#[inline(always)]
fn walk(seed: u64, bytes: &[u8], step: impl Fn(u64, u64) -> u64) -> u64 {
    let step = |sum, word: &[u8; 8]| step(sum, u64::from_le_bytes(*word));
    let (words, rest) = bytes.as_chunks::<8>();
    let (eights, words) = words.as_chunks::<8>();
    let (fours, words) = words.as_chunks::<4>();
    let (twos, words) = words.as_chunks::<2>();
    let mut sum = seed;
    for eight in eights {
        sum = eight.iter().fold(sum, step);
    }
    if let [four] = fours {
        sum = four.iter().fold(sum, step);
    }
    if let [two] = twos {
        sum = two.iter().fold(sum, step);
    }
    if let [one] = words {
        sum = step(sum, one);
    }
    if rest.is_empty() {
        return sum;
    }
    let last = match bytes.last_chunk::<8>() {
        // The rest is the end of the last eight bytes, the others were in the sum already.
        Some(last) => u64::from_le_bytes(*last) >> (64 - 8 * rest.len()),
        None => rest.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)),
    };
    step(sum, &last.to_le_bytes())
}

/// CRC32C of each byte.
const TABLE: [u32; 256] = {
    let (mut table, mut byte) = ([0; 256], 0);
    while byte < 256 {
        let (mut sum, mut bit) = (byte as u32, 0);
        while bit < 8 {
            sum = sum >> 1 ^ if sum & 1 == 1 { 0x82f6_3b78 } else { 0 };
            bit += 1;
        }
        table[byte] = sum;
        byte += 1;
    }
    table
};

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    /// Each byte alone, by the definition.
    fn bitwise(seed: u32, bytes: &[u8]) -> u32 {
        let padded = bytes.iter().copied().chain(std::iter::repeat(0));
        padded.take(bytes.len().next_multiple_of(8)).fold(seed, |sum, byte| {
            let odd = |sum: u32, _| sum >> 1 ^ if sum & 1 == 1 { 0x82f6_3b78 } else { 0 };
            (0..8).fold(sum ^ u32::from(byte), odd)
        })
    }

    #[test]
    fn instruction_and_table_follow_the_definition() {
        // The check value of CRC-32/ISCSI, with the bytes that come before whole words taken apart.
        let digits = (b'1'..=b'9').collect::<Vec<u8>>();
        let first = u64::from(TABLE[(0xff ^ usize::from(digits[0])) & 0xff]) as u32 ^ 0x00ff_ffff;
        assert_eq!(!crc32c(first, &digits[1..]), 0xe306_9283);
        let bytes: Vec<u8> = (0..1000u32).map(|n| (((n * n) >> 3) ^ n) as u8).collect();
        for len in (0..200).chain(980..=bytes.len()) {
            for seed in [0, 1, 0x8000_0000, u32::MAX, 0x1234_5678] {
                let expected = bitwise(seed, &bytes[..len]);
                assert_eq!(crc32c(seed, &bytes[..len]), expected, "{len} bytes");
                assert_eq!(by_table(seed, &bytes[..len]), expected, "{len} bytes by the table");
            }
        }
    }

    #[test]
    fn every_bit_that_flips_and_every_two_of_them_change_it() {
        let bytes = vec![0x5a; 61];
        let mut sums = std::collections::HashSet::new();
        for bit in 0..8 * bytes.len() {
            let mut other = bytes.clone();
            other[bit / 8] ^= 1 << (bit % 8);
            // Two of the same sum would be two bits that are not detected together.
            assert!(sums.insert(crc32c(9, &other)), "bit {bit}");
        }
        assert!(!sums.contains(&crc32c(9, &bytes)));
    }
}
