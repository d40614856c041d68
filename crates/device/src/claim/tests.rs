//! Concurrent openers, each with its own open file and without the locks that would exclude them.

use super::*;
use crate::file::tests::TempDir;
use crate::{FileDevice, MemDevice, OpenMode};
use parking_lot::Mutex;
use shoal_base::Addr;
use shoal_format::Compression;
use shoal_format::claim::OwnerClaim;
use shoal_format::{Geometry, Label, Ptr};
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const ID: [u8; 16] = [7; 16];
const BYTES: u64 = 32 << 20;

fn superblock_of(id: [u8; 16]) -> Superblock {
    Superblock {
        id,
        geometry: Geometry { segment_size: 1 << 20, segments: 32, inode_size: 512 },
        compat: 0,
        ro_compat: 0,
        incompat: 0,
        compression: Compression::NONE,
        sequence: 1,
        incarnation: 1,
        clean: true,
        checkpoint: Ptr::place(Addr(1 << 20), 100),
        created: 0,
        label: Label::NONE,
    }
}

/// A directory with a file that looks like a volume to an opener.
struct World {
    dir: TempDir,
}

impl World {
    fn new() -> World {
        let dir = TempDir::new("claim");
        let file = File::create_new(dir.path().join("v")).unwrap();
        file.set_len(BYTES).unwrap();
        file.write_all_at(&superblock_of(ID).encode(), 0).unwrap();
        World { dir }
    }

    fn path(&self) -> std::path::PathBuf {
        self.dir.path().join("v")
    }

    fn file(&self) -> File {
        File::options().read(true).write(true).open(self.path()).unwrap()
    }

    fn put(&self, claim: &OwnerClaim) {
        self.file().write_all_at(&claim.encode(), ADDR).unwrap();
    }

    fn block(&self) -> ClaimBlock {
        let mut raw = vec![0; SIZE];
        self.file().read_exact_at(&mut raw, ADDR).unwrap();
        OwnerClaim::decode(&raw)
    }

    /// Opens for writing like a remote opener: sees no lock of another opener.
    fn take(&self, options: &ClaimOptions, is_local_file: bool) -> Result<Option<Held>> {
        let (file, path) = (self.file(), self.path());
        let device = MemDevice::new(BYTES);
        device.write_at(&superblock_of(ID).encode(), 0).unwrap();
        let place = ClaimPlace { file: &file, path: &path, device: &device, is_local_file };
        take(&place, options)
    }
}

/// A claim of a process of this machine.
fn claim_of(pid: u32) -> OwnerClaim {
    let own = Here::look().claim(Path::new("other.img"));
    let command = "shoal mount other.img".into();
    OwnerClaim { volume: ID, owner: [3; 16], pid, patience_ms: 2000, command, ..own }
}

/// A claim of a process of another machine.
fn foreign() -> OwnerClaim {
    let host = "far-away".into();
    OwnerClaim { machine: [8; 16], boot: [9; 16], host, process_start: 1, ..claim_of(4711) }
}

fn refusal<T>(result: Result<T>) -> String {
    match result {
        Err(e) if e.is_busy() => e.to_string(),
        Err(e) => panic!("{e}"),
        Ok(_) => panic!("must be refused"),
    }
}

trait IsBusy {
    fn is_busy(&self) -> bool;
}
impl IsBusy for Error {
    fn is_busy(&self) -> bool {
        self.code() == Code::Busy
    }
}

fn quiet() -> ClaimOptions {
    ClaimOptions { notice: |_| {}, ..ClaimOptions::default() }
}

fn force() -> ClaimOptions {
    ClaimOptions { force: true, ..quiet() }
}

/// Renews a claim as its owner would, until dropped.
struct Beating(Arc<AtomicBool>, Option<std::thread::JoinHandle<()>>);

impl Beating {
    fn start(world: &World, mut claim: OwnerClaim) -> Beating {
        world.put(&claim);
        let (stop, file) = (Arc::new(AtomicBool::new(false)), world.file());
        let seen = stop.clone();
        let thread = std::thread::spawn(move || {
            while !seen.load(Ordering::Relaxed) {
                claim.beat += 1;
                file.write_all_at(&claim.encode(), ADDR).unwrap();
                std::thread::sleep(INTERVAL);
            }
        });
        Beating(stop, Some(thread))
    }
}

impl Drop for Beating {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        self.1.take().unwrap().join().unwrap();
    }
}

#[test]
fn a_writer_has_a_claim_while_it_is_open_and_a_reader_none() {
    let world = World::new();
    let start = Instant::now();
    let dev = FileDevice::open(&world.path(), OpenMode::ReadWrite).unwrap();
    assert!(start.elapsed() < SETTLE, "a local file needs no wait");
    let ClaimBlock::Claim(claim) = world.block() else { panic!("no claim") };
    assert_eq!((claim.pid, claim.volume), (std::process::id(), ID));
    assert!(dev.claim().unwrap().starts_with(&format!("process {}", std::process::id())));
    std::thread::sleep(INTERVAL * 3);
    let ClaimBlock::Claim(later) = world.block() else { panic!("no claim") };
    assert!(later.beat > claim.beat && later.is_same_owner(&claim));
    dev.write_at(b"x", 2 << 20).unwrap();
    drop(dev);
    assert_eq!(world.block(), ClaimBlock::Absent);
    let dev = FileDevice::open(&world.path(), OpenMode::ReadOnly).unwrap();
    assert_eq!((world.block(), dev.claim()), (ClaimBlock::Absent, None));
}

#[test]
fn what_is_no_volume_of_ours_is_not_written_to() {
    let world = World::new();
    let newer = Superblock { incompat: 1 << 40, ..superblock_of(ID) };
    let read_only = Superblock { ro_compat: 1 << 40, ..superblock_of(ID) };
    let longer = Superblock {
        geometry: Geometry { segments: 33, ..superblock_of(ID).geometry },
        ..superblock_of(ID)
    };
    for start in [vec![0; 256], newer.encode(), read_only.encode(), longer.encode()] {
        world.file().write_all_at(&start, 0).unwrap();
        let before = std::fs::read(world.path()).unwrap();
        drop(FileDevice::open(&world.path(), OpenMode::ReadWrite).unwrap());
        assert_eq!(std::fs::read(world.path()).unwrap(), before);
    }
}

#[test]
fn the_claim_of_a_killed_process_is_taken_over_at_once() {
    let world = World::new();
    let mut child = Command::new("sleep").arg("60").stdout(Stdio::null()).spawn().unwrap();
    let text = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
    let start = text.rsplit_once(')').unwrap().1.split_whitespace().nth(19).unwrap();
    let start = start.parse().unwrap();
    world.put(&OwnerClaim { process_start: start, ..claim_of(child.id()) });
    child.kill().unwrap();
    let begun = Instant::now();
    let held = world.take(&quiet(), true).unwrap();
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    drop(held);
    child.wait().unwrap();
    // Its id now belongs to a process with another start time.
    world.put(&OwnerClaim { process_start: 1, ..claim_of(std::process::id()) });
    let begun = Instant::now();
    drop(world.take(&quiet(), true).unwrap());
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
}

#[test]
fn a_host_that_renews_its_claim_is_named_to_writers_readers_and_mkfs() {
    let world = World::new();
    let beating = Beating::start(&world, foreign());
    let begun = Instant::now();
    let mut texts = vec![refusal(world.take(&quiet(), true))];
    assert!(begun.elapsed() < Duration::from_millis(2000));
    for mode in [OpenMode::ReadOnly, OpenMode::ReadWrite] {
        texts.push(refusal(FileDevice::open(&world.path(), mode)));
    }
    texts.push(refusal(FileDevice::create(&world.path(), 0, true)));
    for text in texts {
        for part in ["process 4711", "far-away", "shoal mount other.img", "unmount it there"] {
            assert!(text.contains(part), "{text}");
        }
    }
    assert!(matches!(world.block(), ClaimBlock::Claim(claim) if claim.pid == 4711));
    drop(beating);
}

#[test]
fn a_claim_of_another_host_that_stands_still_is_taken_over_after_the_watch() {
    static TOLD: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let world = World::new();
    let options =
        ClaimOptions { notice: |text| TOLD.lock().push(text.into()), ..ClaimOptions::default() };
    world.put(&foreign());
    let begun = Instant::now();
    let held = world.take(&options, true).unwrap().unwrap();
    let took = begun.elapsed();
    assert!((2000..3500).contains(&took.as_millis()), "{took:?}");
    let told = TOLD.lock().clone();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("far-away") && told[0].contains("watching for 2 seconds"), "{told:?}");
    drop(held);
    // A slow owner states how long it may take.
    world.put(&OwnerClaim { patience_ms: 3000, ..foreign() });
    let begun = Instant::now();
    drop(world.take(&quiet(), true).unwrap());
    assert!(begun.elapsed() >= Duration::from_millis(3000));
    // The owner of a torn claim is unknown.
    let mut torn = foreign().encode();
    torn[1000] ^= 1;
    world.file().write_all_at(&torn, ADDR).unwrap();
    let begun = Instant::now();
    drop(world.take(&quiet(), true).unwrap());
    assert!(begun.elapsed() >= Duration::from_millis(2000));
}

#[test]
fn an_owner_that_closes_while_it_is_watched_lets_the_other_in() {
    let world = World::new();
    world.put(&foreign());
    let file = world.file();
    let closing = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(600));
        file.write_all_at(&[0; SIZE], ADDR).unwrap();
    });
    let begun = Instant::now();
    drop(world.take(&quiet(), true).unwrap().unwrap());
    assert!(begun.elapsed() < Duration::from_millis(1800), "{:?}", begun.elapsed());
    closing.join().unwrap();
}

#[test]
fn a_copy_of_a_volume_in_use_is_told_from_the_volume_and_opened_by_force() {
    let world = World::new();
    world.put(&claim_of(std::process::id()));
    let text = refusal(world.take(&quiet(), true));
    assert!(text.contains("does not renew it") && text.contains("--force"), "{text}");
    let begun = Instant::now();
    let held = world.take(&force(), true).unwrap().unwrap();
    assert!(begun.elapsed() >= SETTLE_LONG, "the other must have had the time to notice");
    held.check().unwrap();
}

#[test]
fn who_is_taken_over_by_force_stops_writing_and_names_the_other() {
    let world = World::new();
    let first = FileDevice::open(&world.path(), OpenMode::ReadWrite).unwrap();
    let told = Arc::new(Mutex::new(String::new()));
    let place = told.clone();
    first.on_claim_loss(move |why| *place.lock() = why.to_owned());
    first.write_at(b"before", 2 << 20).unwrap();
    let second = world.take(&force(), false).unwrap().unwrap();
    // It has detected that itself, before the second one reads anything.
    assert!(told.lock().contains("has been taken over by process"), "{}", told.lock());
    for error in [
        first.write_at(b"after", 2 << 20).unwrap_err(),
        first.write_vectored_at(&[std::io::IoSlice::new(b"x")], 0).unwrap_err(),
        first.flush().unwrap_err(),
        first.discard(2 << 20, 4096).unwrap_err(),
    ] {
        assert!(matches!(error, Error::Poisoned(_)), "{error}");
    }
    drop(first);
    second.check().unwrap();
    let ClaimBlock::Claim(claim) = world.block() else { panic!("the second's claim is gone") };
    assert!(second.text() == claim.owner_text());
}

#[test]
fn a_process_that_was_stopped_looks_before_it_writes() {
    let world = World::new();
    let (file, path) = (world.file(), world.path());
    let claim = OwnerClaim { volume: ID, owner: [5; 16], ..Here::look().claim(&path) };
    world.put(&claim);
    let open =
        || Held::new(ClaimFile::open(&file, &path, false).unwrap(), claim.clone(), "v".into());
    // Its thread does not run, as after SIGSTOP.
    let mut held = open();
    held.stop_thread();
    std::thread::sleep(INTERVAL * 4);
    held.check().unwrap();
    assert!(matches!(world.block(), ClaimBlock::Claim(now) if now.beat > claim.beat));
    std::thread::sleep(INTERVAL * 4);
    world.put(&foreign());
    let why = held.check().unwrap_err().to_string();
    assert!(why.contains("taken over by process 4711 on far-away"), "{why}");
    drop(held);
    assert!(matches!(world.block(), ClaimBlock::Claim(now) if now.pid == 4711));
    // Another opener has come and gone.
    world.put(&claim);
    let mut held = open();
    held.stop_thread();
    world.file().write_all_at(&[0; SIZE], ADDR).unwrap();
    std::thread::sleep(INTERVAL * 4);
    assert!(held.check().unwrap_err().to_string().contains("removed the claim"));
}

#[test]
fn of_openers_at_the_same_time_at_most_one_stays() {
    let world = World::new();
    let (winners, refused) = (AtomicU64::new(0), AtomicU64::new(0));
    for round in 0..4 {
        let open = AtomicU64::new(0);
        let barrier = std::sync::Barrier::new(3);
        std::thread::scope(|scope| {
            for i in 0..3u64 {
                let (world, barrier, open) = (&world, &barrier, &open);
                let (winners, refused) = (&winners, &refused);
                scope.spawn(move || {
                    barrier.wait();
                    std::thread::sleep(Duration::from_millis(i * round * 40));
                    // One of them has a local file and does not wait.
                    match world.take(&quiet(), i == 0) {
                        Ok(held) => {
                            let held = held.unwrap();
                            std::thread::sleep(SETTLE * 2);
                            let stays = held.check().is_ok();
                            open.fetch_add(u64::from(stays), Ordering::Relaxed);
                            winners.fetch_add(u64::from(stays), Ordering::Relaxed);
                            barrier.wait();
                        }
                        Err(e) => {
                            assert!(e.is_busy(), "{e}");
                            refused.fetch_add(1, Ordering::Relaxed);
                            barrier.wait();
                        }
                    }
                });
            }
        });
        assert!(open.load(Ordering::Relaxed) <= 1, "round {round}");
        assert_eq!(world.block(), ClaimBlock::Absent, "round {round}");
    }
    assert!(winners.load(Ordering::Relaxed) > 0 && refused.load(Ordering::Relaxed) > 0);
}

#[test]
fn the_wait_before_the_volume_is_read() {
    let ms = Duration::from_millis;
    let rows = [
        (true, false, 0, 0),
        (true, false, 150, 0),
        (true, false, 151, 200),
        (true, false, 401, 1500),
        (false, false, 0, 200),
        (false, false, 400, 200),
        (false, false, 401, 1500),
        (true, true, 0, 1500),
        (false, true, 0, 1500),
    ];
    for (local, force, between, wanted) in rows {
        assert_eq!(settle(local, force, ms(between)), ms(wanted), "{local} {force} {between}");
    }
}
