//! Memory must stay within the budget, whatever the inodes contain. A separate process fills a
//! volume of 2 KiB inodes and checks its peak after each kind of work.

use shoal_engine::*;
use std::path::Path;
use std::process::Command;

const VOLUME: &str = "SHOAL_MEMORY_VOLUME";
const CACHE: u64 = 64 << 20;
const FILES: usize = 150_000;

/// Peak memory of this process in bytes.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

fn assert_bounded(volume: &Volume, work: &str) {
    let (peak, cached) = (peak(), volume.info().cache_bytes);
    println!("{work}: peak {} MiB, {} MiB counted", peak >> 20, cached >> 20);
    assert!(peak as f64 <= 1.15 * (CACHE + (64 << 20)) as f64, "{work}: {peak} bytes");
}

fn fill(volume: &Volume, ino: Ino) {
    let who = Caller::root();
    for (name, len) in [(b"user.a", 1000), (b"user.b", 760)] {
        volume
            .attributes()
            .setxattr(&who, ino, name, &vec![7; len], XattrFlags::default())
            .unwrap();
    }
}

fn work(volume: &Volume) {
    let who = Caller::root();
    let dir = |name: &[u8]| volume.namespace().mkdir(&who, Ino::ROOT, name, 0o755).unwrap().ino;
    // Created and filled at once.
    let full = dir(b"full");
    for i in 0..FILES / 2 {
        fill(
            volume,
            volume.namespace().create(&who, full, format!("{i}").as_bytes(), 0o644).unwrap().ino,
        );
    }
    assert_bounded(volume, "files with full forks");
    // Small inodes are in memory when their forks begin to grow: no block is read for this.
    let grown = dir(b"grown");
    let create = |i: usize| {
        volume.namespace().create(&who, grown, format!("{i}").as_bytes(), 0o644).unwrap()
    };
    let files: Vec<Ino> = (0..FILES / 2).map(|i| create(i).ino).collect();
    files.iter().for_each(|ino| fill(volume, *ino));
    assert_bounded(volume, "forks that grow");
    let file = volume.namespace().create(&who, Ino::ROOT, b"file", 0o644).unwrap().ino;
    assert_eq!(volume.files().write(file, 0, &[1; 1800], false).unwrap(), 1800);
    for ino in files.iter().step_by(3) {
        volume.files().write(*ino, 0, &[2; 100], false).unwrap();
        volume
            .attributes()
            .setattr(&who, *ino, &SetAttr { mode: Some(0o600), ..SetAttr::default() })
            .unwrap();
    }
    assert_bounded(volume, "changes of a third");
    for ino in &files {
        assert_eq!(volume.attributes().getxattr(&who, *ino, b"user.a").unwrap().len(), 1000);
    }
    assert_bounded(volume, "all of them read");
    let names = dir(b"names");
    for i in 0..50_000 {
        volume.namespace().link(&who, file, names, format!("{i:0>255}").as_bytes()).unwrap();
    }
    assert_bounded(volume, "long names of one file");
    let mut entries = 0;
    let mut each = |_: DirEntry<'_>| {
        entries += 1;
        true
    };
    volume.directories().readdir(names, 0, &mut each).unwrap();
    assert!(entries >= 50_000);
    for i in 0..FILES / 2 {
        volume.namespace().unlink(&who, full, format!("{i}").as_bytes()).unwrap();
    }
    assert_bounded(volume, "removal");
}

/// The separate process.
#[test]
fn helper() {
    let Some(path) = std::env::var_os(VOLUME) else { return };
    let options = OpenOptions { cache_bytes: CACHE, ..OpenOptions::default() };
    let volume = Volume::open(Path::new(&path), &options).unwrap();
    work(&volume);
    assert_eq!(volume.read_only_reason(), None);
    volume.close().unwrap();
}

#[test]
fn inodes_of_2_kib_with_full_forks_stay_within_the_budget() {
    let path = std::env::temp_dir().join(format!("shoal-memory-{}", std::process::id()));
    let options = MkfsOptions { size: 8 << 30, inode_size: 2048, ..MkfsOptions::default() };
    mkfs(&path, &options).unwrap();
    let mut helper = Command::new(std::env::current_exe().unwrap());
    helper.args(["--exact", "memory_bound::helper", "--nocapture"]).env(VOLUME, &path);
    let done = helper.output().unwrap();
    std::fs::remove_file(&path).unwrap();
    print!("{}", String::from_utf8_lossy(&done.stdout));
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}
