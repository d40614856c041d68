//! Results for machines (JSON lines) and for people (a table and a histogram).

use crate::args::{Args, Target};
use crate::error::{BenchError, Result};
use crate::meter::Measured;
use hdrhistogram::Histogram;
use serde::Serialize;
use std::io::Write;

/// Results of a round, or of all.
pub(crate) struct Results {
    /// Operations, times, latencies.
    pub measured: Measured,
    /// Time to make everything durable afterwards.
    pub settle_seconds: f64,
    /// Growth of the volume's live bytes.
    pub volume_bytes: Option<i64>,
    /// Bytes of journal written.
    pub journal_bytes: Option<u64>,
    /// Bytes that checkpoints wrote.
    pub checkpoint_bytes: Option<u64>,
    /// Bytes of file data written, those that were written again counted again.
    pub data_bytes: Option<u64>,
    /// Growth of this process's resident memory in the timed phase.
    pub rss_bytes: Option<i64>,
    /// Figures that only one workload has.
    pub extra: Vec<(&'static str, f64)>,
}

impl Results {
    /// Only what was measured.
    pub(crate) fn new(measured: Measured) -> Results {
        Results {
            measured,
            settle_seconds: 0.0,
            volume_bytes: None,
            journal_bytes: None,
            checkpoint_bytes: None,
            data_bytes: None,
            rss_bytes: None,
            extra: Vec::new(),
        }
    }

    /// Adds a later round.
    pub(crate) fn add(&mut self, later: &Results) {
        fn sum<N: std::ops::Add<Output = N>>(a: Option<N>, b: Option<N>) -> Option<N> {
            match (a, b) {
                (Some(a), Some(b)) => Some(a + b),
                (a, b) => a.or(b),
            }
        }
        self.measured.add(&later.measured);
        self.settle_seconds += later.settle_seconds;
        self.volume_bytes = sum(self.volume_bytes, later.volume_bytes);
        self.journal_bytes = sum(self.journal_bytes, later.journal_bytes);
        self.checkpoint_bytes = sum(self.checkpoint_bytes, later.checkpoint_bytes);
        self.data_bytes = sum(self.data_bytes, later.data_bytes);
        self.rss_bytes = sum(self.rss_bytes, later.rss_bytes);
    }
}

/// One JSON line.
#[derive(Serialize)]
struct Line<'a> {
    workload: String,
    target: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    round: Option<u32>,
    threads: usize,
    ops: u64,
    seconds: f64,
    cpu_seconds: f64,
    ops_per_second: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    latency_ns: Option<Latency>,
    settle_seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    volume_bytes: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    journal_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    checkpoint_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rss_bytes: Option<i64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    rate_per_million: Vec<u64>,
    #[serde(flatten)]
    extra: std::collections::BTreeMap<&'a str, f64>,
}

/// Latencies in nanoseconds.
#[derive(Serialize, Clone, Copy)]
struct Latency {
    /// Exact, from the wall time: threads × seconds ÷ operations.
    mean: f64,
    p50: u64,
    p90: u64,
    p99: u64,
    p999: u64,
    max: u64,
    /// How many operations were timed.
    samples: u64,
}

impl Latency {
    /// `None` when nothing was sampled.
    fn of(measured: &Measured, threads: usize) -> Option<Latency> {
        let histogram = &measured.latency;
        if histogram.is_empty() {
            return None;
        }
        Some(Latency {
            mean: round(threads as f64 * measured.seconds * 1e9 / measured.ops.max(1) as f64, 1),
            p50: histogram.value_at_quantile(0.5),
            p90: histogram.value_at_quantile(0.9),
            p99: histogram.value_at_quantile(0.99),
            p999: histogram.value_at_quantile(0.999),
            max: histogram.max(),
            samples: histogram.len(),
        })
    }
}

/// The middle of the values, of which there is one at least.
pub(crate) fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() % 2 {
        0 => (values[middle - 1] + values[middle]) / 2.0,
        _ => values[middle],
    }
}

fn round(value: f64, digits: i32) -> f64 {
    let scale = 10f64.powi(digits);
    (value * scale).round() / scale
}

/// Writer of results.
pub(crate) struct Report<'a> {
    args: &'a Args,
    out: &'a mut dyn Write,
}

impl<'a> Report<'a> {
    /// Prints to `out` in the form that the arguments ask for.
    pub(crate) fn new(args: &'a Args, out: &'a mut dyn Write) -> Report<'a> {
        Report { args, out }
    }

    /// One round of several.
    pub(crate) fn round(&mut self, round: u32, results: &Results) -> Result<()> {
        if self.args.json {
            return self.json(Some(round), results);
        }
        let rate = grouped(results.measured.rate().round() as i64);
        self.print(&format!("round {:<4} {rate} ops/s\n", round + 1))
    }

    /// The whole.
    pub(crate) fn whole(&mut self, results: &Results) -> Result<()> {
        match self.args.json {
            true => self.json(None, results),
            false => self.print(&table(self.args, results)),
        }
    }

    fn json(&mut self, round_number: Option<u32>, results: &Results) -> Result<()> {
        let measured = &results.measured;
        let line = Line {
            workload: self.args.workload.name(),
            target: self.args.target.as_ref().map(Target::to_string).unwrap_or_default(),
            round: round_number,
            threads: self.args.threads,
            ops: measured.ops,
            seconds: round(measured.seconds, 6),
            cpu_seconds: round(measured.cpu_seconds, 6),
            ops_per_second: round(measured.rate(), 1),
            latency_ns: Latency::of(measured, self.args.threads),
            settle_seconds: round(results.settle_seconds, 6),
            volume_bytes: results.volume_bytes,
            journal_bytes: results.journal_bytes,
            checkpoint_bytes: results.checkpoint_bytes,
            data_bytes: results.data_bytes,
            rss_bytes: results.rss_bytes,
            rate_per_million: measured.rate_per_million(),
            extra: results.extra.iter().copied().collect(),
        };
        self.line(&line)
    }

    /// Prints one line of JSON.
    fn line(&mut self, line: &impl Serialize) -> Result<()> {
        let text =
            serde_json::to_string(line).map_err(|e| BenchError::failed("results", "as JSON", e))?;
        self.print(&format!("{text}\n"))
    }

    /// Prints lines of JSON, or the table that they make.
    pub(crate) fn lines<L: Serialize>(
        &mut self,
        lines: &[L],
        table: impl FnOnce(&[L]) -> String,
    ) -> Result<()> {
        match self.args.json {
            true => lines.iter().try_for_each(|line| self.line(line)),
            false => self.print(&table(lines)),
        }
    }

    /// Prints a line for people.
    pub(crate) fn note(&mut self, line: &str) -> Result<()> {
        match self.args.json {
            true => Ok(()),
            false => self.print(&format!("{line}\n")),
        }
    }

    /// Prints text as it stands.
    pub(crate) fn print(&mut self, text: &str) -> Result<()> {
        let written = self.out.write_all(text.as_bytes()).and_then(|()| self.out.flush());
        match written {
            // Whoever reads has seen enough: `shoal bench … | head`.
            Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
            other => other.map_err(|e| BenchError::failed("printing", "the results", e)),
        }
    }
}

/// The table for people.
fn table(args: &Args, results: &Results) -> String {
    let measured = &results.measured;
    let ops = measured.ops.max(1) as f64;
    let mut rows: Vec<(&str, String)> = vec![
        ("workload", args.workload.name()),
        ("target", args.target.as_ref().map(Target::to_string).unwrap_or_default()),
        ("threads", args.threads.to_string()),
        ("operations", grouped(measured.ops as i64)),
        ("seconds", format!("{:.3} (processor {:.3})", measured.seconds, measured.cpu_seconds)),
        ("rate", format!("{} ops/s", grouped(measured.rate().round() as i64))),
    ];
    if let Some(l) = Latency::of(measured, args.threads) {
        let tail = [("p50", l.p50), ("p90", l.p90), ("p99", l.p99), ("p99.9", l.p999)];
        let tail = tail.map(|(name, ns)| format!("{name} {}", time(ns as f64))).join("  ");
        let max = time(l.max as f64);
        rows.push(("latency", format!("mean {}  {tail}  max {max}", time(l.mean))));
    }
    rows.push(("settling", format!("{:.3} s to make all of it durable", results.settle_seconds)));
    let bytes = [
        ("volume", results.volume_bytes),
        ("journal", results.journal_bytes.map(|b| b as i64)),
        ("checkpoint", results.checkpoint_bytes.map(|b| b as i64)),
        ("data", results.data_bytes.filter(|b| *b > 0).map(|b| b as i64)),
        ("memory", results.rss_bytes),
    ];
    for (name, value) in bytes {
        let Some(value) = value else { continue };
        let each = value as f64 / ops;
        rows.push((name, format!("{} bytes, {each:.0} for each operation", grouped(value))));
    }
    for (name, value) in &results.extra {
        rows.push((name, format!("{value:.3}")));
    }
    let rates = measured.rate_per_million();
    if let (Some(first), Some(last)) = (rates.first(), rates.last()) {
        let ratio = *last as f64 / (*first).max(1) as f64;
        let all = rates.iter().map(|r| format!("{:.2}", *r as f64 / 1e6)).collect::<Vec<_>>();
        rows.push(("by million", format!("{} M/s; last/first {ratio:.2}", all.join(" "))));
    }
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let mut text: String =
        rows.iter().map(|(name, value)| format!("{name:<width$}  {value}\n")).collect();
    text.push_str(&bars(&measured.latency));
    text
}

/// A histogram with a row for each power of two.
fn bars(histogram: &Histogram<u64>) -> String {
    const WIDTH: f64 = 50.0;
    let mut counts = [0u64; 65];
    for value in histogram.iter_recorded() {
        let bucket = 64 - value.value_iterated_to().leading_zeros();
        counts[bucket as usize] += value.count_at_value();
    }
    let Some(first) = counts.iter().position(|c| *c > 0) else { return String::new() };
    let last = counts.iter().rposition(|c| *c > 0).unwrap_or(first);
    let largest = counts.iter().copied().max().unwrap_or(1) as f64;
    let mut text = format!("\n{:>10}  latencies timed: {}\n", "up to", histogram.len());
    for (bucket, count) in counts.iter().enumerate().take(last + 1).skip(first) {
        let bar = "#".repeat((*count as f64 / largest * WIDTH).ceil() as usize);
        let limit = time((1u128 << bucket) as f64);
        text.push_str(&format!("{limit:>10}  {bar:<50} {}\n", grouped(*count as i64)));
    }
    text
}

/// A time with a fitting unit.
fn time(ns: f64) -> String {
    match ns {
        n if n < 1e3 => format!("{n:.0} ns"),
        n if n < 1e6 => format!("{:.1} µs", n / 1e3),
        n if n < 1e9 => format!("{:.1} ms", n / 1e6),
        n => format!("{:.2} s", n / 1e9),
    }
}

/// A number with its thousands apart.
fn grouped(number: i64) -> String {
    let digits = number.unsigned_abs().to_string();
    let mut text = String::from(if number < 0 { "-" } else { "" });
    for (n, digit) in digits.chars().enumerate() {
        if n > 0 && (digits.len() - n).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_times_read_well() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(-1_234_567), "-1,234,567");
        assert_eq!(grouped(123_456), "123,456");
        assert_eq!(time(999.0), "999 ns");
        assert_eq!(time(1_500.0), "1.5 µs");
        assert_eq!(time(2e9), "2.00 s");
    }

    #[test]
    fn bars_cover_every_sample() {
        let mut measured = Measured::empty();
        for ns in [900, 1000, 1100, 70_000] {
            measured.latency.record(ns).expect("in bounds");
        }
        let text = bars(&measured.latency);
        assert!(text.contains("1.0 µs") && text.contains("131.1 µs"), "{text}");
        assert_eq!(bars(&Measured::empty().latency), "");
    }
}
