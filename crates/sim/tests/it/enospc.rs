//! Full volumes: running out is an ordinary outcome, unlinking always works, and what is freed can
//! be used again, for ever.

use shoal::raw::{Caller, Code, Ino, Volume, mkfs_on};
use shoal_device::Device;
use shoal_sim::checks;
use shoal_sim::deadline::{from_environment, within};
use shoal_sim::device::FaultyDevice;
use shoal_sim::rng::Rng;
use shoal_sim::runner::{Report, Settings, run};
use shoal_sim::walk::walk;
use shoal_sim::workload::runs_full;
use std::sync::Arc;

const CAPACITY: u64 = 32 << 20;

struct Fixture {
    device: Arc<FaultyDevice>,
    volume: Volume,
    settings: Settings,
    who: Caller,
}

impl Fixture {
    fn new() -> Fixture {
        let settings = Settings::small(CAPACITY);
        let device = Arc::new(FaultyDevice::new(CAPACITY).forgetful());
        mkfs_on(Arc::clone(&device) as Arc<dyn Device>, &settings.mkfs).expect("mkfs");
        let volume = Volume::open_on(Arc::clone(&device) as Arc<dyn Device>, &settings.open);
        let volume = volume.expect("open");
        Fixture { device, volume, settings, who: Caller::root() }
    }

    /// Makes a file; without space, nothing remains of it.
    fn put(&self, name: &str, data: &[u8]) -> Result<(), Code> {
        let file = self.volume.namespace().create(&self.who, Ino::ROOT, name.as_bytes(), 0o644);
        let file = file.map_err(|e| e.code())?;
        match self.volume.files().write(file.ino, 0, data, false) {
            Ok(n) => {
                assert_eq!(n, data.len());
                Ok(())
            }
            Err(error) => {
                self.remove(name);
                Err(error.code())
            }
        }
    }

    fn remove(&self, name: &str) {
        let removed = self.volume.namespace().unlink(&self.who, Ino::ROOT, name.as_bytes());
        removed.unwrap_or_else(|e| panic!("unlink {name} on a full volume: {e}"));
    }

    /// Files until nothing more fits; returns their number.
    fn fill(&self, prefix: &str, size: usize) -> usize {
        for i in 0.. {
            match self.put(&format!("{prefix}{i}"), &vec![i as u8 | 1; size]) {
                Ok(()) => {}
                Err(Code::NoSpace) => return i,
                Err(code) => panic!("file {i}: {}", code.name()),
            }
        }
        unreachable!()
    }

    fn reopen(self) -> Fixture {
        self.volume.close().expect("close a full volume");
        let volume =
            Volume::open_on(Arc::clone(&self.device) as Arc<dyn Device>, &self.settings.open);
        Fixture { volume: volume.expect("open a full volume"), ..self }
    }

    fn check(&self) -> usize {
        let found = walk(&self.volume, Ino::ROOT, true).expect("walk");
        checks::all(&self.volume, &found).unwrap_or_else(|e| panic!("{e}"));
        found.state.nodes.len() - 1
    }
}

fn fill_empty_fill(size: usize, at_least: u64) {
    let mut full = Fixture::new();
    let first = full.fill("a", size);
    let used = (first * size) as u64;
    assert!(used >= at_least, "{first} files of {size} bytes: only {used} bytes of {CAPACITY}");
    full.volume.sync().expect("sync on a full volume");
    full = full.reopen();
    assert_eq!(full.check(), first);
    for i in 0..first {
        full.remove(&format!("a{i}"));
    }
    assert_eq!(full.check(), 0);
    let second = full.fill("b", size);
    assert!(second * 10 >= first * 9, "{first} files fitted at first, {second} after emptying");
    full.volume.maintenance().checkpoint().expect("checkpoint on a full volume");
    for i in 0..second {
        full.remove(&format!("b{i}"));
    }
    full = full.reopen();
    assert_eq!(full.check(), 0);
}

#[test]
fn full_of_large_files() {
    within(300, "large", || fill_empty_fill(1 << 20, CAPACITY / 2));
}

#[test]
fn full_of_middling_files() {
    within(300, "middling", || fill_empty_fill(20_000, CAPACITY / 2));
}

#[test]
fn full_of_tiny_files() {
    within(300, "tiny", || fill_empty_fill(100, 1 << 20));
}

#[test]
fn full_of_one_growing_file() {
    within(300, "growing", || {
        let full = Fixture::new();
        let file =
            full.volume.namespace().create(&full.who, Ino::ROOT, b"f", 0o644).expect("create").ino;
        let mut size = 0_u64;
        let error = loop {
            match full.volume.files().append(file, &vec![7; 300_000], false) {
                Ok(appended) => {
                    assert_eq!(appended, (size, 300_000));
                    size += 300_000;
                }
                Err(error) => break error,
            }
        };
        assert_eq!(error.code(), Code::NoSpace);
        assert_eq!(full.volume.attributes().getattr(file).expect("getattr").size, size);
        let smaller = shoal::raw::SetAttr { size: Some(10), ..shoal::raw::SetAttr::default() };
        full.volume
            .attributes()
            .setattr(&full.who, file, &smaller)
            .expect("truncating a full volume");
        full.volume
            .files()
            .write(file, 10, &vec![8; 300_000], false)
            .expect("there is space again");
        full.check();
    });
}

/// Four fifths full, files replaced at random: the cleaner must keep up without help.
#[test]
fn churn_at_four_fifths() {
    let rounds = from_environment("SHOAL_SIM_SEEDS", 24) * 400;
    within(600, "churn", move || {
        let mut churned = Fixture::new();
        let mut rng = Rng::new(21);
        let mut files = Vec::new();
        let mut live = 0_u64;
        for i in 0..rounds {
            let name = format!("f{i}");
            let fs = churned.volume.statfs();
            let limit = (fs.bytes_available + live) * 4 / 5;
            let len = rng.range(1, 40_000);
            while live + len > limit && !files.is_empty() {
                let victim = rng.below(files.len() as u64) as usize;
                let (name, len): (String, u64) = files.swap_remove(victim);
                churned.remove(&name);
                live -= len;
            }
            churned.put(&name, &vec![i as u8 | 1; len as usize]).unwrap_or_else(|code| {
                let fs = churned.volume.statfs();
                panic!("round {i}: {} with {live} live bytes, {fs:?}", code.name())
            });
            files.push((name, len));
            live += len;
            match rng.below(400) {
                0 => churned.volume.sync().expect("sync"),
                1 => churned.volume.maintenance().checkpoint().expect("checkpoint"),
                2 => churned = churned.reopen(),
                _ => {}
            }
        }
        assert_eq!(churned.check(), files.len());
    });
}

/// Runs of small volumes against the model, with crashes: they run out of space again and again.
#[test]
fn runs_that_fill_the_volume() {
    let count = from_environment("SHOAL_SIM_SEEDS", 24);
    let first = from_environment("SHOAL_SIM_FIRST", 7);
    let (mut total, mut failed) = (Report::default(), Vec::new());
    for seed in (first..).step_by(10).take(count as usize) {
        assert!(runs_full(seed), "seed {seed}");
        match within(300, &format!("seed {seed}"), move || run(seed, 500)) {
            Ok(report) => total += report,
            Err(failure) => failed.push(format!("seed {seed}: {}", failure.message)),
        }
    }
    println!("{count} runs: {total:?}");
    assert!(failed.is_empty(), "{} seeds failed:\n{}", failed.len(), failed.join("\n"));
    assert!(total.refused > count && total.crashes > count, "{total:?}");
}
