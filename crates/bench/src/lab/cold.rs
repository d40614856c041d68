//! `cold`: work on a volume whose device takes its time, in the memory of this process: walks,
//! listings, a recovery; and creates beside another thread's slow write or cold removal.

use shoal::raw::{
    Attr, Caller, Device, DirEntry, Ino, MemDevice, MkfsOptions, OpenOptions, Result, SetAttr,
    TreeCheck, Volume, mkfs_on,
};
use shoal::{Credentials, Volume as Library};
use std::io::{IoSlice, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Writes of at least this many bytes are slow.
const LARGE: usize = 100_000;
/// Directories and files of each, as in a large tree of maildirs; and of larger directories.
const MAILDIRS: (usize, usize) = (3221, 169);
const LARGE_DIRS: (usize, usize) = (40, 10_000);
/// Longest listing: one read at a time would take minutes.
const LISTING_MAX: Duration = Duration::from_secs(20);
const ROUNDS: usize = 5;

/// A device with slow reads and large writes, any number of them at a time. It counts the reads.
struct Slow {
    memory: MemDevice,
    read_us: AtomicU64,
    write_us: AtomicU64,
    reads: AtomicU64,
}

impl Slow {
    /// Makes an empty volume on a device that is fast at first.
    fn with_volume(bytes: u64) -> Result<Arc<Slow>> {
        let [read_us, write_us, reads] = [(); 3].map(|()| AtomicU64::new(0));
        let slow = Arc::new(Slow { memory: MemDevice::new(bytes), read_us, write_us, reads });
        mkfs_on(slow.clone(), &MkfsOptions::default())?;
        Ok(slow)
    }

    fn open(self: &Arc<Slow>, options: &OpenOptions) -> Result<Volume> {
        let volume = Volume::open_on(self.clone(), options)?;
        self.reads.store(0, Ordering::SeqCst);
        Ok(volume)
    }
}

fn wait(micros: &AtomicU64) {
    match micros.load(Ordering::Relaxed) {
        0 => {}
        micros => sleep(Duration::from_micros(micros)),
    }
}

impl Device for Slow {
    fn capacity(&self) -> u64 {
        self.memory.capacity()
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        wait(&self.read_us);
        self.memory.read_at(buf, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.memory.write_at(buf, offset)
    }
    fn write_vectored_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> Result<()> {
        if bufs.iter().map(|buf| buf.len()).sum::<usize>() >= LARGE {
            wait(&self.write_us);
        }
        self.memory.write_vectored_at(bufs, offset)
    }
    fn flush(&self) -> Result<()> {
        self.memory.flush()
    }
    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.memory.discard(offset, len)
    }
    fn describe(&self) -> String {
        "a slow device".into()
    }
}

/// Runs all of them, one after another.
pub(crate) fn run(out: &mut dyn Write) -> Result<()> {
    walks(out)?;
    listings(out)?;
    recoveries(out)?;
    beside_a_write(out)?;
    beside_a_removal(out)
}

fn say(out: &mut dyn Write, line: String) {
    // A reader that has gone ends no measurement.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

fn options(cache_bytes: u64) -> OpenOptions {
    OpenOptions { cache_bytes, ..OpenOptions::default() }
}

/// Makes directories with files: one after another, or all of them in turn, so that the inodes of a
/// directory are far from each other.
fn tree(volume: &Volume, (dirs, files): (usize, usize), in_turn: bool) -> Result<Vec<Ino>> {
    let (names, who) = (volume.namespace(), Caller::root());
    let dir = |n: usize| Ok(names.mkdir(&who, Ino::ROOT, format!("d{n}").as_bytes(), 0o755)?.ino);
    let made: Vec<Ino> = (0..dirs).map(dir).collect::<Result<_>>()?;
    for n in 0..dirs * files {
        let (dir, file) = if in_turn { (n % dirs, n / dirs) } else { (n / files, n % files) };
        names.create(&who, made[dir], format!("{file}.host:2,S").as_bytes(), 0o644)?;
    }
    Ok(made)
}

/// The library's walk.
fn walks(out: &mut dyn Write) -> Result<()> {
    for in_turn in [false, true] {
        let slow = Slow::with_volume(1 << 30)?;
        let volume = slow.open(&options(512 << 20))?;
        tree(&volume, MAILDIRS, in_turn)?;
        volume.close()?;
        for micros in [0, 1000] {
            for threads in [Some(1), None] {
                slow.read_us.store(micros, Ordering::SeqCst);
                let volume = Library::options().cache(512 << 20).open_on(slow.clone());
                let Ok(volume) = volume else { continue };
                slow.reads.store(0, Ordering::SeqCst);
                let walk = volume.root(Credentials::root()).walk();
                let walk = match threads {
                    Some(threads) => walk.threads(threads),
                    None => walk,
                };
                let begun = Instant::now();
                let entries = walk.into_iter().filter(std::result::Result::is_ok).count();
                let (seconds, reads) =
                    (begun.elapsed().as_secs_f64(), slow.reads.load(Ordering::SeqCst));
                say(
                    out,
                    format!(
                        "walk, filled in turn {in_turn}, {micros} us a read, threads \
                         {threads:?}: {entries} entries in {seconds:.2} s, {reads} reads"
                    ),
                );
            }
        }
    }
    Ok(())
}

/// Listings with attributes.
fn listings(out: &mut dyn Write) -> Result<()> {
    for (dirs, files) in [MAILDIRS, LARGE_DIRS] {
        let slow = Slow::with_volume(2 << 30)?;
        let volume = slow.open(&options(512 << 20))?;
        let made = tree(&volume, (dirs, files), true)?;
        volume.close()?;
        for micros in [0, 1000] {
            slow.read_us.store(micros, Ordering::SeqCst);
            let volume = slow.open(&options(512 << 20))?;
            let (begun, mut entries) = (Instant::now(), 0u64);
            for dir in made.iter().take_while(|_| begun.elapsed() < LISTING_MAX) {
                let mut each = |_: DirEntry<'_>, _: Result<&Attr>| {
                    entries += 1;
                    begun.elapsed() < LISTING_MAX
                };
                volume.directories().readdirplus(*dir, 2, &mut each)?;
            }
            let seconds = begun.elapsed().as_secs_f64();
            let (rate, reads) = (entries as f64 / seconds, slow.reads.load(Ordering::SeqCst));
            say(
                out,
                format!(
                    "list, {dirs} directories of {files}, {micros} us a read: {entries} entries \
                     in {seconds:.2} s, {rate:.0} a second, {reads} reads"
                ),
            );
        }
    }
    Ok(())
}

/// A recovery of one change in each of many blocks.
fn recoveries(out: &mut dyn Write) -> Result<()> {
    const BLOCKS: usize = 5000;
    let options = OpenOptions { checkpoint_bytes: 4 << 30, ..options(512 << 20) };
    for synced in [false, true] {
        let slow = Slow::with_volume(1 << 30)?;
        let volume = slow.open(&options)?;
        let (who, names) = (Caller::root(), volume.namespace());
        let dir = names.mkdir(&who, Ino::ROOT, b"d", 0o755)?.ino;
        let create = |n| Ok(names.create(&who, dir, format!("{n}").as_bytes(), 0o644)?.ino);
        let inodes: Vec<Ino> = (0..BLOCKS * 32).map(create).collect::<Result<_>>()?;
        volume.maintenance().checkpoint()?;
        for n in 0..BLOCKS {
            let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
            volume.attributes().setattr(&who, inodes[n * 7919 % BLOCKS * 32 + 5], &set)?;
            if synced {
                volume.sync()?;
            }
        }
        volume.sync()?;
        drop(volume);
        for micros in [0, 200] {
            slow.read_us.store(micros, Ordering::SeqCst);
            let begun = Instant::now();
            let volume = slow.open(&OpenOptions { read_only: true, ..options.clone() })?;
            let (seconds, records) =
                (begun.elapsed().as_secs_f64(), volume.info().recovery.records);
            say(
                out,
                format!(
                    "recovery, synced one by one {synced}, {micros} us a read: {records} records \
                     in {seconds:.3} s"
                ),
            );
        }
    }
    Ok(())
}

/// Runs `call`, and meanwhile creates files in a warm directory; prints their times.
fn beside(
    out: &mut dyn Write,
    what: &str,
    volume: &Volume,
    warm: Ino,
    call: impl FnOnce() -> Result<()> + Send,
) -> Result<u64> {
    let (ended, who) = (AtomicBool::new(false), Caller::root());
    let (mut times, mut took, mut done) = (Vec::new(), Duration::ZERO, Ok(()));
    std::thread::scope(|scope| -> Result<()> {
        scope.spawn(|| {
            let begun = Instant::now();
            done = call();
            took = begun.elapsed();
            ended.store(true, Ordering::Release);
        });
        while !ended.load(Ordering::Acquire) {
            let (begun, name) = (Instant::now(), format!("new-{}", times.len()));
            volume.namespace().create(&who, warm, name.as_bytes(), 0o644)?;
            times.push(begun.elapsed());
            sleep(Duration::from_micros(100));
        }
        Ok(())
    })?;
    done?;
    times.sort_unstable();
    let count = times.len();
    if let Some(last) = times.last() {
        let median = times[count / 2];
        say(
            out,
            format!("{what}: {took:.1?}; {count} creates, median {median:.1?}, longest {last:.1?}"),
        );
    }
    Ok(count as u64)
}

fn beside_a_write(out: &mut dyn Write) -> Result<()> {
    let slow = Slow::with_volume(256 << 20)?;
    let volume = slow.open(&OpenOptions::default())?;
    let (who, names) = (Caller::root(), volume.namespace());
    let file = names.create(&who, Ino::ROOT, b"slow", 0o644)?.ino;
    let warm = names.mkdir(&who, Ino::ROOT, b"warm", 0o755)?.ino;
    slow.write_us.store(400_000, Ordering::SeqCst);
    for _ in 0..ROUNDS {
        let count = beside(out, "beside a write at 400 ms", &volume, warm, || {
            volume.files().write(file, 0, &vec![9; 128 << 10], false).map(drop)
        })?;
        for n in 0..count {
            names.unlink(&who, warm, format!("new-{n}").as_bytes())?;
        }
    }
    Ok(())
}

fn beside_a_removal(out: &mut dyn Write) -> Result<()> {
    let who = Caller::root();
    for _ in 0..ROUNDS {
        let slow = Slow::with_volume(256 << 20)?;
        let volume = slow.open(&OpenOptions::default())?;
        let cold = volume.namespace().mkdir(&who, Ino::ROOT, b"cold", 0o755)?.ino;
        for n in 0..2048 {
            volume.namespace().create(&who, cold, n.to_string().as_bytes(), 0o644)?;
        }
        let warm = volume.namespace().mkdir(&who, Ino::ROOT, b"warm", 0o755)?.ino;
        volume.close()?;
        let volume = slow.open(&OpenOptions::default())?;
        volume.namespace().create(&who, warm, b"first", 0o644)?;
        slow.read_us.store(1000, Ordering::SeqCst);
        beside(out, "beside a cold removal at 1 ms a read", &volume, warm, || {
            volume.namespace().remove_tree(&who, Ino::ROOT, b"cold", TreeCheck::Tree)?;
            while volume.maintenance().reap_some()? {}
            Ok(())
        })?;
    }
    Ok(())
}
