//! Repair: information that exists twice is restored from the remaining copy; everything else that
//! was damaged, and nothing more, is lost. A second repair has nothing to do.

use crate::common;

use crate::common::*;
use shoal_engine::*;
use shoal_format::Ptr;
use std::collections::BTreeMap;
use std::sync::Arc;

const ROOT: Ino = Ino::ROOT;

/// Makes directories, hard links, symbolic links, long names, files whose data and attributes are
/// in trees, and another subvolume.
fn sample(clean: bool) -> (Arc<MemDevice>, Shown) {
    let device = Arc::new(MemDevice::new(64 << 20));
    mkfs_on(device.clone(), &MkfsOptions::default()).unwrap();
    let (volume, who) = (open(&device), Caller::root());
    let mut files = Vec::new();
    for d in 0..12 {
        let above = if d % 3 == 2 { files.last().map(|(dir, _)| *dir).unwrap() } else { ROOT };
        let name = format!("dir-{d}");
        let dir = volume.namespace().mkdir(&who, above, name.as_bytes(), 0o750).unwrap().ino;
        for f in 0..120 {
            let name = format!("file-{f}-of-{d}-{}", "x".repeat(f % 90));
            let file = volume.namespace().create(&who, dir, name.as_bytes(), 0o640).unwrap().ino;
            volume.files().write(file, 0, format!("{d} {f} ").repeat(f).as_bytes(), false).unwrap();
            files.push((dir, file));
        }
        volume.namespace().symlink(&who, dir, b"link", format!("../dir-{d}").as_bytes()).unwrap();
    }
    for (n, (_, file)) in files.iter().enumerate().step_by(9) {
        let (dir, _) = files[(n * 7 + 130) % files.len()];
        for k in 0..1 + n % 4 * 8 {
            volume.namespace().link(&who, *file, dir, format!("hard-{n}-{k}").as_bytes()).unwrap();
        }
    }
    for (_, file) in files.iter().step_by(100) {
        for a in 0..40 {
            let (name, value) = (format!("user.a{a}"), [7; 90]);
            volume
                .attributes()
                .setxattr(&who, *file, name.as_bytes(), &value, XattrFlags::default())
                .unwrap();
        }
        for e in 0..40u64 {
            volume.files().write(*file, e * 9_000, &[e as u8 + 1; 3000], false).unwrap();
        }
    }
    volume.sync().unwrap();
    let shown = shown(&volume);
    if clean {
        volume.close().unwrap();
    } else {
        let orphan = volume.namespace().tmpfile(&who, ROOT, 0o600).unwrap().ino;
        volume.files().write(orphan, 0, &[1; 10_000], false).unwrap();
        volume.maintenance().checkpoint().unwrap();
        volume.namespace().create(&who, files[0].0, b"after the checkpoint", 0o600).unwrap();
        volume.sync().unwrap();
        drop(volume);
        let volume = Volume::open_on(copy(&device), &options()).unwrap();
        return (device, common::shown(&volume));
    }
    (device, shown)
}

fn assert_clean(device: &Arc<MemDevice>, what: &str) -> Shown {
    let again = repair(device);
    assert_eq!((again.found, again.written), (vec![], false), "{what}: a second repair");
    let volume = open(device);
    let report = volume.check(&mut |_, _| {}).unwrap();
    assert_eq!(report.problems, vec![], "{what}");
    let shown = shown(&volume);
    volume.close().unwrap();
    shown
}

#[test]
fn what_is_whole_is_left_alone() {
    let (device, before) = sample(true);
    let image = copy(&device);
    let report = repair(&device);
    assert_eq!((report.found, report.actions, report.written), (vec![], vec![], false));
    let mut bytes = [vec![0; 1 << 20], vec![0; 1 << 20]];
    for at in (0..device.capacity()).step_by(1 << 20) {
        device.read_at(&mut bytes[0], at).unwrap();
        image.read_at(&mut bytes[1], at).unwrap();
        assert!(bytes[0] == bytes[1], "written to at {at}");
    }
    assert_eq!(assert_clean(&device, "whole"), before);
}

#[test]
fn a_volume_that_was_not_closed_is_finished() {
    let (device, before) = sample(false);
    let report = repair(&device);
    assert_eq!((report.found, report.left, report.written), (vec![], vec![], true));
    assert_eq!(assert_clean(&device, "recovered"), before);
}

#[test]
fn every_directory_node_destroyed() {
    for clean in [true, false] {
        let (device, before) = sample(clean);
        let blocks = blocks(&device);
        let nodes = blocks["dirents leaf"].iter().chain(&blocks["dirents inner"]);
        let nodes: Vec<_> = nodes.collect();
        assert!(nodes.len() > 5, "{} nodes", nodes.len());
        let destroy = |ptr: &Ptr| device.write_at(&vec![0xee; ptr.len as usize], ptr.addr.0);
        nodes.iter().for_each(|ptr| destroy(ptr).unwrap());
        let report = repair(&device);
        assert_eq!(report.left, vec![]);
        let after = assert_clean(&device, "no directory node");
        assert_eq!(after.len(), before.len());
        assert!(after == before, "names, links and contents");
    }
}

/// Directories whose inodes are lost are restored: only the files in the block are lost.
#[test]
fn a_lost_inode_block_costs_its_files_alone() {
    let (device, before) = sample(true);
    for ptr in blocks(&device)["inode block"].iter().step_by(3) {
        let mut number = [0; 8];
        device.read_at(&mut number, ptr.addr.0 + 16).unwrap();
        let number = u64::from_le_bytes(number);
        let damaged = copy(&device);
        flip(&damaged, ptr.addr.0 + 300);
        let report = repair(&damaged);
        assert_eq!(report.left, vec![], "block {number}");
        let after = assert_clean(&damaged, "inode block");
        for (path, (ino, _, bytes)) in before.iter().filter(|(_, (ino, ..))| ino / 32 != number) {
            let found = after.get(path).map(|(ino, _, bytes)| (ino, bytes));
            assert_eq!(found, Some((ino, bytes)), "{path} of block {number}");
        }
        let gone = before.iter().filter(|(path, _)| !after.contains_key(*path));
        for (path, _) in gone {
            let said = report.actions.iter().any(|a| a.message.contains(path.as_str()));
            assert!(said, "{path} is gone and not named");
        }
    }
}

/// Nothing is written without confirmation.
#[test]
fn asks_first() {
    let (device, _) = sample(true);
    let victim = blocks(&device)["dirents leaf"][0];
    flip(&device, victim.addr.0 + 500);
    let image = copy(&device);
    let mut asked = 0;
    let mut ask = |report: &RepairReport| {
        asked += 1;
        assert!(!report.actions.is_empty() && !report.found.is_empty());
        false
    };
    let report = Volume::repair_on(device.clone(), &options(), &mut |_, _, _| {}, &mut ask);
    assert_eq!((report.unwrap().written, asked), (false, 1));
    let mut bytes = [vec![0; 1 << 20], vec![0; 1 << 20]];
    for at in (0..device.capacity()).step_by(1 << 20) {
        device.read_at(&mut bytes[0], at).unwrap();
        image.read_at(&mut bytes[1], at).unwrap();
        assert!(bytes[0] == bytes[1], "written to at {at}");
    }
}

/// Each kind of block is damaged at its start, in its header, in the middle, and at its end.
#[test]
fn any_one_block() {
    let mut counts: BTreeMap<String, (u32, u32)> = BTreeMap::new();
    for clean in [true, false] {
        let (device, before) = sample(clean);
        for (kind, blocks) in blocks(&device) {
            let picked = [0, blocks.len() / 2, blocks.len().saturating_sub(1)];
            let mut picked: Vec<usize> = picked.into_iter().filter(|i| *i < blocks.len()).collect();
            picked.dedup();
            for ptr in picked.into_iter().map(|i| blocks[i]) {
                let len = u64::from(ptr.len);
                let places = [0, 5, 9, 17, 25, 33, 41, 65, len / 2, len - 1];
                for at in places.into_iter().filter(|at| *at < len) {
                    let what = format!("{kind} at {}+{at}, clean {clean}", ptr.addr.0);
                    let damaged = copy(&device);
                    flip(&damaged, ptr.addr.0 + at);
                    let same = one_block(&damaged, &before, &kind, &what);
                    let count = counts.entry(kind.clone()).or_default();
                    count.0 += 1;
                    count.1 += u32::from(same);
                }
            }
        }
    }
    println!("damaged, of these with nothing lost: {counts:#?}");
    assert!(counts.len() >= 12, "{counts:?}");
}

/// Repairs a volume with one damaged block. Returns whether everything was restored.
fn one_block(device: &Arc<MemDevice>, before: &Shown, kind: &str, what: &str) -> bool {
    let report = repair(device);
    assert_ne!(report.found, vec![], "{what}: not detected");
    assert_eq!(report.left, vec![], "{what}: {:#?}", report.actions);
    let after = assert_clean(device, what);
    let redundant = !["inode block", "extents leaf"].contains(&kind);
    if redundant {
        assert!(after == *before, "{what}: {:#?}", difference(before, &after));
    }
    // Under an old name there must be the old file, complete or with holes.
    for (path, (ino, _, bytes)) in &after {
        let Some((was, _, old)) = before.get(path) else { continue };
        assert_eq!(was, ino, "{what}: {path}");
        let is_part = |(new, old): (&u8, &u8)| new == old || *new == 0;
        assert!(bytes == old || bytes.iter().zip(old).all(is_part), "{what}: {path}");
    }
    after == *before
}

fn difference(a: &Shown, b: &Shown) -> Vec<String> {
    let one = |x: &Shown, y: &Shown, sign: &str| -> Vec<String> {
        let only = x.iter().filter(|(path, value)| y.get(*path) != Some(value));
        only.take(5).map(|(path, (ino, n, _))| format!("{sign}{path} {ino} {n}")).collect()
    };
    [one(a, b, "-"), one(b, a, "+")].concat()
}
