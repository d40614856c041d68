//! Arguments and results of calls on many inodes.

use super::{Attr, FileKind, Time};
use shoal_base::{Code, Error, Generation, Ino, Result};
use std::fmt;
use std::ops::BitOr;

/// A set of attributes, as the mask of `statx(2)`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Fields(u64);

macro_rules! fields {
    ($($name:ident $bit:literal $doc:literal;)*) => {
        impl Fields {
            $(#[doc = $doc] pub const $name: Fields = Fields($bit);)*
            /// All attributes.
            pub const ALL: Fields = Fields(0 $(| $bit)*);
            const NAMES: &'static [(u64, &'static str)] = &[$(($bit, stringify!($name)),)*];
        }
    };
}

fields! {
    TYPE 0x1 "File type (`STATX_TYPE`), with the device number of a device file.";
    MODE 0x2 "Permission bits (`STATX_MODE`).";
    NLINK 0x4 "Number of links (`STATX_NLINK`).";
    UID 0x8 "Owner (`STATX_UID`).";
    GID 0x10 "Group (`STATX_GID`).";
    ATIME 0x20 "Time of the last access (`STATX_ATIME`).";
    MTIME 0x40 "Time of the last change of the contents (`STATX_MTIME`).";
    CTIME 0x80 "Time of the last change of the inode (`STATX_CTIME`).";
    INO 0x100 "Inode number (`STATX_INO`).";
    SIZE 0x200 "Size in bytes (`STATX_SIZE`).";
    BLOCKS 0x400 "Space used, in units of 512 bytes (`STATX_BLOCKS`).";
    BTIME 0x800 "Time at which it was made (`STATX_BTIME`).";
    GENERATION 0x1_0000_0000 "Generation of the inode number: a bit beyond those of `statx`.";
}

impl Fields {
    /// No attribute.
    pub const NONE: Fields = Fields(0);
    /// Attributes that a directory entry has: they need no inode.
    pub(crate) const OF_ENTRY: Fields = Fields(Fields::TYPE.0 | Fields::INO.0);

    /// Converts a mask with the bits of `statx`.
    ///
    /// # Errors
    /// `EINVAL`, with a message that names the bits, if some are unknown.
    pub fn from_bits(bits: u64) -> Result<Fields> {
        match bits & !Fields::ALL.0 {
            0 => Ok(Fields(bits)),
            unknown => {
                let message = format!("unknown bits {unknown:#x} in a mask of attributes");
                Err(Error::refused(Code::Invalid, message))
            }
        }
    }
    /// Returns the mask.
    pub fn bits(self) -> u64 {
        self.0
    }
    /// Returns whether all of `other` are in this set.
    #[inline]
    pub fn contains(self, other: Fields) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for Fields {
    type Output = Fields;
    fn bitor(self, other: Fields) -> Fields {
        Fields(self.0 | other.0)
    }
}

impl fmt::Debug for Fields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = Fields::NAMES.iter().filter(|(bit, _)| self.0 & bit != 0);
        f.debug_set()
            .entries(names.map(|(_, name)| fmt::from_fn(move |f| f.write_str(name))))
            .finish()
    }
}

/// Required freshness of the attributes of a bulk call; as `AT_STATX_FORCE_SYNC`,
/// `AT_STATX_SYNC_AS_STAT` and `AT_STATX_DONT_SYNC`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default)]
pub enum Freshness {
    /// Current, as from `stat`.
    #[default]
    Force,
    /// Attributes that a front end has cached are enough. The engine caches none that can be old,
    /// so its answers are those of `Force`.
    Lazy,
    /// Only from memory: the device is not read. An attribute that would need a read is marked as
    /// not valid.
    DontWait,
}

/// An inode whose attributes are wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StatItem<'a> {
    /// By number. Only for privileged callers.
    Number(Ino, Option<Generation>),
    /// By the name in a directory, as of `lookup`. A symlink is not followed.
    Name(Ino, &'a [u8]),
}

/// Attributes of an inode, as far as they are valid. All others are zero.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stat {
    /// The valid attributes: all that were wanted, and possibly others.
    pub valid: Fields,
    /// Inode number.
    pub ino: u64,
    /// Generation of the number.
    pub generation: u32,
    /// Type bits (valid with [`Fields::TYPE`]) and permission bits (valid with [`Fields::MODE`]).
    pub mode: u32,
    /// Links.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device file.
    pub rdev: u32,
    /// Size in bytes (directories: number of entries).
    pub size: u64,
    /// Space used, in units of 512 bytes.
    pub blocks: u64,
    /// Last access.
    pub atime: Time,
    /// Last change of the contents.
    pub mtime: Time,
    /// Last change of the inode.
    pub ctime: Time,
    /// Birth.
    pub btime: Time,
    /// Version ([`Attr::version`]), valid with [`Fields::CTIME`].
    pub version: u64,
}

impl Stat {
    /// Returns the attributes that a directory entry has.
    pub(crate) fn of_entry(ino: Ino, kind: FileKind) -> Stat {
        let (valid, mode) = (Fields::OF_ENTRY, kind.mode_bits());
        Stat { valid, ino: ino.0, mode, ..Stat::default() }
    }

    /// Returns all attributes; `None` if some are not valid.
    pub fn attr(&self) -> Option<Attr> {
        let Stat { ino, generation, mode, nlink, uid, gid, rdev, size, blocks, .. } = *self;
        let Stat { valid, atime, mtime, ctime, btime, version, .. } = *self;
        let kind = FileKind::from_mode(mode).filter(|_| valid == Fields::ALL)?;
        let (ino, generation) = (Ino(ino), Generation(generation));
        Some(Attr {
            ino,
            generation,
            kind,
            mode,
            nlink,
            uid,
            gid,
            rdev,
            size,
            blocks,
            atime,
            mtime,
            ctime,
            btime,
            version,
        })
    }
}

impl From<Attr> for Stat {
    fn from(attr: Attr) -> Stat {
        let Attr { mode, nlink, uid, gid, rdev, size, blocks, atime, mtime, ctime, btime, .. } =
            attr;
        let (ino, generation, version) = (attr.ino.0, attr.generation.0, attr.version);
        Stat {
            valid: Fields::ALL,
            ino,
            generation,
            mode,
            nlink,
            uid,
            gid,
            rdev,
            size,
            blocks,
            atime,
            mtime,
            ctime,
            btime,
            version,
        }
    }
}

/// A scan of the inodes of a subvolume ([`crate::Bulk::bulkstat`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InodeScan {
    /// Cursor: only inodes with higher numbers are scanned. Its upper 16 bits are the subvolume;
    /// `Ino::new(subvolume, 0)` is before the first inode.
    pub after: Ino,
    /// Number of threads, at least 1. With one, the inodes come in the order of their numbers; with
    /// more, in this order in each call of the callback.
    pub threads: usize,
}

/// An entry of a directory that was found by its inode ([`crate::Bulk::children`]).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Child {
    /// The name.
    pub name: Box<[u8]>,
    /// Attributes of the inode.
    pub attr: Attr,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_fields_are_refused_by_number() {
        assert_eq!(Fields::from_bits(0xfff).map(Fields::bits).ok(), Some(0xfff));
        let refused = Fields::from_bits(0x3001).err().map(|e| (e.errno(), e.to_string()));
        let (errno, message) = refused.expect("refused");
        assert_eq!(errno, Code::Invalid.errno());
        assert!(message.contains("0x3000"), "{message}");
        assert_eq!(format!("{:?}", Fields::SIZE | Fields::TYPE), "{TYPE, SIZE}");
    }
}
