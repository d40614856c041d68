//! The engine on a bucket whose store misbehaves, and one owner after the other: see
//! `runner/bucket.rs`. `SHOAL_BUCKET_SEEDS=FROM-TO` runs other seeds, and so does
//! `cargo xtask sim bucket --seed FROM --seeds COUNT`. And the requests that calls take.

use shoal::raw::{Caller, Ino, MkfsOptions, OpenOptions, Volume, mkfs_on};
use shoal_bucket::faulty::{Faults, World};
use shoal_bucket::{BucketDevice, CreateOptions, Options, Place, Request, Runtime};
use shoal_device::Device;
use shoal_sim::deadline::from_environment;
use shoal_sim::exhaustive::actions::all;
use shoal_sim::exhaustive::plan::{Longer, Prefix};
use shoal_sim::exhaustive::requests::InBucket;
use shoal_sim::exhaustive::sequence::Sequence;
use shoal_sim::exhaustive::start::{Mode, Start};
use shoal_sim::runner::Report;
use shoal_sim::runner::bucket::cli::described;
use shoal_sim::runner::bucket::run_in_bucket;
use shoal_sim::seeds::of_test;
use std::sync::Arc;

#[test]
fn each_owner_finds_a_state_that_there_was_and_everything_acknowledged() {
    let mut total = Report::default();
    for seed in of_test("SHOAL_BUCKET_SEEDS", 1..=60) {
        total += run_in_bucket(seed, 250).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    }
    println!("{}", described(&total));
    assert!(total.steps > 0 && total.crashes > total.closed && total.closed > 0);
    assert!(total.weathers > 0 && total.refused > 0, "a quota");
    assert!(total.at_once > total.left && total.left > 0, "a store that hangs");
    assert!(total.damaged > 0 && total.reported > 0, "damage");
}

#[test]
fn a_seed_always_makes_the_same_requests() {
    for seed in [7, 17, 37] {
        let run = || run_in_bucket(seed, 250).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        assert_eq!(run(), run(), "seed {seed}");
    }
}

/// Every sequence of one operation, with everything that can be made durable behind it, ended after
/// each request; and of two operations one in `SHOAL_BUCKET_EVERY`.
#[test]
fn short_sequences_ended_after_every_request() {
    let start = Start::new(Mode::Plain.settings()).unwrap();
    let (bucket, actions) = (InBucket::new(&start).unwrap(), all());
    let every = from_environment("SHOAL_BUCKET_EVERY", 4999);
    let (mut sequences, mut requests, mut two) = (0, 0, 0);
    let mut explore = |sequence: &Sequence| {
        sequences += 1;
        requests += bucket.explore(&actions, sequence).unwrap_or_else(|e| panic!("{e}"));
    };
    Prefix::empty(&start).longer(&actions, &mut |longer| {
        if let Longer::Succeeds(prefix) = longer {
            explore(&prefix.sequence);
            prefix.longer(&actions, &mut |longer| {
                two += 1;
                if let Longer::Succeeds(prefix) = longer
                    && two % every == 0
                {
                    explore(&prefix.sequence);
                }
                true
            });
        }
        true
    });
    println!("{sequences} sequences, ended after {requests} requests");
    assert!(sequences > 500 && requests > 2 * sequences);
}

/// A bucket with a volume whose requests are counted.
struct Counted {
    place: Place,
    device: Arc<BucketDevice>,
    volume: Option<Volume>,
}

const REQUESTS: [Request; 3] = [Request::PutLog, Request::PutData, Request::PutManifest];

fn runtime() -> Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_time().start_paused(true).build().unwrap().into()
}

impl Counted {
    fn new() -> Counted {
        let store = World::new(1).connect(Faults::default());
        let place = Place::new(Arc::new(store), "volume", "memory");
        let create =
            CreateOptions { capacity: 1 << 30, overwrite: false, race: None, progress: |_, _| {} };
        let device = BucketDevice::create(&place, &create, Options::default(), runtime()).unwrap();
        mkfs_on(Arc::new(device), &MkfsOptions::default()).unwrap();
        Counted::open(place)
    }

    /// Opens what is there, whether it was closed or not.
    fn open(place: Place) -> Counted {
        let options = Options { force: true, ..Options::default() };
        let device = Arc::new(BucketDevice::open(&place, options, runtime()).unwrap());
        let options = OpenOptions { background: false, ..OpenOptions::default() };
        let volume = Some(Volume::open_on(device.clone(), &options).unwrap());
        Counted { place, device, volume }
    }

    fn volume(&self) -> &Volume {
        self.volume.as_ref().unwrap()
    }

    fn create(&self, name: &[u8]) -> Ino {
        self.volume().namespace().create(&Caller::root(), Ino::ROOT, name, 0o600).unwrap().ino
    }

    /// PUTs of log objects, data objects and manifests by a call.
    fn puts(&mut self, call: impl FnOnce(&mut Counted)) -> [u64; 3] {
        let before = self.device.counted();
        call(self);
        let after = self.device.counted();
        REQUESTS.map(|request| after.of(request) - before.of(request))
    }
}

#[test]
fn an_fsync_a_checkpoint_and_an_end_are_one_log_object_each() {
    let mut it = Counted::new();
    let file = it.create(b"small");
    assert_eq!(it.puts(|it| it.volume().sync().unwrap()), [1, 0, 0], "a name");
    it.volume().files().write(file, 0, &[7; 100_000], false).unwrap();
    assert_eq!(
        it.puts(|it| it.volume().files().fsync(file, false).unwrap()),
        [1, 0, 0],
        "with content"
    );
    assert_eq!(
        it.puts(|it| it.volume().files().fsync(file, false).unwrap()),
        [0, 0, 0],
        "nothing new"
    );
    it.create(b"another");
    let checkpoint = |it: &mut Counted| it.volume().maintenance().checkpoint().unwrap();
    assert_eq!(it.puts(checkpoint), [1, 0, 0], "a checkpoint");
    it.create(b"last");
    let close = |it: &mut Counted| it.volume.take().unwrap().close().unwrap();
    assert_eq!(it.puts(close), [1, 0, 1], "the end, and its manifest");
    assert_eq!(it.puts(|it| it.device.close().unwrap()), [0, 0, 0], "it is closed");
}

#[test]
fn neither_an_opening_nor_a_recovery_writes_anything_but_its_claim_and_fence() {
    let mut it = Counted::new();
    assert_eq!(REQUESTS.map(|request| it.device.counted().of(request)), [1, 0, 1], "opened");
    it.create(b"durable");
    it.volume().sync().unwrap();
    it.create(b"lost");
    // The process is gone.
    std::mem::forget(it.volume.take());
    let again = Counted::open(it.place.clone());
    assert_eq!(REQUESTS.map(|request| again.device.counted().of(request)), [1, 0, 1], "recovered");
    let found =
        |name: &[u8]| again.volume().namespace().lookup(&Caller::root(), Ino::ROOT, name).is_ok();
    assert!(found(b"durable") && !found(b"lost"));
}
