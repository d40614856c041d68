//! The cache on a local disk: it saves requests, also those of the next process, and whatever
//! happens to its files, what is read is what was written.

use object_store::memory::InMemory;
use shoal_base::Code;
use shoal_bucket::{BucketDevice, CreateOptions, DiskCache, Options, Place, Request, Runtime};
use shoal_device::Device;
use shoal_skip::wait_until;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

const SPACE: u64 = 1 << 40;
const CREATE: CreateOptions =
    CreateOptions { capacity: SPACE, overwrite: false, race: None, progress: |_, _| {} };
const MIB: u64 = 1 << 20;

/// A directory that is removed.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("shoal-disk-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        Folder(path)
    }
    fn files(&self) -> Vec<PathBuf> {
        let list = |path: &Path| fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
        let volumes = list(&self.0).filter(|path| path.is_dir());
        let mut files: Vec<PathBuf> = volumes.flat_map(|volume| list(&volume)).collect();
        files.sort();
        files
    }
    fn bytes(&self) -> u64 {
        self.files().iter().map(|file| fs::metadata(file).unwrap().blocks() * 512).sum()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn options(folder: &Folder, bytes: u64) -> Options {
    let disk = Some(DiskCache { directory: folder.0.clone(), bytes });
    // Next to nothing in memory, so that reads reach the disk.
    Options { force: true, grace: Duration::ZERO, cache_bytes: 1, disk, ..Options::default() }
}

fn place(name: &str) -> Place {
    Place::new(Arc::new(InMemory::new()), name, "memory")
}

fn create(place: &Place, options: Options) -> BucketDevice {
    BucketDevice::create(place, &CREATE, options, Runtime::start().unwrap()).unwrap()
}

fn look(place: &Place, options: Options) -> BucketDevice {
    BucketDevice::read_only(place, options, Runtime::start().unwrap()).unwrap()
}

/// Bytes that do not compress, different ones for each megabyte.
fn noise(n: u64) -> Vec<u8> {
    let mut state = (n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..MIB).map(next).collect()
}

fn fill(device: &BucketDevice, megabytes: std::ops::Range<u64>) {
    megabytes.for_each(|n| device.write_at(&noise(n), n * MIB).unwrap());
    device.flush().unwrap();
}

fn verify(device: &BucketDevice, megabytes: std::ops::Range<u64>) {
    let mut back = vec![0; MIB as usize];
    for n in megabytes {
        device.read_at(&mut back, n * MIB).unwrap();
        assert!(back == noise(n), "megabyte {n}");
    }
}

fn fact(device: &BucketDevice, name: &str) -> u64 {
    device.facts().iter().find(|fact| fact.name == name).unwrap().value
}

/// Waits until so many bytes are on the disk, which are written in the background.
fn settle(folder: &Folder, bytes: u64) {
    wait_until(format!("{bytes} bytes on the disk"), || folder.bytes() >= bytes);
}

/// Reads until nothing has to be fetched any more: what was fetched is written behind the call.
fn served_by_the_disk(device: &BucketDevice, megabytes: std::ops::Range<u64>) {
    wait_until("nothing is fetched", || {
        let before = device.counted();
        verify(device, megabytes.clone());
        device.counted() == before
    });
}

#[test]
fn what_one_process_has_read_or_written_the_next_has_without_a_request() {
    let (folder, place) = (Folder::new("warm"), place("v"));
    let device = create(&place, Options { disk: None, ..options(&folder, 1 << 30) });
    fill(&device, 0..20);
    device.close().unwrap();
    drop(device);
    // Read.
    let cold = look(&place, options(&folder, 1 << 30));
    verify(&cold, 0..20);
    assert!(cold.counted().received > 20 * MIB);
    settle(&folder, 20 * MIB);
    let warm = look(&place, options(&folder, 1 << 30));
    served_by_the_disk(&warm, 0..20);
    assert!(fact(&warm, "disk_hits") >= 80 && fact(&warm, "disk_hit_bytes") >= 20 * MIB);
    assert!(fact(&warm, "disk_bytes") >= 20 * MIB);
    // Written: a log object, and data objects.
    let device =
        BucketDevice::open(&place, options(&folder, 1 << 30), Runtime::start().unwrap()).unwrap();
    fill(&device, 20..60);
    assert!(device.counted().of(Request::PutData) > 0);
    settle(&folder, 60 * MIB);
    let warm = look(&place, options(&folder, 1 << 30));
    served_by_the_disk(&warm, 0..60);
    drop(warm);
    // Everything is replaced: what is deleted from the bucket leaves the disk.
    let old = folder.files();
    (0..3).for_each(|_| fill(&device, 0..60));
    device.close().unwrap();
    drop(device);
    let left = old.iter().filter(|file| file.exists()).count();
    assert!(left < old.len() / 2, "{left} of {} files of deleted objects", old.len());
}

#[test]
fn damaged_files_are_fetched_again_and_mended() {
    let (folder, place) = (Folder::new("damage"), place("v"));
    let device = create(&place, options(&folder, 1 << 30));
    fill(&device, 0..40);
    settle(&folder, 40 * MIB);
    let mut state = 7u64;
    let mut random = move |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) % below
    };
    for round in 0..60 {
        for path in folder.files() {
            let len = fs::metadata(&path).unwrap().len();
            let other = || folder.files().into_iter().find(|other| *other != path);
            match random(8) {
                0 => {
                    let mut bytes = fs::read(&path).unwrap();
                    let at = random(len) as usize;
                    bytes[at] ^= 1 << random(8);
                    fs::write(&path, bytes).unwrap();
                }
                1 => fs::File::options()
                    .write(true)
                    .open(&path)
                    .unwrap()
                    .set_len(random(len))
                    .unwrap(),
                2 => fs::write(&path, vec![random(256) as u8; len as usize]).unwrap(),
                3 => fs::remove_file(&path).unwrap(),
                4 => {
                    if let Some(other) = other() {
                        fs::copy(other, &path).map(drop).unwrap();
                    }
                }
                5 if round % 8 == 7 => {
                    fs::remove_file(&path).unwrap();
                    fs::create_dir(&path).unwrap();
                }
                _ => {}
            }
        }
        let reader = look(&place, options(&folder, 1 << 30));
        verify(&reader, 0..40);
        drop(reader);
        for path in folder.files() {
            if path.is_dir() {
                fs::remove_dir(path).unwrap();
            }
        }
    }
    settle(&folder, 40 * MIB);
    let warm = look(&place, options(&folder, 1 << 30));
    served_by_the_disk(&warm, 0..40);
    // The folder of the volume is gone, and is made again.
    for volume in fs::read_dir(&folder.0).unwrap() {
        fs::remove_dir_all(volume.unwrap().path()).unwrap();
    }
    verify(&warm, 0..40);
    settle(&folder, 40 * MIB);
    served_by_the_disk(&warm, 0..40);
}

#[test]
fn the_limit_holds_and_other_files_stay() {
    let folder = Folder::new("limit");
    fs::write(folder.0.join("notes"), "mine").unwrap();
    fs::create_dir(folder.0.join("0123456789abcdef")).unwrap();
    fs::write(folder.0.join("0123456789abcdef/letters"), "mine too").unwrap();
    let (one, two) = (place("one"), place("two"));
    let limit = 64 * MIB;
    let first = create(&one, options(&folder, limit));
    fill(&first, 0..30);
    settle(&folder, 30 * MIB);
    let of_first = folder.files();
    let second = create(&two, options(&folder, limit));
    for n in 0..15 {
        fill(&second, n * 10..n * 10 + 10);
        verify(&second, n * 10..n * 10 + 10);
        assert!(folder.bytes() <= limit, "{} bytes", folder.bytes());
    }
    // Those of the first volume were used longest ago.
    let left = of_first.iter().filter(|file| file.exists() && !file.ends_with("letters"));
    assert_eq!(left.collect::<Vec<_>>(), [].to_vec() as Vec<&PathBuf>, "{:?}", folder.files());
    assert!(folder.bytes() > limit / 2, "{} bytes", folder.bytes());
    verify(&first, 0..30);
    verify(&second, 0..150);
    assert_eq!(fs::read(folder.0.join("notes")).unwrap(), b"mine");
    assert_eq!(fs::read(folder.0.join("0123456789abcdef/letters")).unwrap(), b"mine too");
}

#[test]
fn a_directory_in_which_others_may_write_is_refused_before_the_volume_is_taken() {
    let (folder, place) = (Folder::new("refused"), place("v"));
    create(&place, options(&folder, 1 << 30)).close().unwrap();
    let refused = |directory: &Path, bytes, code: Code, why: &str| {
        let disk = Some(DiskCache { directory: directory.to_owned(), bytes });
        let options = Options { disk, ..Options::default() };
        let runtime = Runtime::start().unwrap();
        let error = match BucketDevice::open(&place, options, runtime) {
            Ok(_) => panic!("{why}: was opened"),
            Err(error) => error,
        };
        assert_eq!(error.code(), code, "{error}");
        assert!(error.to_string().contains(why), "{error}");
    };
    refused(&folder.0, 63 * MIB, Code::Invalid, "64M at least");
    fs::set_permissions(&folder.0, fs::Permissions::from_mode(0o777)).unwrap();
    refused(&folder.0, 1 << 30, Code::Access, "other users may write");
    fs::set_permissions(&folder.0, fs::Permissions::from_mode(0o755)).unwrap();
    let link = folder.0.join("link");
    symlink(&folder.0, &link).unwrap();
    refused(&link, 1 << 30, Code::Io, "cannot be the cache on disk");
    refused(&folder.0.join("not/there"), 1 << 30, Code::Io, "No such file");
    fs::write(folder.0.join("file"), "").unwrap();
    refused(&folder.0.join("file"), 1 << 30, Code::Io, "Not a directory");
    // It was closed all the time: nobody has to be waited for.
    let reader = look(&place, options(&folder, 1 << 30));
    assert_eq!(reader.counted().of(Request::PutManifest), 0);
}
