//! Concurrent openers, each with its own open file and without the locks that would exclude them.
//! Their time is simulated (`simulation.rs`), where the test does not open a real device.

use super::simulation::Simulation;
use super::*;
use crate::file::tests::TempDir;
use crate::{FileDevice, MemDevice, OpenMode};
use parking_lot::Mutex;
use shoal_base::Addr;
use shoal_format::Compression;
use shoal_format::claim::OwnerClaim;
use shoal_format::{Geometry, Label, Ptr};
use shoal_skip::wait_until;
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

/// A directory with a file that looks like a volume to an opener, and the clock of openers.
struct World {
    dir: TempDir,
    clock: Clock,
}

impl World {
    fn new() -> World {
        World::with(Simulation::new())
    }

    fn with(simulation: Arc<Simulation>) -> World {
        let dir = TempDir::new("claim");
        let file = File::create_new(dir.path().join("v")).unwrap();
        file.set_len(BYTES).unwrap();
        file.write_all_at(&superblock_of(ID).encode(), 0).unwrap();
        World { dir, clock: Clock::Simulated(simulation) }
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
        let (device, clock) = (&device, self.clock.clone());
        let place = ClaimPlace { file: &file, path: &path, device, is_local_file, clock };
        take(&place, options)
    }

    /// Takes the volume, and returns the milliseconds that this took too.
    fn timed(&self, options: &ClaimOptions) -> (Result<Option<Held>>, u128) {
        let begun = self.clock.now();
        let taken = self.take(options, true);
        (taken, (self.clock.now() - begun).as_millis())
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
struct Beating(Arc<AtomicBool>, Clock, Option<std::thread::JoinHandle<()>>);

impl Beating {
    fn start(world: &World, clock: &Clock, mut claim: OwnerClaim) -> Beating {
        world.put(&claim);
        let (stop, file) = (Arc::new(AtomicBool::new(false)), world.file());
        let (seen, own) = (stop.clone(), clock.clone());
        let work = move || {
            while !seen.load(Ordering::Relaxed) {
                claim.beat += 1;
                file.write_all_at(&claim.encode(), ADDR).unwrap();
                own.sleep(INTERVAL);
            }
        };
        Beating(stop, clock.clone(), Some(clock.spawn(work).unwrap()))
    }
}

impl Drop for Beating {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        self.1.join(self.2.take().unwrap());
    }
}

#[test]
fn threads_take_turns_in_the_order_of_their_times() {
    let (simulation, log) = (Simulation::new(), Arc::new(Mutex::new(Vec::new())));
    let clock = Clock::Simulated(simulation);
    let ms = Duration::from_millis;
    let threads: Vec<_> = [30, 20, 10]
        .map(|pause| {
            let (own, log) = (clock.clone(), log.clone());
            let work = move || {
                for _ in 0..3 {
                    own.sleep(ms(pause));
                    log.lock().push((own.now(), pause));
                }
            };
            clock.spawn(work).unwrap()
        })
        .into();
    clock.sleep(ms(35));
    assert_eq!(clock.now(), ms(35));
    threads.into_iter().for_each(|thread| clock.join(thread));
    let times: Vec<(u64, u64)> =
        log.lock().iter().map(|(time, pause)| (time.as_millis() as u64, *pause)).collect();
    let expected =
        [(10, 10), (20, 20), (20, 10), (30, 30), (30, 10), (40, 20), (60, 30), (60, 20), (90, 30)];
    assert_eq!(times, expected);
}

#[test]
fn a_writer_has_a_claim_while_it_is_open_and_a_reader_none() {
    let world = World::new();
    let dev = FileDevice::open(&world.path(), OpenMode::ReadWrite).unwrap();
    let ClaimBlock::Claim(claim) = world.block() else { panic!("no claim") };
    assert_eq!((claim.pid, claim.volume), (std::process::id(), ID));
    assert!(dev.claim().unwrap().starts_with(&format!("process {}", std::process::id())));
    wait_until("it is renewed", || match world.block() {
        ClaimBlock::Claim(later) => later.beat > claim.beat && later.is_same_owner(&claim),
        _ => panic!("no claim"),
    });
    dev.write_at(b"x", 2 << 20).unwrap();
    drop(dev);
    assert_eq!(world.block(), ClaimBlock::Absent);
    let dev = FileDevice::open(&world.path(), OpenMode::ReadOnly).unwrap();
    assert_eq!((world.block(), dev.claim()), (ClaimBlock::Absent, None));
}

#[test]
fn a_local_file_needs_no_wait_and_anything_else_one() {
    let world = World::new();
    for (is_local_file, wait) in [(true, Duration::ZERO), (false, SETTLE)] {
        let begun = world.clock.now();
        let held = world.take(&quiet(), is_local_file).unwrap();
        assert_eq!(world.clock.now() - begun, wait);
        drop(held);
    }
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
    let claim = claim_of(child.id());
    let claim = OwnerClaim { process_start: start, ..claim };
    wait_until("it is dead", || Here::look().find(&claim) == Process::Gone);
    let (held, took) = world.timed(&quiet());
    assert_eq!(took, 0);
    drop(held.unwrap());
    child.wait().unwrap();
    // Its id now belongs to a process with another start time.
    world.put(&OwnerClaim { process_start: 1, ..claim_of(std::process::id()) });
    let (held, took) = world.timed(&quiet());
    assert_eq!(took, 0);
    drop(held.unwrap());
}

#[test]
fn a_host_that_renews_its_claim_is_named_to_writers_readers_and_mkfs() {
    let world = World::new();
    let beating = Beating::start(&world, &world.clock, foreign());
    let (taken, took) = world.timed(&quiet());
    assert!(took <= INTERVAL.as_millis() + LOOK_MAX.as_millis(), "{took}");
    let mut texts = vec![refusal(taken)];
    drop(beating);
    // The same with real devices, and an owner that may take its time.
    let slow = OwnerClaim { patience_ms: *PATIENCE_MS.end(), ..foreign() };
    let beating = Beating::start(&world, &Clock::Machine, slow);
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
    // A watch ends with the first look after its time.
    let is_about = |took: u128, ms: u128| (ms..=ms + LOOK_MAX.as_millis()).contains(&took);
    let (held, took) = world.timed(&options);
    assert!(is_about(took, 2000), "{took}");
    let told = TOLD.lock().clone();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("far-away") && told[0].contains("watching for 2 seconds"), "{told:?}");
    drop(held.unwrap());
    // A slow owner states how long it may take.
    world.put(&OwnerClaim { patience_ms: 3000, ..foreign() });
    let (held, took) = world.timed(&quiet());
    assert!(is_about(took, 3000), "{took}");
    drop(held.unwrap());
    // The owner of a torn claim is unknown.
    let mut torn = foreign().encode();
    torn[1000] ^= 1;
    world.file().write_all_at(&torn, ADDR).unwrap();
    let (held, took) = world.timed(&quiet());
    assert!(is_about(took, 2000), "{took}");
    drop(held.unwrap());
}

#[test]
fn an_owner_that_closes_while_it_is_watched_lets_the_other_in() {
    let world = World::new();
    world.put(&foreign());
    let (file, clock) = (world.file(), world.clock.clone());
    let closing = world.clock.spawn(move || {
        clock.sleep(Duration::from_millis(600));
        file.write_all_at(&[0; SIZE], ADDR).unwrap();
    });
    let (held, took) = world.timed(&quiet());
    assert!((600..=600 + LOOK_MAX.as_millis()).contains(&took), "{took}");
    drop(held.unwrap().unwrap());
    world.clock.join(closing.unwrap());
}

#[test]
fn a_copy_of_a_volume_in_use_is_told_from_the_volume_and_opened_by_force() {
    let world = World::new();
    world.put(&claim_of(std::process::id()));
    let text = refusal(world.take(&quiet(), true));
    assert!(text.contains("does not renew it") && text.contains("--force"), "{text}");
    let (held, took) = world.timed(&force());
    assert_eq!(took, SETTLE_LONG.as_millis(), "the other must have the time to notice");
    held.unwrap().unwrap().check().unwrap();
}

/// However long an owner is stalled within its grace, it keeps its volume; afterwards it notices
/// before it writes.
#[test]
fn a_stalled_owner_has_the_grace_that_it_was_opened_with() {
    for (grace, seconds) in [(0, 2), (2, 2), (45, 45), (60, 60), (3600, 60)] {
        let world = World::new();
        let options = ClaimOptions { grace: Duration::from_secs(grace), ..quiet() };
        let mut owner = world.take(&options, true).unwrap().unwrap();
        let ClaimBlock::Claim(claim) = world.block() else { panic!("no claim") };
        assert_eq!(u64::from(claim.patience_ms), seconds * 1000, "{grace}");
        // For an opener on another host.
        let elsewhere = OwnerClaim { machine: [8; 16], boot: [9; 16], ..*claim };
        owner.stop_thread();
        world.put(&elsewhere);
        let (other, took) = world.timed(&quiet());
        let wanted = u128::from(seconds) * 1000;
        assert!((wanted..=wanted + LOOK_MAX.as_millis()).contains(&took), "{took} for {grace}");
        assert!(owner.check().unwrap_err().to_string().contains("taken over"), "{grace}");
        other.unwrap().unwrap().check().unwrap();
        // It is renewed with the same grace.
        let owner = world.take(&ClaimOptions { force: true, ..options }, true).unwrap().unwrap();
        world.clock.sleep(INTERVAL * 3);
        let ClaimBlock::Claim(later) = world.block() else { panic!("no claim") };
        assert!(later.beat > 2 && later.patience_ms == claim.patience_ms, "{grace}");
        drop(owner);
    }
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
    wait_until("the first one has noticed", || !told.lock().is_empty());
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

/// An owner that is not stalled has noticed before the other one reads anything.
#[test]
fn who_is_taken_over_by_force_has_noticed_before_the_other_goes_on() {
    for age_ms in [0, 100, 390, 410, 5_000] {
        let world = World::new();
        let first = world.take(&quiet(), true).unwrap().unwrap();
        let (told, clock) = (Arc::new(Mutex::new(None)), world.clock.clone());
        let place = told.clone();
        first.on_loss(Box::new(move |_| *place.lock() = Some(clock.now())));
        world.clock.sleep(Duration::from_millis(age_ms));
        let second = world.take(&force(), false).unwrap().unwrap();
        let noticed = told.lock().expect("noticed");
        assert!(noticed < world.clock.now(), "{age_ms}");
        assert!(first.check().is_err());
        second.check().unwrap();
    }
}

/// An owner whose renewals take long, between reading its claim and writing it, writes its claim
/// over that of the opener with `force`, which writes its own again.
#[test]
fn who_is_taken_over_by_force_may_write_its_claim_once_more() {
    let overwritten = Arc::new(AtomicU64::new(0));
    for begin_ms in (0..600).step_by(20) {
        let world = World::new();
        let (file, clock) = (world.file(), world.clock.clone());
        let mut claim = foreign();
        world.put(&claim);
        let own = |file: &File, claim: &OwnerClaim| {
            let mut raw = vec![0; SIZE];
            file.read_exact_at(&mut raw, ADDR).unwrap();
            matches!(OwnerClaim::decode(&raw), ClaimBlock::Claim(c) if c.is_same_owner(claim))
        };
        let counted = overwritten.clone();
        let owner = world.clock.spawn(move || {
            while own(&file, &claim) {
                clock.sleep(Duration::from_millis(100));
                counted.fetch_add(u64::from(!own(&file, &claim)), Ordering::Relaxed);
                claim.beat += 1;
                file.write_all_at(&claim.encode(), ADDR).unwrap();
                clock.sleep(INTERVAL - Duration::from_millis(100));
            }
        });
        world.clock.sleep(Duration::from_millis(begin_ms));
        let second = world.take(&force(), false).unwrap().unwrap();
        second.check().unwrap();
        world.clock.join(owner.unwrap());
        second.check().unwrap();
    }
    assert!(overwritten.load(Ordering::Relaxed) > 0);
}

#[test]
fn a_process_that_was_stopped_looks_before_it_writes() {
    let world = World::new();
    let (file, path) = (world.file(), world.path());
    let claim = OwnerClaim { volume: ID, owner: [5; 16], ..Here::look().claim(&path) };
    world.put(&claim);
    let open = || {
        let file = ClaimFile::open(&file, &path, false).unwrap();
        Held::new(file, claim.clone(), "v".into(), world.clock.clone())
    };
    // Its thread does not run, as after SIGSTOP.
    let mut held = open();
    held.stop_thread();
    world.clock.sleep(INTERVAL * 4);
    held.check().unwrap();
    assert!(matches!(world.block(), ClaimBlock::Claim(now) if now.beat > claim.beat));
    world.clock.sleep(INTERVAL * 4);
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
    world.clock.sleep(INTERVAL * 4);
    assert!(held.check().unwrap_err().to_string().contains("removed the claim"));
}

/// Whenever they begin, and however long each look and each write takes. One of them has a local
/// file and need not wait.
#[test]
fn of_openers_at_the_same_time_at_most_one_stays() {
    let (winners, refused) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    for seed in 0..150 {
        let delay_max = Duration::from_millis([0, 20, 100, 300, 1_000][seed as usize % 5]);
        let simulation = Simulation::with_delays(delay_max, seed);
        let world = Arc::new(World::with(simulation.clone()));
        let open = Arc::new(AtomicU64::new(0));
        let threads: Vec<_> = (0..3)
            .map(|opener| {
                let begin = Duration::from_millis(simulation.below(400));
                let (here, open) = (world.clone(), open.clone());
                let (winners, refused) = (winners.clone(), refused.clone());
                let work = move || {
                    here.clock.sleep(begin);
                    match here.take(&quiet(), opener == 0) {
                        Ok(held) => {
                            let held = held.unwrap();
                            // Until each other one has passed its last step, or has given up.
                            here.clock.sleep(Duration::from_secs(10));
                            let stays = u64::from(held.check().is_ok());
                            open.fetch_add(stays, Ordering::Relaxed);
                            winners.fetch_add(stays, Ordering::Relaxed);
                            here.clock.sleep(Duration::from_secs(10));
                        }
                        Err(e) => {
                            assert!(e.is_busy(), "{e}");
                            refused.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                };
                world.clock.spawn(work).unwrap()
            })
            .collect();
        threads.into_iter().for_each(|thread| world.clock.join(thread));
        assert!(open.load(Ordering::Relaxed) <= 1, "seed {seed}");
        assert_eq!(world.block(), ClaimBlock::Absent, "seed {seed}");
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
