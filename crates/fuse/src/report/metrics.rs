//! Metrics as text, for Prometheus (version 0.0.4 of its format) and OpenMetrics (1.0).
//!
//! Names begin with `shoal_`, units are seconds and bytes, counters end in `_total`. Labels have
//! values from tables of ours alone (operations, kinds of I/O, states), so a user cannot make more
//! series. Histograms have the same bounds everywhere: a power of four of nanoseconds each, which
//! are bounds of our own buckets, so the counts are exact.
//!
//! *Why no crate*: our values are read from shards when somebody asks. The well-kept crate
//! (`prometheus-client`) keeps metrics of its own and writes OpenMetrics alone.

use crate::observe::label;
use crate::report::health::{self, Status};
use crate::session::Session;
use shoal::raw::{Timed, Timing, metrics};
use std::fmt::Write;

/// Bounds of histograms, as powers of two of nanoseconds: about 1 µs to 17 s, by four.
const BOUNDS: [u32; 13] = [10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30, 32, 34];

/// A format of text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Format {
    /// Prometheus, 0.0.4.
    Prometheus,
    /// OpenMetrics, 1.0.
    OpenMetrics,
}

impl Format {
    /// Returns the media type.
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Format::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// Type of a family of metrics.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Counter,
    Gauge,
    Histogram,
}

struct Text {
    text: String,
    format: Format,
}

impl Text {
    /// Begins a family. `name` is without `_total`.
    fn family(&mut self, name: &str, kind: Kind, unit: &str, help: &str) {
        let kind_name = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        // The older format names the family of a counter as its samples.
        let name = match (self.format, kind) {
            (Format::Prometheus, Kind::Counter) => format!("{name}_total"),
            _ => name.to_owned(),
        };
        let _ = writeln!(self.text, "# HELP {name} {help}");
        let _ = writeln!(self.text, "# TYPE {name} {kind_name}");
        if self.format == Format::OpenMetrics && !unit.is_empty() {
            let _ = writeln!(self.text, "# UNIT {name} {unit}");
        }
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl std::fmt::Display) {
        let labels: Vec<String> =
            labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
        let _ = match labels.is_empty() {
            true => writeln!(self.text, "{name} {value}"),
            false => writeln!(self.text, "{name}{{{}}} {value}", labels.join(",")),
        };
    }

    fn histogram(&mut self, name: &str, label: Option<(&str, &str)>, timing: &Timing) {
        let bucket = format!("{name}_bucket");
        let count = timing.count();
        for power in BOUNDS {
            let ns = 1u64 << power;
            let bound = format!("{:?}", ns as f64 / 1e9);
            let labels: Vec<_> = label.into_iter().chain([("le", &*bound)]).collect();
            self.sample(&bucket, &labels, timing.count_up_to(ns));
        }
        let labels: Vec<_> = label.into_iter().chain([("le", "+Inf")]).collect();
        self.sample(&bucket, &labels, count);
        let own: Vec<_> = label.into_iter().collect();
        self.sample(&format!("{name}_sum"), &own, timing.total_ns as f64 / 1e9);
        self.sample(&format!("{name}_count"), &own, count);
    }

    fn gauge(&mut self, name: &str, unit: &str, help: &str, value: impl std::fmt::Display) {
        self.family(name, Kind::Gauge, unit, help);
        self.sample(name, &[], value);
    }
}

/// Escapes the value of a label.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Returns all metrics of a mount.
pub(crate) fn text(session: &Session, format: Format) -> String {
    let mut out = Text { text: String::new(), format };
    mount(session, &mut out);
    damage(session, &mut out);
    operations(session, &mut out);
    calls(session, &mut out);
    inside(session, &mut out);
    volume(session, &mut out);
    if format == Format::OpenMetrics {
        out.text.push_str("# EOF\n");
    }
    out.text
}

fn mount(session: &Session, out: &mut Text) {
    out.family("shoal_build_info", Kind::Gauge, "", "Version of the server; the value is 1.");
    out.sample("shoal_build_info", &[("version", env!("CARGO_PKG_VERSION"))], 1);
    let uptime = session.observer.begun().elapsed().as_secs_f64();
    out.gauge("shoal_uptime_seconds", "seconds", "Time since the mount began.", uptime);
    let status = health::of(session, false).status;
    out.family("shoal_health", Kind::Gauge, "", "1 for the state that the mount is in.");
    for (state, is) in [
        ("ok", Status::Ok),
        ("warning", Status::Warning),
        ("damaged", Status::Damaged),
        ("failed", Status::Failed),
    ] {
        out.sample("shoal_health", &[("state", state)], u8::from(status == is));
    }
    let (time, found) = session.looking.get().map(|it| it.counts()).unwrap_or_default();
    let help = "Time for which threads have looked for requests (option busy_poll).";
    out.family("shoal_busy_poll_seconds", Kind::Counter, "seconds", help);
    out.sample("shoal_busy_poll_seconds_total", &[], time.as_secs_f64());
    let help = "Requests that they have found so, without a wake-up.";
    out.family("shoal_busy_poll_requests", Kind::Counter, "", help);
    out.sample("shoal_busy_poll_requests_total", &[], found);
    let slow = session.observer.slow.count();
    let help = "Requests slower than the threshold of the mount (option slow).";
    out.family("shoal_slow_operations", Kind::Counter, "", help);
    out.sample("shoal_slow_operations_total", &[], slow);
}

fn damage(session: &Session, out: &mut Text) {
    let damage = session.observer.damage.view();
    let help = "Requests that have met damage: a wrong checksum, or a bad place of the medium.";
    out.family("shoal_damaged_reads", Kind::Counter, "", help);
    for (kind, count) in &damage.counts {
        out.sample("shoal_damaged_reads_total", &[("kind", kind.name())], count);
    }
    let scrub = damage.scrub.as_ref();
    let help = "Problems that the last complete scrub of this mount has found; 0 before the first.";
    out.gauge("shoal_scrub_problems", "", help, scrub.map_or(0, |scrub| scrub.problems));
    let help = "Time since the last complete scrub of this mount, or since the mount began.";
    let age = scrub.and_then(|scrub| scrub.at.elapsed().ok());
    let age = age.unwrap_or_else(|| session.observer.begun().elapsed()).as_secs_f64();
    out.gauge("shoal_scrub_age_seconds", "seconds", help, age);
}

fn operations(session: &Session, out: &mut Text) {
    let all: Vec<(String, Timing)> =
        session.observer.operations().into_iter().map(|(op, it)| (label(op), it)).collect();
    let name = "shoal_operation_duration_seconds";
    out.family(name, Kind::Histogram, "seconds", "Durations of the kernel's requests.");
    for (op, timing) in &all {
        out.histogram(name, Some(("operation", op)), timing);
    }
    out.family("shoal_operation_errors", Kind::Counter, "", "Requests that have failed.");
    for (op, timing) in &all {
        out.sample("shoal_operation_errors_total", &[("operation", op)], timing.errors);
    }
    let help = "Bytes of file data that requests have read and written.";
    out.family("shoal_operation_bytes", Kind::Counter, "bytes", help);
    for (op, timing) in all.iter().filter(|(_, timing)| timing.bytes > 0) {
        out.sample("shoal_operation_bytes_total", &[("operation", op)], timing.bytes);
    }
}

fn calls(session: &Session, out: &mut Text) {
    let all = session.views.get().maintenance().calls();
    let name = "shoal_call_duration_seconds";
    let help = "Durations of calls of the library; of short ones estimated from a sample.";
    out.family(name, Kind::Histogram, "seconds", help);
    for (call, timing) in all.iter().filter(|(_, timing)| timing.count() > 0) {
        out.histogram(name, Some(("call", call.name())), timing);
    }
    let help = "Calls of the library that have failed, exactly.";
    out.family("shoal_call_errors", Kind::Counter, "", help);
    for (call, timing) in &all {
        out.sample("shoal_call_errors_total", &[("call", call.name())], timing.errors);
    }
}

fn inside(session: &Session, out: &mut Text) {
    let timing = |kind| session.views.get().maintenance().timing(kind);
    let io = [
        ("read", timing(Timed::DeviceRead)),
        ("write", timing(Timed::DeviceWrite)),
        ("flush", timing(Timed::DeviceFlush)),
        ("discard", timing(Timed::DeviceDiscard)),
    ];
    let name = "shoal_device_io_duration_seconds";
    out.family(name, Kind::Histogram, "seconds", "Durations of operations on the device.");
    for (kind, timing) in &io {
        out.histogram(name, Some(("kind", kind)), timing);
    }
    out.family("shoal_device_io_bytes", Kind::Counter, "bytes", "Bytes that they have moved.");
    for (kind, timing) in io.iter().filter(|(kind, _)| *kind != "flush") {
        out.sample("shoal_device_io_bytes_total", &[("kind", kind)], timing.bytes);
    }
    out.family("shoal_device_io_errors", Kind::Counter, "", "Operations that have failed.");
    for (kind, timing) in &io {
        out.sample("shoal_device_io_errors_total", &[("kind", kind)], timing.errors);
    }
    for (name, kind) in [
        ("shoal_journal_wait_duration_seconds", Timed::JournalWait),
        ("shoal_checkpoint_duration_seconds", Timed::Checkpoint),
        ("shoal_quiesce_duration_seconds", Timed::Quiesce),
    ] {
        let help = format!("Durations of {}.", kind.what());
        out.family(name, Kind::Histogram, "seconds", &help);
        out.histogram(name, None, &timing(kind));
    }
}

fn volume(session: &Session, out: &mut Text) {
    let space = session.views.get().statfs();
    for (name, unit, help, value) in [
        ("shoal_volume_size_bytes", "bytes", "Size of the volume.", space.bytes_total),
        (
            "shoal_volume_available_bytes",
            "bytes",
            "Bytes available to files.",
            space.bytes_available,
        ),
        ("shoal_volume_inodes_free", "", "Inodes that can be made.", space.inodes_free),
    ] {
        out.gauge(name, unit, help, value);
    }
    let help = "1 if the volume takes no changes because of a failure.";
    out.gauge("shoal_volume_failed", "", help, u8::from(space.read_only));
    for stat in metrics(&session.views.get().info()) {
        let (name, unit) = metric_name(&stat.name);
        let help = sentence(&stat.what);
        match stat.gauge {
            true => out.gauge(&name, unit, &help, stat.value),
            false => {
                out.family(&name, Kind::Counter, unit, &help);
                out.sample(&format!("{name}_total"), &[], stat.value);
            }
        }
    }
}

/// Returns the name of a counter's or gauge's metric, with the unit at its end, and the unit.
fn metric_name(stat: &str) -> (String, &'static str) {
    let words: Vec<&str> = stat.split('_').collect();
    if !words.contains(&"bytes") {
        return (format!("shoal_{stat}"), "");
    }
    let others: Vec<&str> = words.into_iter().filter(|word| *word != "bytes").collect();
    (format!("shoal_{}_bytes", others.join("_")), "bytes")
}

/// Returns a description as a sentence.
fn sentence(what: &str) -> String {
    let mut letters = what.chars();
    let first = letters.next().map(|letter| letter.to_ascii_uppercase());
    first.into_iter().chain(letters).chain(['.']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::wire::InHeader;
    use crate::protocol::{Errno, Opcode, Reply, Request};
    use crate::report::tests::session;
    use std::collections::{HashMap, HashSet};

    /// Checks a text as promtool's lint does, and by the two formats.
    fn lint(text: &str, format: Format) {
        let (mut types, mut done) = (HashMap::new(), HashSet::new());
        let (mut series, mut current) = (HashSet::new(), String::new());
        let mut lines = text.lines().peekable();
        if format == Format::OpenMetrics {
            assert!(text.ends_with("\n# EOF\n"));
        }
        while let Some(line) = lines.next() {
            if line == "# EOF" {
                assert!(lines.peek().is_none(), "last");
                continue;
            }
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, help) = rest.split_once(' ').unwrap();
                assert!(help.ends_with('.') && help.len() > 10, "{line}");
                assert!(done.insert(name.to_owned()), "a family is in one place: {line}");
                assert!(lines.peek().unwrap().starts_with(&format!("# TYPE {name} ")), "{line}");
                current = name.to_owned();
                continue;
            }
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').unwrap();
                types.insert(name.to_owned(), kind.to_owned());
                let is_total = name.ends_with("_total");
                assert_eq!(is_total, format == Format::Prometheus && kind == "counter", "{line}");
                let letters = |c: char| c.is_ascii_lowercase() || c == '_' || c.is_ascii_digit();
                assert!(name.starts_with("shoal_") && name.chars().all(letters), "{line}");
                // Base units, at the end; and no types in names.
                for word in name.split('_') {
                    let bad = ["milliseconds", "ms", "kib", "bits", "percent", "counter", "gauge"];
                    assert!(!bad.contains(&word), "{line}");
                }
                let base = name.strip_suffix("_total").unwrap_or(name);
                for unit in ["seconds", "bytes"] {
                    assert!(
                        !name.split('_').any(|word| word == unit) || base.ends_with(unit),
                        "{line}"
                    );
                }
                continue;
            }
            if let Some(rest) = line.strip_prefix("# UNIT ") {
                let (name, unit) = rest.split_once(' ').unwrap();
                assert!(format == Format::OpenMetrics && name.ends_with(unit), "{line}");
                continue;
            }
            let (name, value) = line.rsplit_once(' ').unwrap();
            assert!(value.parse::<f64>().is_ok_and(|value| value >= 0.0), "{line}");
            assert!(series.insert(name.to_owned()), "twice: {line}");
            let metric = name.split('{').next().unwrap();
            let suffix = metric.strip_prefix(&*current).unwrap_or_else(|| panic!("{line}"));
            let wanted: &[&str] = match (&*types[&current], format) {
                ("histogram", _) => &["_bucket", "_sum", "_count"],
                ("counter", Format::OpenMetrics) => &["_total"],
                _ => &[""],
            };
            assert!(wanted.contains(&suffix), "{line}");
        }
    }

    fn end(session: &Session, op: Opcode, reply: &Reply) {
        let header = InHeader { opcode: op as u32, ..InHeader::default() };
        let request = Request::from_parts(header, &[], &mut [], 0).unwrap();
        session.observer.end(op, session.observer.begin(), &request, reply);
    }

    #[test]
    fn both_formats_pass_the_lint() {
        let session = session();
        end(&session, Opcode::Lookup, &Reply::Body(1));
        end(&session, Opcode::Fsync, &Reply::Error(Errno::EIO));
        session.views.get().sync().unwrap();
        let none = shoal::raw::Ino(77_777);
        assert!(session.views.get().files().fsync(none, true).is_err());
        assert!(session.views.get().namespace().readlink(none).is_err());
        for format in [Format::Prometheus, Format::OpenMetrics] {
            let text = text(&session, format);
            lint(&text, format);
            for wanted in [
                "shoal_operation_duration_seconds_bucket{operation=\"lookup\",le=\"+Inf\"} 1\n",
                "shoal_operation_duration_seconds_count{operation=\"fsync\"} 1\n",
                "shoal_operation_errors_total{operation=\"fsync\"} 1\n",
                "shoal_call_duration_seconds_count{call=\"sync\"} 1\n",
                "shoal_call_errors_total{call=\"sync\"} 0\n",
                "shoal_call_errors_total{call=\"fsync\"} 1\n",
                "shoal_call_errors_total{call=\"readlink\"} 1\n",
                "shoal_health{state=\"ok\"} 1\n",
                "shoal_health{state=\"damaged\"} 0\n",
                "shoal_damaged_reads_total{kind=\"data\"} 0\n",
                "shoal_scrub_problems 0\n",
                "shoal_data_written_bytes_total ",
                "shoal_journal_replay_bytes ",
            ] {
                assert!(text.contains(wanted), "{wanted} in {text}");
            }
        }
    }

    /// Every operation, each many times: the number of series has a bound that no user moves.
    #[test]
    fn the_number_of_series_is_bounded() {
        let session = session();
        for op in Opcode::ALL.iter().copied() {
            (0..10).for_each(|_| end(&session, op, &Reply::Error(Errno::EIO)));
        }
        let all = text(&session, Format::Prometheus);
        let samples = all.lines().filter(|line| !line.starts_with('#')).count();
        assert!(samples < 20 * Opcode::ALL.len() + 250, "{samples}");
    }

    #[test]
    fn buckets_are_cumulative_and_exact() {
        let timings = shoal::raw::Timings::new(1);
        for us in [1, 2, 3, 5, 100_000_000] {
            timings.record(0, std::time::Duration::from_micros(us), false, 0);
        }
        let mut out = Text { text: String::new(), format: Format::Prometheus };
        out.histogram("h", None, &timings.get(0));
        let found = |bound: &str| {
            let line = out.text.lines().find(|line| line.contains(bound)).unwrap();
            line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()
        };
        assert_eq!(found("le=\"1.024e-6\""), 1);
        assert_eq!(found("le=\"4.096e-6\""), 3);
        assert_eq!(found("le=\"17.179869184\""), 4);
        assert_eq!(found("le=\"+Inf\""), 5);
    }
}
