//! `shoal run`: unmodified programs whose calls are made by sessions do the same as on another
//! filesystem.

use regex::Regex;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{Ran, Scratch};

/// The library, which is built with this test program.
pub(crate) fn library() -> PathBuf {
    let folder = Path::new(env!("CARGO_BIN_EXE_shoal")).parent().expect("a folder");
    let places = [folder.join("deps/libshoal_run.so"), folder.join("libshoal_run.so")];
    let found = places.into_iter().find(|place| place.exists());
    found.expect("libshoal_run.so: cargo build --package shoal-run")
}

/// A mounted volume in `m`, and a directory `t` of another filesystem.
fn mounted() -> Option<Scratch> {
    let scratch = Scratch::to_mount()?;
    scratch.shoal(["mount", "v", "m"]).ok();
    fs::create_dir_all(scratch.path("t")).expect("mkdir");
    Some(scratch)
}

/// Runs a line of bash in a directory, with the library or without.
fn run_in(scratch: &Scratch, dir: &Path, with: bool, line: &str) -> Ran {
    let run = if with { "shoal run --stats --" } else { "" };
    let script = scratch.write("script", line);
    scratch.shell(&format!(
        "export SHOAL_RUN_LIBRARY={} HOME={} LC_ALL=C.UTF-8 TZ=UTC GIT_CONFIG_NOSYSTEM=1; \
         cd {} && {run} bash {}",
        library().display(),
        scratch.path("").display(),
        dir.display(),
        script.display()
    ))
}

/// Everything about the files of a tree that a program can have made: not the times that it has not
/// set, nor the numbers of inodes.
fn tree(top: &Path) -> String {
    let (mut out, mut todo) = (String::new(), vec![top.to_owned()]);
    while let Some(path) = todo.pop() {
        let found = fs::symlink_metadata(&path).expect("stat");
        let name = path.strip_prefix(top).expect("below").display().to_string();
        let times = if found.mtime() < 1_000_000_000 { found.mtime() } else { 0 };
        let links = if found.is_dir() { 0 } else { found.nlink() };
        let owner = (found.uid(), found.gid());
        write!(out, "{name} {:o} {links} {owner:?} {times}", found.mode()).expect("a string");
        if found.is_symlink() {
            write!(out, " -> {}", fs::read_link(&path).expect("a link").display()).expect("write");
        } else if found.is_file() {
            let bytes = fs::read(&path).expect("read");
            write!(out, " {} {:?}", bytes.len(), xxhash_rust::xxh3::xxh3_64(&bytes))
                .expect("write");
        } else if found.is_dir() {
            let mut names: Vec<PathBuf> = fs::read_dir(&path)
                .expect("list")
                .map(|entry| entry.expect("entry").path())
                .collect();
            names.sort();
            todo.extend(names);
        }
        out.push('\n');
    }
    out
}

/// Calls by sessions, of the table that `--stats` prints.
fn by_session(ran: &Ran) -> u64 {
    let all = ran.stderr().lines().find(|line| line.starts_with("shoal: all ")).map(str::to_owned);
    let all = all.unwrap_or_else(|| panic!("no counts: {ran}"));
    all.split_whitespace().nth(2).and_then(|count| count.parse().ok()).expect("a number")
}

/// Runs a line on another filesystem without the library and in a volume with it, and compares:
/// output, status and the tree that is left. Sessions must have made at least so many `calls`.
#[track_caller]
fn the_same(scratch: &Scratch, name: &str, calls: u64, line: &str) {
    let (reference, dir) = (scratch.path("t").join(name), scratch.path("m").join(name));
    fs::create_dir(&reference).expect("mkdir");
    fs::create_dir(&dir).expect("mkdir");
    let wanted = run_in(scratch, &reference, false, line);
    let ran = run_in(scratch, &dir, true, line);
    let shown = |text: String, dir: &Path| text.replace(&dir.display().to_string(), "DIR");
    assert_eq!(shown(ran.stdout(), &dir), shown(wanted.stdout(), &reference), "{name}: {ran}");
    assert_eq!(ran.status(), wanted.status(), "{name}: {ran}");
    assert_eq!(tree(&dir), tree(&reference), "{name}");
    assert!(by_session(&ran) >= calls, "{name}: {ran}");
    // What the mount sees is what the sessions have made; the kernel's caches hold nothing else.
    let seen =
        scratch.shell(&format!("cd {} && ls -lR >/dev/null && find . | wc -l", dir.display()));
    assert_eq!(seen.ok().trim().parse().ok(), Some(tree(&reference).lines().count()), "{name}");
}

/// The tools of every machine, and the least number of their calls that sessions make.
const LINES: &[(&str, u64, &str)] = &[
    ("redirections", 0, include_str!("run/redirections.sh")),
    ("coreutils", 100, include_str!("run/coreutils.sh")),
    ("sed", 20, include_str!("run/sed.sh")),
    ("tar", 100, include_str!("run/tar.sh")),
    ("find", 50, include_str!("run/find.sh")),
    ("forks", 10, include_str!("run/forks.sh")),
];

#[test]
fn tools_do_the_same_by_sessions_as_elsewhere() {
    let Some(scratch) = mounted() else { return };
    for (name, calls, line) in LINES {
        the_same(&scratch, name, *calls, line);
    }
    scratch.umount("m");
    assert_eq!(scratch.shoal(["fsck", "v"]).status(), Some(0));
}

/// A program that works with open files, processes and threads.
const PYTHON: &str = include_str!("run/program.py");

#[test]
fn python_does_the_same_by_sessions_as_elsewhere() {
    if !has("python3") {
        return;
    }
    let Some(scratch) = mounted() else { return };
    let script = scratch.write("program.py", PYTHON);
    the_same(&scratch, "python", 300, &format!("exec python3 {}", script.display()));
    scratch.umount("m");
}

#[test]
fn git_does_the_same_by_sessions_as_elsewhere() {
    if !has("git") {
        return;
    }
    let Some(scratch) = mounted() else { return };
    the_same(&scratch, "git", 500, include_str!("run/git.sh"));
    scratch.umount("m");
}

#[test]
fn the_library_steps_aside() {
    let Some(scratch) = mounted() else { return };
    let dir = scratch.path("m");
    let files = "for n in 1 2 3 4 5 6 7 8; do echo $n > f$n; done; cat f*; rm f*";
    // Switched off, it counts nothing.
    let off = run_in(&scratch, &dir, true, &format!("export SHOAL_RUN=off; bash -c '{files}'"));
    assert_eq!(off.stdout(), "1\n2\n3\n4\n5\n6\n7\n8\n", "{off}");
    // Below a mount that is hidden by another one are that one's files.
    let over = "mkdir under; touch under/a under/b; mount -t tmpfs none under; touch under/c; \
                ls under; umount under; ls under; rm -r under";
    let ran = run_in(&scratch, &dir, true, over);
    assert_eq!(ran.stdout(), "c\na\nb\n", "{ran}");
    // A limit of the size of files is the kernel's.
    let limit =
        "touch a b c d e f; ulimit -f 1; head -c 5000 /dev/zero > big; stat -c %s big; rm *";
    let (ran, wanted) =
        (run_in(&scratch, &dir, true, limit), run_in(&scratch, &scratch.path("t"), false, limit));
    assert_eq!(ran.stdout(), wanted.stdout(), "{ran}");
    scratch.umount("m");
}

/// The end of a file that a session has appended to or cut is where an append by the mount goes on.
#[test]
fn appends_by_a_session_and_by_the_mount_follow_each_other() {
    let Some(scratch) = mounted() else { return };
    let dir = scratch.path("m");
    let line = "
        touch a b c d e; printf 1234 > keep; printf 1234 > cut
        exec 5>>keep 6>cut; [ -e none ]; cat < /dev/null >&5
        printf 56789 > more; dd if=more of=keep oflag=append conv=notrunc status=none
        dd if=more of=cut bs=1 count=1 status=none
        SHOAL_RUN=off bash -c 'printf K >> keep; printf K >> cut'
        dd if=more of=keep oflag=append conv=notrunc status=none; cat keep; echo; cat cut; echo
        SHOAL_RUN=off bash -c 'head -c 9000 /dev/zero >> cut; cat keep; wc -c < cut'";
    let ran = run_in(&scratch, &dir, true, line);
    assert_eq!(ran.stdout(), "123456789K56789\n5K\n123456789K567899002\n", "{ran}");
    assert!(by_session(&ran) > 10, "{ran}");
    scratch.umount("m");
}

/// Copies of directories, from which programs that walk are answered, are never old.
#[test]
fn what_others_change_is_seen_at_once() {
    if !has("python3") {
        return;
    }
    let Some(scratch) = mounted() else { return };
    let script = scratch.write("copies.py", include_str!("run/copies.py"));
    the_same(&scratch, "copies", 1000, &format!("exec python3 {}", script.display()));
    let renamed = scratch.write("renamed.py", include_str!("run/renamed.py"));
    the_same(&scratch, "renamed", 50, &format!("exec python3 {}", renamed.display()));
    let random = scratch.write("random.py", include_str!("run/random.py"));
    for seed in 1..=4 {
        let line = format!("exec python3 {} {seed} 600", random.display());
        the_same(&scratch, &format!("random-{seed}"), 1000, &line);
    }
    // Nor do they outlive their server.
    let server = shoal_fuse::server_pid(&scratch.path("m")).expect("a server");
    let killed = scratch.write("killed.py", include_str!("run/killed.py"));
    let line = format!(
        "mkdir -p k/{{1..9}}; touch k/{{1..9}}/f; exec python3 {} {server}",
        killed.display()
    );
    let ran = run_in(&scratch, &scratch.path("m"), true, &line);
    assert_eq!(ran.stdout(), "True 10\n", "{ran}");
    scratch.umount("m");
}

/// An ordinary user has the same rights by sessions as by the mount.
#[test]
fn users_have_the_same_rights() {
    if !has("setpriv") {
        return;
    }
    let Some(scratch) = mounted() else { return };
    scratch.shell("umount m").ok();
    scratch.shell("shoal mount -o allow_other v m").ok();
    // Nobody but the superuser may write into the table of its programs.
    let counts = scratch.write("counts", "");
    scratch.shell("chmod 666 counts").ok();
    let users = include_str!("run/users.sh");
    let line = format!("COUNTS={}\n{users}", counts.display());
    the_same(&scratch, "users", 1, &line);
    let counted = fs::read_to_string(counts).expect("read");
    assert!(counted.lines().any(|line| line.starts_with("list ")), "by the user: {counted}");
    scratch.umount("m");
}

#[test]
fn the_environment_for_a_shell_and_the_status_of_programs() {
    let scratch = Scratch::new();
    let with = |line: &str| {
        scratch.shell(&format!("export SHOAL_RUN_LIBRARY={}; {line}", library().display()))
    };
    let environment = with("shoal run --env").ok();
    assert!(environment.contains("export LD_PRELOAD='/") && environment.contains("SHOAL_RUN='on'"));
    assert_eq!(with("eval \"$(shoal run --env)\"; echo $SHOAL_RUN").ok(), "on\n");
    assert_eq!(with("shoal run -- sh -c 'exit 7'").status(), Some(7));
    assert_eq!(with("shoal run --stats -- sh -c 'kill -TERM $$'").status(), Some(143));
    with("shoal run -- /no/such/program").fails(127, &["/no/such/program", "No such file"]);
    with("shoal run -- /etc/passwd").fails(126, &["/etc/passwd", "denied"]);
    assert_eq!(with("shoal run").status(), Some(2));
    with("SHOAL_RUN_LIBRARY=/none shoal run true").fails(2, &["/none", "no such file"]);
}

/// Returns whether a program is there; records a skip if not.
fn has(program: &str) -> bool {
    let found = std::env::var_os("PATH").is_some_and(|path| {
        std::env::split_paths(&path).any(|folder| folder.join(program).exists())
    });
    if !found {
        shoal_skip::skipped(&format!("{program} is not installed"));
    }
    found
}

/// The functions in the table of the documents: those in the library, and those that are not.
fn in_table() -> [BTreeSet<String>; 2] {
    let table = include_str!("../../../../docs/run-functions.md");
    let (inside, outside) = table.split_once("## Not in the library").expect("two tables");
    let names = |part: &str| {
        let rows = part.lines().filter(|line| line.starts_with("| `"));
        let first = rows.filter_map(|row| row.split('|').nth(1));
        let names = first.flat_map(|cell| cell.split('`').skip(1).step_by(2));
        names.map(str::to_owned).collect()
    };
    [names(inside), names(outside)]
}

/// Takes `__attribute__ ((...))` off declarations.
fn without_attributes(text: &str) -> String {
    let mut parts = text.split("__attribute__");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let mut depth = 0;
        let end = part.find(|c: char| {
            depth += i32::from(c == '(') - i32::from(c == ')');
            c == ')' && depth == 0
        });
        out.push_str(&part[end.map_or(0, |end| end + 1)..]);
    }
    out
}

/// No function of the C library that takes a path or a descriptor has been overlooked.
#[test]
fn the_table_of_functions_is_that_of_the_library_and_of_the_c_library() {
    let [inside, outside] = in_table();
    assert!(inside.is_disjoint(&outside));
    let symbols = Command::new("nm").args(["-D", "--defined-only"]).arg(library()).output();
    let symbols = String::from_utf8(symbols.expect("nm, of the compiler").stdout).expect("text");
    let exported = symbols.lines().filter_map(|line| line.split_once(" T "));
    // A dependency has functions for C, of which nothing is left when the library is linked as a
    // whole.
    let exported = exported.filter(|(_, name)| !name.starts_with("crc_fast_"));
    let exported: BTreeSet<String> = exported.map(|(_, name)| name.to_owned()).collect();
    assert_eq!(inside, exported, "docs/run-functions.md and the library");

    let version = Command::new("getconf").arg("GNU_LIBC_VERSION").output().expect("getconf");
    if version.stdout != b"glibc 2.36\n" {
        shoal_skip::skipped("the table is that of glibc 2.36");
        return;
    }
    let scratch = Scratch::new();
    let headers = scratch.write("headers.c", include_str!("run/headers.c"));
    let text = Command::new("cc").args(["-E", "-P"]).arg(headers).output().expect("a compiler");
    let text = String::from_utf8(text.stdout).expect("text").replace(['\n', '\t'], " ");
    let declared = Regex::new(r"extern [\w\s*]+?\b(\w+) ?\(((?:[^()]|\([^()]*\))*)\)[^;{]*;")
        .expect("a pattern");
    // The names of such parameters in the headers.
    let names = "fd|fildes|dfd|fd1|fd2|fdin|fdout|infd|outfd|in_fd|out_fd|fromfd|tofd|atfd|\
                 file|path|filename|pathname|from|to|old|new|oldpath|newpath|dirp|dir|stream|\
                 template|special_file|target|path1|path2";
    let takes = Regex::new(&format!(r"\b__({names})\b")).expect("a pattern");
    let text = without_attributes(&text);
    let found = declared.captures_iter(&text).filter(|of| takes.is_match(&of[2]));
    let found: BTreeSet<String> = found.map(|of| of[1].to_owned()).collect();
    assert!(found.len() > 250, "the headers are read otherwise: {}", found.len());
    let known: BTreeSet<String> = inside.union(&outside).cloned().collect();
    let missing: Vec<_> = found.difference(&known).collect();
    assert!(missing.is_empty(), "in no row of docs/run-functions.md: {missing:?}");
}
