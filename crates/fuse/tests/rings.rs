//! Failures that only rings can have: the ends of their connection, every processor's queue, more
//! requests than slots. The rest of the mount's tests run through rings as well (see `common`).
//! A program of its own: these tests turn the kernel's switch of rings.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "it/common/mod.rs"]
mod common;
use common::*;
use rustix::fs::{AtFlags, CWD, OFlags};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use shoal_skip::wait_until;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

#[test]
fn serve_helper() {
    common::serve();
}

/// A mount through rings.
fn rings(options: &str) -> Option<(TestMount, Switch)> {
    let switch = switch()?;
    let mount = mount_only(&format!("{options},io_uring=on"))?;
    Some((mount, switch))
}

fn cpus() -> Vec<usize> {
    let allowed = sched_getaffinity(None).unwrap();
    (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).collect()
}

fn run_on(cpu: usize) {
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).unwrap();
}

fn signal(m: &TestMount, signal: Signal) {
    kill_process(Pid::from_raw(m.server_pid() as i32).unwrap(), signal).unwrap();
}

/// Threads that create, write and remove files until they are stopped or get an error; they return
/// that error.
struct Load {
    stop: Arc<AtomicBool>,
    done: Arc<AtomicUsize>,
    threads: Vec<JoinHandle<Option<Errno>>>,
}

impl Load {
    fn on(m: &TestMount) -> Load {
        let (stop, done) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let start = |number: usize| {
            let dir = open(&m.dir, OFlags::RDONLY | OFlags::DIRECTORY).unwrap();
            let (stop, done) = (stop.clone(), done.clone());
            let work = move || {
                let name = format!("load-{number}");
                let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC;
                while !stop.load(Ordering::Relaxed) {
                    let round = || {
                        let fd = rustix::fs::openat(&dir, &name, flags, 0o600.into())?;
                        rustix::io::pwrite(&fd, &pattern(9000, 1), 0)?;
                        rustix::fs::fsync(&fd)?;
                        rustix::fs::unlinkat(&dir, &name, AtFlags::empty())
                    };
                    if let Err(errno) = round() {
                        return Some(errno);
                    }
                    done.fetch_add(1, Ordering::Relaxed);
                }
                None
            };
            thread::spawn(work)
        };
        let threads = (0..6).map(start).collect();
        let load = Load { stop, done, threads };
        load.wait_for_rounds(50);
        load
    }

    fn wait_for_rounds(&self, more: usize) {
        let wanted = self.done.load(Ordering::Relaxed) + more;
        wait_until("calls return", || self.done.load(Ordering::Relaxed) >= wanted);
    }

    fn end(self) -> Vec<Option<Errno>> {
        self.threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    }

    fn stop(self) -> Vec<Option<Errno>> {
        self.stop.store(true, Ordering::Relaxed);
        self.end()
    }
}

fn all_gone(ends: &[Option<Errno>]) {
    // The kernel returns the last one if the thread of a ring dies with a request under way.
    let gone = |end: &Option<Errno>| {
        matches!(end, Some(Errno::CONNABORTED | Errno::NOTCONN | Errno::CANCELED))
    };
    assert!(ends.iter().all(gone), "{ends:?}");
}

#[test]
fn callers_of_a_killed_server_get_an_error_at_once() {
    let Some((mut m, _switch)) = rings("") else { return };
    std::fs::write(m.path("kept"), b"kept").unwrap();
    shoal_fuse::sync(&m.dir).unwrap();
    // Stopped, so that requests are pending in its slots when it dies; without, it is the same.
    let load = Load::on(&m);
    signal(&m, Signal::STOP);
    thread::sleep(Duration::from_millis(100));
    m.kill();
    all_gone(&load.end());
    shoal_fuse::unmount_lazy(&m.dir).unwrap();
    m.start(0);
    assert_eq!(std::fs::read(m.path("kept")).unwrap(), b"kept");
}

#[test]
fn a_forced_unmount_under_load_releases_the_volume() {
    let Some((mut m, _switch)) = rings("") else { return };
    for _ in 0..3 {
        let load = Load::on(&m);
        // Ends the connection; it is busy, so it stays mounted until later.
        let _ = unmount(&m.dir, UnmountFlags::FORCE);
        all_gone(&load.end());
        let _ = unmount(&m.dir, UnmountFlags::DETACH);
        // The server asserts that nobody else holds the volume, and closes it.
        let status = m.wait_for_server();
        assert!(status.success(), "{status}");
        m.start(0);
    }
}

#[test]
fn a_lazy_unmount_under_load_waits_for_its_users() {
    let Some((mut m, _switch)) = rings("") else { return };
    let load = Load::on(&m);
    shoal_fuse::unmount_lazy(&m.dir).unwrap();
    load.wait_for_rounds(50);
    assert_eq!(load.stop(), [None; 6]);
    let status = m.wait_for_server();
    assert!(status.success(), "{status}");
    m.start(0);
    assert!(list(&m.dir).is_empty());
}

#[test]
fn every_processor_has_its_queue() {
    let Some((m, _switch)) = rings("") else { return };
    for cpu in cpus() {
        let dir = m.path(&format!("cpu{cpu}"));
        let work = move || {
            run_on(cpu);
            mkdir(&dir, 0o755).unwrap();
            for number in 0..300 {
                std::fs::write(dir.join(number.to_string()), pattern(100, number)).unwrap();
            }
            assert_eq!(list(&dir).len(), 300);
        };
        thread::spawn(work).join().unwrap();
    }
    drop_caches();
    for cpu in cpus() {
        let last = m.path(&format!("cpu{cpu}/299"));
        assert_eq!(std::fs::read(last).unwrap(), pattern(100, 299));
    }
}

/// Requests beyond the slots wait in the kernel; meanwhile others on the same processor may have to
/// wait for one `fsync`, but not for ever.
#[test]
fn more_callers_than_slots() {
    let Some((m, _switch)) = rings("") else { return };
    let call = |number: u64| {
        let path = m.path(&number.to_string());
        move || {
            run_on(cpus()[0]);
            let fd = create(&path, OFlags::RDWR, 0o600).unwrap();
            for round in 0..5 {
                let data = pattern(5000, number + round);
                pwrite(&fd, 0, &data);
                rustix::fs::fsync(&fd).unwrap();
                assert_eq!(pread(&fd, 0, 5000), data);
            }
        }
    };
    let threads: Vec<_> = (0..100).map(|number| thread::spawn(call(number))).collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(list(&m.dir).len(), 100);
}

#[test]
fn large_reads_and_writes_in_pieces() {
    let Some((m, _switch)) = rings("") else { return };
    let data = pattern((5 << 20) + 123, 7);
    let path = m.path("large");
    let fd = create(&path, OFlags::RDWR, 0o600).unwrap();
    pwrite(&fd, 1000, &data);
    rustix::fs::fsync(&fd).unwrap();
    drop(fd);
    drop_caches();
    let fd = open(&path, OFlags::RDONLY).unwrap();
    assert!(pread(&fd, 1000, data.len() + 1) == data, "read through the cache");
    drop(fd);
    let fd = open(&path, OFlags::RDONLY | OFlags::DIRECT).unwrap();
    assert!(pread(&fd, 1000, data.len() + 1) == data, "read past the cache");
}

#[test]
fn listings_are_complete() {
    let Some((m, _switch)) = rings("") else { return };
    (0..3000).for_each(|number| touch(m.path(&format!("a rather long name, number {number}"))));
    drop_caches();
    let found = std::fs::read_dir(&m.dir).unwrap();
    let sizes: u64 = found.map(|entry| 1 + entry.unwrap().metadata().unwrap().len()).sum();
    assert_eq!(sizes, 3000);
}

#[test]
fn files_without_a_name() {
    let Some((m, _switch)) = rings("") else { return };
    let used = || {
        let facts = rustix::fs::statvfs(&m.dir).unwrap();
        facts.f_files - facts.f_ffree
    };
    let before = used();
    let fd = open(&m.dir, OFlags::TMPFILE | OFlags::RDWR).unwrap();
    pwrite(&fd, 0, b"nameless");
    let me: PathBuf = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&fd)).into();
    rustix::fs::linkat(CWD, &me, CWD, m.path("named"), AtFlags::SYMLINK_FOLLOW).unwrap();
    unlink(m.path("named")).unwrap();
    drop_caches();
    assert_eq!(pread(&fd, 0, 99), b"nameless", "unlinked, and still open");
    assert_eq!(used(), before + 1);
    drop(fd);
    // Forgotten after a pause, with others.
    wait_until("the inode is given back", || used() == before);
}

#[test]
fn the_switch_decides_and_can_be_turned() {
    let Some(_switch) = switch() else { return };
    std::fs::write(RINGS_SWITCH, "N").unwrap();
    let threads = |m: &TestMount| {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", m.server_pid())).unwrap();
        let name = |task: std::io::Result<std::fs::DirEntry>| {
            std::fs::read_to_string(task.unwrap().path().join("comm")).unwrap()
        };
        tasks.map(name).filter(|name| name.starts_with("shoal-ring")).count()
    };
    let Some(m) = mount_only("io_uring=auto") else { return };
    assert_eq!(threads(&m), 0, "not offered");
    let Some(m) = mount_only("io_uring=on") else { return };
    assert!(threads(&m) >= cpus().len(), "switched on");
    assert_eq!(std::fs::read_to_string(RINGS_SWITCH).unwrap().trim(), "Y");
    let Some(m) = mount_only("io_uring=auto") else { return };
    assert!(threads(&m) >= cpus().len(), "offered");
    let Some(m) = mount_only("io_uring=off") else { return };
    assert_eq!(threads(&m), 0, "not wanted");
}
