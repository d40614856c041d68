//! `shoal changes`, `watch`, `chmod`, `chown` and `touch` on a mounted path, by root and by an
//! ordinary user, beside the usual tools.

use crate::common;

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

use crate::common::{Scratch, USER, has_gnu, run_as_user, unmount};
use shoal_skip::tick;

/// Mounts a volume that keeps removed names on `m` for all users.
fn mounted() -> Option<Scratch> {
    mounted_with("allow_other")
}

fn mounted_with(options: &str) -> Option<Scratch> {
    let scratch = Scratch::to_mount()?;
    scratch.shoal(["changes", "v", "--keep-removed", "on"]).ok();
    scratch.shoal(["mount", "v", "m", "-o", options]).ok();
    scratch.shell("chmod 755 . m").ok();
    Some(scratch)
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().filter(|line| !line.starts_with("mark\t")).collect();
    lines.sort_unstable();
    lines
}

/// Makes a mark, between two ticks of the clock of file times.
fn mark(scratch: &Scratch, place: &str) -> String {
    tick();
    let mark = scratch.shoal(["changes", place, "--now"]).ok().trim_end().to_owned();
    tick();
    mark
}

#[test]
fn a_mount_and_its_volume_tell_the_same() {
    let Some(scratch) = mounted() else { return };
    scratch.shell("cd m && mkdir -p t/d out && echo 1 > t/a && echo 2 > t/d/b && echo 3 > t/d/c");
    scratch.shell("cd m && echo 4 > out/x").ok();
    let before = mark(&scratch, "m/t");
    scratch.shell("cd m && mv t/d t/e && rm t/a && echo 5 > t/n && mv out/x t/x").ok();
    let of = |place: &str, more: &[&str]| {
        scratch.shoal([&["changes", place, "--since", &before], more].concat())
    };
    let lines = of("m/t", &[]).ok();
    assert_eq!(sorted(&lines), ["A\tn", "D\ta", "M\t.", "R\t\tx", "R\td\te"]);
    assert_eq!(of("m/t", &["--removed"]).ok(), "d\na\n");
    let copied = of("m/t", &["--files-from", "-0"]).ok();
    let mut copied: Vec<&str> = copied.split_terminator('\0').collect();
    copied.sort_unstable();
    assert_eq!(copied, [".", "e", "e/b", "e/c", "n", "x"]);
    let json = of("m/t", &["--json"]).ok();
    assert!(json.contains(r#""paths":["e"],"from":"d","more":false}"#), "{json}");
    // The limit is the directory.
    assert_eq!(sorted(&of("m/out", &[]).ok()), ["D\tx", "M\t."]);
    let next = lines.trim_end().rsplit('\t').next().expect("a mark").to_owned();
    assert_eq!(sorted(&scratch.shoal(["changes", "m", "--since", &next]).ok()), [""; 0]);
    of("m/t/n", &[]).fails(1, &["m/t/n", "not a directory"]);
    of("m/none", &[]).fails(1, &["m/none", "no such file"]);
    scratch.shoal(["changes", "m", "--keep-removed", "on"]).ok();
    scratch.shoal(["mkfs", "w", "--size", common::SIZE]).ok();
    let theirs = mark(&scratch, "w");
    let refused = scratch.shoal(["changes", "m", "--since", &theirs]);
    refused.fails(1, &["m", "another volume", "full scan"]);
    scratch
        .shell("cd m && mkdir gone && cd gone && rmdir ../gone && shoal changes .")
        .fails(1, &["no such file"]);
    unmount(&scratch);
    let whole = scratch.shoal(["changes", "v:/t", "--since", &before]).ok();
    assert_eq!(sorted(&whole), sorted(&lines));
}

#[test]
fn a_user_is_told_what_it_could_find() {
    let Some(scratch) = mounted() else { return };
    scratch.shell("cd m && mkdir -p t/open t/none t/search && chmod 700 t/none").ok();
    scratch.shell("cd m && chmod 711 t/search").ok();
    let before = mark(&scratch, "m");
    scratch.shell("cd m/t && for d in open none search; do echo > $d/new; done").ok();
    let told = |place: &str| {
        run_as_user(&scratch, &format!("cd m && shoal changes {place} --since {before}"))
    };
    assert_eq!(sorted(&told("t").ok()), ["A\topen/new", "M\tnone", "M\topen", "M\tsearch"]);
    told("t/none").fails(1, &["t/none", "permission denied"]);
    told("t/search").fails(1, &["t/search", "permission denied"]);
    unmount(&scratch);
}

/// Starts `shoal watch` and returns it with its output.
fn watching(
    scratch: &Scratch,
    arguments: &[&str],
) -> (Child, impl Iterator<Item = String> + use<>) {
    let mut command = scratch.command([&["watch"], arguments].concat());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("watch");
    let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    (child, lines.map(|line| line.expect("a line")))
}

fn signal(child: &Child, signal: rustix::process::Signal) {
    let pid = i32::try_from(child.id()).expect("a number");
    let pid = rustix::process::Pid::from_raw(pid).expect("a process");
    rustix::process::kill_process(pid, signal).expect("a signal");
}

#[test]
fn changes_are_watched() {
    let Some(scratch) = mounted() else { return };
    scratch.shell("mkdir -p m/t/d m/other && echo > m/t/old").ok();
    let before = mark(&scratch, "m");
    let (mut child, mut lines) = watching(&scratch, &["m/t", "--since", &before]);
    scratch.shell("echo > m/other/file; echo > m/t/new").ok();
    let mut seen = Vec::new();
    // Until the name: the directory may be told alone before.
    let mut until = |wanted: &str| {
        for line in lines.by_ref() {
            seen.push(line.clone());
            if line.ends_with(wanted) {
                return;
            }
        }
        panic!("{wanted} is not told");
    };
    until("\tnew");
    scratch.shell("rm m/t/old").ok();
    until("D\told");
    scratch.shell("mv m/t/d m/t/e").ok();
    until("R\td\te");
    signal(&child, rustix::process::Signal::TERM);
    assert!(seen.iter().all(|line| !line.contains("file")), "{seen:?}");
    drop(lines);
    let status = child.wait().expect("ended");
    assert_eq!(status.code(), Some(0));
    let mut errors = BufReader::new(child.stderr.take().expect("piped")).lines();
    let end = errors.next().expect("a line").expect("text");
    let mark = end.strip_prefix("shoal: m/t: mark ").expect("the mark");
    scratch.shell("echo > m/t/later").ok();
    let rest = scratch.shoal(["changes", "m/t", "--since", mark]).ok();
    assert!(sorted(&rest).iter().any(|line| line.ends_with("\tlater")), "{rest}");
    unmount(&scratch);
}

#[test]
fn a_watch_has_an_end() {
    let Some(scratch) = mounted() else { return };
    scratch.shell("mkdir m/t && echo > m/t/a").ok();
    // Everything until now is told at once.
    let start = mark(&scratch, "m");
    scratch.shell("echo > m/t/b").ok();
    let once = ["watch", "m/t", "--since", &start, "--once", "--json", "--timeout", "1h"];
    let ran = scratch.shoal(once);
    let out = ran.stdout();
    assert!(out.contains(r#""paths":["b"]"#) && out.contains(r#"{"mark":""#), "{out}");
    assert_eq!((ran.status(), ran.stderr().lines().count()), (Some(0), 1));
    scratch.shoal(["watch", "m/t", "--timeout", "1", "--mark-file", "mark"]).ok();
    let kept = std::fs::read_to_string(scratch.path("mark")).expect("a mark");
    assert_eq!(kept.len(), 77);
    scratch.shell("echo > m/t/c").ok();
    let watch = ["watch", "m/t", "--once", "--mark-file", "mark"];
    assert_eq!(sorted(&scratch.shoal(watch).ok()), ["A\tc", "M\t."]);
    let next = std::fs::read_to_string(scratch.path("mark")).expect("a mark");
    assert_ne!(kept, next);
    let served = scratch.shoal(["watch", "v", "--once", "--timeout", "1"]);
    assert_eq!(served.status(), Some(0), "by a session");
    scratch.shoal(["watch", "m/t/a"]).fails(1, &["m/t/a", "not a directory"]);
    scratch.shoal(["watch", "."]).fails(2, &["not in a mounted"]);
    unmount(&scratch);
    scratch.shoal(["watch", "v", "--once"]).fails(2, &["v", "mount it"]);
}

const PLANT: &str = "
    umask 022; mkdir -p t/d/e t/open && printf 1 > t/f && printf 2 > t/d/g && printf 3 > t/d/e/h &&
    ln -s ../f t/d/link && ln -s nowhere t/broken && ln -s d t/dirlink &&
    chmod 755 t/d/g && chmod 6711 t/open && chmod 4755 t/d/e/h && chmod 3770 t/d/e";

/// Runs a command by the usual tool in one tree and by ours in another, and compares both.
#[track_caller]
fn same(scratch: &Scratch, line: &str, user: bool) {
    both(scratch, [line, &line.replace("shoal ", "")], user);
}

/// Runs our command and the usual one, each in its tree, and compares both.
#[track_caller]
fn both(scratch: &Scratch, [ours, theirs]: [&str; 2], user: bool) {
    let run = |dir: &str, line: &str| {
        let line = format!("umask 022; export TZ=UTC LC_ALL=C; cd m/{dir} && {line}");
        match user {
            false => scratch.shell(&line),
            true => run_as_user(scratch, &line),
        }
    };
    let line = ours;
    let (ours, theirs) = (run("ours", ours), run("theirs", theirs));
    assert_eq!(sorted(&ours.stdout()), sorted(&theirs.stdout()), "{line}");
    assert_eq!(ours.status(), theirs.status(), "{line}: {ours} {theirs}");
    let of = |dir: &str| {
        let show = "find . -printf '%p %M %U %G %Ty%Tm%Td %Ay%Am%Ad\\n' | sort";
        scratch.shell(&format!("cd m/{dir} && {show}")).ok()
    };
    assert_eq!(of("ours"), of("theirs"), "after {line}");
}

#[test]
fn trees_are_changed_as_by_the_usual_tools() {
    if !has_gnu(&["chmod", "chown", "touch", "find", "sort"]) {
        return;
    }
    for options in ["allow_other", "allow_other,writeback", "allow_other,open"] {
        let Some(scratch) = mounted_with(options) else { return };
        let plant = |dir: &str| scratch.shell(&format!("mkdir m/{dir} && cd m/{dir} && {PLANT}"));
        plant("ours").ok();
        plant("theirs").ok();
        for line in [
            "shoal chmod -R go-rwx,a+X t",
            "shoal chmod -R u=rwX,go=rX t/d",
            "shoal chmod -R g+s,+t t/open t/d",
            "shoal chmod 600 t/f",
            "shoal chmod -v u+x t/f t/d/g",
            "shoal chmod a=rw,u+s t/d/link",
            "shoal chmod -Rc 755 t",
            "shoal chmod -Rv o-x,u-s t",
            "shoal chown -R 1000:1001 t",
            "shoal chown -R 7 t/d t/f t/broken",
            "shoal chown -h 8:9 t/dirlink t/broken",
            "shoal chown 5 t/d/link",
            "shoal chown :6 t/f",
            "shoal touch -d 2001-02-03 t t/f t/d",
            "shoal touch -a -d 2002-02-03 t/f",
            "shoal touch -m -r t/d t/f",
            "shoal touch -c t/none",
            "shoal touch -d 2003-04-05 t/made",
            "shoal touch -h -d 2004-04-05 t/broken",
        ] {
            same(&scratch, line, false);
        }
        let (ours, theirs) = ("shoal touch -R", "find t -exec touch -h");
        both(
            &scratch,
            [&format!("{ours} -d 2011-02-03 t"), &format!("{theirs} -d 2011-02-03 {{}} +")],
            false,
        );
        // More parts than one call takes.
        let parts = vec!["u+r"; 30].join(",");
        same(&scratch, &format!("shoal chmod -R {parts},o= t"), false);
        unmount(&scratch);
    }
}

#[test]
fn a_user_changes_what_the_usual_tools_let_it() {
    if !has_gnu(&["chmod", "chown", "find", "sort"]) {
        return;
    }
    let Some(scratch) = mounted() else { return };
    for dir in ["ours", "theirs"] {
        scratch.shell(&format!("mkdir m/{dir} && cd m/{dir} && {PLANT}")).ok();
        let own = format!("cd m/{dir} && chown -R {USER}:{USER} t && chown 0 t/d/g t/open");
        scratch.shell(&own).ok();
        scratch.shell(&format!("cd m/{dir} && mkdir t/no && echo > t/no/x && chmod 700 t/no")).ok();
    }
    for line in [
        "shoal chmod -R o= t",
        "shoal chown -R 0 t",
        "shoal chown -R :4242 t",
        "shoal chmod -R 700 t/no",
        "shoal chmod 777 t/d/g",
        "shoal chmod -R u-x t/d/e",
        "shoal chown -R :0 t/d/e",
    ] {
        // The words of the messages differ, and their number is the same.
        same(&scratch, &format!("{line} 2>/dev/null"), true);
    }
    let ours = run_as_user(&scratch, "cd m/ours && shoal chmod -R g-w t");
    let lines = ours.stderr();
    for part in ["t/d/g: operation not permitted", "t/open: operation not permitted"] {
        assert!(lines.contains(part), "{lines}");
    }
    unmount(&scratch);
}
