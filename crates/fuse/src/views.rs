//! The volume that a mount serves. It may be replaced by a newer view of the same volume while
//! requests are in work: of a volume in a bucket that another process owns, or that this one has
//! taken over.
//!
//! A request has one view from its beginning to its end. Inode numbers and cookies of listings mean
//! the same in each, so open files and listings go on.
//!
//! *Caches of the kernel.* Nobody here knows what the owner has changed between two views. So the
//! kernel may keep names and attributes for a moment only ([`KEPT`]), checks its pages of a file
//! against the time of the last change, and keeps no listings.

use crate::protocol::dirent::{Node, for_each_node};
use crate::protocol::flags::FOPEN_KEEP_CACHE;
use crate::protocol::reply::put;
use crate::protocol::wire::{AttrOut, EntryOut, OpenOut, StatxOut};
use crate::protocol::{Errno, Opcode};
use arc_swap::{ArcSwap, Guard};
use parking_lot::Mutex;
use shoal::raw::Volume;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use zerocopy::FromBytes;

/// Time in nanoseconds for which the kernel keeps what another process may change: 0.1 s.
const KEPT: u32 = 100_000_000;

/// See the head of the file.
pub(crate) struct Views {
    current: ArcSwap<Volume>,
    follows: AtomicBool,
    /// Held by whoever replaces the view.
    replacing: Mutex<()>,
}

impl Views {
    /// Serves this volume.
    pub(crate) fn new(volume: Arc<Volume>) -> Views {
        Views {
            current: ArcSwap::new(volume),
            follows: AtomicBool::new(false),
            replacing: Mutex::default(),
        }
    }

    /// Expects views of a volume that another process changes. Before the first request.
    pub(crate) fn follow(&self) {
        self.follows.store(true, Ordering::Release);
    }

    /// Returns whether another process may change the volume. For a request that is answered by
    /// [`Views::get`] it must be asked before.
    #[inline]
    pub(crate) fn follows(&self) -> bool {
        self.follows.load(Ordering::Acquire)
    }

    /// Returns the newest view.
    #[inline]
    pub(crate) fn get(&self) -> Guard<Arc<Volume>> {
        self.current.load()
    }

    /// Returns the newest view, for longer than a request.
    pub(crate) fn keep(&self) -> Arc<Volume> {
        self.current.load_full()
    }

    /// Replaces the view, unless this process owns the volume.
    pub(crate) fn replace(&self, volume: Arc<Volume>) {
        let _replacing = self.replacing.lock();
        if self.follows() {
            self.current.store(volume);
        }
    }

    /// Replaces the view by the volume that this process owns from now on.
    pub(crate) fn own(&self, volume: Arc<Volume>) {
        let _replacing = self.replacing.lock();
        self.current.store(volume);
        self.follows.store(false, Ordering::Release);
    }
}

/// Limits the time for which the kernel keeps what is in a reply.
///
/// # Errors
/// `EIO`: the reply is none.
#[cold]
pub(crate) fn limit(op: Opcode, reply: &mut [u8]) -> Result<(), Errno> {
    match op {
        Opcode::Lookup
        | Opcode::Create
        | Opcode::Mknod
        | Opcode::Mkdir
        | Opcode::Symlink
        | Opcode::Link
        | Opcode::Tmpfile => {
            let (entry, rest) = EntryOut::read_from_prefix(reply).map_err(|_| Errno::EIO)?;
            let open = OpenOut::read_from_prefix(rest).ok().map(|(open, _)| open);
            let at = put(reply, 0, &limited(&entry))?;
            if let Some(open) = open {
                put(reply, at, &unkept(open))?;
            }
        }
        Opcode::Getattr | Opcode::Setattr => {
            let (out, _) = AttrOut::read_from_prefix(reply).map_err(|_| Errno::EIO)?;
            put(reply, 0, &AttrOut { attr_valid: 0, attr_valid_nsec: KEPT, ..out })?;
        }
        Opcode::Statx => {
            let (out, _) = StatxOut::read_from_prefix(reply).map_err(|_| Errno::EIO)?;
            put(reply, 0, &StatxOut { attr_valid: 0, attr_valid_nsec: KEPT, ..out })?;
        }
        Opcode::Readdirplus => for_each_node(reply, |entry| Node::Show(limited(entry)))?,
        Opcode::Open | Opcode::Opendir => {
            let (open, _) = OpenOut::read_from_prefix(reply).map_err(|_| Errno::EIO)?;
            put(reply, 0, &unkept(open))?;
        }
        _ => {}
    }
    Ok(())
}

fn limited(entry: &EntryOut) -> EntryOut {
    EntryOut {
        entry_valid: 0,
        entry_valid_nsec: KEPT,
        attr_valid: 0,
        attr_valid_nsec: KEPT,
        ..*entry
    }
}

fn unkept(open: OpenOut) -> OpenOut {
    OpenOut { open_flags: open.open_flags & !FOPEN_KEEP_CACHE, ..open }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::dirent::Listing;
    use crate::protocol::reply::tests::sample;
    use crate::protocol::reply::{attr_out, entry, open_out, statx_out};
    use shoal::raw::{DirEntry, FileKind, Ino};

    const ANSWERED: [Opcode; 6] = [
        Opcode::Lookup,
        Opcode::Create,
        Opcode::Getattr,
        Opcode::Statx,
        Opcode::Open,
        Opcode::Readdirplus,
    ];

    /// Writes a reply with the longest times; returns its length.
    fn write(op: Opcode, body: &mut [u8]) -> usize {
        let attr = sample();
        let written = match op {
            Opcode::Lookup => put(body, 0, &entry(&attr)),
            Opcode::Create => put(body, 0, &entry(&attr)).and_then(|at| put(body, at, &open_out())),
            Opcode::Getattr => put(body, 0, &attr_out(&attr)),
            Opcode::Statx => put(body, 0, &statx_out(&attr)),
            Opcode::Open => put(body, 0, &open_out()),
            _ => {
                let mut listing = Listing::new(body);
                let name =
                    |name, cookie| DirEntry { name, ino: Ino(7), kind: FileKind::Regular, cookie };
                assert!(listing.add_plus(&name(b"one", 1), &attr));
                assert!(listing.add_plus(&name(b"two", 2), &attr));
                Ok(listing.len())
            }
        };
        written.unwrap()
    }

    #[test]
    fn nothing_that_is_limited_is_kept_for_longer() {
        for op in ANSWERED {
            let mut body = [0; 1024];
            let len = write(op, &mut body);
            limit(op, &mut body[..len]).unwrap();
            let forever = crate::protocol::reply::TTL_FOREVER.to_le_bytes();
            let is_kept = body.chunks(8).any(|word| word == forever);
            assert!(!is_kept, "{op:?}");
        }
        let mut body = [0; 64];
        let len = write(Opcode::Open, &mut body);
        limit(Opcode::Open, &mut body[..len]).unwrap();
        let (open, _) = OpenOut::read_from_prefix(&body).unwrap();
        assert_eq!(open.open_flags & FOPEN_KEEP_CACHE, 0);
    }

    #[test]
    fn what_is_no_reply_is_an_error() {
        for op in ANSWERED {
            assert!(limit(op, &mut [0; 7]).is_err(), "{op:?}");
        }
        assert!(limit(Opcode::Read, &mut [0; 7]).is_ok());
    }
}
