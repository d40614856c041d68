//! Two mounts of one volume destroy it, whatever the paths: the second is refused and the first is
//! named.
//!
//! They need root, `/dev/fuse` and loop devices; without, each test is skipped.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::common::{Ran, Scratch};
use shoal_skip::{skipped, wait_until};

/// Byte address and length of the claim.
const CLAIM: (u64, usize) = (512 << 10, 4096);

/// A loop device over a file of the scratch directory, gone with the test.
struct Loop {
    device: String,
}

impl Loop {
    /// Makes a loop device; `None`: there are none, and the skip is recorded.
    fn over(scratch: &Scratch, file: &str) -> Option<Loop> {
        let made = Command::new("losetup").args(["-f", "--show"]).arg(scratch.path(file)).output();
        match made {
            Ok(made) if made.status.success() => {
                let device = String::from_utf8(made.stdout).expect("a path").trim().to_owned();
                Some(Loop { device })
            }
            _ => {
                skipped("no loop device");
                None
            }
        }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["-d", &self.device]).status();
    }
}

fn server_of(scratch: &Scratch, directory: &str) -> u32 {
    let keeper = shoal_fuse::server_pid(&scratch.path(directory)).expect("a server");
    let children = fs::read_to_string(format!("/proc/{keeper}/task/{keeper}/children"));
    let server = children.expect("a process").trim().parse();
    // One without a keeper serves itself.
    server.unwrap_or(keeper)
}

/// Asserts the refusal of a second opener: the first process, and the remedy.
#[track_caller]
fn refused(ran: &Ran, first: u32) {
    ran.fails(2, &["in use", &format!("process {first}"), "mount", "unmount it there"]);
}

/// Returns whether two paths are of one file or of one device.
fn is_same_file(scratch: &Scratch, one: &str, other: &str) -> bool {
    let found = |name: &str| fs::metadata(scratch.path(name)).expect("metadata");
    let (one, other) = (found(one), found(other));
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

/// Mounts `first` and asserts that each of `others` is refused; `first` goes on, and the volume is
/// sound.
fn others_are_refused(scratch: &Scratch, first: &str, others: &[&str]) {
    scratch.shoal(["mount", first, "m", "-o", "grace=60"]).ok();
    let pid = server_of(scratch, "m");
    scratch.write("m/before", "1");
    for other in others {
        refused(&scratch.shoal(["mount", other, "n"]), pid);
        refused(&scratch.shoal(["--direct", "mkdir", &format!("{other}:/d")]), pid);
        refused(&scratch.shoal(["ls", other, "--direct"]), pid);
        // By a session, unless it may be another volume with the same id.
        let ran = scratch.shoal(["ls", other]);
        match is_same_file(scratch, first, other) {
            true => assert_eq!(ran.ok(), "before\n"),
            false => refused(&ran, pid),
        }
        refused(&scratch.shoal(["mkfs", other, "--force"]), pid);
        scratch.shoal(["fsck", other]).fails(8, &["in use", &format!("process {pid}")]);
        let repair = ["fsck", "--repair", "--yes", other];
        scratch.shoal(repair).fails(8, &["in use", &format!("process {pid}")]);
    }
    scratch.write("m/after", "2");
    scratch.shoal(["umount", "m"]).ok();
    assert_eq!(scratch.shoal(["ls", "v"]).ok(), "after\nbefore\n");
    scratch.shoal(["fsck", "v"]).ok();
}

#[test]
fn a_loop_device_and_its_file() {
    let Some(scratch) = Scratch::to_mount() else { return };
    let Some(one) = Loop::over(&scratch, "v") else { return };
    let Some(two) = Loop::over(&scratch, "v") else { return };
    others_are_refused(&scratch, &one.device, &["v", &two.device]);
    others_are_refused(&scratch, "v", &[&one.device, &two.device]);
}

#[test]
fn other_paths_of_the_same_file() {
    let Some(scratch) = Scratch::to_mount() else { return };
    fs::hard_link(scratch.path("v"), scratch.path("hard")).expect("link");
    std::os::unix::fs::symlink("v", scratch.path("soft")).expect("symlink");
    fs::create_dir(scratch.path("bound")).expect("mkdir");
    scratch.shell("mount --bind . bound").ok();
    others_are_refused(&scratch, "v", &["hard", "soft", "bound/v"]);
    scratch.shell("umount bound").ok();
}

/// The namespace does not see the backing file, so the locks do not meet; nor the process, so that
/// its life cannot be checked. Only the claim in the volume is left.
#[test]
fn another_mount_and_pid_namespace() {
    let Some(scratch) = Scratch::to_mount() else { return };
    let Some(looped) = Loop::over(&scratch, "v") else { return };
    if !Command::new("unshare").args(["-m", "-p", "-f", "true"]).status().is_ok_and(|s| s.success())
    {
        return skipped("no `unshare` of namespaces");
    }
    let elsewhere = |line: &str| {
        let here = scratch.path("");
        scratch.shell(&format!(
            "unshare -m -p -f --mount-proc sh -c 'cd / && mount -t tmpfs none {} && {line}'",
            here.display()
        ))
    };
    scratch.shoal(["mount", "v", "m", "-o", "grace=60"]).ok();
    let first = server_of(&scratch, "m");
    scratch.write("m/before", "1");
    let device = &looped.device;
    refused(&elsewhere(&format!("shoal --direct mkdir {device}:/d")), first);
    refused(&elsewhere(&format!("shoal ls {device}")), first);
    let check = elsewhere(&format!("shoal fsck {device}"));
    check.fails(8, &["in use", &format!("process {first}"), "which opened it as"]);
    scratch.write("m/after", "2");
    scratch.shoal(["umount", "m"]).ok();

    // By force it is taken over; the former owner names the other, and writes nothing any more.
    scratch.shoal(["mount", "v", "m", "-o", "grace=60"]).ok();
    scratch.write("m/synced", "3");
    scratch.shoal(["sync", "m"]).ok();
    let mount = format!(
        "mkdir /tmp/shoal-n && shoal mount --force {device} /tmp/shoal-n && \
                         touch /tmp/shoal-n/forced && shoal umount /tmp/shoal-n"
    );
    let forced = elsewhere(&format!("mount -t tmpfs none /tmp && {mount}"));
    assert_eq!(forced.status(), Some(0), "{forced}");
    let error = fs::write(scratch.path("m/late"), "4").expect_err("must be read-only");
    assert_eq!(error.raw_os_error(), Some(30), "{error}");
    let why = scratch.shoal(["info", "m"]).ok();
    assert!(why.contains("taken over by process") || why.contains("removed the claim"), "{why}");
    scratch.shell("umount m");
    wait_until("the server ends", || {
        scratch.shell("pgrep -f \"mount .* $PWD/m\"").stdout().is_empty()
    });
    assert_eq!(scratch.shoal(["ls", "v"]).ok(), "after\nbefore\nforced\nsynced\n");
    scratch.shoal(["fsck", "v"]).ok();
}

#[test]
fn a_mapped_device_over_a_loop_device() {
    let Some(scratch) = Scratch::to_mount() else { return };
    let Some(looped) = Loop::over(&scratch, "v") else { return };
    let sectors = fs::metadata(scratch.path("v")).expect("stat").len() / 512;
    let name = format!("shoal-test-{}", std::process::id());
    let table = format!("0 {sectors} linear {} 0", looped.device);
    let made = Command::new("dmsetup").args(["create", &name, "--table", &table]).output();
    if !made.is_ok_and(|made| made.status.success()) {
        return skipped("no device mapper");
    }
    let mapped = format!("/dev/mapper/{name}");
    others_are_refused(&scratch, &mapped, &["v"]);
    others_are_refused(&scratch, "v", &[&mapped]);
    let _ = Command::new("dmsetup").args(["remove", &name]).status();
}

/// The next opener need not wait for the claim of a process that is provably dead.
#[test]
fn a_killed_server_is_followed_without_delay() {
    let Some(scratch) = Scratch::to_mount() else { return };
    let Some(looped) = Loop::over(&scratch, "v") else { return };
    for (first, second) in [("v", "v"), ("v", &looped.device), (&looped.device, "v")] {
        scratch.shoal(["mount", first, "m", "-o", "keeper=off"]).ok();
        let pid = server_of(&scratch, "m");
        scratch.write("m/file", "1");
        scratch.shoal(["sync", "m"]).ok();
        scratch.shell(&format!("kill -9 {pid}; umount -l m")).ok();
        let info = scratch.shoal(["info", second]).ok();
        assert!(info.contains(&format!("claim           process {pid} on ")), "{info}");
        // Without the message that the claim is watched.
        scratch.shoal(["mount", second, "n"]).ok();
        assert_eq!(scratch.shell("cat n/file").ok(), "1");
        scratch.shoal(["umount", "n"]).ok();
        assert!(!scratch.shoal(["info", second]).ok().contains("claim  "), "it is cleared");
    }
    scratch.shoal(["fsck", "v"]).ok();
}

/// Makes the claim of a server on this machine look like one on another.
fn foreign_claim(scratch: &Scratch) -> Vec<u8> {
    scratch.shoal(["mount", "v", "m"]).ok();
    let pid = server_of(scratch, "m");
    let mut claim = vec![0; CLAIM.1];
    volume(scratch).read_exact_at(&mut claim, CLAIM.0).expect("read the claim");
    scratch.shoal(["umount", "m"]).ok();
    assert!(claim.starts_with(b"SHOALCLM"));
    assert_eq!(claim[120..124], pid.to_le_bytes());
    // Machine and boot.
    claim[48..80].fill(0x55);
    seal(&mut claim);
    claim
}

fn seal(claim: &mut [u8]) {
    let (body, sum) = claim.split_at_mut(CLAIM.1 - 8);
    sum.copy_from_slice(&shoal_checksum(body).to_le_bytes());
}

/// The format's checksum, by the library that the format uses.
fn shoal_checksum(body: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(body)
}

fn volume(scratch: &Scratch) -> File {
    File::options().read(true).write(true).open(scratch.path("v")).expect("open the volume")
}

#[test]
fn a_claim_of_another_host_is_watched() {
    let Some(scratch) = Scratch::to_mount() else { return };
    let mut claim = foreign_claim(&scratch);
    // Nobody renews it: two seconds, which the user is told.
    volume(&scratch).write_all_at(&claim, CLAIM.0).expect("write");
    let ran = scratch.shoal(["mount", "v", "m"]);
    assert_eq!(ran.status(), Some(0), "{ran}");
    assert!(ran.stderr().contains("watching for 2 seconds"), "{ran}");
    scratch.shoal(["umount", "m"]).ok();
    // By force, without the watch.
    volume(&scratch).write_all_at(&claim, CLAIM.0).expect("write");
    scratch.shoal(["mount", "v", "m", "--force"]).ok();
    scratch.shoal(["umount", "m"]).ok();
    // It is renewed, by an owner that may take a minute for it.
    claim[12..16].copy_from_slice(&60_000u32.to_le_bytes());
    seal(&mut claim);
    let stop = Arc::new(AtomicBool::new(false));
    let (seen, file) = (stop.clone(), volume(&scratch));
    volume(&scratch).write_all_at(&claim, CLAIM.0).expect("write");
    let host = thread::spawn(move || {
        while !seen.load(Ordering::Relaxed) {
            claim[96] = claim[96].wrapping_add(1);
            seal(&mut claim);
            file.write_all_at(&claim, CLAIM.0).expect("write");
            thread::sleep(Duration::from_millis(500));
        }
    });
    for line in ["mount v n", "mkdir v:/d", "ls v", "mkfs v --force"] {
        let ran = scratch.shoal(line.split(' '));
        ran.fails(2, &["v is in use by process", "shoal mount", "unmount it there"]);
    }
    stop.store(true, Ordering::Relaxed);
    host.join().expect("the other host");
    scratch.shoal(["fsck", "v", "--force"]).ok();
}

/// A copy of a volume in use has a claim that nobody renews, of a process that runs.
#[test]
fn a_copy_of_a_volume_in_use() {
    let Some(scratch) = Scratch::to_mount() else { return };
    scratch.shoal(["mount", "v", "m"]).ok();
    scratch.write("m/file", "1");
    scratch.shoal(["sync", "m"]).ok();
    scratch.shell("cp --sparse=always v copy").ok();
    let ran = scratch.shoal(["mount", "copy", "n"]);
    assert_eq!(ran.status(), Some(2), "{ran}");
    assert!(ran.stderr().contains("this is a copy of a volume in use"), "{ran}");
    scratch.shoal(["mount", "copy", "n", "-o", "force"]).ok();
    assert_eq!(scratch.shell("cat n/file").ok(), "1");
    scratch.write("m/more", "2");
    scratch.shoal(["umount", "n"]).ok();
    scratch.shoal(["umount", "m"]).ok();
    for volume in ["v", "copy"] {
        scratch.shoal(["fsck", volume]).ok();
    }
}

#[test]
fn a_loop_device_that_something_else_uses() {
    let Some(scratch) = Scratch::to_mount() else { return };
    let Some(looped) = Loop::over(&scratch, "v") else { return };
    // Held exclusively: mounted as something else, part of a RAID.
    let exclusive = File::options()
        .read(true)
        .custom_flags(0o200)
        .open(&looped.device)
        .expect("open the loop device");
    scratch.shoal(["mkdir", "v:/d"]).fails(2, &["v is in use through", &looped.device]);
    drop(exclusive);
    scratch.shoal(["mkdir", "v:/d"]).ok();
}

#[test]
fn a_command_leaves_no_claim() {
    let scratch = Scratch::with_volume();
    for name in ["a", "b", "c"] {
        scratch.shoal(["mkdir", &format!("v:/{name}")]).ok();
    }
    let place: PathBuf = scratch.path("v");
    let mut claim = vec![1; CLAIM.1];
    File::open(place).and_then(|v| v.read_exact_at(&mut claim, CLAIM.0)).expect("read");
    assert!(claim.iter().all(|byte| *byte == 0), "closed, and the claim is gone");
    let mut child = scratch.command(["ls", "v"]).stdout(Stdio::null()).spawn().expect("start");
    assert!(child.wait().expect("wait").success());
}
