//! Compressed volumes: contents read back correctly, space accounting is exact, and damage is
//! reported.

use crate::common::*;
use shoal_engine::*;
use std::sync::Arc;

const WINDOW: usize = 128 << 10;

fn codecs() -> [Compression; 3] {
    ["lz4", "zstd:1", "zstd:19"].map(|text| text.parse().unwrap())
}

fn made(compression: Compression, size: u64) -> (Arc<MemDevice>, Volume) {
    let device = Arc::new(MemDevice::new(size));
    mkfs_on(device.clone(), &MkfsOptions { compression, ..MkfsOptions::default() }).unwrap();
    let volume = open(&device);
    (device, volume)
}

/// Returns text without repeated lines.
fn prose(len: usize) -> Vec<u8> {
    let line = |n: usize| format!("line {n}: {} and so on\n", n * n % 977);
    let mut text: Vec<u8> = (0..).flat_map(|n| line(n).into_bytes()).take(len).collect();
    text.truncate(len);
    text
}

fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1du64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 24) as u8
    };
    (0..len).map(|_| next()).collect()
}

fn create(volume: &Volume, name: &str, bytes: &[u8]) -> Ino {
    let file =
        volume.namespace().create(&Caller::root(), Ino::ROOT, name.as_bytes(), 0o644).unwrap().ino;
    assert_eq!(volume.files().write(file, 0, bytes, false).unwrap(), bytes.len());
    file
}

fn contents(volume: &Volume, file: Ino) -> Vec<u8> {
    let mut bytes = vec![0; volume.attributes().getattr(file).unwrap().size as usize];
    assert_eq!(volume.files().read(file, 0, &mut bytes).unwrap(), bytes.len());
    bytes
}

fn assert_clean(volume: &Volume) {
    let report = volume.check(&mut |_, _| {}).unwrap();
    assert_eq!(report.problems, vec![]);
}

#[test]
fn files_read_back_in_any_pieces_and_take_less() {
    for codec in codecs() {
        let (device, volume) = made(codec, 64 << 20);
        let sizes = [1000, 4096, 10_000, 100_000, WINDOW, WINDOW + 1, 1_000_000];
        let files: Vec<(Ino, Vec<u8>)> = sizes
            .iter()
            .map(|len| (create(&volume, &format!("prose {len}"), &prose(*len)), prose(*len)))
            .collect();
        let mixed = [noise(50_000), vec![0; 50_000], prose(50_000)].concat();
        let mixed = (create(&volume, "mixed", &mixed), mixed);
        let all = || files.iter().chain([&mixed]);
        volume.close().unwrap();
        let volume = open(&device);
        for (file, bytes) in all() {
            assert!(contents(&volume, *file) == *bytes);
            for step in [700, 4096, 50_001] {
                for at in (0..bytes.len()).step_by(step) {
                    let mut here = vec![0; step.min(bytes.len() - at)];
                    volume.files().read(*file, at as u64, &mut here).unwrap();
                    assert!(here == bytes[at..at + here.len()], "{step} bytes at {at}");
                }
            }
        }
        let (file, bytes) = &files[6];
        let used = volume.attributes().getattr(*file).unwrap().blocks * 512;
        assert!(used > 1000 && used < bytes.len() as u64 / 2, "{codec}: {used} bytes used");
        assert_eq!(volume.info().compression, codec.to_string());
        assert_clean(&volume);
        volume.close().unwrap();
    }
}

#[test]
fn what_cannot_be_compressed_is_stored_as_it_is_and_grows_in_place() {
    let (_device, volume) = made(Compression::LZ4, 64 << 20);
    let file = create(&volume, "noise", &noise(64 << 10));
    assert_eq!(volume.attributes().getattr(file).unwrap().blocks * 512, 64 << 10);
    for _ in 0..15 {
        volume.files().append(file, &noise(4096), false).unwrap();
    }
    assert_eq!(contents(&volume, file).len(), (64 << 10) + 15 * 4096);
    let grown = volume.info().counters.iter().find(|(name, _)| *name == "objects_grown").unwrap().1;
    assert_eq!(grown, 15);
    assert_clean(&volume);
}

/// Highly compressible bytes: some pieces have less than one stored byte.
#[test]
fn any_part_of_an_object_keeps_its_segment() {
    for codec in codecs() {
        let (device, volume) = made(codec, 64 << 20);
        let before = volume.info().live_bytes;
        let mut bytes = vec![7; WINDOW];
        let file = create(&volume, "sevens", &bytes);
        for at in (0..20_000).step_by(2) {
            volume.files().fallocate(file, Fallocate::PunchHole, at, 1).unwrap();
            bytes[at as usize] = 0;
        }
        assert_clean(&volume);
        // Everything except one byte in the middle: its segment must not be reused.
        for (from, to) in [(0, 10_001), (10_002, WINDOW as u64)] {
            volume.files().fallocate(file, Fallocate::PunchHole, from, to - from).unwrap();
            bytes[from as usize..to as usize].fill(0);
        }
        volume.maintenance().checkpoint().unwrap();
        for n in 0..40 {
            create(&volume, &format!("other {n}"), &noise(1 << 20));
        }
        (0..40).for_each(|n| unlink(&volume, &format!("other {n}")));
        volume.maintenance().clean().unwrap();
        assert!(contents(&volume, file) == bytes);
        assert_clean(&volume);
        volume.close().unwrap();
        let volume = open(&device);
        assert!(contents(&volume, file) == bytes);
        unlink(&volume, "sevens");
        volume.maintenance().checkpoint().unwrap();
        assert_clean(&volume);
        let after = volume.info().live_bytes;
        assert!(after <= before + 100_000, "{before} bytes live before, {after} after");
    }
}

fn unlink(volume: &Volume, name: &str) {
    volume.namespace().unlink(&Caller::root(), Ino::ROOT, name.as_bytes()).unwrap();
}

#[test]
fn overwritten_files_are_cleaned_and_read_back() {
    for codec in codecs() {
        let (device, volume) = made(codec, 24 << 20);
        let mut bytes = prose(2 << 20);
        let file = create(&volume, "file", &bytes);
        let (noise, text) = (noise(1 << 20), prose(10_000));
        for n in 0..3000usize {
            let (at, len) = (n * 7919 % (bytes.len() - 5000), 100 + n % 4000);
            let new = match n % 3 {
                0 => &noise[n..n + len],
                _ => &text[n % 5000..n % 5000 + len],
            };
            bytes[at..at + len].copy_from_slice(new);
            assert_eq!(volume.files().write(file, at as u64, new, false).unwrap(), len);
            if n % 500 == 0 {
                volume.maintenance().clean().unwrap();
            }
        }
        assert!(contents(&volume, file) == bytes);
        assert_clean(&volume);
        // As after a crash.
        volume.sync().unwrap();
        drop(volume);
        let volume = open(&device);
        assert!(contents(&volume, file) == bytes);
        assert_clean(&volume);
    }
}

#[test]
fn long_attributes_are_compressed() {
    let (device, volume) = made(Compression::LZ4, 64 << 20);
    let file = create(&volume, "file", b"short");
    let value = prose(60_000);
    let before = volume.info().live_bytes;
    let who = Caller::root();
    volume.attributes().setxattr(&who, file, b"user.prose", &value, XattrFlags::default()).unwrap();
    volume.maintenance().checkpoint().unwrap();
    let taken = volume.info().live_bytes - before;
    assert!(taken < 30_000, "{taken} bytes");
    volume.close().unwrap();
    let volume = open(&device);
    assert!(volume.attributes().getxattr(&who, file, b"user.prose").unwrap() == value);
    assert_clean(&volume);
}

#[test]
fn a_flipped_bit_of_a_compressed_object_is_named_and_costs_that_object() {
    let (device, volume) = made(Compression::LZ4, 64 << 20);
    let file = create(&volume, "file", &prose(3 * WINDOW));
    volume.close().unwrap();
    // The objects are adjacent, in the only segment of data.
    let at = object_of(&device, file);
    flip(&device, at + 1000);
    let volume = open(&device);
    let mut window = vec![0; WINDOW];
    let error = volume.files().read(file, 0, &mut window).unwrap_err().to_string();
    assert!(error.contains(&format!("data of inode {file}")), "{error}");
    volume.files().read(file, WINDOW as u64, &mut window).unwrap();
    assert!(window == prose(3 * WINDOW)[WINDOW..2 * WINDOW]);
    let report = volume.check(&mut |_, _| {}).unwrap();
    let rules: Vec<_> = report.problems.iter().map(|problem| problem.rule).collect();
    assert_eq!(rules, ["data-checksum"]);
}

/// Returns the address of the payload of a file's first object.
fn object_of(device: &Arc<MemDevice>, file: Ino) -> u64 {
    use shoal_format::extent::{DataHeader, HEADER};
    let volume = store(device).volume();
    let mut raw = vec![0; device.capacity() as usize];
    device.read_at(&mut raw, 0).unwrap();
    let found = (0..raw.len()).step_by(8).find(|at| {
        let header = DataHeader::decode(&raw[*at..], volume);
        header.is_some_and(|header| header.ino() == file && header.offset == 0)
    });
    (found.unwrap() + HEADER) as u64
}
