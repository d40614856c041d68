//! Time of a recovery: scattered changes on a device with 0.2 ms per read, and 1 GiB of journal
//! with a cache of 64 MiB. On a busy machine processor time is more meaningful than elapsed time.
//!
//! `cargo test --release -p shoal-engine --test it -- recovery_speed:: --ignored --nocapture`
//!
//! The second test opens the volume in a separate process, to measure the memory of recovery. The
//! volume needs about 5 GiB in the directory for temporary files, or in `SHOAL_SPEED_DIR`.

use crate::common::slow::Slow;
use shoal_engine::*;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

fn options(cache_bytes: u64) -> OpenOptions {
    OpenOptions { cache_bytes, checkpoint_bytes: 4 << 30, ..OpenOptions::default() }
}

fn chmod(volume: &Volume, ino: Ino, mode: u32) {
    let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
    volume.attributes().setattr(&Caller::root(), ino, &set).unwrap();
}

#[test]
#[ignore = "a measurement: run it in release"]
fn scattered_changes_at_0_2_ms_a_read() {
    const BLOCKS: usize = 5000;
    for synced in [false, true] {
        let slow = Slow::with_volume(1 << 30);
        let volume = Volume::open_on(slow.clone(), &options(512 << 20)).unwrap();
        let who = Caller::root();
        let dir = volume.namespace().mkdir(&who, Ino::ROOT, b"d", 0o755).unwrap().ino;
        let create =
            |i| volume.namespace().create(&who, dir, format!("{i}").as_bytes(), 0o644).unwrap().ino;
        let inodes: Vec<Ino> = (0..BLOCKS * 32).map(create).collect();
        volume.maintenance().checkpoint().unwrap();
        for i in 0..BLOCKS {
            chmod(&volume, inodes[i * 7919 % BLOCKS * 32 + 5], 0o600);
            if synced {
                volume.sync().unwrap();
            }
        }
        volume.sync().unwrap();
        drop(volume);
        for micros in [0, 200] {
            slow.read_us.store(micros, std::sync::atomic::Ordering::Relaxed);
            let (begun, processor_begun) = (Instant::now(), processor());
            let look = OpenOptions { read_only: true, ..options(512 << 20) };
            let volume = Volume::open_on(slow.clone(), &look).unwrap();
            let seconds = begun.elapsed().as_secs_f64();
            let records = volume.info().recovery.records;
            println!(
                "synced one by one {synced}, {micros} us a read: {records} in {seconds:.3} s, \
                 {:.2} s of processor",
                processor() - processor_begun
            );
            assert_eq!(records, BLOCKS as u64);
        }
    }
}

/// Processor time of this process in seconds.
fn processor() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    // User and system time, in hundredths of a second.
    fields[11..13].iter().map(|ticks| ticks.parse::<f64>().unwrap()).sum::<f64>() / 100.0
}

/// Peak memory of this process in bytes.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

const VOLUME: &str = "SHOAL_SPEED_VOLUME";
const CACHE: u64 = 64 << 20;

/// The separate process.
#[test]
#[ignore = "part of the next one"]
fn recover_helper() {
    let Some(path) = std::env::var_os(VOLUME) else { return };
    let before = peak();
    let begun = Instant::now();
    let volume = Volume::open(Path::new(&path), &options(CACHE)).unwrap();
    let (seconds, peak) = (begun.elapsed().as_secs_f64(), peak());
    let info = volume.info();
    let counter = |name| info.counters.iter().find(|(n, _)| *n == name).unwrap().1;
    println!(
        "{} records, {} MiB of journal in {seconds:.2} s, {:.2} s of processor; {} checkpoints, {} \
         blocks read; peak {} MiB, {} MiB before",
        info.recovery.records,
        info.recovery.bytes >> 20,
        processor(),
        counter("checkpoints"),
        counter("inode_block_reads"),
        peak >> 20,
        before >> 20,
    );
    assert!(info.recovery.bytes > 1 << 30);
    assert!(peak as f64 <= 1.15 * (CACHE + (64 << 20)) as f64, "{peak} bytes");
}

fn one_gib(name: &str, work: impl Fn(&Volume)) {
    let dir = std::env::var_os("SHOAL_SPEED_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
    let path = dir.join(format!("shoal-recovery-{name}-{}", std::process::id()));
    mkfs(&path, &MkfsOptions { size: 16 << 30, ..MkfsOptions::default() }).unwrap();
    let volume = Volume::open(&path, &options(8 << 30)).unwrap();
    work(&volume);
    volume.sync().unwrap();
    drop(volume);
    let mut helper = Command::new(std::env::current_exe().unwrap());
    helper
        .args(["--ignored", "--exact", "recovery_speed::recover_helper", "--nocapture"])
        .env(VOLUME, &path);
    let recovered = helper.output().unwrap();
    std::fs::remove_file(&path).unwrap();
    print!("{name}: {}", String::from_utf8_lossy(&recovered.stdout));
    assert!(recovered.status.success(), "{}", String::from_utf8_lossy(&recovered.stderr));
}

#[test]
#[ignore = "a measurement: run it in release"]
fn one_gib_of_creates() {
    one_gib("creates", |volume| {
        let who = Caller::root();
        for d in 0..100 {
            let dir = volume
                .namespace()
                .mkdir(&who, Ino::ROOT, format!("{d}").as_bytes(), 0o755)
                .unwrap()
                .ino;
            for i in 0..49_000 {
                volume
                    .namespace()
                    .create(&who, dir, format!("{i:0>40}").as_bytes(), 0o644)
                    .unwrap();
            }
        }
    });
}

#[test]
#[ignore = "a measurement: run it in release"]
fn one_gib_of_changes_here_and_there() {
    one_gib("changes here and there", |volume| {
        let who = Caller::root();
        let dir = volume.namespace().mkdir(&who, Ino::ROOT, b"d", 0o755).unwrap().ino;
        let create =
            |i| volume.namespace().create(&who, dir, format!("{i}").as_bytes(), 0o644).unwrap().ino;
        let inodes: Vec<Ino> = (0..1_000_000).map(create).collect();
        volume.maintenance().checkpoint().unwrap();
        // Runs of 500 neighbours, as programs work in one directory after another.
        for run in 0..18_000 {
            for i in 0..500 {
                chmod(volume, inodes[run * 791 % 2000 * 500 + i], 0o600 + (run as u32 & 7));
            }
        }
    });
}
