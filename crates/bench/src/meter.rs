//! Sampled latency and progress marks of one thread, and their sum over threads and rounds.
//!
//! Reading the clock twice costs some 50 ns, a tenth of a create: so only every n-th operation is
//! timed, and the others are counted. The mean comes from the wall time of the phase and is exact;
//! the percentiles come from the sample; the maximum is that of the sample too, and so a lower
//! bound unless every operation is timed.

use crate::error::Result;
use hdrhistogram::Histogram;
use std::time::{Duration, Instant};

/// A mark of progress is set each time so many operations are done.
const MARK_EVERY: u64 = 8192;
/// The span over which successive rates are given.
const MILLION: u64 = 1_000_000;

/// Counts and samples the operations of one thread.
pub(crate) struct Meter {
    sample: u32,
    until_sample: u32,
    ops: u64,
    latency: Histogram<u64>,
    marks: Vec<Instant>,
}

impl Meter {
    /// Times every `sample`-th operation.
    pub(crate) fn new(sample: u32) -> Meter {
        Meter { sample, until_sample: sample, ops: 0, latency: histogram(), marks: Vec::new() }
    }

    /// Does one operation.
    #[inline]
    pub(crate) fn op<R>(&mut self, work: impl FnOnce() -> Result<R>) -> Result<R> {
        self.until_sample -= 1;
        let result = if self.until_sample == 0 { self.timed(work) } else { work() };
        self.count(1);
        result
    }

    /// Does something that counts as as many operations as it returns; its time is shared by them.
    pub(crate) fn bulk(&mut self, work: impl FnOnce() -> Result<u64>) -> Result<u64> {
        let start = Instant::now();
        let ops = work()?;
        if let Some(each) = nanos(start.elapsed()).checked_div(ops) {
            self.latency.saturating_record_n(each.max(1), ops);
        }
        self.count(ops);
        Ok(ops)
    }

    #[inline]
    fn timed<R>(&mut self, work: impl FnOnce() -> Result<R>) -> Result<R> {
        self.until_sample = self.sample;
        let start = Instant::now();
        let result = work();
        self.latency.saturating_record(nanos(start.elapsed()).max(1));
        result
    }

    #[inline]
    fn count(&mut self, ops: u64) {
        let before = self.ops / MARK_EVERY;
        self.ops += ops;
        let marks = self.ops / MARK_EVERY - before;
        if marks > 0 {
            let now = Instant::now();
            self.marks.extend(std::iter::repeat_n(now, marks as usize));
        }
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// 1 ns to 1 h, three digits.
fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 3_600_000_000_000, 3).expect("valid bounds")
}

/// Measurements of a phase, or of several.
pub(crate) struct Measured {
    /// Operations of all threads.
    pub ops: u64,
    /// Wall time.
    pub seconds: f64,
    /// User and system time of the process.
    pub cpu_seconds: f64,
    /// Sampled latencies in nanoseconds.
    pub latency: Histogram<u64>,
    /// For each mark of each thread, seconds of timed work until then; sorted.
    marks: Vec<f64>,
}

impl Measured {
    /// Nothing yet.
    pub(crate) fn empty() -> Measured {
        let latency = histogram();
        Measured { ops: 0, seconds: 0.0, cpu_seconds: 0.0, latency, marks: Vec::new() }
    }

    /// The sum of the threads' meters for a phase that ran from `start` to `end`.
    pub(crate) fn of_phase(
        meters: &[Meter],
        start: Instant,
        end: Instant,
        cpu_seconds: f64,
    ) -> Measured {
        let mut sum = Measured::empty();
        sum.seconds = (end - start).as_secs_f64();
        sum.cpu_seconds = cpu_seconds;
        for meter in meters {
            sum.ops += meter.ops;
            // Bounds are the same everywhere, so adding cannot fail.
            let _ = sum.latency.add(&meter.latency);
            sum.marks.extend(meter.marks.iter().map(|mark| (*mark - start).as_secs_f64()));
        }
        sum.marks.sort_by(f64::total_cmp);
        sum
    }

    /// Adds a later phase.
    pub(crate) fn add(&mut self, later: &Measured) {
        let _ = self.latency.add(&later.latency);
        self.marks.extend(later.marks.iter().map(|mark| mark + self.seconds));
        self.ops += later.ops;
        self.seconds += later.seconds;
        self.cpu_seconds += later.cpu_seconds;
    }

    /// Operations a second.
    pub(crate) fn rate(&self) -> f64 {
        if self.seconds > 0.0 { self.ops as f64 / self.seconds } else { 0.0 }
    }

    /// Operations a second of each successive million, for two million or more.
    pub(crate) fn rate_per_million(&self) -> Vec<u64> {
        let per_span = MILLION as f64 / MARK_EVERY as f64;
        let spans = (self.ops / MILLION) as usize;
        // What is left after each thread's last mark is not in the marks: the last span ends early.
        let time_at = |span: usize| -> Option<f64> {
            let at = span as f64 * per_span;
            let before = at as usize;
            let low = if before == 0 { 0.0 } else { *self.marks.get(before - 1)? };
            let high = self.marks.get(before).copied().unwrap_or(self.seconds);
            Some(low + (high - low) * at.fract())
        };
        if spans < 2 {
            return Vec::new();
        }
        (0..spans)
            .map_while(|span| {
                let seconds = time_at(span + 1)? - time_at(span)?;
                Some((MILLION as f64 / seconds.max(1e-9)).round() as u64)
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_all_and_samples_some() {
        let mut meter = Meter::new(10);
        for _ in 0..100 {
            meter.op(|| Ok(())).expect("works");
        }
        assert_eq!((meter.ops, meter.latency.len()), (100, 10));
        meter.bulk(|| Ok(50)).expect("works");
        meter.bulk(|| Ok(0)).expect("an empty directory is no operation");
        assert_eq!((meter.ops, meter.latency.len()), (150, 60));
    }

    #[test]
    fn rates_of_successive_millions() {
        // 2 million at 1 M/s, then 2 million at 0.5 M/s, by four threads of equal speed.
        let mut marks: Vec<f64> = Vec::new();
        for mark in 1..=4 * MILLION / MARK_EVERY {
            let ops = (mark * MARK_EVERY) as f64 / 1e6;
            marks.push(if ops <= 2.0 { ops } else { 2.0 + (ops - 2.0) * 2.0 });
        }
        let measured = Measured { ops: 4 * MILLION, seconds: 6.0, marks, ..Measured::empty() };
        let rates = measured.rate_per_million();
        assert_eq!(rates.len(), 4);
        for (rate, expected) in rates.iter().zip([1e6, 1e6, 5e5, 5e5]) {
            assert!((*rate as f64 / expected - 1.0).abs() < 0.02, "{rates:?}");
        }
    }

    #[test]
    fn later_phases_come_after() {
        let phase = || Measured {
            ops: MILLION,
            seconds: 1.0,
            marks: (1..=MILLION / MARK_EVERY).map(|m| (m * MARK_EVERY) as f64 / 1e6).collect(),
            ..Measured::empty()
        };
        let mut sum = Measured::empty();
        sum.add(&phase());
        sum.add(&phase());
        assert_eq!((sum.ops, sum.seconds), (2 * MILLION, 2.0));
        assert!(sum.rate_per_million().iter().all(|r| (980_000..1_020_000).contains(r)));
    }
}
