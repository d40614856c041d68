//! Listings of directories: the C library's `DIR`, of directories that a session has open.

use crate::answer::Answer;
use crate::copies::Copy;
use crate::files::{self, File};
use crate::kernel::Errno;
use crate::state::{Counted, count};
use shoal_engine::{Fields, Filter, Ino, Listing};
use shoal_session::Calls;
use std::sync::Arc;

/// Bytes of names that are held at a time.
const HELD: usize = 256 << 10;
/// Cookies of "." and "..", which are the kernel's too.
const DOT: i64 = 1;
const DOTS: i64 = 2;

/// A directory that is listed. The program has a pointer to it as to the C library's.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Dir {
    mark: i32,
    pub fd: i32,
    /// `None`: it has become the mount's, as its process has forked: it is listed by descriptor.
    file: Option<Arc<File>>,
    /// Entries that have been listed: the next one is at `at`.
    held: Vec<Entry>,
    /// A copy, and the place in it of what comes after them.
    copy: Option<(Arc<Copy>, usize)>,
    names: Vec<u8>,
    at: usize,
    /// Cookie of the entry that was returned last, 0 at the beginning.
    last: i64,
    /// Nothing comes after what is held.
    is_all: bool,
    /// Room for the entry that is returned.
    entry: libc::dirent64,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    ino: u64,
    cookie: i64,
    kind: u8,
    name: (u32, u16),
}

/// In the place of the descriptor that the C library's `DIR` begins with, which is not negative.
const MARK: i32 = i32::from_le_bytes(*b"sho\xff");

/// Returns whether a pointer of the program's is one to a [`Dir`], and not to the C library's.
///
/// # Safety
/// It must be one of both, and open.
#[inline]
pub(crate) unsafe fn is_ours(pointer: *const Dir) -> bool {
    // SAFETY: both begin with a number of 4 bytes.
    unsafe { pointer.cast::<i32>().read() == MARK }
}

/// Opens the directory of a descriptor for listing; `None`: the C library is to do it.
pub(crate) fn open(fd: i32) -> Option<*mut Dir> {
    let file = files::get(fd).filter(|file| file.is_dir && !file.is_place())?;
    file.served()?;
    let dir = Dir {
        mark: MARK,
        fd,
        file: Some(file),
        held: Vec::new(),
        copy: None,
        names: Vec::new(),
        at: 0,
        last: 0,
        is_all: false,
        // SAFETY: numbers alone, of which every value is one.
        entry: unsafe { std::mem::zeroed() },
    };
    Some(Box::into_raw(Box::new(dir)))
}

/// Takes a listing off; returns it, to be dropped.
///
/// # Safety
/// It must be open, and ours.
pub(crate) unsafe fn close(pointer: *mut Dir) -> Box<Dir> {
    // SAFETY: made by `open`, and open until now: the program may not use it any more.
    unsafe { Box::from_raw(pointer) }
}

impl Dir {
    /// Returns the next entry; null at the end.
    pub(crate) fn next(&mut self) -> Result<*mut libc::dirent64, Errno> {
        if self.at == self.held.len() && !self.is_all {
            match self.fill() {
                Some(Ok(())) => {}
                Some(Err(errno)) => return Err(errno),
                None => self.fill_by_kernel()?,
            }
        }
        let Some(entry) = self.held.get(self.at).copied() else {
            return Ok(self.copied());
        };
        self.at += 1;
        let (begin, len) = (entry.name.0 as usize, usize::from(entry.name.1));
        self.last = entry.cookie;
        Ok(put(&mut self.entry, &self.names[begin..begin + len], &entry))
    }

    /// Returns the next entry of the copy.
    fn copied(&mut self) -> *mut libc::dirent64 {
        let Some((copy, at)) = &mut self.copy else { return std::ptr::null_mut() };
        let Some(found) = copy.at(*at) else { return std::ptr::null_mut() };
        *at += 1;
        let (kind, cookie) = (found.kind as u8, found.cookie as i64);
        let entry = Entry { ino: found.ino.0, cookie, kind, name: (0, 0) };
        self.last = cookie;
        put(&mut self.entry, found.name, &entry)
    }
}

/// Puts an entry into its room.
#[inline]
fn put(out: &mut libc::dirent64, name: &[u8], entry: &Entry) -> *mut libc::dirent64 {
    out.d_ino = entry.ino;
    out.d_off = entry.cookie;
    out.d_type = entry.kind;
    let header = std::mem::offset_of!(libc::dirent64, d_name);
    out.d_reclen = (header + name.len() + 1).next_multiple_of(8) as u16;
    for (to, from) in out.d_name.iter_mut().zip(name.iter().chain(&[0])) {
        *to = *from as libc::c_char;
    }
    out
}

impl Dir {
    /// Cookie of the entry that was returned last.
    pub(crate) fn position(&self) -> i64 {
        self.last
    }

    /// Goes on behind the entry with a cookie; 0: from the beginning.
    pub(crate) fn seek(&mut self, cookie: i64) {
        self.held.clear();
        self.names.clear();
        self.copy = None;
        (self.at, self.last, self.is_all) = (0, cookie.max(0), false);
    }

    fn hold(&mut self, name: &[u8], ino: u64, kind: u8, cookie: i64) {
        let place = (self.names.len() as u32, name.len() as u16);
        self.names.extend_from_slice(name);
        self.held.push(Entry { ino, cookie, kind, name: place });
    }

    /// Lists what comes next.
    fn fill(&mut self) -> Answer<()> {
        // After a fork the descriptor is the mount's.
        let file = self.file.clone().filter(|_| files::is_file(self.fd))?;
        let served = file.served()?;
        let after = self.last;
        self.seek(after);
        if after < DOT {
            self.hold(b".", file.ino, libc::DT_DIR, DOT);
        }
        if after < DOTS {
            self.hold(b"..", file.parent, libc::DT_DIR, DOTS);
        }
        let copy = served.copies.list(&served.remote, || file.node(), file.ino, after == 0);
        if let Some(copy) = copy {
            let at = copy.behind(after as u64);
            self.copy = Some((copy, at));
            count(Counted::list, true);
            self.is_all = true;
            return Some(Ok(()));
        }
        if file.is_gone() {
            self.is_all = true;
            self.held.clear();
            return Some(Ok(()));
        }
        let cookies = shoal_engine::Cookies::ALL.after(after as u64);
        let listing = Listing { cookies, want: Fields::NONE, filter: Filter::default() };
        let mut stopped = false;
        let listed = served.remote.list(
            served.who(),
            file.node()?,
            b"",
            Ino(file.ino),
            &listing,
            &mut |entry, _| {
                self.hold(entry.name, entry.ino.0, entry.kind as u8, entry.cookie as i64);
                stopped = self.names.len() >= HELD;
                !stopped
            },
        );
        count(Counted::list, listed.is_ok());
        self.is_all = !stopped;
        match listed {
            Ok(()) => Some(Ok(())),
            // Nothing of it has been returned.
            Err(_) => {
                self.seek(after);
                None
            }
        }
    }

    /// The same by the descriptor, of which the mount lists with the same cookies.
    #[allow(clippy::host_endian_bytes, reason = "the kernel's records")]
    fn fill_by_kernel(&mut self) -> Result<(), Errno> {
        files::settle(self.fd)?;
        if let Some(file) = self.file.take() {
            files::drop_file(file);
        }
        let after = self.last;
        self.seek(after);
        let mut part = vec![0u8; 32 << 10];
        let len = crate::kernel::list(self.fd, after, &mut part)?;
        let mut rest = &part[..len];
        // struct linux_dirent64: ino 8, offset 8, length 2, type 1, name.
        while let Some((head, _)) = rest.split_first_chunk::<19>() {
            let word = |at: usize| u64::from_ne_bytes(std::array::from_fn(|byte| head[at + byte]));
            let record = usize::from(u16::from_ne_bytes([head[16], head[17]]));
            let name = rest.get(19..record).unwrap_or_default();
            let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
            self.hold(name, word(0), head[18], word(8) as i64);
            rest = rest.get(record.max(19)..).unwrap_or_default();
        }
        self.is_all = len == 0;
        Ok(())
    }
}
