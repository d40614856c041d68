//! A check of randomly damaged volumes must report the same problems, in the same order, on one
//! thread and on several.

use crate::common;

use crate::common::flip;
use shoal_engine::*;
use std::collections::BTreeSet;
use std::sync::Arc;

const FILES: u32 = 24_000;
const ROUNDS: u64 = 16;

/// Makes files of all kinds, in several directories and subvolumes, in more than one leaf of every
/// tree.
fn volume() -> Arc<MemDevice> {
    let device = Arc::new(MemDevice::new(192 << 20));
    mkfs_on(device.clone(), &MkfsOptions::default()).unwrap();
    let volume = Volume::open_on(device.clone(), &common::options()).unwrap();
    let who = Caller::root();
    let root = volume.subvolumes().create(&who, b"root", 0o755).unwrap().ino;
    let above = [Ino::ROOT, root];
    let dirs: Vec<Ino> = (0..40)
        .map(|n: usize| {
            volume
                .namespace()
                .mkdir(&who, above[n % 2], format!("dir {n}").as_bytes(), 0o755)
                .unwrap()
                .ino
        })
        .collect();
    let flags = XattrFlags::default();
    for n in 0..FILES {
        let dir = dirs[n as usize % dirs.len()];
        let file = volume
            .namespace()
            .create(&who, dir, format!("file {n}").as_bytes(), 0o644)
            .unwrap()
            .ino;
        match n % 400 {
            0 => drop(volume.files().write(file, 0, &[n as u8; 5000], false).unwrap()),
            // Scattered: extents in the tree.
            1 => (0..40).for_each(|i| {
                volume.files().write(file, i * 200_000, b"apart", false).unwrap();
            }),
            // Attributes in the tree, one of them in a data object.
            2 => {
                for i in 0..30 {
                    let name = format!("user.{i}");
                    volume
                        .attributes()
                        .setxattr(&who, file, name.as_bytes(), &[1; 100], flags)
                        .unwrap();
                }
                volume.attributes().setxattr(&who, file, b"user.long", &[2; 3000], flags).unwrap();
            }
            3 => volume
                .namespace()
                .link(&who, file, dir, format!("link {n}").as_bytes())
                .map(drop)
                .unwrap(),
            _ => {}
        }
    }
    volume.close().unwrap();
    device
}

/// Returns the addresses of all structures with this magic.
fn places(device: &MemDevice, magic: &[u8]) -> Vec<u64> {
    let (mut found, mut raw) = (Vec::new(), vec![0; 1 << 20]);
    for start in (0..device.capacity()).step_by(raw.len()) {
        device.read_at(&mut raw, start).unwrap();
        let begins = |at: &usize| raw[*at..].starts_with(magic);
        found.extend((0..raw.len()).step_by(8).filter(begins).map(|at| start + at as u64));
    }
    found
}

/// Checks on this many threads; `None` if the volume cannot be opened.
fn check(device: &Arc<MemDevice>, threads: usize) -> Option<CheckReport> {
    let options = OpenOptions { read_only: true, threads, ..common::options() };
    let volume = Volume::open_on(device.clone(), &options).ok()?;
    Some(volume.check(&mut |_, _| {}).unwrap())
}

fn counts(report: &CheckReport) -> [u64; 8] {
    let CheckReport { inodes, directories, dirents, extents, .. } = *report;
    let CheckReport { attributes, parents, data_bytes, blocks, .. } = *report;
    [inodes, directories, dirents, extents, attributes, parents, data_bytes, blocks]
}

#[test]
fn threads_do_not_change_what_is_found() {
    let device = volume();
    let whole = check(&device, 1).unwrap();
    assert_eq!(whole.problems, []);
    assert_eq!(counts(&check(&device, 4).unwrap()), counts(&whole));

    let kinds: [&[u8]; 4] = [b"SND2", b"SIB2", b"SIB2", b"SDX1"];
    let kinds = kinds.map(|magic| places(&device, magic));
    assert!(kinds.iter().all(|places| places.len() > 20));
    let mut seed = 0x5eed_u64;
    let mut random = |below: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed as usize % below
    };
    let (mut most, mut rules) = (0, BTreeSet::new());
    for round in 0..ROUNDS {
        let damaged: BTreeSet<u64> = (0..1 + round * 3)
            .map(|_| {
                let places = &kinds[random(kinds.len())];
                places[random(places.len())] + random(200) as u64
            })
            .collect();
        damaged.iter().for_each(|at| flip(&device, *at));
        if let Some(one) = check(&device, 1) {
            let four = check(&device, 4).unwrap();
            assert_eq!(four.problems, one.problems, "round {round}");
            assert_eq!(counts(&four), counts(&one), "round {round}");
            most = most.max(one.problems.len());
            rules.extend(one.problems.iter().map(|problem| problem.rule));
        }
        damaged.iter().for_each(|at| flip(&device, *at));
    }
    assert!(most > 100 && rules.len() > 8, "{most} problems at most, of {rules:?}");
    assert_eq!(check(&device, 4).unwrap().problems, []);
}
