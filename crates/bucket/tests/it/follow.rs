//! Following a volume: what is seen, what is known of its owner, and the take-over.

use bytes::Bytes;
use futures::StreamExt;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use shoal_base::Code;
use shoal_bucket::{
    BucketDevice, CreateOptions, Follower, Options, Owner, Place, Request, Runtime,
};
use shoal_device::Device;
use shoal_format::bucket::manifest::{Body, ManifestHeader, decode, encode};
use shoal_format::bucket::object::{ObjectHeader, ObjectKind, pack, unpack};
use shoal_format::bucket::{log_name, manifest_name};
use shoal_skip::wait_until;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;

const SPACE: u64 = 4 << 20;
const CREATE: CreateOptions =
    CreateOptions { capacity: SPACE, overwrite: false, race: None, progress: |_, _| {} };

/// A runtime whose time passes only when it waits for nothing else.
fn runtime() -> Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_time().start_paused(true).build().unwrap().into()
}

/// The same, and a handle by which a test lets time pass.
fn timed() -> (Runtime, Handle) {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let tokio = builder.enable_time().start_paused(true).build().unwrap();
    let handle = tokio.handle().clone();
    (tokio.into(), handle)
}

/// Follows in simulated time, from a first look on.
fn follow_timed(place: &Place, options: Options) -> (Follower, Handle) {
    let (runtime, time) = timed();
    let follower = Follower::open(place, options, runtime).unwrap();
    assert!(!follower.advance().unwrap());
    (follower, time)
}

fn pass(time: &Handle, ms: u64) {
    time.block_on(tokio::time::advance(Duration::from_millis(ms)));
}

/// Looks each 50 ms until the owner is silent, and returns the milliseconds.
fn until_silent(follower: &Follower, time: &Handle) -> u64 {
    let mut ms = 0;
    while follower.owner(Duration::ZERO).unwrap() != Owner::Silent {
        assert!(ms < 30_000, "an owner that writes nothing is silent");
        pass(time, 50);
        ms += 50;
        follower.advance().unwrap();
    }
    ms
}

fn place() -> Place {
    Place::new(Arc::new(InMemory::new()), "volume", "memory")
}

fn options() -> Options {
    Options { grace: Duration::ZERO, log_objects_max: 4, ..Options::default() }
}

fn create(place: &Place) -> BucketDevice {
    BucketDevice::create(place, &CREATE, options(), runtime()).unwrap()
}

fn follow(place: &Place) -> Follower {
    Follower::open(place, options(), runtime()).unwrap()
}

fn first(device: &BucketDevice) -> u8 {
    let mut byte = [0];
    device.read_at(&mut byte, 0).unwrap();
    byte[0]
}

fn flush(device: &BucketDevice, byte: u8) {
    device.write_at(&[byte; 512], 0).unwrap();
    device.flush().unwrap();
}

#[test]
fn each_flush_is_seen_and_an_older_view_stays_as_it_is() {
    let place = place();
    let owner = create(&place);
    flush(&owner, 1);
    let follower = follow(&place);
    assert_eq!(first(&follower.view().unwrap()), 1);
    assert!(!follower.advance().unwrap());
    let before = follower.view().unwrap();
    owner.write_at(&[2; 512], 0).unwrap();
    assert!(!follower.advance().unwrap(), "it is not flushed");
    owner.flush().unwrap();
    assert!(follower.advance().unwrap());
    assert_eq!((first(&before), first(&follower.view().unwrap())), (1, 2));
    assert!(before.write_at(&[3], 0).is_err(), "a view cannot be written");
}

#[test]
fn a_look_at_an_unchanged_volume_is_two_requests_and_a_new_flush_needs_none_to_be_read() {
    let place = place();
    let owner = create(&place);
    let follower = follow(&place);
    let before = follower.counted();
    assert!(!follower.advance().unwrap());
    let after = follower.counted();
    assert_eq!(after.count.iter().sum::<u64>() - before.count.iter().sum::<u64>(), 2);
    flush(&owner, 7);
    assert!(follower.advance().unwrap());
    let before = follower.counted();
    assert_eq!(first(&follower.view().unwrap()), 7);
    assert_eq!(follower.counted(), before, "the pieces came with the log object");
}

#[test]
fn a_follower_that_fell_behind_what_is_collected_begins_with_a_manifest() {
    let place = place();
    let owner = create(&place);
    let follower = follow(&place);
    for byte in 1..100 {
        flush(&owner, byte);
    }
    assert!(follower.advance().unwrap());
    assert_eq!(first(&follower.view().unwrap()), 99);
    assert!(!follower.advance().unwrap());
    for byte in 100..103 {
        flush(&owner, byte);
        assert!(follower.advance().unwrap());
        assert_eq!(first(&follower.view().unwrap()), byte);
    }
}

#[test]
fn a_closed_volume_needs_no_patience() {
    let place = place();
    let owner = create(&place);
    flush(&owner, 1);
    let follower = follow(&place);
    assert_eq!(follower.owner(Duration::ZERO).unwrap(), Owner::Works);
    owner.close().unwrap();
    assert!(follower.advance().unwrap());
    assert_eq!(follower.owner(Duration::from_secs(1000)).unwrap(), Owner::Closed);
    let again = BucketDevice::open(&place, options(), runtime()).unwrap();
    assert!(follower.advance().unwrap());
    assert_eq!(follower.owner(Duration::ZERO).unwrap(), Owner::Works);
    flush(&again, 2);
    assert!(follower.advance().unwrap());
    assert_eq!(first(&follower.view().unwrap()), 2);
}

#[test]
fn silence_counts_in_time_in_which_the_store_answers() {
    let place = place();
    let owner = create(&place);
    flush(&owner, 1);
    let (follower, time) = follow_timed(&place, options());
    // This process is there, so only the lease counts, and the pause between two looks.
    let lease_ms = Options::default().lease_min.as_millis() as u64;
    assert!((lease_ms + 250..=lease_ms + 350).contains(&until_silent(&follower, &time)));
    // One long pause between two looks is not silence: this process may have been stopped.
    flush(&owner, 2);
    assert!(follower.advance().unwrap());
    pass(&time, 3000);
    assert!(!follower.advance().unwrap());
    assert_eq!(follower.owner(Duration::ZERO).unwrap(), Owner::Works);
}

/// Each beat was taken for a change: a replica opened a new view, and looked ten times a second for
/// the next five seconds.
#[test]
fn a_beat_ends_the_silence_and_is_no_change() {
    let (objects, place, calls) = world();
    let owner = create(&place);
    flush(&owner, 1);
    let (follower, time) = follow_timed(&place, options());
    until_silent(&follower, &time);
    let slots = calls.block_on(objects.list(Some(&"volume/log".into())).count()) as u64;
    let at = |slot| Path::from(format!("volume/{}", log_name(slot)));
    let last = calls.block_on(async { objects.get(&at(slots)).await?.bytes().await }).unwrap();
    let volume = header_of(&objects, &calls).volume;
    let (header, _) = unpack(&last, &log_name(slots), volume).unwrap();
    let beat = ObjectHeader { kind: ObjectKind::Beat, sequence: slots + 1, ..header };
    let (beat, _) = pack(beat, &[]);
    calls.block_on(objects.put(&at(slots + 1), beat.into())).unwrap();
    assert!(!follower.advance().unwrap());
    assert_eq!(follower.owner(Duration::ZERO).unwrap(), Owner::Works);
    assert!(until_silent(&follower, &time) > 0);
}

/// An owner that may be stalled for long promises that.
#[test]
fn an_owner_is_waited_for_as_long_as_it_was_opened_to_be() {
    let place = place();
    let seconds = Duration::from_secs(45);
    let options = Options { lease_min: seconds, ..options() };
    let owner = BucketDevice::create(&place, &CREATE, options, runtime()).unwrap();
    flush(&owner, 1);
    let (follower, time) = follow_timed(&place, Options::default());
    for _ in 0..45 {
        assert_eq!(follower.owner(Duration::ZERO).unwrap(), Owner::Works);
        pass(&time, 1000);
        assert!(!follower.advance().unwrap());
    }
    assert!(until_silent(&follower, &time) <= 350);
}

/// A manifest has no lease: that is in the last object which it covers.
#[test]
fn an_owner_that_ends_right_after_a_manifest_is_not_waited_for_a_minute() {
    let place = place();
    let threads = Runtime::start().unwrap();
    let owner = BucketDevice::create(&place, &CREATE, options(), threads).unwrap();
    // With the fence these are as many objects as a manifest is written after.
    for byte in 1..=3 {
        flush(&owner, byte);
    }
    wait_until("a manifest is written", || owner.counted().of(Request::PutManifest) >= 2);
    drop(owner);
    let (follower, time) = follow_timed(&place, options());
    until_silent(&follower, &time);
}

#[test]
fn the_owner_that_is_replaced_writes_nothing_any_more() {
    let place = place();
    let owner = create(&place);
    flush(&owner, 1);
    let follower = follow(&place);
    flush(&owner, 2);
    owner.write_at(&[3; 512], 0).unwrap();
    let taken = follower.take().unwrap();
    assert_eq!(first(&taken), 2, "what was flushed, though the follower had not read it");
    let error = owner.flush().unwrap_err();
    assert_eq!(error.code(), Code::ReadOnly);
    let by = format!("memory: process {} ", std::process::id());
    let said = error.to_string();
    assert!(said.starts_with(&by) && said.contains("has taken the volume over"), "{said}");
    flush(&taken, 4);
    assert!(follower.advance().unwrap());
    assert_eq!(first(&follower.view().unwrap()), 4);
    taken.close().unwrap();
}

/// It took the volume from the one that had just taken it, which became read-only.
#[test]
fn of_two_standbys_the_slower_one_goes_on_following() {
    let place = place();
    drop(create(&place));
    let (one, two) = (follow(&place), follow(&place));
    let first_owner = one.take().unwrap();
    assert_eq!(two.take().map(drop).unwrap_err().code(), Code::Busy);
    flush(&first_owner, 1);
    assert!(two.advance().unwrap());
    assert_eq!(two.owner(Duration::ZERO).unwrap(), Owner::Works);
    // By hand it may.
    let second_owner = two.take().unwrap();
    assert_eq!(first(&second_owner), 1);
    flush(&second_owner, 2);
    assert!(first_owner.write_at(&[3; 512], 0).and_then(|()| first_owner.flush()).is_err());
    assert!(one.advance().unwrap());
    assert_eq!(first(&one.view().unwrap()), 2);
}

/// A store, and a way to wait for its calls.
fn world() -> (Arc<InMemory>, Place, tokio::runtime::Runtime) {
    let objects = Arc::new(InMemory::new());
    let place = Place::new(objects.clone(), "volume", "memory");
    (objects, place, tokio::runtime::Builder::new_current_thread().build().unwrap())
}

fn manifest(number: u64) -> Path {
    Path::from(format!("volume/{}", manifest_name(number)))
}

fn read(objects: &InMemory, calls: &tokio::runtime::Runtime, number: u64) -> Bytes {
    calls.block_on(async { objects.get(&manifest(number)).await?.bytes().await }).unwrap()
}

fn header_of(objects: &InMemory, calls: &tokio::runtime::Runtime) -> ManifestHeader {
    decode(&read(objects, calls, 1), 1).unwrap().header
}

/// The next owner need not wait for the last manifest, nor read anything because of it: the two
/// collide, and it takes the next number.
#[test]
fn the_log_says_that_the_volume_is_closed_before_a_manifest_does() {
    let (objects, place, calls) = world();
    let owner = create(&place);
    flush(&owner, 1);
    let follower = follow(&place);
    owner.write_at(&[2; 512], 0).unwrap();
    owner.close().unwrap();
    // The store as it is between the two.
    let number = owner.counted().of(Request::PutManifest);
    let (last, raw) = (manifest(number), read(&objects, &calls, number));
    calls.block_on(objects.delete(&last)).unwrap();
    assert!(follower.advance().unwrap());
    assert_eq!(follower.owner(Duration::from_secs(1000)).unwrap(), Owner::Closed);
    assert_eq!(first(&follower.view().unwrap()), 2);
    calls.block_on(objects.put(&last, raw.into())).unwrap();
    let before = follower.counted();
    let taken = follower.take().unwrap();
    let after = follower.counted();
    let more = |request| after.of(request) - before.of(request);
    assert_eq!((more(Request::PutManifest), more(Request::PutLog)), (2, 1), "claims, a fence");
    assert_eq!(more(Request::List), 0);
    assert_eq!(first(&taken), 2);
    taken.close().unwrap();
}

/// An owner whose volume is taken over while it closes it has closed it.
#[test]
fn a_successor_that_is_faster_than_the_last_manifest_is_no_failure() {
    let (objects, place, calls) = world();
    let owner = create(&place);
    flush(&owner, 1);
    let theirs = decode(&read(&objects, &calls, 1), 1).unwrap().header;
    let theirs = ManifestHeader { sequence: 2, epoch: 2, writer: 77, ..theirs };
    let claim = encode(theirs, &Body::Claim(b"it".to_vec()));
    calls.block_on(objects.put(&manifest(2), claim.into())).unwrap();
    owner.write_at(&[2; 512], 0).unwrap();
    owner.close().unwrap();
    owner.close().unwrap();
    assert_eq!(owner.write_at(&[3; 512], 0).unwrap_err().code(), Code::ReadOnly);
    let options = Options { force: true, ..options() };
    assert_eq!(first(&BucketDevice::open(&place, options, runtime()).unwrap()), 2);
}

/// The next owner's claim is there, its fence is not yet: another standby that read the end of the
/// log took the volume from it.
#[test]
fn a_closed_volume_that_is_claimed_is_nobody_elses() {
    let (objects, place, calls) = world();
    let owner = create(&place);
    flush(&owner, 1);
    let follower = follow(&place);
    owner.close().unwrap();
    let last = owner.counted().of(Request::PutManifest);
    let (theirs, next) = (decode(&read(&objects, &calls, last), last).unwrap().header, last + 1);
    let theirs = ManifestHeader { sequence: next, epoch: next, writer: 77, base: last, ..theirs };
    let theirs = ManifestHeader { closed: 0, ..theirs };
    let claim = encode(theirs, &Body::Claim(b"it".to_vec()));
    calls.block_on(objects.put(&manifest(next), claim.into())).unwrap();
    assert!(follower.advance().unwrap());
    assert_eq!(follower.owner(Duration::from_secs(1000)).unwrap(), Owner::Works);
    // The same with the claim in the place of the last manifest, and read by a new follower.
    calls.block_on(objects.delete(&manifest(last))).unwrap();
    let base = ManifestHeader { base: 0, ..theirs };
    let claim =
        encode(ManifestHeader { sequence: last, epoch: last, ..base }, &Body::Claim(vec![]));
    calls.block_on(objects.put(&manifest(last), claim.into())).unwrap();
    calls.block_on(objects.delete(&manifest(next))).unwrap();
    let late = follow(&place);
    assert_eq!(late.owner(Duration::from_secs(1000)).unwrap(), Owner::Works);
}

/// The last object of an owner tells others that it has ended: no beat may come behind it.
#[test]
fn nothing_follows_the_end_of_the_log() {
    let (objects, place, calls) = world();
    let threads = Runtime::start().unwrap();
    let quick = Options { lease_min: Duration::from_millis(20), ..options() };
    let owner = BucketDevice::create(&place, &CREATE, quick, threads).unwrap();
    flush(&owner, 1);
    owner.close().unwrap();
    let slots = || calls.block_on(objects.list(Some(&"volume/log".into())).count());
    let at_end = slots();
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(slots(), at_end);
    assert_eq!(owner.flush().unwrap_err().code(), Code::ReadOnly);
}

#[test]
fn where_there_is_no_volume_nothing_is_followed() {
    let error = Follower::open(&place(), options(), runtime()).unwrap_err();
    assert_eq!(error.code(), Code::NotFound);
}
