//! Results of a run, and what the volume would cost.

use super::{Arguments, Policy};
use std::fmt::Write;

/// Bytes stored for a file, and requests that write for a million of them: measured for empty ones.
const BYTES: f64 = 85.0;
/// Pieces of objects for a file, measured with a hundred million empty ones, and bytes of a piece's
/// entry in a complete manifest.
const PIECES: f64 = 0.001593;
const ENTRY: f64 = 48.0;
/// Dollars a month for a gigabyte, and for a thousand requests that write, at S3's list prices.
const MONTH: f64 = 0.023;
const WRITES: f64 = 0.005;
/// Log objects of an idle subvolume in a month: a beat each half of its lease of a minute.
const BEATS: f64 = 30.0 * 24.0 * 120.0;

/// Results of a run.
#[derive(Clone, Default, PartialEq, Debug)]
pub struct Report {
    /// Machines that have died.
    pub deaths: u32,
    /// Subvolumes that were taken over from them.
    pub takeovers: u64,
    /// Seconds for which each of these was not served, in ascending order.
    pub outages: Vec<f64>,
    /// Subvolumes that were moved for their load.
    pub moves: u64,
    /// Seconds of pauses of these.
    pub pauses: f64,
    /// Load of each machine in each minute, in ascending order; 1 is all that it can do.
    pub loads: Vec<f32>,
    /// Minutes of machines, and those in which one had more to do than it can.
    pub machine_minutes: u64,
    /// See above.
    pub overloaded: u64,
    /// Subvolumes without an owner at the end.
    pub unowned: usize,
    /// Seconds of all subvolumes.
    pub subvolume_seconds: f64,
}

/// Returns the element below which so many percent are.
fn at<T: Copy + Default>(sorted: &[T], percent: f64) -> T {
    let index = (sorted.len() as f64 * percent / 100.0) as usize;
    sorted.get(index.min(sorted.len().saturating_sub(1))).copied().unwrap_or_default()
}

impl Report {
    pub(super) fn finish(mut self) -> Report {
        self.loads.sort_by(f32::total_cmp);
        self.outages.sort_by(f64::total_cmp);
        self
    }

    /// Share of the machines' time in which they had more to do than they can, in percent.
    pub fn overload_percent(&self) -> f64 {
        self.overloaded as f64 * 100.0 / (self.machine_minutes as f64).max(1.0)
    }

    /// Share of the time in which a subvolume was served, in percent.
    pub fn served_percent(&self) -> f64 {
        let lost = self.outages.iter().sum::<f64>() + self.pauses;
        100.0 - lost * 100.0 / self.subvolume_seconds.max(1.0)
    }

    /// Returns whether every subvolume has an owner, and each take-over is accounted for.
    pub fn is_consistent(&self) -> bool {
        self.unowned == 0 && self.takeovers == self.outages.len() as u64
    }

    /// The report as text.
    pub fn text(&self, arguments: &Arguments, policy: Policy) -> String {
        let mut text = String::new();
        let Arguments { subvolumes, machines, days, files, load, .. } = arguments;
        let mut line = |what: &str, value: String| {
            // A string takes everything.
            let _ = writeln!(text, "  {what:<58} {value}");
        };
        line("load of a machine, p50", format!("{:.2}", at(&self.loads, 50.0)));
        line("the same, p99", format!("{:.2}", at(&self.loads, 99.0)));
        line("the same, most", format!("{:.2}", at(&self.loads, 100.0)));
        line("time with more to do than possible", format!("{:.2} %", self.overload_percent()));
        let hours = f64::from(*days) * 24.0;
        line("subvolumes moved an hour", format!("{:.1}", self.moves as f64 / hours));
        line("machines that died", self.deaths.to_string());
        let (p50, p99) = (at(&self.outages, 50.0), at(&self.outages, 99.0));
        line("outage of a subvolume by that, p50", format!("{p50:.1} s"));
        line("the same, p99", format!("{p99:.1} s"));
        line("the same, longest", format!("{:.1} s", at(&self.outages, 100.0)));
        line("a subvolume is served", format!("{:.5} % of the time", self.served_percent()));
        let each = *files as f64 / f64::from(*subvolumes);
        let map = each * PIECES * ENTRY;
        line("files of a subvolume", format!("{:.0} million", each / 1e6));
        line("its map, before compression", format!("{:.1} MB", map / 1e6));
        let stored = *files as f64 * BYTES / 1e9;
        line("metadata stored", format!("{stored:.0} GB"));
        line("price of that, a month", format!("{:.0} $", stored * MONTH));
        let beats = f64::from(*subvolumes) * BEATS / 1000.0 * WRITES;
        line("price of beats, if all are idle, a month", format!("{beats:.0} $"));
        format!(
            "{policy:?}: {subvolumes} subvolumes on {machines} machines, load {load} %, {days} \
             days\n{text}"
        )
    }
}
