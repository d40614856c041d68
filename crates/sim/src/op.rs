//! Operations as data: what a run is made of, and what a failing run is printed as. Files are named
//! by path (or by the number of an open slot), never by inode number, so that an operation still
//! means something after others have been cut out of the list before it.

mod text;

use crate::memory::Refusal;
use shoal::{Caller, Fallocate, RenameFlags, Seek, SetTime, Time, XattrFlags};
use std::fmt;
use std::sync::Arc;

/// Slots for open files in a run.
pub const SLOTS: usize = 6;

/// On whose behalf.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Who {
    /// The superuser.
    Root,
    /// User 1000 in group 1000.
    One,
    /// User 1001 in groups 1001, 1000 and 100.
    Two,
}

impl Who {
    /// Everyone.
    pub const ALL: [Who; 3] = [Who::Root, Who::One, Who::Two];

    /// As the volume wants it. User 1000 has a umask, so that it is tested.
    pub fn caller(self) -> Caller {
        match self {
            Who::Root => Caller::root(),
            Who::One => Caller { umask: 0o022, ..Caller::user(1000, 1000) },
            Who::Two => Caller { groups: Arc::from([1000, 100]), ..Caller::user(1001, 1001) },
        }
    }
}

/// Which inode.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Target {
    /// By plain names from the top.
    Path(Vec<u8>),
    /// The file open in this slot.
    Slot(usize),
}

/// A name in a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// The directory.
    pub dir: Target,
    /// The name.
    pub name: Vec<u8>,
}

/// Bytes to write, made from a seed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Data {
    /// Which bytes.
    pub seed: u64,
    /// How many.
    pub len: u32,
}

impl Data {
    /// The bytes: one of zeros, one value repeated, text that compresses, noise.
    pub fn bytes(self) -> Vec<u8> {
        let mut rng = crate::rng::Rng::new(self.seed);
        let len = self.len as usize;
        match self.seed % 8 {
            0 => vec![0; len],
            1 => vec![rng.next() as u8 | 1; len],
            2 => {
                let word = format!("{:016x} ", self.seed).into_bytes();
                let mut bytes = word.repeat(len.div_ceil(word.len()));
                bytes.truncate(len);
                bytes
            }
            _ => {
                let mut bytes = Vec::with_capacity(len + 8);
                while bytes.len() < len {
                    bytes.extend_from_slice(&rng.next().to_le_bytes());
                }
                bytes.truncate(len);
                bytes
            }
        }
    }
}

/// One step of a run. The first target is the inode or directory acted upon.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the fields are the parameters of the volume's calls")]
pub enum Op {
    // Names.
    Create {
        who: Who,
        at: Place,
        mode: u32,
    },
    Mkdir {
        who: Who,
        at: Place,
        mode: u32,
    },
    Mknod {
        who: Who,
        at: Place,
        mode: u32,
        rdev: u32,
    },
    Symlink {
        who: Who,
        at: Place,
        target: Vec<u8>,
    },
    Link {
        who: Who,
        from: Target,
        at: Place,
    },
    Unlink {
        who: Who,
        at: Place,
    },
    Rmdir {
        who: Who,
        at: Place,
    },
    /// A directory with all that is below it, or a file.
    RemoveTree {
        who: Who,
        at: Place,
    },
    Rename {
        who: Who,
        from: Place,
        to: Place,
        flags: RenameFlags,
    },
    Tmpfile {
        who: Who,
        dir: Target,
        mode: u32,
        slot: usize,
    },
    Open {
        file: Target,
        slot: usize,
    },
    Close {
        slot: usize,
    },
    // Attributes.
    Chmod {
        who: Who,
        file: Target,
        mode: u32,
    },
    Chown {
        who: Who,
        file: Target,
        uid: Option<u32>,
        gid: Option<u32>,
    },
    Utimes {
        who: Who,
        file: Target,
        atime: Option<SetTime>,
        mtime: Option<SetTime>,
    },
    Truncate {
        who: Who,
        file: Target,
        size: u64,
        by_handle: bool,
    },
    SetXattr {
        who: Who,
        file: Target,
        name: Vec<u8>,
        data: Data,
        flags: XattrFlags,
    },
    RemoveXattr {
        who: Who,
        file: Target,
        name: Vec<u8>,
    },
    // Contents.
    Write {
        file: Target,
        offset: u64,
        data: Data,
        kill_priv: bool,
    },
    Append {
        file: Target,
        data: Data,
        kill_priv: bool,
    },
    Fallocate {
        file: Target,
        mode: Fallocate,
        offset: u64,
        len: u64,
    },
    CopyRange {
        from: Target,
        from_offset: u64,
        to: Target,
        to_offset: u64,
        len: u64,
    },
    // Questions.
    GetXattr {
        who: Who,
        file: Target,
        name: Vec<u8>,
    },
    ListXattr {
        who: Who,
        file: Target,
    },
    /// All paths that lead to an inode.
    Paths {
        file: Target,
    },
    Lookup {
        who: Who,
        at: Place,
    },
    Getattr {
        file: Target,
    },
    Access {
        who: Who,
        file: Target,
        mask: u32,
    },
    Resolve {
        who: Who,
        start: Target,
        path: Vec<u8>,
        follow: bool,
    },
    Read {
        file: Target,
        offset: u64,
        len: u64,
    },
    Readlink {
        file: Target,
    },
    Readdir {
        dir: Target,
        page: usize,
    },
    Seek {
        file: Target,
        offset: u64,
        what: Seek,
    },
    // Roots.
    RootCreate {
        who: Who,
        name: Vec<u8>,
        mode: u32,
    },
    RootDelete {
        who: Who,
        name: Vec<u8>,
    },
    /// Free so many slices of what is in deleted roots; 0: all of it.
    Reap {
        slices: u64,
    },
    /// The handle of an inode that is gone must be stale.
    Stale {
        which: usize,
    },
    // Durability.
    Fsync {
        file: Target,
        datasync: bool,
    },
    Sync,
    Checkpoint,
    /// Close and open; with `release`, open files are released first.
    Reopen {
        release: bool,
    },
    /// The power goes; `seed` chooses the moment and the losses.
    Crash {
        seed: u64,
    },
    /// Of the next call, these allocations are refused.
    NoMemory(Refusal),
}

impl Op {
    /// The operation's name, as printed and as in the table of allowed differences.
    pub fn name(&self) -> &'static str {
        match self {
            Op::Create { .. } => "create",
            Op::Mkdir { .. } => "mkdir",
            Op::Mknod { .. } => "mknod",
            Op::Symlink { .. } => "symlink",
            Op::Link { .. } => "link",
            Op::Unlink { .. } => "unlink",
            Op::Rmdir { .. } => "rmdir",
            Op::RemoveTree { .. } => "remove_tree",
            Op::Rename { .. } => "rename",
            Op::Tmpfile { .. } => "tmpfile",
            Op::Open { .. } => "open",
            Op::Close { .. } => "close",
            Op::Chmod { .. } => "chmod",
            Op::Chown { .. } => "chown",
            Op::Utimes { .. } => "utimes",
            Op::Truncate { .. } => "truncate",
            Op::SetXattr { .. } => "setxattr",
            Op::RemoveXattr { .. } => "removexattr",
            Op::GetXattr { .. } => "getxattr",
            Op::ListXattr { .. } => "listxattr",
            Op::Paths { .. } => "paths",
            Op::Write { .. } => "write",
            Op::Append { .. } => "append",
            Op::Fallocate { .. } => "fallocate",
            Op::CopyRange { .. } => "copy_range",
            Op::Lookup { .. } => "lookup",
            Op::Getattr { .. } => "getattr",
            Op::Access { .. } => "access",
            Op::Resolve { .. } => "resolve",
            Op::Read { .. } => "read",
            Op::Readlink { .. } => "readlink",
            Op::Readdir { .. } => "readdir",
            Op::Seek { .. } => "seek",
            Op::RootCreate { .. } => "root_create",
            Op::RootDelete { .. } => "root_delete",
            Op::Reap { .. } => "reap",
            Op::Stale { .. } => "stale",
            Op::Fsync { .. } => "fsync",
            Op::Sync => "sync",
            Op::Checkpoint => "checkpoint",
            Op::Reopen { .. } => "reopen",
            Op::Crash { .. } => "crash",
            Op::NoMemory(_) => "no_memory",
        }
    }

    /// The inodes that must exist for the operation to make sense, in the order in which the
    /// executors take them.
    pub fn targets(&self) -> Vec<&Target> {
        match self {
            Op::Create { at, .. }
            | Op::Mkdir { at, .. }
            | Op::Mknod { at, .. }
            | Op::Symlink { at, .. }
            | Op::Unlink { at, .. }
            | Op::Rmdir { at, .. }
            | Op::RemoveTree { at, .. }
            | Op::Lookup { at, .. } => vec![&at.dir],
            Op::Link { from, at, .. } => vec![from, &at.dir],
            Op::Rename { from, to, .. } => vec![&from.dir, &to.dir],
            Op::CopyRange { from, to, .. } => vec![from, to],
            Op::Tmpfile { dir: file, .. }
            | Op::Open { file, .. }
            | Op::Chmod { file, .. }
            | Op::Chown { file, .. }
            | Op::Utimes { file, .. }
            | Op::Truncate { file, .. }
            | Op::SetXattr { file, .. }
            | Op::RemoveXattr { file, .. }
            | Op::GetXattr { file, .. }
            | Op::ListXattr { file, .. }
            | Op::Paths { file }
            | Op::Write { file, .. }
            | Op::Append { file, .. }
            | Op::Fallocate { file, .. }
            | Op::Getattr { file }
            | Op::Access { file, .. }
            | Op::Resolve { start: file, .. }
            | Op::Read { file, .. }
            | Op::Readlink { file }
            | Op::Readdir { dir: file, .. }
            | Op::Seek { file, .. }
            | Op::Fsync { file, .. } => vec![file],
            Op::Close { .. }
            | Op::RootCreate { .. }
            | Op::RootDelete { .. }
            | Op::Reap { .. }
            | Op::Stale { .. }
            | Op::Sync
            | Op::Checkpoint
            | Op::Reopen { .. }
            | Op::NoMemory(_)
            | Op::Crash { .. } => vec![],
        }
    }

    /// Where the operation makes a name, if it does: how to find the inode of a creation whose
    /// result was lost with the process.
    pub fn makes(&self) -> Option<&Place> {
        match self {
            Op::Create { at, .. }
            | Op::Mkdir { at, .. }
            | Op::Mknod { at, .. }
            | Op::Symlink { at, .. } => Some(at),
            _ => None,
        }
    }

    /// Bytes of data that it asks to be written.
    pub fn writes(&self) -> Option<usize> {
        match self {
            Op::Write { data, .. } | Op::Append { data, .. } => Some(data.len as usize),
            _ => None,
        }
    }
}

/// A time without its field names.
pub fn at(sec: i64, nsec: u32) -> Time {
    Time { sec, nsec }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Path(path) => {
                let parts = path.split(|b| *b == b'/').map(elided);
                write!(f, "/{}", parts.collect::<Vec<_>>().join("/"))
            }
            Target::Slot(slot) => write!(f, "open#{slot}"),
        }
    }
}

/// A name to read: printable, and long ones cut.
pub fn elided(name: &[u8]) -> String {
    if name.len() <= 40 {
        return name.escape_ascii().to_string();
    }
    format!("{}...({} bytes)", name[..16].escape_ascii(), name.len())
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = elided(&self.name);
        match &self.dir {
            Target::Path(path) if path.is_empty() => write!(f, "/{name}"),
            dir => write!(f, "{dir}/{name}"),
        }
    }
}

impl fmt::Display for Data {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes (seed {:#x})", self.len, self.seed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_read_like_a_program() {
        let at = Place { dir: Target::Path(b"a/b".to_vec()), name: b"c\xff".to_vec() };
        let op = Op::Create { who: Who::One, at: at.clone(), mode: 0o644 };
        assert_eq!(op.to_string(), r"create /a/b/c\xff 0o644 by One");
        assert_eq!(op.makes(), Some(&at));
        let data = Data { seed: 9, len: 5 };
        assert_eq!(data.bytes(), Data { seed: 9, len: 5 }.bytes());
        let op = Op::Write { file: Target::Slot(2), offset: 7, data, kill_priv: false };
        assert_eq!(op.to_string(), "write open#2 at 7: 5 bytes (seed 0x9)");
    }
}
