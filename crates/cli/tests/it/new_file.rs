//! The files that commands write: what was there stays until the new one is whole.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::common::{SIZE, Scratch};

/// Limit of waiting for an event.
const PATIENCE: Duration = Duration::from_secs(300);

fn names(scratch: &Scratch) -> Vec<String> {
    let entries = fs::read_dir(scratch.path(".")).expect("list");
    let name = |entry: fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
    let mut names: Vec<String> = entries.map(|entry| name(entry.expect("an entry"))).collect();
    names.sort();
    names
}

fn wait_for(what: &str, is_there: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_there() {
        assert!(begun.elapsed() < PATIENCE, "no {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Interrupts a command that reads its standard input, and ends that.
fn interrupt(mut child: Child, rest: &[u8]) -> std::process::Output {
    let pid = Pid::from_child(&child);
    kill_process(pid, Signal::TERM).expect("a signal");
    let mut input = child.stdin.take().expect("an input");
    // It may have ended.
    let _ = input.write_all(rest);
    drop(input);
    child.wait_with_output().expect("the end")
}

#[test]
fn a_dump_that_fails_leaves_the_one_before() {
    let scratch = Scratch::with_volume();
    scratch.write("day", "yesterday");
    fs::set_permissions(scratch.path("day"), fs::Permissions::from_mode(0o640)).expect("chmod");
    let before = names(&scratch);
    scratch.shoal(["dump", "none", "-o", "day"]).fails(2, &["none"]);
    scratch.write("text", "no volume\n".repeat(1000));
    scratch.shoal(["dump", "text", "-o", "day"]).fails(2, &["text"]);
    fs::remove_file(scratch.path("text")).expect("remove");
    scratch.shoal(["dump", "v", "-o", "no/such/file"]).fails(2, &["no/such/file"]);
    scratch.shoal(["dump", "v", "-o", "."]).fails(2, &["is a directory"]);
    assert_eq!(fs::read(scratch.path("day")).expect("read"), b"yesterday");
    assert_eq!(names(&scratch), before);

    symlink("day", scratch.path("link")).expect("symlink");
    scratch.shoal(["dump", "v", "-o", "link"]).ok();
    assert!(scratch.path("link").symlink_metadata().expect("a link").is_symlink());
    let found = fs::metadata(scratch.path("day")).expect("a file");
    assert!(found.len() > 100 && found.mode() & 0o777 == 0o640, "{found:?}");
    scratch.shoal(["dump", "v", "-o", "new"]).ok();
    assert_eq!(fs::metadata(scratch.path("new")).expect("a file").mode() & 0o777, 0o600);
    scratch.shell("shoal restore link w && shoal restore new x && shoal ls w && shoal ls x").ok();
}

#[test]
fn a_volume_is_not_written_over() {
    let scratch = Scratch::with_volume();
    scratch.shoal(["mkfs", "w", "--size", SIZE]).ok();
    scratch.shell("echo a >a && shoal cp a v:/ && echo b >b && shoal cp b w:/").ok();
    symlink("v", scratch.path("soft")).expect("symlink");
    fs::hard_link(scratch.path("v"), scratch.path("hard")).expect("link");
    for name in ["v", "soft", "hard"] {
        for force in [&[][..], &["--force"]] {
            let dump = [&["dump", "v", "-o", name][..], force].concat();
            scratch.shoal(dump).fails(2, &[name, "is the volume itself"]);
            let tar = [&["tar", "-cf", name, "-C", "v:/"][..], force, &["a"]].concat();
            scratch.shoal(tar).fails(2, &[name, "is the volume itself"]);
        }
    }
    scratch.shoal(["dump", "v", "-o", "w"]).fails(2, &["w: holds the volume", "--force"]);
    scratch.shoal(["tar", "-cf", "w", "-C", "v:/", "a"]).fails(2, &["w: holds the volume"]);
    scratch.shoal(["cp", "v:/a", "w"]).fails(2, &["w: holds the volume", "--force"]);
    scratch.shoal(["bench", "age", "--target", "vol:x", "--plot", "w"]).fails(2, &["w: holds"]);
    assert_eq!(scratch.shoal(["cat", "v:/a"]).ok(), "a\n");
    assert_eq!(scratch.shoal(["cat", "w:/b"]).ok(), "b\n");
    scratch.shoal(["dump", "v", "-o", "w", "--force"]).ok();
    scratch.shoal(["restore", "w", "x"]).ok();
    assert_eq!(scratch.shoal(["cat", "x:/a"]).ok(), "a\n");
    scratch.shoal(["cp", "-f", "v:/a", "x"]).ok();
    assert_eq!(fs::read(scratch.path("x")).expect("read"), b"a\n");
}

#[test]
fn a_mounted_volume_is_no_file_to_write() {
    let Some(scratch) = Scratch::to_mount() else { return };
    scratch.shoal(["mkfs", "w", "--size", SIZE]).ok();
    scratch.shoal(["mount", "v", "m"]).ok();
    scratch.write("day", "yesterday");
    scratch.shoal(["dump", "v", "-o", "day"]).fails(2, &["v"]);
    assert_eq!(fs::read(scratch.path("day")).expect("read"), b"yesterday");
    for volume in ["v", "w"] {
        let trace = ["trace", "m", "--count", "1", "--output", volume];
        scratch.shoal(trace).fails(2, &[&format!("{volume}: holds the volume")]);
    }
    let forced = ["dump", "w", "-o", "v", "--force"];
    scratch.shoal(forced).fails(2, &["v: is in use"]);
    scratch.shell("echo a >m/a && shoal umount m && shoal fsck v").ok();
    assert_eq!(scratch.shoal(["cat", "v:/a"]).ok(), "a\n");
}

#[test]
fn pipes_and_devices_are_written_directly() {
    let scratch = Scratch::with_volume();
    scratch.shell("echo a >a && shoal cp a v:/").ok();
    let line = "shoal dump v >one && shoal dump v -o /dev/stdout | sed '$d' >two &&
                mkfifo pipe && { cat pipe >three & } && shoal dump v -o pipe >/dev/null && wait &&
                shoal dump v -o /dev/null && cmp one three && test -p pipe && test -c /dev/null";
    scratch.shell(line).ok();
    // With the command's own line behind it, and appended.
    scratch.shell("echo first >four && shoal tar -cf /dev/stdout -C v:/ a >>four").ok();
    assert!(fs::read(scratch.path("four")).expect("read").starts_with(b"first\n"));
    assert_eq!(scratch.shell("tail -c +7 four | shoal tar -t").ok(), "a\n");
}

#[test]
fn an_interrupted_archive_leaves_nothing() {
    let scratch = Scratch::with_volume();
    scratch.shell("echo a >a && shoal cp a v:/").ok();
    scratch.write("old", "yesterday");
    let before = names(&scratch);
    for name in ["old", "new"] {
        let mut command = scratch.command(["tar", "-cf", name, "-C", "v:/", "-T", "-"]);
        command.stdin(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().expect("a command");
        let open = format!("/proc/{}/fd", child.id());
        let directory = scratch.path(".").canonicalize().expect("a directory");
        let is_written = |link: &Path| {
            let target = fs::read_link(link).unwrap_or_default();
            target.parent() == Some(&directory) && target.file_name() != Some("v".as_ref())
        };
        wait_for("archive being written", || {
            let links = fs::read_dir(&open).expect("descriptors").flatten();
            links.into_iter().any(|link| is_written(&link.path()))
        });
        let ran = interrupt(child, b"a\n");
        let error = String::from_utf8_lossy(&ran.stderr);
        assert_eq!(ran.status.code(), Some(143), "{error}");
        assert!(error.contains(&format!("interrupted: {name} is as it was before")), "{error}");
        assert_eq!(names(&scratch), before);
    }
    assert_eq!(fs::read(scratch.path("old")).expect("read"), b"yesterday");
    scratch.shoal(["tar", "-cf", "old", "-C", "v:/", "a"]).ok();
    assert_eq!(scratch.shoal(["tar", "-tf", "old"]).ok(), "a\n");
}

#[test]
fn a_volume_stays_until_its_successor_is_restored() {
    let scratch = Scratch::with_volume();
    scratch.shell("echo a >a && shoal cp a v:/ && shoal dump v -o stream").ok();
    scratch.shoal(["mkfs", "w", "--size", SIZE]).ok();
    scratch.shell("shoal cp a w:/kept && head -c 20000 stream >cut").ok();
    let before = names(&scratch);
    scratch.shoal(["restore", "stream", "w"]).fails(2, &["w"]);
    scratch.shoal(["restore", "cut", "w", "--force"]).fails(1, &["cut", "ends too early"]);
    scratch.shoal(["restore", "stream", "stream", "--force"]).fails(2, &["itself"]);
    scratch.shoal(["restore", "none", "w", "--force"]).fails(2, &["none"]);
    assert_eq!(scratch.shoal(["cat", "w:/kept"]).ok(), "a\n");
    assert_eq!(names(&scratch), before);

    let stream = fs::read(scratch.path("stream")).expect("read");
    for name in ["w", "new"] {
        let mut command = scratch.command(["restore", "-", name, "--force"]);
        command.stdin(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("a command");
        let input = child.stdin.as_mut().expect("an input");
        input.write_all(&stream[..10_000]).expect("written");
        wait_for("volume being written", || names(&scratch) != before);
        let ran = interrupt(child, &stream[10_000..10_100]);
        let error = String::from_utf8_lossy(&ran.stderr);
        assert_eq!(ran.status.code(), Some(143), "{error}");
        assert!(error.contains(&format!("{name} is not restored")), "{error}");
        assert_eq!(names(&scratch), before);
    }
    assert_eq!(scratch.shoal(["cat", "w:/kept"]).ok(), "a\n");
    scratch.shoal(["restore", "stream", "w", "--force"]).ok();
    assert_eq!(scratch.shoal(["cat", "w:/a"]).ok(), "a\n");
    assert_eq!(names(&scratch), before);
}
