//! Several threads with the background threads on, in directories of their own: everything agrees
//! with the models at the end, and crash images taken while they run hold fitting prefixes.

use shoal::raw::{Caller, Ino, Lab, OpenOptions, Volume, mkfs_on};
use shoal_device::Device;
use shoal_sim::checks;
use shoal_sim::deadline::{from_environment, within};
use shoal_sim::device::FaultyDevice;
use shoal_sim::image::Image;
use shoal_sim::recovery::recover;
use shoal_sim::rng::Rng;
use shoal_sim::runner::Settings;
use shoal_sim::text::panic_text;
use shoal_sim::threads::{Track, Worker, judge};
use shoal_sim::walk::walk;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const THREADS: u64 = 4;

/// A crash image, and the ticks before and after it was taken.
struct Shot {
    image: Image,
    from: u64,
    to: u64,
}

fn settings(checkpoint_always: bool) -> Settings {
    let mut settings = Settings::small(256 << 20);
    settings.open = OpenOptions {
        background: true,
        lab: Lab { checkpoint_always, ..Lab::default() },
        commit_interval_ms: 20,
        checkpoint_bytes: 256 << 10,
        ..settings.open
    };
    settings
}

fn directories(volume: &Volume) -> Vec<Ino> {
    let make = |t| {
        let made =
            volume.namespace().mkdir(&Caller::root(), Ino::ROOT, format!("t{t}").as_bytes(), 0o777);
        made.expect("mkdir").ino
    };
    let dirs = (0..THREADS).map(make).collect();
    volume.maintenance().checkpoint().expect("checkpoint");
    dirs
}

/// Lets the threads work until all have done `ops`, shooting images meanwhile.
fn work(volume: &Volume, device: &FaultyDevice, seed: u64, ops: u64) -> (Vec<Track>, Vec<Shot>) {
    let clock = AtomicU64::new(1);
    let tick = || clock.fetch_add(1, Ordering::SeqCst);
    let busy = AtomicBool::new(true);
    let dirs = directories(volume);
    std::thread::scope(|scope| {
        let threads: Vec<_> = dirs
            .into_iter()
            .enumerate()
            .map(|(t, dir)| {
                scope.spawn(move || {
                    let mut worker = Worker::new(volume, dir, seed * 100 + t as u64)
                        .unwrap_or_else(|e| panic!("thread {t}: {e}"));
                    for i in 0..ops {
                        worker
                            .step(&tick)
                            .unwrap_or_else(|e| panic!("seed {seed}, thread {t}, step {i}: {e}"));
                    }
                    worker.track
                })
            })
            .collect();
        let camera = scope.spawn(|| {
            let mut rng = Rng::new(seed);
            let mut shots = Vec::new();
            while busy.load(Ordering::Relaxed) && shots.len() < 20 {
                std::thread::sleep(Duration::from_millis(rng.range(1, 15)));
                let from = tick();
                let (_, image) = device.crash_now(rng.next());
                shots.push(Shot { image, from, to: tick() });
            }
            shots
        });
        let tracks = threads
            .into_iter()
            .map(|t| t.join().unwrap_or_else(|panic| panic!("{}", panic_text(&*panic))))
            .collect();
        busy.store(false, Ordering::Relaxed);
        (tracks, camera.join().expect("camera"))
    })
}

fn round(seed: u64, checkpoint_always: bool) {
    let settings = settings(checkpoint_always);
    let device = Arc::new(FaultyDevice::new(settings.capacity).forgetful());
    mkfs_on(Arc::clone(&device) as Arc<dyn Device>, &settings.mkfs).expect("mkfs");
    let volume = Volume::open_on(Arc::clone(&device) as Arc<dyn Device>, &settings.open);
    let volume = volume.expect("open");
    let (tracks, shots) = work(&volume, &device, seed, 1_200);
    let compare = |volume: &Volume, when: &str| {
        let found = walk(volume, Ino::ROOT, true).unwrap_or_else(|e| panic!("{when}: {e}"));
        for (t, track) in tracks.iter().enumerate() {
            let digest = found.state.below(track.dir).digest();
            assert_eq!(Some(&digest), track.digests.last(), "{when}: thread {t}");
        }
        found
    };
    compare(&volume, "at the end");
    volume.close().expect("close");
    let volume = Volume::open_on(Arc::clone(&device) as Arc<dyn Device>, &settings.open);
    let volume = volume.expect("open");
    shoal_sim::call::wait_for_reaping(&volume).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    let found = compare(&volume, "after reopening");
    checks::all(&volume, &found).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    drop(volume);
    for (i, Shot { image, from, to }) in shots.into_iter().enumerate() {
        let options = OpenOptions { background: false, ..settings.open.clone() };
        let recovered = recover(image, &options);
        let recovered = recovered.unwrap_or_else(|e| panic!("seed {seed}, image {i}: {e}"));
        judge(&tracks, &recovered.walk.state, from, to)
            .unwrap_or_else(|e| panic!("seed {seed}, image {i}: {e}"));
    }
}

#[test]
fn threads_with_background_work() {
    for seed in 0..from_environment("SHOAL_SIM_SEEDS", 24).div_ceil(8) {
        within(300, &format!("seed {seed}"), move || round(seed, false));
    }
}

#[test]
fn threads_under_endless_checkpoints() {
    for seed in 50..50 + from_environment("SHOAL_SIM_SEEDS", 24).div_ceil(12) {
        within(300, &format!("seed {seed}"), move || round(seed, true));
    }
}
