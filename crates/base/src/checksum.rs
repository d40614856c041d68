//! The one checksum of the format: XXH3-64, seedless. It guards against lost, torn and misplaced
//! writes and bit rot, not against an adversary who can forge it.

/// Returns the XXH3-64 of `bytes`. 0 has no special meaning: a pointer whose checksum is 0 is
/// compared like any other.
#[inline]
pub fn checksum(bytes: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(bytes)
}

/// Returns the XXH3-64 of `bytes` with a seed: of the same bytes in another place it is another.
#[inline]
pub fn checksum_seeded(seed: u64, bytes: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64_with_seed(bytes, seed)
}

/// Returns a 128-bit hash of `bytes`, different for each seed. Used to compare sets by the sums of
/// their members' hashes; the seed must be unpredictable.
#[inline]
pub fn hash128(seed: u64, bytes: &[u8]) -> u128 {
    xxhash_rust::xxh3::xxh3_128_with_seed(bytes, seed)
}

/// Returns the checksum of a structure that carries its own checksum in its last eight bytes.
#[inline]
pub fn checksum_of_body(bytes_with_trailing_sum: &[u8]) -> u64 {
    let body = bytes_with_trailing_sum.len().saturating_sub(8);
    checksum(&bytes_with_trailing_sum[..body])
}
