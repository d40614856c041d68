//! A volume's address space in a bucket in memory: what was flushed is there for whoever comes
//! next, and only one process writes.

use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use shoal_base::Code;
use shoal_bucket::{BucketDevice, CreateOptions, Layering, Options, Place, Race, Request, Runtime};
use shoal_device::Device;
use shoal_format::Compression;
use shoal_format::bucket::manifest::{
    Body, ManifestHeader, ManifestKind, ObjectEntry, decode, encode,
};
use shoal_format::bucket::manifest_name;
use shoal_format::claim::{ClaimBlock, OwnerClaim};
use shoal_skip::wait_until;
use std::sync::Arc;
use std::time::Duration;

const CAPACITY: u64 = 1 << 40;
const CREATE: CreateOptions =
    CreateOptions { capacity: CAPACITY, overwrite: false, race: None, progress: |_, _| {} };

fn options() -> Options {
    Options { grace: Duration::ZERO, force: true, ..Options::default() }
}

fn place() -> (Arc<InMemory>, Place) {
    let store = Arc::new(InMemory::new());
    (store.clone(), Place::new(store, "a/volume", "memory"))
}

fn create(place: &Place, options: Options) -> BucketDevice {
    BucketDevice::create(place, &CREATE, options, Runtime::start().unwrap()).unwrap()
}

fn open(place: &Place) -> BucketDevice {
    BucketDevice::open(place, options(), Runtime::start().unwrap()).unwrap()
}

fn read(device: &dyn Device, at: u64, len: usize) -> Vec<u8> {
    let mut back = vec![0xee; len];
    device.read_at(&mut back, at).unwrap();
    back
}

fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..len).map(next).collect()
}

/// Names in the bucket.
fn names(store: &InMemory) -> Vec<String> {
    let runtime = Runtime::start().unwrap();
    let list = store.list(None);
    let found: Vec<_> = runtime.wait(futures::TryStreamExt::try_collect(list)).unwrap();
    let found: Vec<object_store::ObjectMeta> = found;
    found.into_iter().map(|object| object.location.to_string()).collect()
}

#[test]
fn what_was_flushed_is_there_after_a_crash_and_the_rest_is_not() {
    let (_, place) = place();
    let device = create(&place, options());
    let data = noise(3_000_000, 1);
    device.write_at(&data, 5000).unwrap();
    assert_eq!(read(&device, 4990, 20)[..10], [0; 10]);
    assert!(read(&device, 5000, data.len()) == data, "staged bytes");
    device.flush().unwrap();
    assert!(read(&device, 5000, data.len()) == data, "flushed bytes");
    device.write_at(&[7; 10], 6000).unwrap();
    assert_eq!(read(&device, 5999, 12)[1..11], [7; 10]);
    drop(device);

    let device = open(&place);
    assert!(read(&device, 5000, data.len()) == data, "as of the flush");
    device.write_at(&[8; 10], 6000).unwrap();
    device.flush().unwrap();
    device.close().unwrap();

    let reader = BucketDevice::read_only(&place, options(), Runtime::start().unwrap()).unwrap();
    assert_eq!(read(&reader, 6000, 10), [8; 10]);
    assert_eq!(read(&reader, 6010, 100), data[1010..1110]);
    assert!(reader.read_only() && reader.write_at(&[1], 0).is_err());
    assert_eq!(read(&reader, CAPACITY - 10, 10), [0; 10]);
    assert!(reader.read_at(&mut [0; 11], CAPACITY - 10).is_err());
}

#[test]
fn a_flush_is_one_request_and_one_of_nothing_is_none() {
    let (_, place) = place();
    let device = create(&place, options());
    let before = device.counted();
    for n in 0..10u64 {
        device.write_at(&noise(5000, n), n * 1_000_000).unwrap();
        device.flush().unwrap();
        device.flush().unwrap();
    }
    let after = device.counted();
    assert_eq!(after.of(Request::PutLog) - before.of(Request::PutLog), 10);
    assert_eq!(after.of(Request::PutData) + after.of(Request::Get), before.of(Request::Get));
}

#[test]
fn many_bytes_go_out_before_the_flush_as_objects_of_their_own() {
    let (store, place) = place();
    let device = create(&place, options());
    let data = noise(40 << 20, 2);
    for (n, part) in data.chunks(1 << 20).enumerate() {
        device.write_at(part, (n as u64) << 20).unwrap();
    }
    device.flush().unwrap();
    assert!(device.counted().of(Request::PutData) >= 3);
    drop(device);
    let device = open(&place);
    assert!(read(&device, 0, data.len()) == data);
    assert!(device.counted().of(Request::Get) < 30, "{:?}", device.counted());
    // Everything is replaced: the objects before are deleted.
    for (n, part) in data.chunks(1 << 20).enumerate() {
        device.write_at(part, (n as u64) << 20).unwrap();
    }
    let old: Vec<String> = names(&store);
    device.close().unwrap();
    let now = names(&store);
    let data_objects = |names: &[String], epoch: u64| {
        names.iter().filter(|name| name.contains(&format!("data/{epoch:020}"))).count()
    };
    assert!(data_objects(&old, 1) >= 3 && data_objects(&now, 1) == 0, "{now:#?}");
    assert!(data_objects(&now, 2) >= 3, "{now:#?}");
    drop(device);
    assert!(read(&open(&place), 0, data.len()) == data);
}

#[test]
fn discarded_ranges_read_as_zeros_and_stay_so() {
    let (_, place) = place();
    let device = create(&place, options());
    device.write_at(&[1; 100_000], 0).unwrap();
    device.flush().unwrap();
    device.write_at(&[2; 100], 90_000).unwrap();
    device.discard(50_000, 50_000).unwrap();
    device.write_at(&[3; 10], 60_000).unwrap();
    device.flush().unwrap();
    let expected = [&[1u8; 50_000][..], &[0; 10_000], &[3; 10], &[0; 39_990]].concat();
    assert!(read(&device, 0, 100_000) == expected);
    drop(device);
    let device = open(&place);
    assert!(read(&device, 0, 100_000) == expected);
    device.discard(0, CAPACITY).unwrap();
    device.close().unwrap();
    let facts: std::collections::HashMap<_, _> =
        device.facts().iter().map(|fact| (fact.name, fact.value)).collect();
    assert_eq!(facts["pieces"], 0, "{facts:?}");
    drop(device);
    assert_eq!(read(&open(&place), 0, 100_000), vec![0; 100_000]);
}

/// A volume that was not closed had all its free segments discarded, most of them never used: a log
/// object of 262,139 pieces, which no reader accepts.
#[test]
fn discards_of_what_was_never_used_cost_nothing() {
    let (_, place) = place();
    let device = create(&place, options());
    device.write_at(&[1; 5000], 10 << 20).unwrap();
    device.flush().unwrap();
    for n in 0..100_000u64 {
        device.discard(n << 20, 1 << 20).unwrap();
    }
    device.write_at(&[2; 10], 0).unwrap();
    let before = device.counted().sent;
    device.flush().unwrap();
    let sent = device.counted().sent - before;
    assert!(sent < 500, "{sent} bytes for one range");
    // More than may wait: the rest is ignored.
    for n in 0..100_000u64 {
        device.write_at(&[3; 16], n * 8192).unwrap();
    }
    device.flush().unwrap();
    for n in 0..100_000u64 {
        device.discard(n * 8192, 4096).unwrap();
    }
    device.discard(0, 1 << 16).unwrap();
    device.write_at(&[4; 16], 1 << 30).unwrap();
    device.flush().unwrap();
    drop(device);
    let device = open(&place);
    assert_eq!(read(&device, 0, 16), [0; 16]);
    assert_eq!(read(&device, 1 << 30, 16), [4; 16]);
}

#[test]
fn an_owner_that_was_replaced_writes_nothing_any_more() {
    let (_, place) = place();
    let first = create(&place, options());
    first.write_at(b"first", 0).unwrap();
    first.flush().unwrap();
    let second = open(&place);
    assert_eq!(read(&second, 0, 5), b"first");
    second.write_at(b"second", 0).unwrap();
    second.flush().unwrap();
    first.write_at(b"again", 0).unwrap();
    let said = first.flush().unwrap_err();
    assert_eq!(said.code(), Code::ReadOnly);
    let by = format!("process {} ", std::process::id());
    assert!(said.to_string().contains(&by), "{said}");
    assert_eq!(first.write_at(b"x", 0).unwrap_err().code(), Code::ReadOnly);
    assert_eq!(first.flush().unwrap_err().code(), Code::ReadOnly);
    assert!(first.close().is_err());
    second.close().unwrap();
    assert_eq!(read(&open(&place), 0, 6), b"second");
}

#[test]
fn a_volume_in_use_is_not_taken_over_without_force() {
    let (_, place) = place();
    let device = create(&place, options());
    let gentle = Options { force: false, ..options() };
    let again = BucketDevice::open(&place, gentle.clone(), Runtime::start().unwrap());
    let said = again.err().unwrap();
    assert_eq!(said.code(), Code::Busy);
    assert!(said.to_string().contains("is in use by"), "{said}");
    device.close().unwrap();
    // A repair closes the volume, and then the device.
    device.close().unwrap();
    assert_eq!(device.write_at(&[1], 0).unwrap_err().code(), Code::ReadOnly);
    drop(device);
    BucketDevice::open(&place, gentle, Runtime::start().unwrap()).unwrap();
}

/// Makes the claim of an opening one of a process that has ended.
fn end_owner(store: &InMemory, sequence: u64) {
    let mut child = std::process::Command::new("true").spawn().unwrap();
    let pid = child.id();
    child.wait().unwrap();
    let runtime = Runtime::start().unwrap();
    let at = Path::from(format!("a/volume/{}", manifest_name(sequence)));
    let raw = runtime.wait(async { store.get(&at).await.unwrap().bytes().await.unwrap() });
    let manifest = decode(&raw, sequence).unwrap();
    let Body::Claim(raw) = &manifest.body else { panic!("no claim") };
    let ClaimBlock::Claim(claim) = OwnerClaim::decode(raw) else { panic!("no owner") };
    let claim = OwnerClaim { pid, process_start: 1, ..*claim };
    let raw = encode(manifest.header, &Body::Claim(claim.encode().to_vec()));
    runtime.wait(store.put(&at, raw.into())).unwrap();
}

/// A copy that was killed before its mark could not be repeated: "a volume is there".
#[test]
fn a_place_that_a_dead_process_has_only_claimed_is_empty() {
    let (store, place) = place();
    let make = |create: &CreateOptions| {
        BucketDevice::create(&place, create, options(), Runtime::start().unwrap())
    };
    let dead = create(&place, options());
    let code = |made: shoal_base::Result<BucketDevice>| made.err().map(|error| error.code());
    assert_eq!(code(make(&CREATE)), Some(Code::Busy), "its owner runs, whatever the options are");
    end_owner(&store, 1);
    let next = make(&CreateOptions { capacity: 1 << 30, ..CREATE }).unwrap();
    assert_eq!(next.capacity(), 1 << 30);
    // It was only slow.
    dead.write_at(b"late", 0).unwrap();
    assert_eq!(dead.flush().unwrap_err().code(), Code::ReadOnly);
    assert_eq!(read(&next, 0, 4), [0; 4]);
    next.write_at(b"next", 0).unwrap();
    next.flush().unwrap();
    end_owner(&store, 2);
    assert_eq!(code(make(&CREATE)), Some(Code::Exists), "something was written");
    next.discard(0, 1 << 30).unwrap();
    next.close().unwrap();
    drop(next);
    assert_eq!(code(make(&CREATE)), None, "nothing is left of it");
}

#[test]
fn many_flushes_leave_few_objects_and_a_short_log() {
    let (store, place) = place();
    let device = create(&place, Options { log_objects_max: 10, ..options() });
    for n in 0..200u64 {
        device.write_at(&noise(3000, n), (n % 4) * 4096).unwrap();
        device.flush().unwrap();
    }
    device.close().unwrap();
    let names = names(&store);
    let logs = names.iter().filter(|name| name.contains("/log/")).count();
    assert!(logs <= 6, "{logs} log objects: {names:#?}");
    drop(device);
    let device = open(&place);
    let gets = device.counted().of(Request::Get);
    assert!(gets < 12, "{gets} requests to open");
    for n in 196..200u64 {
        assert_eq!(read(&device, (n % 4) * 4096, 3000), noise(3000, n));
    }
}

/// Names and bytes of the objects in a folder, in order.
fn sizes(store: &InMemory, folder: &str) -> Vec<(String, u64)> {
    let runtime = Runtime::start().unwrap();
    let list = store.list(Some(&Path::from(format!("a/volume/{folder}"))));
    let found: Vec<object_store::ObjectMeta> =
        runtime.wait(futures::TryStreamExt::try_collect(list)).unwrap();
    let mut sizes: Vec<_> =
        found.into_iter().map(|it| (it.location.filename().unwrap().into(), it.size)).collect();
    sizes.sort();
    sizes
}

#[test]
fn a_manifest_of_few_changes_is_small_and_all_of_them_are_the_volume() {
    let (store, place) = place();
    let small = Options {
        log_objects_max: 4,
        layering: Layering { parts: 8, whole_max: 100 },
        // Nothing is moved.
        spare: 1.0,
        ..options()
    };
    let device = create(&place, small.clone());
    for n in 0..2000u64 {
        device.write_at(&noise(600, n), n << 18).unwrap();
    }
    device.flush().unwrap();
    device.close().unwrap();
    drop(device);
    let (first, whole) = sizes(&store, "manifest").pop().unwrap();
    let device = BucketDevice::open(&place, small, Runtime::start().unwrap()).unwrap();
    for n in 0..120u64 {
        device.write_at(&noise(700, n), (n % 20) << 18).unwrap();
        device.flush().unwrap();
    }
    device.close().unwrap();
    drop(device);
    let later: Vec<_> =
        sizes(&store, "manifest").into_iter().filter(|(name, _)| *name > first).collect();
    assert!(later.len() > 1, "{later:?}");
    assert!(later.iter().all(|(_, bytes)| *bytes < whole / 8), "{later:?}, {whole} bytes each");
    let device = open(&place);
    let gets = device.counted().of(Request::Get);
    assert!(gets < 16, "{gets} requests to open");
    for n in 0..2000u64 {
        let (len, seed) = if n < 20 { (700, 100 + n) } else { (600, n) };
        assert_eq!(read(&device, n << 18, len), noise(len, seed), "at {n}");
    }
}

#[test]
fn a_reader_counts_the_bytes_that_are_in_the_store() {
    let (store, place) = place();
    let device = create(&place, options());
    for n in 0..50 {
        device.write_at(&noise(3000, n), 4096).unwrap();
        device.flush().unwrap();
    }
    device.close().unwrap();
    let reader = BucketDevice::read_only(&place, options(), Runtime::start().unwrap()).unwrap();
    let said = reader.facts().iter().find(|fact| fact.name == "stored_bytes").unwrap().value;
    // Fences hold nothing and stay.
    let fence = shoal_format::bucket::object::FENCE_BYTES;
    let objects = [sizes(&store, "log"), sizes(&store, "data")].concat();
    let stored: u64 = objects.iter().map(|(_, bytes)| *bytes).filter(|it| *it > fence).sum();
    assert_eq!(said, stored);
}

#[test]
fn what_is_damaged_is_named() {
    let (store, place) = place();
    let device = create(&place, options());
    device.write_at(&noise(200_000, 1), 0).unwrap();
    device.flush().unwrap();
    device.close().unwrap();
    drop(device);
    let runtime = Runtime::start().unwrap();
    let name = names(&store).into_iter().find(|name| name.ends_with("log/00000000000000000002"));
    let path = Path::from(name.unwrap());
    let raw = runtime.wait(async { store.get(&path).await.unwrap().bytes().await.unwrap() });
    let put = |raw: Vec<u8>| runtime.wait(async { store.put(&path, raw.into()).await.unwrap() });
    let refused = || {
        let reader = BucketDevice::read_only(&place, options(), Runtime::start().unwrap()).unwrap();
        let error = reader.read_at(&mut [0; 4096], 100_000).unwrap_err();
        assert!(error.is_damage(), "{error}");
        error.to_string()
    };
    let mut swapped = raw.to_vec();
    swapped[150_000] ^= 1;
    put(swapped);
    assert!(refused().contains("object log/00000000000000000002"), "{}", refused());
    put(raw[..1000].to_vec());
    assert!(refused().contains("log/00000000000000000002"), "{}", refused());
    runtime.wait(async { store.delete(&path).await.unwrap() });
    assert!(refused().contains("is missing from the bucket"), "{}", refused());
}

#[test]
fn layers_that_are_missing_or_something_else_are_named() {
    let (store, place) = place();
    let layered =
        Options { layering: Layering { parts: 1, whole_max: 0 }, spare: 1.0, ..options() };
    let device = create(&place, layered.clone());
    for n in 0..100 {
        device.write_at(&noise(1000, n), n << 18).unwrap();
    }
    device.close().unwrap();
    drop(device);
    let device = BucketDevice::open(&place, layered, Runtime::start().unwrap()).unwrap();
    device.write_at(&noise(1000, 1), 0).unwrap();
    device.close().unwrap();
    drop(device);
    let runtime = Runtime::start().unwrap();
    let path = |sequence| Path::from(format!("a/volume/{}", manifest_name(sequence)));
    let get = |sequence| {
        let path = path(sequence);
        runtime.wait(async { store.get(&path).await.unwrap().bytes().await.unwrap() })
    };
    let kind = |sequence| decode(&get(sequence), sequence).unwrap().header;
    assert_eq!([1, 2, 3, 4].map(|it| kind(it).kind), {
        use ManifestKind::{Changes, Claim, Complete};
        [Claim, Complete, Claim, Changes]
    });
    assert_eq!(kind(4).base, 2);
    let refused = |base: u64, body: &Body| {
        let raw = encode(ManifestHeader { base, ..kind(4) }, body);
        runtime.wait(async { store.put(&path(4), raw.into()).await.unwrap() });
        let opened = BucketDevice::read_only(&place, options(), Runtime::start().unwrap());
        let error = opened.map(drop).unwrap_err();
        assert!(error.is_damage(), "{error}");
        error.to_string()
    };
    let right = decode(&get(4), 4).unwrap().body;
    assert!(refused(1, &right).contains("is no part of a map"), "{}", refused(1, &right));
    let Body::Complete(all, extents) = decode(&get(2), 2).unwrap().body else { unreachable!() };
    let held = all[extents[50].object as usize];
    let gone = Body::Changes(vec![ObjectEntry { size: 0, ..held }], Vec::new());
    assert!(refused(2, &gone).contains("was deleted, but is in use"), "{}", refused(2, &gone));
    runtime.wait(async { store.delete(&path(2)).await.unwrap() });
    assert!(refused(2, &right).contains("is missing from the bucket"), "{}", refused(2, &right));
}

#[test]
fn places_with_other_objects_or_a_volume_are_refused() {
    let (store, place) = place();
    let runtime = Runtime::start().unwrap();
    let foreign = Path::from("a/volume/photo.jpg");
    runtime.wait(async { store.put(&foreign, "x".into()).await.unwrap() });
    let create = |create: &CreateOptions| {
        BucketDevice::create(&place, create, options(), Runtime::start().unwrap())
    };
    let said = create(&CREATE).err().unwrap().to_string();
    assert!(said.contains("photo.jpg"), "{said}");
    runtime.wait(async { store.delete(&foreign).await.unwrap() });
    let device = create(&CreateOptions { race: Some(Race::SHORT), ..CREATE }).unwrap();
    device.write_at(&[1; 10], 0).unwrap();
    device.flush().unwrap();
    // Refused at once, not after the test of the store.
    let tested = |_, _| panic!("the store is tested for a volume that cannot be made");
    let again = CreateOptions { race: Some(Race::FULL), progress: tested, ..CREATE };
    assert_eq!(create(&again).err().unwrap().code(), Code::Exists);
    device.write_at(&[1; 10], CAPACITY - 10).unwrap();
    device.close().unwrap();
    assert_eq!(create(&CREATE).err().unwrap().code(), Code::Exists);
    let small = CreateOptions { overwrite: true, capacity: 1 << 20, ..CREATE };
    let device = create(&small).unwrap();
    assert_eq!(read(&device, 0, 10), [0; 10]);
    drop(device);
    let device = open(&place);
    assert_eq!((device.capacity(), read(&device, 0, 10)), (1 << 20, vec![0; 10]));
    device.close().unwrap();
    let nothing = Place::new(store, "elsewhere", "memory");
    let none = BucketDevice::open(&nothing, options(), Runtime::start().unwrap());
    assert_eq!(none.err().unwrap().code(), Code::NotFound);
}

#[test]
fn what_waits_for_a_flush_takes_bounded_memory() {
    let (_, place) = place();
    let device = create(&place, Options { staged_max: 256 << 10, ..options() });
    let before = device.counted().of(Request::PutLog);
    for n in 0..32 {
        device.write_at(&noise(1 << 20, n), n << 20).unwrap();
    }
    // A write puts more in data objects than may wait, so each waits for a log object.
    let logs = device.counted().of(Request::PutLog) - before;
    assert!((31..=33).contains(&logs), "{logs}");
    let data = noise(1 << 20, 7);
    assert!(read(&device, 7 << 20, 1 << 20) == data);
}

#[test]
fn a_log_object_is_begun_before_writers_must_wait_for_it() {
    let (_, place) = place();
    let device = create(&place, Options { staged_max: 1 << 20, ..options() });
    let logs = || device.counted().of(Request::PutLog);
    let before = logs();
    // More than one MiB of data objects, and less than the three for which writers wait.
    for n in 0..8 {
        device.write_at(&noise(256 << 10, n), n << 18).unwrap();
    }
    wait_until("somebody begins a log object", || logs() > before);
}

#[test]
fn written_bytes_that_nobody_reads_take_an_eighth_of_the_memory() {
    let (_, place) = place();
    let device = create(&place, Options { cache_bytes: 64 << 20, ..options() });
    let gets = || device.counted().of(Request::Get);
    let write = |n: u64| {
        device.write_at(&noise(1 << 20, n), n << 20).unwrap();
        device.flush().unwrap();
    };
    write(0);
    assert!(read(&device, 0, 1 << 20) == noise(1 << 20, 0));
    (1..16).for_each(write);
    let before = gets();
    // Read since it was written, and of the last eight.
    for n in [0, 9, 15] {
        assert!(read(&device, n << 20, 1 << 20) == noise(1 << 20, n), "{n}");
    }
    assert_eq!(gets(), before);
    assert!(read(&device, 1 << 20, 1 << 20) == noise(1 << 20, 1));
    assert!(gets() > before);
}

/// A region that is read ahead of its use, at most.
const REGION: u64 = 16 << 20;
/// Bytes of a piece.
const PIECE: u64 = 256 << 10;

/// A volume of eight regions, open for reading with memory for some of them.
fn eight_regions(memory: u64) -> BucketDevice {
    let (_, place) = place();
    let options = Options { compression: Compression::NONE, ..options() };
    let device = create(&place, options.clone());
    for region in 0..8 {
        device.write_at(&vec![region as u8 + 1; REGION as usize], region * REGION).unwrap();
    }
    device.flush().unwrap();
    device.close().unwrap();
    let options = Options { cache_bytes: memory * REGION, ..options };
    BucketDevice::read_only(&place, options, Runtime::start().unwrap()).unwrap()
}

#[test]
fn a_pass_in_an_order_that_nobody_can_guess_fetches_little_else() {
    let device = eight_regions(1);
    let before = device.counted().received;
    // Three pieces side by side in one region, then in another one, until all have been read.
    let (mut wanted, triples) = (0, REGION / PIECE / 3);
    for triple in 0..triples {
        for region in [3, 0, 6, 1, 7, 4, 2, 5] {
            for piece in 3 * triple..3 * triple + 3 {
                assert_eq!(
                    read(&device, region * REGION + piece * PIECE, 10),
                    [region as u8 + 1; 10]
                );
                wanted += PIECE;
            }
        }
    }
    let received = device.counted().received - before;
    assert!(received < wanted * 3 / 2, "{received} bytes for {wanted}");
}

#[test]
fn a_pass_from_the_first_byte_to_the_last_fetches_nothing_twice_with_few_requests() {
    let device = eight_regions(3);
    let before = device.counted();
    for piece in 0..8 * REGION / PIECE {
        assert_eq!(read(&device, piece * PIECE, 10)[0], (piece * PIECE / REGION) as u8 + 1);
    }
    let after = device.counted();
    let (received, gets) =
        (after.received - before.received, after.of(Request::Get) - before.of(Request::Get));
    assert!(received < 8 * REGION * 3 / 2, "{received}");
    assert!(gets < 8 * REGION / PIECE / 2, "{gets}");
}
