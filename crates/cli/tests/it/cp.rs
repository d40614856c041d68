//! `shoal cp` in both directions: what is kept, what is overwritten, what is refused.

use crate::common;

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, symlink};
use std::process::Stdio;

use crate::common::{FACTS_OF_DIRECTORIES_LESS, Scratch, noise, rich_tree};
use shoal_skip::{is_root, wait_until};

/// Everything `find` can tell of each file: type, mode, owner, size, links, time, target.
const FACTS: &str = "find . -printf '%P %y %m %U %G %s %n %T@ %l\\n' | sort";

#[test]
fn a_tree_goes_in_and_comes_out_the_same() {
    let scratch = Scratch::with_volume();
    rich_tree(&scratch);
    scratch.shoal(["cp", "-r", "t", "v:/"]).ok();
    scratch.shoal(["fsck", "v"]).ok();
    scratch.shoal(["cp", "-r", "v:/t", "out"]).ok();
    let facts = |directory: &str| {
        scratch.shell(&format!("cd {directory} && {FACTS_OF_DIRECTORIES_LESS}")).ok()
    };
    assert_eq!(facts("out"), facts("t"));
    let same = "for f in $(cd t && find . -type f); do cmp t/$f out/$f || exit 1; done";
    scratch.shell(same).ok();
    let sparse = fs::metadata(scratch.path("out/sparse")).expect("sparse");
    assert!(sparse.blocks() * 512 < 10 << 20, "holes were filled: {} blocks", sparse.blocks());
    let links = |name: &str| fs::metadata(scratch.path(name)).expect("a file").ino();
    assert_eq!(links("out/small"), links("out/sub/same"));
    assert_eq!(links("out/small"), links("out/sub/deep/same"));
    if is_root() {
        let rdev = |name: &str| fs::metadata(scratch.path(name)).expect("a device").rdev();
        assert_eq!(rdev("out/null"), rdev("t/null"));
        assert_eq!(rdev("out/disk"), rdev("t/disk"));
    }
}

#[test]
fn within_a_volume_and_between_volumes() {
    let scratch = Scratch::with_volume();
    scratch.shoal(["mkfs", "w", "--size", common::SIZE]).ok();
    rich_tree(&scratch);
    scratch.shoal(["cp", "-r", "t", "v:/"]).ok();
    scratch.shoal(["cp", "-r", "v:/t", "v:/u"]).ok();
    scratch.shoal(["cp", "-r", "v:/u", "w:/"]).ok();
    scratch.shoal(["cp", "-r", "w:/u", "out"]).ok();
    let facts = |directory: &str| {
        scratch.shell(&format!("cd {directory} && {FACTS_OF_DIRECTORIES_LESS}")).ok()
    };
    assert_eq!(facts("out"), facts("t"));
    scratch.shoal(["fsck", "v"]).ok();
    scratch.shoal(["fsck", "w"]).ok();
}

#[test]
fn copying_again_changes_nothing() {
    let scratch = Scratch::with_volume();
    rich_tree(&scratch);
    scratch.shoal(["cp", "-r", "t", "out"]).fails(2, &["volume"]);
    scratch.shoal(["cp", "-r", "t", "v:/"]).ok();
    let list = || scratch.shell("shoal ls -laR v:/t").ok();
    let before = list();
    scratch.shoal(["cp", "-r", "t", "v:/"]).ok();
    assert_eq!(list(), before);
    scratch.shoal(["cp", "-r", "v:/t/.", "out"]).ok();
    let facts = || scratch.shell(&format!("cd out && {FACTS}")).ok();
    let before = facts();
    scratch.shoal(["cp", "-r", "v:/t/.", "out"]).ok();
    assert_eq!(facts(), before);
}

#[test]
fn the_destination_decides_the_name() {
    let scratch = Scratch::with_volume();
    scratch.write("a", "a");
    scratch.write("b", "b");
    scratch.write("d/e", "e");
    scratch.shoal(["cp", "a", "v:/x"]).ok();
    scratch.shoal(["cp", "a", "b", "v:/"]).ok();
    scratch.shoal(["cp", "-r", "d", "v:/new"]).ok();
    scratch.shoal(["cp", "-r", "d/", "v:/"]).ok();
    scratch.shoal(["cp", "-r", "d/.", "v:/merged"]).ok();
    scratch.shoal(["cp", "-rT", "d", "v:/merged"]).ok();
    let tree = scratch.shoal(["find", "v"]).ok();
    let mut paths: Vec<&str> = tree.lines().collect();
    paths.sort_unstable();
    let expected = ["/", "/a", "/b", "/d", "/d/e", "/merged", "/merged/e", "/new", "/new/e", "/x"];
    assert_eq!(paths, expected);
    scratch.shoal(["cp", "a", "b", "v:/x"]).fails(2, &["v:/x", "not a directory"]);
    scratch.shoal(["cp", "a", "v:/no/such"]).fails(1, &["v:/no/such", "no such file"]);
    scratch.shoal(["cp", "a", "v:/nodir/"]).fails(1, &["v:/nodir/", "not a directory"]);
    scratch.shoal(["cp", "v:/a", "v:/b", "out"]).fails(2, &["out", "not a directory"]);
    scratch.shoal(["cp", "v:/x", "."]).ok();
    assert_eq!(fs::read(scratch.path("x")).expect("read"), b"a");
}

#[test]
fn a_local_name_with_a_colon_is_still_reachable() {
    let scratch = Scratch::with_volume();
    scratch.write("odd:/file", "odd");
    scratch.shoal(["cp", "-r", "./odd:/file", "v:/"]).ok();
    scratch.shoal(["cp", "./v:/file", "out"]).ok();
    assert_eq!(fs::read(scratch.path("out")).expect("read"), b"odd");
    scratch.shoal(["cp", "odd:/file", "v:/"]).fails(2, &["odd"]);
}

#[test]
fn files_are_overwritten_and_kinds_are_respected() {
    let scratch = Scratch::with_volume();
    scratch.write("long", noise(1, 300_000));
    scratch.write("short", "short");
    scratch.write("d/short", "in d");
    scratch.shoal(["cp", "long", "v:/f"]).ok();
    scratch.shoal(["cp", "short", "v:/f"]).ok();
    assert_eq!(scratch.shoal(["cat", "v:/f"]).ok(), "short");
    // A second name keeps what it has.
    scratch.shoal(["ln", "v:/f", "v:/g"]).ok();
    scratch.shoal(["cp", "long", "v:/f"]).ok();
    assert_eq!(scratch.shoal(["cat", "v:/g"]).ok(), "short");
    scratch.shoal(["mkdir", "v:/short"]).ok();
    scratch.shoal(["cp", "-T", "short", "v:/short"]).fails(1, &["v:/short", "is a directory"]);
    scratch.shoal(["cp", "-rT", "d", "v:/f"]).fails(1, &["v:/f", "not a directory"]);
    let ran = scratch.shoal(["cp", "d", "short", "v:/"]);
    assert_eq!(ran.status(), Some(1), "{ran}");
    assert!(ran.stderr().contains("shoal: d: is a directory (copy it with -r)"), "{ran}");
}

#[test]
fn symlinks_in_the_way_are_not_written_through_below() {
    let scratch = Scratch::with_volume();
    scratch.write("d/f", "new");
    scratch.shoal(["mkdir", "v:/d"]).ok();
    scratch.write("victim", "precious");
    scratch.shoal(["cp", "victim", "v:/victim"]).ok();
    scratch.shoal(["ln", "-s", "/victim", "v:/d/f"]).ok();
    scratch.shoal(["cp", "-r", "d", "v:/"]).ok();
    assert_eq!(scratch.shoal(["cat", "v:/victim"]).ok(), "precious");
    assert_eq!(scratch.shoal(["cat", "v:/d/f"]).ok(), "new");
    // The operand itself is followed.
    scratch.shoal(["ln", "-s", "victim", "v:/link"]).ok();
    scratch.shoal(["cp", "d/f", "v:/link"]).ok();
    assert_eq!(scratch.shoal(["cat", "v:/victim"]).ok(), "new");
    scratch.shoal(["ln", "-s", "nowhere", "v:/dangling"]).ok();
    scratch.shoal(["cp", "d/f", "v:/dangling"]).fails(1, &["v:/dangling", "leads nowhere"]);
}

#[test]
fn a_symlink_operand_is_followed_without_r() {
    let scratch = Scratch::with_volume();
    scratch.write("f", "contents");
    symlink("f", scratch.path("l")).expect("symlink");
    scratch.shoal(["cp", "l", "v:/plain"]).ok();
    scratch.shoal(["cp", "-r", "l", "v:/link"]).ok();
    assert!(scratch.shoal(["ls", "-l", "v:/plain"]).ok().starts_with("-rw"));
    assert!(scratch.shoal(["ls", "-l", "v:/link"]).ok().trim_end().ends_with("-> f"));
}

#[test]
fn nothing_is_copied_into_itself() {
    let scratch = Scratch::with_volume();
    scratch.write("d/f", "f");
    scratch.shoal(["cp", "-r", "d", "v:/"]).ok();
    scratch.shoal(["cp", "-r", "v:/d", "v:/d"]).fails(1, &["v:/d", "into itself"]);
    scratch.shoal(["cp", "-r", "v:/d", "v:/d/below"]).fails(1, &["v:/d", "into itself"]);
    scratch.shoal(["cp", "-r", "v:/", "v:/d"]).fails(1, &["v:/", "into itself"]);
    scratch.shoal(["cp", "v:/d/f", "v:/d/f"]).fails(1, &["same file"]);
    // The directory that holds the volume: everything but the volume.
    scratch.shoal(["cp", "-r", ".", "v:/all"]).fails(1, &["v", "the volume itself"]);
    assert_eq!(scratch.shoal(["ls", "v:/all"]).ok(), "d\n");
    scratch.shoal(["cp", "v:/d/f", "v"]).fails(2, &["v", "the volume itself"]);
    scratch.shoal(["fsck", "v"]).ok();
}

#[test]
fn copying_goes_on_after_a_failure() {
    let scratch = Scratch::with_volume();
    scratch.write("a", "a");
    scratch.write("z", "z");
    let ran = scratch.shoal(["cp", "a", "missing", "z", "v:/"]);
    ran.fails(1, &["missing: no such file or directory"]);
    assert_eq!(scratch.shoal(["ls", "v"]).ok(), "a\nz\n");
    let ran = scratch.shoal(["cp", "v:/a", "v:/none", "v:/z", "."]);
    ran.fails(1, &["v:/none: no such file or directory"]);
}

#[test]
fn verbose_names_each_file_and_a_pipe_sees_no_progress() {
    let scratch = Scratch::with_volume();
    scratch.write("d/f", "f");
    let said = scratch.shoal(["cp", "-rv", "d", "v:/"]).ok();
    assert_eq!(said, "'d' -> 'v:/d'\n'd/f' -> 'v:/d/f'\n");
    assert_eq!(scratch.shoal(["cp", "-r", "d", "v:/"]).ok(), "");
}

#[test]
fn many_files_and_large_directories() {
    let scratch = Scratch::with_volume();
    for number in 0..5000u64 {
        scratch.write(format!("t/{}/{number}", number % 7), noise(number, (number % 300) as usize));
    }
    scratch.shoal(["cp", "-r", "t", "v:/"]).ok();
    scratch.shoal(["fsck", "v"]).ok();
    scratch.shoal(["cp", "-r", "v:/t", "out"]).ok();
    assert_eq!(scratch.shell("diff -r t out && echo same").ok(), "same\n");
}

/// Ctrl-C lost everything: a copy ends by closing the volume, and says how far it came.
#[test]
fn an_interrupted_copy_keeps_what_it_has_copied() {
    let scratch = Scratch::with_volume();
    for number in 0..3000u64 {
        scratch.write(format!("tree/{number:04}"), noise(number, 20_000));
    }
    scratch.write("large", noise(7, 150 << 20));
    for (name, status) in [("INT", 130), ("TERM", 143)] {
        let volume = format!("{name}.img");
        scratch.shoal(["mkfs", &volume, "--size", "1G"]).ok();
        let mut copy = scratch.command(["cp", "-rv", "tree", "large", &format!("{volume}:/")]);
        let mut copy = copy.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("start");
        // Not before it is at work: before that, there is nothing to keep.
        let mut lines = BufReader::new(copy.stdout.take().expect("a pipe")).lines();
        for _ in 0..100 {
            lines.next().expect("a line").expect("a line");
        }
        scratch.shell(&format!("kill -{name} {}", copy.id())).ok();
        let last = lines.map(|line| line.expect("a line")).last().expect("more lines");
        let output = copy.wait_with_output().expect("wait");
        let error = String::from_utf8(output.stderr).expect("UTF-8");
        assert_eq!(output.status.code(), Some(status), "{error}");
        assert!(error.starts_with("shoal: interrupted: "), "{error}");
        assert!(error.contains(" copied; completed changes are on disk"), "{error}");
        let said: u64 = error.split(' ').nth(2).and_then(|n| n.parse().ok()).expect("a number");
        assert!((100..3002).contains(&said), "{error}");
        let info = scratch.shoal(["info", &volume]).ok();
        assert!(info.contains("closed          yes"), "{info}");
        let found = scratch.shoal(["ls", &format!("{volume}:/tree")]).ok();
        let found: Vec<&str> = found.lines().collect();
        // The directory itself counts, too.
        assert!(found.len() as u64 == said || found.len() as u64 + 1 == said, "{error}: {last}");
        for name in [found[0], found[found.len() / 2], found[found.len() - 1]] {
            let number = name.parse().expect("a number");
            let kept = scratch.shoal(["cat", &format!("{volume}:/tree/{name}")]);
            assert!(kept.bytes() == noise(number, 20_000), "{name}");
        }
        scratch.shoal(["fsck", &volume]).ok();
    }
}

/// A file that is not whole does not stay.
#[test]
fn an_interrupted_copy_of_a_large_file() {
    let scratch = Scratch::new();
    scratch.shoal(["mkfs", "v", "--size", "1G"]).ok();
    scratch.shell("head -c 400M /dev/zero >large").ok();
    // Until one is interrupted in the midst of it.
    wait_until("an interrupted copy", || {
        let copy = scratch.command(["cp", "large", "v:/"]).stderr(Stdio::piped()).spawn();
        let copy = copy.expect("start");
        wait_until("a copy that has read something", || {
            let counts = fs::read_to_string(format!("/proc/{}/io", copy.id())).unwrap_or_default();
            let read = counts.lines().find_map(|line| line.strip_prefix("rchar: "));
            // None: it has ended.
            read.is_none_or(|read| read.parse().unwrap_or(0) > 8u64 << 20)
        });
        scratch.shell(&format!("kill -INT {}", copy.id()));
        let output = copy.wait_with_output().expect("wait");
        if output.status.code() == Some(130) {
            let error = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(error.starts_with("shoal: interrupted: 0 files, "), "{error}");
            assert_eq!(scratch.shoal(["ls", "v:/"]).ok(), "");
            return true;
        }
        if output.status.success() {
            scratch.shoal(["rm", "v:/large"]).ok();
        }
        false
    });
    scratch.shoal(["fsck", "v"]).ok();
}
