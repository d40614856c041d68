//! Owners of a volume in a store that misbehaves, one after the other and several at once: killed
//! at any request, replaced while they work, waking up later. What was acknowledged is there, and a
//! replaced owner gets nothing acknowledged any more. A follower sees each acknowledged flush, and
//! takes the volume over as any other opener does.
//!
//! Each seed is a history; the same seed gives the same one. `SHOAL_BUCKET_SEEDS=FROM-TO` runs
//! others than the default.

use shoal_base::Code;
use shoal_bucket::faulty::{Faults, Faulty, World};
use shoal_bucket::{
    BucketDevice, CreateOptions, Follower, Layering, Limits, Options, Place, Runtime,
};
use shoal_device::Device;
use std::sync::Arc;
use std::time::Duration;

/// Cells of the volume: the test writes each as a whole.
const CELLS: u64 = 24;
/// Bytes of a cell. Not a divisor of a frame: cells lie across the bounds of frames.
const CELL: u64 = 48 << 10;
const CREATE: CreateOptions =
    CreateOptions { capacity: CELLS * CELL, overwrite: false, race: None, progress: |_, _| {} };
/// Openings of a history.
const OPENINGS: u32 = 14;

/// Content of a cell: the number of the write, 0 for zeros.
type Cells = Vec<u64>;

fn runtime() -> Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_time().start_paused(true).build().unwrap().into()
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) % bound
    }
    fn chance(&mut self, of_hundred: u64) -> bool {
        self.below(100) < of_hundred
    }
}

/// Bytes of a cell that contains this write: half of it compresses.
fn bytes_of(write: u64) -> Vec<u8> {
    if write == 0 {
        return vec![0; CELL as usize];
    }
    let mut random = Random(write.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let noise = (0..CELL / 2).map(|_| random.below(256) as u8);
    let plain = write.to_le_bytes().into_iter().cycle().take(CELL as usize / 2);
    plain.chain(noise).collect()
}

/// Reads all cells.
fn read(device: &BucketDevice, writes: u64) -> Cells {
    let mut raw = vec![0; (CELLS * CELL) as usize];
    device.read_at(&mut raw, 0).unwrap_or_else(|error| panic!("a volume is readable: {error}"));
    let cell = |raw: &[u8]| {
        let write = u64::from_le_bytes(*raw.first_chunk().unwrap());
        assert!(write <= writes, "a cell of write {write}, of {writes} so far");
        assert!(raw == bytes_of(write), "a cell is not that of one write");
        write
    };
    raw.chunks(CELL as usize).map(cell).collect()
}

struct Owner {
    device: BucketDevice,
    connection: Faulty,
    /// Cells as this process sees them.
    cells: Cells,
}

/// A process that follows.
struct Watcher {
    follower: Follower,
    connection: Faulty,
}

struct History {
    world: Arc<World>,
    faults: Faults,
    random: Random,
    writes: u64,
    /// Cells as of the last acknowledged flush, or as a later owner has found them.
    durable: Cells,
    /// The same with each flush since then of which it is unknown whether it is durable.
    perhaps: Vec<Cells>,
    watcher: Option<Watcher>,
    flushes: u64,
    failovers: u64,
    /// Take-overs by a follower, and what followers have seen.
    taken: u64,
    seen: u64,
    yielded: u64,
    closed: u64,
    refused: u64,
}

impl History {
    fn new(seed: u64) -> History {
        let mut random = Random(seed.wrapping_mul(0x2545_f491_4f6c_dd1d) | 1);
        let faults = if random.chance(20) { Faults::default() } else { Faults::MANY };
        History {
            world: World::new(seed),
            faults,
            random,
            writes: 0,
            durable: vec![0; CELLS as usize],
            perhaps: Vec::new(),
            watcher: None,
            flushes: 0,
            failovers: 0,
            taken: 0,
            seen: 0,
            yielded: 0,
            closed: 0,
            refused: 0,
        }
    }

    fn options(&mut self) -> Options {
        Options {
            force: true,
            limits: Limits { patience: Duration::from_secs(300), first: Duration::from_secs(300) },
            staged_max: [100 << 10, 16 << 20][self.random.below(2) as usize],
            log_objects_max: 1 + self.random.below(6),
            layering: Layering { parts: 1 + self.random.below(3) as usize, whole_max: 0 },
            grace: Duration::from_millis(self.random.below(2) * 500),
            cache_bytes: 1 << 20,
            ..Options::default()
        }
    }

    fn place(&self, connection: &Faulty) -> Place {
        Place::new(Arc::new(connection.clone()), "volume", "faulty")
    }

    /// Opens the volume, if the process lives long enough, and checks what it finds.
    fn open(&mut self) -> Option<Owner> {
        let watcher = self.watcher.take().filter(|_| self.random.chance(50));
        let connection = match &watcher {
            Some(watcher) => watcher.connection.clone(),
            None => self.world.connect(self.faults),
        };
        if self.random.chance(20) {
            connection.kill_after(1 + self.random.below(12));
        }
        let (options, place) = (self.options(), self.place(&connection));
        let opened = match &watcher {
            Some(watcher) => watcher.follower.take(),
            None => BucketDevice::open(&place, options, runtime()),
        };
        match opened {
            Ok(device) => {
                connection.kill_after(u64::MAX);
                if connection.is_dead() {
                    // After it had opened the volume: it has written nothing.
                    return None;
                }
                let cells = read(&device, self.writes);
                self.found(&cells);
                self.failovers += 1;
                self.taken += u64::from(watcher.is_some());
                // It may go on, and see what its own process writes.
                self.watcher = watcher;
                Some(Owner { device, connection, cells })
            }
            Err(error) => {
                // A follower leaves the volume to whoever has taken it since it looked.
                let yields = watcher.is_some() && error.code() == Code::Busy;
                self.yielded += u64::from(yields);
                assert!(yields || connection.is_dead(), "a volume can be opened: {error}");
                None
            }
        }
    }

    /// An owner has found these cells: everything acknowledged is in them, and from now on they are
    /// what is there.
    fn found(&mut self, cells: &Cells) {
        let known = *cells == self.durable || self.perhaps.contains(cells);
        assert!(known, "found {cells:?}\nof {:?}\nor {:?}", self.durable, self.perhaps);
        self.durable.clone_from(cells);
        self.perhaps.clear();
    }

    /// A reader sees what was acknowledged, or a later flush.
    fn look(&mut self) {
        let connection = self.world.connect(self.faults);
        let (options, place) = (self.options(), self.place(&connection));
        let reader = BucketDevice::read_only(&place, options, runtime()).unwrap();
        let cells = read(&reader, self.writes);
        let known = cells == self.durable || self.perhaps.contains(&cells);
        assert!(known, "read {cells:?}\nof {:?}\nor {:?}", self.durable, self.perhaps);
    }

    /// A follower looks, and sees the same. It may be told of an owner that works or has ended, but
    /// must not take one that has flushed just now for silent.
    fn follow(&mut self) {
        let watcher = match self.watcher.take().filter(|watcher| !watcher.connection.is_dead()) {
            Some(watcher) => watcher,
            None => {
                let connection = self.world.connect(self.faults);
                let (options, place) = (self.options(), self.place(&connection));
                let follower = Follower::open(&place, options, runtime()).unwrap();
                Watcher { follower, connection }
            }
        };
        // Twice: a request that was late may have been carried out meanwhile.
        for _ in 0..2 {
            watcher.follower.advance().unwrap();
            let cells = read(&watcher.follower.view().unwrap(), self.writes);
            let known = cells == self.durable || self.perhaps.contains(&cells);
            assert!(known, "followed {cells:?}\nof {:?}\nor {:?}", self.durable, self.perhaps);
        }
        self.watcher = Some(watcher);
        self.seen += 1;
    }

    /// An owner changes cells and flushes. Returns whether it goes on.
    fn work(&mut self, owner: &mut Owner) -> bool {
        for _ in 0..1 + self.random.below(6) {
            let cell = self.random.below(CELLS);
            if self.random.chance(15) {
                let len = 1 + self.random.below(CELLS - cell);
                self.may_be_seen(owner, cell..cell + len, 0);
                if owner.device.discard(cell * CELL, len * CELL).is_err() {
                    return false;
                }
                // Discarded alone, a range may read as old bytes after a crash: written, it may
                // not.
                for cell in cell..cell + len {
                    self.may_be_seen(owner, cell..cell + 1, 0);
                    if self.write(owner, cell, 0).is_err() {
                        return false;
                    }
                }
            } else {
                self.writes += 1;
                self.may_be_seen(owner, cell..cell + 1, self.writes);
                if self.write(owner, cell, self.writes).is_err() {
                    return false;
                }
            }
        }
        self.perhaps.push(owner.cells.clone());
        if self.random.chance(10) {
            owner.connection.kill_after(1 + self.random.below(10));
        }
        match owner.device.flush() {
            Ok(()) => {
                owner.connection.kill_after(u64::MAX);
                if !owner.connection.is_dead() {
                    assert_eq!(read(&owner.device, self.writes), owner.cells);
                }
                self.durable.clone_from(&owner.cells);
                self.perhaps.clear();
                self.flushes += 1;
                !owner.connection.is_dead()
            }
            Err(error) => {
                assert!(owner.connection.is_dead(), "an owner that nobody replaced: {error}");
                false
            }
        }
    }

    /// With many bytes waiting, a write is a flush too: the state after it may be found.
    fn may_be_seen(&mut self, owner: &Owner, range: std::ops::Range<u64>, write: u64) {
        let mut cells = owner.cells.clone();
        range.for_each(|cell| cells[cell as usize] = write);
        self.perhaps.push(cells);
    }

    fn write(&self, owner: &mut Owner, cell: u64, write: u64) -> shoal_base::Result<()> {
        owner.device.write_at(&bytes_of(write), cell * CELL)?;
        owner.cells[cell as usize] = write;
        Ok(())
    }

    /// A replaced owner wakes up: nothing that it does is acknowledged.
    fn wake(&mut self, owner: &mut Owner) {
        let cell = self.random.below(CELLS);
        self.writes += 1;
        let write = self.write(owner, cell, self.writes);
        let flushed = write.and_then(|()| owner.device.flush());
        match flushed {
            Ok(()) => panic!("two owners: a replaced one had a flush acknowledged"),
            Err(error) if owner.connection.is_dead() => drop(error),
            Err(error) => {
                assert_eq!(error.code(), Code::ReadOnly, "{error}");
                self.refused += 1;
            }
        }
        if self.random.chance(30) {
            assert!(owner.device.close().is_err());
        }
    }

    /// An owner closes the volume, with what it has not flushed, and perhaps is killed meanwhile.
    fn close(&mut self, mut owner: Owner) {
        for _ in 0..self.random.below(3) {
            let cell = self.random.below(CELLS);
            self.writes += 1;
            self.may_be_seen(&owner, cell..cell + 1, self.writes);
            self.write(&mut owner, cell, self.writes).unwrap();
        }
        self.perhaps.push(owner.cells.clone());
        if self.random.chance(40) {
            owner.connection.kill_after(1 + self.random.below(8));
        }
        match owner.device.close() {
            Ok(()) => {
                self.durable.clone_from(&owner.cells);
                self.perhaps.clear();
                self.closed += 1;
            }
            Err(error) => assert!(owner.connection.is_dead(), "an owner closes: {error}"),
        }
    }

    fn run(&mut self) {
        let connection = self.world.connect(self.faults);
        let (options, place) = (self.options(), self.place(&connection));
        let device = BucketDevice::create(&place, &CREATE, options, runtime()).unwrap();
        let mut owner = Some(Owner { device, connection, cells: vec![0; CELLS as usize] });
        let mut replaced: Vec<Owner> = Vec::new();
        for _ in 0..OPENINGS {
            let mut lives = true;
            for _ in 0..self.random.below(12) {
                let Some(owner) = owner.as_mut().filter(|_| lives) else { break };
                lives = self.work(owner);
                if self.random.chance(10) {
                    self.look();
                }
                if self.random.chance(15) {
                    self.follow();
                }
                if !replaced.is_empty() && self.random.chance(20) {
                    let which = self.random.below(replaced.len() as u64) as usize;
                    self.wake(&mut replaced[which]);
                }
            }
            if let Some(last) = owner.take() {
                match self.random.below(4) {
                    0 if lives => self.close(last),
                    1 => last.connection.kill(),
                    _ => replaced.push(last),
                }
            }
            owner = self.open();
        }
        // As long as nobody has opened the volume, the last owner is not replaced.
        while owner.is_none() {
            owner = self.open();
        }
        for mut owner in replaced {
            self.wake(&mut owner);
        }
        self.look();
    }
}

fn seeds() -> std::ops::Range<u64> {
    let Ok(text) = std::env::var("SHOAL_BUCKET_SEEDS") else { return 1..61 };
    let (from, to) = text.split_once('-').expect("SHOAL_BUCKET_SEEDS is FROM-TO");
    from.parse().expect("a number")..to.parse::<u64>().expect("a number") + 1
}

#[test]
fn what_was_acknowledged_stays_and_only_one_owner_gets_anything_acknowledged() {
    let (mut flushes, mut failovers, mut refused) = (0, 0, 0);
    let (mut taken, mut seen, mut closed, mut yielded) = (0, 0, 0, 0);
    let seeds = seeds();
    for seed in seeds.clone() {
        println!("seed {seed}");
        let mut history = History::new(seed);
        history.run();
        flushes += history.flushes;
        failovers += history.failovers;
        refused += history.refused;
        taken += history.taken;
        seen += history.seen;
        closed += history.closed;
        yielded += history.yielded;
    }
    println!(
        "seeds {seeds:?}: {flushes} flushes, {failovers} failovers ({taken} by followers, \
         which looked {seen} times, and yielded {yielded} times), {closed} closed, {refused} \
         refused wakings"
    );
    for count in [flushes, failovers, refused, taken, seen, closed, yielded] {
        assert!(count > 0);
    }
}
