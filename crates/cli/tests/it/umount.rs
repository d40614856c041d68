//! Unmounting where the same server is mounted elsewhere too, and where it does not answer.
//!
//! They need root and `/dev/fuse`; without, each test is skipped.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{Ran, Scratch, is_mount};

/// Longest wait for an event.
const PATIENCE: Duration = Duration::from_secs(120);

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Checks that an unmount has succeeded, and has told of another mount.
#[track_caller]
fn tells(ran: &Ran, parts: &[&str]) {
    assert_eq!(ran.status(), Some(0), "{ran}");
    let line = ran.stderr();
    assert_eq!(line.lines().count(), 1, "{ran}");
    for part in parts {
        assert!(line.contains(part), "'{part}' is not in the message\n{ran}");
    }
}

/// A child that is ended with the test.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// It waited for ever: its server ends when the last mount is gone.
#[test]
fn an_unmount_returns_when_a_bind_mount_remains() {
    let Some(scratch) = Scratch::to_mount() else { return };
    scratch.shoal(["mount", "v", "m"]).ok();
    scratch.shell("mkdir m/d && echo text > m/d/f && mount --bind m/d n").ok();
    let ran = scratch.shoal(["umount", "m"]);
    let n = scratch.path("n").display().to_string();
    tells(&ran, &["m: unmounted here", "also mounted on", &n]);
    assert!(!is_mount(&scratch.path("m")));
    assert_eq!(fs::read_to_string(scratch.path("n/f")).expect("read"), "text\n");
    scratch.shoal(["umount", "n"]).ok();
    // The volume is released.
    assert_eq!(scratch.shoal(["cat", "v:/d/f"]).ok(), "text\n");
}

/// It said that changes were lost, and failed, though all was well: a file was taken for a mount
/// without a server.
#[test]
fn a_file_that_is_a_bind_mount_is_unmounted_like_a_directory() {
    let Some(scratch) = Scratch::to_mount() else { return };
    scratch.write("x", "");
    scratch.shoal(["mount", "v", "m"]).ok();
    scratch.shell("echo text > m/f && mount --bind m/f x").ok();
    let m = scratch.path("m").display().to_string();
    tells(&scratch.shoal(["umount", "x"]), &["x: unmounted here", "also mounted on", &m]);
    scratch.shell("mount --bind m/f x").ok();
    tells(&scratch.shoal(["umount", "m"]), &["m: unmounted here", "/x"]);
    assert_eq!(fs::read_to_string(scratch.path("x")).expect("read"), "text\n");
    // The last one, and the server with it.
    scratch.shoal(["umount", "x"]).ok();
    assert_eq!(scratch.shoal(["cat", "v:/f"]).ok(), "text\n");
    // A fifo is opened without its server.
    scratch.shoal(["mount", "v", "m"]).ok();
    scratch.shell("mkfifo m/p && mount --bind m/p x").ok();
    tells(&scratch.shoal(["umount", "x"]), &["x: unmounted here", &m]);
    scratch.shoal(["umount", "m"]).ok();
}

/// As in a container that was started while the volume was mounted.
#[test]
fn an_unmount_returns_when_another_namespace_has_the_mount() {
    let Some(scratch) = Scratch::to_mount() else { return };
    scratch.shoal(["mount", "v", "m"]).ok();
    scratch.write("m/f", "text\n");
    let mut other = Command::new("unshare");
    other.args(["-m", "--propagation", "private", "sh", "-c", "echo ready; exec sleep 100000"]);
    let mut other = Ended(other.stdout(Stdio::piped()).spawn().expect("unshare"));
    let mut line = String::new();
    let output = other.0.stdout.take().expect("a pipe");
    BufReader::new(output).read_line(&mut line).expect("read");
    if line != "ready\n" {
        scratch.shoal(["umount", "m"]).ok();
        return shoal_skip::skipped("no mount namespaces");
    }
    let pid = other.0.id();
    let output = scratch.command(["umount", "m"]).output().expect("run shoal");
    assert!(output.status.success(), "{output:?}");
    // Other tests may have namespaces too, and not all are named.
    let line = String::from_utf8_lossy(&output.stderr);
    let is_named = line.contains(&pid.to_string()) || line.contains("more places");
    assert!(line.contains("in the mount namespace of process") && is_named, "{line}");
    assert!(!is_mount(&scratch.path("m")));
    scratch.shoal(["ls", "v", "--direct"]).fails(2, &["in use"]);
    drop(other);
    wait_until("the server ends with the last namespace", || {
        scratch.shoal(["cat", "v:/f", "--direct"]).status() == Some(0)
    });
}

/// The socket of a server in a container has a peer without a process number there: it was told
/// nothing, and said that what was not synced is lost.
#[test]
fn an_unmount_from_outside_a_container_is_told_that_the_volume_is_closed() {
    let Some(scratch) = Scratch::to_mount() else { return };
    let mut inside = Command::new("unshare");
    inside.args(["-p", "-f", "--kill-child", "sh", "-c"]);
    inside.args(["echo ready; \"$0\" mount v m && echo mounted; exec sleep 100000"]);
    inside.arg(env!("CARGO_BIN_EXE_shoal")).current_dir(scratch.path("."));
    let mut inside = Ended(inside.stdout(Stdio::piped()).spawn().expect("unshare"));
    let mut lines = BufReader::new(inside.0.stdout.take().expect("a pipe")).lines();
    let mut line = || lines.next().and_then(Result::ok).unwrap_or_default();
    if line() != "ready" {
        return shoal_skip::skipped("no pid namespaces");
    }
    assert_eq!(line(), "mounted");
    scratch.write("m/f", "text\n");
    let ran = scratch.shoal(["umount", "m"]);
    assert_eq!((ran.status(), ran.stderr().as_str()), (Some(0), ""), "{ran}");
    assert_eq!(scratch.shoal(["cat", "v:/f"]).stdout(), "text\n");
}

/// They said nothing, and waited.
#[test]
fn a_stopped_server_is_named() {
    let Some(scratch) = Scratch::to_mount() else { return };
    let mut command = scratch.command(["mount", "v", "m", "--foreground", "--report-ready"]);
    command.args(["-o", "keeper=off"]);
    let mut server = Ended(command.stdout(Stdio::piped()).spawn().expect("start"));
    let mut line = String::new();
    let output = server.0.stdout.take().expect("a pipe");
    BufReader::new(output).read_line(&mut line).expect("read");
    assert_eq!(line, "ready\n");
    let pid = server.0.id();
    let signal = |signal| {
        let pid = rustix::process::Pid::from_raw(pid as i32).expect("a number");
        rustix::process::kill_process(pid, signal).expect("signal");
    };
    let state = || {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("a process");
        stat.rsplit(") ").next().and_then(|rest| rest.chars().next())
    };
    let remedy = format!("kill -CONT {pid}");
    for command in ["info", "df", "umount"] {
        signal(rustix::process::Signal::STOP);
        wait_until("it stops", || state() == Some('T'));
        let mut asking = scratch.command([command, "m"]);
        asking.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut asking = Ended(asking.spawn().expect("start"));
        let mut line = String::new();
        let mut errors = BufReader::new(asking.0.stderr.take().expect("a pipe"));
        errors.read_line(&mut line).expect("read");
        assert!(line.contains("m: ") && line.contains(&remedy), "{command}: {line}");
        signal(rustix::process::Signal::CONT);
        assert!(asking.0.wait().expect("wait").success(), "{command}");
    }
    assert!(server.0.wait().expect("wait").success());
    assert!(!is_mount(&scratch.path("m")));
}

/// A thread of the server once kept a file of the mount that was open when it started: the mount
/// was busy for ever.
#[test]
fn threads_with_their_own_descriptors_keep_nothing_but_the_connection() {
    let Some(scratch) = Scratch::to_mount() else { return };
    if !shoal_fuse::can_be_kept() {
        return shoal_skip::skipped("this kernel cannot give requests to another server");
    }
    scratch.shoal(["mount", "v", "m", "-o", "keeper=on"]).ok();
    let keeper = shoal_fuse::server_pid(&scratch.path("m")).expect("a server");
    let children = fs::read_to_string(format!("/proc/{keeper}/task/{keeper}/children"));
    let children = children.expect("children");
    let server = children.split_whitespace().next().expect("a server");
    let tasks = fs::read_dir(format!("/proc/{server}/task")).expect("threads");
    let named = tasks.flatten().filter(|task| {
        let name = fs::read_to_string(task.path().join("comm")).unwrap_or_default();
        name == "shoal-notices\n"
    });
    let threads: Vec<_> = named.map(|task| task.path()).collect();
    assert_eq!(threads.len(), 1);
    let files = fs::read_dir(threads[0].join("fd")).expect("descriptors").flatten();
    let mut files: Vec<_> = files.filter_map(|file| fs::read_link(file.path()).ok()).collect();
    files.sort();
    let null = Path::new("/dev/null");
    assert_eq!(files.len(), 4, "{files:?}");
    assert!(files[0].as_os_str().as_bytes().ends_with(b"fuse") && files[1..] == [null; 3]);
    scratch.shoal(["umount", "m"]).ok();
}
