//! A scratch directory and the built command, so that tests read like a shell session.

// Each test file uses its own part of this.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Size of the volumes that tests make: enough for any segment size.
pub(crate) const SIZE: &str = "256M";

/// A directory of its own for each test, removed at the end.
pub(crate) struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// Makes the directory.
    pub(crate) fn new() -> Scratch {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("shoal-cli-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).expect("make the scratch directory");
        Scratch { path }
    }

    /// Makes the directory and a volume `v` in it.
    pub(crate) fn with_volume() -> Scratch {
        let scratch = Scratch::new();
        scratch.shoal(["mkfs", "v", "--size", SIZE]).ok();
        scratch
    }

    /// Makes the directory, a volume `v` and mount points `m` and `n` in it.
    pub(crate) fn with_mount_points() -> Scratch {
        let scratch = Scratch::with_volume();
        for directory in ["m", "n"] {
            fs::create_dir(scratch.path(directory)).expect("mkdir");
        }
        scratch
    }

    /// The same, if mounts can be tested here; otherwise records a skip.
    #[track_caller]
    pub(crate) fn to_mount() -> Option<Scratch> {
        shoal_skip::can_mount().then(Scratch::with_mount_points)
    }

    /// Returns the path of something in it.
    pub(crate) fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path.join(name)
    }

    /// Writes a file in it.
    pub(crate) fn write(&self, name: impl AsRef<Path>, contents: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).expect("make directories");
        }
        fs::write(&path, contents).expect("write a file");
        path
    }

    /// Runs `shoal` in it.
    pub(crate) fn shoal<I: IntoIterator<Item: AsRef<OsStr>>>(&self, arguments: I) -> Ran {
        let mut command = self.command(arguments);
        let words: Vec<&OsStr> = command.get_args().collect();
        let server = match words[..] {
            [first, .., dir] if first == "umount" => shoal_fuse::server_pid(&self.path(dir)),
            _ => None,
        };
        let mut output = command.output().expect("run shoal");
        if let Some(server) = server.filter(|_| is_elsewhere(&output)) {
            wait_for_end(server);
            output.stderr.clear();
        }
        Ran { line: format!("{command:?}"), output }
    }

    /// Returns the command `shoal` in it, not yet running.
    pub(crate) fn command<I: IntoIterator<Item: AsRef<OsStr>>>(&self, arguments: I) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_shoal"));
        command.args(arguments).current_dir(&self.path).stdin(Stdio::null());
        command
    }

    /// Unmounts. Other tests start programs at the same time, and each of those holds a copy of
    /// every open file for a moment: while it is in use, it is tried again.
    #[track_caller]
    pub(crate) fn umount(&self, directory: &str) {
        let ran = shoal_skip::wait_for(format!("{directory} is no longer in use"), || {
            let ran = self.shoal(["umount", directory]);
            (!ran.stderr().contains("in use")).then_some(ran)
        });
        assert_eq!(ran.status(), Some(0), "{ran}");
    }

    /// Kills a server, and waits until it has ended.
    pub(crate) fn kill(&self, pid: u32) {
        self.shell(&format!("kill -KILL {pid}")).ok();
        // A zombie has no open files any more.
        shoal_skip::wait_until(format!("server {pid} ends"), || {
            let state = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            state.is_empty() || state.contains(") Z ")
        });
    }

    /// Runs a line of shell in it; `shoal` is the built command. `mount` and `umount` run no
    /// helper: it would be that of an installed package.
    pub(crate) fn shell(&self, line: &str) -> Ran {
        let output = self.shell_command(line).output().expect("run sh");
        Ran { line: line.to_owned(), output }
    }

    fn shell_command(&self, line: &str) -> Command {
        let binary = Path::new(env!("CARGO_BIN_EXE_shoal"));
        let mut search = vec![binary.parent().expect("has a directory").to_owned()];
        search.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
        let own = "mount() { command mount -i \"$@\"; }; umount() { command umount -i \"$@\"; }";
        let mut command = Command::new("sh");
        command
            .args(["-c", &format!("{own}\n{line}")])
            .current_dir(&self.path)
            .env("PATH", std::env::join_paths(search).expect("a PATH"))
            .stdin(Stdio::null());
        command
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A failed test may leave a mount behind; it must not take the next ones with it.
        for directory in ["m", "n"] {
            let directory = self.path.join(directory);
            if directory.symlink_metadata().is_err() || is_mount(&directory) {
                let _ = Command::new("umount").arg("-il").arg(&directory).output();
            }
        }
        for entry in fs::read_dir(&self.path).into_iter().flatten().flatten() {
            remove_ring(&entry.path());
        }
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Removes the ring that a mount of this volume has left, if it is one: 48 MiB of memory that no
/// mount will ask for, as the volume goes.
fn remove_ring(volume: &Path) {
    let Ok(Some(identity)) = shoal::raw::identify(volume) else { return };
    for extension in ["ring", "volume", "given-up"] {
        let _ = fs::remove_file(ring_file(&identity.id).with_extension(extension));
    }
}

/// Returns the ring's file of a volume that the superuser mounts, by the volume's id.
pub(crate) fn ring_file(id: &str) -> PathBuf {
    Path::new("/run/shoal").join(format!("{}.ring", id.replace('-', "")))
}

/// Returns whether an unmount has left only mounts in other namespaces. Another test that begins
/// one copies all mounts of that moment into it.
fn is_elsewhere(unmounted: &Output) -> bool {
    let said = String::from_utf8_lossy(&unmounted.stderr);
    let places = said.split_once("it is also mounted ").map_or("", |(_, places)| places);
    let other = ["in the mount namespace of process", "more places"];
    let is_other = |place: &str| other.iter().any(|part| place.contains(part));
    said.lines().count() == 1 && !places.is_empty() && places.split(", ").all(is_other)
}

/// Waits until a process has ended: a server, with the last namespace that has its mount.
fn wait_for_end(pid: u32) {
    let end = Instant::now() + Duration::from_secs(300);
    while Path::new(&format!("/proc/{pid}")).exists() {
        assert!(Instant::now() < end, "process {pid} does not end");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Returns whether something is mounted there.
pub(crate) fn is_mount(directory: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    mounts.lines().any(|line| line.split(' ').nth(4).map(Path::new) == Some(directory))
}

/// Returns whether GNU tools are on this machine, to compare with; records a skip if not.
#[track_caller]
pub(crate) fn has_gnu(tools: &[&str]) -> bool {
    tools.iter().all(|tool| {
        let asked = Command::new(tool).arg("--version").stdin(Stdio::null()).output();
        let is_gnu = asked.is_ok_and(|ran| String::from_utf8_lossy(&ran.stdout).contains("GNU"));
        if !is_gnu {
            shoal_skip::skipped(&format!("{tool} of GNU is not on this machine"));
        }
        is_gnu
    })
}

/// Number of an ordinary user, and of a group.
pub(crate) const USER: u32 = 61001;

/// Runs a line of shell as an ordinary user, which must succeed without a message.
#[track_caller]
pub(crate) fn as_user(scratch: &Scratch, line: &str) -> String {
    run_as_user(scratch, line).ok()
}

/// Runs a line of shell as an ordinary user without supplementary groups.
pub(crate) fn run_as_user(scratch: &Scratch, line: &str) -> Ran {
    let output = scratch.shell_command(line).uid(USER).gid(USER).output().expect("run sh");
    Ran { line: line.to_owned(), output }
}

/// A command that has run.
pub(crate) struct Ran {
    line: String,
    output: Output,
}

impl Ran {
    /// Returns standard output of a command that must have succeeded without a message.
    #[track_caller]
    pub(crate) fn ok(&self) -> String {
        assert!(self.output.status.success(), "{self}");
        assert!(self.output.stderr.is_empty(), "{self}");
        self.stdout()
    }

    /// Returns standard error of a command that must have failed with `status` and one line that
    /// contains all of `parts`.
    #[track_caller]
    pub(crate) fn fails(&self, status: i32, parts: &[&str]) -> String {
        assert_eq!(self.output.status.code(), Some(status), "{self}");
        let error = self.stderr();
        assert_eq!(error.lines().count(), 1, "{self}");
        assert!(error.starts_with("shoal: "), "{self}");
        for part in parts {
            assert!(error.contains(part), "'{part}' is not in the message\n{self}");
        }
        error
    }

    /// Returns the exit status.
    pub(crate) fn status(&self) -> Option<i32> {
        self.output.status.code()
    }

    /// Returns standard output.
    pub(crate) fn stdout(&self) -> String {
        String::from_utf8_lossy(&self.output.stdout).into_owned()
    }

    /// Returns standard output as bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.output.stdout
    }

    /// Returns standard error.
    pub(crate) fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.output.stderr).into_owned()
    }
}

impl std::fmt::Display for Ran {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (out, err) = (self.stdout(), self.stderr());
        write!(f, "{}\n{}\nstdout:\n{out}\nstderr:\n{err}", self.line, self.output.status)
    }
}

/// Returns a deterministic stream of bytes that do not compress or repeat.
pub(crate) fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        })
        .collect()
}

/// Directories' sizes and link counts differ between filesystems.
pub(crate) const FACTS_OF_DIRECTORIES_LESS: &str = concat!(
    "find . -type d -printf '%P %y %m %U %G %T@\\n' , ",
    "! -type d -printf '%P %y %m %U %G %s %n %T@ %l\\n' | sort"
);

/// A directory `t` with everything that a copy has to keep.
pub(crate) fn rich_tree(scratch: &Scratch) {
    scratch.write("t/empty", "");
    scratch.write("t/small", "small\n");
    scratch.write("t/large", noise(1, 2_500_000));
    scratch.write("t/sub/deep/file", noise(2, 200_000));
    fs::hard_link(scratch.path("t/small"), scratch.path("t/sub/same")).expect("link");
    fs::hard_link(scratch.path("t/small"), scratch.path("t/sub/deep/same")).expect("link");
    symlink("../small", scratch.path("t/sub/link")).expect("symlink");
    symlink("nowhere/at/all", scratch.path("t/dangling")).expect("symlink");
    symlink("x".repeat(1000), scratch.path("t/longlink")).expect("symlink");
    let sparse = File::create(scratch.path("t/sparse")).expect("create");
    sparse.write_all_at(b"start", 0).expect("write");
    sparse.write_all_at(b"middle", 40 << 20).expect("write");
    sparse.set_len(100 << 20).expect("extend");
    let mode = |name: &str, mode| {
        fs::set_permissions(scratch.path(name), fs::Permissions::from_mode(mode)).expect("chmod");
    };
    mode("t/small", 0o4711);
    mode("t/empty", 0o000);
    scratch.shell("mkfifo t/pipe && chmod 620 t/pipe").ok();
    if shoal_skip::is_root() {
        scratch.shell("mknod t/null c 1 3 && mknod t/disk b 259 300").ok();
        scratch.shell("chown 1234:567 t/large && chown -h 8:9 t/dangling t/sub").ok();
    }
    scratch.shell("touch -h -d '1999-12-31 23:59:59.123456789' t/dangling t/large").ok();
    mode("t/sub/deep", 0o1750);
    scratch.shell("touch -d '2001-02-03 04:05:06.5' t/sub/deep/file t/sub/deep t/sub t").ok();
}

/// Unmounts `m`, and checks the volume `v`.
pub(crate) fn unmount(scratch: &Scratch) {
    scratch.umount("m");
    scratch.shoal(["fsck", "v"]).ok();
}
