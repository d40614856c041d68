//! Histograms and loads in the texts of control entries (untrusted bytes, for the client).
//!
//! A histogram is its buckets that are not empty: the number of the bucket in a byte, the count in
//! eight, little-endian. A load is words of eight bytes.

use shoal::raw::{TIMING_BUCKETS, Timing};

/// Bytes of a bucket.
const BUCKET: usize = 9;
/// Words of a load: user, uncertain requests, bytes read, bytes written.
pub const LOAD_WORDS: usize = 4;

const _: () = assert!(TIMING_BUCKETS <= 256, "a bucket's number is a byte");
const _: () = assert!(TIMING_BUCKETS * BUCKET < super::flags::PAGE / 2, "an entry fits a page");

/// Returns the buckets of a histogram as bytes.
pub fn counts_of(timing: &Timing) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (bucket, count) in timing.buckets() {
        bytes.push(bucket as u8);
        bytes.extend_from_slice(&count.to_le_bytes());
    }
    bytes
}

/// Returns a histogram: its buckets, then sum, errors and bytes.
pub fn histogram(counts: &[u8], [total_ns, errors, bytes]: [u64; 3]) -> Timing {
    let mut timing = Timing::default();
    (timing.total_ns, timing.errors, timing.bytes) = (total_ns, errors, bytes);
    for chunk in counts.chunks_exact(BUCKET) {
        let count = words(&chunk[1..]).next().unwrap_or(0);
        timing.add(chunk[0].into(), count);
    }
    timing
}

/// Returns words as bytes.
pub fn words_of(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Iterates over the words in bytes.
pub fn words(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use shoal::raw::Timings;
    use shoal_skip::property;
    use std::time::Duration;

    #[test]
    fn histograms_read_back() {
        let timings = Timings::new(1);
        for ns in [0, 1, 500, 77_777, u64::MAX / 2] {
            timings.record(0, Duration::from_nanos(ns), ns == 1, ns % 7);
        }
        let timing = timings.get(0);
        let numbers = [timing.total_ns, timing.errors, timing.bytes];
        assert_eq!(histogram(&counts_of(&timing), numbers), timing);
        assert_eq!(words(&words_of(&[1, u64::MAX])).collect::<Vec<_>>(), [1, u64::MAX]);
    }

    proptest! {
        #![proptest_config(property(256))]

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let mut capped = bytes;
            // The counts of a server's histogram have a sum.
            capped.chunks_exact_mut(BUCKET).for_each(|chunk| chunk[5..].fill(0));
            let timing = histogram(&capped, [1, 2, 3]);
            prop_assert!(timing.quantile_ns(1.0) >= timing.quantile_ns(0.5));
        }
    }
}
