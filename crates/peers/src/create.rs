//! The workload: files are created in one directory after the other, some in each transaction.
//!
//! Directories are made before. The time of a create has that of its name in it, some 20 ns.

use crate::engine::{Batch, Engine, Kind};
use crate::engines::ENGINES;
use crate::error::{PeerError, Result};
use crate::records::{FILES_PER_DIR, NewFile};
use crate::resources::{Scratch, cpu_seconds, folder_bytes, now_ns};
use crate::verify::verify;
use clap::builder::PossibleValuesParser;
use hdrhistogram::Histogram;
use serde::Serialize;
use std::path::PathBuf;
use std::time::Instant;

/// Transactions of one file of which one is timed: to read the clock twice costs some 50 ns.
const TIMED_EVERY: u64 = 16;
/// Names that are looked up in the check, about.
const LOOKED_UP: u64 = 1000;

/// Options of a run.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Args {
    /// Engine that stores the files
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(names()))]
    pub engine: String,
    /// Files
    #[arg(long, default_value_t = 100_000, value_name = "N", value_parser = 1..=1 << 31)]
    pub files: i64,
    /// Files in one transaction; those of a transaction are in one directory
    #[arg(long, default_value_t = 1, value_name = "B", value_parser = 1..=FILES_PER_DIR as i64)]
    pub batch: i64,
    /// Folder in which the store is made, in a folder of its own that is removed afterwards
    #[arg(long, value_name = "DIR")]
    pub folder: PathBuf,
    /// Print one line of JSON
    #[arg(long)]
    pub json: bool,
}

fn names() -> [&'static str; ENGINES.len()] {
    ENGINES.each_ref().map(|kind| kind.name)
}

/// Result of a run.
#[derive(Serialize, Debug)]
pub(crate) struct Line {
    workload: &'static str,
    engine: &'static str,
    batch: u64,
    threads: u32,
    ops: u64,
    seconds: f64,
    /// User and system time of the process while files were created.
    cpu_seconds: f64,
    ops_per_second: f64,
    latency_ns: Latency,
    /// Time to make everything durable afterwards, and to close the store.
    settle_seconds: f64,
    /// User and system time of the process until the store was closed.
    cpu_total_seconds: f64,
    /// Allocated bytes of the closed store.
    bytes: u64,
}

/// Latencies of transactions. The largest is that of the sample, and so a lower bound.
#[derive(Serialize, Debug)]
struct Latency {
    p50: u64,
    p99: u64,
    max: u64,
    samples: u64,
}

impl Line {
    /// Prints it, for machines or for people.
    pub(crate) fn print(&self, json: bool) {
        if json {
            println!("{}", serde_json::json!(self));
            return;
        }
        let Line { engine, batch, ops, cpu_seconds, cpu_total_seconds, .. } = self;
        let us = |seconds: f64| seconds * 1e6 / *ops as f64;
        println!(
            "{engine}, {ops} creates, {batch} in a transaction: {:.0} a second, {:.2} µs of \
             processor time each, {:.2} until all was durable; {} bytes each",
            self.ops_per_second,
            us(*cpu_seconds),
            us(*cpu_total_seconds),
            self.bytes / ops
        );
    }
}

/// Makes a store, creates the files, closes and checks it.
pub(crate) fn run(args: &Args) -> Result<Line> {
    let kind = ENGINES.iter().find(|kind| kind.name == args.engine);
    let kind = kind.ok_or_else(|| PeerError::new(format!("there is no engine {}", args.engine)))?;
    let name = format!("shoal-peers-{}-{}", kind.name, std::process::id());
    let scratch = Scratch::new(&args.folder, &name)?;
    let measured = measure(kind, &scratch, args.files as u64, args.batch as u64);
    measured.map_err(|e| e.about(format_args!("{} in {}", kind.name, scratch.path().display())))
}

fn measure(kind: &Kind, scratch: &Scratch, files: u64, batch: u64) -> Result<Line> {
    let mut engine = (kind.open)(scratch.path())?;
    let since_ns = now_ns();
    engine.make_dirs(files.div_ceil(FILES_PER_DIR), since_ns)?;
    let (start, cpu_start) = (Instant::now(), cpu_seconds());
    let latency = create_all(engine.as_mut(), files, batch)?;
    let (seconds, cpu) = (start.elapsed().as_secs_f64(), cpu_seconds() - cpu_start);
    let settle = Instant::now();
    engine.close()?;
    let settle_seconds = settle.elapsed().as_secs_f64();
    let cpu_total_seconds = cpu_seconds() - cpu_start;
    let bytes = folder_bytes(scratch.path())?;
    let engine = (kind.open)(scratch.path())?;
    verify(engine.as_ref(), files, files.div_ceil(LOOKED_UP), since_ns)?;
    engine.close()?;
    Ok(Line {
        workload: "create",
        engine: kind.name,
        batch,
        threads: 1,
        ops: files,
        seconds,
        cpu_seconds: cpu,
        ops_per_second: files as f64 / seconds,
        latency_ns: Latency {
            p50: latency.value_at_quantile(0.5),
            p99: latency.value_at_quantile(0.99),
            max: latency.max(),
            samples: latency.len(),
        },
        settle_seconds,
        cpu_total_seconds,
        bytes,
    })
}

/// Creates the files 0 to `files`, exclusive, `batch` in a transaction, fewer where a directory
/// ends. Returns the latencies of transactions.
pub(crate) fn create_all(
    engine: &mut dyn Engine,
    files: u64,
    batch: u64,
) -> Result<Histogram<u64>> {
    let mut latency = Histogram::new_with_bounds(1, 3_600_000_000_000, 3)?;
    let timed_every = if batch == 1 { TIMED_EVERY } else { 1 };
    let mut group = Vec::with_capacity(batch as usize);
    let (mut index, mut transactions) = (0, 0);
    while index < files {
        let dir = index / FILES_PER_DIR;
        let end = (index + batch).min((dir + 1) * FILES_PER_DIR).min(files);
        group.clear();
        group.extend((index..end).map(NewFile::of));
        let start = transactions % timed_every == 0;
        let start = start.then(Instant::now);
        engine.create(&Batch { dir, files: &group, now_ns: now_ns() })?;
        if let Some(start) = start {
            latency.saturating_record(start.elapsed().as_nanos().max(1) as u64);
        }
        transactions += 1;
        index = end;
    }
    Ok(latency)
}
