//! A cache of bounded size: the least recently used entries are evicted, and each change is one
//! transaction.
//!
//! ```sh
//! cargo run -p shoal --example cache [[--connect] VOLUME [DIRECTORY]]
//! ```
//!
//! A new entry and the eviction of those that make room for it are one batch. So neither a reader
//! nor a crash ever finds more than the bound, or half of an entry. Entries that are never synced
//! may be lost in a crash, the last ones first, which is right for a cache: it pays for no flush.
//!
//! Several processes share a cache, too: the first one serves the volume
//! ([`shoal::Volume::serve`]), and the others connect to it. Each has a part of the bound for what
//! it puts, and reads what any of them has put.

mod common;

use shoal::{Dir, Result};
use std::collections::{BTreeMap, HashMap};
use std::io::ErrorKind;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Bytes of a cache.
const BYTES_MAX: u64 = 10_000;
/// Processes that share one.
const PROCESSES: usize = 4;
/// File of the keys in the order of their last use, written when the cache is closed.
const ORDER: &str = "order";

/// A cache. Threads may share it: readers wait for each other only for its index, and for a
/// thread that puts an entry.
struct Cache {
    entries: Dir,
    dir: Dir,
    bytes_max: u64,
    index: Mutex<Index>,
}

/// The names of the entries' files, and the order in which they were used.
#[derive(Default)]
struct Index {
    /// Size in bytes and last use, by name.
    known: HashMap<String, (u64, u64)>,
    /// Names by last use, the oldest first.
    by_use: BTreeMap<u64, String>,
    bytes: u64,
    clock: u64,
}

impl Index {
    /// Notes a use of an entry, with its size.
    fn touch(&mut self, name: &str, size: u64) {
        self.forget(name);
        self.clock += 1;
        self.known.insert(name.to_owned(), (size, self.clock));
        self.by_use.insert(self.clock, name.to_owned());
        self.bytes += size;
    }

    fn forget(&mut self, name: &str) {
        if let Some((size, used)) = self.known.remove(name) {
            self.by_use.remove(&used);
            self.bytes -= size;
        }
    }
}

impl Cache {
    /// Opens the cache in a directory. Entries that were put after the last [`Cache::close`] count
    /// as used after the others, in the order in which they were put.
    fn open(dir: Dir, bytes_max: u64) -> Result<Cache> {
        let entries = dir.create_dir_all("entries")?;
        let mut found = HashMap::new();
        for entry in entries.entries()? {
            let entry = entry?;
            let metadata = entry.metadata()?;
            let name = String::from_utf8_lossy(entry.name()).into_owned();
            found.insert(name, (metadata.modified(), metadata.len()));
        }
        let order = match dir.read(ORDER) {
            Ok(order) => String::from_utf8_lossy(&order).into_owned(),
            Err(e) if e.kind() == ErrorKind::NotFound => String::new(),
            Err(e) => return Err(e),
        };
        let mut index = Index::default();
        for name in order.lines() {
            if let Some((_, size)) = found.remove(name) {
                index.touch(name, size);
            }
        }
        let mut newer: Vec<_> =
            found.into_iter().map(|(name, (at, size))| (at, name, size)).collect();
        newer.sort();
        newer.iter().for_each(|(_, name, size)| index.touch(name, *size));
        Ok(Cache { entries, dir, bytes_max, index: Mutex::new(index) })
    }

    fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the value of a key; `None` if it is not cached.
    fn get(&self, key: &str) -> Result<Option<Vec<u8>>> {
        let name = file_name(key);
        let value = match self.entries.read(&name) {
            Ok(value) => value,
            // Never put, or evicted.
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(e),
        };
        let mut index = self.index();
        // Not if it has been evicted since.
        if let Some((size, _)) = index.known.get(&name).copied() {
            index.touch(&name, size);
        }
        Ok(Some(value))
    }

    /// Puts a value in place of an older one, and evicts the entries that leave too little room for
    /// it. A value that alone is larger than the bound is not cached.
    fn put(&self, key: &str, value: &[u8]) -> Result<()> {
        let (name, size) = (file_name(key), value.len() as u64);
        if size > self.bytes_max {
            return Ok(());
        }
        let mut index = self.index();
        let replaced = index.known.get(&name).map_or(0, |(size, _)| *size);
        let mut excess = (index.bytes - replaced + size).saturating_sub(self.bytes_max);
        let mut evicted = Vec::new();
        for other in index.by_use.values().filter(|other| **other != name) {
            if excess == 0 {
                break;
            }
            excess = excess.saturating_sub(index.known[other].0);
            evicted.push(other.clone());
        }
        // Readers of the old value, or of an evicted one, keep what they have open.
        self.entries.batch(|batch| {
            evicted.iter().try_for_each(|other| batch.remove(other))?;
            batch.write(&name, value)
        })?;
        evicted.iter().for_each(|other| index.forget(other));
        index.touch(&name, size);
        Ok(())
    }

    /// Writes the order of use, for the next [`Cache::open`].
    fn close(self) -> Result<()> {
        let index = self.index();
        let order: String = index.by_use.values().map(|name| format!("{name}\n")).collect();
        self.dir.batch(|batch| batch.write(ORDER, order.into_bytes()))
    }
}

/// A cache that several processes use at the same time. They must put the same value for the same
/// key, as what is fetched from one address.
struct Shared {
    own: Cache,
    others: Vec<Dir>,
}

impl Shared {
    /// Opens part `number` of a cache in `parts` parts, each of which has one process.
    fn open(dir: &Dir, parts: usize, number: usize, bytes_max: u64) -> Result<Shared> {
        let part = |number: usize| dir.create_dir_all(format!("part-{number}"));
        let others = (0..parts).filter(|other| *other != number);
        let others = others.map(|other| part(other)?.create_dir_all("entries"));
        let own = Cache::open(part(number)?, bytes_max / parts as u64)?;
        Ok(Shared { own, others: others.collect::<Result<_>>()? })
    }

    /// Returns the value of a key, whoever has put it.
    fn get(&self, key: &str) -> Result<Option<Vec<u8>>> {
        if let Some(value) = self.own.get(key)? {
            return Ok(Some(value));
        }
        for entries in &self.others {
            match entries.read(file_name(key)) {
                Ok(value) => return Ok(Some(value)),
                Err(e) if e.kind() == ErrorKind::NotFound => {}
                Err(e) => return Err(e),
            }
        }
        Ok(None)
    }
}

/// The work of each process: it uses what the others have put, and puts what is missing.
fn use_shared(dir: &Dir, number: usize) -> Result<()> {
    let cache = Shared::open(dir, PROCESSES, number, BYTES_MAX)?;
    for n in 0..400 {
        // Each begins somewhere else.
        let n = (n + 5 * number) % 20;
        let key = format!("https://example.invalid/{n}");
        match cache.get(&key)? {
            Some(value) => assert_eq!(value, [n as u8; 300], "whole"),
            None => cache.own.put(&key, &[n as u8; 300])?,
        }
        assert!(bytes_of(&cache.own)? <= BYTES_MAX / PROCESSES as u64);
    }
    cache.own.close()
}

/// The file name of a key: a name is at most 255 bytes, without slashes. The key itself would do if
/// it were always one.
fn file_name(key: &str) -> String {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_".contains(byte);
    if key.len() <= 100 && !key.is_empty() && key.as_bytes().iter().all(is_plain) {
        return key.to_owned();
    }
    // Hexadecimal is longer but never the same for two keys; "=" is in no plain name.
    let hex: String = key.bytes().map(|byte| format!("{byte:02x}")).collect();
    format!("={hex}")
}

/// Bytes of the entries on the volume, which the bound is for. Only while no thread puts an entry:
/// one that is listed and then evicted has no metadata.
fn bytes_of(cache: &Cache) -> Result<u64> {
    let len = |entry: Result<shoal::Entry>| Ok(entry?.metadata()?.len());
    cache.entries.entries()?.map(len).sum()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let place = common::Place::from_arguments("cache");
    let volume = place.open()?;
    let dir = place.directory(&volume, 0, "cache")?;
    if let Some(number) = common::Place::process() {
        return Ok(use_shared(&dir.create_dir_all("shared")?, number)?);
    }

    // Ten entries of 1,000 bytes fit. "a" is used all the time, the others once.
    let bytes_max = BYTES_MAX;
    let cache = Cache::open(dir.clone(), bytes_max)?;
    cache.put("a", &[b'a'; 1000])?;
    for n in 0..500 {
        cache.put(&format!("https://example.invalid/{n}"), &[n as u8; 1000])?;
        assert!(cache.get("a")?.is_some(), "what is used stays");
        assert!(bytes_of(&cache)? <= bytes_max);
    }
    assert_eq!(cache.get("https://example.invalid/490")?, None, "evicted");
    assert_eq!(cache.get("https://example.invalid/491")?, Some(vec![491_u16 as u8; 1000]));

    // A larger value in place of the old one; eight go for it.
    cache.put("a", &[b'A'; 9000])?;
    assert_eq!(cache.get("a")?, Some(vec![b'A'; 9000]));
    assert_eq!(bytes_of(&cache)?, bytes_max);
    assert!(cache.get("https://example.invalid/491")?.is_some(), "it was used after the others");
    cache.put("too large", &vec![0; 10_001])?;
    assert_eq!(cache.get("too large")?, None);

    // Threads share it; each gets its own value, or none if it has been evicted.
    let thread = |thread: u8| -> Result<()> {
        for n in 0..100 {
            let key = format!("thread {thread}, {}", n % 10);
            cache.put(&key, &[thread; 700])?;
            assert!(cache.get(&key)?.is_none_or(|value| value == [thread; 700]));
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads = [1, 2, 3, 4].map(|number| scope.spawn(move || thread(number)));
        threads.into_iter().try_for_each(|thread| thread.join().expect("it does not panic"))
    })?;
    assert!(bytes_of(&cache)? <= bytes_max);

    // The order of use survives a restart: of these two, "a" was used first.
    cache.put("a", &[b'A'; 9000])?;
    cache.put("https://example.invalid/491", &[235; 1000])?;
    cache.close()?;
    let cache = Cache::open(dir, bytes_max)?;
    assert_eq!(cache.index().known.len(), 2);
    cache.put("b", b"small")?;
    assert_eq!(cache.get("a")?, None);
    assert!(cache.get("https://example.invalid/491")?.is_some());

    // Processes share another one.
    place.run_processes(&volume, PROCESSES)?;
    println!("{} bytes of at most {bytes_max} in the cache", bytes_of(&cache)?);
    Ok(())
}
