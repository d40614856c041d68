//! Data that a program has stored to a mapping, and that the kernel has not written yet: other
//! calls must neither miss it nor be undone when it arrives.

use crate::common::*;
use crate::posix_data::Random;
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, OFlags, SeekFrom, Timespec, Timestamps, UTIME_NOW, XattrFlags,
};
use rustix::mm::{MapFlags, MsyncFlags, ProtFlags};
use std::os::fd::OwnedFd;
use std::path::Path;

/// A shared mapping of a whole file.
pub(crate) struct Mapping {
    start: *mut std::ffi::c_void,
    len: usize,
}

impl Mapping {
    pub(crate) fn new(fd: &OwnedFd, len: usize) -> Mapping {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let null = std::ptr::null_mut();
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
        let start =
            unsafe { rustix::mm::mmap(null, len, protection, MapFlags::SHARED, fd, 0).unwrap() };
        Mapping { start, len }
    }

    pub(crate) fn store(&self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= self.len);
        // SAFETY: within the mapping, which no reference points to.
        unsafe {
            std::ptr::copy_nonoverlapping(
                bytes.as_ptr(),
                self.start.cast::<u8>().add(at),
                bytes.len(),
            );
        }
    }

    pub(crate) fn sync(&self) {
        // SAFETY: the mapping is there.
        unsafe { rustix::mm::msync(self.start, self.len, MsyncFlags::SYNC).unwrap() };
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: nothing points into the mapping.
        unsafe { rustix::mm::munmap(self.start, self.len).unwrap() };
    }
}

/// Creates a file that is one hole, and maps it.
fn mapped(path: impl AsRef<Path>, len: usize) -> (OwnedFd, Mapping) {
    let fd = create(path, OFlags::RDWR | OFlags::EXCL, 0o644).unwrap();
    rustix::fs::ftruncate(&fd, len as u64).unwrap();
    let mapping = Mapping::new(&fd, len);
    (fd, mapping)
}

/// Copies a file as `cp` does: only what is told to be data.
fn copied(path: impl AsRef<Path>) -> Vec<u8> {
    let fd = open(path, OFlags::RDONLY).unwrap();
    let size = rustix::fs::fstat(&fd).unwrap().st_size as usize;
    let (mut copy, mut at) = (vec![0; size], 0);
    while at < size as u64 {
        let data = match rustix::fs::seek(&fd, SeekFrom::Data(at)) {
            Err(rustix::io::Errno::NXIO) => break,
            found => found.unwrap(),
        };
        let end = rustix::fs::seek(&fd, SeekFrom::Hole(data)).unwrap();
        assert!(at <= data && data < end && end <= size as u64, "{at} {data} {end} {size}");
        let read = pread(&fd, data, (end - data) as usize);
        copy[data as usize..end as usize].copy_from_slice(&read);
        at = end;
    }
    copy
}

/// Kinds of mounts that differ in what the server sees.
const KINDS: [&str; 4] = ["", "open", "writeback", "allow_other"];

#[test]
fn a_copy_has_what_was_stored() {
    for kind in KINDS {
        let Some(m) = mount(kind) else { return };
        for len in [700, 9000, 300_000] {
            let path = m.path(&len.to_string());
            let (_fd, mapping) = mapped(&path, len);
            let mut wanted = vec![0; len];
            let store = |wanted: &mut Vec<u8>, at: usize| {
                wanted[at..at + 100].fill(b'D');
                mapping.store(at, &[b'D'; 100]);
            };
            store(&mut wanted, len / 2);
            // Without a block `tar` asks for no data.
            assert_ne!(stat(&path).unwrap().st_blocks, 0, "{kind:?} {len}");
            assert!(copied(&path) == wanted, "{kind:?} {len}");
            // Again, to the same page and to another.
            store(&mut wanted, len / 2 + 100);
            store(&mut wanted, len - 100);
            assert!(copied(&path) == wanted, "{kind:?} {len}, again");
            mapping.sync();
            store(&mut wanted, 0);
            assert!(copied(&path) == wanted, "{kind:?} {len}, after msync");
        }
    }
}

/// Attributes that the kernel has kept since all pages were read, and a store that it tells nobody.
#[test]
fn stored_to_pages_that_were_read() {
    for kind in KINDS {
        let Some(m) = mount(kind) else { return };
        let path = m.path("file");
        let (fd, mapping) = mapped(&path, 50_000);
        assert_eq!(pread(&fd, 0, 50_000), [0; 50_000]);
        stat(&path).unwrap();
        list(&m.dir);
        assert_eq!(copied(&path), [0; 50_000]);
        assert_eq!(pread(&fd, 0, 50_000), [0; 50_000]);
        list(&m.dir);
        stat(&path).unwrap();
        mapping.store(20_000, b"stored");
        assert_ne!(stat(&path).unwrap().st_blocks, 0, "{kind:?}");
        let mut wanted = vec![0; 50_000];
        wanted[20_000..20_006].copy_from_slice(b"stored");
        assert!(copied(&path) == wanted, "{kind:?}");
        assert!(std::fs::read(&path).unwrap() == wanted, "{kind:?}");
    }
}

/// More dirty pages than the kernel writes in a moment.
#[test]
fn a_copy_while_much_is_dirty() {
    let Some(m) = mount("") else { return };
    const LEN: usize = 12 << 20;
    let path = m.path("file");
    let (_fd, mapping) = mapped(&path, LEN);
    let mut wanted = vec![0; LEN];
    for at in (0..LEN).step_by(12 << 10) {
        wanted[at..at + 8].copy_from_slice(&(at as u64 + 1).to_le_bytes());
        mapping.store(at, &(at as u64 + 1).to_le_bytes());
    }
    assert!(copied(&path) == wanted);
    drop(mapping);
    assert!(copied(&path) == wanted);
}

/// All ways to change a file, and what is told of each afterwards.
#[test]
fn random_changes_are_told() {
    let Some(m) = mount("") else { return };
    let mut random = Random(26);
    for file in 0..40 {
        let path = m.path(&file.to_string());
        let size = [60, 700, 5000, 70_000, 300_000][file % 5] + random.below(60) as usize;
        let (fd, mut mapping) = mapped(&path, size);
        let mut model = vec![0; size];
        for step in 1..6 {
            let at = random.below(size as u64) as usize;
            let len = (1 + random.below(9000) as usize).min(size - at);
            match random.below(5) {
                0 => pwrite(&fd, at as u64, &vec![step; len]),
                1 | 2 => mapping.store(at, &vec![step; len]),
                3 => {
                    drop(mapping);
                    pwrite(&open(&path, OFlags::RDWR).unwrap(), at as u64, &vec![step; len]);
                    mapping = Mapping::new(&fd, size);
                }
                _ => {
                    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                    rustix::fs::fallocate(&fd, punch, at as u64, len as u64).unwrap();
                    model[at..at + len].fill(0);
                    continue;
                }
            }
            model[at..at + len].fill(step);
            assert!(copied(&path) == model, "file {file} of {size}, step {step}");
        }
    }
}

const OLD: Timespec = Timespec { tv_sec: 981_173_106, tv_nsec: 123_456_789 };

fn set_mtime(path: impl AsRef<Path>, mtime: Timespec) {
    let times = Timestamps { last_access: OLD, last_modification: mtime };
    rustix::fs::utimensat(CWD, path.as_ref(), &times, AtFlags::empty()).unwrap();
}

fn mtime(path: impl AsRef<Path>) -> (i64, i64) {
    let facts = stat(path).unwrap();
    (facts.st_mtime as i64, facts.st_mtime_nsec as i64)
}

#[test]
fn a_time_set_after_a_store_stays() {
    for kind in KINDS {
        let Some(m) = mount(kind) else { return };
        let path = m.path("file");
        let (fd, mapping) = mapped(&path, 20_000);
        let old = (OLD.tv_sec, OLD.tv_nsec);
        mapping.store(5, b"1234");
        mapping.store(9000, b"5678");
        set_mtime(&path, OLD);
        assert_eq!(mtime(&path), old, "{kind:?}");
        mapping.sync();
        assert_eq!(mtime(&path), old, "{kind:?}: msync");
        // The next store counts again.
        mapping.store(5, b"abcd");
        mapping.sync();
        assert!(mtime(&path) > old, "{kind:?}: a later store");
        // The same through the descriptor, and until the mapping is gone.
        mapping.store(6, b"efgh");
        let times = Timestamps { last_access: OLD, last_modification: OLD };
        rustix::fs::futimens(&fd, &times).unwrap();
        drop(mapping);
        rustix::fs::fsync(&fd).unwrap();
        assert_eq!(mtime(&path), old, "{kind:?}: munmap");
        // The present time is one like any other.
        let mapping = Mapping::new(&fd, 20_000);
        mapping.store(1, b"now");
        set_mtime(&path, Timespec { tv_sec: 0, tv_nsec: UTIME_NOW });
        let now = mtime(&path);
        mapping.sync();
        assert_eq!(mtime(&path), now, "{kind:?}: now");
        drop((mapping, fd));
        let wanted = [&b"\0now\0aefgh"[..], &[0; 8990], b"5678", &[0; 10_996]].concat();
        assert!(std::fs::read(&path).unwrap() == wanted, "{kind:?}");
    }
}

/// A capability to use raw sockets.
const CAPABILITY: &[u8] = b"\x01\0\0\x02\0\x20\0\0\0\0\0\0\0\0\0\0\0\0\0\0";

#[test]
fn privileges_given_after_a_store_stay() {
    for kind in KINDS {
        let Some(m) = mount(kind) else { return };
        // Within the inode, and with data of their own.
        for len in [150, 20_000] {
            let path = m.path(&format!("file {len}"));
            let (fd, mapping) = mapped(&path, len);
            mapping.store(0, b"first");
            chmod(&path, 0o6755);
            let name = "security.capability";
            rustix::fs::setxattr(&path, name, CAPABILITY, XattrFlags::empty()).unwrap();
            mapping.store(len / 2, b"second");
            drop(mapping);
            rustix::fs::fsync(&fd).unwrap();
            assert_eq!(mode(&path), 0o6755, "{kind:?} {len}");
            let mut value = [0; 64];
            let got = rustix::fs::getxattr(&path, name, &mut value).unwrap();
            assert_eq!(value[..got], *CAPABILITY, "{kind:?} {len}");
            let data = std::fs::read(&path).unwrap();
            assert_eq!((&data[..5], &data[len / 2..len / 2 + 6]), (&b"first"[..], &b"second"[..]));
        }
    }
}
