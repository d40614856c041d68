//! Allocation failure at every allocation of a call in turn: the call fails with `ENOMEM` without a
//! change, or succeeds. The volume must stay usable and consistent.
//! A program of its own: it has an allocator of its own.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use shoal_engine::memory::{self, WithReserve};
use shoal_engine::*;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;

thread_local! {
    /// Allocations of this thread until one fails; negative if none does.
    static COUNTDOWN: Cell<i64> = const { Cell::new(-1) };
    /// Number of allocations that fail from there on.
    static FAILURES: Cell<i64> = const { Cell::new(0) };
}

/// The reserve is per process: allocations of one test would be missing in another.
static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

/// Allocator that fails at chosen allocations.
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

/// Runs `call`; its allocation number `nth` and the following, `failures` in all, fail. Returns its
/// result and whether any allocation failed.
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

/// Calls `call(i)` for new `i` until every allocation of the call has failed once. `done(i)`
/// returns whether its effect is visible. Returns how many calls failed with `ENOMEM`, and how many
/// succeeded despite a failure.
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
    let dir = volume.namespace().mkdir(&who, Ino::ROOT, b"d", 0o755).unwrap().ino;
    let name = |i: usize| format!("{i:040}").into_bytes();
    let call = |i| volume.namespace().create(&who, dir, &name(i), 0o644).map(|_| ());
    let done = |i| volume.namespace().lookup(&who, dir, &name(i)).is_ok();
    let (mut next, mut refused, mut served) = (0, 0, 0);
    // Enough rounds for new inode blocks, splits of leaves, and growth of inner nodes.
    for round in 0..1500 {
        let failures = if round % 2 == 0 { 1 } else { 1000 };
        let counts = every_allocation(failures, &mut next, &call, &done);
        (refused, served) = (refused + counts.0, served + counts.1);
    }
    assert!(refused > 100, "only {refused} calls met failures before their first change");
    assert!(served > 10, "only {served} calls met failures after it");
    assert_clean(&volume);
    volume.maintenance().checkpoint().unwrap();
    assert_clean(&volume);
}

#[test]
fn other_calls_without_memory_change_nothing_or_succeed() {
    let _alone = ALONE.lock();
    let (device, volume) = fresh();
    let who = Caller::root();
    let dir = volume.namespace().mkdir(&who, Ino::ROOT, b"d", 0o755).unwrap().ino;
    let name = |prefix: &str, i: usize| format!("{prefix}{i:040}").into_bytes();
    let there = |name: &[u8]| volume.namespace().lookup(&who, dir, name).is_ok();
    let mut next = 0;
    for _ in 0..40 {
        let mkdir = |i| volume.namespace().mkdir(&who, dir, &name("d", i), 0o755).map(|_| ());
        every_allocation(1, &mut next, &mkdir, &|i| there(&name("d", i)));
        let link = |i: usize| {
            volume.namespace().create(&who, dir, &name("l", i), 0o644)?;
            volume.namespace().link(
                &who,
                volume.namespace().lookup(&who, dir, &name("l", i))?.ino,
                dir,
                &name("m", i),
            )?;
            Ok(())
        };
        every_allocation(1, &mut next, &link, &|i| there(&name("m", i)));
        let moved = |i: usize| {
            let plain = RenameFlags::default();
            volume.namespace().create(&who, dir, &name("a", i), 0o644)?;
            volume.namespace().rename(&who, dir, &name("a", i), dir, &name("b", i), plain)
        };
        every_allocation(1, &mut next, &moved, &|i| there(&name("b", i)));
        let gone = |i: usize| {
            volume.namespace().create(&who, dir, &name("x", i), 0o644)?;
            volume.namespace().unlink(&who, dir, &name("x", i))?;
            volume.namespace().symlink(&who, dir, &name("y", i), &[b'y'; 300]).map(|_| ())
        };
        every_allocation(1, &mut next, &gone, &|i| there(&name("y", i)));
    }
    assert_clean(&volume);
    volume.close().unwrap();
    let volume = Volume::open_on(device, &OpenOptions::default()).unwrap();
    assert_clean(&volume);
}

/// Calls of several transactions in which allocation `nth` and some after it fail. Each must do
/// everything visible, or nothing. They return whether any allocation failed.
struct Steps {
    volume: Volume,
    who: Caller,
    failures: i64,
}

impl Steps {
    /// Creates a file with as many records as writes.
    fn scattered(&self, dir: Ino, name: &[u8]) -> Ino {
        let ino = self.volume.namespace().create(&self.who, dir, name, 0o644).unwrap().ino;
        for i in 0..24 {
            assert_eq!(self.volume.files().write(ino, i * (256 << 10), b"data", false).unwrap(), 4);
        }
        ino
    }

    fn gone(&self, name: &[u8]) -> bool {
        self.volume.namespace().lookup(&self.who, Ino::ROOT, name).is_err()
    }

    fn cut(&self, nth: i64, name: &[u8]) -> bool {
        let ino = self.scattered(Ino::ROOT, name);
        let size = || self.volume.attributes().getattr(ino).unwrap().size;
        let (whole, to) = (size(), SetAttr { size: Some(5), ..SetAttr::default() });
        let cut = || self.volume.attributes().setattr(&self.who, ino, &to);
        let (result, failed) = failing(nth, self.failures, cut);
        let now = size();
        assert!(now == 5 || now == whole && enomem(&result), "{nth}: {result:?}, {now}");
        cut().expect("memory is back");
        assert_eq!(size(), 5);
        failed
    }

    fn unlink_held(&self, nth: i64, name: &[u8]) -> bool {
        let ino = self.scattered(Ino::ROOT, name);
        self.volume.references().hold(ino, 1).unwrap();
        let unlink = || self.volume.namespace().unlink(&self.who, Ino::ROOT, name);
        let (result, failed) = failing(nth, self.failures, unlink);
        assert!(self.gone(name) || enomem(&result), "{nth}: {result:?}");
        let mut word = [0; 4];
        assert_eq!(self.volume.files().read(ino, 512 << 10, &mut word).unwrap(), 4);
        assert_eq!(&word, b"data");
        let ((), more) = failing(nth, self.failures, || self.volume.references().release(ino, 1));
        if !self.gone(name) {
            unlink().expect("memory is back");
        }
        failed || more
    }

    fn remove_tree(&self, nth: i64, name: &[u8]) -> bool {
        let dir = self.volume.namespace().mkdir(&self.who, Ino::ROOT, name, 0o755).unwrap().ino;
        let inner = self.volume.namespace().mkdir(&self.who, dir, b"inner", 0o755).unwrap().ino;
        for child in [b"a", b"b", b"c", b"d", b"e"] {
            self.volume.namespace().create(&self.who, inner, child, 0o644).unwrap();
        }
        self.scattered(inner, b"large");
        let remove =
            || self.volume.namespace().remove_tree(&self.who, Ino::ROOT, name, TreeCheck::Tree);
        let (result, failed) = failing(nth, self.failures, remove);
        let whole = || self.volume.namespace().lookup(&self.who, inner, b"large").is_ok();
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

/// The rest of such a call is done later, and the volume never becomes read-only.
#[test]
fn calls_of_many_steps_without_memory_do_everything_or_nothing() {
    let _alone = ALONE.lock();
    memory::enable();
    let device = Arc::new(MemDevice::new(256 << 20));
    mkfs_on(device.clone(), &MkfsOptions::default()).unwrap();
    let options = OpenOptions {
        background: false,
        lab: Lab { step_records: 2, ..Lab::default() },
        ..OpenOptions::default()
    };
    let volume = Volume::open_on(device.clone(), &options).unwrap();
    let mut steps = Steps { volume, who: Caller::root(), failures: 1 };
    for failures in [1, 1000] {
        steps.failures = failures;
        for call in [Steps::cut, Steps::unlink_held, Steps::remove_tree] {
            let mut nth = 0;
            let name = |nth| format!("{failures}-{nth}").into_bytes();
            while call(&steps, nth, &name(nth)) {
                nth += 1;
                // So that no checkpoint is due during a call: it may use the reserve, and the
                // device in memory allocates 256 KiB for each piece that is written for the first
                // time.
                steps.volume.maintenance().checkpoint().unwrap();
            }
            assert!((10..10_000).contains(&nth), "{nth} allocations");
            for i in 0..=nth {
                let left = steps.volume.namespace().unlink(&steps.who, Ino::ROOT, &name(i));
                assert!(left.is_ok() || steps.gone(&name(i)));
            }
        }
    }
    let volume = steps.volume;
    assert_eq!(volume.read_only_reason(), None);
    while volume.maintenance().reap_some().unwrap() {}
    assert_eq!(volume.info().orphans, 0, "{:?}", volume.references().orphan_list());
    assert_clean(&volume);
    volume.close().unwrap();
    let volume = Volume::open_on(device, &options).unwrap();
    assert_clean(&volume);
}

/// A batch of several directories, long contents, a replacement and a removal: all of it or
/// nothing, whichever allocation fails, and memory is as if it had never begun.
#[test]
fn a_batch_without_memory_changes_nothing() {
    let _alone = ALONE.lock();
    let (device, volume) = fresh();
    let who = Caller::root();
    let long = vec![7; 200_000];
    // The reserve is filled by the first call that asks for it.
    volume.namespace().create(&who, Ino::ROOT, b"first", 0o644).unwrap();
    let there =
        |path: String| volume.namespace().resolve(&who, Ino::ROOT, path.as_bytes(), false).is_ok();
    let call = |i: usize| {
        let old = format!("old-{i:040}");
        if !there(old.clone()) {
            volume.namespace().create(&who, Ino::ROOT, old.as_bytes(), 0o644)?;
        }
        let (dir, moved) = (format!("dir-{i}"), format!("dir-{i}/moved"));
        let [a, b, link] = ["a", "b", "link"].map(|name| format!("dir-{i}/{name}"));
        let file = |path, contents| BatchOp::File { path, mode: 0o644, contents, replace: true };
        let flags = RenameFlags::default();
        let ops = [
            BatchOp::Dir { path: dir.as_bytes(), mode: 0o755 },
            file(a.as_bytes(), b"short"),
            file(b.as_bytes(), &long),
            BatchOp::Link { from: a.as_bytes(), to: link.as_bytes() },
            BatchOp::Rename { from: b.as_bytes(), to: moved.as_bytes(), flags },
            file(a.as_bytes(), b"replaced"),
            BatchOp::Remove { path: old.as_bytes() },
        ];
        volume.batch(&who, Ino::ROOT, &ops).map_err(|e| match e.code() {
            Code::NoMemory => Code::NoMemory.into(),
            _ => e,
        })
    };
    let done = |i: usize| {
        let parts = ["", "/a", "/moved", "/link"].map(|part| there(format!("dir-{i}{part}")));
        assert!(parts.iter().all(|part| *part == parts[0]), "batch {i}: {parts:?}");
        parts[0]
    };
    let (mut next, mut refused) = (0, 0);
    for failures in [1, 3, 1000] {
        refused += every_allocation(failures, &mut next, &call, &done).0;
        volume.maintenance().checkpoint().unwrap();
    }
    assert!(refused > 100, "only {refused} batches met failures");
    assert_eq!(volume.read_only_reason(), None);
    while volume.maintenance().reap_some().unwrap() {}
    assert_clean(&volume);
    volume.close().unwrap();
    let volume = Volume::open_on(device, &OpenOptions::default()).unwrap();
    assert_clean(&volume);
}
