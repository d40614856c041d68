//! Calls do not wait for another thread's I/O: while one thread reads or writes on a slow device,
//! checkpoints and calls of other threads complete.
//!
//! The device counts operations instead of time, so the assertions do not depend on the load of the
//! machine.

use shoal_engine::*;
use shoal_skip::PATIENCE;
use std::io::IoSlice;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// A device on which the next operation of a kind stops until it is released.
struct Stopping {
    inner: MemDevice,
    /// Data writes of at least this many bytes stop; 0 for none.
    write_min: AtomicU64,
    reads_stop: AtomicBool,
    stopped: Mutex<bool>,
    changed: Condvar,
    reads: AtomicU64,
}

impl Stopping {
    fn new(bytes: u64) -> Arc<Stopping> {
        Arc::new(Stopping {
            inner: MemDevice::new(bytes),
            write_min: AtomicU64::new(0),
            reads_stop: AtomicBool::new(false),
            stopped: Mutex::new(false),
            changed: Condvar::new(),
            reads: AtomicU64::new(0),
        })
    }
    /// Stops the caller until the test releases it.
    fn stop(&self) {
        let mut stopped = self.stopped.lock().unwrap();
        *stopped = true;
        self.changed.notify_all();
        while *stopped {
            stopped = self.changed.wait(stopped).unwrap();
        }
    }
    /// Waits until an operation has stopped.
    fn wait_for_stop(&self) {
        let mut stopped = self.stopped.lock().unwrap();
        while !*stopped {
            stopped = self.changed.wait(stopped).unwrap();
        }
    }
    fn go_on(&self) {
        self.write_min.store(0, Ordering::SeqCst);
        self.reads_stop.store(false, Ordering::SeqCst);
        *self.stopped.lock().unwrap() = false;
        self.changed.notify_all();
    }
}

impl Device for Stopping {
    fn capacity(&self) -> u64 {
        self.inner.capacity()
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        if self.reads_stop.load(Ordering::SeqCst) {
            self.stop();
        }
        self.inner.read_at(buf, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.inner.write_at(buf, offset)
    }
    fn write_vectored_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> Result<()> {
        let len: usize = bufs.iter().map(|buf| buf.len()).sum();
        let least = self.write_min.load(Ordering::SeqCst);
        if least > 0 && len as u64 >= least {
            self.stop();
        }
        self.inner.write_vectored_at(bufs, offset)
    }
    fn flush(&self) -> Result<()> {
        self.inner.flush()
    }
    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.inner.discard(offset, len)
    }
    fn describe(&self) -> String {
        "stopping device".into()
    }
}

fn options() -> OpenOptions {
    OpenOptions { background: false, noatime: true, ..OpenOptions::default() }
}

fn open(device: &Arc<Stopping>) -> Volume {
    Volume::open_on(device.clone(), &options()).unwrap()
}

fn fresh(bytes: u64) -> Arc<Stopping> {
    let device = Stopping::new(bytes);
    mkfs_on(device.clone(), &MkfsOptions::default()).unwrap();
    device
}

/// Makes a directory with separate leaves, for the calls that must not wait.
fn make_warm(volume: &Volume) -> Ino {
    let who = Caller::root();
    let dir = volume.namespace().mkdir(&who, Ino::ROOT, b"warm", 0o755).unwrap().ino;
    for i in 0..600 {
        volume.namespace().create(&who, dir, format!("{i:0>60}").as_bytes(), 0o644).unwrap();
    }
    dir
}

/// Reads everything that creates in this directory use into memory.
fn warm_up(volume: &Volume, dir: Ino) {
    volume.directories().readdir(dir, 0, &mut |_| true).unwrap();
    others_create(volume, dir, 0);
}

fn others_create(volume: &Volume, dir: Ino, round: u64) {
    let who = Caller::root();
    for i in 0..40 {
        let name = format!("new-{round}-{i}");
        volume.namespace().create(&who, dir, name.as_bytes(), 0o644).unwrap();
        volume.namespace().unlink(&who, dir, name.as_bytes()).unwrap();
    }
}

/// While a call of another thread is stopped on the device, a checkpoint must quiesce transactions
/// and end the quiesce, and calls must continue. (The checkpoint itself may wait for a node that is
/// being read.) Returns whether they did; releases the device in any case.
fn others_go_on(device: &Stopping, volume: &Volume, warm: Ino) -> bool {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| volume.maintenance().checkpoint().unwrap());
        std::thread::sleep(Duration::from_millis(20));
        scope.spawn(|| {
            (1..4).for_each(|round| others_create(volume, warm, round));
            done.store(true, Ordering::SeqCst);
        });
        // Not `wait_until`, whose panic would leave threads that wait for the device.
        let begun = Instant::now();
        while !done.load(Ordering::SeqCst) && begun.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(1));
        }
        let went_on = done.load(Ordering::SeqCst);
        device.go_on();
        went_on
    })
}

/// Runs `call` in a thread, stops it on the device, lets others continue, and waits for its end.
fn beside<R: Send>(
    device: &Stopping,
    volume: &Volume,
    warm: Ino,
    arm: impl FnOnce(&Stopping),
    call: impl FnOnce() -> R + Send,
) -> R {
    std::thread::scope(|scope| {
        arm(device);
        let thread = scope.spawn(call);
        device.wait_for_stop();
        // Only the thread's operation stops.
        device.write_min.store(0, Ordering::SeqCst);
        device.reads_stop.store(false, Ordering::SeqCst);
        let went_on = others_go_on(device, volume, warm);
        let result = thread.join().unwrap();
        assert!(went_on, "calls waited for another's I/O");
        result
    })
}

#[test]
fn a_slow_write_of_data_keeps_nobody_waiting() {
    let device = fresh(256 << 20);
    let volume = open(&device);
    let who = Caller::root();
    let ino = volume.namespace().create(&who, Ino::ROOT, b"slow", 0o644).unwrap().ino;
    volume.files().write(ino, 0, &[1; 100_000], false).unwrap();
    let bytes = vec![9; 1 << 20];
    let arm = |device: &Stopping| device.write_min.store(100_000, Ordering::SeqCst);
    let warm = make_warm(&volume);
    warm_up(&volume, warm);
    let written =
        beside(&device, &volume, warm, arm, || volume.files().write(ino, 0, &bytes, false));
    assert_eq!(written, Ok(1 << 20));
    volume.sync().unwrap();
    drop(volume);
    let volume = open(&device);
    let mut back = vec![0; 1 << 20];
    assert_eq!(volume.files().read(ino, 0, &mut back), Ok(1 << 20));
    assert_eq!(back, bytes);
    assert_eq!(volume.check(&mut |_, _| {}).unwrap().problems, vec![]);
}

/// A read must return the state at its begin, although the file is overwritten and truncated, and
/// its space freed and reused, meanwhile.
#[test]
fn a_slow_read_keeps_nobody_waiting_and_reads_one_state() {
    let device = fresh(64 << 20);
    let volume = open(&device);
    let who = Caller::root();
    let ino = volume.namespace().create(&who, Ino::ROOT, b"slow", 0o644).unwrap().ino;
    let bytes = vec![7; 128 << 10];
    volume.files().write(ino, 0, &bytes, false).unwrap();
    volume.sync().unwrap();
    drop(volume);
    let volume = open(&device);
    // Its inode and map are in memory, its data is not.
    volume.attributes().getattr(ino).unwrap();
    let arm = |device: &Stopping| device.reads_stop.store(true, Ordering::SeqCst);
    let mut back = vec![0; 128 << 10];
    let read = std::thread::scope(|scope| {
        arm(&device);
        let thread = scope.spawn(|| volume.files().read(ino, 0, &mut back));
        device.wait_for_stop();
        device.reads_stop.store(false, Ordering::SeqCst);
        let set = SetAttr { size: Some(0), ..SetAttr::default() };
        volume.attributes().setattr(&who, ino, &set).unwrap();
        for round in 0..200 {
            volume.files().write(ino, 0, &vec![round as u8; 128 << 10], false).unwrap();
            if round % 10 == 0 {
                volume.maintenance().checkpoint().unwrap();
            }
        }
        device.go_on();
        thread.join().unwrap()
    });
    assert_eq!(read, Ok(128 << 10));
    assert_eq!(back, bytes, "the space was given to others while it was read");
}

/// Everything that a removal needs is read before its transaction begins.
#[test]
fn the_removal_of_a_cold_tree_keeps_nobody_waiting() {
    let device = fresh(256 << 20);
    let volume = open(&device);
    let who = Caller::root();
    let dir = volume.namespace().mkdir(&who, Ino::ROOT, b"cold", 0o755).unwrap().ino;
    for i in 0..2048 {
        volume.namespace().create(&who, dir, format!("{i}").as_bytes(), 0o644).unwrap();
    }
    let warm = make_warm(&volume);
    volume.close().unwrap();
    let volume = open(&device);
    warm_up(&volume, warm);
    let reads = device.reads.load(Ordering::SeqCst);
    let arm = |device: &Stopping| device.reads_stop.store(true, Ordering::SeqCst);
    let removed = beside(&device, &volume, warm, arm, || {
        volume.namespace().remove_tree(&who, Ino::ROOT, b"cold", TreeCheck::Tree)
    });
    assert_eq!(removed, Ok(()));
    assert!(device.reads.load(Ordering::SeqCst) - reads > 60, "it was cold");
    while volume.maintenance().reap_some().unwrap() {}
    assert_eq!(volume.check(&mut |_, _| {}).unwrap().problems, vec![]);
}

/// Makes a directory of 400 files; returns it and the last file.
fn fill(volume: &Volume, name: &[u8]) -> (Ino, Ino) {
    let who = Caller::root();
    let dir = volume.namespace().mkdir(&who, Ino::ROOT, name, 0o755).unwrap().ino;
    let mut last = dir;
    for i in 0..400 {
        let name = format!("{i}");
        last = volume.namespace().create(&who, dir, name.as_bytes(), 0o644).unwrap().ino;
    }
    (dir, last)
}

/// A call on a volume, with a cold directory and a cold file in it.
type Call = fn(&Volume, Ino, Ino) -> Result<()>;

/// Every single read of each call on a cold volume is stopped in turn: none may be inside a
/// transaction.
#[test]
fn no_read_of_a_cold_call_is_inside_the_gate() {
    let calls: [(&str, Call); 7] = [
        ("create", |v, dir, _| v.namespace().create(&Caller::root(), dir, b"new", 0o644).map(drop)),
        ("unlink", |v, dir, _| v.namespace().unlink(&Caller::root(), dir, b"5")),
        ("rename", |v, dir, _| {
            let (who, plain) = (Caller::root(), RenameFlags::default());
            v.namespace().rename(&who, dir, b"5", Ino::ROOT, b"moved", plain)
        }),
        ("link", |v, dir, file| v.namespace().link(&Caller::root(), file, dir, b"new").map(drop)),
        ("setattr", |v, _, file| {
            let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
            v.attributes().setattr(&Caller::root(), file, &set).map(drop)
        }),
        ("setxattr", |v, _, file| {
            v.attributes().setxattr(&Caller::root(), file, b"user.a", b"b", XattrFlags::default())
        }),
        ("write", |v, _, file| v.files().write(file, 10, &[3; 50_000], false).map(drop)),
    ];
    for (name, call) in calls {
        for stop_at in 0..12 {
            let device = fresh(64 << 20);
            let volume = open(&device);
            // Full directories before and after it: nothing of it shares a block with the top
            // directory, which opening reads, or with the warm one, wherever names hash to.
            fill(&volume, b"before");
            let (dir, file) = fill(&volume, b"cold");
            fill(&volume, b"after");
            volume.files().write(file, 0, &[2; 100_000], false).unwrap();
            let warm = make_warm(&volume);
            volume.close().unwrap();
            let volume = open(&device);
            warm_up(&volume, warm);
            let before = device.reads.load(Ordering::SeqCst);
            let done = std::thread::scope(|scope| {
                let thread = scope.spawn(|| call(&volume, dir, file));
                // Lets this many reads pass, one at a time.
                let mut passed = 0;
                device.reads_stop.store(true, Ordering::SeqCst);
                loop {
                    if thread.is_finished() {
                        break;
                    }
                    let stopped = *device.stopped.lock().unwrap();
                    if !stopped {
                        std::thread::sleep(Duration::from_micros(200));
                        continue;
                    }
                    if passed == stop_at {
                        device.reads_stop.store(false, Ordering::SeqCst);
                        let went_on = others_go_on(&device, &volume, warm);
                        assert!(went_on, "read {stop_at} of {name} is inside the gate");
                        break;
                    }
                    passed += 1;
                    *device.stopped.lock().unwrap() = false;
                    device.changed.notify_all();
                }
                thread.join().unwrap()
            });
            device.go_on();
            assert_eq!(done, Ok(()), "{name}");
            if device.reads.load(Ordering::SeqCst) - before <= stop_at {
                assert!(stop_at > 0, "{name} has read something");
                break;
            }
        }
    }
}
