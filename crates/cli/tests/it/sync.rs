//! `shoal sync` of two directories: what is copied, what stays, and what a mark saves.

use crate::common;

use std::fs;
use std::os::unix::fs::MetadataExt;

use crate::common::{FACTS_OF_DIRECTORIES_LESS, Scratch, noise, rich_tree};
use shoal_skip::{is_root, tick};

fn facts(scratch: &Scratch, directory: &str) -> String {
    scratch.shell(&format!("cd {directory} && {FACTS_OF_DIRECTORIES_LESS}")).ok()
}

/// Asserts that a directory of a volume is the same as one of the host.
#[track_caller]
fn same(scratch: &Scratch, place: &str, directory: &str) {
    scratch.shell("rm -rf copy").ok();
    scratch.shoal(["cp", "-rT", place, "copy"]).ok();
    assert_eq!(facts(scratch, "copy"), facts(scratch, directory));
    let line = format!(
        "cd {directory} && find . -type f -print0 | xargs -0 -I% cmp % ../copy/% && find . | wc -l"
    );
    let count = scratch.shell(&line).ok();
    assert_eq!(scratch.shell("cd copy && find . | wc -l").ok(), count);
}

/// Runs a sync; returns its lines, sorted, without the last, which says what was compared.
#[track_caller]
fn sync(scratch: &Scratch, options: &str) -> (Vec<String>, String) {
    let out = scratch.shoal(format!("sync -v {options}").split_whitespace()).ok();
    let mut lines: Vec<String> = out.lines().map(str::to_owned).collect();
    let way = lines.pop().expect("a last line");
    lines.sort();
    (lines, way)
}

const ALL: &str = "compared: everything";
const CHANGES: &str = "compared: files changed since the last sync";

#[test]
fn a_tree_becomes_the_same_and_stays_it() {
    let scratch = Scratch::with_volume();
    rich_tree(&scratch);
    scratch.shoal(["sync", "t", "v:/t"]).ok();
    same(&scratch, "v:/t", "t");
    scratch.shoal(["fsck", "v"]).ok();
    assert_eq!(sync(&scratch, "t v:/t"), (vec![], ALL.into()));
    assert_eq!(sync(&scratch, "--checksum --delete t v:/t"), (vec![], ALL.into()));
    // Back, and within the volume.
    scratch.shoal(["sync", "v:/t", "out"]).ok();
    assert_eq!(facts(&scratch, "out"), facts(&scratch, "t"));
    let inode = |name: &str| fs::metadata(scratch.path(name)).expect("a file").ino();
    assert_eq!(inode("out/small"), inode("out/sub/same"));
    let sparse = fs::metadata(scratch.path("out/sparse")).expect("sparse");
    assert!(sparse.blocks() * 512 < 10 << 20, "holes were filled: {} blocks", sparse.blocks());
    scratch.shoal(["sync", "v:/t", "v:/u"]).ok();
    same(&scratch, "v:/u", "t");
    assert_eq!(sync(&scratch, "--full out v:/u"), (vec![], ALL.into()));
    scratch.shoal(["fsck", "v"]).ok();
}

#[test]
fn what_differs_is_replaced_and_nothing_else() {
    let scratch = Scratch::with_volume();
    for name in ["same", "grown", "touched", "mode", "kind", "sub/a", "sub/b"] {
        scratch.write(format!("t/{name}"), name);
    }
    scratch.shell("ln t/same t/hard; ln -s same t/link; mkfifo t/pipe; mkdir t/empty").ok();
    scratch.shoal(["sync", "t", "v:/t"]).ok();
    scratch.write("t/grown", "grown more");
    scratch.shell("touch -d 2001-02-03 t/touched; chmod 600 t/mode; ln -sf grown t/link").ok();
    scratch.shell("rm t/kind; mkdir t/kind; touch t/kind/x; ln t/sub/a t/sub/c; rm t/sub/b").ok();
    scratch.shell("rm -r t/empty; ln -f t/grown t/hard; chmod 700 t/sub").ok();
    let expected = [
        "attributes mode",
        "attributes sub",
        "create kind",
        "create kind/x",
        "delete kind",
        "link hard",
        "link sub/c",
        "update grown",
        "update link",
        "update touched",
    ];
    let planned = scratch.shoal(["sync", "-n", "t", "v:/t"]).ok();
    assert!(planned.contains("update grown\n") && planned.contains("create sub/c\n"), "{planned}");
    let before = scratch.shoal(["ls", "-laR", "v:/t"]).ok();
    assert_eq!(scratch.shoal(["ls", "-laR", "v:/t"]).ok(), before, "a dry run changes nothing");
    let (lines, _) = sync(&scratch, "t v:/t");
    // Which of two names is made, and which is linked to it, depends on their order.
    let names = ["hard", "grown", "sub/a", "sub/c"];
    let is_linked = |line: &str| !names.iter().any(|name| line.ends_with(&format!(" {name}")));
    let without = |lines: &[String]| -> Vec<String> {
        lines.iter().filter(|line| is_linked(line)).cloned().collect()
    };
    let expected: Vec<String> = expected.iter().map(|line| (*line).to_owned()).collect();
    assert_eq!(without(&lines), without(&expected));
    // Without --delete, what is only there stays.
    assert_eq!(scratch.shoal(["cat", "v:/t/sub/b"]).ok(), "sub/b");
    let (mut lines, _) = sync(&scratch, "--delete t v:/t");
    lines.sort();
    assert_eq!(lines, ["delete sub/b", "delete-tree empty"]);
    same(&scratch, "v:/t", "t");
    assert_eq!(sync(&scratch, "--delete t v:/t").0, Vec::<String>::new());
    // A directory with files in place of a file.
    scratch.shell("rm -r t/kind && echo file > t/kind").ok();
    scratch.shoal(["sync", "t", "v:/t"]).fails(1, &["v:/t/kind", "--delete"]);
    scratch.shoal(["sync", "--delete", "t", "v:/t"]).ok();
    same(&scratch, "v:/t", "t");
    scratch.shoal(["fsck", "v"]).ok();
}

#[test]
fn contents_are_compared_if_asked_for() {
    let scratch = Scratch::with_volume();
    scratch.write("t/a", "before");
    scratch.write("t/large", noise(1, 3_000_000));
    scratch.shoal(["sync", "t", "v:/t"]).ok();
    scratch.shell("touch -r t/a stamp && printf behind > t/a && touch -r stamp t/a").ok();
    assert_eq!(sync(&scratch, "t v:/t").0, Vec::<String>::new());
    assert_eq!(sync(&scratch, "--checksum t v:/t").0, ["update a"]);
    assert_eq!(scratch.shoal(["cat", "v:/t/a"]).ok(), "behind");
    scratch.shell("touch t/large").ok();
    assert_eq!(sync(&scratch, "--checksum t v:/t").0, ["attributes large"]);
}

#[test]
fn patterns_leave_out_and_protect() {
    let scratch = Scratch::with_volume();
    for name in ["a", "b.o", "sub/c.o", "sub/d", "skip/e"] {
        scratch.write(format!("t/{name}"), name);
    }
    scratch.shoal(["sync", "t", "v:/t", "--exclude", "*.o", "--exclude", "skip"]).ok();
    let find = || {
        let found = scratch.shoal(["find", "v:/t", "-type", "f", "-printf", "%P\n"]).ok();
        let mut names: Vec<&str> = found.lines().collect();
        names.sort_unstable();
        names.join(" ")
    };
    assert_eq!(find(), "a sub/d");
    scratch.shoal(["sync", "t", "v:/t"]).ok();
    assert_eq!(find(), "a b.o skip/e sub/c.o sub/d");
    scratch.shell("rm -r t/b.o t/sub t/skip").ok();
    scratch.shoal(["sync", "--delete", "t", "v:/t", "--exclude", "*.o"]).fails(1, &["not empty"]);
    assert_eq!(find(), "a b.o sub/c.o");
}

#[test]
fn attributes_are_made_the_same() {
    let scratch = Scratch::with_volume();
    scratch.write("f", "f");
    scratch.shoal(["mkdir", "v:/t"]).ok();
    scratch.shoal(["cp", "f", "v:/t/f"]).ok();
    scratch.shoal(["xattr", "set", "v:/t/f", "user.a", "1"]).ok();
    scratch.shoal(["xattr", "set", "v:/t", "user.dir", "1"]).ok();
    let acl = "02000000 01000700ffffffff 0200050007000000 04000400ffffffff 10000700ffffffff \
               20000000ffffffff";
    scratch.shoal(["xattr", "set", "v:/t/f", "system.posix_acl_access", "--hex", acl]).ok();
    scratch.shoal(["sync", "v:/t", "v:/u"]).ok();
    let list = |place: &str| {
        let listed = scratch.shoal(["xattr", "ls", "-l", place]).ok();
        listed.lines().filter(|line| !line.contains("user.shoal.sync")).collect::<String>()
    };
    for name in ["", "/f"] {
        assert_eq!(list(&format!("v:/u{name}")), list(&format!("v:/t{name}")));
    }
    scratch.shoal(["xattr", "set", "v:/u/f", "user.more", "1"]).ok();
    scratch.shoal(["xattr", "set", "v:/u", "user.more", "1"]).ok();
    scratch.shoal(["xattr", "set", "v:/t/f", "user.a", "2"]).ok();
    assert_eq!(sync(&scratch, "--full v:/t v:/u").0, ["attributes .", "attributes f"]);
    for name in ["", "/f"] {
        assert_eq!(list(&format!("v:/u{name}")), list(&format!("v:/t{name}")));
    }
    assert_eq!(sync(&scratch, "--full v:/t v:/u").0, Vec::<String>::new());
    // The mark is not an attribute of the tree: a copy of the copy has its own.
    scratch.shoal(["sync", "v:/u", "v:/w"]).ok();
    assert_eq!(sync(&scratch, "--full v:/u v:/w").0, Vec::<String>::new());
}

/// A tree in a volume that keeps removed names, or not, and its copy in another, made by a sync.
fn synced(keep: &str) -> Scratch {
    let scratch = Scratch::with_volume();
    scratch.shoal(["mkfs", "w", "--size", common::SIZE]).ok();
    scratch.shoal(["changes", "v", "--keep-removed", keep]).ok();
    for number in 0..40 {
        scratch.write(format!("t/d{}/s/{number}", number % 4), noise(number, 100));
    }
    scratch.shoal(["cp", "-r", "t", "v:/"]).ok();
    tick();
    assert_eq!(sync(&scratch, "--delete v:/t w:/t").1, ALL);
    tick();
    scratch
}

/// Asserts that a full comparison finds nothing.
#[track_caller]
fn nothing_is_missing(scratch: &Scratch) {
    let (lines, way) = sync(scratch, "--full --delete v:/t w:/t");
    assert_eq!((lines, way.as_str()), (vec![], ALL));
    scratch.shell("rm -rf full").ok();
    scratch.shoal(["cp", "-rT", "v:/t", "full"]).ok();
    same(scratch, "w:/t", "full");
    tick();
}

#[test]
fn only_what_has_changed_is_compared() {
    for keep in ["on", "off"] {
        by_changes(&synced(keep));
    }
}

/// Changes of each kind, after each of which a full comparison finds nothing.
fn by_changes(scratch: &Scratch) {
    let sync = |options: &str| sync(scratch, options);
    assert_eq!(sync("--delete v:/t w:/t"), (vec![], CHANGES.into()));
    let stats = scratch.shoal(["sync", "--delete", "--stats", "v:/t", "w:/t"]).ok();
    assert!(stats.starts_with(CHANGES) && stats.contains("\n0 compared, 0 created"), "{stats}");
    let change = |line: &str, expected: &[&str]| {
        scratch.shell(line).ok();
        tick();
        let (lines, way) = sync("--delete v:/t w:/t");
        assert_eq!(way, CHANGES, "{line}");
        assert_eq!(lines, expected, "{line}");
        nothing_is_missing(scratch);
    };
    scratch.write("new", "new");
    change("shoal cp new v:/t/d1/s/1", &["update d1/s/1"]);
    change("shoal cp new v:/t/d1/added", &["create d1/added"]);
    change("shoal rm v:/t/d1/s/5", &["delete d1/s/5"]);
    change("shoal rm -r v:/t/d3/s", &["delete-tree d3/s"]);
    change(
        "shoal chmod 600 v:/t/d0/s/0 && shoal chmod 700 v:/t/d0",
        &["attributes d0", "attributes d0/s/0"],
    );
    change(
        "shoal mkdir -p v:/t/new/er && shoal cp new v:/t/new/er/f",
        &["create new", "create new/er", "create new/er/f"],
    );
    change("shoal ln v:/t/d0/s/4 v:/t/d0/hard", &["link d0/hard"]);
    change("shoal mv v:/t/d0/s/8 v:/t/d2/moved", &["create d2/moved", "delete d0/s/8"]);
    let (lines, way) = {
        scratch.shell("shoal mv v:/t/d2 v:/t/d9 && shoal cp new v:/t/d9/s/2").ok();
        tick();
        sync("--delete v:/t w:/t")
    };
    assert_eq!(way, CHANGES);
    assert!(lines.contains(&"delete-tree d2".to_owned()), "{lines:?}");
    assert!(lines.contains(&"create d9/s/2".to_owned()), "{lines:?}");
    nothing_is_missing(scratch);
    // Two directories change places.
    scratch
        .shell("shoal mv v:/t/d0 v:/t/x && shoal mv v:/t/d1 v:/t/d0 && shoal mv v:/t/x v:/t/d1")
        .ok();
    tick();
    assert_eq!(sync("--delete v:/t w:/t").1, CHANGES);
    nothing_is_missing(scratch);
    // A file in place of a directory, and the reverse.
    scratch.shell("shoal rm -r v:/t/new && shoal cp new v:/t/new && shoal rm v:/t/d9/moved").ok();
    scratch.shell("shoal mkdir v:/t/d9/moved && shoal cp new v:/t/d9/moved/f").ok();
    tick();
    assert_eq!(sync("--delete v:/t w:/t").1, CHANGES);
    nothing_is_missing(scratch);
    // A directory that is made again, one that is moved into another, and one in its place.
    scratch
        .shell("shoal rm -r v:/t/d9/s && shoal mkdir v:/t/d9/s && shoal cp new v:/t/d9/s/x")
        .ok();
    scratch.shell("shoal mv v:/t/d0/s v:/t/d1/deep && shoal mv v:/t/d9/s v:/t/d0/s").ok();
    scratch.shell("shoal mv --exchange v:/t/d1/deep v:/t/d1/s").ok();
    tick();
    assert_eq!(sync("--delete v:/t w:/t").1, CHANGES);
    nothing_is_missing(scratch);
    for volume in ["v", "w"] {
        scratch.shoal(["fsck", volume]).ok();
    }
}

#[test]
fn a_mark_is_only_trusted_where_it_is_good() {
    let scratch = synced("off");
    let way = |options: &str| {
        let ran = scratch.shoal(format!("sync -v {options}").split_whitespace());
        assert_eq!(ran.status(), Some(0), "{ran}");
        (ran.stdout().lines().last().expect("a line").to_owned(), ran.stderr())
    };
    assert_eq!(way("--delete v:/t w:/t"), (CHANGES.into(), String::new()));
    assert_eq!(way("v:/t w:/t").0, CHANGES, "less is asked for");
    assert_eq!(way("--full v:/t w:/t").0, ALL);
    assert_eq!(way("--checksum v:/t w:/t").0, ALL);
    assert_eq!(way("v:/t w:/t").0, CHANGES, "these leave a mark, too");
    let (found, why) = way("--delete v:/t w:/t");
    assert!(found == ALL && why.contains("other options"), "they did not delete: {found} {why}");
    assert!(way("--delete --exclude x v:/t w:/t").1.contains("other options"));
    assert_eq!(way("--delete --exclude x v:/t w:/t").0, CHANGES);
    assert!(way("v:/t/d0 w:/t").1.contains("another directory"));
    scratch.shoal(["sync", "--delete", "v:/t", "w:/t"]);
    // Another volume in its place.
    scratch
        .shell("shoal cp -rT v:/t t2 && rm v && shoal mkfs v --size 256M && shoal cp -rT t2 v:/t")
        .ok();
    assert_eq!(way("--delete v:/t w:/t").0, ALL);
    // A failure leaves no mark, and a dry run changes none.
    scratch.shoal(["sync", "-n", "--full", "v:/t", "w:/t"]).ok();
    assert_eq!(way("--delete v:/t w:/t").0, CHANGES);
    let mark = scratch.shoal(["xattr", "get", "w:/t", "user.shoal.sync"]).ok();
    scratch.shoal(["xattr", "set", "w:/t", "user.shoal.sync", "nonsense"]).ok();
    assert_eq!(way("--delete v:/t w:/t").0, ALL);
    assert_eq!(mark.split(' ').count(), 4);
}

/// Without removed names only what may have been renamed is compared as a whole.
#[test]
fn one_removed_name_does_not_cost_a_comparison_of_everything() {
    let scratch = synced("off");
    scratch.write("new", "new");
    let compared = |line: &str| {
        scratch.shell(line).ok();
        tick();
        let json = scratch.shoal("sync --delete --stats --json v:/t w:/t".split(' ')).ok();
        let json: serde_json::Value = serde_json::from_str(&json).expect("an object");
        assert_eq!(json["compared"], "changes", "{line}");
        nothing_is_missing(&scratch);
        json["files"].as_u64().expect("a number")
    };
    assert_eq!(compared("true"), 0);
    let all = 40 + 2 * 4 + 1;
    for line in ["rm v:/t/d1/s/5", "cp new v:/t/d1/s/5", "mv v:/t/d1/s/5 v:/t/d1/s/50"] {
        let files = compared(&format!("shoal {line}"));
        assert!(files < 6, "{line}: {files}");
    }
    let files = compared("shoal mv v:/t/d1 v:/t/d5");
    assert!(files > 10 && files < all / 2, "{files}");
    // An archive of what has changed has the renamed directory with everything in it.
    scratch.shell("shoal changes v:/t --mark-file mark >names && shoal mv v:/t/d5 v:/t/d6").ok();
    tick();
    scratch.shoal("tar -cf a.tar -C v:/t --mark-file mark".split(' ')).ok();
    let members = scratch.shoal(["tar", "-tf", "a.tar"]).ok();
    assert!(members.contains("d6/s/9\n") && !members.contains("d2/s/"), "{members}");
}

/// An attribute that the destination refuses is named, and makes the sync fail, each time.
#[test]
fn attributes_that_do_not_fit_are_failures() {
    if !is_root() {
        shoal_skip::skipped("only root sets attributes of the namespace security");
        return;
    }
    let scratch = Scratch::with_volume();
    scratch.write("t/a", "a");
    scratch.write("t/b", "b");
    scratch.shoal(["cp", "-r", "t", "v:/"]).ok();
    // The kernel refuses what is no capability; a volume keeps it.
    for file in ["a", "b"] {
        let place = format!("v:/t/{file}");
        scratch.shoal(["xattr", "set", &place, "security.capability", "--hex", "00"]).ok();
    }
    for _ in 0..2 {
        let ran = scratch.shoal(["sync", "v:/t", "out"]);
        assert_eq!(ran.status(), Some(1), "{ran}");
        let said = ran.stderr();
        for file in ["out/a", "out/b"] {
            let part = format!("{file}: attribute security.capability is not kept: ");
            assert_eq!(said.matches(&part).count(), 1, "{said}");
        }
        assert_eq!(scratch.shell("cat out/a out/b").ok(), "ab");
    }
    for file in ["a", "b"] {
        let place = format!("v:/t/{file}");
        scratch.shoal(["xattr", "rm", &place, "security.capability"]).ok();
    }
    scratch.shoal(["sync", "v:/t", "out"]).ok();
}

/// The feed does not tell what has changed in subvolumes.
#[test]
fn subvolumes_are_compared_each_time() {
    let scratch = Scratch::with_volume();
    scratch.shoal(["changes", "v", "--keep-removed", "on"]).ok();
    scratch.write("t/a", "a");
    assert_eq!(sync(&scratch, "--delete v:/ w").1, ALL);
    tick();
    assert_eq!(sync(&scratch, "--delete v:/ w").1, CHANGES);
    scratch.shoal(["subvolume", "create", "v", "s"]).ok();
    let ran = scratch.shoal(["sync", "--delete", "v:/", "w"]);
    assert!(ran.stderr().contains("w: everything was compared: changes in subvolumes"), "{ran}");
    scratch.shoal(["cp", "t/a", "v:/s/a"]).ok();
    assert_eq!(sync(&scratch, "--delete v:/ w"), (vec!["create s/a".into()], ALL.into()));
    scratch.shoal(["subvolume", "delete", "v", "s", "--wait"]).ok();
    assert_eq!(sync(&scratch, "--delete v:/ w").0, ["delete-tree s"]);
    assert_eq!(sync(&scratch, "--delete v:/ w").1, CHANGES);
}

#[test]
fn what_is_refused() {
    let scratch = Scratch::with_volume();
    scratch.write("t/a", "a");
    scratch.shoal(["sync", "t", "v:/t"]).ok();
    for (from, to) in [("v:/t", "v:/t"), ("v:/", "v:/t"), ("v:/t", "v:/"), ("t", "."), (".", "t")] {
        scratch.shoal(["sync", from, to]).fails(2, &["is the source, in it, or around it"]);
    }
    scratch.shoal(["sync", "none", "v:/t"]).fails(2, &["none: no such file"]);
    scratch.shoal(["sync", "v:/none", "t"]).fails(2, &["v:/none: no such file"]);
    scratch.shoal(["sync", "t/a", "v:/t"]).fails(2, &["t/a: not a directory"]);
    scratch.shoal(["sync", "t", "v:/t/a"]).fails(2, &["v:/t/a: not a directory"]);
    scratch.shoal(["sync", "t", "v:/no/such"]).fails(2, &["v:/no/such: no such file"]);
    scratch.shoal(["sync", "-n", "t", "v:/new"]).ok();
    scratch.shoal(["ls", "v:/new"]).fails(1, &["v:/new"]);
    // The file of the volume is neither copied nor removed.
    fs::create_dir(scratch.path("around")).expect("mkdir");
    scratch.shell("mv v around/v && shoal mkdir around/v:/x").ok();
    scratch.shoal(["sync", "--delete", "around/v:/t", "around"]).fails(1, &["the volume itself"]);
    assert_eq!(scratch.shoal(["ls", "around/v:/"]).ok(), "t\nx\n");
    scratch.shoal(["sync", "around", "around/v:/x"]).fails(1, &["the volume itself"]);
    scratch.shoal(["fsck", "around/v"]).ok();
}

/// Killed at any moment: each name has the old file or the new one. The next sync does the rest.
#[test]
fn a_crash_leaves_whole_files() {
    let scratch = Scratch::with_volume();
    for number in 0..200u64 {
        scratch.write(format!("t/{number}"), noise(number, 20_000));
    }
    scratch.shoal(["sync", "t", "v:/t"]).ok();
    for number in 0..200u64 {
        scratch.write(format!("t/{number}"), noise(number + 1000, 30_000));
    }
    let line = "shoal sync -v t v:/t | head -n 50 >/dev/null & sleep 0.1; kill -9 $!; wait";
    scratch.shell(line);
    scratch.shell("pid=; shoal sync t v:/t & pid=$!; sleep 0.05; kill -9 $pid; wait");
    scratch.shoal(["fsck", "v"]);
    for number in 0..200u64 {
        let ran = scratch.shoal(["cat", &format!("v:/t/{number}")]);
        let is_whole =
            ran.bytes() == noise(number, 20_000) || ran.bytes() == noise(number + 1000, 30_000);
        assert!(is_whole, "{number}: {}", ran.bytes().len());
    }
    scratch.shoal(["sync", "--delete", "t", "v:/t"]).ok();
    same(&scratch, "v:/t", "t");
    scratch.shoal(["fsck", "v"]).ok();
}

/// rsync finds nothing to do in what this has made, and the reverse.
#[test]
fn rsync_agrees() {
    let scratch = Scratch::with_volume();
    if std::process::Command::new("rsync").arg("--version").output().is_err() || !is_root() {
        shoal_skip::skipped("no rsync on this machine, or not root");
        return;
    }
    rich_tree(&scratch);
    scratch.shoal(["sync", "t", "v:/t"]).ok();
    scratch.shoal(["sync", "v:/t", "out"]).ok();
    let said = scratch.shell("rsync -aHni --checksum --delete t/ out/").ok();
    assert_eq!(said, "");
    scratch.shell("rm -rf out && rsync -aH t/ out/").ok();
    let (lines, _) = sync(&scratch, "--full --checksum --delete v:/t out");
    // Of what is no file, rsync leaves times that are only parts of a second wrong.
    assert!(lines.iter().all(|line| line.starts_with("attributes ")), "{lines:?}");
}
