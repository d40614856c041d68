//! A failed check of our own code, which is a panic, at any point: the caller gets an error, no
//! call waits forever, and no incomplete change reaches the device. Afterwards the volume either
//! works, or is read-only and reports why. Acknowledged changes are there when it is opened again.
//!
//! The panics come from the device: in calls, with and without locks held, in checkpoints, in the
//! cleaner, in the journal's thread.

use shoal_engine::*;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::mpsc;
use std::time::Duration;

const PANIC: &str = "planted: a check fails";

/// A device that panics once, at a chosen operation.
struct Panicking {
    device: MemDevice,
    /// Operations until the panic; negative for never.
    left: AtomicI64,
}

impl Panicking {
    fn turn(&self) {
        if self.left.fetch_sub(1, Ordering::SeqCst) == 0 {
            panic!("{PANIC}");
        }
    }
    fn disarm(&self) -> bool {
        self.left.swap(-1, Ordering::SeqCst) < 0
    }
}

impl Device for Panicking {
    fn capacity(&self) -> u64 {
        self.device.capacity()
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.turn();
        self.device.read_at(buf, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.turn();
        self.device.write_at(buf, offset)
    }
    fn flush(&self) -> Result<()> {
        self.turn();
        self.device.flush()
    }
    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.device.discard(offset, len)
    }
    fn describe(&self) -> String {
        "a device behind which a check fails".into()
    }
}

fn options() -> OpenOptions {
    // Little memory, so that calls must read, also with locks held. A checkpoint every few calls.
    OpenOptions {
        cache_bytes: 1 << 20,
        checkpoint_bytes: 1 << 16,
        commit_interval_ms: 2,
        ..OpenOptions::default()
    }
}

/// Results of one run: names acknowledged by fsync, and the number of calls that ended by a panic.
#[derive(Default)]
struct Run {
    durable: BTreeSet<String>,
    gone: BTreeSet<String>,
    panics: usize,
    refused: usize,
}

impl Run {
    fn call<T>(&mut self, call: impl FnOnce() -> Result<T>) -> Option<T> {
        match catch_unwind(AssertUnwindSafe(call)) {
            Ok(Ok(value)) => Some(value),
            Ok(Err(_)) => {
                self.refused += 1;
                None
            }
            Err(payload) => {
                let text = payload.downcast_ref::<String>().map_or("", |text| text.as_str());
                assert_eq!(text, PANIC, "another panic came of it");
                self.panics += 1;
                None
            }
        }
    }

    fn work(&mut self, volume: &Volume) {
        let who = Caller::root();
        let dir = self.call(|| volume.namespace().mkdir(&who, Ino::ROOT, b"d", 0o755));
        let dir = dir.map_or(Ino::ROOT, |dir| dir.ino);
        for n in 0..120u32 {
            let name = format!("f{n}");
            let made = self.call(|| volume.namespace().create(&who, dir, name.as_bytes(), 0o644));
            let Some(made) = made else { continue };
            self.call(|| {
                volume.files().write(made.ino, 0, &vec![7; 900 * (n as usize % 40)], false)
            });
            if n % 3 == 0 {
                let old = format!("f{}", n / 2);
                // If it failed, the outcome is unknown.
                self.durable.remove(&old);
                if self.call(|| volume.namespace().unlink(&who, dir, old.as_bytes())).is_some() {
                    self.gone.insert(old);
                }
            }
            if n % 5 == 0 && self.call(|| volume.files().fsync(made.ino, false)).is_some() {
                self.durable.insert(name);
            }
            if n % 40 == 39 {
                self.call(|| volume.maintenance().checkpoint());
                self.call(|| volume.check(&mut |_, _| {}));
            }
        }
    }
}

/// Runs with a panic at device operation `nth` after opening. Returns whether it happened.
fn run(nth: i64) -> bool {
    let device = Arc::new(Panicking { device: MemDevice::new(16 << 20), left: AtomicI64::new(-1) });
    mkfs_on(device.clone(), &MkfsOptions::default()).unwrap();
    let volume = Volume::open_on(device.clone(), &options()).unwrap();
    device.left.store(nth, Ordering::SeqCst);
    let mut run = Run::default();
    run.work(&volume);
    if let Some(reason) = volume.read_only_reason() {
        let refused = volume.namespace().create(&Caller::root(), Ino::ROOT, b"late", 0o644);
        assert!(refused.is_err(), "{nth}: read-only, and took a change ({reason})");
        assert!(volume.attributes().getattr(Ino::ROOT).is_ok(), "{nth}: reading goes on");
    }
    let came = device.disarm();
    let (panicked, refused) = (run.panics, run.refused);
    assert!(came || (panicked, refused) == (0, 0), "{nth}: {panicked} panics, {refused} refused");
    let _ = catch_unwind(AssertUnwindSafe(|| volume.close()));

    let volume = Volume::open_on(device, &options()).unwrap();
    let report = volume.check(&mut |_, _| {}).unwrap();
    assert!(report.problems.is_empty(), "{nth}: {:?}", report.problems);
    let who = Caller::root();
    let there = |name: &str| {
        volume.namespace().resolve(&who, Ino::ROOT, format!("d/{name}").as_bytes(), true).is_ok()
    };
    for name in run.durable.difference(&run.gone) {
        let here =
            there(name) || volume.namespace().lookup(&who, Ino::ROOT, name.as_bytes()).is_ok();
        assert!(here, "{nth}: {name} was acknowledged and is gone");
    }
    volume.close().unwrap();
    came
}

#[test]
fn a_check_that_fails_anywhere_loses_nothing_and_leaves_nobody_waiting() {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if info.payload().downcast_ref::<String>().is_none_or(|text| text != PANIC) {
            hook(info);
        }
    }));
    let mut came = 0;
    for nth in (0..40).chain((40..400).step_by(7)) {
        let (done, wait) = mpsc::channel();
        let runs = std::thread::spawn(move || done.send(run(nth)).is_ok());
        match wait.recv_timeout(Duration::from_secs(120)) {
            Ok(its_turn_came) => came += usize::from(its_turn_came),
            Err(mpsc::RecvTimeoutError::Timeout) => panic!("{nth}: somebody waits for ever"),
            Err(mpsc::RecvTimeoutError::Disconnected) => assert!(runs.join().unwrap()),
        }
    }
    assert!(came > 40, "only {came} panics");
}
