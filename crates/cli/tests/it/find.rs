//! `shoal find`, beside find(1) on the same tree.
//!
//! The tree is copied into a volume under the path that it has on this machine, so that both print
//! the same paths.

use crate::common::{Scratch, has_gnu};

/// Makes a tree `t` with files of all kinds, modes, ages and sizes.
const PLANT: &str = "
    umask 022; mkdir -p t/src/deep/er t/.git/objects t/empty t/old 't/odd names' &&
    printf one > t/src/one.rs && printf 22 > t/src/TWO.RS && : > t/src/none &&
    head -c 1024 /dev/zero > t/src/deep/kilo && head -c 1025 /dev/zero > t/src/deep/more &&
    head -c 3000000 /dev/zero > t/src/deep/er/mega && printf x > t/.git/objects/aa &&
    printf x > 't/odd names/a b' && printf x > 't/odd names/new
line' && printf x > 't/odd names/[x]*?' && printf x > 't/odd names/q\"uo\\te' &&
    printf x > \"t/odd names/$(printf 'a\\377b')\" && printf x > t/odd\\ names/ärger &&
    ln t/src/one.rs t/old/hard && ln -s ../src/one.rs t/old/soft && ln -s nowhere t/old/dangling &&
    ln -s loop t/old/loop && ln -s ../src t/old/dir && mkfifo t/old/pipe &&
    chmod 4755 t/src/none && chmod 640 t/src/TWO.RS && chmod 000 t/src/deep/kilo &&
    chmod 1777 t/empty && chmod 2750 t/src/deep/er &&
    touch -d '2001-02-03 04:05:06.789 UTC' t/src/one.rs && touch -d '3 days ago' t/src/TWO.RS &&
    touch -d '90 minutes ago' t/src/none && touch -d '1969-12-31 23:00 UTC' t/.git/objects/aa &&
    touch -d '2030-01-01 UTC' t/src/deep/more && touch -a -d '2002-03-04 UTC' t/src/deep/kilo &&
    find t -type d -exec touch -d '2020-02-29 12:34:56 UTC' {} +";

/// Makes the tree, and a volume with it under its own path.
fn planted() -> Option<Scratch> {
    if !has_gnu(&["find", "touch", "sort"]) {
        return None;
    }
    let scratch = Scratch::with_volume();
    scratch.shell(PLANT).ok();
    scratch.shell("shoal mkdir -p v:$PWD && shoal cp -r t v:$PWD/").ok();
    // The copy has read the files.
    scratch.shell("touch -a -d '2002-03-04 UTC' t/src/deep/kilo").ok();
    Some(scratch)
}

/// Runs an expression with both, and compares what they print.
#[track_caller]
fn same(scratch: &Scratch, expression: &str) -> String {
    let sorted = |bytes: &[u8]| {
        let mut lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
        lines.sort_unstable();
        String::from_utf8_lossy(&lines.concat()).into_owned()
    };
    let theirs = scratch.shell(&format!("LC_ALL=C.UTF-8 TZ=UTC find $PWD/t {expression}"));
    let ours = scratch.shell(&format!("shoal find v:$PWD/t {expression}"));
    theirs.ok();
    ours.ok();
    assert_eq!(sorted(ours.bytes()), sorted(theirs.bytes()), "{expression}");
    sorted(ours.bytes())
}

const OF_NAMES: &[&str] = &[
    "",
    "-name '*.rs'",
    "-iname '*.rs'",
    "-name t",
    "-name '[!a-z]*'",
    "-name '[[:upper:]]*'",
    "-name '\\[x\\]\\*\\?'",
    "-name 'a?b'",
    "-iname 'ÄRGER'",
    "-path '*/src/*o*'",
    "-ipath '*/SRC/*'",
    "-path '*/t'",
    "-lname '*src*'",
    "-ilname 'NO*'",
    "-type f",
    "-type d,l",
    "-type p",
    "-regextype posix-extended -regex '.*/[a-z]+\\.rs'",
    "-regextype posix-extended -regex '.*/(one|more|[[:digit:]])(\\.rs)?'",
    "-regextype posix-extended -iregex '.*/two\\.RS'",
    "-regextype posix-extended -regex '.*[]x[].*'",
    "-maxdepth 0",
    "-maxdepth 1",
    "-mindepth 2",
    "-mindepth 1 -maxdepth 2 -type d",
    "-name .git -prune -o -print",
    "-name .git -prune -o -name '*.rs' -print -o -type l -print",
    "! -name '*e*' -a ! \\( -type d -o -type l \\)",
    "-not -type f -or -false -name one.rs",
    "-type f , -name '*r*' -print",
    "-true -print -print",
    "-false",
    "-type f -print0 -printf '\\n'",
];

#[test]
fn tests_of_names_are_those_of_find() {
    let Some(scratch) = planted() else { return };
    for expression in OF_NAMES {
        same(&scratch, expression);
    }
}

/// A directory's size, blocks and links depend on the filesystem, and its times on the copying.
#[rustfmt::skip]
const OF_FILES: &[&str] = &[
    "-size 1", "-size +1", "-size 0", "-size -1k", "-size 1k", "-size 2k", "-size +1M", "-size 3M",
    "-size 1024c", "-size -3c", "-size +512w", "-size -1G", "-size 3b", "-links 2", "-links +1",
    "-mtime 3", "-mtime +2", "-mtime -1", "-mtime -4", "-mtime +2.5", "-mmin +60", "-mmin -120",
    "-mmin +80 -mmin -100", "-name kilo -atime +1000", "-newer PWD/t/src/one.rs",
    "-newermt 2029-12-31", "! -newermt '2001-02-03 04:05:06'", "-newermt @0",
    "-newerma PWD/t/src/deep/kilo", "-name kilo -anewer PWD/t/src/one.rs",
];

#[rustfmt::skip]
const OF_ALL: &[&str] = &[
    "-perm 644", "-perm -4000", "-perm /222", "-perm -u+w,g+r", "-perm /u=s,g=s", "-perm 000",
    "-perm -000", "-perm u=rw,g=r,o=r", "-perm -o+t", "-perm a+X", "-empty", "-uid 0", "-uid +0",
    "-gid -1", "-user root", "-group root", "-user 0", "-nouser", "-nogroup",
    "! -perm -u+x -type f",
];

#[test]
fn tests_of_attributes_are_those_of_find() {
    let Some(scratch) = planted() else { return };
    for expression in OF_FILES {
        let expression = expression.replace("PWD", "$PWD");
        same(&scratch, &format!("! -type d {expression}"));
    }
    for expression in OF_ALL {
        same(&scratch, expression);
    }
    let newer =
        scratch.shell("shoal find v:$PWD/t -type f -newer v:$PWD/t/src/TWO.RS | wc -l").ok();
    let theirs =
        scratch.shell("find $PWD/t -type f -newer $PWD/t/src/TWO.RS -printf x | wc -c").ok();
    let lines_of_one_name = 1;
    let count = |text: &str| text.trim().parse::<usize>().expect("a number");
    assert_eq!(count(&newer), count(&theirs) + lines_of_one_name);
    let same_file = scratch.shell("shoal find v:$PWD/t -samefile v:$PWD/t/old/hard | sort").ok();
    let theirs = scratch.shell("find $PWD/t -samefile t/old/hard | sort").ok();
    assert_eq!(same_file, theirs);
}

const FORMATS: &[&str] = &[
    "%p|%P|%H|%f|%h|%d|%y|%Y|%l\\n",
    "%m|%#m|%5m|%05m|%-6m|%M|%u|%U|%g|%G\\n",
    "%10f|%-10f|%.3f|%10.3f|%05d|%3d|%-3d|%%|%05y\\n",
    "\\a\\b\\f\\r\\t\\v\\\\\\101\\0x\\n",
    "%f\\n\\cnot this",
];

#[test]
fn printf_prints_what_find_prints() {
    let Some(scratch) = planted() else { return };
    for format in FORMATS {
        same(&scratch, &format!("-printf '{format}'"));
    }
    let times = "a A b B c d D e F g G h H I j k l m M p r R S T u U V w W x X y Y Z @ +";
    let fields = times.split(' ').map(|field| format!("%T{field}|")).collect::<String>();
    // Symlinks and directories are made, and read, at their own times.
    same(&scratch, &format!("-type f -printf '%f %s {fields}%t\\n'"));
    same(&scratch, "-name kilo -printf '%a|%A@|%A+|%AT\\n'");
    same(&scratch, "-type d -printf '%TY-%Tm-%Td %TH:%TM\\n'");
    // The place itself, with slashes or without, and the top directory.
    for place in ["/", "$PWD/t", "$PWD/t/"] {
        let line = format!("{place} -maxdepth 0 -printf '%p|%P|%H|%f|%h|%d\\n'");
        let theirs = scratch.shell(&format!("find {line}")).ok();
        assert_eq!(scratch.shell(&format!("shoal find v:{line}")).ok(), theirs, "{place}");
    }
}

/// On a mount both see the same inodes, so that blocks and numbers can be compared.
#[test]
fn rows_and_blocks_are_those_of_a_mount() {
    let Some(scratch) = Scratch::to_mount() else { return };
    if !has_gnu(&["find", "touch"]) {
        return;
    }
    let expressions = [
        "-ls",
        "-printf '%i %n %s %b %k %S %t %c %P\\n'",
        "-size +0 -printf '%s %P\\n'",
        "-links +2",
        "-empty",
        "-cmin -60",
        "-size 3",
    ];
    scratch.shoal(["mount", "v", "m"]).ok();
    scratch.shell(&format!("cd m && {PLANT} && mknod t/null c 1 3")).ok();
    // Looked at first, so that the times of reading change no more.
    scratch.shell("find m/t -ls > /dev/null").ok();
    let lines = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort_unstable();
        lines
    };
    let theirs: Vec<_> = expressions
        .iter()
        .map(|it| lines(&scratch.shell(&format!("cd m && TZ=UTC find t {it}")).ok()))
        .collect();
    for (expression, theirs) in expressions.iter().zip(&theirs) {
        let ours = scratch.shell(&format!("cd m && shoal find t {expression}")).ok();
        assert_eq!(lines(&ours), *theirs, "on the mount: {expression}");
    }
    scratch.umount("m");
    for (expression, theirs) in expressions.iter().zip(theirs) {
        let ours = scratch.shell(&format!("shoal find v:/t {expression}")).ok();
        // Without its root, and in columns that nothing was too wide for.
        let ours = ours.replace(" /t", " t");
        let ours: String =
            ours.split_inclusive('\n').map(|line| line.strip_prefix('/').unwrap_or(line)).collect();
        assert_eq!(lines(&ours), theirs, "{expression}");
    }
    scratch.shoal(["fsck", "v"]).ok();
}

#[test]
fn deletion_is_that_of_find() {
    let Some(scratch) = planted() else { return };
    scratch.shell("mkdir -p t/nest/a/b/c t/nest/d/e && : > t/nest/d/file && rmdir t/empty").ok();
    let nested = "mkdir -p v:$PWD/t/nest/a/b/c v:$PWD/t/nest/d/e";
    scratch.shell(&format!("shoal {nested} && shoal touch v:$PWD/t/nest/d/file")).ok();
    scratch.shell("shoal rm -d v:$PWD/t/empty").ok();
    let expressions = [
        // Directories become empty, and files have fewer links, by what the command removes.
        "-type d -empty -delete",
        "-name '*.rs' -delete",
        "-type l -delete -print",
        "-depth -type f -name 'o*' -print -delete",
        "-mindepth 1 -type d -empty -delete",
        "-name src -prune -o -depth -name nothing -delete",
        "-depth",
        "-mindepth 1 -delete",
        "",
        "-delete",
    ];
    // Of two links the first goes, whichever that is; then the other is the only one.
    assert_eq!(same(&scratch, "-type f -links 2 -printf x -delete"), "x");
    scratch.shell("rm -f t/src/one.rs t/old/hard").ok();
    scratch.shell("shoal rm -f v:$PWD/t/src/one.rs v:$PWD/t/old/hard").ok();
    for expression in expressions {
        same(&scratch, expression);
        same_rest(&scratch, expression);
    }
    scratch.shoal(["find", "v", "-delete"]).ok();
    assert_eq!(scratch.shoal(["find", "v"]).ok(), "/\n", "the top directory stays");
    scratch.shoal(["fsck", "v"]).ok();
}

#[track_caller]
fn same_rest(scratch: &Scratch, after: &str) {
    let theirs = scratch.shell("find $PWD/t 2>/dev/null | sort").ok();
    let ours = scratch.shell("shoal find v:$PWD/t 2>/dev/null | sort").ok();
    assert_eq!(ours, theirs, "after {after}");
}

#[test]
fn a_directory_comes_before_or_after_its_contents() {
    let Some(scratch) = planted() else { return };
    for (option, parent_first) in [("", true), ("-depth", false)] {
        let printed = scratch
            .shell(&format!("shoal find v:$PWD/t {option} -name '[a-z]*' ! -name 'new*'"))
            .ok();
        let at = |name: &str| {
            let end = format!("/{name}");
            printed.lines().position(|line| line.ends_with(&end)).expect("printed")
        };
        for (parent, child) in [("t", "src"), ("src", "deep"), ("deep", "er"), ("er", "mega")] {
            assert_eq!(at(parent) < at(child), parent_first, "{option}: {parent} and {child}");
        }
        let again = scratch.shell(&format!(
            "shoal find v:$PWD/t {option} -name '[a-z]*' ! -name 'new*' -ls -print"
        ));
        let paths: Vec<String> =
            again.ok().lines().filter(|line| line.starts_with('/')).map(str::to_owned).collect();
        assert_eq!(paths, printed.lines().collect::<Vec<_>>(), "the same order with attributes");
    }
    let first =
        scratch.shell("shoal find v:$PWD/t -quit -o -print; shoal find v:$PWD/t -print -quit").ok();
    assert_eq!(first.lines().count(), 1, "{first}");
}

#[test]
fn a_wide_tree_comes_whole_and_in_order() {
    let scratch = Scratch::with_volume();
    for number in 0..2400 {
        scratch.write(format!("w/{:02}/{number:05}/f", number % 40), "x");
    }
    scratch.shoal(["cp", "-r", "w", "v:/"]).ok();
    let names = scratch.shoal(["find", "v:/w"]).ok();
    assert_eq!(names.lines().count(), 1 + 40 + 2 * 2400);
    for _ in 0..3 {
        let with_attributes = scratch.shoal(["find", "v:/w", "-links", "+0"]).ok();
        assert_eq!(with_attributes, names);
    }
    let pruned =
        scratch.shoal(["find", "v:/w", "-path", "/w/1*", "-prune", "-o", "-size", "1"]).ok();
    assert_eq!(pruned.lines().filter(|line| line.ends_with("/f")).count(), 2400 * 3 / 4);
    scratch.shoal(["find", "v:/w", "-delete"]).ok();
    assert_eq!(scratch.shoal(["ls", "v"]).ok(), "");
    scratch.shoal(["fsck", "v"]).ok();
}

#[test]
fn subvolumes_are_entered_unless_told_otherwise() {
    let scratch = Scratch::with_volume();
    scratch.shoal(["subvolume", "create", "v", "s"]).ok();
    scratch.shoal(["mkdir", "v:/s/in", "v:/out"]).ok();
    let all = scratch.shell("shoal find v | sort").ok();
    assert_eq!(all, "/\n/out\n/s\n/s/in\n");
    let one = scratch.shell("shoal find v -xdev | sort").ok();
    assert_eq!(one, "/\n/out\n/s\n");
    let refused = scratch.shoal(["find", "v:/s", "-delete"]);
    refused.fails(1, &["v:/s", "is a subvolume", "shoal subvolume delete"]);
}

#[test]
fn errors_are_said_before_anything_is_done() {
    let scratch = Scratch::with_volume();
    scratch.shoal(["mkdir", "v:/a"]).ok();
    scratch.shoal(["find", "v", "-exec", "ls", "{}", ";"]).fails(2, &["-exec", "-print0"]);
    scratch.shoal(["find", "v", "-delete", "-foo"]).fails(2, &["-foo"]);
    scratch.shoal(["find", "v", "-newer", "none"]).fails(2, &["none", "no such file"]);
    scratch.shoal(["find", "v", "-newer", "v:/none", "-delete"]).fails(2, &["v:/none"]);
    scratch.shoal(["find", "v", "--json", "-0"]).fails(2, &["--json"]);
    scratch.shoal(["find", "-name", "x"]).fails(2, &["no place"]);
    let partly = scratch.shoal(["find", "v:/none", "v:/a"]);
    partly.fails(1, &["v:/none", "no such file"]);
    assert_eq!(partly.stdout(), "/a\n");
    assert_eq!(scratch.shoal(["ls", "v"]).ok(), "a\n");
    let json = scratch.shoal(["find", "v:/", "-name", "a", "--json"]).ok();
    assert!(json.contains(r#""path":"/a""#), "{json}");
}

/// On a mounted path every expression does the same, and prints the same paths.
#[test]
fn expressions_on_a_mount_are_those_of_find() {
    let Some(scratch) = Scratch::to_mount() else { return };
    if !has_gnu(&["find", "touch", "sort"]) {
        return;
    }
    scratch.shoal(["mount", "v", "m", "-o", "allow_other"]).ok();
    scratch.shell(&format!("chmod 755 . m && cd m && {PLANT}")).ok();
    let printf = FORMATS.iter().map(|format| format!("-printf '{format}'"));
    let attributes = OF_FILES.iter().map(|it| format!("! -type d {}", it.replace("PWD/", "")));
    let others = OF_NAMES.iter().chain(OF_ALL).map(|it| (*it).to_owned());
    for expression in printf.chain(attributes).chain(others) {
        let run = |tool: &str, set: &str| {
            scratch.shell(&format!("cd m && {set} {tool} t {expression} | sort")).ok()
        };
        let theirs = run("find", "LC_ALL=C.UTF-8 TZ=UTC");
        assert_eq!(run("shoal find", ""), theirs, "{expression}");
    }
    for place in ["t/", "./t", "t/old/soft", "t/old/dir", "t/old/dir/", "t/src/../old"] {
        let line = format!("{place} -printf '%p|%P|%H|%f|%h|%d|%y\\n' | sort");
        let theirs = scratch.shell(&format!("cd m && find {line}")).ok();
        assert_eq!(scratch.shell(&format!("cd m && shoal find {line}")).ok(), theirs, "{place}");
    }
    scratch.umount("m");
    scratch.shoal(["fsck", "v"]).ok();
}
