//! Labels and ids: given by mkfs, shown, changed mounted and not, looked for on devices.

use std::process::Command;

use crate::common::{SIZE, Scratch, USER, as_user, run_as_user};

#[test]
fn a_label_is_given_shown_changed_and_removed() {
    let scratch = Scratch::new();
    let line = ["mkfs", "v", "--size", SIZE, "--label", "my data"];
    scratch.shoal(line).ok();
    assert_eq!(scratch.shoal(["label", "v"]).ok(), "my data\n");
    assert!(scratch.shoal(["info", "v"]).ok().contains("\nlabel           my data\n"));
    assert!(scratch.shoal(["info", "--json", "v"]).ok().contains(r#""label":"my data""#));
    scratch.shoal(["label", "v", "Jürgen"]).ok();
    assert_eq!(scratch.shoal(["label", "v"]).ok(), "Jürgen\n");
    scratch.shoal(["fsck", "v"]).ok();
    scratch.shoal(["label", "v", "a/b"]).fails(2, &["label 'a/b'", "no slash"]);
    let long = "x".repeat(65);
    scratch.shoal(["label", "v", &long]).fails(2, &["at most 64 bytes, this one 65"]);
    assert_eq!(scratch.shoal(["mkfs", "w", "-L", "a/b"]).status(), Some(2));
    scratch.shoal(["label", "v", "--remove"]).ok();
    assert_eq!(scratch.shoal(["label", "v"]).ok(), "");
    assert!(scratch.shoal(["info", "v"]).ok().contains("\nlabel           none\n"));
    scratch.write("other", "no volume");
    scratch.shoal(["label", "other"]).fails(2, &["other", "not a Shoal volume"]);
    scratch.shoal(["label", "missing"]).fails(2, &["missing", "no such file"]);
    scratch.shoal(["label", "."]).fails(2, &[".", "not in a mounted Shoal volume"]);
}

#[test]
fn of_a_mounted_volume() {
    let Some(scratch) = Scratch::to_mount() else { return };
    scratch.shoal(["mount", "v", "m", "-o", "allow_other"]).ok();
    scratch.shell("chmod 777 m").ok();
    scratch.shoal(["label", "m", "live"]).ok();
    assert_eq!(scratch.shoal(["label", "m"]).ok(), "live\n");
    // It is on disk: anybody may look at the superblock.
    assert_eq!(scratch.shoal(["label", "v"]).ok(), "live\n");
    scratch.shoal(["label", "v", "other", "--direct"]).fails(2, &["use"]);
    // By a session with the process that serves the volume.
    scratch.shoal(["label", "v", "other"]).ok();
    assert_eq!(scratch.shoal(["label", "m"]).ok(), "other\n");
    scratch.shoal(["label", "v", "live"]).ok();
    let refused = run_as_user(&scratch, "shoal label m mine");
    refused.fails(1, &["operation not permitted"]);
    scratch.shoal(["umount", "m"]).ok();
    scratch.shoal(["subvolume", "create", "v", "part"]).ok();
    scratch.shoal(["mount", "v", "m", "-o", "subvolume=part"]).ok();
    scratch.shoal(["label", "m", "part"]).fails(1, &["operation not permitted"]);
    scratch.shoal(["umount", "m"]).ok();
    scratch.shoal(["mount", "v", "m", "-o", "ro"]).ok();
    scratch.shoal(["label", "m", "part"]).fails(1, &["read-only"]);
    scratch.shoal(["umount", "m"]).ok();
    assert_eq!(scratch.shoal(["label", "v"]).ok(), "live\n");
    scratch.shoal(["fsck", "v"]).ok();
}

/// A label set by a mount that is killed right after it was told that this is done.
#[test]
fn a_changed_label_survives_a_kill() {
    let Some(scratch) = Scratch::to_mount() else { return };
    for label in ["one", "two", "three"] {
        scratch.shoal(["mount", "v", "m", "-o", "keeper=off"]).ok();
        scratch.shoal(["label", "m", label]).ok();
        let pid = shoal_fuse::server_pid(&scratch.path("m")).expect("a server");
        scratch.kill(pid);
        scratch.shell("umount m").ok();
        assert_eq!(scratch.shoal(["label", "v"]).ok(), format!("{label}\n"));
        scratch.shoal(["fsck", "v"]).ok();
    }
}

/// The lines that the rule of udev imports.
#[test]
fn for_udev() {
    let scratch = Scratch::new();
    scratch.shoal(["mkfs", "v", "--size", SIZE, "-L", "a b"]).ok();
    let told = scratch.shoal(["info", "--udev", "v"]).ok();
    let value = |name: &str| {
        let line = told.lines().find_map(|line| line.strip_prefix(&format!("{name}=")));
        line.unwrap_or_else(|| panic!("no {name} in {told}")).to_owned()
    };
    assert_eq!(value("ID_FS_TYPE"), "shoal");
    assert_eq!(value("ID_FS_USAGE"), "filesystem");
    assert_eq!((value("ID_FS_LABEL"), value("ID_FS_LABEL_ENC")), ("a_b".into(), "a\\x20b".into()));
    let id = value("ID_FS_UUID");
    assert!(scratch.shoal(["info", "v"]).ok().contains(&id) && id.len() == 36);
    assert_eq!(value("ID_FS_SIZE"), (256 << 20).to_string());
    scratch.write("other", "no volume");
    for what in ["other", "missing", "."] {
        let none = scratch.shoal(["info", "--udev", what]);
        assert_eq!((none.status(), none.stdout(), none.stderr()), {
            (Some(2), String::new(), String::new())
        });
    }
}

/// Returns a loop device over a file, detached at the end.
struct Loop(String);

impl Loop {
    fn over(scratch: &Scratch, file: &str) -> Option<Loop> {
        let mut command = Command::new("losetup");
        let ran = command.args(["--find", "--show"]).arg(scratch.path(file)).output();
        let Ok(ran) = ran else { return None };
        let device = String::from_utf8_lossy(&ran.stdout).trim().to_owned();
        (ran.status.success() && !device.is_empty()).then_some(Loop(device))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.0]).output();
    }
}

#[test]
fn a_device_is_found_by_label_and_id() {
    let Some(scratch) = Scratch::to_mount() else { return };
    let label = format!("label of {}", std::process::id());
    scratch.shoal(["label", "v", &label]).ok();
    let tag = format!("LABEL={label}");
    scratch.shoal(["mount", &tag, "m"]).fails(2, &[&tag, "no volume like this"]);
    let Some(device) = Loop::over(&scratch, "v") else {
        return shoal_skip::skipped("no loop devices here");
    };
    scratch.shoal(["mount", &tag, "m"]).ok();
    let shown = scratch.shell("findmnt -no SOURCE m").ok();
    assert_eq!(shown.trim(), device.0);
    scratch.shoal(["umount", "m"]).ok();
    let told = scratch.shoal(["info", "--udev", &device.0]).ok();
    let id = told.lines().find_map(|line| line.strip_prefix("ID_FS_UUID=")).expect("an id");
    let uuid = format!("UUID={}", id.to_uppercase());
    assert!(scratch.shoal(["fsck", &uuid]).ok().contains("clean"));
    assert!(scratch.shoal(["info", &uuid]).ok().contains(&device.0));
    scratch.shoal(["label", &uuid, &label]).ok();
    let binary = env!("CARGO_BIN_EXE_shoal");
    std::os::unix::fs::symlink(binary, scratch.path("mount.shoal")).expect("symlink");
    scratch.shell(&format!("./mount.shoal '{tag}' m && shoal umount m")).ok();
    // Two of them.
    scratch.shoal(["mkfs", "w", "--size", SIZE, "-L", &label]).ok();
    let Some(other) = Loop::over(&scratch, "w") else {
        return shoal_skip::skipped("no second loop device here");
    };
    let error = scratch.shoal(["mount", &tag, "m"]).fails(2, &["several volumes", &device.0]);
    assert!(error.contains(&other.0), "{error}");
    scratch.shoal(["mount", &uuid, "m"]).ok();
    scratch.shoal(["umount", "m"]).ok();
}

/// A user's own volume; nobody else's is told.
#[test]
fn a_user_may_label_what_the_user_may_write() {
    let scratch = Scratch::with_volume();
    if !shoal_skip::is_root() {
        return;
    }
    run_as_user(&scratch, "shoal label v mine").fails(2, &["v", "permission denied"]);
    scratch.shell(&format!("chown {USER} v . && chmod 711 .")).ok();
    as_user(&scratch, "shoal label v mine");
    assert_eq!(as_user(&scratch, "shoal label v"), "mine\n");
}

/// A pipe that nobody writes to: looking for a label must not wait for it.
#[test]
fn a_pipe_is_no_volume_and_is_not_waited_for() {
    let scratch = Scratch::new();
    scratch.shell("mkfifo pipe").ok();
    for command in ["label pipe", "info --udev pipe"] {
        let ran = scratch.shell(&format!("timeout 20 shoal {command}"));
        assert_eq!(ran.status(), Some(2), "{ran}");
    }
}
