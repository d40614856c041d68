//! Reports as JSON. Durations are in seconds, sizes in bytes; a histogram is a list of its buckets
//! that are not empty, each with its upper bound and its count.

use crate::observe::label;
use crate::observe::slow::Slow;
use crate::report::health::{self, Health};
use crate::session::Session;
use serde::Serialize;
use serde_json::{Map, Value, json};
use shoal::raw::{Call, Timed, Timing, metrics, timing_bucket_end};
use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

/// Durations of an operation, as all reports have them, and the commands that show them. In
/// seconds.
#[derive(Serialize, Clone, Copy, PartialEq, Debug)]
pub struct Durations {
    /// Number.
    pub count: u64,
    /// How many of them failed.
    pub errors: u64,
    /// Bytes that they moved.
    pub bytes: u64,
    /// Sum.
    pub seconds: f64,
    /// Duration that a half did not exceed.
    pub p50: f64,
    /// Duration that 99 % did not exceed.
    pub p99: f64,
    /// Duration that 99.9 % did not exceed.
    #[serde(rename = "p99.9")]
    pub p999: f64,
}

impl Durations {
    /// Returns what a histogram says.
    pub fn of(timing: &Timing) -> Durations {
        let quantile = |share| seconds(timing.quantile_ns(share));
        Durations {
            count: timing.count(),
            errors: timing.errors,
            bytes: timing.bytes,
            seconds: seconds(timing.total_ns),
            p50: quantile(0.5),
            p99: quantile(0.99),
            p999: quantile(0.999),
        }
    }
}

/// An operation: its durations, and its histogram.
#[derive(Serialize)]
struct Operation {
    #[serde(flatten)]
    durations: Durations,
    buckets: Vec<(f64, u64)>,
}

impl Operation {
    fn new(timing: &Timing) -> Operation {
        let buckets = timing.buckets().map(|(bucket, n)| (seconds(timing_bucket_end(bucket)), n));
        Operation { durations: Durations::of(timing), buckets: buckets.collect() }
    }
}

/// A call of the library: an operation, and how many calls each timed one counts for.
#[derive(Serialize)]
struct LibraryCall {
    #[serde(flatten)]
    operation: Operation,
    weight: u64,
}

impl LibraryCall {
    fn new(call: Call, timing: &Timing) -> LibraryCall {
        LibraryCall { operation: Operation::new(timing), weight: call.weight() }
    }
}

#[derive(Serialize)]
struct Stats {
    version: &'static str,
    directory: Option<String>,
    source: Option<String>,
    time: f64,
    uptime: f64,
    counters: BTreeMap<String, u64>,
    now: BTreeMap<String, u64>,
    space: Space,
    operations: BTreeMap<String, Operation>,
    /// Of the library.
    calls: BTreeMap<&'static str, LibraryCall>,
    volume: BTreeMap<&'static str, Operation>,
    slow: u64,
    health: Health,
}

#[derive(Serialize)]
struct Space {
    bytes_total: u64,
    bytes_available: u64,
    inodes_used: u64,
    inodes_free: u64,
}

/// Returns counters, gauges, operations and health as an object.
/// `whose`: with the paths of damaged files.
pub(crate) fn stats(session: &Session, whose: bool) -> String {
    let volume = &session.views.get();
    let (all, space) = (metrics(&volume.info()), volume.statfs());
    let of = |gauge| {
        let some = all.iter().filter(|stat| stat.gauge == gauge);
        some.map(|stat| (stat.name.to_string(), stat.value)).collect()
    };
    let (operations, config) = (session.observer.operations(), session.observer.config.get());
    let inside = Timed::ALL.iter().map(|kind| (kind.name(), volume.maintenance().timing(*kind)));
    let calls = volume.maintenance().calls().into_iter();
    line(&Stats {
        version: env!("CARGO_PKG_VERSION"),
        directory: config.map(|config| config.directory.to_string_lossy().into_owned()),
        source: config.map(|config| config.source.clone()),
        time: since_1970(SystemTime::now()),
        uptime: session.observer.begun().elapsed().as_secs_f64(),
        counters: of(false),
        now: of(true),
        space: Space {
            bytes_total: space.bytes_total,
            bytes_available: space.bytes_available,
            inodes_used: space.inodes_used,
            inodes_free: space.inodes_free,
        },
        calls: calls.map(|(call, timing)| (call.name(), LibraryCall::new(call, &timing))).collect(),
        operations: operations.iter().map(|(op, t)| (label(*op), Operation::new(t))).collect(),
        volume: inside.map(|(name, timing)| (name, Operation::new(&timing))).collect(),
        slow: session.observer.slow.count(),
        health: health::of(session, whose),
    })
}

/// Returns the slow requests that are kept, the newest first. `whose`: with paths and callers.
pub(crate) fn slow(session: &Session, whose: bool) -> String {
    let log = &session.observer.slow;
    let kept: Vec<Value> = log.kept().iter().map(|slow| slow_request(slow, whose)).collect();
    line(&json!({ "threshold": threshold(session), "count": log.count(), "slow": kept }))
}

/// Returns the least duration of a slow request.
fn threshold(session: &Session) -> Option<f64> {
    let ns = session.observer.slow.least_ns();
    (ns != u64::MAX).then_some(seconds(ns))
}

fn slow_request(slow: &Slow, whose: bool) -> Value {
    let waited: Map<String, Value> =
        slow.phases().map(|(phase, ns)| (phase.name().to_owned(), json!(seconds(ns)))).collect();
    let mut request = json!({
        "number": slow.number,
        "time": since_1970(slow.at),
        "operation": slow.op,
        "inode": slow.ino.0,
        "errno": slow.errno,
        "seconds": seconds(slow.took_ns),
        "waited": waited,
    });
    if whose && let Some(request) = request.as_object_mut() {
        let path = slow.path.as_deref().map(|path| String::from_utf8_lossy(path).into_owned());
        request.insert("path".into(), json!(path));
        request.insert("pid".into(), json!(slow.pid));
        request.insert("uid".into(), json!(slow.uid));
    }
    request
}

/// Returns the options of the mount and facts of the volume.
pub(crate) fn config(session: &Session) -> String {
    let info = session.views.get().info();
    let config = session.observer.config.get();
    line(&json!({
        "version": env!("CARGO_PKG_VERSION"),
        "pid": std::process::id(),
        "directory": config.map(|config| config.directory.to_string_lossy()),
        "source": config.map(|config| &config.source),
        "options": config.map(|config| &config.options),
        "slow": threshold(session),
        "volume": {
            "id": info.id,
            "format": info.version,
            "features": info.features,
            "compression": info.compression,
            "inode_size": info.inode_size,
            "segment_size": info.segment_size,
            "segments": info.segments,
            "claim": info.claim,
        },
    }))
}

/// Returns the health; `whose`: with the paths of damaged files.
pub(crate) fn health(session: &Session, whose: bool) -> String {
    line(&health::of(session, whose))
}

fn line(value: &impl Serialize) -> String {
    let text = serde_json::to_string_pretty(value);
    // No map here has keys that are not strings, so it does not fail.
    text.map_or_else(|error| format!("{{\"error\": \"{error}\"}}\n"), |text| text + "\n")
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

fn since_1970(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}
