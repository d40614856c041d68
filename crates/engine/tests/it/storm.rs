//! Concurrent renames of files and directories by several threads. During these, every returned
//! path must be well-formed; at each pause, paths must be exactly those found by a walk from the
//! top.

use crate::common::rng::Lcg;
use shoal_engine::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const THREADS: u64 = 8;
const ROUNDS: u64 = 12;
const RENAMES: u64 = 400;
const TOPS: u64 = 5;

/// Returns every path of every inode, by a walk from the top.
fn walk(volume: &Volume) -> BTreeMap<Ino, Vec<Vec<u8>>> {
    let mut found: BTreeMap<Ino, Vec<Vec<u8>>> = BTreeMap::new();
    let mut todo = vec![(Ino::ROOT, Vec::new())];
    while let Some((dir, path)) = todo.pop() {
        volume
            .directories()
            .readdir(dir, 2, &mut |entry| {
                let path = [&path[..], b"/", entry.name].concat();
                if entry.kind == FileKind::Directory {
                    todo.push((entry.ino, path.clone()));
                }
                found.entry(entry.ino).or_default().push(path);
                true
            })
            .unwrap();
    }
    found.values_mut().for_each(|paths| paths.sort());
    found
}

/// Moves, links and unlinks at random below the tops; errors are expected.
fn storm(volume: &Volume, tops: &[Ino], seed: u64) {
    let (who, mut rng) = (Caller::root(), Lcg(seed));
    let name = |rng: &mut Lcg| format!("n{}", rng.below(12)).into_bytes();
    for _ in 0..RENAMES {
        let mut dir = || {
            let top = tops[rng.below(TOPS) as usize];
            match volume.namespace().lookup(&who, top, &name(&mut rng)) {
                Ok(entry) if entry.kind == FileKind::Directory && rng.below(2) == 0 => entry.ino,
                _ => top,
            }
        };
        let (from, to) = (dir(), dir());
        let (old, new) = (name(&mut rng), name(&mut rng));
        let flags = RenameFlags { exchange: rng.below(5) == 0, ..RenameFlags::default() };
        let done = match rng.below(8) {
            0 => volume.namespace().mkdir(&who, from, &old, 0o755).map(drop),
            1 => volume.namespace().create(&who, from, &old, 0o644).map(drop),
            2 => match volume.namespace().lookup(&who, from, &old) {
                Ok(file) => volume.namespace().link(&who, file.ino, to, &new).map(drop),
                Err(e) => Err(e),
            },
            3 => volume.namespace().unlink(&who, from, &old),
            _ => volume.namespace().rename(&who, from, &old, to, &new, flags),
        };
        if let Err(e) = done {
            assert!(matches!(e, Error::Code(_)), "seed {seed}: {e}");
        }
    }
}

#[test]
fn paths_are_what_a_walk_finds() {
    let device = Arc::new(MemDevice::new(256 << 20));
    mkfs_on(device.clone(), &MkfsOptions::default()).unwrap();
    let volume = Volume::open_on(device, &OpenOptions::default()).unwrap();
    let who = Caller::root();
    let top = |n| {
        volume.namespace().mkdir(&who, Ino::ROOT, format!("t{n}").as_bytes(), 0o755).unwrap().ino
    };
    let tops: Vec<Ino> = (0..TOPS).map(top).collect();
    let (asked, told) = (AtomicU64::new(0), AtomicU64::new(0));
    for round in 0..ROUNDS {
        let busy = AtomicBool::new(true);
        let known: Vec<Ino> = walk(&volume).into_keys().collect();
        std::thread::scope(|scope| {
            let storms: Vec<_> = (0..THREADS)
                .map(|thread| {
                    let (volume, tops) = (&volume, &tops);
                    scope.spawn(move || storm(volume, tops, round * 100 + thread))
                })
                .collect();
            scope.spawn(|| {
                let mut rng = Lcg(round);
                while busy.load(Ordering::Relaxed) {
                    let ino = known[rng.below(known.len() as u64) as usize];
                    asked.fetch_add(1, Ordering::Relaxed);
                    // It may be free by now.
                    let Ok(paths) = volume.paths().paths_of(ino) else { continue };
                    told.fetch_add(paths.len() as u64, Ordering::Relaxed);
                    for path in paths {
                        let text = String::from_utf8(path).unwrap();
                        let names: Vec<&str> = text.split('/').skip(1).collect();
                        assert!(names[0].starts_with('t'), "{text}");
                        assert!(names[1..].iter().all(|n| n.starts_with('n')), "{text}");
                    }
                }
            });
            storms.into_iter().for_each(|thread| thread.join().unwrap());
            busy.store(false, Ordering::Relaxed);
        });
        for (ino, walked) in walk(&volume) {
            let mut paths = volume.paths().paths_of(ino).unwrap();
            paths.sort();
            assert_eq!(paths, walked, "round {round}, inode {ino}");
        }
        let report = volume.check(&mut |_, _| {}).unwrap();
        let first: Vec<_> = report.problems.iter().take(3).collect();
        assert!(first.is_empty(), "round {round}: {first:?}");
    }
    let (asked, told) = (asked.into_inner(), told.into_inner());
    assert!(asked > 100 && told > 100, "asked {asked} times, told {told} paths");
}
