//! Quotas by the command: set, shown, listed, removed, and in the way of others.

use crate::common::{Scratch, noise};

fn with_tree() -> Scratch {
    let scratch = Scratch::with_volume();
    for number in 0..5 {
        scratch.write(format!("t/{number}"), noise(number, 10_000));
    }
    scratch.shoal(["mkdir", "v:/home"]).ok();
    scratch.shoal(["cp", "-r", "t", "v:/home/ann"]).ok();
    scratch
}

#[test]
fn quotas_are_set_shown_listed_and_removed() {
    let scratch = with_tree();
    assert_eq!(scratch.shoal(["quota", "list", "v"]).ok(), "");
    scratch.shoal(["quota", "set", "v:/home/ann", "--bytes", "100K", "--inodes", "8"]).ok();
    let line = "  50.0 KiB    100 KiB           6          8  /home/ann\n";
    assert_eq!(scratch.shoal(["quota", "list", "v"]).ok(), line);
    assert_eq!(scratch.shoal(["quota", "show", "v:/home/ann/3"]).ok(), line);
    let json = scratch.shoal(["quota", "show", "v:/home/ann", "--json"]).ok();
    let start = r#"{"path":"/home/ann","ino":"#;
    let end = r#""bytes":51200,"bytes_max":102400,"inodes":6,"inodes_max":8,"exact":true}"#;
    assert!(json.starts_with(start) && json.trim_end().ends_with(end), "{json}");
    // The other limit stays.
    scratch.shoal(["quota", "set", "v:/home/ann", "--bytes", "none"]).ok();
    let line = "  50.0 KiB          -           6          8  /home/ann\n";
    assert_eq!(scratch.shoal(["quota", "list", "v"]).ok(), line);
    scratch.shoal(["mkdir", "v:/home/ann/a", "v:/home/ann/b"]).ok();
    scratch.shoal(["mkdir", "v:/home/ann/c"]).fails(1, &["quota exceeded"]);
    assert!(scratch.shoal(["fsck", "v"]).ok().contains("clean"));
    scratch.shoal(["quota", "remove", "v:/home/ann"]).ok();
    scratch.shoal(["mkdir", "v:/home/ann/c"]).ok();
    assert_eq!(scratch.shoal(["quota", "list", "v"]).ok(), "");
    assert!(scratch.shoal(["fsck", "v"]).ok().contains("clean"));
}

#[test]
fn what_cannot_be_done_is_said() {
    let scratch = with_tree();
    scratch.shoal(["quota", "show", "v:/home"]).fails(1, &["v:/home: has no quota"]);
    scratch.shoal(["quota", "remove", "v:/home"]).fails(1, &["shoal quota list v"]);
    scratch
        .shoal(["quota", "set", "v:/home/ann/1", "--inodes", "1"])
        .fails(1, &["not a directory"]);
    let ran = scratch.shoal(["quota", "set", "v:/home", "--inodes", "many"]);
    assert_eq!(ran.status(), Some(2));
    assert!(ran.stderr().contains("is not a size"), "{ran}");
    // A limit of nothing: copying fails, and says why.
    scratch.shoal(["quota", "set", "v:/home", "--bytes", "0"]).ok();
    scratch.shoal(["cp", "t/1", "v:/home/new"]).fails(1, &["quota exceeded"]);
    // Files cross the border as a copy.
    scratch.shoal(["quota", "set", "v:/home", "--bytes", "1M"]).ok();
    scratch.shoal(["ln", "v:/home/ann/1", "v:/one"]).fails(1, &["quotas"]);
}

#[test]
fn quotas_of_a_mounted_volume() {
    let Some(scratch) = Scratch::to_mount() else { return };
    scratch.shoal(["mount", "v", "m", "-o", "allow_other"]).ok();
    scratch
        .shell("chmod 755 m; mkdir -p m/home/ann && head -c 10000 /dev/zero > m/home/ann/1")
        .ok();
    assert_eq!(scratch.shoal(["quota", "list", "m"]).ok(), "");
    scratch.shoal(["quota", "show", "m/home"]).fails(1, &["m/home", "has no quota"]);
    scratch.shoal(["quota", "set", "m/home/ann", "--bytes", "100K", "--inodes", "3"]).ok();
    let line = "  10.0 KiB    100 KiB           2          3  /home/ann\n";
    assert_eq!(scratch.shoal(["quota", "list", "m"]).ok(), line);
    assert_eq!(scratch.shoal(["quota", "show", "m/home/ann/1"]).ok(), line);
    scratch.shell("touch m/home/ann/2").ok();
    assert_ne!(scratch.shell("touch m/home/ann/3").status(), Some(0));
    scratch.shoal(["quota", "set", "m/home/ann", "--inodes", "none"]).ok();
    scratch.shell("touch m/home/ann/3").ok();
    // Ordinary users see what they are in, and change nothing.
    let user = "setpriv --reuid 1234 --clear-groups shoal quota";
    let shown = scratch.shell(&format!("{user} show m/home/ann/1")).ok();
    assert!(shown.contains("100 KiB           4          -  #"), "{shown}");
    let only_root = ["m/home/ann", "only root"];
    scratch.shell(&format!("{user} set m/home/ann --bytes 1")).fails(1, &only_root);
    scratch.shell(&format!("{user} remove m/home/ann")).fails(1, &only_root);
    assert_eq!(scratch.shell(&format!("{user} list m")).status(), Some(1));
    scratch.shoal(["quota", "set", "m/home/ann/1", "--inodes", "1"]).fails(1, &["not a directory"]);
    scratch.shoal(["quota", "remove", "m/home"]).fails(1, &["has no quota"]);
    scratch.shoal(["quota", "remove", "m/home/none"]).fails(1, &["no such file"]);
    scratch.shoal(["quota", "remove", "m/home/ann"]).ok();
    assert_eq!(scratch.shoal(["quota", "list", "m"]).ok(), "");
    scratch.umount("m");
    assert!(scratch.shoal(["fsck", "v"]).ok().contains("clean"));
}

/// The use that is kept, beside a count.
#[test]
fn kept_totals_are_those_of_a_count() {
    let scratch = with_tree();
    scratch.shoal(["quota", "set", "v:/home/ann", "--bytes", "none"]).ok();
    scratch.shoal(["mkdir", "v:/home/bob"]).ok();
    scratch.shoal(["cp", "t/1", "v:/home/bob/1"]).ok();
    let same = |places: &[&str], options: &[&str]| {
        let du =
            |more: &[&str]| scratch.shoal([&["du", "-s"], options, more, places].concat()).ok();
        assert_eq!(du(&["--kept"]), du(&[]), "{options:?} {places:?}");
    };
    for options in [&[][..], &["--inodes"], &["-hc"], &["-B", "512"]] {
        same(&["v:/home/ann"], options);
        // Without a quota, and in another place.
        same(&["v:/home/ann", "v:/home/bob"], options);
        same(&["v:/home", "v:/home/ann"], options);
        same(&["v:/home/ann/1"], options);
    }
    assert_eq!(scratch.shoal(["du", "--kept", "v:/home/ann"]).status(), Some(2));
    if !shoal_skip::can_mount() {
        return;
    }
    scratch.shell("mkdir m && shoal mount v m").ok();
    same(&["m/home/ann", "m/home/bob"], &["-c"]);
    // Counted as long as it is open.
    let open = "exec 3< m/home/ann/1 && rm m/home/ann/1 && shoal du -s --inodes --kept m/home/ann";
    assert_eq!(scratch.shell(open).ok(), "6\tm/home/ann\n");
    scratch.umount("m");
    same(&["v:/home/ann"], &["--inodes"]);
}
