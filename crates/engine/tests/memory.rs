//! Memory that runs out at every allocation of a call in turn: the call fails with `ENOMEM` and has
//! changed nothing, or it succeeds; the volume stays usable and whole.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use shoal_engine::memory::{self, WithReserve};
use shoal_engine::*;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;

thread_local! {
    /// Allocations of this thread until one fails; negative: none does.
    static COUNTDOWN: Cell<i64> = const { Cell::new(-1) };
    /// Allocations that fail from there on.
    static FAILURES: Cell<i64> = const { Cell::new(0) };
}

/// The reserve is the process's: what one test takes from it, another would be refused.
static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

/// Fails the allocations that the test has chosen.
struct Failing;

fn fails() -> bool {
    let left = COUNTDOWN.get();
    if left < 0 {
        return false;
    }
    if left > 0 {
        COUNTDOWN.set(left - 1);
        return false;
    }
    let failures = FAILURES.get() - 1;
    FAILURES.set(failures);
    if failures <= 0 {
        COUNTDOWN.set(-1);
    }
    true
}

// SAFETY: what does not fail is the system's allocator.
unsafe impl GlobalAlloc for Failing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        if fails() { std::ptr::null_mut() } else { unsafe { System.alloc(layout) } }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: WithReserve<Failing> = WithReserve(Failing);

/// Runs `call` with its allocation number `nth` and the `failures` after it failing. Returns what
/// it returned and whether any failed.
fn failing<T>(nth: i64, failures: i64, call: impl FnOnce() -> T) -> (T, bool) {
    FAILURES.set(failures);
    COUNTDOWN.set(nth);
    let result = call();
    let failed = FAILURES.get() != failures;
    COUNTDOWN.set(-1);
    (result, failed)
}

fn assert_clean(volume: &Volume) {
    let report = volume.check(&mut |_, _| {}).unwrap();
    let first: Vec<_> = report.problems.iter().take(5).collect();
    assert!(first.is_empty(), "{first:?}");
}

fn fresh() -> (Arc<MemDevice>, Volume) {
    memory::enable();
    let device = Arc::new(MemDevice::new(256 << 20));
    mkfs_on(device.clone(), &MkfsOptions::default()).unwrap();
    let options = OpenOptions { background: false, ..OpenOptions::default() };
    let volume = Volume::open_on(device.clone(), &options).unwrap();
    (device, volume)
}

/// Calls `call(i)` for new `i` until every allocation it makes, here and now, has failed once;
/// `done(i)` says whether its effect is there. Returns how many failed with `ENOMEM`, how many
/// succeeded all the same.
fn every_allocation(
    failures: i64,
    next: &mut usize,
    call: &dyn Fn(usize) -> Result<()>,
    done: &dyn Fn(usize) -> bool,
) -> (usize, usize) {
    let (mut refused, mut served) = (0, 0);
    for nth in 0.. {
        let i = *next;
        *next += 1;
        let (result, failed) = failing(nth, failures, || call(i));
        match &result {
            Ok(()) => assert!(done(i), "call {i} succeeded"),
            Err(Error::Code(Code::NoMemory)) => assert!(!done(i), "call {i} failed"),
            Err(e) => panic!("call {i}, allocation {nth}: {e}"),
        }
        match (failed, result.is_ok()) {
            (false, _) => return (refused, served),
            (true, true) => served += 1,
            (true, false) => refused += 1,
        }
        call(i + 1_000_000).expect("memory is back");
        assert!(nth < 10_000, "no end");
    }
    unreachable!()
}

#[test]
fn a_create_without_memory_changes_nothing() {
    let _alone = ALONE.lock();
    let (_device, volume) = fresh();
    let who = Caller::root();
    let dir = volume.mkdir(&who, Ino::ROOT, b"d", 0o755).unwrap().ino;
    let name = |i: usize| format!("{i:040}").into_bytes();
    let call = |i| volume.create(&who, dir, &name(i), 0o644).map(|_| ());
    let done = |i| volume.lookup(&who, dir, &name(i)).is_ok();
    let (mut next, mut refused, mut served) = (0, 0, 0);
    // Often enough to meet new inode blocks, leaves that split, and inner nodes that grow.
    for round in 0..1500 {
        let failures = if round % 2 == 0 { 1 } else { 1000 };
        let counts = every_allocation(failures, &mut next, &call, &done);
        (refused, served) = (refused + counts.0, served + counts.1);
    }
    assert!(refused > 100, "only {refused} calls met failures before their first change");
    assert!(served > 10, "only {served} calls met failures after it");
    assert_clean(&volume);
    volume.checkpoint().unwrap();
    assert_clean(&volume);
}

#[test]
fn other_calls_without_memory_change_nothing_or_succeed() {
    let _alone = ALONE.lock();
    let (device, volume) = fresh();
    let who = Caller::root();
    let dir = volume.mkdir(&who, Ino::ROOT, b"d", 0o755).unwrap().ino;
    let name = |prefix: &str, i: usize| format!("{prefix}{i:040}").into_bytes();
    let there = |name: &[u8]| volume.lookup(&who, dir, name).is_ok();
    let mut next = 0;
    for _ in 0..40 {
        let mkdir = |i| volume.mkdir(&who, dir, &name("d", i), 0o755).map(|_| ());
        every_allocation(1, &mut next, &mkdir, &|i| there(&name("d", i)));
        let link = |i: usize| {
            volume.create(&who, dir, &name("l", i), 0o644)?;
            volume.link(&who, volume.lookup(&who, dir, &name("l", i))?.ino, dir, &name("m", i))?;
            Ok(())
        };
        every_allocation(1, &mut next, &link, &|i| there(&name("m", i)));
        let moved = |i: usize| {
            let plain = RenameFlags::default();
            volume.create(&who, dir, &name("a", i), 0o644)?;
            volume.rename(&who, dir, &name("a", i), dir, &name("b", i), plain)
        };
        every_allocation(1, &mut next, &moved, &|i| there(&name("b", i)));
        let gone = |i: usize| {
            volume.create(&who, dir, &name("x", i), 0o644)?;
            volume.unlink(&who, dir, &name("x", i))?;
            volume.symlink(&who, dir, &name("y", i), &[b'y'; 300]).map(|_| ())
        };
        every_allocation(1, &mut next, &gone, &|i| there(&name("y", i)));
    }
    assert_clean(&volume);
    volume.close().unwrap();
    let volume = Volume::open_on(device, &OpenOptions::default()).unwrap();
    assert_clean(&volume);
}

/// Calls that take several transactions, with their allocation `nth` and some behind it failing.
/// Each must have done all that can be seen, or nothing. They return whether any allocation failed.
struct Steps {
    volume: Volume,
    who: Caller,
    failures: i64,
}

impl Steps {
    /// A file of as many records as writes.
    fn scattered(&self, dir: Ino, name: &[u8]) -> Ino {
        let ino = self.volume.create(&self.who, dir, name, 0o644).unwrap().ino;
        for i in 0..24 {
            assert_eq!(self.volume.write(ino, i * (256 << 10), b"data", false).unwrap(), 4);
        }
        ino
    }

    fn gone(&self, name: &[u8]) -> bool {
        self.volume.lookup(&self.who, Ino::ROOT, name).is_err()
    }

    fn cut(&self, nth: i64, name: &[u8]) -> bool {
        let ino = self.scattered(Ino::ROOT, name);
        let size = || self.volume.getattr(ino).unwrap().size;
        let (whole, to) = (size(), SetAttr { size: Some(5), ..SetAttr::default() });
        let cut = || self.volume.setattr(&self.who, ino, &to);
        let (result, failed) = failing(nth, self.failures, cut);
        let now = size();
        assert!(now == 5 || now == whole && enomem(&result), "{nth}: {result:?}, {now}");
        cut().expect("memory is back");
        assert_eq!(size(), 5);
        failed
    }

    fn unlink_held(&self, nth: i64, name: &[u8]) -> bool {
        let ino = self.scattered(Ino::ROOT, name);
        self.volume.hold(ino, 1).unwrap();
        let unlink = || self.volume.unlink(&self.who, Ino::ROOT, name);
        let (result, failed) = failing(nth, self.failures, unlink);
        assert!(self.gone(name) || enomem(&result), "{nth}: {result:?}");
        let mut word = [0; 4];
        assert_eq!(self.volume.read(ino, 512 << 10, &mut word).unwrap(), 4);
        assert_eq!(&word, b"data");
        let ((), more) = failing(nth, self.failures, || self.volume.release(ino, 1));
        if !self.gone(name) {
            unlink().expect("memory is back");
        }
        failed || more
    }

    fn remove_tree(&self, nth: i64, name: &[u8]) -> bool {
        let dir = self.volume.mkdir(&self.who, Ino::ROOT, name, 0o755).unwrap().ino;
        let inner = self.volume.mkdir(&self.who, dir, b"inner", 0o755).unwrap().ino;
        for child in [b"a", b"b", b"c", b"d", b"e"] {
            self.volume.create(&self.who, inner, child, 0o644).unwrap();
        }
        self.scattered(inner, b"large");
        let remove = || self.volume.remove_tree(&self.who, Ino::ROOT, name, TreeCheck::Tree);
        let (result, failed) = failing(nth, self.failures, remove);
        let whole = || self.volume.lookup(&self.who, inner, b"large").is_ok();
        assert!(self.gone(name) || enomem(&result) && whole(), "{nth}: {result:?}");
        if !self.gone(name) {
            remove().expect("memory is back");
        }
        failed
    }
}

fn enomem<T>(result: &Result<T>) -> bool {
    matches!(result, Err(Error::Code(Code::NoMemory)))
}

/// What such a call leaves is done later, and nothing makes the volume read-only.
#[test]
fn calls_of_many_steps_without_memory_do_everything_or_nothing() {
    let _alone = ALONE.lock();
    memory::enable();
    let device = Arc::new(MemDevice::new(256 << 20));
    mkfs_on(device.clone(), &MkfsOptions::default()).unwrap();
    let options = OpenOptions { background: false, step_records: 2, ..OpenOptions::default() };
    let volume = Volume::open_on(device.clone(), &options).unwrap();
    let mut steps = Steps { volume, who: Caller::root(), failures: 1 };
    for failures in [1, 1000] {
        steps.failures = failures;
        for call in [Steps::cut, Steps::unlink_held, Steps::remove_tree] {
            let mut nth = 0;
            let name = |nth| format!("{failures}-{nth}").into_bytes();
            while call(&steps, nth, &name(nth)) {
                nth += 1;
                // None falls due inside a call: a checkpoint may use the reserve, and the device in
                // memory takes 256 KiB for each piece that is written for the first time.
                steps.volume.checkpoint().unwrap();
            }
            assert!((10..10_000).contains(&nth), "{nth} allocations");
            for i in 0..=nth {
                let left = steps.volume.unlink(&steps.who, Ino::ROOT, &name(i));
                assert!(left.is_ok() || steps.gone(&name(i)));
            }
        }
    }
    let volume = steps.volume;
    assert_eq!(volume.read_only_reason(), None);
    while volume.reap_some().unwrap() {}
    assert_eq!(volume.info().orphans, 0, "{:?}", volume.orphans());
    assert_clean(&volume);
    volume.close().unwrap();
    let volume = Volume::open_on(device, &options).unwrap();
    assert_clean(&volume);
}
