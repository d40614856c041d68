//! A store whose weather lasts for some time, on a clock that stands still while nobody waits.

use shoal_base::Code;
use shoal_bucket::faulty::{Faults, Scope, Weather, World};
use shoal_bucket::{BucketDevice, CreateOptions, Options, Place, Runtime};
use shoal_device::Device;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const CREATE: CreateOptions =
    CreateOptions { capacity: 1 << 30, overwrite: false, race: None, progress: |_, _| {} };

fn runtime() -> Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_time().start_paused(true).build().unwrap().into()
}

fn place(world: &Arc<World>) -> Place {
    Place::new(Arc::new(world.connect(Faults::default())), "volume", "faulty")
}

/// A writer that had to wait for room panicked: its sleep was begun outside of the runtime.
#[test]
fn a_writer_waits_for_room_and_goes_on() {
    let world = World::new(1);
    let options = Options { staged_max: 10_000, force: true, ..Options::default() };
    let device = BucketDevice::create(&place(&world), &CREATE, options.clone(), runtime()).unwrap();
    device.write_at(&[1; 5000], 0).unwrap();
    world.set_weather(Weather::Quota(world.bytes()), Duration::from_secs(60));
    assert_eq!(device.flush().unwrap_err().code(), Code::NoSpace);
    assert!(device.is_full());
    // More than may be in memory.
    let data: Vec<u8> = (0..200_000u32).map(|n| (n % 251) as u8).collect();
    device.write_at(&data, 1 << 20).unwrap();
    assert!(!device.is_full(), "it has waited for that");
    device.flush().unwrap();
    drop(device);
    world.set_weather(Weather::Fair, Duration::ZERO);
    let device = BucketDevice::open(&place(&world), options, runtime()).unwrap();
    let mut back = vec![0; data.len()];
    device.read_at(&mut back, 1 << 20).unwrap();
    assert!(back == data);
}

/// The first line of it was the error, after five minutes: attempts that hang last a minute each,
/// and only the fifth failure was said.
#[test]
fn a_store_that_hangs_is_reported_after_five_seconds() {
    static TOLD: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let world = World::new(1);
    let notice = |notice: &str| TOLD.lock().unwrap().push(notice.to_owned());
    let options = Options { notice, ..Options::default() };
    let device = BucketDevice::create(&place(&world), &CREATE, options, runtime()).unwrap();
    for (round, seconds) in [(1, 20), (2, 200)] {
        world.set_weather(Weather::Hung(Scope::ALL), Duration::from_secs(seconds));
        device.write_at(&[round; 512], 0).unwrap();
        device.flush().unwrap();
        world.set_weather(Weather::Fair, Duration::ZERO);
        let told = std::mem::take(&mut *TOLD.lock().unwrap());
        let told: Vec<_> = told.iter().filter(|notice| notice.contains("creating log/")).collect();
        assert_eq!(told.len(), 1, "{told:?}");
        let wanted = "has not been answered for 5 s; trying for 300 s";
        assert!(told.iter().all(|notice| notice.ends_with(wanted)), "{told:?}");
    }
}

#[test]
fn a_damaged_manifest_is_named_as_the_object_that_it_is() {
    let world = World::new(1);
    let options = Options::default();
    let device = BucketDevice::create(&place(&world), &CREATE, options.clone(), runtime()).unwrap();
    device.close().unwrap();
    world.change("volume/manifest/00000000000000000002", |bytes| Some(bytes[..50].to_vec()));
    let opened = BucketDevice::read_only(&place(&world), options, runtime());
    let error = opened.err().expect("an error");
    let said = error.to_string();
    assert!(error.is_damage() && said.contains("object manifest/00000000000000000002"), "{said}");
}
