//! Roots made, filled, deleted, freed and made again: crashes after every device operation, files
//! that are still held, threads at work in a root while it is deleted, a full volume.

use shoal::raw::{Caller, Code, Error, Ino, OpenOptions, Volume, mkfs_on};
use shoal_device::Device;
use shoal_sim::checks;
use shoal_sim::deadline::{from_environment, within};
use shoal_sim::device::FaultyDevice;
use shoal_sim::op::make::{at, create, mkdir, path, root_create, root_delete, unlink, write};
use shoal_sim::op::{Op, Target, Who};
use shoal_sim::rng::Rng;
use shoal_sim::runner::{Settings, Sim, run_from};
use shoal_sim::walk::walk;
use shoal_sim::workload::Workload;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const ROOT: Who = Who::Root;

/// Everything that a root can hold; slots 0 and 1 hold files without names in it.
fn fill(root: &str) -> Vec<Op> {
    let d = format!("{root}/d");
    let inner = format!("{d}/inner");
    let large = format!("{d}/large");
    let symlink = |name: &str, len: usize| Op::Symlink {
        who: ROOT,
        at: at(root, name),
        target: vec![b't'; len],
    };
    let link = |name: &str| Op::Link { who: ROOT, from: path(&large), at: at(root, name) };
    vec![
        mkdir(root, "d"),
        mkdir(&d, "inner"),
        create(root, "empty"),
        create(root, "inline"),
        write(path(&format!("{root}/inline")), 0, 100),
        create(&d, "large"),
        write(path(&large), 0, 300_000),
        write(path(&large), 1 << 22, 5_000),
        Op::Fsync { file: path(&large), datasync: false },
        link("hard"),
        symlink("short", 20),
        symlink("long", 3_000),
        create(&inner, "open"),
        write(path(&format!("{inner}/open")), 0, 150_000),
        Op::Open { file: path(&format!("{inner}/open")), slot: 0 },
        unlink(&inner, "open"),
        Op::Tmpfile { who: ROOT, dir: path(root), mode: 0o600, slot: 1 },
        write(Target::Slot(1), 0, 10_000),
    ]
}

fn settings() -> Settings {
    Settings { explain: true, ..Settings::small(32 << 20) }
}

fn do_all(sim: &mut Sim, ops: &[Op]) {
    for op in ops {
        sim.step(op).unwrap_or_else(|e| panic!("{op}: {e}"));
    }
}

/// Number of the root with this name.
fn number(sim: &Sim, name: &str) -> u16 {
    sim.run.model.find(name.as_bytes()).expect("there is such a root").root().0
}

#[test]
fn a_root_lives_and_dies_whole_through_any_crash() {
    within(600, "life", || {
        let mut sim = Sim::new(&settings()).expect("a fresh volume");
        do_all(&mut sim, &[root_create("other"), root_create("r"), create("other", "f")]);
        do_all(&mut sim, &fill("r"));
        do_all(&mut sim, &[Op::Checkpoint]);
        do_all(&mut sim, &[mkdir("r", "late"), write(path("r/d/large"), 200_000, 90_000)]);
        do_all(&mut sim, &[root_delete("r"), write(path("other/f"), 0, 3_000), Op::Sync]);
        let before = number(&sim, "other");
        // Both still held: reading them says ESTALE, and the number is not given out.
        do_all(&mut sim, &[Op::Read { file: Target::Slot(0), offset: 0, len: 10 }]);
        do_all(&mut sim, &[Op::Reap { slices: 1 }, Op::Checkpoint, Op::Reap { slices: 0 }]);
        do_all(&mut sim, &[Op::Sync, Op::Checkpoint, root_create("third")]);
        assert_eq!(number(&sim, "third"), before + 2, "files of root 2 are still held");
        do_all(&mut sim, &[Op::Close { slot: 0 }, Op::Close { slot: 1 }, root_create("again")]);
        assert_eq!(number(&sim, "again"), before + 1, "the number is given out again");
        do_all(&mut sim, &fill("again"));
        do_all(&mut sim, &[Op::Stale { which: 3 }, Op::Sync, root_delete("other"), Op::Sync]);
        do_all(&mut sim, &[Op::Reap { slices: 0 }, Op::Checkpoint]);
        let images = sim.crash_everywhere(3, 11).unwrap_or_else(|e| panic!("{e}"));
        assert!(images > 100, "{images}");
        sim.finish().unwrap_or_else(|e| panic!("{e}"));
    });
}

/// More than a slice, with checkpoints between and in the middle of slices.
#[test]
fn reaping_goes_on_wherever_it_was_cut_off() {
    within(600, "large", || {
        let mut settings = settings();
        settings.open.checkpoint_bytes = 16 << 10;
        let mut sim = Sim::new(&settings).expect("a fresh volume");
        do_all(&mut sim, &[root_create("r"), root_create("other"), mkdir("r", "d")]);
        for i in 0..1_500 {
            let name = format!("f{i}");
            do_all(&mut sim, &[create(if i % 3 == 0 { "r" } else { "r/d" }, &name)]);
            if i % 50 == 0 {
                do_all(&mut sim, &[write(path(&format!("r/{name}")), 0, 2_000 + i)]);
            }
        }
        // Everything before is one state to the crashes below.
        sim.step(&Op::Reopen { release: true }).expect("reopen");
        sim.step(&Op::Crash { seed: 5 }).unwrap_or_else(|e| panic!("{e}"));
        do_all(&mut sim, &[root_delete("r"), Op::Sync, Op::Reap { slices: 1 }, Op::Sync]);
        do_all(&mut sim, &[create("other", "f"), Op::Reap { slices: 1 }, Op::Checkpoint]);
        do_all(&mut sim, &[root_create("new"), create("new", "f"), Op::Sync]);
        let images = sim.crash_everywhere(4, 13).unwrap_or_else(|e| panic!("{e}"));
        assert!(images > 60, "{images}");
    });
}

#[test]
fn random_runs_about_roots() {
    for seed in 0..from_environment("SHOAL_SIM_SEEDS", 24) {
        within(300, &format!("seed {seed}"), move || {
            let workload = Workload::with_profile(seed, "roots");
            let settings = Settings { explain: true, ..Settings::of_seed(seed) };
            if let Err(failure) = run_from(&settings, workload, 400) {
                panic!("seed {seed}: {failure}");
            }
        });
    }
}

fn long_root(n: usize) -> String {
    format!("{n:0>255}")
}

/// Pages of the root table are begun, changed, emptied and given up: a crash at any point of it.
#[test]
fn many_roots_with_long_names_through_any_crash() {
    within(900, "many", || {
        let settings = Settings { explain: true, ..Settings::small(64 << 20) };
        let mut sim = Sim::new(&settings).expect("a fresh volume");
        let make = |range: std::ops::Range<usize>| {
            range.map(|n| root_create(&long_root(n))).collect::<Vec<Op>>()
        };
        do_all(&mut sim, &make(0..200));
        // Everything before is one state to the crashes below.
        do_all(&mut sim, &[Op::Sync, Op::Checkpoint, Op::Reopen { release: true }]);
        sim.step(&Op::Crash { seed: 5 }).unwrap_or_else(|e| panic!("{e}"));
        do_all(&mut sim, &[create(&long_root(3), "f"), create(&long_root(150), "f")]);
        do_all(&mut sim, &[Op::Sync, Op::Checkpoint]);
        // A third page and a fourth, then none of them.
        do_all(&mut sim, &make(200..220));
        do_all(&mut sim, &[Op::Sync, root_delete(&long_root(70)), Op::Checkpoint]);
        let gone: Vec<Op> = (120..220).map(|n| root_delete(&long_root(n))).collect();
        do_all(&mut sim, &gone);
        do_all(&mut sim, &[Op::Sync, Op::Reap { slices: 0 }, Op::Checkpoint, Op::Checkpoint]);
        do_all(&mut sim, &[root_create("again"), create("again", "f"), Op::Sync]);
        let images = sim.crash_everywhere(6, 17).unwrap_or_else(|e| panic!("{e}"));
        assert!(images > 120, "{images}");
        sim.finish().unwrap_or_else(|e| panic!("{e}"));
    });
}

#[test]
fn random_runs_with_hundreds_of_roots() {
    for seed in 0..from_environment("SHOAL_SIM_SEEDS", 24).min(64) / 6 {
        within(900, &format!("seed {seed}"), move || {
            let workload = Workload::with_profile(seed, "many roots");
            let settings = Settings { explain: true, ..Settings::small(64 << 20) };
            let summary = run_from(&settings, workload, 700);
            if let Err(failure) = summary {
                panic!("seed {seed}: {failure}");
            }
        });
    }
}

/// A full volume needs first of all to be rid of something.
#[test]
fn a_root_can_be_deleted_and_freed_when_the_volume_is_full() {
    within(300, "full", || {
        let settings = settings();
        let device: Arc<dyn Device> = Arc::new(FaultyDevice::new(settings.capacity));
        mkfs_on(Arc::clone(&device), &settings.mkfs).expect("mkfs");
        let volume = Volume::open_on(device, &settings.open).expect("open");
        let who = Caller::root();
        let r = volume.subvolumes().create(&who, b"r", 0o755).expect("a root");
        let keep = volume.namespace().create(&who, Ino::ROOT, b"keep", 0o644).expect("a file");
        let error = (0_u64..)
            .find_map(|i| {
                let file =
                    volume.namespace().create(&who, r.ino, format!("f{i}").as_bytes(), 0o644);
                file.and_then(|file| volume.files().write(file.ino, 0, &[1; 50_000], false)).err()
            })
            .expect("it gets full");
        assert_eq!(error.code(), Code::NoSpace);
        let refused = volume.subvolumes().create(&who, b"s", 0o755);
        assert_eq!(refused.unwrap_err().code(), Code::NoSpace);
        volume.subvolumes().delete(&who, b"r").expect("deleting needs no room");
        volume
            .files()
            .write(keep.ino, 0, &vec![2; 4 << 20], false)
            .expect("its space is used again");
        volume.maintenance().reap_roots(&mut |_| {}).expect("reap");
        volume.maintenance().checkpoint().expect("checkpoint");
        volume.subvolumes().create(&who, b"s", 0o755).expect("there is room again");
        let found = walk(&volume, Ino::ROOT, false).expect("walk");
        checks::all(&volume, &found).unwrap_or_else(|e| panic!("{e}"));
    });
}

// ---- threads

/// Makes, fills, renames and removes in `top` until told to stop, or until the root is gone.
fn churn(volume: &Volume, top: Ino, seed: u64, stop: &AtomicBool) -> Result<u64, Error> {
    let (who, mut rng) = (Caller::root(), Rng::new(seed));
    for done in 0.. {
        if stop.load(Ordering::Relaxed) {
            return Ok(done);
        }
        let name = format!("{seed}-{}", rng.below(500));
        let other = format!("{seed}-{}", rng.below(500));
        let result = match rng.below(8) {
            0..=2 => {
                volume.namespace().create(&who, top, name.as_bytes(), 0o644).and_then(|file| {
                    let len = *rng.pick(&[0, 10, 3_000, 100_000]);
                    volume.files().write(file.ino, 0, &vec![seed as u8; len], false).map(|_| ())
                })
            }
            3 => volume.namespace().mkdir(&who, top, name.as_bytes(), 0o755).map(|_| ()),
            4 => {
                let flags = shoal::raw::RenameFlags::default();
                volume.namespace().rename(&who, top, name.as_bytes(), top, other.as_bytes(), flags)
            }
            5 => volume
                .namespace()
                .tmpfile(&who, top, 0o600)
                .map(|file| volume.references().release(file.ino, 1)),
            6 => volume.namespace().rmdir(&who, top, name.as_bytes()),
            _ => volume.namespace().unlink(&who, top, name.as_bytes()),
        };
        match result {
            Ok(()) => {}
            Err(error) => match error.code() {
                // Names come and go.
                Code::NotFound | Code::Exists | Code::IsDirectory => {}
                Code::NotDirectory | Code::NotEmpty => {}
                _ => return Err(error),
            },
        }
    }
    unreachable!("it returns")
}

#[test]
fn a_root_may_be_deleted_while_threads_work_in_it() {
    let rounds = from_environment("SHOAL_SIM_SEEDS", 24);
    within(600, "threads", move || {
        let mut settings = Settings::small(512 << 20);
        settings.open = OpenOptions {
            background: true,
            commit_interval_ms: 20,
            checkpoint_bytes: 1 << 20,
            ..settings.open
        };
        let device: Arc<dyn Device> = Arc::new(FaultyDevice::new(settings.capacity).forgetful());
        mkfs_on(Arc::clone(&device), &settings.mkfs).expect("mkfs");
        let volume = Volume::open_on(device, &settings.open).expect("open");
        let who = Caller::root();
        let keep = volume.subvolumes().create(&who, b"keep", 0o755).expect("a root").ino;
        let stop = AtomicBool::new(false);
        let worked = std::thread::scope(|scope| {
            let (volume, stop) = (&volume, &stop);
            let steady = scope.spawn(move || churn(volume, keep, 1, stop));
            for round in 0..rounds {
                let name = format!("r{round}");
                let top =
                    volume.subvolumes().create(&who, name.as_bytes(), 0o755).expect("a root").ino;
                let threads =
                    [2, 3].map(|seed| scope.spawn(move || churn(volume, top, seed, stop)));
                std::thread::sleep(Duration::from_millis(Rng::new(round).range(1, 30)));
                volume.subvolumes().delete(&who, name.as_bytes()).expect("delete");
                for thread in threads {
                    let ended = thread.join().expect("no panic");
                    assert_eq!(ended.expect_err("the root is gone").code(), Code::Stale);
                }
            }
            stop.store(true, Ordering::Relaxed);
            steady.join().expect("no panic").expect("another root is not affected")
        });
        assert!(worked > 0);
        volume.maintenance().reap_roots(&mut |_| {}).expect("reap");
        assert_eq!(volume.subvolumes().list().len(), 1);
        volume.maintenance().checkpoint().expect("checkpoint");
        let found = walk(&volume, Ino::ROOT, false).expect("walk");
        checks::all(&volume, &found).unwrap_or_else(|e| panic!("{e}"));
    });
}
