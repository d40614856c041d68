//! Fills a cache with pieces as a volume in a bucket has them, opens it again, and reads them in a
//! random order: by the code of `crates/bucket/src/disk.rs`, and by foyer.
//!
//!     cargo run --release -- ours|foyer DIRECTORY [GIBIBYTES]

use bytes::Bytes;
use foyer::{
    BlockEngineConfig, DeviceBuilder, FsDeviceBuilder, HybridCache, HybridCacheBuilder,
    HybridCachePolicy, PsyncIoEngineConfig,
};
use shoal_format::bucket::Name;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

#[allow(dead_code, unreachable_pub)]
#[path = "../../../../../crates/bucket/src/disk.rs"]
mod disk;

/// Bytes of a piece, and pieces of an object.
const PIECE: usize = 100_000;
const PIECES: u64 = 80;
/// Pieces that are read, by so many tasks at once.
const READS: u64 = 20_000;

fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

fn piece(n: u64) -> Bytes {
    let mut state = (n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..PIECE / 8).flat_map(|_| random(&mut state).to_le_bytes()).collect()
}

#[derive(Clone)]
enum Cache {
    Ours(Arc<disk::Disk>),
    Foyer(HybridCache<u64, Vec<u8>>),
}

async fn open(kind: &str, directory: &Path, bytes: u64) -> anyhow::Result<Cache> {
    if kind == "ours" {
        let options = disk::DiskCache { directory: directory.to_owned(), bytes };
        return Ok(Cache::Ours(Arc::new(disk::Root::open(&options)?.of_volume(7)?)));
    }
    let device = FsDeviceBuilder::new(directory).with_capacity(bytes as usize).build()?;
    let cache = HybridCacheBuilder::new()
        .with_policy(HybridCachePolicy::WriteOnInsertion)
        .memory(1 << 20)
        .with_weighter(|_, value: &Vec<u8>| value.len())
        .storage()
        .with_io_engine_config(PsyncIoEngineConfig::new())
        .with_engine_config(BlockEngineConfig::new(device).with_buffer_pool_size(128 << 20))
        .build()
        .await?;
    Ok(Cache::Foyer(cache))
}

/// Stores an object, as it arrives from the store.
async fn fill(cache: &Cache, object: u64, pieces: Vec<Bytes>) {
    match cache {
        Cache::Ours(disk) => {
            let raw: Vec<u8> = pieces.concat();
            while !disk.will_write(raw.len() as u64) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            let disk = disk.clone();
            drop(tokio::task::spawn_blocking(move || {
                disk.write(Name::Data(1, object), 0, &raw);
            }));
        }
        Cache::Foyer(cache) => {
            for (n, piece) in pieces.into_iter().enumerate() {
                cache.insert(object * PIECES + n as u64, piece.to_vec());
            }
            // It drops what comes faster than it writes.
            cache.storage().wait().await;
        }
    }
}

async fn read(cache: &Cache, n: u64) -> bool {
    let found = match cache {
        Cache::Ours(disk) => {
            let disk = disk.clone();
            let at = (n % PIECES) as u32 * PIECE as u32;
            let read = move || disk.read(Name::Data(1, n / PIECES), &[(at, PIECE as u32)]);
            tokio::task::spawn_blocking(read).await.ok().and_then(|mut found| found.pop().flatten())
        }
        Cache::Foyer(cache) => {
            let found = cache.get(&n).await.ok().flatten();
            found.map(|entry| Bytes::from(entry.value().clone()))
        }
    };
    found.is_some_and(|found| shoal_base::checksum(&found) == shoal_base::checksum(&piece(n)))
}

fn processor() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = text.rsplit(')').next().unwrap_or_default().split(' ').collect();
    fields[12..14].iter().map(|field| field.parse::<f64>().unwrap_or(0.0)).sum::<f64>() / 100.0
}

fn drop_page_cache() {
    let _ = std::process::Command::new("sync").status();
    let _ = std::fs::write("/proc/sys/vm/drop_caches", "3");
}

async fn reads(cache: &Cache, total: u64, tasks: u64, label: &str) {
    let (begun, cpu) = (Instant::now(), processor());
    let mut handles = Vec::new();
    for task in 0..tasks {
        let cache = cache.clone();
        handles.push(tokio::spawn(async move {
            let (mut state, mut hits, mut times) = (task + 99, 0, Vec::new());
            for _ in 0..READS / tasks {
                let begun = Instant::now();
                hits += u64::from(read(&cache, random(&mut state) % total).await);
                times.push(begun.elapsed());
            }
            (hits, times)
        }));
    }
    let (mut hits, mut times) = (0, Vec::new());
    for handle in handles {
        let (found, took) = handle.await.unwrap_or_default();
        hits += found;
        times.extend(took);
    }
    times.sort_unstable();
    let at = |share: f64| times[(times.len() as f64 * share) as usize].as_micros();
    println!(
        "{label}, {tasks} at once: {:.0} pieces/s, {hits} of {READS} there, p50 {} us, p99 {} us, \
         {:.0} us of a processor each",
        READS as f64 / begun.elapsed().as_secs_f64(),
        at(0.5),
        at(0.99),
        (processor() - cpu) * 1e6 / READS as f64
    );
}

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let (kind, directory) = (arguments[1].clone(), Path::new(&arguments[2]).to_owned());
    let gibibytes: u64 = arguments.get(3).map_or(Ok(2), |text| text.parse())?;
    let objects = (gibibytes << 30) / (PIECE as u64 * PIECES);
    let limit = (gibibytes << 30) * 3 / 2;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let cache = open(&kind, &directory, limit).await?;
        let (begun, cpu) = (Instant::now(), processor());
        let mut made = Duration::ZERO;
        for object in 0..objects {
            let making = Instant::now();
            let pieces = (0..PIECES).map(|n| piece(object * PIECES + n)).collect();
            made += making.elapsed();
            fill(&cache, object, pieces).await;
        }
        if let Cache::Foyer(cache) = &cache {
            cache.close().await?;
        }
        let took = begun.elapsed() - made;
        println!(
            "{kind}: filled {} MiB in {:.1} s, {:.1} s of a processor",
            objects * PIECES * PIECE as u64 >> 20,
            took.as_secs_f64(),
            processor() - cpu - made.as_secs_f64()
        );
        drop(cache);
        drop_page_cache();
        let begun = Instant::now();
        let cache = open(&kind, &directory, limit).await?;
        println!("{kind}: opened again in {:.1} ms", begun.elapsed().as_secs_f64() * 1e3);
        let total = objects * PIECES;
        reads(&cache, total, 1, "page cache empty").await;
        reads(&cache, total, 8, "page cache warm").await;
        anyhow::Ok(())
    })
}
