//! Subvolumes by the command: made, listed, used as directories, deleted at once, freed in the
//! background.

use std::io::Read;
use std::process::Stdio;

use crate::common::{Scratch, noise};

/// A volume with a subvolume `a` that holds `count` small files in `t`, and an empty one `b`.
fn two_subvolumes(count: u64) -> Scratch {
    let scratch = Scratch::with_volume();
    scratch.shoal(["subvolume", "create", "v", "a"]).ok();
    scratch.shoal(["subvolume", "create", "v", "b", "--mode", "1750"]).ok();
    for number in 0..count {
        scratch.write(format!("t/{number}"), noise(number, 100));
    }
    scratch.shoal(["cp", "-r", "t", "v:/a"]).ok();
    scratch
}

#[test]
fn subvolumes_are_made_listed_and_deleted() {
    let scratch = two_subvolumes(10);
    assert!(scratch.shoal(["ls", "-l", "v"]).ok().contains("drwxr-x--T"));
    let list = "    1           12  a\n    2            1  b\n";
    assert_eq!(scratch.shoal(["subvolume", "list", "v"]).ok(), list);
    let json = scratch.shoal(["subvolume", "list", "v", "--json"]).ok();
    let first = r#"{"number":1,"name":"a","top":281474976710657,"inodes":12,"deleted":false}"#;
    assert_eq!(json.lines().next(), Some(first));
    assert!(scratch.shoal(["info", "v"]).ok().contains("subvolumes      2\n"));
    let said = scratch.shoal(["subvolume", "delete", "v", "a"]).ok();
    assert_eq!(said, "v:/a: deleted; its space is freed when the volume is next used\n");
    assert_eq!(scratch.shoal(["ls", "v"]).ok(), "b\n");
    let said = scratch.shoal(["subvolume", "delete", "v", "b", "--wait"]).ok();
    assert_eq!(said, "v:/b: deleted, and its space is free\n");
    // That waited for what had been deleted before, too.
    assert_eq!(scratch.shoal(["subvolume", "list", "v"]).ok(), "");
    let info = scratch.shoal(["info", "v", "--json"]).ok();
    assert!(info.contains(r#""subvolumes":0,"subvolumes_deleted":0"#), "{info}");
    assert!(info.contains(r#""inodes":1,"#), "{info}");
    assert!(scratch.shoal(["fsck", "v"]).ok().contains("clean"));
    // The command's older name.
    scratch.shoal(["root", "create", "v", "a"]).ok();
    assert_eq!(scratch.shoal(["root", "list", "v"]).ok(), "    1            1  a\n");
    assert!(!scratch.shoal(["--help"]).ok().contains("\n  root"), "the alias is hidden");
}

#[test]
fn subvolumes_are_directories_to_everything_else() {
    let scratch = two_subvolumes(50);
    scratch.shoal(["cp", "-r", "v:/a/t", "out"]).ok();
    assert_eq!(scratch.shell("diff -r t out && echo same").ok(), "same\n");
    scratch.shoal(["cp", "-r", "v:/a/t", "v:/b/"]).ok();
    scratch.shoal(["cp", "-r", "v:/b/t", "v:/t"]).ok();
    for place in ["v:/a/t", "v:/b/t", "v:/t"] {
        assert_eq!(scratch.shoal(["ls", place]).ok().lines().count(), 50, "{place}");
    }
    scratch.shoal(["ln", "v:/a/t/1", "v:/a/one"]).ok();
    scratch.shoal(["ln", "-s", "../a/one", "v:/b/one"]).ok();
    assert!(scratch.shoal(["cat", "v:/b/one"]).bytes() == noise(1, 100), "through a symlink");
    scratch.shoal(["mv", "v:/a/one", "v:/a/t/../uno"]).ok();
    assert_eq!(scratch.shoal(["find", "v", "--name", "uno"]).ok(), "/a/uno\n");
    scratch.shoal(["rm", "-r", "v:/a/t", "v:/b/t"]).ok();
    assert!(scratch.shoal(["fsck", "v"]).ok().contains("clean"));
}

#[test]
fn nothing_crosses_and_tops_stay() {
    let scratch = two_subvolumes(3);
    for line in ["rm -r v:/a", "rm -rf v:/a/", "rm -d v:/b", "rm v:/a"] {
        let ran = scratch.shoal(line.split(' '));
        ran.fails(1, &["is a subvolume", "shoal subvolume delete v"]);
    }
    assert_eq!(scratch.shoal(["ls", "v:/a/t"]).ok(), "0\n1\n2\n", "rm has removed nothing");
    scratch.shoal(["mv", "v:/a", "v:/c"]).fails(1, &["v:/a", "the top of a subvolume"]);
    scratch.shoal(["mkdir", "v:/d"]).ok();
    scratch.shoal(["mv", "-T", "v:/d", "v:/a"]).fails(1, &["v:/d", "the top of a subvolume"]);
    scratch.shoal(["mv", "v:/a/t/0", "v:/b"]).fails(1, &["v:/a/t/0", "another subvolume", "cp -r"]);
    scratch
        .shoal(["ln", "v:/a/t/0", "v:/b/x"])
        .fails(1, &["v:/b/x", "one subvolume to another", "-s"]);
    scratch.shoal(["mkdir", "v:/a"]).fails(1, &["v:/a", "file exists"]);
}

#[test]
fn what_cannot_be_is_said_in_a_line_with_a_remedy() {
    let scratch = two_subvolumes(1);
    scratch.shoal(["mkdir", "v:/d"]).ok();
    let subvolume = |command: &str, name: &str| scratch.shoal(["subvolume", command, "v", name]);
    subvolume("create", "a").fails(1, &["v:/a", "file exists", "another name"]);
    subvolume("create", "d").fails(1, &["v:/d", "file exists"]);
    subvolume("create", &"x".repeat(256)).fails(2, &["v: ", "longer than 255", "shorter"]);
    subvolume("create", &"x".repeat(255)).ok();
    for name in ["", ".", "..", "x/y", "/"] {
        subvolume("create", name).fails(2, &["v: ", &format!("'{name}' cannot be"), "without '/'"]);
        subvolume("delete", name).fails(2, &["v: ", &format!("'{name}' cannot be")]);
    }
    subvolume("delete", "none")
        .fails(1, &["v:/none", "no such subvolume", "shoal subvolume list v"]);
    subvolume("delete", "d").fails(1, &["v:/d", "is not a subvolume", "shoal rm -r v:/d"]);
    for line in
        ["subvolume", "subvolume frobnicate", "subvolume create v", "subvolume create v x --mode 9"]
    {
        let ran = scratch.shoal(line.split(' '));
        assert_eq!(ran.status(), Some(2), "{ran}");
    }
    for line in ["subvolume create w x", "subvolume list w", "subvolume delete w x"] {
        scratch.shoal(line.split(' ')).fails(2, &["w"]);
    }
    assert!(scratch.shoal(["fsck", "v"]).ok().contains("clean"));
}

#[test]
fn a_volume_in_use_is_refused() {
    let scratch = two_subvolumes(1);
    // More than a pipe holds, so that cat waits with the volume open.
    scratch.write("file", noise(3, 4 << 20));
    scratch.shoal(["cp", "file", "v:/a/"]).ok();
    let mut holder =
        scratch.command(["cat", "v:/a/file"]).stdout(Stdio::piped()).spawn().expect("start cat");
    let mut output = holder.stdout.take().expect("a pipe");
    output.read_exact(&mut [0; 1]).expect("cat has begun");
    scratch.shoal(["subvolume", "create", "v", "c"]).fails(2, &["v", "in use", "unmount"]);
    scratch.shoal(["subvolume", "delete", "v", "a"]).fails(2, &["v", "in use"]);
    // To look does no harm.
    assert_eq!(scratch.shoal(["subvolume", "list", "v"]).ok().lines().count(), 2);
    drop(output);
    holder.wait().expect("wait");
}

#[test]
fn a_large_subvolume_is_freed_behind_over_several_uses() {
    let scratch = two_subvolumes(4000);
    scratch.shoal(["subvolume", "delete", "v", "a"]).ok();
    let mut rounds = 0;
    // Each use of the volume that may change it goes on where the one before has stopped.
    while scratch.shoal(["info", "v"]).ok().contains("being freed") {
        scratch.shoal(["mkdir", "-p", "v:/b/d"]).ok();
        rounds += 1;
        assert!(rounds < 100, "never done");
    }
    assert_eq!(scratch.shoal(["subvolume", "list", "v"]).ok(), "    2            2  b\n");
    assert!(scratch.shoal(["fsck", "v"]).ok().contains("clean"));
}
