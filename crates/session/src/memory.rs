//! Memory that a client and a server share.
//!
//! The client makes it: a file without a name whose length is sealed, so that no access fails
//! because it has become shorter, and which counts as the client's memory. Both sides read and
//! write it by atomic words alone, because the other side may write at any moment whatever the
//! protocol says: a server copies a question once and looks at nothing but its copy.
//!
//! | bytes | content |
//! | --- | --- |
//! | 4096 | head: the words of the door, and what was closed |
//! | [`LANES`] × [`LANE_BYTES`] | lanes: a head of [`LANE_HEAD`] bytes, and a place for a message |
//!
//! Pages that were never touched take no memory.

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{Advice, MapFlags, ProtFlags};
use shoal_base::{Code, Error, Result};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Lanes of a session, one for each call under way at the same time.
pub const LANES: usize = 32;
/// Bytes of the head of a lane.
pub const LANE_HEAD: usize = 64;
/// Bytes of a question or an answer: a write of 1 MiB, which is one transaction, and its arguments.
pub const ROOM: usize = (1 << 20) + (8 << 10) - LANE_HEAD;
/// Bytes of a lane.
pub const LANE_BYTES: usize = LANE_HEAD + ROOM;
const HEAD_BYTES: usize = 4096;
/// The file's name, which the kernel shows.
const NAME: &str = "shoal-session";
/// Bytes of the file.
pub const FILE_BYTES: usize = HEAD_BYTES + LANES * LANE_BYTES;

/// Place of the word with a bit for each lane in which a question waits.
const WAITING: usize = 0;
/// Place of the word that says that something was closed.
const CLOSING: usize = WAITING + 4;
/// Place of the numbers of nodes that the client has closed, each in a word of its own.
const CLOSED: usize = 256;
/// Nodes that a client may close before the server has seen it.
pub const CLOSED_MAX: usize = 64;
/// Place of the word that says that the server has ended for good.
const ENDED: usize = CLOSING + 4;
/// Place of the word that says whether the server looks by itself. In a cache line of its own: the
/// server seldom writes it.
const WATCHED: usize = 128;

const _: () = assert!(LANE_BYTES.is_multiple_of(4096) && LANES <= 32);

/// Seals that a file must have: nobody can change its length any more.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);
/// The filesystem of files without a name. Another one, such as that of huge pages, may have no
/// memory for a page that is touched.
const TMPFS: i64 = 0x0102_1994;

/// A mapping of a file in memory, as atomic words.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to this value, and all accesses are atomic.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `len` bytes of a file, which must be as long and stay so. A child of `fork`
    /// does not have the mapping unless it is `inherited`.
    pub(crate) fn of(file: impl AsFd, len: usize, inherited: bool) -> Result<Mapping> {
        Mapping::with(file, len, ProtFlags::READ | ProtFlags::WRITE, inherited)
    }

    /// The same for words that are only read; a child of `fork` does not have it.
    pub(crate) fn to_read(file: impl AsFd, len: usize) -> Result<Mapping> {
        Mapping::with(file, len, ProtFlags::READ, false)
    }

    fn with(file: impl AsFd, len: usize, prot: ProtFlags, inherited: bool) -> Result<Mapping> {
        let failed = |os: rustix::io::Errno| {
            Error::refused(Code::NoMemory, format!("the memory of a session is not mapped: {os}"))
        };
        let flags = MapFlags::SHARED;
        // SAFETY: a new mapping at an address that the kernel chooses, of a file that is as long
        // and stays so.
        let base = unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, prot, flags, file, 0) };
        let base = NonNull::new(base.map_err(failed)?.cast::<u8>());
        let mapping = Mapping { base: base.ok_or(Code::NoMemory)?, len };
        if !inherited {
            // SAFETY: the whole mapping, which belongs to this value.
            let advised = unsafe {
                rustix::mm::madvise(mapping.base.as_ptr().cast(), len, Advice::LinuxDontFork)
            };
            advised.map_err(failed)?;
        }
        Ok(mapping)
    }

    /// The word of 4 bytes at a place.
    #[inline]
    fn word(&self, at: usize) -> &AtomicU32 {
        assert!(at.is_multiple_of(size_of::<u32>()) && at + size_of::<u32>() <= self.len);
        // SAFETY: in the mapping, which lives as long as the borrow, and aligned. Both sides access
        // it by atomics alone.
        unsafe { AtomicU32::from_ptr(self.base.as_ptr().add(at).cast()) }
    }

    /// `count` words of 8 bytes at a place.
    #[inline]
    pub(crate) fn words(&self, at: usize, count: usize) -> &[AtomicU64] {
        assert!(at.is_multiple_of(size_of::<u64>()) && at + count * size_of::<u64>() <= self.len);
        // SAFETY: in the mapping, which lives as long as the borrow, and aligned. Both sides access
        // it by atomics alone.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().add(at).cast(), count) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by this value with that length, and nobody borrows it any more.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// A mapping of the memory of a session.
#[derive(Debug)]
pub struct Memory(Mapping);

impl Memory {
    /// Makes the memory of a new session. A child of `fork` does not have it.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn make() -> Result<(Memory, OwnedFd)> {
        let no_memory = |os: rustix::io::Errno| {
            Error::refused(Code::NoMemory, format!("no memory for a session: {os}"))
        };
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create(NAME, flags).map_err(no_memory)?;
        rustix::fs::ftruncate(&file, FILE_BYTES as u64).map_err(no_memory)?;
        rustix::fs::fcntl_add_seals(&file, SEALS).map_err(no_memory)?;
        let memory = Memory(Mapping::of(&file, FILE_BYTES, false)?);
        Ok((memory, file))
    }

    /// Maps the memory that a client has sent. Returns its inode number too.
    ///
    /// # Errors
    /// `EINVAL`: it is not what a client makes.
    pub fn of_client(file: BorrowedFd<'_>) -> Result<(Memory, u64)> {
        let refused = |why: &str| {
            Error::refused(Code::Invalid, format!("the memory of a session {why}: connect anew"))
        };
        // First what asks no filesystem, which may be the client's own and never answer: only files
        // in memory have seals.
        let Ok(seals) = rustix::fs::fcntl_get_seals(file) else {
            return Err(refused("is no file in memory"));
        };
        if !seals.contains(SEALS) {
            return Err(refused("is not sealed"));
        }
        let kind = rustix::fs::fstatfs(file).map(|found| found.f_type);
        if kind != Ok(TMPFS) {
            return Err(refused("is no plain file in memory"));
        }
        match rustix::fs::fstat(file) {
            Ok(found) if found.st_size == FILE_BYTES as i64 => {
                Mapping::of(file, FILE_BYTES, true).map(|mapping| (Memory(mapping), found.st_ino))
            }
            _ => Err(refused("has another length")),
        }
    }

    /// Returns whether a process still has the memory with this inode number; also if that cannot
    /// be seen.
    pub(crate) fn is_in(pid: u32, ino: u64) -> bool {
        let files = match std::fs::read_dir(format!("/proc/{pid}/fd")) {
            Ok(files) => files,
            Err(error) => return error.kind() != std::io::ErrorKind::NotFound,
        };
        let is_it = |path: PathBuf| {
            let name = format!("/memfd:{NAME} ");
            // Only what has the name is looked at: another file's filesystem may never answer.
            std::fs::read_link(&path)
                .is_ok_and(|to| to.as_os_str().as_bytes().starts_with(name.as_bytes()))
                && std::fs::metadata(&path).is_ok_and(|found| found.ino() == ino)
        };
        files.flatten().any(|file| is_it(file.path()))
    }

    /// A bit for each lane in which a question waits.
    pub fn waiting(&self) -> &AtomicU32 {
        self.word(WAITING)
    }

    /// The word that says that the server looks by itself: 1, or 0 if it must be called.
    pub fn watched(&self) -> &AtomicU32 {
        self.word(WATCHED)
    }

    /// The word that says that there are numbers in [`Memory::closed`].
    pub fn closing(&self) -> &AtomicU32 {
        self.word(CLOSING)
    }

    /// The word by which the server says that it has ended for good: 1. The client does not look
    /// for another one then.
    pub fn ended(&self) -> &AtomicU32 {
        self.word(ENDED)
    }

    /// A node that the client has closed, or 0.
    pub fn closed(&self, place: usize) -> &AtomicU32 {
        assert!(place < CLOSED_MAX);
        self.word(CLOSED + place * size_of::<u32>())
    }

    /// A word of the head of a lane, by its place in words.
    pub fn lane(&self, lane: usize, word: usize) -> &AtomicU32 {
        assert!(lane < LANES && word < LANE_HEAD / size_of::<u32>());
        self.word(HEAD_BYTES + lane * LANE_BYTES + word * size_of::<u32>())
    }

    #[inline]
    fn word(&self, at: usize) -> &AtomicU32 {
        self.0.word(at)
    }

    /// The words of a lane's place that hold its first `len` bytes.
    fn place(&self, lane: usize, len: usize) -> &[AtomicU64] {
        assert!(lane < LANES && len <= ROOM);
        let at = HEAD_BYTES + lane * LANE_BYTES + LANE_HEAD;
        self.0.words(at, len.div_ceil(size_of::<u64>()))
    }

    /// Copies bytes into the place of a lane. At most [`ROOM`].
    pub fn write(&self, lane: usize, bytes: &[u8]) {
        let words = self.place(lane, bytes.len());
        let (whole, rest) = bytes.as_chunks::<8>();
        for (word, bytes) in words.iter().zip(whole) {
            word.store(u64::from_le_bytes(*bytes), Ordering::Relaxed);
        }
        if let (Some(last), false) = (words.last(), rest.is_empty()) {
            let mut bytes = [0; 8];
            bytes[..rest.len()].copy_from_slice(rest);
            last.store(u64::from_le_bytes(bytes), Ordering::Relaxed);
        }
    }

    /// Appends the first `len` bytes of the place of a lane to `into`. At most [`ROOM`].
    pub fn read(&self, lane: usize, len: usize, into: &mut Vec<u8>) {
        let (words, begin) = (self.place(lane, len), into.len());
        into.resize(begin + words.len() * size_of::<u64>(), 0);
        let (places, _) = into[begin..].as_chunks_mut::<8>();
        for (place, word) in places.iter_mut().zip(words) {
            *place = word.load(Ordering::Relaxed).to_le_bytes();
        }
        into.truncate(begin + len);
    }

    /// Client: makes the memory ready for another server, while no lane is in use and no server has
    /// it. Closed nodes stay noted.
    pub fn begin_anew(&self) {
        (0..LANES).for_each(|lane| self.lane(lane, 0).store(crate::lane::FREE, Ordering::Relaxed));
        self.waiting().store(0, Ordering::Relaxed);
        self.watched().store(0, Ordering::SeqCst);
    }

    /// Gives the pages of a lane's place back, when it will not be used soon. For the client, whose
    /// memory they are.
    pub fn give_back(&self, file: impl AsFd, lane: usize) {
        let flags = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
        let at = (HEAD_BYTES + lane * LANE_BYTES + HEAD_BYTES) as u64;
        // Without it, they stay.
        let _ = rustix::fs::fallocate(file, flags, at, (LANE_BYTES - HEAD_BYTES) as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_see_the_same() {
        let (client, file) = Memory::make().unwrap();
        let (server, ino) = Memory::of_client(file.as_fd()).unwrap();
        for len in [0, 1, 7, 8, 9, 4096, ROOM] {
            let bytes: Vec<u8> = (0..len).map(|n| (n % 251) as u8).collect();
            client.write(LANES - 1, &bytes);
            let mut found = vec![7];
            server.read(LANES - 1, len, &mut found);
            assert_eq!((found[0], &found[1..]), (7, &bytes[..]));
        }
        client.waiting().store(5, Ordering::Relaxed);
        client.lane(LANES - 1, 15).store(6, Ordering::Relaxed);
        assert_eq!(server.waiting().load(Ordering::Relaxed), 5);
        assert_eq!(server.lane(LANES - 1, 15).load(Ordering::Relaxed), 6);
        assert_eq!(server.watched().load(Ordering::Relaxed), 0);
        assert!(Memory::is_in(std::process::id(), ino));
        drop(file);
        assert!(!Memory::is_in(std::process::id(), ino), "mapped, but not open");
        assert!(!Memory::is_in(u32::MAX, ino), "no process");
    }

    #[test]
    fn what_is_no_memory_of_a_session_is_refused() {
        let refused = |file: OwnedFd| {
            let made = Memory::of_client(file.as_fd());
            made.err().map(|e| e.to_string())
        };
        let dev = std::fs::File::open("/proc/version").unwrap();
        assert!(refused(dev.into()).is_some_and(|text| text.contains("no file in memory")));
        let of = |len, seals| {
            let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
            let file = rustix::fs::memfd_create("test", flags).unwrap();
            rustix::fs::ftruncate(&file, len).unwrap();
            rustix::fs::fcntl_add_seals(&file, seals).unwrap();
            refused(file)
        };
        assert!(of(FILE_BYTES as u64, SealFlags::GROW).is_some_and(|it| it.contains("sealed")));
        assert!(of(4096, SEALS).is_some_and(|it| it.contains("length")));
        assert_eq!(of(FILE_BYTES as u64, SEALS), None);
    }
}
