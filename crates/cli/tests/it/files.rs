//! `ls`, `stat`, `cat`, `find`, `mkdir`, `rm`, `mv` and `ln` on a volume that is not mounted.

use crate::common::{Scratch, noise};

/// A volume with a few files of every ordinary kind.
fn tree() -> Scratch {
    let scratch = Scratch::with_volume();
    scratch.write("t/one", "1\n");
    scratch.write("t/.hidden", "");
    scratch.write("t/sub/two", "22\n");
    scratch.write("t/sub/deep/three", "333\n");
    std::os::unix::fs::symlink("sub/two", scratch.path("t/link")).expect("symlink");
    scratch.shoal(["cp", "-r", "t", "v:/"]).ok();
    scratch
}

#[test]
fn ls_lists() {
    let scratch = tree();
    assert_eq!(scratch.shoal(["ls", "v"]).ok(), "t\n");
    assert_eq!(scratch.shoal(["ls", "v:/t"]).ok(), "link\none\nsub\n");
    assert_eq!(scratch.shoal(["ls", "v:/t/"]).ok(), "link\none\nsub\n");
    assert_eq!(scratch.shoal(["ls", "-a", "v:/t"]).ok(), ".\n..\n.hidden\nlink\none\nsub\n");
    assert_eq!(scratch.shoal(["ls", "-d", "v:/t"]).ok(), "v:/t\n");
    assert_eq!(scratch.shoal(["ls", "v:/t/one"]).ok(), "v:/t/one\n");
    let all = scratch.shoal(["ls", "-R", "v:/t"]).ok();
    assert_eq!(all, "v:/t:\nlink\none\nsub\n\nv:/t/sub:\ndeep\ntwo\n\nv:/t/sub/deep:\nthree\n");
    let unsorted = scratch.shoal(["ls", "-U", "v:/t"]).ok();
    let mut names: Vec<&str> = unsorted.lines().collect();
    names.sort_unstable();
    assert_eq!(names, ["link", "one", "sub"]);
    let long = scratch.shoal(["ls", "-l", "v:/t"]).ok();
    let rows: Vec<&str> = long.lines().collect();
    assert!(rows[0].starts_with("lrwxrwxrwx 1 ") && rows[0].ends_with(" link -> sub/two"));
    assert!(rows[1].starts_with("-rw") && rows[1].ends_with(" one"), "{long}");
    assert!(rows[2].starts_with("drwx"), "{long}");
}

#[test]
fn ls_goes_on_after_a_failure() {
    let scratch = tree();
    let ran = scratch.shoal(["ls", "v:/missing", "v:/t/sub/deep"]);
    ran.fails(1, &["v:/missing", "no such file"]);
    assert!(ran.stdout().ends_with("three\n"), "{ran}");
    scratch.shoal(["ls", "v:/t/one/"]).fails(1, &["v:/t/one/", "not a directory"]);
}

#[test]
fn json_has_one_object_a_line() {
    let scratch = tree();
    let json = scratch.shoal(["ls", "-R", "--json", "v:/t"]).ok();
    let lines: Vec<&str> = json.lines().collect();
    assert_eq!(lines.len(), 6, "{json}");
    for line in &lines {
        assert!(line.starts_with(r#"{"path":"/t/"#) && line.ends_with('}'), "{line}");
    }
    assert!(lines[0].contains(r#""type":"symlink""#) && lines[0].contains(r#""target":"sub/two""#));
    let stat = scratch.shoal(["stat", "--json", "v:/t/sub/two"]).ok();
    for part in [r#""name":"two""#, r#""type":"file""#, r#""size":3"#, r#""nlink":1"#] {
        assert!(stat.contains(part), "{part}: {stat}");
    }
}

#[test]
fn names_of_any_bytes_survive() {
    use std::os::unix::ffi::OsStrExt;
    let scratch = Scratch::with_volume();
    let name = std::ffi::OsStr::from_bytes(b"a\xff\n\x1b[31m");
    let longest = "x".repeat(255);
    std::fs::create_dir(scratch.path("d")).expect("mkdir");
    scratch.write(std::path::Path::new("d").join(name), "odd");
    scratch.write(format!("d/{longest}"), "long");
    scratch.shoal(["cp", "-r", "d", "v:/"]).ok();
    let json = scratch.shoal(["ls", "--json", "v:/d"]).ok();
    assert!(json.contains(r#""name_bytes":"61ff0a1b5b33316d""#), "{json}");
    let listed = scratch.shoal(["ls", "v:/d"]);
    assert!(listed.bytes().starts_with(name.as_bytes()), "{listed}");
    scratch.shoal(["cp", "-r", "v:/d", "e"]).ok();
    assert_eq!(scratch.shell("diff -r d e && echo same").ok(), "same\n");
    let too_long = format!("v:/{longest}y");
    scratch.shoal(["mkdir", &too_long]).fails(1, &["name longer than 255"]);
}

#[test]
fn stat_shows_or_follows_a_symlink() {
    let scratch = tree();
    let link = scratch.shoal(["stat", "v:/t/link"]).ok();
    assert!(link.contains("File: v:/t/link -> sub/two\n") && link.contains("symlink"), "{link}");
    let file = scratch.shoal(["stat", "-L", "v:/t/link"]).ok();
    assert!(file.contains("Type: file\n") && file.contains("Size: 3 "), "{file}");
    assert!(scratch.shoal(["stat", "v"]).ok().contains("Type: directory"));
}

#[test]
fn cat_writes_contents() {
    let scratch = tree();
    assert_eq!(scratch.shoal(["cat", "v:/t/one", "v:/t/link"]).ok(), "1\n22\n");
    let large = noise(5, 3_000_001);
    scratch.write("large", &large);
    scratch.shoal(["cp", "large", "v:/large"]).ok();
    assert!(scratch.shoal(["cat", "v:/large"]).bytes() == large, "contents differ");
    scratch.shoal(["cat", "v:/t"]).fails(1, &["v:/t", "is a directory"]);
    scratch.shoal(["cat", "v:/none"]).fails(1, &["v:/none", "no such file"]);
    // A reader that closes the pipe early is no failure.
    let head = scratch.shell("shoal cat v:/large | head -c 5 | wc -c");
    assert_eq!(head.ok().trim(), "5");
}

#[test]
fn find_filters_by_name_and_type() {
    let scratch = tree();
    let all = scratch.shoal(["find", "v"]).ok();
    let mut paths: Vec<&str> = all.lines().collect();
    paths.sort_unstable();
    let expected = [
        "/",
        "/t",
        "/t/.hidden",
        "/t/link",
        "/t/one",
        "/t/sub",
        "/t/sub/deep",
        "/t/sub/deep/three",
        "/t/sub/two",
    ];
    assert_eq!(paths, expected);
    assert_eq!(scratch.shoal(["find", "v:/", "-name", "t*ee"]).ok(), "/t/sub/deep/three\n");
    assert_eq!(scratch.shoal(["find", "v:/t", "--type", "l"]).ok(), "/t/link\n");
    let both = scratch.shoal(["find", "v:/t", "-type", "d", "-name", "[!s]*"]).ok();
    assert!(both == "/t\n/t/sub/deep\n", "{both}");
    assert_eq!(scratch.shoal(["find", "-0", "v:/t/one"]).ok(), "/t/one\0");
    let json = scratch.shoal(["find", "--json", "v:/t", "--name", "two"]).ok();
    assert!(json.contains(r#""path":"/t/sub/two""#), "{json}");
    scratch.shoal(["find", "v:/none"]).fails(1, &["v:/none"]);
}

#[test]
fn mkdir_makes_directories() {
    let scratch = Scratch::with_volume();
    scratch.shell("umask 027 && shoal mkdir v:/a").ok();
    assert!(scratch.shoal(["stat", "--json", "v:/a"]).ok().contains(r#""mode":"0750""#));
    scratch.shoal(["mkdir", "v:/a"]).fails(1, &["v:/a", "file exists"]);
    scratch.shoal(["mkdir", "v:/b/c"]).fails(1, &["v:/b/c", "no such file"]);
    scratch.shoal(["mkdir", "-p", "v:/b/c/d/", "v:/a"]).ok();
    scratch.shoal(["mkdir", "-p", "-m", "1777", "v:/tmp"]).ok();
    assert!(scratch.shoal(["ls", "-ld", "v:/tmp"]).ok().starts_with("drwxrwxrwt"));
    assert_eq!(scratch.shoal(["ls", "-R", "v:/b"]).ok(), "v:/b:\nc\n\nv:/b/c:\nd\n\nv:/b/c/d:\n");
    scratch.write("file", "");
    scratch.shoal(["cp", "file", "v:/file"]).ok();
    scratch.shoal(["mkdir", "-p", "v:/file/x"]).fails(1, &["v:/file/x", "not a directory"]);
    scratch.shoal(["mkdir", "-p", "v:/file"]).fails(1, &["v:/file", "file exists"]);
    scratch.shoal(["mkdir", "v:/"]).fails(1, &["v:/"]);
    scratch.shoal(["ln", "-s", "none", "v:/dangling"]).ok();
    scratch.shoal(["mkdir", "-p", "v:/dangling/x"]).fails(1, &["v:/dangling/x", "file exists"]);
}

#[test]
fn mkdir_makes_a_path_as_long_as_one_may_be() {
    let scratch = Scratch::with_volume();
    let deep = format!("v:/{}", ["name"; 800].join("/"));
    scratch.shoal(["mkdir", "-p", &deep]).ok();
    assert_eq!(scratch.shoal(["ls", "-d", &deep]).ok(), format!("{deep}\n"));
    // Longer than a path may be, though each name is there when the next is made.
    scratch.shoal(["mkdir", "-p", &format!("{deep}/{}", ["name"; 400].join("/"))]).ok();
    scratch.shoal(["rm", "-r", "v:/name"]).ok();
    scratch.shoal(["fsck", "v"]).ok();
}

#[test]
fn rm_removes() {
    let scratch = tree();
    scratch.shoal(["rm", "v:/t/one"]).ok();
    scratch.shoal(["rm", "v:/t/one"]).fails(1, &["v:/t/one", "no such file"]);
    scratch.shoal(["rm", "-f", "v:/t/one"]).ok();
    scratch.shoal(["rm", "v:/t/sub"]).fails(1, &["v:/t/sub", "is a directory", "-r"]);
    scratch.shoal(["rm", "-d", "v:/t/sub"]).fails(1, &["v:/t/sub", "not empty"]);
    let ran = scratch.shoal(["rm", "-r", "v:/none", "v:/t"]);
    ran.fails(1, &["v:/none"]);
    assert_eq!(scratch.shoal(["ls", "v"]).ok(), "", "the others are removed all the same");
    scratch.shoal(["rm", "-r", "v:/"]).fails(1, &["top directory"]);
    scratch.shoal(["rm", "-r", "v:/.."]).fails(1, &["v:/.."]);
    scratch.shoal(["fsck", "v"]).ok();
}

#[test]
fn rm_removes_large_and_deep_trees() {
    let scratch = Scratch::with_volume();
    for number in 0..3000 {
        scratch.write(format!("wide/{number:05}"), "");
    }
    scratch.shoal(["cp", "-r", "wide", "v:/"]).ok();
    assert_eq!(scratch.shoal(["ls", "v:/wide"]).ok().lines().count(), 3000);
    let deep = format!("v:{}", "/d".repeat(400));
    scratch.shoal(["mkdir", "-p", &deep]).ok();
    scratch.shoal(["rm", "-r", "v:/wide", "v:/d"]).ok();
    assert_eq!(scratch.shoal(["ls", "-a", "v"]).ok(), ".\n..\n");
    scratch.shoal(["fsck", "v"]).ok();
}

#[test]
fn mv_renames_and_moves() {
    let scratch = tree();
    scratch.shoal(["mv", "v:/t/one", "v:/t/uno"]).ok();
    scratch.shoal(["mv", "v:/t/uno", "v:/t/link", "v:/t/sub"]).ok();
    assert_eq!(scratch.shoal(["ls", "v:/t/sub"]).ok(), "deep\nlink\ntwo\nuno\n");
    scratch.shoal(["mv", "v:/t/sub/uno", "v:/t/sub/two"]).ok();
    assert_eq!(scratch.shoal(["cat", "v:/t/sub/two"]).ok(), "1\n");
    scratch.shoal(["mv", "-n", "v:/t/sub/two", "v:/t/sub/link"]).fails(1, &["file exists"]);
    scratch.shoal(["mv", "v:/t", "v:/t/sub"]).fails(1, &["v:/t", "into itself"]);
    scratch.shoal(["mv", "v:/none", "v:/x"]).fails(1, &["v:/none", "no such file"]);
    scratch.shoal(["mv", "v:/t", "w:/x"]).fails(2, &["w"]);
    scratch.shoal(["mv", "--exchange", "v:/t/sub/two", "v:/t/sub/deep/three"]).ok();
    assert_eq!(scratch.shoal(["cat", "v:/t/sub/two"]).ok(), "333\n");
    scratch.shoal(["fsck", "v"]).ok();
}

#[test]
fn ln_makes_links() {
    let scratch = tree();
    scratch.shoal(["ln", "v:/t/one", "v:/eins"]).ok();
    assert!(scratch.shoal(["stat", "--json", "v:/eins"]).ok().contains(r#""nlink":2"#));
    scratch.shoal(["ln", "v:/t/one", "v:/t/sub"]).ok();
    assert_eq!(scratch.shoal(["cat", "v:/t/sub/one"]).ok(), "1\n");
    scratch.shoal(["ln", "v:/t/one", "v:/eins"]).fails(1, &["v:/eins", "file exists"]);
    scratch.shoal(["ln", "-sf", "t/sub/two", "v:/eins"]).ok();
    assert_eq!(scratch.shoal(["cat", "v:/eins"]).ok(), "22\n");
    assert!(scratch.shoal(["stat", "--json", "v:/t/one"]).ok().contains(r#""nlink":2"#));
    scratch.shoal(["ln", "v:/t", "v:/dir"]).fails(1, &["v:/dir", "directory"]);
    scratch.shoal(["fsck", "v"]).ok();
}
