//! Contents: writing, truncation, holes, allocation, copies, mappings.

use crate::common::*;
use rustix::fs::{FallocateFlags, OFlags, SeekFrom};
use std::os::fd::OwnedFd;

fn blocks(fd: &OwnedFd) -> i64 {
    rustix::fs::fstat(fd).unwrap().st_blocks
}

fn size(fd: &OwnedFd) -> i64 {
    rustix::fs::fstat(fd).unwrap().st_size
}

#[test]
fn sizes_from_nothing_to_megabytes() {
    let Some(mut m) = mount("") else { return };
    let sizes = [0, 1, 100, 200, 300, 511, 512, 513, 4095, 4096, 4097, 131_072, 131_073, 5_000_001];
    for len in sizes {
        std::fs::write(m.path(&len.to_string()), pattern(len, len as u64)).unwrap();
    }
    for round in 0..3 {
        for len in sizes {
            let data = std::fs::read(m.path(&len.to_string())).unwrap();
            assert!(data == pattern(len, len as u64), "{len} bytes, round {round}");
            assert_eq!(stat(m.path(&len.to_string())).unwrap().st_size, len as i64);
        }
        match round {
            0 => drop_caches(),
            _ => m.remount(),
        }
    }
}

/// Random writes, truncations, holes and allocations against a plain vector.
#[test]
fn random_changes_against_a_model() {
    let Some(mut m) = mount("") else { return };
    const MAX: u64 = 600_000;
    let mut random = Random(7);
    let mut model: Vec<u8> = Vec::new();
    let mut fd = create(m.path("file"), OFlags::RDWR, 0o600).unwrap();
    for step in 0..600u64 {
        let at = random.below(MAX);
        let len = match random.below(4) {
            0 => random.below(64) + 1,
            1 => random.below(5000) + 1,
            _ => random.below(150_000) + 1,
        };
        let end = (at + len) as usize;
        match random.below(12) {
            0..=4 => {
                let data = pattern(len as usize, step);
                pwrite(&fd, at, &data);
                model.resize(model.len().max(end), 0);
                model[at as usize..end].copy_from_slice(&data);
            }
            5 | 6 => {
                rustix::fs::ftruncate(&fd, at).unwrap();
                model.resize(at as usize, 0);
            }
            7 => {
                let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                rustix::fs::fallocate(&fd, punch, at, len).unwrap();
                let (at, end) = ((at as usize).min(model.len()), end.min(model.len()));
                model[at..end].fill(0);
            }
            8 if !m.is_native() => {
                rustix::fs::fallocate(&fd, FallocateFlags::ZERO_RANGE, at, len).unwrap();
                model.resize(model.len().max(end), 0);
                model[at as usize..end].fill(0);
            }
            9 => {
                rustix::fs::fallocate(&fd, FallocateFlags::empty(), at, len).unwrap();
                model.resize(model.len().max(end), 0);
            }
            10 => {
                let got = pread(&fd, at, len as usize);
                let from = (at as usize).min(model.len());
                assert!(got == model[from..end.min(model.len())], "step {step}");
            }
            _ => drop_caches(),
        }
        assert_eq!(size(&fd), model.len() as i64, "step {step}");
        if step % 100 == 99 {
            drop(fd);
            m.remount();
            fd = open(m.path("file"), OFlags::RDWR).unwrap();
            assert!(pread(&fd, 0, MAX as usize * 2) == model, "step {step}");
        }
    }
}

pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

#[test]
fn truncation() {
    let Some(m) = mount("") else { return };
    std::fs::write(m.path("file"), pattern(10_000, 1)).unwrap();
    truncate(m.path("file"), 5000).unwrap();
    assert_eq!(std::fs::read(m.path("file")).unwrap(), pattern(10_000, 1)[..5000]);
    truncate(m.path("file"), 10_000).unwrap();
    let mut wanted = pattern(10_000, 1);
    wanted[5000..].fill(0);
    assert_eq!(std::fs::read(m.path("file")).unwrap(), wanted, "zeros, not what was there");
    fails!(INVAL, truncate(m.path("file"), -1));
    fails!(NOENT, truncate(m.path("none"), 0));
    mkdir(m.path("dir"), 0o755).unwrap();
    fails!(ISDIR, truncate(m.path("dir"), 0));
    // Far beyond the stored data.
    truncate(m.path("file"), 1 << 40).unwrap();
    let fd = open(m.path("file"), OFlags::RDWR).unwrap();
    assert_eq!(pread(&fd, (1 << 40) - 3, 10), [0; 3]);
    pwrite(&fd, (1 << 40) - 1, b"x");
    assert_eq!(pread(&fd, (1 << 40) - 3, 10), [0, 0, b'x']);
    assert!(blocks(&fd) < 2000);
}

#[test]
fn holes_are_found() {
    let Some(m) = mount_only("") else { return };
    let fd = create(m.path("file"), OFlags::RDWR, 0o600).unwrap();
    const MIB: u64 = 1 << 20;
    pwrite(&fd, 4 * MIB, &pattern(MIB as usize, 1));
    rustix::fs::ftruncate(&fd, 8 * MIB).unwrap();
    let seek = |from| rustix::fs::seek(&fd, from);
    assert_eq!(seek(SeekFrom::Data(0)), Ok(4 * MIB));
    assert_eq!(seek(SeekFrom::Hole(0)), Ok(0));
    assert_eq!(seek(SeekFrom::Hole(4 * MIB + 5)), Ok(5 * MIB));
    assert_eq!(seek(SeekFrom::Data(4 * MIB + 5)), Ok(4 * MIB + 5));
    fails!(NXIO, seek(SeekFrom::Data(5 * MIB)));
    assert_eq!(seek(SeekFrom::Hole(6 * MIB)), Ok(6 * MIB));
    fails!(NXIO, seek(SeekFrom::Data(8 * MIB)));
    fails!(NXIO, seek(SeekFrom::Hole(8 * MIB)));
    assert_eq!(seek(SeekFrom::End(0)), Ok(8 * MIB));
    let small = create(m.path("small"), OFlags::RDWR, 0o600).unwrap();
    pwrite(&small, 0, b"tiny");
    assert_eq!(rustix::fs::seek(&small, SeekFrom::Data(1)), Ok(1));
    assert_eq!(rustix::fs::seek(&small, SeekFrom::Hole(0)), Ok(4));
    fails!(NXIO, rustix::fs::seek(&small, SeekFrom::Data(4)));
}

#[test]
fn allocation() {
    let Some(m) = mount("") else { return };
    let fd = create(m.path("file"), OFlags::RDWR, 0o600).unwrap();
    rustix::fs::fallocate(&fd, FallocateFlags::KEEP_SIZE, 0, 100_000).unwrap();
    assert_eq!(size(&fd), 0);
    rustix::fs::fallocate(&fd, FallocateFlags::empty(), 0, 50_000).unwrap();
    assert_eq!(size(&fd), 50_000);
    assert_eq!(pread(&fd, 0, 60_000), vec![0; 50_000]);
    pwrite(&fd, 0, &pattern(50_000, 3));
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&fd, punch, 10_000, 20_000).unwrap();
    let mut wanted = pattern(50_000, 3);
    wanted[10_000..30_000].fill(0);
    assert_eq!(pread(&fd, 0, 60_000), wanted);
    assert_eq!(size(&fd), 50_000);
    fails!(OPNOTSUPP, rustix::fs::fallocate(&fd, FallocateFlags::PUNCH_HOLE, 0, 10));
    fails!(INVAL, rustix::fs::fallocate(&fd, FallocateFlags::empty(), 0, 0));
    let reader = open(m.path("file"), OFlags::RDONLY).unwrap();
    fails!(BADF, rustix::fs::fallocate(&reader, FallocateFlags::empty(), 0, 10));
    if !m.is_native() {
        let collapse = FallocateFlags::COLLAPSE_RANGE;
        fails!(OPNOTSUPP, rustix::fs::fallocate(&fd, collapse, 0, 4096));
    }
}

#[test]
fn punching_gives_space_back() {
    let Some(m) = mount_only("") else { return };
    let fd = create(m.path("file"), OFlags::RDWR, 0o600).unwrap();
    pwrite(&fd, 0, &pattern(4 << 20, 3));
    let before = blocks(&fd);
    assert!(before >= (4 << 20) / 512, "{before}");
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&fd, punch, 0, 3 << 20).unwrap();
    let after = blocks(&fd);
    assert!(after <= before / 2, "{before} to {after} blocks");
}

#[test]
fn copies_within_the_volume() {
    let Some(m) = mount("") else { return };
    let data = pattern(700_000, 5);
    std::fs::write(m.path("from"), &data).unwrap();
    let from = open(m.path("from"), OFlags::RDONLY).unwrap();
    let to = create(m.path("to"), OFlags::RDWR, 0o600).unwrap();
    let copy = |from_at: u64, to_at: u64, len: usize| {
        let (mut from_at, mut to_at, mut left) = (from_at, to_at, len);
        while left > 0 {
            let n =
                rustix::fs::copy_file_range(&from, Some(&mut from_at), &to, Some(&mut to_at), left)
                    .unwrap();
            if n == 0 {
                break;
            }
            left -= n;
        }
        len - left
    };
    assert_eq!(copy(0, 0, 1 << 20), 700_000, "ends at the end of the source");
    assert_eq!(pread(&to, 0, 1 << 20), data);
    assert_eq!(copy(100, 200_001, 300_000), 300_000);
    let mut wanted = data.clone();
    wanted[200_001..500_001].copy_from_slice(&data[100..300_100]);
    assert_eq!(pread(&to, 0, 1 << 20), wanted);
    // Overlapping ranges of one file.
    let both = open(m.path("to"), OFlags::RDWR).unwrap();
    fails!(INVAL, rustix::fs::copy_file_range(&both, Some(&mut 0), &both, Some(&mut 10), 100));
}

/// In a process of its own: a page fault of this one must not wait for its own other threads.
#[test]
fn shared_mappings() {
    let Some(m) = mount("") else { return };
    let script = "
import mmap, os, sys
path = sys.argv[1]
fd = os.open(path, os.O_RDWR | os.O_CREAT)
os.ftruncate(fd, 300000)
a = mmap.mmap(fd, 300000)
a[0:5] = b'start'
a[299990:300000] = b'0123456789'
assert os.pread(fd, 5, 0) == b'start'
os.pwrite(fd, b'written', 100000)
assert a[100000:100007] == b'written'
a.flush()
b = mmap.mmap(fd, 300000, mmap.MAP_PRIVATE)
b[0:5] = b'other'
assert os.pread(fd, 5, 0) == b'start'
a.close()
os.close(fd)
";
    let python =
        std::process::Command::new("python3").args(["-c", script]).arg(m.path("file")).output();
    match python {
        Ok(output) => {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
        Err(_) => {
            skipped("no python3");
            return;
        }
    }
    drop_caches();
    let data = std::fs::read(m.path("file")).unwrap();
    assert_eq!(
        (data.len(), &data[..6], &data[299_989..]),
        (300_000, &b"start\0"[..], &b"\x000123456789"[..])
    );
    assert_eq!(&data[100_000..100_007], b"written");
}

#[test]
fn direct_io() {
    let Some(m) = mount_only("") else { return };
    let fd = create(m.path("file"), OFlags::RDWR | OFlags::DIRECT, 0o600).unwrap();
    let data = pattern(3 << 20, 8);
    pwrite(&fd, 0, &data);
    assert!(pread(&fd, 0, 4 << 20) == data);
    let cached = open(m.path("file"), OFlags::RDWR).unwrap();
    pwrite(&cached, 1_000_000, b"by the cache");
    assert_eq!(pread(&fd, 1_000_000, 12), b"by the cache");
}

#[test]
fn data_survives_fsync_and_a_killed_server() {
    let Some(mut m) = mount_only("") else { return };
    let data = pattern(300_000, 11);
    let fd = create(m.path("file"), OFlags::RDWR, 0o600).unwrap();
    pwrite(&fd, 0, &data);
    rustix::fs::fsync(&fd).unwrap();
    let dir = open(&m.dir, OFlags::DIRECTORY).unwrap();
    rustix::fs::fsync(&dir).unwrap();
    drop((fd, dir));
    m.kill();
    shoal_fuse::unmount_lazy(&m.dir).unwrap();
    m.start(0);
    assert!(std::fs::read(m.path("file")).unwrap() == data);
}

#[test]
fn the_writeback_cache() {
    let Some(mut m) = mount_only("writeback") else { return };
    let fd = create(m.path("file"), OFlags::RDWR, 0o600).unwrap();
    for at in 0..10_000u64 {
        pwrite(&fd, at * 7, &at.to_le_bytes()[..7]);
    }
    rustix::fs::fsync(&fd).unwrap();
    drop(fd);
    m.remount();
    let data = std::fs::read(m.path("file")).unwrap();
    assert_eq!(data.len(), 70_000);
    assert!(data.chunks(7).enumerate().all(|(at, chunk)| chunk == &(at as u64).to_le_bytes()[..7]));
}
