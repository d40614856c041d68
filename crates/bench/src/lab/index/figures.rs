//! Timing single operations of some ten nanoseconds, and what is printed about them.
//!
//! Every operation is done twice, in two passes: one without a clock, for the mean, which is wall
//! time by operations, and for the processor time of each; and one in which each operation is
//! timed, for everything else. What reading the clock costs by itself is measured before and
//! subtracted from each timed operation, so an operation that is faster than the clock's own
//! variation counts as 1 ns.

use crate::error::{BenchError, Result};
use hdrhistogram::Histogram;
use serde::Serialize;
use std::time::Instant;

/// Timed operations of one thread, or of several.
pub(super) struct Times {
    clock_ns: u64,
    histogram: Histogram<u64>,
}

impl Times {
    /// With a clock that costs so much by itself.
    pub(super) fn new(clock_ns: u64) -> Times {
        let histogram = Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("valid bounds");
        Times { clock_ns, histogram }
    }

    /// Times an operation.
    #[inline]
    pub(super) fn time<R>(&mut self, work: impl FnOnce() -> R) -> R {
        let start = Instant::now();
        let result = work();
        let ns = start.elapsed().as_nanos() as u64;
        self.histogram.saturating_record(ns.saturating_sub(self.clock_ns).max(1));
        result
    }

    /// Takes over another thread's.
    pub(super) fn add(&mut self, other: &Times) {
        // Bounds are the same everywhere, so adding cannot fail.
        let _ = self.histogram.add(&other.histogram);
    }
}

/// Nanoseconds that timing costs by itself: the median of many attempts to time nothing.
pub(super) fn clock_ns() -> u64 {
    let mut times = Times::new(0);
    for _ in 0..100_000 {
        times.time(|| std::hint::black_box(()));
    }
    times.histogram.value_at_quantile(0.5)
}

/// Times of a pass without a clock.
#[derive(Clone, Copy)]
pub(super) struct Pass {
    /// From the first thread's beginning to the last one's end.
    pub seconds: f64,
    /// Of all threads together.
    pub cpu_seconds: f64,
}

/// Result for one operation on one structure. One JSON line.
#[derive(Serialize)]
pub(super) struct Figures {
    pub workload: &'static str,
    pub structure: &'static str,
    pub operation: &'static str,
    pub threads: usize,
    pub entries: u64,
    /// Operations that were timed.
    pub count: u64,
    /// Threads × wall time ÷ operations, in a pass without a clock.
    pub mean_ns: f64,
    /// Processor time ÷ operations in that pass: the same where the threads had the machine to
    /// themselves, and did not wait for each other in the kernel.
    pub mean_cpu_ns: f64,
    /// Operations a second in that pass.
    pub ops_per_second: f64,
    pub min_ns: u64,
    pub max_ns: u64,
    pub median_ns: u64,
    pub stddev_ns: f64,
    pub p90_ns: u64,
    pub p95_ns: u64,
    pub p99_ns: u64,
    pub p999_ns: u64,
    /// Nanoseconds of the clock itself, subtracted from each timed operation.
    pub clock_ns: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_per_entry: Option<f64>,
    /// Lower bound, upper bound, operations between.
    pub histogram: Vec<(u64, u64, u64)>,
}

impl Figures {
    /// Of a pass without a clock, and one with.
    pub(super) fn new(
        (structure, operation): (&'static str, &'static str),
        (threads, entries): (usize, u64),
        pass: Pass,
        times: &Times,
    ) -> Figures {
        let h = &times.histogram;
        let ops = entries.max(1) as f64;
        let tenths = |value: f64| (value * 10.0).round() / 10.0;
        Figures {
            workload: "inode-index",
            structure,
            operation,
            threads,
            entries,
            count: h.len(),
            mean_ns: tenths(threads as f64 * pass.seconds / ops * 1e9),
            mean_cpu_ns: tenths(pass.cpu_seconds / ops * 1e9),
            ops_per_second: (ops / pass.seconds.max(1e-9)).round(),
            min_ns: h.min(),
            max_ns: h.max(),
            median_ns: h.value_at_quantile(0.5),
            stddev_ns: tenths(h.stdev()),
            p90_ns: h.value_at_quantile(0.9),
            p95_ns: h.value_at_quantile(0.95),
            p99_ns: h.value_at_quantile(0.99),
            p999_ns: h.value_at_quantile(0.999),
            clock_ns: times.clock_ns,
            bytes_per_entry: None,
            histogram: buckets(h),
        }
    }

    /// As a line of JSON.
    pub(super) fn json(&self) -> Result<String> {
        let text = serde_json::to_string(self);
        text.map(|text| text + "\n").map_err(|e| BenchError::failed("results", "as JSON", e))
    }

    /// As in the message of the commit by which btrfs went from a red-black tree to an XArray.
    pub(super) fn text(&self) -> String {
        let Figures { structure, operation, threads, .. } = self;
        let mut text = format!("{structure}, {operation}, {threads} threads\n");
        let rate = self.ops_per_second / 1e6;
        text += &format!("  Count: {}; {rate:.2} M/s\n", self.count);
        text += &format!(
            "  Range:  {} - {}; Mean: {:.1} (processor {:.1}); Median: {}; Stddev: {:.1}\n",
            self.min_ns,
            self.max_ns,
            self.mean_ns,
            self.mean_cpu_ns,
            self.median_ns,
            self.stddev_ns
        );
        text += &format!(
            "  Percentiles:  90th: {}; 95th: {}; 99th: {}; 99.9th: {}\n",
            self.p90_ns, self.p95_ns, self.p99_ns, self.p999_ns
        );
        if let Some(bytes) = self.bytes_per_entry {
            text += &format!("  Bytes for each entry: {bytes:.2}\n");
        }
        let largest = self.histogram.iter().map(|bucket| bucket.2).max().unwrap_or(1) as f64;
        for (from, to, count) in &self.histogram {
            let bar = "#".repeat((*count as f64 / largest * 50.0).ceil() as usize);
            text += &format!("  {from:>10} - {to:>10}: {count:>9} {bar}\n");
        }
        text + "\n"
    }
}

/// A bucket for each power of two, between the first and the last that holds something.
fn buckets(histogram: &Histogram<u64>) -> Vec<(u64, u64, u64)> {
    let mut counts = [0u64; 64];
    for value in histogram.iter_recorded() {
        counts[value.value_iterated_to().ilog2() as usize] += value.count_at_value();
    }
    let first = counts.iter().position(|count| *count > 0).unwrap_or(0);
    let last = counts.iter().rposition(|count| *count > 0).unwrap_or(0);
    (first..=last).map(|bit| (1 << bit, 2 << bit, counts[bit])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_timed_operation_is_in_a_bucket() {
        let mut times = Times::new(clock_ns());
        for n in 0..1000u64 {
            times.time(|| std::hint::black_box(n));
        }
        let figures =
            Figures::new(("s", "o"), (2, 1000), Pass { seconds: 1e-6, cpu_seconds: 2e-6 }, &times);
        assert_eq!(figures.histogram.iter().map(|bucket| bucket.2).sum::<u64>(), 1000);
        assert_eq!((figures.count, figures.mean_ns, figures.mean_cpu_ns), (1000, 2.0, 2.0));
        assert!(figures.text().contains("Percentiles"));
    }
}
