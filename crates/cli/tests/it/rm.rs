//! Removal of whole trees, in a volume and through its mount, and the listing of orphans.

use std::fs;
use std::io::{Read, Seek, Write};
use std::path::Path;

use crate::common::{Scratch, noise};
use shoal_skip::{skipped, wait_for};

/// Makes a directory `t` with `files` files, some with data, in directories; and a link out of it.
fn plant(scratch: &Scratch, top: &str, files: usize) {
    for n in 0..files {
        let data = if n % 3 == 0 { noise(n as u64, 5000) } else { Vec::new() };
        scratch.write(format!("{top}/d{}/e/f{n}", n % 9), data);
    }
    scratch.write(format!("{top}/shared"), "text");
}

/// Makes a volume with such a tree, and one name outside for a file in it.
fn volume(files: usize) -> Scratch {
    let scratch = Scratch::with_volume();
    plant(&scratch, "t", files);
    scratch.shoal(["cp", "-r", "t", "v:/"]).ok();
    scratch.shoal(["ln", "v:/t/shared", "v:/kept"]).ok();
    scratch
}

/// Returns a value of `shoal stats`.
fn stat(scratch: &Scratch, volume: &str, name: &str) -> u64 {
    let stats = scratch.shoal(["stats", volume]).ok();
    let row = stats.lines().find(|line| line.split_whitespace().next() == Some(name));
    let row = row.unwrap_or_else(|| panic!("{name} is not in\n{stats}"));
    row.split_whitespace().nth(1).and_then(|value| value.parse().ok()).expect("a number")
}

#[track_caller]
fn mounted() -> Option<Scratch> {
    let scratch = Scratch::to_mount()?;
    scratch.shoal(["mount", "v", "m"]).ok();
    Some(scratch)
}

/// Unmounts and checks.
fn end(scratch: &Scratch) {
    scratch.umount("m");
    scratch.shoal(["fsck", "v"]).ok();
}

#[test]
fn a_tree_goes_and_its_space_is_back() {
    let scratch = volume(3000);
    let before = stat(&scratch, "v", "inodes");
    let told = scratch.shoal(["rm", "-rv", "v:/t"]).ok();
    assert_eq!(told, "v:/t: removed, and its space is free\n");
    assert_eq!(scratch.shoal(["ls", "v"]).ok(), "kept\n");
    assert_eq!(scratch.shoal(["cat", "v:/kept"]).ok(), "text");
    assert!(scratch.shoal(["stat", "v:/kept", "--json"]).ok().contains("\"nlink\":1,"));
    assert_eq!(stat(&scratch, "v", "inodes"), 2);
    assert!(before > 3000);
    assert_eq!(scratch.shoal(["orphans", "v"]).ok(), "");
    scratch.shoal(["fsck", "v"]).ok();
}

#[test]
fn json_tells_how_much_was_freed() {
    let scratch = volume(100);
    let inodes = stat(&scratch, "v", "inodes");
    let told = scratch.shoal(["rm", "-r", "--json", "v:/t", "v:/kept"]).ok();
    let lines: Vec<&str> = told.lines().collect();
    // The linked file goes with its second name.
    let files = inodes - 2;
    assert_eq!(lines[0], format!(r#"{{"place":"v:/t","files":{files},"waiting":false}}"#));
    assert_eq!(lines[1], r#"{"place":"v:/kept","waiting":false}"#);
}

#[test]
fn what_is_not_waited_for_is_freed_later() {
    let scratch = volume(20_000);
    let told = scratch.shoal(["rm", "-rv", "--no-wait", "v:/t"]).ok();
    assert!(told.starts_with("v:/t: removed"), "{told}");
    assert_eq!(scratch.shoal(["ls", "v"]).ok(), "kept\n");
    scratch.shoal(["fsck", "v"]).ok();
    let listed = scratch.shoal(["orphans", "v"]).ok();
    let json = scratch.shoal(["orphans", "v", "--json"]).ok();
    if told.contains("behind") {
        assert!(listed.contains("INODE") && listed.contains("  tree  "), "{listed}");
        assert!(json.contains(r#""kind":"tree","slot":true,"held":false"#), "{json}");
    }
    // Any session that may write continues the freeing; this one completes it.
    scratch.shoal(["mkdir", "v:/x"]).ok();
    scratch.shoal(["rm", "-r", "v:/x"]).ok();
    assert_eq!(scratch.shoal(["orphans", "v", "--json"]).ok(), "");
    assert_eq!(stat(&scratch, "v", "inodes"), 2);
    scratch.shoal(["fsck", "v"]).ok();
}

#[test]
fn answers_are_asked_for() {
    let scratch = volume(3);
    let ran = scratch.shell("echo no | shoal rm -ri v:/t");
    assert!(ran.stderr().contains("remove v:/t?") && ran.status() == Some(0), "{ran}");
    assert_eq!(scratch.shoal(["ls", "v"]).ok(), "kept\nt\n");
    scratch.shell("yes | shoal rm -ri v:/t v:/kept");
    assert_eq!(scratch.shoal(["ls", "v"]).ok(), "");
}

#[test]
fn what_is_no_place_in_a_volume_is_refused() {
    let scratch = volume(3);
    let remedy = "VOLUME:/path";
    scratch.shoal(["rm", "-r", "t"]).fails(2, &["t", "not in a mounted Shoal volume", remedy]);
    scratch.shoal(["rm", "t/shared"]).fails(2, &["t/shared", remedy]);
    scratch.shoal(["rm", "-d", "t"]).fails(2, &["t", remedy]);
    scratch.shoal(["rm", "t"]).fails(1, &["t", "is a directory", "-r"]);
    scratch.shoal(["rm", "-r", "none"]).fails(1, &["none", "no such file"]);
    scratch.shoal(["rm", "-rf", "none"]).ok();
    scratch.shoal(["rm", "-r", "t/."]).fails(1, &["t/.", "must end in a name"]);
    assert!(scratch.path("t/shared").exists());
    for command in ["stats", "orphans"] {
        scratch.shoal([command, "t"]).fails(2, &["t", "not in a mounted Shoal volume"]);
        scratch.shoal([command, "none"]).fails(2, &["none"]);
        scratch.shoal([command, "t/shared"]).fails(2, &["t/shared"]);
    }
    scratch.shoal(["stats", "v", "--every", "1"]).fails(2, &["v", "not mounted"]);
    scratch.shoal(["subvolume", "create", "v", "r"]).ok();
    scratch.shoal(["rm", "-r", "v:/r"]).fails(1, &["v:/r", "shoal subvolume delete v r"]);
}

#[test]
fn a_deleted_subvolume_is_listed() {
    let scratch = Scratch::with_volume();
    plant(&scratch, "t", 4000);
    scratch.shoal(["subvolume", "create", "v", "r"]).ok();
    scratch.shoal(["cp", "-r", "t", "v:/r/"]).ok();
    scratch.shoal(["subvolume", "delete", "v", "r"]).ok();
    let left = scratch.shoal(["subvolume", "list", "v"]).ok();
    let listed = scratch.shoal(["orphans", "v"]).ok();
    assert_eq!(left.is_empty(), listed.is_empty(), "{left}\n{listed}");
    assert!(listed.is_empty() || listed.contains("  subvolume  "), "{listed}");
}

#[test]
fn a_tree_goes_through_its_mount() {
    let Some(scratch) = mounted() else { return };
    plant(&scratch, "m/t", 2000);
    fs::hard_link(scratch.path("m/t/shared"), scratch.path("m/kept")).expect("link");
    let mut open = fs::File::options().read(true).write(true).open(scratch.path("m/t/d0/e/f0"));
    let open = open.as_mut().expect("open");
    scratch.shoal(["rm", "m/t"]).fails(1, &["m/t", "is a directory", "-r"]);
    scratch.shoal(["rm", "-d", "m/t"]).fails(1, &["m/t", "not empty"]);
    scratch.shoal(["rm", "-r", "m"]).fails(1, &["m", "is a mount point"]);
    let told = scratch.shoal(["rm", "-rv", "m/t/"]).ok();
    assert_eq!(told, "m/t/: removed; its space is freed in the background\n");
    assert!(!scratch.path("m/t").exists());
    assert_eq!(scratch.shell("ls -A m; cat m/kept").ok(), "kept\ntext");
    // An open file stays.
    let mut data = Vec::new();
    open.read_to_end(&mut data).expect("read");
    assert_eq!(data, noise(0, 5000));
    open.write_all(b"more").expect("write");
    open.rewind().expect("seek");
    data.clear();
    open.read_to_end(&mut data).expect("read");
    assert_eq!(data.len(), 5004);
    scratch.shoal(["rm", "m/t"]).fails(1, &["m/t", "no such file"]);
    scratch.shoal(["rm", "-f", "m/t", "m/kept"]).ok();
    fs::create_dir(scratch.path("m/t")).expect("the name is free");
    scratch.shoal(["rm", "-d", "m/t"]).ok();
    assert_eq!(scratch.shell("ls -A m").ok(), "");
    // The reaper comes to the open file after the command has ended.
    let orphans = wait_for("an unlinked orphan", || {
        let orphans = scratch.shell("cd m && shoal orphans . --json").ok();
        orphans.contains(r#""kind":"unlinked""#).then_some(orphans)
    });
    assert!(orphans.contains(r#""held":true"#), "{orphans}");
    end_of(open);
    end(&scratch);
    assert_eq!(stat(&scratch, "v", "inodes"), 1);
}

/// Closes a file by emptying the variable that holds it.
fn end_of(file: &mut fs::File) {
    *file = fs::File::open("/dev/null").expect("open");
}

#[test]
fn who_may_not_removes_nothing() {
    let Some(scratch) = mounted() else { return };
    end(&scratch);
    // Other users must be able to reach the mount, and the command.
    let _ = std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_shoal"), scratch.path("shoal"));
    scratch.shoal(["mount", "v", "m", "-o", "allow_other"]).ok();
    plant(&scratch, "m/t", 100);
    scratch.shell("chmod 777 m && chown -R 61001:61001 m/t && chown 0:0 m/t/d4/e").ok();
    // Not by this process, whose children would have the copy open for writing (ETXTBSY).
    scratch.shell("cp $(command -v shoal) command").ok();
    let as_user = |line: &str| {
        let who = "setpriv --reuid 61001 --regid 61001 --clear-groups";
        scratch.shell(&format!("{who} ./command {line}"))
    };
    if as_user("--version").status() != Some(0) {
        skipped("no setpriv, or no way for others to here");
        end(&scratch);
        return;
    }
    let count = || scratch.shell("find m/t | wc -l").ok();
    let before = count();
    as_user("rm -r m/t").fails(1, &["m/t", "permission denied", "nothing was removed"]);
    as_user("rm -r --top-only m/t").fails(1, &["m/t", "superuser", "--top-only"]);
    as_user("orphans m").fails(1, &["m", "ask as root"]);
    assert!(as_user("stats m").ok().contains("detached"));
    let info = as_user("info m").ok();
    assert!(info.contains("available") && !info.contains("read-only"), "{info}");
    assert!(as_user("info m --json").ok().contains("\"segments_free\":"));
    assert_eq!(count(), before);
    scratch.shell("chown 61001:61001 m/t/d4/e").ok();
    as_user("rm -r m/t").ok();
    assert!(!scratch.path("m/t").exists());
    plant(&scratch, "m/t", 10);
    scratch.shoal(["rm", "-r", "--top-only", "m/t"]).ok();
    end(&scratch);
}

#[test]
fn stats_of_a_mount_count_both_ways() {
    let Some(scratch) = mounted() else { return };
    for n in 0..20_000 {
        let data = if n % 10 == 0 { vec![7; 4096] } else { Vec::new() };
        scratch.write(format!("m/t/{}/{n}", n % 50), data);
    }
    scratch.shell("rm -rf m/t").ok();
    let detached = stat(&scratch, "m", "detached");
    let slots = stat(&scratch, "m", "orphan_slots");
    assert!(detached + slots >= 20_051, "{detached} and {slots}");
    assert_eq!(stat(&scratch, "m", "detached_back"), 0);
    let json = scratch.shoal(["stats", "m", "--json"]).ok();
    assert!(json.starts_with(r#"{"counters":{"#) && json.contains(r#""now":{"#), "{json}");
    let repeated = scratch.shell("timeout 2.5 shoal stats m --every 1 --json");
    assert!(repeated.stdout().lines().count() >= 2, "{repeated}");
    assert!(Path::new(&scratch.path("v")).exists());
    end(&scratch);
}

#[test]
fn a_mount_of_one_root_shows_that_root() {
    let Some(scratch) = mounted() else { return };
    fs::write(scratch.path("m/elsewhere"), "x").expect("write");
    end(&scratch);
    scratch.shoal(["subvolume", "create", "v", "r"]).ok();
    scratch.shoal(["mount", "v", "m", "-o", "subvolume=r"]).ok();
    plant(&scratch, "m/t", 300);
    fs::create_dir(scratch.path("m/d")).expect("mkdir");
    let mut open = fs::File::create(scratch.path("m/d/open")).expect("create");
    open.write_all(&noise(1, 3000)).expect("write");
    scratch.shoal(["rm", "m/d/open"]).ok();
    scratch.shoal(["rm", "-r", "m/t"]).ok();
    assert_eq!(scratch.shell("ls -A m m/d").ok(), "m:\nd\n\nm/d:\n");
    let listed = scratch.shoal(["orphans", "m"]).ok();
    let line = listed.lines().find(|line| line.ends_with(" /d/open"));
    assert!(line.is_some_and(|line| line.contains(" yes ") && line.contains("3000")), "{listed}");
    end_of(&mut open);
    end(&scratch);
    assert_eq!(scratch.shoal(["ls", "v:/r"]).ok(), "d\n");
    assert_eq!(scratch.shoal(["cat", "v:/elsewhere"]).ok(), "x");
    // Where the whole volume is mounted a subvolume is like a mount point.
    scratch.shoal(["mount", "v", "m"]).ok();
    scratch
        .shoal(["rm", "-r", "m/r"])
        .fails(1, &["m/r", "is a subvolume", "shoal subvolume delete m r"]);
    scratch.shoal(["rm", "-r", "m/r/d"]).ok();
    // As the message says, and while it is mounted.
    scratch.shoal(["subvolume", "delete", "m", "r"]).ok();
    assert_eq!(scratch.shell("ls -A m").ok(), "elsewhere\n");
    end(&scratch);
}
