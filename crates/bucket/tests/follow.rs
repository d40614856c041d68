//! Following a volume: what is seen, what is known of its owner, and the take-over.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use object_store::memory::InMemory;
use shoal_base::Code;
use shoal_bucket::{
    BucketDevice, CreateOptions, Follower, Options, Owner, Place, Request, Runtime,
};
use shoal_device::Device;
use std::sync::Arc;
use std::time::Duration;

const SPACE: u64 = 4 << 20;
const CREATE: CreateOptions =
    CreateOptions { capacity: SPACE, overwrite: false, race: None, progress: |_| {} };

/// A runtime whose time passes only when it waits for nothing else.
fn runtime() -> Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_time().start_paused(true).build().unwrap().into()
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
    let store = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let follower = Follower::open(&place, options(), store.into()).unwrap();
    let begun = std::time::Instant::now();
    // This process is there, so only the lease counts.
    while follower.owner(Duration::ZERO).unwrap() != Owner::Silent {
        assert!(!follower.advance().unwrap());
        std::thread::sleep(Duration::from_millis(50));
        assert!(
            begun.elapsed() < Duration::from_secs(30),
            "an owner that writes nothing is silent"
        );
    }
    assert!(begun.elapsed() > Options::default().lease_min);
    // One long pause between two looks is not silence: this process may have been stopped.
    flush(&owner, 2);
    assert!(follower.advance().unwrap());
    std::thread::sleep(Duration::from_millis(3000));
    assert!(!follower.advance().unwrap());
    assert_eq!(follower.owner(Duration::ZERO).unwrap(), Owner::Works);
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
    let begun = std::time::Instant::now();
    while owner.counted().of(Request::PutManifest) < 2 {
        std::thread::sleep(Duration::from_millis(1));
        assert!(begun.elapsed() < Duration::from_secs(30), "a manifest is written");
    }
    drop(owner);
    let store = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let follower = Follower::open(&place, options(), store.into()).unwrap();
    let begun = std::time::Instant::now();
    while follower.owner(Duration::ZERO).unwrap() != Owner::Silent {
        follower.advance().unwrap();
        std::thread::sleep(Duration::from_millis(50));
        assert!(begun.elapsed() < Duration::from_secs(30));
    }
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
    assert_eq!(owner.flush().unwrap_err().code(), Code::ReadOnly);
    flush(&taken, 4);
    assert!(follower.advance().unwrap());
    assert_eq!(first(&follower.view().unwrap()), 4);
    taken.close().unwrap();
}

#[test]
fn of_two_standbys_each_may_take_over_and_the_later_one_owns() {
    let place = place();
    drop(create(&place));
    let (one, two) = (follow(&place), follow(&place));
    let first_owner = one.take().unwrap();
    flush(&first_owner, 1);
    let second_owner = two.take().unwrap();
    assert_eq!(first(&second_owner), 1);
    flush(&second_owner, 2);
    assert!(first_owner.write_at(&[3; 512], 0).and_then(|()| first_owner.flush()).is_err());
    assert!(one.advance().unwrap());
    assert_eq!(first(&one.view().unwrap()), 2);
}

#[test]
fn where_there_is_no_volume_nothing_is_followed() {
    let error = Follower::open(&place(), options(), runtime()).unwrap_err();
    assert_eq!(error.code(), Code::NotFound);
}
