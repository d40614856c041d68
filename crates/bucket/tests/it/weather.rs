//! A store in bad weather, spoken to by HTTP: what passes is waited for, what does not is said at
//! once, and nothing is given up for a moment's refusal.

use shoal_base::{Code, Error, Result};
use shoal_bucket::{BucketDevice, CreateOptions, Limits, Options, Place, Runtime};
use shoal_device::Device;
use shoal_skip::s3::{KEY, Request, Server, Weather};
use shoal_skip::wait_until;
use std::collections::HashMap;
use std::fs;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::{Duration, Instant};

const CREATE: CreateOptions =
    CreateOptions { capacity: 1 << 40, overwrite: false, race: None, progress: |_, _| {} };

fn limits(first: Duration) -> Limits {
    Limits { first, ..Limits::default() }
}

fn options() -> Options {
    // Long enough for a busy machine, where something is expected to succeed.
    let limits = limits(Duration::from_secs(60));
    let notice = |notice: &str| eprintln!("{notice}");
    Options { grace: Duration::ZERO, force: true, limits, notice, ..Options::default() }
}

/// A place in a store that these variables name.
fn place_by(variables: &[(&'static str, String)]) -> Result<Place> {
    let variables: HashMap<_, _> = variables.iter().cloned().collect();
    Place::parse_with("S3://bucket/a/volume", &|name| variables.get(name).cloned())
}

fn runtime() -> Runtime {
    Runtime::start().unwrap()
}

fn start() -> (Server, Place, Arc<BucketDevice>) {
    let server = Server::start();
    let place = place_by(&server.variables()).unwrap();
    let device = BucketDevice::create(&place, &CREATE, options(), runtime()).unwrap();
    (server, place, Arc::new(device))
}

fn read(device: &dyn Device, at: u64, len: usize) -> Result<Vec<u8>> {
    let mut back = vec![0; len];
    device.read_at(&mut back, at).map(|()| back)
}

fn noise(len: usize) -> Vec<u8> {
    let mut state = 1u64;
    let next = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    };
    (0..len).map(next).collect()
}

fn is_put(request: &Request) -> bool {
    request.method == "PUT"
}

#[test]
fn refusals_within_the_limit_cost_nothing_but_time() {
    let (server, place, device) = start();
    let weathers = [
        Weather::Answer(403, "AccessDenied", ""),
        Weather::Answer(403, "RequestTimeTooSkewed", ""),
        Weather::Answer(401, "Unauthorized", ""),
        Weather::Answer(400, "ExpiredToken", ""),
        Weather::Answer(503, "SlowDown", ""),
        Weather::Answer(429, "TooManyRequests", ""),
        Weather::Hang,
    ];
    for (n, weather) in (0..).zip(weathers) {
        device.write_at(&[n as u8 + 1; 5000], n * 10_000).unwrap();
        let before = server.requests();
        let hangs = weather == Weather::Hang;
        set_weather_of_puts(&server, u32::MAX, weather.clone());
        let flushing = device.clone();
        let flush = std::thread::spawn(move || flushing.flush());
        wait_until("it is tried again", || server.requests() > before + if hangs { 0 } else { 3 });
        assert!(!flush.is_finished(), "{weather:?}");
        server.set_weather(|_| Weather::Fair);
        flush.join().unwrap().unwrap();
    }
    drop(device);
    let device = BucketDevice::open(&place, options(), runtime()).unwrap();
    for n in 0..7 {
        assert_eq!(read(&device, n * 10_000, 5000).unwrap(), vec![n as u8 + 1; 5000]);
    }
}

/// Sets the weather of the next PUTs. All other requests have fair weather.
fn set_weather_of_puts(server: &Server, mut count: u32, weather: Weather) {
    server.set_weather(move |request| match is_put(request) && count > 0 {
        true => {
            count -= 1;
            weather.clone()
        }
        false => Weather::Fair,
    });
}

#[test]
fn a_reply_that_is_lost_is_found_out() {
    let (server, place, device) = start();
    set_weather_of_puts(&server, 3, Weather::Lost);
    device.write_at(&[1; 5000], 0).unwrap();
    device.flush().unwrap();
    device.write_at(&[2; 5000], 0).unwrap();
    device.flush().unwrap();
    drop(device);
    let device = BucketDevice::open(&place, options(), runtime()).unwrap();
    assert_eq!(read(&device, 0, 5000).unwrap(), vec![2; 5000]);
}

#[test]
fn a_store_says_when_it_wants_to_be_asked_again() {
    let (server, _, device) = start();
    set_weather_of_puts(&server, 1, Weather::Answer(503, "SlowDown", "retry-after: 2\r\n"));
    device.write_at(&[1; 5000], 0).unwrap();
    let begun = Instant::now();
    device.flush().unwrap();
    assert!(begun.elapsed() >= Duration::from_secs(2));
}

/// The error of the first thing that a command does.
fn first(variables: &[(&'static str, String)], first: Duration) -> Error {
    let options = Options { limits: limits(first), ..options() };
    let opened =
        place_by(variables).and_then(|place| BucketDevice::open(&place, options, runtime()));
    opened.err().expect("an error")
}

#[test]
fn mistakes_of_the_first_minute_are_said_at_once() {
    let server = Server::start();
    let with = |name: &'static str, value: &str| {
        let mut variables = server.variables();
        variables.retain(|(other, _)| *other != name);
        variables.push((name, value.to_owned()));
        variables
    };
    // Longer than any test: these do not wait for it.
    let never = Duration::from_secs(3600);
    let says = |error: Error, code: Code, text: &str| {
        let said = error.to_string();
        assert!(error.code() == code && said.contains(text), "{code:?} {text}: {said}");
        assert!(said.starts_with("s3://bucket/a/volume: ") || said.starts_with("S3://"), "{said}");
    };
    says(first(&server.variables(), never), Code::NotFound, "there is no volume");
    let unknown = with("AWS_ACCESS_KEY_ID", "nobody");
    says(first(&unknown, never), Code::Access, "are the keys right?");
    server.set_weather(|_| Weather::Answer(403, "SignatureDoesNotMatch", ""));
    says(first(&server.variables(), never), Code::Access, "is the secret key right?");
    server.set_weather(|_| Weather::Answer(404, "NoSuchBucket", ""));
    says(first(&server.variables(), never), Code::NotFound, "no such bucket");
    // These are waited for, for a while.
    let soon = Duration::from_millis(300);
    server.set_weather(|_| Weather::Hang);
    says(first(&server.variables(), soon), Code::Io, "has not answered");
    server.set_weather(|_| Weather::Fair);
    let free = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
    let nobody = with("AWS_ENDPOINT_URL", &format!("http://127.0.0.1:{free}"));
    says(first(&nobody, soon), Code::Io, "does it run?");
    let plain = with("AWS_ENDPOINT_URL", &server.endpoint().replace("http:", "https:"));
    says(first(&plain, soon), Code::Io, "is the address of the store right");
    let bare = with("AWS_ENDPOINT_URL", "localhost:9000");
    says(first(&bare, never), Code::Invalid, "must begin with https:// or http://");
    let mut none = server.variables();
    none.retain(|(name, _)| !name.contains("KEY"));
    none.push(("HOME", "/nowhere".to_owned()));
    none.push(("AWS_EC2_METADATA_DISABLED", "true".to_owned()));
    says(first(&none, never), Code::Invalid, "there are no credentials");
}

#[test]
fn keys_that_are_rotated_in_a_file_are_used() {
    let base = std::env::temp_dir().join(format!("shoal-weather-{}", std::process::id()));
    fs::create_dir_all(&base).unwrap();
    let file = base.join("credentials");
    let write = |key: &str| {
        let text = format!("[default]\naws_access_key_id={key}\naws_secret_access_key=s\n");
        fs::write(&file, text).unwrap();
    };
    write(KEY);
    let server = Server::start();
    let mut variables = server.variables();
    variables.retain(|(name, _)| !name.contains("KEY"));
    variables.push(("AWS_SHARED_CREDENTIALS_FILE", file.display().to_string()));
    let place = place_by(&variables).unwrap();
    let device = Arc::new(BucketDevice::create(&place, &CREATE, options(), runtime()).unwrap());
    device.write_at(&[1; 5000], 0).unwrap();
    device.flush().unwrap();
    server.set_key("another-key");
    device.write_at(&[2; 5000], 0).unwrap();
    let (before, flushing) = (server.requests(), device.clone());
    let flush = std::thread::spawn(move || flushing.flush());
    wait_until("it is refused", || server.requests() > before + 2);
    write("another-key");
    flush.join().unwrap().unwrap();
    fs::remove_dir_all(&base).unwrap();
}

#[test]
fn a_quota_ends_nothing() {
    let (server, place, device) = start();
    let data = noise(300_000);
    device.write_at(&data, 0).unwrap();
    device.flush().unwrap();
    server.set_quota(server.bytes() + 100_000);
    device.write_at(&data, 1 << 20).unwrap();
    for _ in 0..2 {
        assert_eq!(device.flush().unwrap_err().code(), Code::NoSpace);
    }
    assert!(device.is_full() && device.room() == Some(0));
    // Removals, and their checkpoints, go on in memory.
    device.write_at(&[9; 5000], 2 << 20).unwrap();
    assert_eq!(device.flush().unwrap_err().code(), Code::NoSpace);
    assert_eq!(read(&*device, 1 << 20, data.len()).unwrap(), data);
    server.set_quota(u64::MAX);
    device.flush().unwrap();
    assert!(!device.is_full() && device.room().is_none());
    drop(device);
    let device = BucketDevice::open(&place, options(), runtime()).unwrap();
    assert_eq!(read(&device, 0, data.len()).unwrap(), data);
    assert_eq!(read(&device, 1 << 20, data.len()).unwrap(), data);
    assert_eq!(read(&device, 2 << 20, 5000).unwrap(), [9; 5000]);
}

/// Data objects that the quota refused are sent when it is lifted, those between two flushes, too.
#[test]
fn data_objects_that_did_not_fit_are_sent_later() {
    let server = Server::start();
    let place = place_by(&server.variables()).unwrap();
    let options = Options { staged_max: 200_000, ..options() };
    let device = BucketDevice::create(&place, &CREATE, options, runtime()).unwrap();
    let data = noise(1_500_000);
    server.set_quota(server.bytes() + 150_000);
    for (at, part) in data.chunks(60_000).enumerate() {
        device.write_at(part, at as u64 * 60_000).unwrap();
    }
    assert_eq!(device.flush().unwrap_err().code(), Code::NoSpace);
    server.set_quota(u64::MAX);
    device.flush().unwrap();
    drop(device);
    let device = BucketDevice::open(&place, self::options(), runtime()).unwrap();
    assert!(read(&device, 0, data.len()).unwrap() == data);
}

/// A volume that is closed while there is no room is not lost: closing waits.
#[test]
fn closing_waits_for_room() {
    let (server, place, device) = start();
    device.write_at(&noise(100_000), 0).unwrap();
    server.set_quota(server.bytes());
    let (before, closing) = (server.requests(), device.clone());
    let close = std::thread::spawn(move || closing.close());
    wait_until("it is tried again", || server.requests() > before + 1);
    assert!(!close.is_finished());
    server.set_quota(u64::MAX);
    close.join().unwrap().unwrap();
    let device = BucketDevice::open(&place, options(), runtime()).unwrap();
    assert!(read(&device, 0, 100_000).unwrap() == noise(100_000));
}

#[test]
fn damaged_objects_are_named_at_once() {
    let (server, place, device) = start();
    let data = noise(300_000);
    device.write_at(&data, 0).unwrap();
    device.flush().unwrap();
    device.close().unwrap();
    let log = server.names().into_iter().find(|name| name.ends_with("log/00000000000000000002"));
    let log = log.unwrap_or_else(|| panic!("no log object in {:?}", server.names()));
    let open = || BucketDevice::read_only(&place, options(), runtime()).unwrap();
    let says = |text: &str| {
        let error = read(&open(), 0, data.len()).unwrap_err();
        assert!(error.is_damage() && error.to_string().contains(text), "{error}");
        assert!(error.to_string().contains("log/00000000000000000002"), "{error}");
    };
    let whole = Arc::new(std::sync::Mutex::new(Vec::new()));
    let keep = whole.clone();
    server.change(&log, |object| {
        keep.lock().unwrap().clone_from(&object);
        Some(object[..100].to_vec())
    });
    says("ends");
    server.change(&log, |_| Some(Vec::new()));
    says("ends");
    let kept = whole.lock().unwrap().clone();
    server.change(&log, |_| Some(kept.iter().map(|byte| byte ^ 1).collect()));
    says("checksum");
    server.change(&log, |_| Some(kept.clone()));
    assert!(read(&open(), 0, data.len()).unwrap() == data);
    server.change(&log, |_| None);
    says("is missing");
}

#[test]
fn a_bucket_that_is_emptied_is_noticed_when_the_volume_is_closed() {
    let (server, _, device) = start();
    device.write_at(&[1; 5000], 0).unwrap();
    device.flush().unwrap();
    for name in server.names() {
        server.change(&name, |_| None);
    }
    let said = device.close().unwrap_err().to_string();
    assert!(said.contains("has deleted objects of this volume"), "{said}");
    let refused = device.write_at(&[2; 10], 0).unwrap_err().to_string();
    assert!(refused.contains("has deleted objects"), "{refused}");
}

#[test]
fn a_volume_inside_another_is_refused_both_ways() {
    let (server, _, device) = start();
    device.close().unwrap();
    let variables: HashMap<_, _> = server.variables().into_iter().collect();
    let create = |url: &str| {
        let place = Place::parse_with(url, &|name| variables.get(name).cloned()).unwrap();
        let made = BucketDevice::create(&place, &CREATE, options(), runtime());
        made.map(drop).map_err(|error| error.to_string())
    };
    let inside = create("s3://bucket/a/volume/b/c").unwrap_err();
    assert!(inside.contains("is inside the volume at prefix 'a/volume'"), "{inside}");
    let around = create("s3://bucket/a").unwrap_err();
    assert!(around.contains("holds other objects"), "{around}");
    create("s3://bucket/a/volume2").unwrap();
}

/// A Ceph of version 16 ignores the condition of a create in a bucket that keeps versions.
#[test]
fn versions_that_end_the_condition_end_the_writing() {
    let (server, place, device) = start();
    device.write_at(&[7; 100], 0).unwrap();
    device.flush().unwrap();
    // Of a store that keeps the condition they do not matter.
    server.set_versioning("Enabled");
    device.write_at(&[8; 100], 0).unwrap();
    device.flush().unwrap();
    device.close().unwrap();
    let device = BucketDevice::open(&place, options(), runtime()).unwrap();
    device.write_at(&[9; 100], 0).unwrap();
    device.flush().unwrap();
    assert!(!server.names().iter().any(|name| name.contains("/race/")));

    server.set_versioning("");
    let (later, again) = (place_by(&server.variables()).unwrap(), options());
    device.close().unwrap();
    let device = BucketDevice::open(&later, again, runtime()).unwrap();
    server.set_versioning("Enabled");
    server.set_weather(|_| Weather::Unconditional);
    device.write_at(&[10; 100], 0).unwrap();
    let error = device.flush().unwrap_err();
    assert_eq!(error.code(), Code::NotSupported);
    assert!(error.to_string().contains("Suspend the bucket's versioning"), "{error}");
    assert!(device.write_at(&[11; 100], 0).is_err(), "nothing is written any more");
    // Nobody takes the volume over, because nobody would be cut off.
    let error = BucketDevice::open(&later, options(), runtime()).err().unwrap();
    assert_eq!(error.code(), Code::NotSupported, "{error}");
    server.set_versioning("Suspended");
    server.set_weather(|_| Weather::Fair);
    let device = BucketDevice::open(&later, options(), runtime()).unwrap();
    assert_eq!(read(&*Arc::new(device), 0, 1).unwrap(), [10], "in the store, not acknowledged");
}
