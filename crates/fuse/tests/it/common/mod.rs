//! Harness of the mount's tests: a fresh volume, mounted, for each test.
//!
//! The server runs in a process of its own (this test program again, entered at `serve_helper`), so
//! that a test never waits for itself, whatever it does to the mount, and can kill it. Tests need
//! root and `/dev/fuse`; without them they are skipped ([`shoal_skip`]).
//!
//! Every test runs twice, on the device and through rings: the "test" `everything_through_rings`
//! runs the program once more with `SHOAL_TEST_RINGS=1`, which can also be set by hand for a single
//! test. Where the kernel has no FUSE over io_uring it is skipped.
//!
//! With `SHOAL_TEST_NATIVE=/some/dir` the POSIX tests run in that directory of the kernel's own
//! file system instead, which checks their expectations.
#![allow(dead_code, clippy::unwrap_used, reason = "two programs use parts of it; a test may panic")]

use rustix::fs::{AtFlags, CWD, Mode, OFlags, Stat};
use rustix::io::Errno;
use shoal::raw::{Caller, TreeCheck};
use shoal_session::{Calls, Node};
pub(crate) use shoal_skip::{can_mount, skipped};
use std::ffi::CString;
use std::io::{BufRead, BufReader, IoSlice};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Two ordinary users of the tests.
pub(crate) const USER: u32 = 61001;
pub(crate) const OTHER: u32 = 61002;

/// Asserts that a call fails with an errno.
#[macro_export]
macro_rules! fails {
    ($errno:ident, $call:expr) => {
        match $call {
            Err(errno) => {
                assert_eq!(errno, rustix::io::Errno::$errno, "{}", stringify!($call));
            }
            Ok(_) => panic!("{} succeeded, wanted {}", stringify!($call), stringify!($errno)),
        }
    };
}

/// The kernel's switch for FUSE over io_uring; absent if the kernel does not know it.
pub(crate) const RINGS_SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

/// Returns whether this run is the one through rings.
pub(crate) fn on_rings() -> bool {
    std::env::var_os("SHOAL_TEST_RINGS").is_some()
}

/// Returns whether mounts can be served through rings here; records a skip if not.
pub(crate) fn rings_possible() -> bool {
    if !can_mount() {
        return false;
    }
    if !Path::new(RINGS_SWITCH).exists() {
        skipped("no FUSE over io_uring in this kernel (Linux 6.14 has it)");
        return false;
    }
    let forbidden = std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled");
    if forbidden.is_ok_and(|value| value.trim() == "2") {
        skipped("io_uring is forbidden (kernel.io_uring_disabled)");
        return false;
    }
    true
}

/// The kernel's switch belongs to the machine: one test at a time, also of other programs, and
/// restored afterwards.
pub(crate) struct Switch {
    before: String,
    _turn: std::fs::File,
}

impl Drop for Switch {
    fn drop(&mut self) {
        std::fs::write(RINGS_SWITCH, &self.before).unwrap();
    }
}

/// Waits for the turn to use rings; `None`, and a recorded skip, if the kernel has none.
pub(crate) fn switch() -> Option<Switch> {
    if !rings_possible() {
        return None;
    }
    let turn = std::fs::File::open(RINGS_SWITCH).unwrap();
    turn.lock().unwrap();
    let before = std::fs::read_to_string(RINGS_SWITCH).unwrap().trim().to_owned();
    Some(Switch { before, _turn: turn })
}

/// Runs all tests of this program through rings.
pub(crate) fn again_through_rings() {
    let native = std::env::var_os("SHOAL_TEST_NATIVE").is_some();
    if on_rings() || native {
        return;
    }
    // The mounts switch rings on.
    let Some(_switch) = switch() else { return };
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--skip", "everything_through_rings", "--skip", "serve_helper"])
        .env("SHOAL_TEST_RINGS", "1")
        .status()
        .unwrap();
    assert!(status.success(), "through rings: {status}, see above");
}

/// A volume mounted for one test.
pub(crate) struct TestMount {
    pub dir: PathBuf,
    base: PathBuf,
    options: String,
    failing: bool,
    server: Option<Child>,
    native: bool,
}

/// Mounts a fresh volume; `None`: cannot be tested here, and the skip is recorded.
pub(crate) fn mount(options: &str) -> Option<TestMount> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    rustix::process::umask(Mode::empty());
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = format!("shoal-fuse-test-{}-{number}", std::process::id());
    let native = std::env::var_os("SHOAL_TEST_NATIVE");
    let parent = native.clone().map_or_else(std::env::temp_dir, PathBuf::from);
    let base = parent.join(name);
    if !can_mount() {
        return None;
    }
    let dir = base.join("mnt");
    std::fs::create_dir_all(&dir).unwrap();
    chmod(&base, 0o755);
    chmod(&dir, 0o755);
    let rings = if on_rings() { "on" } else { "off" };
    let options = format!("io_uring={rings},{options}");
    let native = native.is_some();
    let mut mount = TestMount { dir, base, options, failing: false, server: None, native };
    if !mount.native {
        mount.start(0);
    }
    Some(mount)
}

/// Mounts for tests of the mount itself, which mean nothing in a native directory.
pub(crate) fn mount_only(options: &str) -> Option<TestMount> {
    if std::env::var_os("SHOAL_TEST_NATIVE").is_some() {
        skipped("not for a native directory");
        return None;
    }
    mount(options)
}

/// Mounts like [`mount_only`], on a device that [`TestMount::fail_flushes`] breaks and
/// [`TestMount::hang_reads`] or [`TestMount::hang_writes`] stops.
pub(crate) fn mount_failing(options: &str) -> Option<TestMount> {
    let mut mount = mount_only(options)?;
    mount.stop();
    mount.failing = true;
    mount.start(0);
    Some(mount)
}

/// A file whose flushes fail, and whose reads or writes hang, as long as another file exists.
struct Failing {
    file: shoal::raw::FileDevice,
    switch: PathBuf,
}

impl Failing {
    fn hangs(&self) -> bool {
        self.switch.with_extension("hang").exists()
    }

    fn hangs_writes(&self) -> bool {
        self.switch.with_extension("hang-writes").exists()
    }
}

impl shoal::raw::Device for Failing {
    fn capacity(&self) -> u64 {
        self.file.capacity()
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> shoal::raw::Result<()> {
        while self.hangs() {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        self.file.read_at(buf, offset)
    }
    fn read_now(&self, buf: &mut [u8], offset: u64) -> shoal::raw::Result<bool> {
        if self.hangs() { Ok(false) } else { self.file.read_now(buf, offset) }
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> shoal::raw::Result<()> {
        while self.hangs_writes() {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        self.file.write_at(buf, offset)
    }
    fn write_now(&self, bufs: &[IoSlice<'_>], offset: u64) -> shoal::raw::Result<bool> {
        if self.hangs_writes() { Ok(false) } else { self.file.write_now(bufs, offset) }
    }
    fn flush(&self) -> shoal::raw::Result<()> {
        match self.switch.exists() {
            true => Err(shoal::raw::Error::Code(shoal::raw::Code::Io)),
            false => self.file.flush(),
        }
    }
    fn discard(&self, offset: u64, len: u64) -> shoal::raw::Result<()> {
        self.file.discard(offset, len)
    }
    fn describe(&self) -> String {
        "a device of a test".to_owned()
    }
}

impl TestMount {
    /// Makes flushes of the device fail from now on.
    pub(crate) fn fail_flushes(&self) {
        assert!(self.failing, "mount_failing");
        std::fs::write(self.switch(), b"").unwrap();
    }

    /// Makes reads of the device hang from now on.
    pub(crate) fn hang_reads(&self) {
        assert!(self.failing, "mount_failing");
        std::fs::write(self.switch().with_extension("hang"), b"").unwrap();
    }

    /// Lets reads go on.
    pub(crate) fn let_reads_go(&self) {
        std::fs::remove_file(self.switch().with_extension("hang")).unwrap();
    }

    /// Makes writes to the device hang from now on.
    pub(crate) fn hang_writes(&self) {
        assert!(self.failing, "mount_failing");
        std::fs::write(self.switch().with_extension("hang-writes"), b"").unwrap();
    }

    /// Lets writes go on.
    pub(crate) fn let_writes_go(&self) {
        std::fs::remove_file(self.switch().with_extension("hang-writes")).unwrap();
    }

    /// Repairs the device.
    pub(crate) fn mend(&mut self) {
        std::fs::remove_file(self.switch()).unwrap();
        self.failing = false;
    }

    fn switch(&self) -> PathBuf {
        self.base.join("flushes-fail")
    }

    /// Returns the log of the server, if the device may fail.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.base.join("log")).unwrap()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    pub(crate) fn volume(&self) -> PathBuf {
        self.base.join("volume")
    }

    pub(crate) fn base(&self) -> &Path {
        &self.base
    }

    pub(crate) fn is_native(&self) -> bool {
        self.native
    }

    /// Returns the process id of the server.
    pub(crate) fn server_pid(&self) -> u32 {
        self.server.as_ref().expect("a server").id()
    }

    /// Starts a server as user `uid` and waits until it serves.
    pub(crate) fn start(&mut self, uid: u32) {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "serve_helper", "--nocapture", "--test-threads=1"])
            .env("SHOAL_TEST_SERVE_VOLUME", self.volume())
            .env("SHOAL_TEST_SERVE_DIR", &self.dir)
            .env("SHOAL_TEST_SERVE_OPTIONS", &self.options)
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        if self.failing {
            command.env("SHOAL_TEST_SERVE_FAILING", self.switch());
            command.stderr(std::fs::File::create(self.base.join("log")).unwrap());
        }
        if uid != 0 {
            command.uid(uid).gid(uid);
        }
        let mut server = command.spawn().unwrap();
        let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
        let ready = lines.any(|line| line.unwrap().contains("SERVING"));
        // The server's further output is dropped, but must not block it.
        std::thread::spawn(move || lines.for_each(drop));
        self.server = Some(server);
        assert!(ready, "the server has not started");
    }

    /// Unmounts; on return the volume has been closed.
    pub(crate) fn stop(&mut self) {
        let Some(mut server) = self.server.take() else { return };
        // A thread that has just been joined may still hold a file for a moment. A failed test may
        // hold one for ever.
        let unmounted =
            match std::thread::panicking() {
                true => shoal_fuse::unmount_and_wait(&self.dir),
                false => shoal_skip::wait_for("no file is open", || {
                    match shoal_fuse::unmount_and_wait(&self.dir) {
                        Err(error) if error.code() == shoal::raw::Code::Busy => None,
                        outcome => Some(outcome),
                    }
                }),
            };
        if let Err(error) = &unmounted {
            eprintln!("unmounting {}: {error}", self.dir.display());
            let _ = shoal_fuse::unmount_lazy(&self.dir);
            let _ = server.kill();
        }
        let status = server.wait().unwrap();
        if !std::thread::panicking() {
            unmounted.unwrap();
            assert!(status.success(), "the server ended with {status}");
        }
    }

    /// Unmounts and mounts again.
    pub(crate) fn remount(&mut self) {
        if !self.native {
            self.stop();
            self.start(0);
        }
    }

    /// Unmounts and mounts again with other options.
    pub(crate) fn remount_with(&mut self, options: &str) {
        let rings = if on_rings() { "on" } else { "off" };
        self.options = format!("io_uring={rings},{options}");
        self.remount();
    }

    /// Kills the server and removes the dead mount.
    pub(crate) fn kill(&mut self) {
        let mut server = self.server.take().expect("a server");
        server.kill().unwrap();
        server.wait().unwrap();
    }

    /// Waits for a server whose mount has ended by other means.
    pub(crate) fn wait_for_server(&mut self) -> std::process::ExitStatus {
        self.server.take().expect("a server").wait().unwrap()
    }

    /// Unmounts as the user who mounted.
    pub(crate) fn stop_as(&mut self, uid: u32) {
        let mut server = self.server.take().expect("a server");
        let dir = self.dir.clone();
        let status = Command::new("fusermount3").arg("-u").arg(&dir).uid(uid).gid(uid).status();
        assert!(status.unwrap().success());
        assert!(server.wait().unwrap().success());
    }

    /// Checks the unmounted volume.
    fn check(&self) {
        let options =
            shoal::raw::OpenOptions { read_only: true, ..shoal::raw::OpenOptions::default() };
        let volume = shoal::raw::Volume::open(&self.volume(), &options).unwrap();
        let report = volume.check(&mut |_, _| {}).unwrap();
        assert!(report.problems.is_empty(), "{:#?}", report.problems);
    }
}

impl Drop for TestMount {
    fn drop(&mut self) {
        for hang in ["hang", "hang-writes"] {
            let _ = std::fs::remove_file(self.switch().with_extension(hang));
        }
        self.stop();
        // A test that failed between killing a server and starting the next.
        let _ = shoal_fuse::unmount_lazy(&self.dir);
        if !self.native && !std::thread::panicking() && self.volume().exists() {
            self.check();
        }
        let _ = std::fs::remove_dir_all(&self.base);
    }
}

/// Makes a volume of this user.
pub(crate) fn make_volume(path: &Path, size: u64) {
    let uid = rustix::process::getuid().as_raw();
    let wish = shoal::raw::MkfsOptions {
        size,
        root_uid: uid,
        root_gid: uid,
        ..shoal::raw::MkfsOptions::default()
    };
    shoal::raw::mkfs(path, &wish).unwrap();
}

/// Serves the volume that the environment names, if it names one.
pub(crate) fn serve() {
    let Some(path) = std::env::var_os("SHOAL_TEST_SERVE_VOLUME").map(PathBuf::from) else { return };
    let level = std::env::var("SHOAL_TEST_LOG").unwrap_or_else(|_| "warn".to_owned());
    tracing_subscriber::fmt().with_env_filter(level).with_writer(std::io::stderr).init();
    let dir = std::env::var_os("SHOAL_TEST_SERVE_DIR").unwrap();
    let options = std::env::var("SHOAL_TEST_SERVE_OPTIONS").unwrap();
    let options = shoal_fuse::MountOptions::parse(&options).unwrap();
    if !path.exists() {
        make_volume(&path, 256 << 20);
    }
    let failing = std::env::var_os("SHOAL_TEST_SERVE_FAILING").map(PathBuf::from);
    let volume = match &failing {
        None => shoal::raw::Volume::open(&path, &options.open_options()),
        Some(switch) => {
            let file =
                shoal::raw::FileDevice::open(&path, shoal::raw::OpenMode::ReadWrite).unwrap();
            let device = Arc::new(Failing { file, switch: switch.clone() });
            shoal::raw::Volume::open_on(device, &options.open_options())
        }
    };
    let volume = Arc::new(volume.unwrap());
    let name = path.display().to_string();
    let mount = shoal_fuse::Mount::new(volume.clone(), Path::new(&dir), &name, &options).unwrap();
    println!("SERVING");
    mount.wait();
    let volume = Arc::try_unwrap(volume).ok().expect("the only owner once the mount has ended");
    let closed = volume.close();
    let failed = failing.is_some_and(|switch| switch.exists());
    assert_eq!(closed.is_err(), failed, "{closed:?}");
}

/// Runs `call` on a thread of its own as another user, with a working directory and umask of its
/// own. Credentials belong to threads in Linux; only the C library hides it.
pub(crate) fn as_user<T: Send>(uid: u32, groups: &[u32], call: impl FnOnce() -> T + Send) -> T {
    let outcome = std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // SAFETY: plain system calls on valid arguments; they change this thread only.
            let results = unsafe {
                [
                    libc::syscall(libc::SYS_unshare, libc::CLONE_FS),
                    libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()),
                    libc::syscall(libc::SYS_setresgid, uid, uid, uid),
                    libc::syscall(libc::SYS_setresuid, uid, uid, uid),
                ]
            };
            assert_eq!(results, [0; 4]);
            call()
        });
        thread.join()
    });
    outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Runs `call` with a umask.
pub(crate) fn with_umask<T: Send>(umask: u32, call: impl FnOnce() -> T + Send) -> T {
    as_user(0, &[], || {
        rustix::process::umask(Mode::from_raw_mode(umask));
        call()
    })
}

pub(crate) type Res<T> = Result<T, Errno>;

/// Returns calls by the ioctl, about an open file and the mount that it is in.
pub(crate) fn calls(opened: impl AsFd) -> Arc<dyn Calls> {
    shoal_fuse::calls_by(opened.as_fd().try_clone_to_owned().unwrap())
}

/// Returns the errno of a call's error.
pub(crate) fn errno<T>(result: shoal::raw::Result<T>) -> Res<T> {
    result.map_err(|error| Errno::from_raw_os_error(error.errno()))
}

/// Removes a directory with everything below it, by the ioctl.
pub(crate) fn remove_tree(dir: impl AsFd, path: &str, check: TreeCheck) -> Res<()> {
    errno(calls(dir).remove_tree(&Caller::root(), Node::TOP, path.as_bytes(), check))
}

pub(crate) fn open(path: impl AsRef<Path>, flags: OFlags) -> Res<OwnedFd> {
    // A server started by another test must not inherit it, or this mount stays busy.
    rustix::fs::open(path.as_ref(), flags | OFlags::CLOEXEC, Mode::empty())
}

/// Opens a directory.
pub(crate) fn dir(path: impl AsRef<Path>) -> OwnedFd {
    open(path, OFlags::RDONLY | OFlags::DIRECTORY).unwrap()
}

pub(crate) fn create(path: impl AsRef<Path>, flags: OFlags, mode: u32) -> Res<OwnedFd> {
    let flags = flags | OFlags::CREATE | OFlags::CLOEXEC;
    rustix::fs::open(path.as_ref(), flags, Mode::from_raw_mode(mode))
}

/// Makes a file without a name.
pub(crate) fn unnamed(dir: impl AsRef<Path>) -> OwnedFd {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    rustix::fs::open(dir.as_ref(), flags, Mode::from_raw_mode(0o600)).unwrap()
}

/// Makes an empty file.
pub(crate) fn touch(path: impl AsRef<Path>) {
    drop(create(path, OFlags::WRONLY, 0o644).unwrap());
}

pub(crate) fn mkdir(path: impl AsRef<Path>, mode: u32) -> Res<()> {
    rustix::fs::mkdir(path.as_ref(), Mode::from_raw_mode(mode))
}

pub(crate) fn rmdir(path: impl AsRef<Path>) -> Res<()> {
    rustix::fs::rmdir(path.as_ref())
}

pub(crate) fn unlink(path: impl AsRef<Path>) -> Res<()> {
    rustix::fs::unlink(path.as_ref())
}

pub(crate) fn rename(from: impl AsRef<Path>, to: impl AsRef<Path>) -> Res<()> {
    rustix::fs::rename(from.as_ref(), to.as_ref())
}

pub(crate) fn link(from: impl AsRef<Path>, to: impl AsRef<Path>) -> Res<()> {
    rustix::fs::link(from.as_ref(), to.as_ref())
}

pub(crate) fn symlink(target: impl AsRef<Path>, path: impl AsRef<Path>) -> Res<()> {
    rustix::fs::symlink(target.as_ref(), path.as_ref())
}

pub(crate) fn stat(path: impl AsRef<Path>) -> Res<Stat> {
    rustix::fs::stat(path.as_ref())
}

pub(crate) fn lstat(path: impl AsRef<Path>) -> Res<Stat> {
    rustix::fs::lstat(path.as_ref())
}

pub(crate) fn try_chmod(path: impl AsRef<Path>, mode: u32) -> Res<()> {
    rustix::fs::chmod(path.as_ref(), Mode::from_raw_mode(mode))
}

pub(crate) fn chmod(path: impl AsRef<Path>, mode: u32) {
    try_chmod(path, mode).unwrap();
}

pub(crate) fn try_chown(path: impl AsRef<Path>, uid: Option<u32>, gid: Option<u32>) -> Res<()> {
    let uid = uid.map(rustix::fs::Uid::from_raw);
    let gid = gid.map(rustix::fs::Gid::from_raw);
    rustix::fs::chownat(CWD, path.as_ref(), uid, gid, AtFlags::SYMLINK_NOFOLLOW)
}

pub(crate) fn chown(path: impl AsRef<Path>, uid: u32, gid: u32) {
    try_chown(path, Some(uid), Some(gid)).unwrap();
}

/// Returns the permission bits, with set-id and sticky.
pub(crate) fn mode(path: impl AsRef<Path>) -> u32 {
    lstat(path).unwrap().st_mode & 0o7777
}

/// `truncate` by path.
pub(crate) fn truncate(path: impl AsRef<Path>, size: i64) -> Res<()> {
    use std::os::unix::ffi::OsStrExt;
    let path = CString::new(path.as_ref().as_os_str().as_bytes()).unwrap();
    // SAFETY: a valid string and a number.
    match unsafe { libc::truncate(path.as_ptr(), size) } {
        0 => Ok(()),
        _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap()),
    }
}

/// Returns the sorted names in a directory.
pub(crate) fn list(path: impl AsRef<Path>) -> Vec<String> {
    let entries = std::fs::read_dir(path).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Copies a program that is to be run from `to`. By another process: with a descriptor to write in
/// this one, a child that another test forks meanwhile has it too until its exec, and to run the
/// program then fails with ETXTBSY.
pub(crate) fn copy_program(from: &str, to: impl AsRef<Path>) {
    let done = std::process::Command::new("cp").arg(from).arg(to.as_ref()).status().unwrap();
    assert!(done.success(), "{from} to {:?}: {done}", to.as_ref());
}

/// Mounts a directory at another one, with the ids of a user namespace.
pub(crate) fn idmapped(of: &Path, at: &Path, namespace: &OwnedFd) -> Res<()> {
    use rustix::mount::{MoveMountFlags, OpenTreeFlags, move_mount, open_tree};
    use std::os::fd::AsRawFd;
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let tree = open_tree(CWD, of, flags)?;
    let attr = libc::mount_attr {
        attr_set: libc::MOUNT_ATTR_IDMAP,
        attr_clr: 0,
        propagation: 0,
        userns_fd: namespace.as_raw_fd() as u64,
    };
    // SAFETY: descriptors that are open, an empty string, and a struct of the size given.
    let set = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            &raw const attr,
            size_of_val(&attr),
        )
    };
    if set != 0 {
        return Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap());
    }
    move_mount(&tree, "", CWD, at, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
}

/// Makes the kernel drop every unused inode from its cache.
pub(crate) fn drop_caches() {
    std::fs::write("/proc/sys/vm/drop_caches", "3").unwrap();
}

/// Returns a file's contents at a range of offsets.
pub(crate) fn pread(fd: &OwnedFd, offset: u64, len: usize) -> Vec<u8> {
    let mut data = vec![0; len];
    let mut got = 0;
    while got < len {
        let n = rustix::io::pread(fd, &mut data[got..], offset + got as u64).unwrap();
        if n == 0 {
            break;
        }
        got += n;
    }
    data.truncate(got);
    data
}

pub(crate) fn pwrite(fd: &OwnedFd, offset: u64, data: &[u8]) {
    let mut sent = 0;
    while sent < data.len() {
        sent += rustix::io::pwrite(fd, &data[sent..], offset + sent as u64).unwrap();
    }
}

/// Returns bytes that differ from place to place.
pub(crate) fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut step = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..len).map(|_| step()).collect()
}
