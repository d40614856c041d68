//! A damaged block of inodes: names are there, and everything but the 32 files can be had.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::common::{Ran, SIZE, Scratch};

/// Files of the sample.
const FILES: usize = 300;
/// Inodes of a block.
const BLOCK: u64 = 32;

/// Flips a byte of the block that holds an inode, in the volume's file: of the copy in use, and of
/// older ones, which nobody reads.
fn damage_inode(volume: &Path, inode: u64) {
    let bytes = fs::read(volume).expect("read");
    let file = OpenOptions::new().write(true).open(volume).expect("open");
    let number = (inode / BLOCK).to_le_bytes();
    // Magic, and number at byte 16.
    let is_block =
        |at: usize| bytes[at..].starts_with(b"SIB2") && bytes[at + 16..at + 24] == number;
    let blocks: Vec<usize> = (0..bytes.len() - 128).step_by(8).filter(|at| is_block(*at)).collect();
    assert!(!blocks.is_empty(), "no block of inode {inode}");
    for at in blocks {
        file.write_all_at(&[bytes[at + 99] ^ 1], at as u64 + 99).expect("write");
    }
}

/// A volume with a directory `d` of files, one block of which is damaged, and the names in that.
fn sample() -> (Scratch, BTreeSet<String>) {
    let scratch = Scratch::with_volume();
    for number in 0..FILES {
        scratch.write(format!("d/f{number:03}"), format!("contents of {number}"));
    }
    fs::create_dir(scratch.path("m")).expect("mkdir");
    scratch.shoal(["cp", "-r", "d", "v:/"]).ok();
    let listed = scratch.shoal(["ls", "-i", "v:/d"]).ok();
    let inodes: Vec<(u64, String)> = listed
        .lines()
        .map(|line| line.trim_start().split_once(' ').expect("a number and a name"))
        .map(|(inode, name)| (inode.parse().expect("a number"), name.to_owned()))
        .collect();
    let inode = inodes[FILES / 2].0;
    damage_inode(&scratch.path("v"), inode);
    let lost = inodes.into_iter().filter(|(it, _)| it / BLOCK == inode / BLOCK);
    let lost: BTreeSet<String> = lost.map(|(_, name)| name).collect();
    assert!(lost.len() > 20, "{lost:?}");
    (scratch, lost)
}

/// Asserts that a command has failed with one line for each of these names, and no other.
#[track_caller]
fn names_each(ran: &Ran, lost: &BTreeSet<String>) {
    assert_eq!(ran.status(), Some(1), "{ran}");
    let error = ran.stderr();
    let told: BTreeSet<String> = error
        .lines()
        .filter_map(|line| line.split(": ").nth(1)?.rsplit('/').next().map(str::to_owned))
        .collect();
    let (count, lines) = (lost.len(), error.lines().count());
    assert!(told == *lost && lines == count, "{lines} lines for {count}: {ran}");
}

/// Returns the names in a directory of the host.
fn names(dir: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(dir).expect("readdir");
    entries.map(|it| it.expect("an entry").file_name().into_string().expect("UTF-8")).collect()
}

/// Returns the names of all files that are not lost.
fn rest(lost: &BTreeSet<String>) -> BTreeSet<String> {
    (0..FILES).map(|number| format!("f{number:03}")).filter(|name| !lost.contains(name)).collect()
}

#[test]
fn the_names_are_listed() {
    let (scratch, lost) = sample();
    for line in ["ls v:/d", "ls -U v:/d"] {
        let ran = scratch.shoal(line.split(' '));
        names_each(&ran, &lost);
        assert_eq!(ran.stdout().lines().count(), FILES, "{ran}");
    }
    let long = scratch.shoal(["ls", "-l", "v:/d"]);
    names_each(&long, &lost);
    let unknown = |line: &&str| line.starts_with("-????????? ");
    assert_eq!(long.stdout().lines().filter(unknown).count(), lost.len(), "{long}");
    let json = scratch.shoal(["ls", "--json", "v:/d"]);
    assert_eq!((json.status(), json.stdout().lines().count()), (Some(1), FILES), "{json}");
    // Names and types alone need no inode.
    assert_eq!(scratch.shoal(["find", "v:/d", "-type", "f"]).ok().lines().count(), FILES);
    let sizes = scratch.shoal(["find", "v:/d", "-type", "f", "-size", "-100c"]);
    names_each(&sizes, &lost);
    assert_eq!(sizes.stdout().lines().count(), FILES - lost.len(), "{sizes}");
    names_each(&scratch.shoal(["du", "-s", "v:/d"]), &lost);
}

#[test]
fn copies_take_the_rest() {
    let (scratch, lost) = sample();
    fs::create_dir(scratch.path("out")).expect("mkdir");
    names_each(&scratch.shoal(["cp", "-r", "v:/d", "out/"]), &lost);
    assert_eq!(names(&scratch.path("out/d")), rest(&lost));

    // What cannot be read is not taken for removed.
    fs::create_dir(scratch.path("kept")).expect("mkdir");
    let one = lost.first().expect("a name");
    scratch.write(format!("kept/{one}"), "an older copy");
    scratch.write("kept/removed", "");
    names_each(&scratch.shoal(["sync", "--delete", "v:/d", "kept"]), &lost);
    let mut expected = rest(&lost);
    expected.insert(one.clone());
    assert_eq!(names(&scratch.path("kept")), expected);

    names_each(&scratch.shoal(["tar", "-cf", "out.tar", "-C", "v:/", "d"]), &lost);
    let listed = scratch.shoal(["tar", "-tf", "out.tar"]).ok();
    let members = listed.lines().filter(|line| !line.ends_with('/')).count();
    assert_eq!(members, FILES - lost.len(), "{listed}");
}

#[test]
fn a_removal_says_what_to_do_and_works_after_it() {
    let (scratch, lost) = sample();
    let one = format!("v:/d/{}", lost.first().expect("a name"));
    scratch.shoal(["rm", &one]).fails(1, &["shoal fsck --repair"]);
    // Lost contents have no second copy.
    let repaired = scratch.shoal(["fsck", "--repair", "--yes", "v"]);
    assert_eq!(repaired.status(), Some(1), "{repaired}");
    let left = scratch.shoal(["ls", "v:/d"]).ok();
    assert!(left.lines().count() >= FILES - lost.len(), "{left}");
    scratch.shoal(["rm", "-r", "v:/d"]).ok();
    assert!(scratch.shoal(["fsck", "v"]).ok().contains("v: clean"));
}

#[test]
fn a_mount_shows_them_to_every_program() {
    if !shoal_skip::can_mount() {
        return;
    }
    let (scratch, lost) = sample();
    scratch.shoal(["mount", "v", "m"]).ok();
    let mut unreadable = BTreeSet::new();
    for entry in fs::read_dir(scratch.path("m/d")).expect("readdir") {
        let entry = entry.expect("an entry");
        assert!(entry.file_type().expect("a type").is_file(), "{entry:?}");
        if let Err(error) = entry.path().symlink_metadata() {
            assert_eq!(error.raw_os_error(), Some(5), "{entry:?}: {error}");
            unreadable.insert(entry.file_name().into_string().expect("UTF-8"));
        }
    }
    assert_eq!(unreadable, lost);
    assert_eq!(names(&scratch.path("m/d")).len(), FILES);
    names_each(&scratch.shoal(["ls", "m/d"]), &lost);
    assert_eq!(scratch.shoal(["find", "m/d", "-type", "f"]).ok().lines().count(), FILES);
    scratch.shoal(["mkfs", "w", "--size", SIZE]).ok();
    names_each(&scratch.shoal(["cp", "-r", "m/d", "w:/"]), &lost);
    let copied = scratch.shoal(["ls", "w:/d"]).ok();
    assert_eq!(copied.lines().map(str::to_owned).collect::<BTreeSet<_>>(), rest(&lost));
    let one = format!("m/d/{}", lost.first().expect("a name"));
    scratch.shoal(["rm", &one]).fails(1, &["input/output error", "shoal fsck --repair"]);
    scratch.shell("rm -rf m/d");
    assert_eq!(names(&scratch.path("m/d")), lost, "everything else is removed");
    scratch.shoal(["umount", "m"]).ok();
}
