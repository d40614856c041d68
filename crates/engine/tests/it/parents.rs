//! Parent pointers: after any change of names, each file has the right ones.

use shoal_engine::*;
use std::collections::BTreeSet;
use std::sync::Arc;

const ROOT: Ino = Ino::ROOT;

fn options() -> OpenOptions {
    OpenOptions { background: false, ..OpenOptions::default() }
}

fn fresh(mkfs: &MkfsOptions) -> Arc<MemDevice> {
    let device = Arc::new(MemDevice::new(128 << 20));
    mkfs_on(device.clone(), mkfs).unwrap();
    device
}

fn open(device: &Arc<MemDevice>, options: &OpenOptions) -> Volume {
    Volume::open_on(device.clone(), options).unwrap()
}

fn assert_clean(volume: &Volume) {
    let report = volume.check(&mut |_, _| {}).unwrap();
    assert_eq!(report.problems, vec![], "{report:?}");
}

fn counter(volume: &Volume, name: &str) -> u64 {
    volume.info().counters.iter().find(|(n, _)| *n == name).unwrap().1
}

fn paths(volume: &Volume, ino: Ino) -> Vec<String> {
    let paths = volume.paths().paths_of(ino).unwrap().into_iter();
    let mut paths: Vec<String> = paths.map(|p| String::from_utf8(p).unwrap()).collect();
    paths.sort();
    paths
}

fn each_way(test: impl Fn(&Arc<MemDevice>, &OpenOptions)) {
    for inode_size in [256, 512] {
        for attr_intents in [false, true] {
            let mkfs = MkfsOptions { inode_size, ..MkfsOptions::default() };
            test(
                &fresh(&mkfs),
                &OpenOptions { lab: Lab { attr_intents, ..Lab::default() }, ..options() },
            );
        }
    }
}

/// A whiteout has the old name, of a file that replaces another and of a directory.
#[test]
fn whiteouts_have_the_old_names() {
    each_way(|device, options| {
        let volume = open(device, options);
        let who = Caller::root();
        let plain = RenameFlags::default();
        let a = volume.namespace().mkdir(&who, ROOT, b"g2", 0o755).unwrap().ino;
        let inner = volume.namespace().create(&who, ROOT, b"a", 0o644).unwrap().ino;
        let f = volume.namespace().create(&who, a, b"inner", 0o644).unwrap().ino;
        let hide = RenameFlags { whiteout: true, ..plain };
        let lost = volume.namespace().create(&who, ROOT, b"lost", 0o644).unwrap().ino;
        volume.namespace().rename(&who, ROOT, b"a", ROOT, b"lost", hide).unwrap();
        let found = volume.namespace().lookup(&who, ROOT, b"a").unwrap();
        let kind = (found.kind, found.mode & 0o7777, found.rdev, found.nlink);
        assert_eq!(kind, (FileKind::CharDevice, 0, 0, 1));
        assert_eq!(paths(&volume, found.ino), ["/a"]);
        assert_eq!(paths(&volume, inner), ["/lost"]);
        assert_eq!(volume.paths().parents_of(lost).unwrap_err().code(), Code::Stale);
        volume.namespace().rename(&who, ROOT, b"lost", ROOT, b"a", plain).unwrap();
        let by = volume.namespace().mkdir(&who, ROOT, b"by", 0o755).unwrap().ino;
        let above = volume.attributes().getattr(ROOT).unwrap();
        volume.namespace().rename(&who, ROOT, b"g2", by, b"g2", hide).unwrap();
        let after = volume.attributes().getattr(ROOT).unwrap();
        assert_eq!((after.nlink, after.size), (above.nlink - 1, above.size));
        assert_eq!(paths(&volume, f), ["/by/g2/inner"]);
        volume.namespace().unlink(&who, ROOT, b"g2").unwrap();
        volume.namespace().rename(&who, by, b"g2", ROOT, b"g2", plain).unwrap();
        let bad = RenameFlags { exchange: true, ..hide };
        let refused = volume.namespace().rename(&who, ROOT, b"a", ROOT, b"g2", bad);
        assert_eq!(refused.unwrap_err().code(), Code::Invalid);
        assert_clean(&volume);
        volume.sync().unwrap();
        drop(volume);
        assert_clean(&open(device, options));
    });
}

#[test]
fn names_and_paths() {
    each_way(|device, options| {
        let volume = open(device, options);
        let who = Caller::root();
        let plain = RenameFlags::default();
        let a = volume.namespace().mkdir(&who, ROOT, b"a", 0o755).unwrap().ino;
        let b = volume.namespace().mkdir(&who, a, b"b", 0o755).unwrap().ino;
        let long = [b'n'; 255];
        let f = volume.namespace().create(&who, b, &long, 0o644).unwrap().ino;
        let long = String::from_utf8(long.to_vec()).unwrap();
        assert_eq!(paths(&volume, ROOT), ["/"]);
        assert_eq!(paths(&volume, f), [format!("/a/b/{long}")]);
        volume.namespace().link(&who, f, a, b"second").unwrap();
        assert_eq!(paths(&volume, f), [format!("/a/b/{long}"), "/a/second".into()]);
        volume.namespace().rename(&who, a, b"second", ROOT, b"third", plain).unwrap();
        assert_eq!(paths(&volume, f), [format!("/a/b/{long}"), "/third".into()]);
        volume.namespace().rename(&who, a, b"b", ROOT, b"moved", plain).unwrap();
        assert_eq!(paths(&volume, f), [format!("/moved/{long}"), "/third".into()]);
        assert_clean(&volume);
        volume.namespace().unlink(&who, b, long.as_bytes()).unwrap();
        assert_eq!(paths(&volume, f), ["/third"]);
        // Replacing a file with one name, and one with two.
        let g = volume.namespace().create(&who, ROOT, b"g", 0o644).unwrap().ino;
        volume.namespace().link(&who, g, ROOT, b"g2").unwrap();
        volume.namespace().rename(&who, ROOT, b"third", ROOT, b"g", plain).unwrap();
        assert_eq!((paths(&volume, f), paths(&volume, g)), (vec!["/g".into()], vec!["/g2".into()]));
        volume.namespace().rename(&who, ROOT, b"g", ROOT, b"g2", plain).unwrap();
        assert_eq!(paths(&volume, f), ["/g2"]);
        assert_eq!(volume.paths().parents_of(g).unwrap_err().code(), Code::Stale);
        // Exchanging, also with a directory that has a file in it.
        let swap = RenameFlags { exchange: true, ..plain };
        volume.namespace().rename(&who, ROOT, b"g2", ROOT, b"a", swap).unwrap();
        assert_eq!((paths(&volume, f), paths(&volume, a)), (vec!["/a".into()], vec!["/g2".into()]));
        let inner = volume.namespace().create(&who, a, b"inner", 0o644).unwrap().ino;
        volume.namespace().rename(&who, a, b"inner", ROOT, b"a", swap).unwrap();
        assert_eq!(
            (paths(&volume, f), paths(&volume, inner)),
            (vec!["/g2/inner".into()], vec!["/a".into()])
        );
        // All other types of files.
        let s = volume.namespace().symlink(&who, a, b"sym", &[b't'; 380]).unwrap().ino;
        let p = volume.namespace().mknod(&who, a, b"pipe", 0o10_644, 0).unwrap().ino;
        assert_eq!(
            (paths(&volume, s), paths(&volume, p)),
            (vec!["/g2/sym".into()], vec!["/g2/pipe".into()])
        );
        assert_eq!(volume.namespace().readlink(s).unwrap(), [b't'; 380]);
        let t = volume.namespace().tmpfile(&who, a, 0o600).unwrap().ino;
        assert_eq!(paths(&volume, t), [""; 0]);
        volume.namespace().link(&who, t, a, b"tmp").unwrap();
        volume.references().release(t, 1);
        assert_eq!(paths(&volume, t), ["/g2/tmp"]);
        assert_clean(&volume);
        volume.sync().unwrap();
        drop(volume);
        let volume = open(device, options);
        assert_clean(&volume);
        assert_eq!(paths(&volume, t), ["/g2/tmp"]);
        let parent = &volume.paths().parents_of(t).unwrap()[0];
        assert_eq!((parent.dir, &parent.name[..]), (a, &b"tmp"[..]));
        assert_eq!(parent.generation, volume.attributes().getattr(a).unwrap().generation);
        volume.close().unwrap();
    });
}

/// 12,000 names of one file (or `SHOAL_LINKS`), removed again in random order. The volume is
/// closed, crashes after a sync, and crashes without one, in turn.
#[test]
fn hard_links_by_the_thousands() {
    let links: usize = std::env::var("SHOAL_LINKS").map_or(12_000, |n| n.parse().unwrap());
    let device = fresh(&MkfsOptions::default());
    let mut volume = open(&device, &options());
    let who = Caller::root();
    let dirs: Vec<Ino> = (0..4)
        .map(|i| {
            volume.namespace().mkdir(&who, ROOT, format!("d{i}").as_bytes(), 0o755).unwrap().ino
        })
        .collect();
    let f = volume.namespace().create(&who, ROOT, b"first", 0o644).unwrap().ino;
    let mut left: Vec<(Ino, String)> =
        (0..links).map(|i| (dirs[i % 4], format!("name-{}", i / 4))).collect();
    for (dir, name) in &left {
        volume.namespace().link(&who, f, *dir, name.as_bytes()).unwrap();
    }
    volume.sync().unwrap();
    assert_eq!(paths(&volume, f).len(), links + 1);
    assert_clean(&volume);
    let (mut state, mut removed, mut stops) = (12345u64, Vec::new(), 0);
    while !left.is_empty() {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let (dir, name) = left.swap_remove((state >> 33) as usize % left.len());
        volume.namespace().unlink(&who, dir, name.as_bytes()).unwrap();
        removed.push((dir, name));
        if removed.len() < links / 12 && !left.is_empty() {
            continue;
        }
        stops += 1;
        match stops % 3 {
            0 => volume.close().unwrap(),
            1 => {
                volume.sync().unwrap();
                drop(volume);
            }
            _ => drop(volume),
        }
        volume = open(&device, &options());
        assert_clean(&volume);
        let found: BTreeSet<_> =
            volume.paths().parents_of(f).unwrap().into_iter().map(|p| (p.dir, p.name)).collect();
        // Without a sync the last removals may be lost, but no others.
        let back = found.len() - 1 - left.len();
        assert!(stops % 3 == 2 || back == 0, "{back} names are back after a sync");
        left.extend(removed.split_off(removed.len() - back));
        removed.clear();
        let mut wanted: BTreeSet<_> =
            left.iter().map(|(dir, name)| (*dir, name.clone().into_bytes())).collect();
        wanted.insert((ROOT, b"first".to_vec()));
        assert_eq!(found, wanted);
        assert!(stops < 100, "no progress");
    }
    assert_eq!(paths(&volume, f), ["/first"]);
    volume.namespace().unlink(&who, ROOT, b"first").unwrap();
    assert_clean(&volume);
}

#[test]
fn files_with_one_name_need_no_intents() {
    let device = fresh(&MkfsOptions::default());
    let volume = open(&device, &options());
    let who = Caller::root();
    let dir = volume.namespace().mkdir(&who, ROOT, b"d", 0o755).unwrap().ino;
    for i in 0..5000 {
        let (name, other) = (format!("file-{i}"), format!("{}-{i}", "x".repeat(i % 200)));
        let f = volume.namespace().create(&who, ROOT, name.as_bytes(), 0o644).unwrap().ino;
        if i % 5 == 0 {
            // Data that fills the inode moves out.
            volume.files().write(f, 0, &[1; 360], false).unwrap();
        }
        volume
            .namespace()
            .rename(&who, ROOT, name.as_bytes(), dir, other.as_bytes(), RenameFlags::default())
            .unwrap();
        assert_eq!(volume.paths().paths_of(f).unwrap(), [format!("/d/{other}").into_bytes()]);
        if i % 3 == 0 {
            volume.namespace().unlink(&who, dir, other.as_bytes()).unwrap();
        }
    }
    assert_eq!(counter(&volume, "attr_intents"), 0);
    assert_clean(&volume);
}

#[test]
fn a_volume_without() {
    let device = fresh(&MkfsOptions { parents: false, ..MkfsOptions::default() });
    let volume = open(&device, &options());
    let who = Caller::root();
    let f = volume.namespace().create(&who, ROOT, b"f", 0o644).unwrap().ino;
    volume.namespace().link(&who, f, ROOT, b"g").unwrap();
    volume.namespace().rename(&who, ROOT, b"f", ROOT, b"h", RenameFlags::default()).unwrap();
    assert_eq!(volume.paths().paths_of(f).unwrap_err().code(), Code::NotSupported);
    assert_eq!(volume.paths().parents_of(f).unwrap_err().code(), Code::NotSupported);
    volume.attributes().setxattr(&who, f, b"user.x", b"1", XattrFlags::default()).unwrap();
    assert_clean(&volume);
    volume.sync().unwrap();
    drop(volume);
    let volume = open(&device, &options());
    assert_clean(&volume);
    assert!(!volume.info().features.contains(&"parent-pointers"));
}

/// Eight threads rename across directories while others request paths. Each path must have existed.
#[test]
fn a_rename_storm() {
    let device = fresh(&MkfsOptions::default());
    let volume = open(&device, &options());
    let who = Caller::root();
    let tops: Vec<Ino> = (0..4)
        .map(|i| {
            volume.namespace().mkdir(&who, ROOT, format!("top{i}").as_bytes(), 0o755).unwrap().ino
        })
        .collect();
    let dirs: Vec<Ino> = (0..8)
        .map(|i| {
            volume
                .namespace()
                .mkdir(&who, tops[i % 4], format!("dir{i}").as_bytes(), 0o755)
                .unwrap()
                .ino
        })
        .collect();
    let files: Vec<Ino> = (0..8)
        .map(|i| {
            volume
                .namespace()
                .create(&who, dirs[i], format!("file{i}").as_bytes(), 0o644)
                .unwrap()
                .ino
        })
        .collect();
    let plain = RenameFlags::default();
    std::thread::scope(|scope| {
        for i in 0..8usize {
            let (volume, tops, dirs, files, who) = (&volume, &tops, &dirs, &files, who.clone());
            scope.spawn(move || {
                let (mut at, mut home) = (tops[i % 4], dirs[i]);
                let (dir, file) = (format!("dir{i}").into_bytes(), format!("file{i}").into_bytes());
                for n in 0..400 {
                    let next = tops[(n + i) % 4];
                    volume.namespace().rename(&who, at, &dir, next, &dir, plain).unwrap();
                    at = next;
                    let next = dirs[(i + n * 3) % 8];
                    volume.namespace().rename(&who, home, &file, next, &file, plain).unwrap();
                    home = next;
                    let asked = (i + n) % 8;
                    let paths = volume.paths().paths_of(files[asked]).unwrap();
                    assert_eq!(paths.len(), 1);
                    let path = String::from_utf8(paths[0].clone()).unwrap();
                    let parts: Vec<&str> = path.split('/').collect();
                    assert_eq!(parts.len(), 4, "{path}");
                    assert!(parts[1].starts_with("top") && parts[2].starts_with("dir"), "{path}");
                    assert_eq!(parts[3], format!("file{asked}"));
                }
            });
        }
    });
    for file in files {
        let path = volume.paths().paths_of(file).unwrap().remove(0);
        assert_eq!(volume.namespace().resolve(&who, ROOT, &path, false).unwrap().ino, file);
    }
    assert_clean(&volume);
}
