//! Mounts: usable when the command returns, released when `umount` returns, safe when killed.
//!
//! They need root and `/dev/fuse`; without, each test is skipped.

use crate::common;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::common::{Scratch, is_mount, noise};
use shoal_skip::{can_mount, wait_for, wait_until};

/// Mounts in the foreground, without a keeper, and waits until the mount is usable.
fn serve(scratch: &Scratch, arguments: &[&str]) -> Child {
    let mut command = scratch.command(["mount", "v", "m", "--foreground", "--report-ready"]);
    command.args(["-o", "keeper=off"]);
    let mut server = command.args(arguments).stdout(Stdio::piped()).spawn().expect("start");
    let mut line = String::new();
    let output = server.stdout.take().expect("a pipe");
    BufReader::new(output).read_line(&mut line).expect("read");
    assert_eq!(line, "ready\n");
    server
}

/// Unmounts after a server has ended without closing its volume.
fn umount_dead(scratch: &Scratch) {
    let ran = wait_for("m is unmounted", || {
        let ran = scratch.shoal(["umount", "m"]);
        let is_done = !is_mount(&scratch.path("m"));
        assert!(is_done || ran.stderr().contains("in use"), "{ran}");
        is_done.then_some(ran)
    });
    ran.fails(1, &["m: unmounted", "without closing the volume", "recovers"]);
}

fn wait(child: &mut Child) -> std::process::ExitStatus {
    wait_for("the server ends", || child.try_wait().expect("wait"))
}

fn signal(child: &Child, name: &str) {
    let pid = child.id().to_string();
    assert!(Command::new("kill").args([name, &pid]).status().expect("kill").success());
}

#[test]
fn mount_use_umount_check() {
    let Some(scratch) = Scratch::to_mount() else { return };
    scratch.shoal(["mount", "v", "m"]).ok();
    assert!(is_mount(&scratch.path("m")));
    scratch.write("m/d/file", "through the mount\n");
    assert_eq!(scratch.shell("cat m/d/file").ok(), "through the mount\n");
    scratch.shoal(["sync", "m/d"]).ok();
    assert_eq!(scratch.shoal(["ls", "v"]).ok(), "d\n", "by a session");
    scratch.shoal(["ls", "--direct", "v"]).fails(2, &["v", "in use"]);
    scratch.shoal(["fsck", "v"]).fails(8, &["v", "in use"]);
    scratch.shoal(["mount", "v", "n"]).fails(2, &["v", "in use"]);
    scratch.shoal(["umount", "m"]).ok();
    assert!(!is_mount(&scratch.path("m")));
    // Released at once.
    assert_eq!(scratch.shoal(["cat", "v:/d/file"]).ok(), "through the mount\n");
    let info = scratch.shoal(["info", "v"]).ok();
    assert!(info.contains("closed          yes"), "{info}");
    scratch.shoal(["fsck", "v"]).ok();
}

#[test]
fn the_source_and_the_options_are_shown() {
    let Some(scratch) = Scratch::to_mount() else { return };
    scratch.shoal(["mount", "v", "m", "-o", "noexec,cache=64M", "--threads", "2"]).ok();
    let line = scratch.shell("grep \"$PWD/m \" /proc/mounts").ok();
    let volume = scratch.path("v");
    assert!(line.starts_with(&format!("{} ", volume.display())), "{line}");
    assert!(line.contains("fuse.shoal") && line.contains("noexec"), "{line}");
    scratch.shoal(["umount", "m"]).ok();
    // Of old lines of fstab; what has no effect is told once.
    let told = scratch.shell("shoal mount v m -o user_xattr,acl,barrier=1,strictatime 2>&1").ok();
    assert_eq!(told.lines().count(), 1, "{told}");
    assert!(told.contains("\"strictatime\" has no effect"), "{told}");
    scratch.shoal(["umount", "m"]).ok();
}

#[test]
fn a_read_only_mount_changes_nothing() {
    let Some(scratch) = Scratch::to_mount() else { return };
    scratch.write("file", "f");
    scratch.shoal(["cp", "file", "v:/"]).ok();
    let before = fs::read(scratch.path("v")).expect("read the volume");
    scratch.shoal(["mount", "v", "m", "--read-only"]).ok();
    assert_eq!(scratch.shell("cat m/file").ok(), "f");
    let refused = fs::write(scratch.path("m/new"), "").expect_err("read-only");
    assert_eq!(refused.raw_os_error(), Some(30), "{refused}");
    scratch.shoal(["umount", "m"]).ok();
    assert!(before == fs::read(scratch.path("v")).expect("read"), "the volume was changed");
}

#[test]
fn bad_mounts_are_refused_in_one_line() {
    let scratch = Scratch::with_mount_points();
    scratch.write("file", "no volume");
    scratch.shoal(["mount", "missing", "m"]).fails(2, &["missing"]);
    scratch.shoal(["mount", "file", "m"]).fails(2, &["file"]);
    scratch.shoal(["mount", "v", "m", "-o", "frobnicate"]).fails(2, &["frobnicate"]);
    scratch.shoal(["umount", "m"]).fails(1, &["m"]);
    scratch.shoal(["umount", "missing"]).fails(1, &["missing"]);
    scratch.shoal(["sync", "n"]).fails(1, &["n"]);
    if !can_mount() {
        return;
    }
    scratch.shoal(["mount", "v", "nodir"]).fails(1, &["nodir", "no such directory"]);
    scratch.shoal(["mount", "v", "file"]).fails(1, &["file", "not a directory"]);
    scratch.shoal(["mkfs", "w", "--size", common::SIZE]).ok();
    scratch.shoal(["mount", "v", "m"]).ok();
    scratch.shoal(["mount", "w", "m"]).fails(1, &["m", "busy"]);
    // A failed mount releases its volume.
    scratch.shoal(["ls", "w"]).ok();
    let open = File::create(scratch.path("m/open")).expect("create");
    scratch.shoal(["umount", "m"]).fails(1, &["m", "in use"]);
    drop(open);
    scratch.umount("m");
}

#[test]
fn the_command_returns_although_its_output_is_read_to_the_end() {
    let Some(scratch) = Scratch::to_mount() else { return };
    // cat ends only when the server has closed the pipes.
    scratch.shell("{ shoal mount v m 2>&1; } | timeout 20 cat").ok();
    assert!(is_mount(&scratch.path("m")));
    // Nor does the server keep its starting directory busy.
    let pid = shoal_fuse::server_pid(&scratch.path("m")).expect("a server");
    let cwd = fs::read_link(format!("/proc/{pid}/cwd")).expect("a directory");
    assert_eq!(cwd, std::path::Path::new("/"));
    scratch.shoal(["umount", "m"]).ok();
}

#[test]
fn a_lazy_umount_waits_for_nobody() {
    let Some(scratch) = Scratch::to_mount() else { return };
    let mut server = serve(&scratch, &[]);
    let mut open = File::create(scratch.path("m/open")).expect("create");
    scratch.shoal(["umount", "--lazy", "m"]).ok();
    assert!(!is_mount(&scratch.path("m")));
    open.write_all(b"still works").expect("write");
    drop(open);
    assert_eq!(wait(&mut server).code(), Some(0));
    assert_eq!(scratch.shoal(["cat", "v:/open"]).ok(), "still works");
}

#[test]
fn a_signal_unmounts_and_closes() {
    if !can_mount() {
        return;
    }
    for name in ["-TERM", "-INT"] {
        let scratch = Scratch::with_mount_points();
        let mut server = serve(&scratch, &[]);
        scratch.write("m/file", "kept");
        signal(&server, name);
        assert_eq!(wait(&mut server).code(), Some(0));
        assert!(!is_mount(&scratch.path("m")));
        assert_eq!(scratch.shoal(["cat", "v:/file"]).ok(), "kept");
        assert!(scratch.shoal(["info", "v"]).ok().contains("closed          yes"));
    }
}

#[test]
fn a_signal_while_files_are_in_use_waits_and_a_second_does_not() {
    let Some(scratch) = Scratch::to_mount() else { return };
    let mut server = serve(&scratch, &[]);
    let mut open = File::create(scratch.path("m/open")).expect("create");
    signal(&server, "-TERM");
    wait_until("it is unmounted", || !is_mount(&scratch.path("m")));
    open.write_all(b"still works").expect("write");
    drop(open);
    assert_eq!(wait(&mut server).code(), Some(0));
    assert_eq!(scratch.shoal(["cat", "v:/open"]).ok(), "still works");

    let mut server = serve(&scratch, &[]);
    let mut open = File::create(scratch.path("m/second")).expect("create");
    open.write_all(b"kept").expect("write");
    signal(&server, "-TERM");
    wait_until("it is unmounted", || !is_mount(&scratch.path("m")));
    signal(&server, "-TERM");
    assert_eq!(wait(&mut server).code(), Some(1));
    drop(open);
    assert_eq!(scratch.shoal(["cat", "v:/second"]).ok(), "kept");
}

#[test]
fn a_killed_server_hangs_nobody_and_loses_nothing_synced() {
    let Some(scratch) = Scratch::to_mount() else { return };
    for round in 0..5u64 {
        let mut server = serve(&scratch, &[]);
        let contents = noise(round, 100_000);
        let mut file = File::create(scratch.path(format!("m/{round}"))).expect("create");
        file.write_all(&contents).expect("write");
        file.sync_all().expect("fsync");
        scratch.write(format!("m/unsynced-{round}"), &contents);
        signal(&server, "-KILL");
        assert_eq!(wait(&mut server).signal(), Some(9));
        let refused = fs::metadata(scratch.path("m")).expect_err("no server");
        // ECONNABORTED or ENOTCONN; ECANCELED while the kernel dismantles the dead server's rings.
        assert!(matches!(refused.raw_os_error(), Some(103 | 107 | 125)), "{refused}");
        drop(file);
        umount_dead(&scratch);
        scratch.shoal(["fsck", "v"]).ok();
        for earlier in 0..=round {
            let kept = scratch.shoal(["cat", &format!("v:/{earlier}")]);
            assert!(kept.bytes() == noise(earlier, 100_000), "round {round}: {earlier} is gone");
        }
    }
}

/// With a ring that outlives the server, nothing that a program was told is lost by its death.
#[test]
fn a_killed_server_loses_nothing_if_its_ring_outlives_it() {
    let Some(scratch) = Scratch::to_mount() else { return };
    let option = format!("journal_ring={}", scratch.path("ring").display());
    for round in 0..3u64 {
        let mut server = serve(&scratch, &["-o", &option]);
        for n in 0..200 {
            scratch.write(format!("m/{round}/{n}"), noise(n, (n * 97 % 9000) as usize));
        }
        fs::rename(scratch.path(format!("m/{round}/7")), scratch.path(format!("m/moved-{round}")))
            .expect("rename");
        fs::remove_file(scratch.path(format!("m/{round}/8"))).expect("unlink");
        signal(&server, "-KILL");
        assert_eq!(wait(&mut server).signal(), Some(9));
        umount_dead(&scratch);
    }
    // Not by a command on the volume: that would recover it without the ring.
    let server = serve(&scratch, &["-o", &option]);
    for round in 0..3u64 {
        for n in (0..200).filter(|n| *n != 8) {
            let name = if n == 7 { format!("m/moved-{round}") } else { format!("m/{round}/{n}") };
            let kept = fs::read(scratch.path(&name)).unwrap_or_else(|e| panic!("{name}: {e}"));
            assert!(kept == noise(n, (n * 97 % 9000) as usize), "{name} is not as it was");
        }
        assert!(!scratch.path(format!("m/{round}/8")).exists());
    }
    scratch.umount("m");
    drop(server);
    scratch.shoal(["fsck", "v"]).ok();
    // Another volume may use it now; one that is in use is refused.
    scratch.shoal(["mkfs", "w", "--size", common::SIZE]).ok();
    scratch.shoal(["mount", "w", "m", "-o", &option]).ok();
    scratch.shoal(["mount", "v", "n", "-o", &option]).fails(2, &["ring", "another process"]);
    scratch.umount("m");
}

/// It once returned 0, "everything is on disk", when closing had failed.
#[test]
fn umount_tells_that_the_volume_could_not_be_closed() {
    let Some(scratch) = Scratch::to_mount() else { return };
    // The claim of another opener: the server stops writing, and cannot close the volume.
    let mut server = serve(&scratch, &[]);
    scratch.write("m/file", "kept");
    scratch.shoal(["sync", "m"]).ok();
    let volume = File::options().read(true).write(true).open(scratch.path("v")).expect("open");
    wait_until("the server notices that its claim is gone", || {
        // Again and again: it may be about to write its claim anew, after it has read the old one.
        volume.write_all_at(&[0; 4096], 512 << 10).expect("write");
        scratch.shoal(["info", "m"]).ok().contains("removed the claim")
    });
    let error = scratch.shoal(["umount", "m"]).fails(1, &["could not be closed", "claim"]);
    assert!(!is_mount(&scratch.path("m")), "{error}");
    assert_eq!(wait(&mut server).code(), Some(2));
    // It is killed while an unmount waits, or before it does: the message is the same.
    let mut server = serve(&scratch, &[]);
    signal(&server, "-STOP");
    let mut waiting = scratch.command(["umount", "m"]);
    let waiting = waiting.stderr(Stdio::piped()).spawn().expect("start");
    thread::sleep(Duration::from_millis(500));
    signal(&server, "-KILL");
    assert_eq!(wait(&mut server).signal(), Some(9));
    let output = waiting.wait_with_output().expect("wait");
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("without closing the volume"), "{error}");
    assert_eq!(scratch.shoal(["cat", "v:/file"]).ok(), "kept");
}

#[test]
fn the_log_goes_where_it_is_told() {
    let Some(scratch) = Scratch::to_mount() else { return };
    scratch.shoal(["mount", "v", "m", "--log", "log"]).ok();
    scratch.shoal(["umount", "m"]).ok();
    let log = fs::read_to_string(scratch.path("log")).expect("a log");
    assert!(log.contains(" mounted") && log.contains("unmounted"), "{log}");
    scratch.shoal(["mount", "v", "m", "--log", "no/such/log"]).fails(2, &["no/such/log"]);
}

#[test]
fn a_subvolume_alone_can_be_mounted() {
    let Some(scratch) = Scratch::to_mount() else { return };
    scratch.shoal(["subvolume", "create", "v", "job"]).ok();
    scratch
        .shoal(["mount", "v", "m", "-o", "subvolume=none"])
        .fails(1, &["none", "shoal subvolume list"]);
    assert!(!is_mount(&scratch.path("m")));
    scratch.shoal(["mount", "v", "m", "-o", "subvolume=job"]).ok();
    scratch.shell("mkdir -p m/a/b && echo text > m/a/b/f && mv m/a/b/f m/g && mv m/a/b m/c").ok();
    assert_eq!(scratch.shell("cd m/c && cat ../g && ls ..").ok(), "text\na\nc\ng\n");
    assert_eq!(scratch.shell("ls -di m/. m/a/.. | awk '{print $1}' | uniq | wc -l").ok(), "1\n");
    scratch.shell("rm -r m/a m/c && ls -a m").ok();
    scratch.umount("m");
    assert_eq!(scratch.shoal(["cat", "v:/job/g"]).ok(), "text\n");
    scratch.shoal(["mount", "v", "m", "-o", "root=job"]).ok();
    assert_eq!(scratch.shell("cat m/g").ok(), "text\n", "the option's older name");
    scratch.umount("m");
    scratch.shoal(["mount", "v", "m"]).ok();
    assert_eq!(scratch.shell("cat m/job/g").ok(), "text\n");
    let crossing = scratch.shell("mv -T m/job m/play");
    assert_ne!(crossing.status(), Some(0), "{crossing}");
    scratch.umount("m");
    scratch.shoal(["fsck", "v"]).ok();
}
