//! Notifications to the kernel: invalidation of cached entries.
//!
//! None is needed while all changes come through the mount. INVAL_ENTRY and DELETE take the
//! parent's lock in the kernel: they must never be sent by a thread that a create, unlink or lookup
//! in that directory waits for.

use super::Errno;
use super::reply::put;
use super::wire::{NotifyDelete, NotifyInvalEntry, NotifyInvalInode, NotifyPrune, OutHeader};
use shoal::raw::Ino;

/// `NotifyInvalEntry::flags`: the name only expires.
const EXPIRE_ONLY: u32 = 1 << 0;

/// A notification.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Notification<'a> {
    /// Attributes of an inode, and a range of its data unless `None`.
    InvalInode {
        /// Inode.
        ino: Ino,
        /// Start and length of the stale data; length 0: to the end of the file.
        range: Option<(u64, u64)>,
    },
    /// A name, positive or negative.
    InvalEntry {
        /// Directory.
        parent: Ino,
        /// Name in it.
        name: &'a [u8],
        /// The name is kept, with those below it, and looked up at its next use
        /// ([`super::init::HAS_EXPIRE_ONLY`]). Otherwise the kernel drops all of them now.
        expire: bool,
    },
    /// A name is gone, and with it perhaps the inode.
    Delete {
        /// Directory.
        parent: Ino,
        /// Inode that it named.
        child: Ino,
        /// Name.
        name: &'a [u8],
    },
    /// All names of the mount.
    IncEpoch,
    /// Requests that were read and not answered: they are to be read again, with the highest bit of
    /// their numbers set.
    Resend,
    /// Inodes that the kernel should drop if it does not use them.
    Prune {
        /// The inodes.
        nodes: &'a [Ino],
    },
}

impl Notification<'_> {
    /// Returns the code on the wire, in the place of a reply's error.
    pub const fn code(&self) -> i32 {
        match self {
            Notification::InvalInode { .. } => 2,
            Notification::InvalEntry { .. } => 3,
            Notification::Delete { .. } => 6,
            Notification::Resend => 7,
            Notification::IncEpoch => 8,
            Notification::Prune { .. } => 9,
        }
    }

    /// Writes the whole message to `buffer`; returns its length.
    pub fn encode(&self, buffer: &mut [u8]) -> Result<usize, Errno> {
        let at = size_of::<OutHeader>();
        let end = match *self {
            Notification::InvalInode { ino, range } => {
                let signed = |number: u64| number.min(i64::MAX as u64) as i64;
                let (off, len) = range.map_or((-1, 0), |(at, len)| (signed(at), signed(len)));
                put(buffer, at, &NotifyInvalInode { ino: ino.0, off, len })?
            }
            Notification::InvalEntry { parent, name, expire } => {
                let (namelen, flags) = (name.len() as u32, if expire { EXPIRE_ONLY } else { 0 });
                let head = NotifyInvalEntry { parent: parent.0, namelen, flags };
                let at = put(buffer, at, &head)?;
                put_name(buffer, at, name)?
            }
            Notification::Delete { parent, child, name } => {
                let (parent, child, namelen) = (parent.0, child.0, name.len() as u32);
                let at = put(buffer, at, &NotifyDelete { parent, child, namelen, padding: 0 })?;
                put_name(buffer, at, name)?
            }
            Notification::IncEpoch | Notification::Resend => at,
            Notification::Prune { nodes } => {
                let count = nodes.len() as u32;
                let mut at = put(buffer, at, &NotifyPrune { count, ..NotifyPrune::default() })?;
                for node in nodes {
                    at = put(buffer, at, &node.0)?;
                }
                at
            }
        };
        put(buffer, 0, &OutHeader { len: end as u32, error: self.code(), unique: 0 })?;
        Ok(end)
    }
}

/// Puts `name` and its NUL.
fn put_name(buffer: &mut [u8], at: usize, name: &[u8]) -> Result<usize, Errno> {
    let end = at + name.len();
    buffer.get_mut(at..end).ok_or(Errno::EIO)?.copy_from_slice(name);
    put(buffer, end, &0u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(message: Notification<'_>) -> Vec<u8> {
        let mut buffer = [0xAA; 256];
        let len = message.encode(&mut buffer).unwrap();
        buffer[..len].to_vec()
    }

    #[test]
    fn exact_bytes() {
        let bytes =
            encoded(Notification::InvalEntry { parent: Ino(5), name: b"abc", expire: false });
        assert_eq!(bytes.len(), 16 + 16 + 4);
        assert_eq!(bytes[..16], [36, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[16..], [5, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 97, 98, 99, 0]);

        let data = Notification::InvalInode { ino: Ino(9), range: Some((8, 16)) };
        assert_eq!(
            encoded(data)[24..40],
            [[8, 0, 0, 0, 0, 0, 0, 0], [16, 0, 0, 0, 0, 0, 0, 0]].concat()
        );
        let bytes = encoded(Notification::InvalInode { ino: Ino(9), range: None });
        assert_eq!((bytes.len(), bytes[4], bytes[16]), (40, 2, 9));
        assert_eq!(bytes[24..32], (-1i64).to_le_bytes());

        let name = Notification::InvalEntry { parent: Ino(5), name: b"abc", expire: true };
        assert_eq!(encoded(name)[28..32], [1, 0, 0, 0]);

        let gone = Notification::Delete { parent: Ino(1), child: Ino(2), name: b"x" };
        let bytes = encoded(gone);
        assert_eq!((bytes.len(), bytes[4], bytes[24], bytes[32]), (16 + 24 + 2, 6, 2, 1));

        assert_eq!(encoded(Notification::IncEpoch)[..8], [16, 0, 0, 0, 8, 0, 0, 0]);
        let bytes = encoded(Notification::Prune { nodes: &[Ino(3), Ino(4)] });
        assert_eq!((bytes.len(), bytes[4], bytes[16], bytes[40]), (16 + 16 + 16, 9, 2, 4));
    }

    #[test]
    fn no_room_is_an_error() {
        let message = Notification::InvalEntry { parent: Ino(5), name: b"abc", expire: false };
        for size in 0..36 {
            assert!(message.encode(&mut vec![0; size]).is_err(), "{size}");
        }
    }
}
