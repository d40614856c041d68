//! Removal of whole trees: large, deep and wide ones, hard links to outside, open files inside,
//! concurrent changes in the tree, and refusals, which must change nothing.

use crate::common::rng::Lcg;
use shoal_engine::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const WHO: fn() -> Caller = Caller::root;
const TREE: TreeCheck = TreeCheck::Tree;

fn fresh(bytes: u64, options: &OpenOptions) -> (Arc<MemDevice>, Volume) {
    let device = Arc::new(MemDevice::new(bytes));
    let mkfs = MkfsOptions { root_mode: 0o777, ..MkfsOptions::default() };
    mkfs_on(device.clone(), &mkfs).unwrap();
    let volume = Volume::open_on(device.clone(), options).unwrap();
    (device, volume)
}

fn background(step_records: usize) -> OpenOptions {
    OpenOptions {
        lab: Lab { step_records, ..Lab::default() },
        noatime: true,
        ..OpenOptions::default()
    }
}

fn mkdir(volume: &Volume, dir: Ino, name: &str) -> Ino {
    volume.namespace().mkdir(&WHO(), dir, name.as_bytes(), 0o755).unwrap().ino
}

fn create(volume: &Volume, dir: Ino, name: &str, len: usize) -> Ino {
    let ino = volume.namespace().create(&WHO(), dir, name.as_bytes(), 0o644).unwrap().ino;
    if len > 0 {
        assert_eq!(volume.files().write(ino, 0, &vec![ino.0 as u8; len], false).unwrap(), len);
    }
    ino
}

fn is_whole(volume: &Volume, ino: Ino, len: usize) -> bool {
    let mut bytes = vec![0; len + 1];
    volume.files().read(ino, 0, &mut bytes).unwrap() == len
        && bytes[..len].iter().all(|b| *b == ino.0 as u8)
}

fn names(volume: &Volume, dir: Ino) -> Vec<(String, Ino)> {
    let mut names = Vec::new();
    volume
        .directories()
        .readdir(dir, 2, &mut |entry| {
            names.push((String::from_utf8(entry.name.to_vec()).unwrap(), entry.ino));
            true
        })
        .unwrap();
    names.sort();
    names
}

/// Returns every path with its inode's attributes except the times.
fn everything(volume: &Volume) -> BTreeMap<String, Attr> {
    let mut found = BTreeMap::new();
    let mut below = vec![(Ino::ROOT, String::new())];
    while let Some((dir, path)) = below.pop() {
        for (name, ino) in names(volume, dir) {
            let (path, attr) =
                (format!("{path}/{name}"), volume.attributes().getattr(ino).unwrap());
            if attr.kind == FileKind::Directory {
                below.push((ino, path.clone()));
            }
            found.insert(path, attr);
        }
    }
    found
}

/// Reaps everything and checks the volume.
fn settle(volume: &Volume) {
    while volume.maintenance().reap_some().unwrap() {}
    volume.maintenance().checkpoint().unwrap();
    let info = volume.info();
    assert_eq!((info.orphans, info.detached, info.pinned_bytes), (0, 0, 0));
    let report = volume.check(&mut |_, _| {}).unwrap();
    assert_eq!(report.problems, vec![], "{report:?}");
}

#[test]
fn a_hundred_thousand_files_go_and_their_links_elsewhere_stay() {
    let (device, volume) = fresh(1 << 30, &background(2048));
    let (who, keep) = (WHO(), mkdir(&volume, Ino::ROOT, "keep"));
    settle(&volume);
    let before = volume.info();
    let tree = mkdir(&volume, Ino::ROOT, "tree");
    let mut linked = Vec::new();
    for d in 0..100 {
        let dir = mkdir(&volume, tree, &format!("d{d}"));
        for f in 0..1_000 {
            let len = [0, 60, 0, 900][f % 4];
            let file = create(&volume, dir, &format!("file-{f}"), len);
            if f % 250 == 1 {
                let name = format!("{d}-{f}");
                volume.namespace().link(&who, file, keep, name.as_bytes()).unwrap();
                volume.namespace().link(&who, file, tree, name.as_bytes()).unwrap();
                linked.push((file, name, len));
            }
        }
    }
    volume.namespace().remove_tree(&who, Ino::ROOT, b"tree", TREE).unwrap();
    assert!(
        volume.namespace().lookup(&who, Ino::ROOT, b"tree").is_err_and(|e| e.is(Code::NotFound))
    );
    // At once, and while they lose their links.
    for (file, name, _) in linked.iter().cycle().take(3 * linked.len()) {
        assert_eq!(volume.paths().paths_of(*file).unwrap(), [format!("/keep/{name}").into_bytes()]);
    }
    settle(&volume);
    for (file, name, len) in &linked {
        assert_eq!(volume.attributes().getattr(*file).unwrap().nlink, 1, "{name}");
        assert!(is_whole(&volume, *file, *len), "{name}");
        assert_eq!(volume.paths().parents_of(*file).unwrap().len(), 1, "{name}");
    }
    let after = volume.info();
    assert_eq!(after.inodes, before.inodes + linked.len() as u64);
    volume.namespace().remove_tree(&who, Ino::ROOT, b"keep", TREE).unwrap();
    settle(&volume);
    assert_eq!(volume.info().inodes, 1);
    // Formerly large trees keep a few nodes, and free inodes keep their generations.
    let (was, live) = (before.live_bytes, volume.info().live_bytes);
    assert!(live < was + (256 << 10) + 10 * 100_000, "{was} bytes before, {live} after");
    volume.close().unwrap();
    let volume = Volume::open_on(device, &background(2048)).unwrap();
    settle(&volume);
}

#[test]
fn deep_and_wide_trees_go() {
    for in_background in [false, true] {
        let options = OpenOptions { background: in_background, ..background(512) };
        let (_device, volume) = fresh(1 << 30, &options);
        let who = WHO();
        let mut dir = mkdir(&volume, Ino::ROOT, "deep");
        for level in 0..5_000 {
            create(&volume, dir, "f", level % 700);
            dir = mkdir(&volume, dir, "d");
        }
        volume.namespace().remove_tree(&who, Ino::ROOT, b"deep", TREE).unwrap();
        let wide = mkdir(&volume, Ino::ROOT, "wide");
        for i in 0..20_000 {
            match i % 2 {
                0 => mkdir(&volume, wide, &format!("d{i}")),
                _ => create(&volume, wide, &format!("f{i}"), 0),
            };
        }
        let full = mkdir(&volume, Ino::ROOT, "full");
        for i in 0..3_000 {
            create(&volume, mkdir(&volume, full, &format!("d{i}")), "f", 10);
        }
        volume.namespace().remove_tree(&who, Ino::ROOT, b"wide", TREE).unwrap();
        volume.namespace().remove_tree(&who, Ino::ROOT, b"full", TREE).unwrap();
        settle(&volume);
        assert_eq!(volume.info().inodes, 1);
        volume.close().unwrap();
    }
}

#[test]
fn what_is_open_in_a_tree_stays_usable() {
    let (_device, volume) = fresh(256 << 20, &background(3));
    let who = WHO();
    let tree = mkdir(&volume, Ino::ROOT, "tree");
    let dirs: Vec<Ino> = (0..5).map(|i| mkdir(&volume, tree, &format!("d{i}"))).collect();
    let mut files = Vec::new();
    for (d, dir) in dirs.iter().enumerate() {
        for len in [0, 100, 5_000, 300_000] {
            let file = create(&volume, *dir, &format!("f{len}"), len);
            if d % 2 == 0 {
                (1..8).for_each(|i| _ = volume.files().write(file, i << 24, b"x", false).unwrap());
                volume
                    .attributes()
                    .setattr(&who, file, &SetAttr { size: Some(len as u64), ..no() })
                    .unwrap();
            }
            volume.references().hold(file, 1).unwrap();
            files.push((file, len));
        }
        volume.references().hold(*dir, 1).unwrap();
    }
    volume.references().hold(tree, 1).unwrap();
    volume.namespace().remove_tree(&who, Ino::ROOT, b"tree", TREE).unwrap();
    while volume.maintenance().reap_some().unwrap() {}
    for dir in dirs.iter().chain([&tree]) {
        assert_eq!(
            (volume.attributes().getattr(*dir).unwrap().nlink, names(&volume, *dir)),
            (0, vec![])
        );
        let refused = volume.namespace().create(&who, *dir, b"new", 0o644).unwrap_err();
        assert!(refused.is(Code::NotFound), "{refused}");
        assert!(volume.namespace().lookup(&who, *dir, b"f0").is_err_and(|e| e.is(Code::NotFound)));
    }
    for (file, len) in &files {
        assert!(is_whole(&volume, *file, *len), "{len}");
        assert_eq!(volume.attributes().getattr(*file).unwrap().nlink, 0);
        assert_eq!(
            volume.files().append(*file, &[1; 70_000], false).unwrap(),
            (*len as u64, 70_000)
        );
    }
    let held = volume.references().orphan_list();
    assert_eq!(held.len(), files.len() + dirs.len() + 1);
    assert!(held.iter().all(|orphan| orphan.held), "{held:?}");
    let report = volume.check(&mut |_, _| {}).unwrap();
    assert_eq!(report.problems, vec![], "{report:?}");
    files.iter().for_each(|(file, _)| volume.references().release(*file, 1));
    dirs.iter().chain([&tree]).for_each(|dir| volume.references().release(*dir, 1));
    settle(&volume);
    assert_eq!(volume.info().inodes, 1);
}

fn no() -> SetAttr {
    SetAttr::default()
}

/// All or nothing, in contrast to `rm -rf`, which removes as much as it can.
#[test]
fn a_refusal_leaves_everything() {
    let options = OpenOptions { background: false, ..background(2) };
    let (_device, volume) = fresh(64 << 20, &options);
    let (root, one) = (WHO(), Caller::user(1000, 1000));
    let own = |name: &str, dir, mode, uid| {
        let ino = volume.namespace().mkdir(&root, dir, name.as_bytes(), 0o755).unwrap().ino;
        let set = SetAttr { uid: Some(uid), gid: Some(uid), mode: Some(mode), ..no() };
        volume.attributes().setattr(&root, ino, &set).unwrap();
        ino
    };
    let top = own("top", Ino::ROOT, 0o755, 1000);
    let mut at = top;
    for i in 0..6 {
        at = own(&format!("d{i}"), at, 0o755, 1000);
        create(&volume, at, "f", 100);
    }
    let refused = |what: &str, code: Code| {
        let before = everything(&volume);
        let lsn = volume.staged_lsn();
        let error = volume.namespace().remove_tree(&one, Ino::ROOT, b"top", TREE).unwrap_err();
        assert!(error.is(code), "{what}: {error}");
        assert_eq!((everything(&volume), volume.staged_lsn()), (before, lsn), "{what}");
        assert_eq!(volume.info().orphans, 0, "{what}");
    };
    let change = |ino, set: SetAttr| volume.attributes().setattr(&root, ino, &set).unwrap();
    for (mode, code) in [(0o555, Code::Access), (0o355, Code::Access), (0o655, Code::Access)] {
        change(at, SetAttr { mode: Some(mode), ..no() });
        refused(&format!("{mode:o}"), code);
    }
    change(at, SetAttr { mode: Some(0o1777), uid: Some(0), ..no() });
    refused("another's file in another's sticky directory", Code::NotPermitted);
    change(at, SetAttr { mode: Some(0o777), ..no() });
    // Empty directories may have any owner.
    own("empty", at, 0o000, 0);
    change(Ino::ROOT, SetAttr { mode: Some(0o755), ..no() });
    refused("the name itself", Code::Access);
    change(Ino::ROOT, SetAttr { mode: Some(0o1777), ..no() });
    change(top, SetAttr { uid: Some(0), mode: Some(0o777), ..no() });
    refused("the name in a sticky directory", Code::NotPermitted);
    change(top, SetAttr { uid: Some(1000), ..no() });
    for (name, code) in [(&b"."[..], Code::Invalid), (b"..", Code::Invalid)] {
        let error = volume.namespace().remove_tree(&one, top, name, TREE).unwrap_err();
        assert!(error.is(code), "{error}");
    }
    let nothing = volume.namespace().remove_tree(&one, Ino::ROOT, b"nothing", TREE).unwrap_err();
    assert!(nothing.is(Code::NotFound), "{nothing}");
    volume.subvolumes().create(&root, b"r", 0o777).unwrap();
    let busy = volume.namespace().remove_tree(&root, Ino::ROOT, b"r", TREE).unwrap_err();
    assert!(busy.is(Code::Busy), "{busy}");
    volume.namespace().remove_tree(&one, Ino::ROOT, b"top", TREE).unwrap();
    assert_eq!(names(&volume, Ino::ROOT).len(), 1);
    settle(&volume);
}

// ---- threads

/// Makes a tree of 6 × 40 directories with files. Returns all its directories.
fn grown(volume: &Volume, name: &str) -> Vec<Ino> {
    let tree = mkdir(volume, Ino::ROOT, name);
    let mut dirs = vec![tree];
    for a in 0..6 {
        let dir = mkdir(volume, tree, &format!("d{a}"));
        dirs.push(dir);
        for b in 0..40 {
            let inner = mkdir(volume, dir, &format!("d{b}"));
            dirs.push(inner);
            for f in 0..6 {
                create(volume, inner, &format!("n{f}"), [0, 80, 3_000][f % 3]);
            }
        }
    }
    dirs
}

/// Returns whether an error is possible in a thread that works where others remove.
fn is_expected(error: &Error) -> bool {
    [
        Code::NotFound,
        Code::Stale,
        Code::Exists,
        Code::NotEmpty,
        Code::IsDirectory,
        Code::NotDirectory,
        Code::Invalid,
        Code::NotPermitted,
    ]
    .iter()
    .any(|code| error.is(*code))
}

/// Works in the directories of a tree that is being removed. Files that it moves to `out` must
/// survive.
fn disturb(volume: &Volume, dirs: &[Ino], out: Ino, seed: u64, stop: &AtomicBool) -> Vec<String> {
    let (who, mut rng, plain) = (WHO(), Lcg(seed), RenameFlags::default());
    let mut saved = Vec::new();
    for i in 0_u64.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let dir = dirs[rng.below(dirs.len() as u64) as usize];
        let other = dirs[rng.below(dirs.len() as u64) as usize];
        let name = format!("{}{}", ["n", "d"][rng.below(2) as usize], rng.below(40));
        let (name, mine) = (name.as_bytes(), format!("{seed}-{i}"));
        let done = match rng.below(12) {
            0 => volume
                .namespace()
                .create(&who, dir, mine.as_bytes(), 0o644)
                .and_then(|file| volume.files().write(file.ino, 0, &[7; 3_000], false).map(|_| ())),
            1 => volume.namespace().mkdir(&who, dir, mine.as_bytes(), 0o755).map(|_| ()),
            2 => volume.namespace().unlink(&who, dir, name),
            3 => volume.namespace().rmdir(&who, dir, name),
            4 => volume.namespace().rename(&who, dir, name, other, mine.as_bytes(), plain),
            5 | 6 => {
                let moved = volume.namespace().rename(&who, dir, name, out, mine.as_bytes(), plain);
                moved.map(|()| saved.push(mine))
            }
            7 => {
                let linked = volume.namespace().lookup(&who, dir, name).and_then(|entry| {
                    volume.namespace().link(&who, entry.ino, out, mine.as_bytes()).map(|_| ())
                });
                linked.map(|()| saved.push(mine))
            }
            // Into the tree, with a file inside.
            8 => volume.namespace().mkdir(&who, out, mine.as_bytes(), 0o755).and_then(|made| {
                create(volume, made.ino, "inside", 50);
                volume
                    .namespace()
                    .rename(&who, out, mine.as_bytes(), dir, mine.as_bytes(), plain)
                    .inspect_err(|_| saved.push(mine.clone()))
            }),
            9 => volume.namespace().lookup(&who, dir, name).and_then(|entry| {
                volume.references().hold(entry.ino, 1)?;
                let read = volume.files().read(entry.ino, 0, &mut [0; 100]).map(|_| ());
                let _ = volume.files().write(entry.ino, 5_000, &[9; 900], false);
                volume.references().release(entry.ino, 1);
                read
            }),
            10 => volume.namespace().remove_tree(&who, dir, name, TREE),
            _ => volume.references().hold(dir, 1).map(|()| {
                let _ = volume.directories().readdir(dir, 0, &mut |_| true);
                let _ = volume.paths().paths_of(dir);
                volume.references().release(dir, 1);
            }),
        };
        if let Err(error) = done {
            assert!(is_expected(&error), "{error}");
        }
    }
    saved
}

/// Trees are removed while threads create, move, link, open and remove in every part of them.
#[test]
fn threads_work_in_a_tree_that_dies() {
    let rounds = std::env::var("SHOAL_REMOVE_TREE_ROUNDS").map_or(12, |n| n.parse().unwrap());
    for step_records in [1, 7, 2048] {
        let (device, volume) = fresh(512 << 20, &background(step_records));
        let (volume, saved) = (&volume, AtomicU64::new(0));
        for round in 0..rounds {
            let out = mkdir(volume, Ino::ROOT, "out");
            let dirs = grown(volume, "tree");
            let stop = AtomicBool::new(false);
            let kept: Vec<String> = std::thread::scope(|scope| {
                let (dirs, stop) = (&dirs, &stop);
                let work = |seed| scope.spawn(move || disturb(volume, dirs, out, seed, stop));
                let threads: Vec<_> = (0..3).map(|t| work(round * 10 + t)).collect();
                std::thread::sleep(std::time::Duration::from_millis(round % 4));
                volume.namespace().remove_tree(&WHO(), Ino::ROOT, b"tree", TREE).unwrap();
                while volume.maintenance().is_reaping() {
                    std::thread::yield_now();
                }
                stop.store(true, Ordering::Relaxed);
                threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
            });
            while volume.maintenance().reap_some().unwrap() {}
            // Exactly the files that threads successfully moved out must be there.
            let mut kept = kept;
            kept.sort();
            let found: Vec<String> = names(volume, out).into_iter().map(|(name, _)| name).collect();
            assert_eq!(found, kept, "steps of {step_records}, round {round}");
            saved.fetch_add(kept.len() as u64, Ordering::Relaxed);
            assert_eq!(everything(volume).len(), {
                let report = volume.check(&mut |_, _| {}).unwrap();
                assert_eq!(report.problems, vec![], "{step_records}, round {round}");
                report.dirents as usize
            });
            volume.namespace().remove_tree(&WHO(), Ino::ROOT, b"out", TREE).unwrap();
            settle(volume);
            assert_eq!(volume.info().inodes, 1, "steps of {step_records}, round {round}");
        }
        let saved = saved.into_inner();
        eprintln!("steps of {step_records}: {saved} brought out");
        assert!(saved > 0);
        drop(device);
    }
}
