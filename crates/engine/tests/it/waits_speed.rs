//! Time of creates during another thread's slow write, and during the removal of a cold directory,
//! in milliseconds: `waits.rs` shows that they are independent. Numbers for docs/performance.md,
//! not a pass criterion:
//!
//! ```sh
//! cargo test --workspace --test waits_speed -- --ignored --nocapture
//! ```

use crate::common::slow::Slow;
use shoal_engine::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

fn open(device: &Arc<Slow>) -> Volume {
    Volume::open_on(device.clone(), &OpenOptions::default()).unwrap()
}

fn create(volume: &Volume, dir: Ino, name: &str) -> Ino {
    volume.namespace().create(&Caller::root(), dir, name.as_bytes(), 0o644).unwrap().ino
}

/// Runs `call`, and meanwhile creates files in a warm directory; prints their times.
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
    let device = Slow::with_volume(256 << 20);
    let volume = open(&device);
    let file = create(&volume, Ino::ROOT, "slow");
    let warm = volume.namespace().mkdir(&Caller::root(), Ino::ROOT, b"warm", 0o755).unwrap().ino;
    device.write_us.store(400_000, Ordering::Relaxed);
    for _ in 0..5 {
        beside("a write at 400 ms", &volume, warm, || {
            volume.files().write(file, 0, &vec![9; 128 << 10], false).unwrap();
        });
        let names = volume.attributes().getattr(warm).unwrap().size;
        (0..names).for_each(|n| {
            volume
                .namespace()
                .unlink(&Caller::root(), warm, format!("new-{n}").as_bytes())
                .unwrap();
        });
    }
}

#[test]
#[ignore = "for its numbers"]
fn beside_a_cold_removal() {
    for _ in 0..5 {
        let device = Slow::with_volume(256 << 20);
        let volume = open(&device);
        let cold =
            volume.namespace().mkdir(&Caller::root(), Ino::ROOT, b"cold", 0o755).unwrap().ino;
        for n in 0..2048 {
            create(&volume, cold, &n.to_string());
        }
        let warm =
            volume.namespace().mkdir(&Caller::root(), Ino::ROOT, b"warm", 0o755).unwrap().ino;
        volume.close().unwrap();
        let volume = open(&device);
        create(&volume, warm, "first");
        device.read_us.store(1000, Ordering::Relaxed);
        beside("a cold removal at 1 ms a read", &volume, warm, || {
            volume
                .namespace()
                .remove_tree(&Caller::root(), Ino::ROOT, b"cold", TreeCheck::Tree)
                .unwrap();
            while volume.maintenance().reap_some().unwrap() {}
        });
    }
}
