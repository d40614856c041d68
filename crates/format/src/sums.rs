//! Checksums of a data object by pieces of 4 KiB, so that reading 4 KiB requires reading and
//! hashing 4 KiB only.
//!
//! | object | the pointer's checksum | in the extent record |
//! | --- | --- | --- |
//! | at most 4096 bytes | XXH3-64 of the payload | nothing |
//! | longer | XXH3-64 of the sums of all pieces, 4 bytes each | the sums of the pieces that the extent touches |
//!
//! The sum of a piece is the lower half of its XXH3-64. A piece begins at each multiple of 4096 of
//! the payload. The last one may be shorter, and grows with the object.

use shoal_base::limits::EXTENT_MAX;
use shoal_base::{Error, Result, checksum};
use std::fmt::Display;
use std::ops::Range;
use xxhash_rust::xxh3::Xxh3Default;

/// Bytes of a piece.
pub const PIECE: usize = 4096;
/// Pieces of the longest object.
pub const PIECES: usize = EXTENT_MAX.div_ceil(PIECE);

/// The sums of the pieces that an extent touches, each at the index of its piece; zeros elsewhere.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Sums([u32; PIECES]);

impl Default for Sums {
    fn default() -> Self {
        Sums::NONE
    }
}

impl std::fmt::Debug for Sums {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let known = self.0.iter().filter(|sum| **sum != 0).count();
        write!(f, "{known} sums")
    }
}

/// The pieces with sums that `[from, to)` of an object of `len` bytes touches: none if the object
/// has one piece.
pub fn pieces(len: u32, from: u32, to: u32) -> Range<usize> {
    if len as usize <= PIECE || from >= to {
        return 0..0;
    }
    from as usize / PIECE..(to as usize).div_ceil(PIECE)
}

impl Sums {
    /// The sums of an object of one piece: none.
    pub const NONE: Sums = Sums([0; PIECES]);

    /// Returns the pointer's checksum of an object of `count` pieces.
    fn checksum(&self, count: usize) -> u64 {
        let mut raw = Vec::with_capacity(4 * PIECES);
        self.encode(0..count, &mut raw);
        checksum(&raw)
    }
    /// Returns the sums of `pieces` only; the others are zero.
    pub fn only(&self, pieces: Range<usize>) -> Sums {
        let mut only = Sums::NONE;
        only.0[pieces.clone()].copy_from_slice(&self.0[pieces]);
        only
    }
    /// Appends the sums of `pieces`, 4 bytes each.
    pub fn encode(&self, pieces: Range<usize>, out: &mut Vec<u8>) {
        self.0[pieces].iter().for_each(|sum| out.extend_from_slice(&sum.to_le_bytes()));
    }
    /// Decodes the sums of `pieces`. Returns `None` unless `raw` has 4 bytes for each.
    pub fn decode(pieces: Range<usize>, raw: &[u8]) -> Option<Sums> {
        if pieces.end > PIECES || raw.len() != pieces.len() * 4 {
            return None;
        }
        let mut sums = Sums::NONE;
        for (sum, bytes) in sums.0[pieces].iter_mut().zip(raw.as_chunks().0) {
            *sum = u32::from_le_bytes(*bytes);
        }
        Some(sums)
    }
    /// The sum of a piece; 0 if it is not known.
    pub fn of(&self, piece: usize) -> u32 {
        self.0.get(piece).copied().unwrap_or(0)
    }
    /// Verifies whole pieces, starting with piece `first` of the object. `at` is the address of the
    /// object's payload.
    ///
    /// # Errors
    /// Corruption, with the address of the first piece whose sum differs.
    pub fn verify(&self, first: usize, bytes: &[u8], at: u64, object: impl Display) -> Result<()> {
        for (i, piece) in bytes.chunks(PIECE).enumerate() {
            let (found, sum) = (sum_of(piece), self.of(first + i));
            if found != sum {
                let place = at + ((first + i) * PIECE) as u64;
                let rule = format!("checksum is {found:#010x}, the extent says {sum:#010x}");
                return Err(Error::corrupt(object.to_string(), Some(place), rule));
            }
        }
        Ok(())
    }
}

fn sum_of(piece: &[u8]) -> u32 {
    checksum(piece) as u32
}

/// Returns the pointer's checksum and the sums of an object from its whole payload of at most
/// [`EXTENT_MAX`] bytes.
pub fn of_object(payload: &[u8]) -> (u64, Sums) {
    let mut sums = Sums::NONE;
    if payload.len() <= PIECE {
        return (checksum(payload), sums);
    }
    let pieces = payload.chunks(PIECE);
    let count = pieces.len();
    sums.0.iter_mut().zip(pieces).for_each(|(sum, piece)| *sum = sum_of(piece));
    (sums.checksum(count), sums)
}

/// Running checksums of an object whose payload arrives in parts, also when it grows later.
#[derive(Clone)]
pub struct Running {
    /// Sums of the complete pieces.
    sums: Sums,
    whole: usize,
    /// Hash state of the last piece, 350 bytes; boxed, so that growing does not copy it. `len` is
    /// its number of bytes, at most [`PIECE`].
    last: Box<Xxh3Default>,
    len: usize,
}

impl Default for Running {
    fn default() -> Self {
        Running { sums: Sums::NONE, whole: 0, last: Box::default(), len: 0 }
    }
}

impl Running {
    /// Adds bytes of the payload, which must not exceed [`EXTENT_MAX`] in total.
    pub fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.len == PIECE {
                self.roll();
            }
            let (piece, rest) = bytes.split_at(bytes.len().min(PIECE - self.len));
            if piece.len() == PIECE && !rest.is_empty() {
                // Complete and not the last one: no state is needed.
                self.complete(sum_of(piece));
            } else {
                self.last.update(piece);
                self.len += piece.len();
            }
            bytes = rest;
        }
    }

    /// Completes the last piece and begins another.
    fn roll(&mut self) {
        let sum = self.last.digest() as u32;
        self.complete(sum);
        self.last.reset();
        self.len = 0;
    }

    fn complete(&mut self, sum: u32) {
        self.sums.0[self.whole] = sum;
        self.whole += 1;
    }

    /// Returns the pointer's checksum and the sums of the payload so far.
    pub fn finish(&self) -> (u64, Sums) {
        let digest = self.last.digest();
        if self.whole == 0 {
            return (digest, Sums::NONE);
        }
        let mut sums = self.sums;
        sums.0[self.whole] = digest as u32;
        (sums.checksum(self.whole + 1), sums)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    fn payload(len: usize) -> Vec<u8> {
        (0..len).map(|i| (i * 7 + i / 251) as u8).collect()
    }

    #[test]
    fn sums_do_not_depend_on_how_the_bytes_come() {
        for len in [1, 100, 4095, 4096, 4097, 8191, 8192, 8193, 40_000, EXTENT_MAX] {
            let payload = payload(len);
            let mut whole = Running::default();
            whole.update(&payload);
            let (sum, sums) = whole.finish();
            assert_eq!((sum, sums), of_object(&payload));
            for step in [1, 7, 1000, 4096, 5000, 8192] {
                let mut running = Running::default();
                // While it grows, with the sum computed after each step.
                for part in payload.chunks(step) {
                    running.update(part);
                    running.finish();
                }
                assert_eq!(running.finish(), (sum, sums), "{len} bytes by {step}");
            }
            let named = pieces(len as u32, 0, len as u32);
            assert_eq!(named.len(), if len > PIECE { len.div_ceil(PIECE) } else { 0 });
            if len > PIECE {
                sums.verify(0, &payload, 0, "it").unwrap();
                sums.verify(1, &payload[PIECE..], 0, "it").unwrap();
            } else {
                assert_eq!(sum, checksum(&payload));
            }
        }
    }

    #[test]
    fn a_flipped_bit_is_found_in_its_piece() {
        let mut payload = payload(20_000);
        let mut running = Running::default();
        running.update(&payload);
        let (_, sums) = running.finish();
        payload[9000] ^= 4;
        let error = sums.verify(0, &payload, 1 << 20, "it").unwrap_err().to_string();
        assert!(error.contains(&((1 << 20) + 8192).to_string()), "{error}");
        assert!(sums.verify(3, &payload[3 * PIECE..], 0, "it").is_ok());
    }

    #[test]
    fn sums_of_some_pieces_read_back() {
        let mut running = Running::default();
        running.update(&payload(50_000));
        let (_, sums) = running.finish();
        let some = pieces(50_000, 5000, 12_289);
        assert_eq!(some, 1..4);
        let mut raw = Vec::new();
        sums.encode(some.clone(), &mut raw);
        assert_eq!(raw.len(), 12);
        assert_eq!(Sums::decode(some.clone(), &raw), Some(sums.only(some.clone())));
        assert_eq!(Sums::decode(some, &raw[1..]), None);
        assert_eq!(Sums::decode(31..33, &raw[..8]), None);
    }
}
