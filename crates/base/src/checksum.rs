//! The one checksum of the format: XXH3-64, seedless. It guards against lost, torn and misplaced
//! writes and bit rot, not against an adversary who can forge it.

/// XXH3-64 of `bytes`. Never 0 for stored data by convention of its users: a pointer whose checksum
/// is 0 is compared like any other, 0 has no special meaning.
#[inline]
pub fn checksum(bytes: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(bytes)
}

/// A 128-bit hash of `bytes`; another one for each seed. For comparing sets by the sums of their
/// members' hashes, with a seed that nobody can know beforehand.
#[inline]
pub fn hash128(seed: u64, bytes: &[u8]) -> u128 {
    xxhash_rust::xxh3::xxh3_128_with_seed(bytes, seed)
}

/// Checksum of a structure that carries its own checksum in its last eight bytes.
#[inline]
pub fn checksum_of_body(bytes_with_trailing_sum: &[u8]) -> u64 {
    let body = bytes_with_trailing_sum.len().saturating_sub(8);
    checksum(&bytes_with_trailing_sum[..body])
}
