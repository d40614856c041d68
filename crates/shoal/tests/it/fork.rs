//! Forks of a process with an open volume. The child must get an error from every call, and must
//! not hang; the parent, its lock and its claim must be untouched.
//!
//! A test that forks needs a process of its own: it starts this program again, with the name of a
//! scene for [`scene`]. A child only fails by panicking, which sets its exit status.

use shoal::{Credentials, Dir, Error, FileOptions, Volume, VolumeOptions};
use std::io::{ErrorKind, Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

const SCENE: &str = "SHOAL_FORK_SCENE";
const PLACE: &str = "SHOAL_FORK_PLACE";
/// After this time a process counts as hanging.
const PATIENCE: Duration = Duration::from_secs(180);

/// Runs a scene in a process of its own.
fn run(scene: &str) {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let leaf =
        format!("shoal-fork-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let place = std::env::temp_dir().join(leaf);
    std::fs::create_dir_all(&place).unwrap();
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "fork::scene", "--ignored", "--nocapture", "--test-threads=1"])
        .env(SCENE, scene)
        .env(PLACE, &place)
        .output()
        .unwrap();
    std::fs::remove_dir_all(&place).unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{text}", String::from_utf8_lossy(&output.stdout));
}

/// The process of a scene.
#[test]
#[ignore = "the other tests of this module start it"]
fn scene() {
    let place = PathBuf::from(std::env::var_os(PLACE).unwrap());
    match &*std::env::var(SCENE).unwrap() {
        "calls" => calls(&place),
        "ring" => ring(&place),
        "memory" => memory(),
        "busy" => busy(&place),
        "reopened" => reopened(&place),
        "daemon" => daemon(&place),
        "walk" => walk(&place),
        "spawned" => spawned(&place),
        "descriptors" => assert_eq!(descriptors(&place), 0),
        other => panic!("{other}"),
    }
}

/// A child process.
struct Child(libc::pid_t);

impl Child {
    /// Forks, and runs `life` in the child.
    fn fork(life: impl FnOnce()) -> Child {
        // SAFETY: the C library makes its allocator usable in the child. The child takes no other
        // lock of a thread that it does not have: that is tested here of Shoal, and the standard
        // library is used for files alone.
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0, "{}", std::io::Error::last_os_error());
        if pid == 0 {
            let failed = catch_unwind(AssertUnwindSafe(life)).is_err();
            // SAFETY: ends the process, without the destructors of its parent.
            unsafe { libc::_exit(failed.into()) };
        }
        Child(pid)
    }

    /// Waits for the child, which must not have failed.
    fn join(self) {
        let begun = Instant::now();
        let mut status = 0;
        loop {
            // SAFETY: `status` is valid for the call.
            match unsafe { libc::waitpid(self.0, &mut status, libc::WNOHANG) } {
                0 if begun.elapsed() < PATIENCE => std::thread::sleep(Duration::from_millis(2)),
                0 => {
                    // SAFETY: our own child, not waited for yet.
                    unsafe { libc::kill(self.0, libc::SIGKILL) };
                    panic!("the child hangs");
                }
                _ => break,
            }
        }
        assert_eq!(status, 0, "the child failed");
    }
}

/// A signal from one process to another.
struct Signal(std::io::PipeReader, std::io::PipeWriter);

impl Signal {
    fn new() -> Signal {
        let (read, write) = std::io::pipe().unwrap();
        Signal(read, write)
    }
    fn send(&self) {
        (&self.1).write_all(b".").unwrap();
    }
    fn wait(&self) {
        (&self.0).read_exact(&mut [0]).unwrap();
    }
}

fn options() -> VolumeOptions {
    Volume::options().size(64 << 20).cache(8 << 20).create(true)
}

fn open(place: &Path) -> (Volume, Dir) {
    let volume = options().open(place.join("v")).unwrap();
    let root = volume.root(Credentials::root());
    (volume, root)
}

/// Number of descriptors that lead to something in `place`.
fn descriptors(place: &Path) -> usize {
    let leads = |entry: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_link(entry.unwrap().path()).is_ok_and(|to| to.starts_with(place))
    };
    std::fs::read_dir("/proc/self/fd").unwrap().filter_map(|e| leads(e).then_some(())).count()
}

#[track_caller]
fn refused<T>(result: Result<T, Error>) {
    let Err(error) = result else { panic!("it must be refused") };
    let text = error.to_string();
    assert!(text.ends_with("opened before a fork: open it again"), "{text}");
    assert_eq!(error.errno(), libc::EBADF);
}

#[track_caller]
fn refused_raw(result: shoal::raw::Result<()>) {
    let error = result.unwrap_err();
    assert_eq!(error.errno(), libc::EBADF, "{error}");
}

fn content(number: u32) -> Vec<u8> {
    let len = 100 + number as usize % 7000;
    (0..len).map(|at| (at as u32 * 31 + number) as u8).collect()
}

fn write_files(root: &Dir, numbers: std::ops::Range<u32>) {
    for number in numbers {
        root.write(format!("f{number}"), content(number)).unwrap();
    }
    root.sync_all().unwrap();
}

/// Checks the files in a new session, and then the whole volume.
fn check_files(place: &Path, numbers: std::ops::Range<u32>) {
    let (volume, root) = open(place);
    assert_eq!(root.entries().unwrap().count(), numbers.len());
    for number in numbers {
        assert_eq!(root.read(format!("f{number}")).unwrap(), content(number), "{number}");
    }
    let report = volume.raw().unwrap().check(&mut |_, _| {}).unwrap();
    assert!(report.problems.is_empty(), "{report:?}");
}

/// Each call of a child, on a volume, a directory, and a file of its parent's.
fn try_all(volume: &Volume, root: &Dir, file: &shoal::File) {
    refused(volume.sync());
    refused(volume.paths_of(file.ino()));
    refused(volume.usage());
    refused(volume.subvolumes().list());
    refused(shoal::Quota::all(volume));
    assert!(volume.read_only_reason().is_some_and(|why| why.contains("before a fork")));
    assert!(format!("{volume:?}").contains("before a fork"));
    refused(root.write("f0", "child"));
    refused(root.create("c"));
    refused(root.create_new("c"));
    refused(root.create_dir("c"));
    refused(root.create_dir_all("c/d"));
    refused(root.symlink("f0", "c"));
    refused(root.hard_link("f0", "c"));
    refused(root.rename("f0", "c"));
    refused(root.remove_file("f0"));
    refused(root.remove_dir("c"));
    refused(root.remove_dir_all("c"));
    refused(root.batch(|b| b.write("c", b"child")));
    refused(root.read("f0"));
    refused(root.open("f0"));
    refused(root.open_dir(""));
    refused(root.metadata("f0"));
    refused(root.symlink_metadata("f0"));
    refused(root.exists("f0"));
    refused(root.read_link("f0"));
    refused(root.handle());
    refused(root.set_permissions("f0", 0o600));
    refused(root.set_xattr("user.a", b"child"));
    refused(root.xattr("user.a"));
    refused(root.sync_all());
    refused(shoal::Mark::now(root));
    refused(shoal::Changes::since(root, None));
    refused(shoal::Totals::of(root));
    refused(root.entries().and_then(|entries| entries.collect::<Result<Vec<_>, _>>()));
    refused(root.walk().into_iter().collect::<Result<Vec<_>, _>>());
    refused(shoal::Quota::set(root, Some(1 << 20), None));
    refused(volume.subvolumes().create("c"));
    refused(volume.subvolumes().open("c", Credentials::root()));
    refused(file.read_at(&mut [0; 10], 0));
    refused(file.write_at(b"child", 0));
    refused(file.set_len(0));
    refused(file.allocate(0, 4096));
    refused(file.punch_hole(0, 4096));
    refused(file.metadata());
    refused(file.sync_all());
    refused(file.sync_data());
    refused_raw(volume.raw().unwrap().maintenance().checkpoint());
    refused_raw(volume.raw().unwrap().maintenance().clean());
    refused_raw(volume.raw().unwrap().maintenance().trim(true, 1 << 20).map(drop));
}

#[test]
fn every_call_fails_in_a_child_and_the_parent_is_untouched() {
    run("calls");
}

/// One to all of the parent's 500 files failed their checksums for good, and every call of both
/// processes had succeeded.
fn calls(place: &Path) {
    let (volume, root) = open(place);
    write_files(&root, 0..100);
    let file = FileOptions::new().read(true).write(true).open(&root, "f0").unwrap();
    let writing = AtomicBool::new(true);
    std::thread::scope(|scope| {
        let (root, writing) = (&root, &writing);
        scope.spawn(move || {
            write_files(root, 100..600);
            writing.store(false, Ordering::Release);
        });
        // At any moment of a call, of a commit and of a checkpoint; at least once afterwards.
        let mut last = false;
        while !last {
            last = !writing.load(Ordering::Acquire);
            let child = Child::fork(|| {
                try_all(&volume, root, &file);
                std::thread::scope(|scope| {
                    scope.spawn(|| refused(root.read("f0"))).join().unwrap();
                });
            });
            child.join();
        }
    });
    drop(file);
    let (volume, root) = dropped_in_a_child(place, volume, root);
    write_files(&root, 600..700);
    drop(root);
    volume.close().unwrap();
    check_files(place, 0..700);
}

/// Drops, in a child, everything that its parent has open; returns it in the parent.
fn dropped_in_a_child(place: &Path, volume: Volume, root: Dir) -> (Volume, Dir) {
    let file = root.open("f0").unwrap();
    let unlinked = root.create_new("unlinked").unwrap();
    root.remove_file("unlinked").unwrap();
    assert!(descriptors(place) > 0);
    let mut all = Some((volume, root, file, unlinked));
    let child = Child::fork(|| {
        let (volume, root, file, unlinked) = all.take().unwrap();
        drop((file, unlinked, root));
        refused(volume.close().map_err(Error::from));
        assert_eq!(descriptors(place), 0, "left open");
        // The lock and the claim are the parent's as before.
        let error = options().open(place.join("v")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ResourceBusy, "{error}");
    });
    child.join();
    let (volume, root, file, unlinked) = all.unwrap();
    unlinked.write_at(b"still there", 0).unwrap();
    drop((file, unlinked));
    (volume, root)
}

#[test]
fn the_ring_of_a_parent_is_untouched() {
    run("ring");
}

fn ring(place: &Path) {
    let open = || options().journal_ring(place.join("ring")).open(place.join("v")).unwrap();
    let volume = open();
    let root = volume.root(Credentials::root());
    write_files(&root, 0..50);
    let (closed, opened) = (Signal::new(), Signal::new());
    let mut all = Some((volume, root));
    let child = Child::fork(|| {
        let (volume, root) = all.take().unwrap();
        refused(root.write("c", "child"));
        refused(volume.sync());
        // It has the descriptors open while the parent closes, and opens again.
        closed.wait();
        opened.wait();
        drop(root);
        drop(volume);
        assert_eq!(descriptors(place), 0, "left open");
    });
    let (volume, root) = all.unwrap();
    write_files(&root, 50..100);
    drop(root);
    volume.close().unwrap();
    closed.send();
    let volume = open();
    opened.send();
    child.join();
    write_files(&volume.root(Credentials::root()), 100..150);
    volume.close().unwrap();
    check_files(place, 0..150);
}

#[test]
fn a_volume_in_memory_is_its_parents_too() {
    run("memory");
}

fn memory() {
    let volume = options().in_memory().unwrap();
    let root = volume.root(Credentials::root());
    write_files(&root, 0..10);
    Child::fork(|| {
        refused(root.read("f0"));
        // One of its own, and a child of that.
        let own = options().in_memory().unwrap();
        let root = own.root(Credentials::root());
        write_files(&root, 0..10);
        Child::fork(|| refused(root.read("f0"))).join();
        assert_eq!(root.read("f0").unwrap(), content(0));
    })
    .join();
    assert_eq!(root.read("f0").unwrap(), content(0));
}

#[test]
fn a_child_opens_a_volume_that_its_parent_has_closed() {
    run("reopened");
}

/// The child has a copy all the time, whose open files had kept the lock.
fn reopened(place: &Path) {
    let (volume, root) = open(place);
    write_files(&root, 0..10);
    let closed = Signal::new();
    let child = Child::fork(|| {
        refused(root.read("f0"));
        closed.wait();
        let (_volume, own) = open(place);
        assert_eq!(own.read("f0").unwrap(), content(0));
        write_files(&own, 10..20);
        refused(root.read("f0"));
    });
    drop(root);
    volume.close().unwrap();
    closed.send();
    child.join();
    check_files(place, 0..20);
}

#[test]
fn a_child_that_ends_leaves_the_lock() {
    run("busy");
}

fn busy(place: &Path) {
    let (_volume, root) = open(place);
    write_files(&root, 0..10);
    Child::fork(|| {}).join();
    Child::fork(|| {
        let error = options().open(place.join("v")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ResourceBusy, "{error}");
    })
    .join();
    write_files(&root, 10..20);
}

#[test]
fn a_daemon_that_opened_the_volume_before_it_forked_opens_it_again() {
    run("daemon");
}

fn daemon(place: &Path) {
    let (begun, parent_has_ended, daemon_is_done) = (Signal::new(), Signal::new(), Signal::new());
    let parent = Child::fork(|| {
        let (volume, root) = open(place);
        write_files(&root, 0..10);
        let mut all = Some((volume, root));
        Child::fork(|| {
            parent_has_ended.wait();
            let (volume, root) = all.take().unwrap();
            refused(root.write("c", "child"));
            drop(root);
            drop(volume);
            let (volume, root) = open(place);
            write_files(&root, 10..20);
            drop(root);
            volume.close().unwrap();
            daemon_is_done.send();
        });
        // And ends as if it had been killed, and the daemon is nobody's child.
        begun.send();
    });
    begun.wait();
    parent.join();
    parent_has_ended.send();
    // If the daemon fails, its end of the pipe is closed; so must be ours.
    let Signal(mut done, own) = daemon_is_done;
    drop(own);
    let mut text = String::new();
    done.read_to_string(&mut text).unwrap();
    assert_eq!(text, ".", "the daemon failed");
    check_files(place, 0..20);
}

#[test]
fn a_walk_ends_in_a_child() {
    run("walk");
}

fn walk(place: &Path) {
    let (_volume, root) = open(place);
    write_files(&root, 0..600);
    let mut walking = root.walk().threads(2).into_iter();
    walking.next().unwrap().unwrap();
    let mut all = Some(walking);
    Child::fork(|| {
        let mut walking = all.take().unwrap();
        let last = walking.by_ref().last().unwrap();
        refused(last);
        assert!(walking.next().is_none());
        drop(walking);
    })
    .join();
    let walking = all.as_mut().unwrap();
    assert_eq!(walking.filter(|entry| entry.is_ok()).count(), 599);
}

#[test]
fn a_spawned_program_has_nothing_of_the_volume() {
    run("spawned");
}

/// By `posix_spawn`, which is `vfork` and `exec`, and by `fork` and `exec`.
fn spawned(place: &Path) {
    use std::os::unix::process::CommandExt;
    let (volume, root) = open(place);
    write_files(&root, 0..10);
    for by_fork in [false, true] {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "fork::scene", "--ignored", "--nocapture"])
            .env(SCENE, "descriptors")
            .env(PLACE, place);
        if by_fork {
            // SAFETY: it does nothing. The standard library forks if there is such a function.
            unsafe { command.pre_exec(|| Ok(())) };
        }
        assert!(command.output().unwrap().status.success());
    }
    write_files(&root, 10..20);
    drop(root);
    volume.close().unwrap();
    check_files(place, 0..20);
}
