//! How long creates take beside another thread's slow write, and beside the removal of a cold
//! directory: what `waits.rs` shows to be independent, in milliseconds. Numbers for
//! docs/performance.md, not a gate:
//!
//! ```sh
//! cargo test --workspace --test waits_speed -- --ignored --nocapture
//! ```

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use shoal_engine::*;
use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Writes of at least so many bytes are slow.
const LARGE: usize = 100_000;

/// A device in memory with operations that take their time.
struct Slow {
    inner: MemDevice,
    /// Milliseconds for a write of [`LARGE`] bytes or more; 0: none.
    write_ms: AtomicU64,
    /// Milliseconds for a read; 0: none.
    read_ms: AtomicU64,
}

impl Device for Slow {
    fn capacity(&self) -> u64 {
        self.inner.capacity()
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        sleep(Duration::from_millis(self.read_ms.load(Ordering::Relaxed)));
        self.inner.read_at(buf, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.inner.write_at(buf, offset)
    }
    fn write_vectored_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> Result<()> {
        if bufs.iter().map(|buf| buf.len()).sum::<usize>() >= LARGE {
            sleep(Duration::from_millis(self.write_ms.load(Ordering::Relaxed)));
        }
        self.inner.write_vectored_at(bufs, offset)
    }
    fn flush(&self) -> Result<()> {
        self.inner.flush()
    }
    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.inner.discard(offset, len)
    }
    fn describe(&self) -> String {
        "slow device".into()
    }
}

fn open(device: &Arc<Slow>) -> Volume {
    Volume::open_on(device.clone(), &OpenOptions::default()).unwrap()
}

fn fresh() -> Arc<Slow> {
    let inner = MemDevice::new(256 << 20);
    let slow = Slow { inner, write_ms: AtomicU64::new(0), read_ms: AtomicU64::new(0) };
    let device = Arc::new(slow);
    mkfs_on(device.clone(), &MkfsOptions::default()).unwrap();
    device
}

fn create(volume: &Volume, dir: Ino, name: &str) -> Ino {
    volume.create(&Caller::root(), dir, name.as_bytes(), 0o644).unwrap().ino
}

/// Runs `call`, and meanwhile makes files in a warm directory; prints how long those took.
fn beside(what: &str, volume: &Volume, warm: Ino, call: impl FnOnce() + Send) {
    let ended = AtomicBool::new(false);
    let (mut times, mut took) = (Vec::new(), Duration::ZERO);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let begun = Instant::now();
            call();
            took = begun.elapsed();
            ended.store(true, Ordering::Release);
        });
        while !ended.load(Ordering::Acquire) {
            let begun = Instant::now();
            create(volume, warm, &format!("new-{}", times.len()));
            times.push(begun.elapsed());
            sleep(Duration::from_micros(100));
        }
    });
    times.sort_unstable();
    let (count, last) = (times.len(), times.last().unwrap());
    println!(
        "{what}: {took:.1?}; {count} creates, median {:.1?}, max {last:.1?}",
        times[count / 2]
    );
}

#[test]
#[ignore = "for its numbers"]
fn beside_a_slow_write() {
    let device = fresh();
    let volume = open(&device);
    let file = create(&volume, Ino::ROOT, "slow");
    let warm = volume.mkdir(&Caller::root(), Ino::ROOT, b"warm", 0o755).unwrap().ino;
    device.write_ms.store(400, Ordering::Relaxed);
    for _ in 0..5 {
        beside("a write at 400 ms", &volume, warm, || {
            volume.write(file, 0, &vec![9; 128 << 10], false).unwrap();
        });
        let names = volume.getattr(warm).unwrap().size;
        (0..names).for_each(|n| {
            volume.unlink(&Caller::root(), warm, format!("new-{n}").as_bytes()).unwrap();
        });
    }
}

#[test]
#[ignore = "for its numbers"]
fn beside_a_cold_removal() {
    for _ in 0..5 {
        let device = fresh();
        let volume = open(&device);
        let cold = volume.mkdir(&Caller::root(), Ino::ROOT, b"cold", 0o755).unwrap().ino;
        for n in 0..2048 {
            create(&volume, cold, &n.to_string());
        }
        let warm = volume.mkdir(&Caller::root(), Ino::ROOT, b"warm", 0o755).unwrap().ino;
        volume.close().unwrap();
        let volume = open(&device);
        create(&volume, warm, "first");
        device.read_ms.store(1, Ordering::Relaxed);
        beside("a cold removal at 1 ms a read", &volume, warm, || {
            volume.remove_tree(&Caller::root(), Ino::ROOT, b"cold", TreeCheck::Tree).unwrap();
            while volume.reap_some().unwrap() {}
        });
    }
}
