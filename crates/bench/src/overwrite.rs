//! Write amplification of random overwrites: bytes that reach the device for each byte that a
//! program writes, checkpoints and the cleaner included.
//!
//! The volume is filled with files of `--file-bytes` until `--fill` percent of what it offers to
//! programs is used, as `df` counts. Then aligned blocks of `--block-bytes` are overwritten at
//! random, each file and each block with the same probability: the worst case for a cleaner, which
//! finds no segment that is emptier than the others for a reason. As many bytes as there are in all
//! files are overwritten first without being counted, so that the segments are as they stay.
//!
//! The device counts its own bytes: padding and headers are in the figure.

use crate::args::Args;
use crate::error::{BenchError, Result};
use crate::library::open_options;
use crate::meter::{Measured, Meter};
use crate::report::{Report, Results};
use crate::resources;
use shoal::raw::{Caller, Code, Device, FileDevice, Ino, MkfsOptions, OpenMode, Volume};
use std::io::IoSlice;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// A device that counts the bytes written to it.
struct Counted {
    device: FileDevice,
    written: AtomicU64,
}

impl Device for Counted {
    fn capacity(&self) -> u64 {
        self.device.capacity()
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> shoal::raw::Result<()> {
        self.device.read_at(buf, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> shoal::raw::Result<()> {
        self.written.fetch_add(buf.len() as u64, Ordering::Relaxed);
        self.device.write_at(buf, offset)
    }
    fn write_vectored_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> shoal::raw::Result<()> {
        let len: usize = bufs.iter().map(|b| b.len()).sum();
        self.written.fetch_add(len as u64, Ordering::Relaxed);
        self.device.write_vectored_at(bufs, offset)
    }
    fn flush(&self) -> shoal::raw::Result<()> {
        self.device.flush()
    }
    fn discard(&self, offset: u64, len: u64) -> shoal::raw::Result<()> {
        self.device.discard(offset, len)
    }
    fn read_only(&self) -> bool {
        self.device.read_only()
    }
    fn describe(&self) -> String {
        self.device.describe()
    }
}

/// The files, and what is overwritten in them.
struct Churn<'a> {
    args: &'a Args,
    path: &'a Path,
    volume: Volume,
    device: Arc<Counted>,
    files: Vec<Ino>,
    state: u64,
    refused: u64,
}

/// Runs the workload.
pub(crate) fn run(args: &Args, path: &Path, report: &mut Report<'_>) -> Result<()> {
    if args.file_bytes < args.block_bytes || !(1..100).contains(&args.fill) {
        let message =
            "overwrite needs --file-bytes of --block-bytes or more, and --fill from 1 to 99";
        return Err(BenchError::new(message));
    }
    let existed = path.exists();
    let mkfs = MkfsOptions { size: args.volume_size(), force: args.force, ..Default::default() };
    shoal::raw::mkfs(path, &mkfs).map_err(|e| BenchError::failed("mkfs of", path.display(), e))?;
    let done = measure(args, path, report);
    if !args.keep && !existed {
        // Ours; that it cannot be removed is no result.
        let _ = std::fs::remove_file(path);
    }
    done
}

fn measure(args: &Args, path: &Path, report: &mut Report<'_>) -> Result<()> {
    let failed = |e: shoal::raw::Error| BenchError::failed("opening", path.display(), e);
    let device = FileDevice::open(path, OpenMode::ReadWrite).map_err(failed)?;
    let device = Arc::new(Counted { device, written: AtomicU64::new(0) });
    let volume = Volume::open_on(device.clone(), &open_options(args)).map_err(failed)?;
    let mut churn = Churn { args, path, volume, device, files: Vec::new(), state: 1, refused: 0 };
    churn.fill()?;
    let blocks = churn.files.len() as u64 * (args.file_bytes / args.block_bytes);
    churn.overwrite(blocks, &mut Meter::new(args.sample))?;
    churn.settle()?;
    churn.refused = 0;
    let before = churn.counts();
    let (cpu, start) = (resources::cpu_seconds(), Instant::now());
    let mut meter = Meter::new(args.sample);
    churn.overwrite(blocks, &mut meter)?;
    churn.settle()?;
    let cpu = resources::cpu_seconds() - cpu;
    let measured = Measured::of_phase(&[meter], start, Instant::now(), cpu);
    let written = (measured.ops - churn.refused) * args.block_bytes;
    let of = |n: usize| (churn.counts()[n] - before[n]) as f64 / written.max(1) as f64;
    let fs = churn.volume.statfs();
    let used = fs.bytes_total - fs.bytes_free;
    let mut results = Results::new(measured);
    results.extra = vec![
        ("amplification", of(0)),
        ("of_checkpoints", of(1)),
        ("of_journal", of(2)),
        ("of_data", of(3)),
        ("of_moves", of(4)),
        ("checkpoints", of(5) * written as f64),
        ("refused", churn.refused as f64),
        ("full", used as f64 / (used + fs.bytes_available) as f64),
        ("files_to_volume", (blocks * args.block_bytes) as f64 / fs.bytes_total as f64),
    ];
    report.whole(&results)?;
    churn.volume.close().map_err(|e| BenchError::failed("closing", path.display(), e))
}

impl Churn<'_> {
    fn failed(&self, e: shoal::raw::Error) -> BenchError {
        BenchError::failed("overwriting on", self.path.display(), e)
    }

    fn settle(&self) -> Result<()> {
        let settled = self.volume.sync().and_then(|()| self.volume.maintenance().checkpoint());
        settled.map_err(|e| self.failed(e))
    }

    /// Device bytes, checkpoint bytes, journal bytes, data bytes, moved bytes, checkpoints.
    fn counts(&self) -> [u64; 6] {
        let info = self.volume.info();
        let of = |name| info.counters.iter().find(|(n, _)| *n == name).map_or(0, |(_, v)| *v);
        [
            self.device.written.load(Ordering::Relaxed),
            of("checkpoint_bytes"),
            of("journal_bytes"),
            of("data_bytes_written"),
            of("bytes_moved"),
            of("checkpoints"),
        ]
    }

    /// Makes files until so much of the volume is used.
    fn fill(&mut self) -> Result<()> {
        let data = vec![7; self.args.file_bytes as usize];
        let who = Caller::root();
        let mut dir = Ino::ROOT;
        loop {
            let n = self.files.len() as u64;
            if n.is_multiple_of(64) {
                self.settle()?;
            }
            let fs = self.volume.statfs();
            let used = fs.bytes_total - fs.bytes_free;
            if used * 100 >= (used + fs.bytes_available) * u64::from(self.args.fill) {
                return Ok(());
            }
            if n.is_multiple_of(self.args.per_dir) {
                let name = format!("d{}", n / self.args.per_dir);
                let made = self.volume.namespace().mkdir(&who, Ino::ROOT, name.as_bytes(), 0o755);
                dir = made.map_err(|e| self.failed(e))?.ino;
            }
            let made = self.volume.namespace().create(&who, dir, format!("f{n}").as_bytes(), 0o644);
            let file = made.map_err(|e| self.failed(e))?.ino;
            self.volume.files().write(file, 0, &data, false).map_err(|e| self.failed(e))?;
            self.files.push(file);
        }
    }

    fn random(&mut self, below: u64) -> u64 {
        // xorshift64*: good enough to choose a block.
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        self.state.wrapping_mul(0x2545_f491_4f6c_dd1d) % below
    }

    fn overwrite(&mut self, count: u64, meter: &mut Meter) -> Result<()> {
        let data = vec![9; self.args.block_bytes as usize];
        for _ in 0..count {
            let file = self.random(self.files.len() as u64) as usize;
            let block = self.random(self.args.file_bytes / self.args.block_bytes);
            let (ino, at) = (self.files[file], block * self.args.block_bytes);
            let result = meter.op(|| Ok(self.volume.files().write(ino, at, &data, false)))?;
            match result {
                Ok(_) => {}
                Err(e) if e.is(Code::NoSpace) => self.refused += 1,
                Err(e) => return Err(self.failed(e)),
            }
        }
        Ok(())
    }
}
