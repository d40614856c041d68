//! Sessions of a volume whose device is full, hangs or fails, and of a process without memory: each
//! call ends with one clear error, nothing that was acknowledged is lost, and no session waits for
//! another's device.

use shoal::raw::{self, Device, MemDevice, MkfsOptions};
use shoal::{Credentials, Dir, FileOptions, Result, ServeOptions, Serving, Volume};
use shoal_skip::{wait_for, wait_until};
use std::io::{ErrorKind, IoSlice};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex};

/// A device in memory that hangs or fails on demand.
struct Bad {
    memory: MemDevice,
    hangs: Mutex<Hangs>,
    changed: Condvar,
    fails: AtomicBool,
    /// Calls that hang.
    hanging: AtomicUsize,
}

#[derive(Clone, Copy, Default)]
struct Hangs {
    reads: bool,
    flushes: bool,
}

impl Bad {
    fn with_volume(size: u64) -> Arc<Bad> {
        let bad = Arc::new(Bad {
            memory: MemDevice::new(size),
            hangs: Mutex::default(),
            changed: Condvar::new(),
            fails: AtomicBool::new(false),
            hanging: AtomicUsize::new(0),
        });
        raw::mkfs_on(bad.clone(), &MkfsOptions::default()).unwrap();
        bad
    }

    fn set(&self, hangs: Hangs) {
        *self.hangs.lock().unwrap() = hangs;
        self.changed.notify_all();
    }

    fn wait_while(&self, which: impl Fn(Hangs) -> bool) {
        let mut hangs = self.hangs.lock().unwrap();
        if which(*hangs) {
            self.hanging.fetch_add(1, SeqCst);
            while which(*hangs) {
                hangs = self.changed.wait(hangs).unwrap();
            }
            self.hanging.fetch_sub(1, SeqCst);
        }
    }

    fn reads_hang(&self) -> bool {
        self.hangs.lock().unwrap().reads
    }
}

impl Device for Bad {
    fn capacity(&self) -> u64 {
        self.memory.capacity()
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> raw::Result<()> {
        self.wait_while(|hangs| hangs.reads);
        self.memory.read_at(buf, offset)
    }
    fn read_now(&self, buf: &mut [u8], offset: u64) -> raw::Result<bool> {
        if self.reads_hang() { Ok(false) } else { self.memory.read_now(buf, offset) }
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> raw::Result<()> {
        self.memory.write_at(buf, offset)
    }
    fn write_now(&self, bufs: &[IoSlice<'_>], offset: u64) -> raw::Result<bool> {
        self.memory.write_now(bufs, offset)
    }
    fn flush(&self) -> raw::Result<()> {
        self.wait_while(|hangs| hangs.flushes);
        if self.fails.load(SeqCst) {
            return Err(raw::Error::Code(raw::Code::Io));
        }
        self.memory.flush()
    }
    fn discard(&self, offset: u64, len: u64) -> raw::Result<()> {
        self.memory.discard(offset, len)
    }
    fn describe(&self) -> String {
        "a device of a test".to_owned()
    }
}

/// Lets everything go, also after a failed assertion: threads may hang.
struct LetGo<'b>(&'b Bad);

impl Drop for LetGo<'_> {
    fn drop(&mut self) {
        self.0.set(Hangs::default());
    }
}

fn serve(volume: &Volume) -> Serving {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let number = NEXT.fetch_add(1, SeqCst);
    let name = format!("shoal-bad-{}-{number}.sock", std::process::id());
    volume.serve(ServeOptions::new().socket(std::env::temp_dir().join(name))).unwrap()
}

fn session(serving: &Serving) -> Dir {
    Volume::connect(serving.socket()).unwrap().root(Credentials::current())
}

/// Bytes that cannot be compressed, other ones for each number.
fn noise(number: u64, len: usize) -> Vec<u8> {
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    std::iter::repeat_with(next).take(len).collect()
}

/// Repeats a call until the volume is full.
#[track_caller]
fn until_full<T>(what: &str, mut call: impl FnMut(u64) -> Result<T>) -> u64 {
    for n in 0..1_000_000 {
        if let Err(error) = call(n) {
            assert_eq!(error.kind(), ErrorKind::StorageFull, "{what} {n}: {error}");
            return n;
        }
    }
    panic!("{what}: never full");
}

/// A kind of call, made with a number.
type Kind<'k> = (&'k str, &'k dyn Fn(u64) -> Result<()>);

#[test]
fn a_full_volume_refuses_each_kind_of_call_and_goes_on() {
    let volume = Volume::options().size(32 << 20).in_memory().unwrap();
    let serving = serve(&volume);
    let there = session(&serving);
    there.create_dir("junk").unwrap();
    let kept = there.create_dir("kept").unwrap();
    let files = until_full("put", |n| kept.write(format!("{n}"), noise(n, 100_000)));
    // What an error has left of the last one.
    let last = kept.read(format!("{files}")).unwrap_or_default();
    assert!(noise(files, 100_000).starts_with(&last), "a beginning");
    let open = FileOptions::new().read(true).write(true).create(true).open(&there, "junk/open");
    let open = open.unwrap();
    let append = FileOptions::new().append(true).create(true).open(&there, "junk/append").unwrap();
    let text = "t".repeat(3000);
    let kinds: [Kind<'_>; 9] = [
        ("write", &|n| open.write_all_at(&noise(n, 9_000), n * 9_000)),
        ("append", &|n| append.write_all_at(&noise(n, 9_000), 0)),
        ("allocate", &|n| open.allocate((1 << 30) + (n << 20), 1 << 20)),
        ("batch", &|n| there.batch(|b| b.write(format!("junk/b{n}"), noise(n, 9_000)))),
        ("put", &|n| there.write(format!("junk/p{n}"), noise(n, 9_000))),
        ("symlink", &|n| there.symlink(&text, format!("junk/s{n}"))),
        ("set_xattr", &|n| {
            there.create_new(format!("junk/x{n}"))?;
            there.set_xattr_of(format!("junk/x{n}"), "user.a", noise(n, 2_000))
        }),
        ("create_dir", &|n| there.create_dir(format!("junk/d{n}")).map(drop)),
        ("create", &|n| there.create_new(format!("junk/f{n}")).map(drop)),
    ];
    for (what, call) in kinds {
        until_full(what, call);
    }
    for n in 0..files {
        assert!(kept.read(format!("{n}")).unwrap() == noise(n, 100_000), "file {n}");
    }
    // Room is made by calls that need some themselves.
    drop((open, append));
    there.remove_dir_all("junk").unwrap();
    let (files, all) = (files - files / 4, files);
    (files..all).for_each(|n| kept.remove_file(format!("{n}")).unwrap());
    wait_until("space for a directory", || there.create_dir("junk").is_ok());
    wait_until("space for a file", || there.write("junk/again", noise(1, 100_000)).is_ok());
    there.batch(|b| b.write("junk/batch", noise(2, 9_000))).unwrap();
    there.set_xattr_of("junk/again", "user.a", noise(3, 2_000)).unwrap();
    for n in 0..files {
        assert!(kept.read(format!("{n}")).unwrap() == noise(n, 100_000), "file {n}, later");
    }
    drop((kept, there));
    drop(serving);
    assert_eq!(volume.raw().unwrap().check(&mut |_, _| ()).unwrap().problems.len(), 0);
    volume.close().unwrap();
}

#[test]
fn who_needs_no_device_does_not_wait_for_who_does() {
    let bad = Bad::with_volume(64 << 20);
    let open = || Volume::options().open_on(bad.clone()).unwrap();
    let volume = open();
    let root = volume.root(Credentials::root());
    root.write("cold", noise(7, 500_000)).unwrap();
    root.create_dir("warm").unwrap().write("file", "small").unwrap();
    drop(root);
    volume.close().unwrap();

    let volume = open();
    let serving = serve(&volume);
    let (one, other) = (session(&serving), session(&serving));
    // Its inode is in memory then, and its contents are not.
    assert_eq!(one.metadata("cold").unwrap().len(), 500_000);
    assert_eq!(other.read("warm/file").unwrap(), b"small");
    other.write("warm/first", "x").unwrap();
    std::thread::scope(|scope| {
        bad.set(Hangs { reads: true, ..Hangs::default() });
        let _let_go = LetGo(&bad);
        let readers: Vec<_> = (0..8).map(|_| scope.spawn(|| one.read("cold"))).collect();
        wait_until("a reader", || bad.hanging.load(SeqCst) > 0);
        for dir in [&other, &one] {
            for n in 0..200 {
                dir.write("warm/new", format!("{n}")).unwrap();
                dir.rename("warm/new", "warm/newer").unwrap();
                assert_eq!(dir.read_to_string("warm/newer").unwrap(), format!("{n}"));
                assert!(dir.open_dir("warm").unwrap().entries().unwrap().count() >= 3);
                dir.remove_file("warm/newer").unwrap();
            }
        }
        assert!(readers.iter().all(|reader| !reader.is_finished()), "the device hangs");
        bad.set(Hangs::default());
        for reader in readers {
            assert!(reader.join().unwrap().unwrap() == noise(7, 500_000));
        }
    });
}

/// As many calls as a session can have wait for a flush: those of another are answered meanwhile,
/// also those that the same crew of threads makes.
#[test]
fn a_session_that_floods_the_crew_holds_up_no_other() {
    let bad = Bad::with_volume(64 << 20);
    let volume = Volume::options().open_on(bad.clone()).unwrap();
    let serving = serve(&volume);
    let (flood, other) = (session(&serving), session(&serving));
    flood.create_dir("flood").unwrap();
    other.create_dir("other").unwrap().write("file", "x").unwrap();
    let ended = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        bad.set(Hangs { flushes: true, ..Hangs::default() });
        let _let_go = LetGo(&bad);
        let files: Vec<_> = (0..32)
            .map(|n| {
                let file = flood.create_new(format!("flood/{n}")).unwrap();
                file.write_all_at(&noise(n, 100), 0).unwrap();
                file
            })
            .collect();
        let ended = &ended;
        let threads: Vec<_> = files
            .into_iter()
            .map(|file| {
                scope.spawn(move || {
                    let synced = file.sync_all();
                    ended.fetch_add(1, SeqCst);
                    synced
                })
            })
            .collect();
        wait_until("a flush", || bad.hanging.load(SeqCst) > 0);
        for n in 0..300 {
            other.write("other/new", format!("{n}")).unwrap();
            other.batch(|b| b.write("other/batch", format!("{n}"))).unwrap();
            assert_eq!(other.read_to_string("other/batch").unwrap(), format!("{n}"));
            assert!(shoal::Totals::of(&other).unwrap().files() > 0);
            other.remove_file("other/new").unwrap();
        }
        assert_eq!(ended.load(SeqCst), 0, "no flush has ended");
        bad.set(Hangs::default());
        for thread in threads {
            thread.join().unwrap().unwrap();
        }
    });
    for n in 0..32 {
        assert!(flood.read(format!("flood/{n}")).unwrap() == noise(n, 100));
    }
}

#[test]
fn a_volume_that_becomes_read_only_says_so_once_for_each_call() {
    let bad = Bad::with_volume(64 << 20);
    let volume = Volume::options().open_on(bad.clone()).unwrap();
    let serving = serve(&volume);
    let connected = Volume::connect(serving.socket()).unwrap();
    let there = connected.root(Credentials::current());
    there.write("kept", "kept").unwrap();
    there.sync_all().unwrap();
    assert_eq!(connected.read_only_reason(), None);
    let file = there.create_new("late").unwrap();
    bad.fails.store(true, SeqCst);
    let error = file.sync_all().unwrap_err();
    assert!(!error.to_string().is_empty() && error.errno() != 0, "{error}");
    let reason = wait_for("a reason", || connected.read_only_reason());
    assert_eq!(Some(reason), volume.read_only_reason());
    let calls: [(&str, &dyn Fn() -> Result<()>); 6] = [
        ("write", &|| there.write("new", "x")),
        ("create_dir", &|| there.create_dir("new").map(drop)),
        ("remove", &|| there.remove_file("kept")),
        ("rename", &|| there.rename("kept", "moved")),
        ("batch", &|| there.batch(|b| b.write("new", "x"))),
        ("sync", &|| there.sync_all()),
    ];
    for (what, call) in calls {
        let error = call().expect_err(what);
        let here = error.to_string();
        assert_eq!(error.kind(), ErrorKind::ReadOnlyFilesystem, "{what}: {here}");
        assert!(here.contains("read-only"), "{what}: {here}");
    }
    assert_eq!(there.read("kept").unwrap(), b"kept");
    assert_eq!(session(&serving).read("kept").unwrap(), b"kept", "and whoever comes later");
    drop((file, there, connected));
    drop(serving);
    drop(volume);
    bad.fails.store(false, SeqCst);
    let volume = Volume::options().open_on(bad.clone()).unwrap();
    assert_eq!(volume.root(Credentials::root()).read("kept").unwrap(), b"kept");
}

/// The part of [`without_memory_there_is_a_reason_and_no_session`] that limits its process.
#[test]
#[ignore = "another test starts it"]
fn in_little_memory() {
    let volume = Volume::options().size(16 << 20).in_memory().unwrap();
    let serving = serve(&volume);
    session(&serving).write("before", "x").unwrap();
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let size = status.lines().find_map(|line| line.strip_prefix("VmSize:")).unwrap();
    let kib: u64 = size.trim().trim_end_matches(" kB").parse().unwrap();
    // Less than the memory of a session, which has 33 MiB.
    let room = Some((kib << 10) + (20 << 20));
    let limit = rustix::process::Rlimit { current: room, maximum: None };
    rustix::process::setrlimit(rustix::process::Resource::As, limit).unwrap();
    let error = Volume::connect(serving.socket()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
    assert!(error.to_string().contains("memory of a session"), "{error}");
    let limit = rustix::process::Rlimit { current: None, maximum: None };
    rustix::process::setrlimit(rustix::process::Resource::As, limit).unwrap();
    assert_eq!(session(&serving).read("before").unwrap(), b"x");
    println!("done");
}

#[test]
fn without_memory_there_is_a_reason_and_no_session() {
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "bad_device::in_little_memory", "--ignored", "--nocapture"]);
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("done"), "{text}{complaints}");
}
