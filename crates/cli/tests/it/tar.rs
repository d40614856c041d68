//! `shoal tar`: archives that GNU tar extracts, those that it has made, and hostile ones.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Stdio;

use crate::common::{FACTS_OF_DIRECTORIES_LESS, Scratch, has_gnu, noise, rich_tree};
use shoal_skip::{is_root, tick};
use shoal_tar::{Kind, Member, Writer};

/// Facts of a tree, as a copy keeps them.
fn facts(scratch: &Scratch, directory: &str) -> String {
    scratch.shell(&format!("cd {directory} && {FACTS_OF_DIRECTORIES_LESS}")).ok()
}

/// The same tree with names that are hard to archive.
fn tree(scratch: &Scratch) {
    rich_tree(scratch);
    let long = "n".repeat(200);
    scratch.write(format!("t/{long}/{long}/{long}"), "deep");
    scratch.write(format!("t/{}", "m".repeat(100)), "100");
    scratch.write("t/new\nline\\and\ttab", "odd");
    scratch.write(Path::new(std::ffi::OsStr::from_bytes(b"t/\xff\xfe")), "not UTF-8");
    scratch.shell("touch -d '1969-12-31 23:59:58.25' t/empty").ok();
    if is_root() {
        scratch.shell("chown 3000000:4000000000 t/empty && chmod 0 t/empty").ok();
    }
}

#[track_caller]
fn same_contents(scratch: &Scratch, a: &str, b: &str) {
    let line = format!(
        "cd {a} && find . -type f -print0 | xargs -0 -I% cmp % ../{b}/% && find . | wc -l && cd \
         ../{b} && find . | wc -l"
    );
    let counts = scratch.shell(&line).ok();
    let counts: Vec<&str> = counts.lines().collect();
    assert_eq!(counts[0], counts[1]);
}

#[test]
fn gnu_tar_extracts_the_same_tree() {
    if !has_gnu(&["tar"]) {
        return;
    }
    let scratch = Scratch::with_volume();
    tree(&scratch);
    scratch.shoal(["cp", "-r", "t", "v:/"]).ok();
    scratch.shoal(["tar", "-cf", "a.tar", "-C", "v:/", "t"]).ok();
    assert!(fs::metadata(scratch.path("a.tar")).expect("an archive").len() < 8 << 20, "holes");
    scratch.shell("mkdir out && tar -xpf a.tar -C out 2>/dev/null && mv out/t u").ok();
    assert_eq!(facts(&scratch, "u"), facts(&scratch, "t"));
    same_contents(&scratch, "t", "u");
    // From a host directory; through a pipe, compressed; into a volume.
    scratch.shoal(["mkdir", "v:/piped"]).ok();
    scratch.shell("shoal tar -c --zstd t | shoal tar -x -C v:/piped").ok();
    scratch.shoal(["cp", "-r", "v:/piped/t", "w"]).ok();
    assert_eq!(facts(&scratch, "w"), facts(&scratch, "t"));
    same_contents(&scratch, "t", "w");
    scratch.shoal(["fsck", "v"]).ok();
}

#[test]
fn archives_of_gnu_tar_are_extracted() {
    if !has_gnu(&["tar"]) {
        return;
    }
    let scratch = Scratch::with_volume();
    tree(&scratch);
    for (format, options) in
        [("pax", ""), ("pax", "--sparse"), ("gnu", ""), ("gnu", "--sparse"), ("oldgnu", "-S")]
    {
        let line = format!("tar --format={format} {options} -cf a.tar t 2>/dev/null");
        scratch.shell(&line).ok();
        scratch.shoal(["mkdir", "v:/x"]).ok();
        scratch.shoal(["tar", "-xf", "a.tar", "-C", "v:/x"]).ok();
        scratch.shoal(["cp", "-r", "v:/x/t", "u"]).ok();
        // Formats but pax have whole seconds.
        let whole = |facts: String| match format {
            "pax" => facts,
            _ => {
                let cut = "sed -E 's/\\.[0-9]{10}//'";
                scratch.write("facts", facts);
                scratch.shell(&format!("{cut} facts")).ok()
            }
        };
        let (found, expected) = (facts(&scratch, "u"), facts(&scratch, "t"));
        // GNU tar rounds times before 1970 otherwise.
        let found: Vec<String> = whole(found).lines().map(str::to_owned).collect();
        for (found, expected) in found.iter().zip(whole(expected).lines()) {
            if !expected.starts_with("empty") || format == "pax" {
                assert_eq!(found, expected, "{format} {options}");
            }
        }
        same_contents(&scratch, "t", "u");
        scratch.shoal(["rm", "-r", "v:/x"]).ok();
        scratch.shell("rm -rf u").ok();
    }
    scratch.shoal(["fsck", "v"]).ok();
    scratch.shell("tar --format=pax --sparse-version=0.1 -S -cf a.tar t/sparse t/small").ok();
    let ran = scratch.shoal(["tar", "-xf", "a.tar", "-C", "v:/"]);
    ran.fails(1, &["t/sparse", "sparse file in a format older than 1.0"]);
    assert_eq!(scratch.shoal(["cat", "v:/t/small"]).ok(), "small\n");
}

#[test]
fn lists_are_those_of_gnu_tar() {
    if !has_gnu(&["tar"]) {
        return;
    }
    let scratch = Scratch::with_volume();
    tree(&scratch);
    scratch.shell("touch t/empty").ok();
    scratch.shoal(["cp", "-r", "t", "v:/"]).ok();
    scratch.shoal(["tar", "-cf", "ours.tar", "-C", "v:/", "t"]).ok();
    scratch.shell("tar --format=gnu -cf theirs.tar t").ok();
    for archive in ["ours.tar", "theirs.tar"] {
        for options in ["-tf", "-tvf", "--numeric-owner -tvf"] {
            let list = |tar: &str, members: &str| {
                let locale = "TZ=UTC LC_ALL=C.UTF-8";
                scratch.shell(&format!("{locale} {tar} {options} {archive} {members}")).ok()
            };
            for members in ["", "t/sub t/small", "t/sub/"] {
                assert_eq!(list("shoal tar", members), list("tar", members), "{options} {members}");
            }
        }
    }
    let ours = scratch.shoal(["tar", "-cvf", "a.tar", "-C", "v:/", "t"]).ok();
    assert_eq!(ours, scratch.shell("LC_ALL=C.UTF-8 tar -tf a.tar").ok());
    let ran = scratch.shoal(["tar", "-tf", "a.tar", "t/small", "none"]);
    ran.fails(1, &["none", "is not in the archive"]);
    assert_eq!(ran.stdout(), "t/small\n");
}

#[test]
fn attributes_and_access_control_lists_are_kept_if_asked_for() {
    let scratch = Scratch::with_volume();
    scratch.write("f", "f");
    scratch.shoal(["mkdir", "v:/d"]).ok();
    scratch.shoal(["cp", "f", "v:/d/f"]).ok();
    scratch.shoal(["xattr", "set", "v:/d/f", "user.a=b%", "value"]).ok();
    scratch.shoal(["xattr", "set", "v:/d", "user.empty", ""]).ok();
    let acl = "02000000 01000700ffffffff 0200050007000000 04000400ffffffff 10000700ffffffff \
               20000000ffffffff";
    scratch.shoal(["xattr", "set", "v:/d/f", "system.posix_acl_access", "--hex", acl]).ok();
    scratch.shoal(["xattr", "set", "v:/d", "system.posix_acl_default", "--hex", acl]).ok();
    let list = |place: &str| {
        let list = |name: &str| scratch.shoal(["xattr", "ls", "-l", &format!("{place}{name}")]);
        (list("/d").ok(), list("/d/f").ok())
    };
    scratch.shoal(["tar", "-cf", "a.tar", "--xattrs", "--acls", "-C", "v:/", "d"]).ok();
    for (options, expected) in
        [(vec!["--xattrs", "--acls"], list("v:")), (vec![], (String::new(), String::new()))]
    {
        scratch.shoal(["mkdir", "v:/x"]).ok();
        let line = ["tar", "-xf", "a.tar", "-C", "v:/x"].into_iter().chain(options);
        scratch.shoal(line).ok();
        assert_eq!(list("v:/x"), expected);
        scratch.shoal(["rm", "-r", "v:/x"]).ok();
    }
    scratch.shoal(["tar", "-cf", "plain.tar", "-C", "v:/", "d"]).ok();
    scratch.shoal(["mkdir", "v:/x"]).ok();
    scratch.shoal(["tar", "-xf", "plain.tar", "--xattrs", "--acls", "-C", "v:/x"]).ok();
    assert_eq!(list("v:/x"), (String::new(), String::new()));
}

/// Writes an archive of members with contents.
fn write_archive(scratch: &Scratch, name: &str, members: &[(Member, &str)]) {
    let mut writer = Writer::new(Vec::new());
    for (member, contents) in members {
        let member = Member { size: contents.len() as u64, mode: 0o644, ..member.clone() };
        writer.member(&member).expect("a member");
        writer.data(contents.as_bytes()).expect("contents");
    }
    scratch.write(name, writer.finish().expect("an archive"));
}

fn file(name: &str) -> Member {
    Member::new(name.into(), Kind::File)
}

fn link(name: &str, kind: Kind, to: &str) -> Member {
    Member { link: to.into(), ..Member::new(name.into(), kind) }
}

#[test]
fn nothing_leaves_the_directory() {
    let scratch = Scratch::with_volume();
    scratch.write("victim/f", "precious");
    scratch.shoal(["cp", "-r", "victim", "v:/"]).ok();
    scratch.shell("mkdir d && ln -s ../victim d/there && ln -s ../victim/f d/file").ok();
    scratch.shoal(["cp", "-r", "d", "v:/"]).ok();
    let absolute = scratch.path("victim").to_str().expect("UTF-8").to_owned();
    let members = [
        (file("../victim/f"), "bad"),
        (file("a/../../victim/f"), "bad"),
        (link("s", Kind::Symlink, "../victim"), ""),
        (file("s/f"), "bad"),
        (link("t", Kind::Symlink, &absolute), ""),
        (file("t/f"), "bad"),
        (file("there/f"), "bad"),
        (Member::new(b"there".to_vec(), Kind::Directory), ""),
        (file("there/g"), "bad"),
        (link("h", Kind::HardLink, "../victim/f"), ""),
        (link("h", Kind::HardLink, "s/f"), ""),
        (link("h", Kind::HardLink, &format!("{absolute}/f")), ""),
        (link("..", Kind::Symlink, "x"), ""),
        (link("u", Kind::Symlink, "../victim/f"), ""),
        (file("u"), "replaces the symlink"),
        (file("file"), "replaces the symlink, too"),
        (file("/absolute"), "stays inside"),
        (file("."), "bad"),
        (file(""), "bad"),
    ];
    write_archive(&scratch, "a.tar", &members);
    for place in ["v:/d", "d"] {
        let ran = scratch.shoal(["tar", "-xf", "a.tar", "-C", place]);
        assert_eq!(ran.status(), Some(1), "{ran}");
        assert_eq!(ran.stderr().lines().count(), 13, "{ran}");
        for part in ["s/f: 's' on its way is no directory", "../victim/f: its name leads out of"] {
            assert!(ran.stderr().contains(part), "{part}: {ran}");
        }
    }
    let got = |path: &str| scratch.shoal(["cat", &format!("v:/d/{path}")]).ok();
    assert_eq!(got("u"), "replaces the symlink");
    assert_eq!(got("file"), "replaces the symlink, too");
    assert_eq!(got("absolute"), "stays inside");
    scratch.shoal(["cp", "-r", "v:/victim", "copy"]).ok();
    for directory in ["victim", "copy"] {
        let found = scratch.shell(&format!("cd {directory} && find . | sort && cat f")).ok();
        assert_eq!(found, ".\n./f\nprecious", "{directory}");
    }
    assert_eq!(fs::read(scratch.path("d/absolute")).expect("a file"), b"stays inside");
    scratch.shoal(["fsck", "v"]).ok();
}

#[test]
fn a_truncated_archive_leaves_whole_files() {
    let scratch = Scratch::with_volume();
    let large = String::from_utf8(vec![b'x'; 3_000_000]).expect("text");
    write_archive(&scratch, "a.tar", &[(file("a"), "whole"), (file("d/b"), &large)]);
    let bytes = fs::read(scratch.path("a.tar")).expect("an archive");
    for (len, place) in [(1_000_000, "\"d/b\", offset 1000000"), (1100, "\"d/b\", offset 1100")] {
        scratch.write("cut.tar", &bytes[..len]);
        let ran = scratch.shoal(["tar", "-xf", "cut.tar", "-C", "v:/"]);
        if len == 1100 {
            ran.fails(1, &["cut.tar: the archive is truncated", "\"a\"", "offset 1100"]);
        } else {
            ran.fails(1, &["cut.tar: the archive is truncated", place]);
        }
        let found = scratch.shoal(["find", "v:/", "-type", "f"]).ok();
        assert_eq!(found, "/a\n", "{len}");
    }
    scratch.write("none.tar", vec![b'x'; 5000]);
    let ran = scratch.shoal(["tar", "-tf", "none.tar"]);
    ran.fails(1, &["none.tar: no header here", "offset 0"]);
    scratch.write("zip.tar", [&[0x1f, 0x8b, 8, 0][..], &[0; 1000]].concat());
    scratch.shoal(["tar", "-tf", "zip.tar"]).fails(2, &["zip.tar", "gzip"]);
    scratch.shoal(["tar", "-tf", "missing"]).fails(1, &["missing: no such file"]);
    scratch.shoal(["fsck", "v"]).ok();
    assert_eq!(scratch.shoal(["orphans", "v"]).ok(), scratch.shoal(["orphans", "v"]).ok());
}

/// Killed in the middle of a file, which must not be there by its name.
#[test]
fn a_crash_leaves_whole_files() {
    let scratch = Scratch::with_volume();
    let large = String::from_utf8(vec![b'y'; 4_000_000]).expect("text");
    let mut members: Vec<(Member, &str)> = Vec::new();
    let names: Vec<String> = (0..200).map(|number| format!("d/{number}")).collect();
    members.extend(names.iter().map(|name| (file(name), "small and whole")));
    members.extend([(file("last"), &large[..]), (file("end"), "")]);
    write_archive(&scratch, "a.tar", &members);
    let mut bytes = fs::read(scratch.path("a.tar")).expect("an archive");
    bytes.truncate(200 * 1024 + 3_000_000);
    let mut command = scratch.command(["tar", "-xv", "-C", "v:/"]);
    command.stdin(Stdio::piped()).stdout(Stdio::null());
    let mut extract = command.spawn().expect("start");
    let mut input = extract.stdin.take().expect("a pipe");
    // It has read all of this, but for what fits the pipe and its buffers, and waits for more.
    input.write_all(&bytes).expect("write");
    extract.kill().expect("kill");
    extract.wait().expect("wait");
    drop(input);
    scratch.shoal(["fsck", "v"]);
    let found = scratch.shoal(["find", "v:/", "-type", "f"]).ok();
    for path in found.lines() {
        let contents = scratch.shoal(["cat", &format!("v:{path}")]).ok();
        assert_eq!(contents, "small and whole", "{path}");
    }
    scratch.shoal(["fsck", "v"]).ok();
}

#[test]
fn options_of_extraction() {
    let scratch = Scratch::with_volume();
    let directory = |name: &str| Member::new(name.into(), Kind::Directory);
    let mut owned = file("a/b/owned");
    (owned.uid, owned.gid, owned.user, owned.group) =
        (7, 8, b"root".to_vec(), b"none-such".to_vec());
    let members = [
        (directory("a/"), ""),
        (file("a/one"), "one"),
        (file("a/b/two"), "two"),
        (owned, "owned"),
        (link("a/hard", Kind::HardLink, "a/one"), ""),
        (file("c"), "c"),
    ];
    write_archive(&scratch, "a.tar", &members);
    let extract = |options: &str, place: &str| {
        let line = format!("tar -xf a.tar -C {place} {options}");
        scratch.shoal(line.split_whitespace())
    };
    let find = |place: &str| {
        let found = scratch.shoal(["find", place, "-type", "f", "-printf", "%P "]).ok();
        let mut names: Vec<String> = found.split_whitespace().map(str::to_owned).collect();
        names.sort();
        names.join(" ")
    };
    for (options, expected) in [
        ("", "a/b/owned a/b/two a/hard a/one c"),
        ("--strip-components 1", "b/owned b/two hard one"),
        ("--strip-components=2", "owned two"),
        ("--exclude b", "a/hard a/one c"),
        ("--exclude a/o* --exclude hard", "a/b/owned a/b/two c"),
        ("a/b c", "a/b/owned a/b/two c"),
    ] {
        scratch.shoal(["mkdir", "v:/x"]).ok();
        extract(options, "v:/x").ok();
        assert_eq!(find("v:/x"), expected, "{options}");
        scratch.shoal(["rm", "-r", "v:/x"]).ok();
    }
    scratch.write("list", "a/b/two\nc\n");
    scratch.write("list0", "a/one\0");
    scratch.shoal(["mkdir", "v:/x", "v:/y", "v:/z"]).ok();
    extract("-T list", "v:/x").ok();
    assert_eq!(find("v:/x"), "a/b/two c");
    extract("-T list0 --null", "v:/y").ok();
    assert_eq!(find("v:/y"), "a/one");
    // Files that exist.
    scratch.write("c", "older");
    scratch.shoal(["cp", "c", "v:/z"]).ok();
    extract("-k c", "v:/z").fails(1, &["c: exists; kept"]);
    assert_eq!(scratch.shoal(["cat", "v:/z/c"]).ok(), "older");
    extract("c", "v:/z").ok();
    assert_eq!(scratch.shoal(["cat", "v:/z/c"]).ok(), "c");
    if is_root() {
        let owner = |options: &str| {
            extract(options, "v:/z").ok();
            scratch.shoal(["find", "v:/z/a/b/owned", "-printf", "%U %G"]).ok()
        };
        assert_eq!(owner(""), "0 8", "by name if there is such a user");
        assert_eq!(owner("--numeric-owner"), "7 8");
        assert_eq!(owner("--no-same-owner"), "0 0");
    }
}

#[test]
fn options_of_creation() {
    let scratch = Scratch::with_volume();
    scratch.write("t/old", "old");
    scratch.write("t/sub/new", "new");
    scratch.write("t/sub/skip.o", "object");
    scratch.shell("touch -d '2020-01-01' t/old").ok();
    scratch.shoal(["cp", "-r", "t", "v:/"]).ok();
    let create = |options: &str| {
        let line = format!("shoal tar -c -C v:/t {options} | shoal tar -t | sort | tr '\\n' ' '");
        scratch.shell(&line).ok()
    };
    assert_eq!(create("."), "./ ./old ./sub/ ./sub/new ./sub/skip.o ");
    assert_eq!(create("sub/ --exclude '*.o'"), "sub/ sub/new ");
    assert_eq!(create("--no-recursion . sub/new"), "./ sub/new ");
    scratch.write("list", "old\nsub\n");
    assert_eq!(create("-T list"), "old sub/ sub/new sub/skip.o ");
    assert_eq!(create("-T list --no-recursion"), "old sub/ ");
    scratch.write("list0", "old\0sub/new\0");
    assert_eq!(create("--null -T list0"), "old sub/new ");
    // The copies have been made now: their attributes are newer than any time of the contents.
    assert_eq!(create("-N '2100-01-01' ."), "./ ./sub/ ");
    assert_eq!(create("-N 2020-01-02 . 2>&1"), "./ ./old ./sub/ ./sub/new ./sub/skip.o ");
    let ran = scratch.shell("shoal tar -cf a.tar -C v:/t ../t/old /t/sub/new");
    assert!(
        ran.stderr().contains("removing '../' from the beginning of names")
            || ran.stderr().contains("from the beginning of names"),
        "{ran}"
    );
    assert_eq!(scratch.shoal(["tar", "-tf", "a.tar"]).ok(), "t/old\nt/sub/new\n");
    let ran = scratch.shoal(["tar", "-cf", "a.tar", "-C", "v:/t", "old", "none"]);
    ran.fails(1, &["v:/t/none: no such file"]);
    assert_eq!(scratch.shoal(["tar", "-tf", "a.tar"]).ok(), "old\n");
    scratch.shoal(["tar", "-cf", "a.tar", "-C", "v:/t"]).fails(2, &["v:/t", "nothing to archive"]);
    scratch.shoal(["tar", "-x", "--since", "m"]).fails(2, &["--since is only for -c"]);
    scratch.shoal(["tar", "-c", "-k", "."]).fails(2, &["--keep-old-files is only for -x"]);
    scratch.shoal(["tar", "-cpf", "a.tar", "-C", "v:/t", "old"]).ok();
    scratch.shoal(["tar", "-cf", "v:/a", "-C", "v:/t", "."]).fails(2, &["v:/a", "this machine"]);
    scratch.shoal(["tar", "-cf", "v", "-C", "v:/t", "."]).fails(2, &["v", "the volume itself"]);
    scratch.shoal(["tar", "-cf", "a.tar", "-C", "v:/none", "."]).fails(2, &["v:/none"]);
    // The archive is not in itself.
    let archive = "shoal tar -cf t/a.tar -C t . 2>&1";
    assert_eq!(scratch.shell(archive).ok(), "", "it has no name yet");
    let said = scratch.shell(&format!("{archive}; shoal tar -tf t/a.tar | sort")).ok();
    assert!(said.contains("a.tar: is the archive; left out"), "{said}");
    assert!(said.ends_with("./\n./old\n./sub/\n./sub/new\n./sub/skip.o\n"), "{said}");
    scratch.shoal(["fsck", "v"]).ok();
}

#[test]
fn what_has_changed_since_a_mark() {
    let scratch = Scratch::with_volume();
    for number in 0..30 {
        scratch.write(format!("t/d{}/{number}", number % 3), "old");
    }
    scratch.shoal(["cp", "-r", "t", "v:/"]).ok();
    scratch.shoal(["changes", "v", "--keep-removed", "on"]).ok();
    let create = |archive: &str| {
        tick();
        scratch.shoal(["tar", "-cf", archive, "-C", "v:/t", "--mark-file", "mark"]).ok();
        tick();
        let list = scratch.shoal(["tar", "-tf", archive]).ok();
        let mut names: Vec<&str> = list.lines().collect();
        // Directories come last, so that they get their times when everything is in them.
        let is_renamed = names.contains(&"renamed/");
        let is_sorted = names.is_sorted_by_key(|name| name.ends_with('/'));
        assert!(is_renamed || is_sorted, "{names:?}");
        names.sort_unstable();
        names.join(" ")
    };
    assert_eq!(create("full.tar").split(' ').count(), 1 + 3 + 30);
    assert_eq!(create("none.tar"), "");
    scratch.write("new", "new");
    scratch.shoal(["cp", "new", "v:/t/d1/1"]).ok();
    scratch.shoal(["cp", "new", "v:/t/added"]).ok();
    scratch.shoal(["mv", "v:/t/d2", "v:/t/renamed"]).ok();
    let names = create("more.tar");
    for name in ["./", "added", "d1/1", "renamed/", "renamed/2", "renamed/29"] {
        assert!(names.split(' ').any(|it| it == name), "{name}: {names}");
    }
    assert!(!names.contains("d0"), "{names}");
    // Both, one after the other, are the tree; what was removed is still there.
    scratch.shoal(["mkdir", "v:/x"]).ok();
    for archive in ["full.tar", "none.tar", "more.tar"] {
        scratch.shoal(["tar", "-xf", archive, "-C", "v:/x"]).ok();
    }
    scratch.shoal(["rm", "-r", "v:/x/d2"]).ok();
    scratch.shoal(["cp", "-r", "v:/t", "a"]).ok();
    scratch.shoal(["cp", "-r", "v:/x", "b"]).ok();
    // Directories that are in none of the later archives have another time: a file in them was
    // replaced, not overwritten.
    let of_files = |directory| {
        let facts = facts(&scratch, directory);
        facts.lines().filter(|line| !line.contains(" d ")).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(of_files("b"), of_files("a"));
    // Without the names that were removed it is not known which directories were renamed.
    scratch.shoal(["changes", "v", "--keep-removed", "off"]).ok();
    scratch.shoal(["cp", "new", "v:/t/d1/4"]).ok();
    scratch.shoal(["tar", "-cf", "a.tar", "-C", "v:/t", "--mark-file", "mark"]).ok();
    assert_eq!(scratch.shoal(["tar", "-tf", "a.tar"]).ok(), "d1/4\n", "a file has none in it");
    scratch.shoal(["mv", "v:/t/renamed", "v:/t/again"]).ok();
    scratch.shoal(["tar", "-cf", "a.tar", "-C", "v:/t", "--mark-file", "mark"]).ok();
    // It has changed with the one above, so it is archived with everything below.
    let sorted = |text: String| {
        let mut lines: Vec<_> =
            text.lines().map(|it| it.trim_end_matches('/').to_owned()).collect();
        lines.sort();
        lines
    };
    let expected = scratch.shoal(["find", "v:/t/again", "-printf", "again/%P\n"]).ok() + ".\n";
    assert_eq!(sorted(scratch.shoal(["tar", "-tf", "a.tar"]).ok()), sorted(expected));
    let wrong = ["tar", "-cf", "a.tar", "--since", "nonsense", "-C", "v:/t"];
    scratch.shoal(wrong).fails(2, &["--since"]);
    scratch
        .shoal(["tar", "-cf", "a.tar", "--mark-file", "m", "-C", "t"])
        .fails(2, &["VOLUME:/path"]);
}

#[test]
fn large_trees_through_a_pipe_that_closes() {
    let scratch = Scratch::with_volume();
    for number in 0..3000u64 {
        scratch.write(format!("t/{}/{number}", number % 7), noise(number, (number % 900) as usize));
    }
    scratch.shell("shoal tar -c t | shoal tar -x -C v:/").ok();
    scratch.shoal(["fsck", "v"]).ok();
    scratch.shell("shoal tar -c -C v:/ t | (mkdir out && cd out && shoal tar -x)").ok();
    assert_eq!(scratch.shell("diff -r t out/t && echo same").ok(), "same\n");
    let ran = scratch.shell("{ shoal tar -c -C v:/ t; echo $? >&2; } | head -c 1 >/dev/null");
    assert_eq!(ran.stderr(), "0\n", "{ran}");
    let mut command = scratch.command(["tar", "-c", "-C", "v:/", "t", "-v"]);
    let output = command.stdout(Stdio::null()).stderr(Stdio::piped()).output().expect("run");
    assert_eq!(BufReader::new(&output.stderr[..]).lines().count(), 3000 + 8);
}
