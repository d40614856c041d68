//! The cost of `Dir` and `File` over the raw calls, and the gain of a batch.
//!
//! ```text
//! cargo bench -p shoal --bench library
//! cargo bench -p shoal --bench library -- existing
//! SHOAL_BENCH_VOLUME=/mnt/disk/volume cargo bench -p shoal --bench library -- sync
//! ```
//!
//! In memory by default, where a flush costs nothing.

#![allow(clippy::unwrap_used, missing_docs, reason = "a measurement fails by panicking")]

use criterion::{Criterion, criterion_group, criterion_main};
use shoal::raw::{self, Ino};
use shoal::{Credentials, Dir, ServeOptions, Volume};
use std::time::{Duration, Instant};

/// Files that one round makes.
const FILES: usize = 1000;

struct Setup {
    volume: Volume,
    root: Dir,
    names: Vec<String>,
    round: usize,
}

impl Setup {
    fn new() -> Setup {
        let options = Volume::options().size(4 << 30).cache(1 << 30).create(true);
        let volume = match std::env::var_os("SHOAL_BENCH_VOLUME") {
            Some(path) => options.open(path).unwrap(),
            None => options.in_memory().unwrap(),
        };
        let root = volume.root(Credentials::root());
        let names = (0..FILES).map(|n| format!("message-{n:06}.eml")).collect();
        Setup { volume, root, names, round: 0 }
    }

    /// Times `work` in an empty directory, which is removed afterwards.
    fn round(&mut self, work: impl Fn(&Volume, &Dir, &[String])) -> Duration {
        self.round += 1;
        let name = format!("round-{}", self.round);
        let dir = self.root.create_dir(&name).unwrap();
        let start = Instant::now();
        work(&self.volume, &dir, &self.names);
        let took = start.elapsed();
        self.root.remove_dir_all(&name).unwrap();
        took
    }
}

fn ino(dir: &Dir) -> Ino {
    dir.metadata("").unwrap().ino()
}

fn raw_create(volume: &Volume, dir: &Dir, names: &[String]) {
    let (raw, who, dir) = (volume.raw().unwrap(), raw::Caller::root(), ino(dir));
    for name in names {
        let file = raw.namespace().create(&who, dir, name.as_bytes(), 0o644).unwrap();
        raw.references().hold(file.ino, 1).unwrap();
        raw.references().release(file.ino, 1);
    }
}

fn dir_create(_: &Volume, dir: &Dir, names: &[String]) {
    for name in names {
        dir.create_new(name).unwrap();
    }
}

fn batch_create(_: &Volume, dir: &Dir, names: &[String]) {
    dir.batch(|b| names.iter().try_for_each(|name| b.create_new(name, b"".as_slice()))).unwrap();
}

const MESSAGE: &[u8] = &[b'm'; 100];

fn dir_write(_: &Volume, dir: &Dir, names: &[String]) {
    for name in names {
        dir.create_new(name).unwrap().write_all_at(MESSAGE, 0).unwrap();
    }
}

fn batch_write(_: &Volume, dir: &Dir, names: &[String]) {
    dir.batch(|b| names.iter().try_for_each(|name| b.create_new(name, MESSAGE))).unwrap();
}

fn dir_durable(_: &Volume, dir: &Dir, names: &[String]) {
    for name in names {
        let file = dir.create_new(name).unwrap();
        file.write_all_at(MESSAGE, 0).unwrap();
        file.sync_all().unwrap();
    }
}

fn batch_durable(volume: &Volume, dir: &Dir, names: &[String]) {
    batch_write(volume, dir, names);
    dir.sync_all().unwrap();
}

fn library(c: &mut Criterion) {
    type Work = fn(&Volume, &Dir, &[String]);
    let works: [(&str, Work); 7] = [
        ("create, raw", raw_create),
        ("create, Dir", dir_create),
        ("create, batch", batch_create),
        ("write 100 bytes, Dir", dir_write),
        ("write 100 bytes, batch", batch_write),
        ("write 100 bytes and sync each, Dir", dir_durable),
        ("write 100 bytes and sync, batch", batch_durable),
    ];
    let mut setup = Setup::new();
    let mut group = c.benchmark_group("1000 files");
    group.sample_size(20);
    for (name, work) in works {
        group.bench_function(name, |b| {
            b.iter_custom(|rounds| (0..rounds).map(|_| setup.round(work)).sum());
        });
    }
    group.finish();
}

fn open_each(dir: &Dir, names: &[String]) {
    for name in names {
        dir.open(name).unwrap();
    }
}

fn read_each(dir: &Dir, names: &[String]) {
    for name in names {
        assert_eq!(dir.read(name).unwrap().len(), MESSAGE.len());
    }
}

fn look_at_each(dir: &Dir, names: &[String]) {
    for name in names {
        dir.metadata(name).unwrap();
    }
}

/// Calls that change nothing, on files that are there: on the volume itself, and by a session with
/// it. Its two ends are in one process, and on two processors.
fn existing(c: &mut Criterion) {
    type Work = fn(&Dir, &[String]);
    let works: [(&str, Work); 3] =
        [("open", open_each), ("read 100 bytes", read_each), ("metadata", look_at_each)];
    let setup = Setup::new();
    let dir = setup.root.create_dir_all("existing").unwrap();
    setup.names.iter().for_each(|name| dir.write(name, MESSAGE).unwrap());
    let socket = std::env::temp_dir().join(format!("shoal-bench-{}.sock", std::process::id()));
    let serving = setup.volume.serve(ServeOptions::new().socket(socket)).unwrap();
    let served = Volume::connect(serving.socket()).unwrap();
    let by_session = served.root(Credentials::root()).open_dir("existing").unwrap();
    let mut group = c.benchmark_group("1000 existing files");
    for (place, dir) in [("", &dir), (", by a session", &by_session)] {
        for (name, work) in works {
            group.bench_function(format!("{name}{place}"), |b| b.iter(|| work(dir, &setup.names)));
        }
    }
    group.finish();
}

criterion_group!(benches, library, existing);
criterion_main!(benches);
