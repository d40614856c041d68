//! Operations as data: what a run is made of, and what a failing run is printed as. Files are named
//! by path (or by the number of an open slot), never by inode number, so that an operation still
//! means something after others have been cut out of the list before it.

mod change;
pub mod make;
mod text;

pub use change::{Change, with_batch_ops};

use crate::memory::Refusal;
use crate::text::elided;
use shoal::raw::{Caller, Fallocate, RenameFlags, Seek, SetTime, Time, TreeChange, XattrFlags};
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

/// One row per operation: variant, name, parameters, and the inodes that must exist for it to make
/// sense, in the order in which the executors take them.
macro_rules! operations {
    ($($(#[$about:meta])* $variant:ident $name:literal
        $(($inner:ty))? $({ $($field:ident: $type:ty),* } [$($target:expr),*])?;)*) => {
        /// One step of a run. The first target is the inode or directory acted upon.
        #[derive(Clone, PartialEq, Eq, Debug)]
        #[expect(missing_docs, reason = "the fields are the parameters of the volume's calls")]
        pub enum Op { $($(#[$about])* $variant $(($inner))? $({ $($field: $type),* })?,)* }

        impl Op {
            /// Returns the operation's name, as printed and as in the table of allowed differences.
            pub fn name(&self) -> &'static str {
                match self { $(Op::$variant { .. } => $name,)* }
            }

            /// Returns the inodes that must exist for the operation to make sense, in the order in
            /// which the executors take them.
            #[allow(unused_variables, reason = "most fields are no targets")]
            pub fn targets(&self) -> Vec<&Target> {
                match self {
                    $(Op::$variant { $($($field,)*)? .. } => vec![$($($target),*)?],)*
                }
            }
        }
    };
}

operations! {
    // Names.
    Create "create" { who: Who, at: Place, mode: u32 } [&at.dir];
    Mkdir "mkdir" { who: Who, at: Place, mode: u32 } [&at.dir];
    Mknod "mknod" { who: Who, at: Place, mode: u32, rdev: u32 } [&at.dir];
    Symlink "symlink" { who: Who, at: Place, target: Vec<u8> } [&at.dir];
    Link "link" { who: Who, from: Target, at: Place } [from, &at.dir];
    Unlink "unlink" { who: Who, at: Place } [&at.dir];
    Rmdir "rmdir" { who: Who, at: Place } [&at.dir];
    /// A directory with all that is below it, or a file.
    RemoveTree "remove_tree" { who: Who, at: Place } [&at.dir];
    Rename "rename" { who: Who, from: Place, to: Place, flags: RenameFlags } [&from.dir, &to.dir];
    Tmpfile "tmpfile" { who: Who, dir: Target, mode: u32, slot: usize } [dir];
    /// Changes in several directories as one: all, or none.
    Batch "batch" { who: Who, start: Target, changes: Vec<Change> } [start];
    Open "open" { file: Target, slot: usize } [file];
    Close "close" { slot: usize } [];
    // Attributes.
    Chmod "chmod" { who: Who, file: Target, mode: u32 } [file];
    Chown "chown" { who: Who, file: Target, uid: Option<u32>, gid: Option<u32> } [file];
    /// A change of everything below a directory, in steps.
    ChangeTree "change_tree" { who: Who, top: Target, change: TreeChange } [top];
    Utimes "utimes" {
        who: Who, file: Target, atime: Option<SetTime>, mtime: Option<SetTime>
    } [file];
    Truncate "truncate" { who: Who, file: Target, size: u64, by_handle: bool } [file];
    SetXattr "setxattr" {
        who: Who, file: Target, name: Vec<u8>, data: Data, flags: XattrFlags
    } [file];
    RemoveXattr "removexattr" { who: Who, file: Target, name: Vec<u8> } [file];
    // Contents.
    Write "write" { file: Target, offset: u64, data: Data, kill_priv: bool } [file];
    Append "append" { file: Target, data: Data, kill_priv: bool } [file];
    Fallocate "fallocate" { file: Target, mode: Fallocate, offset: u64, len: u64 } [file];
    CopyRange "copy_range" {
        from: Target, from_offset: u64, to: Target, to_offset: u64, len: u64
    } [from, to];
    // Questions.
    GetXattr "getxattr" { who: Who, file: Target, name: Vec<u8> } [file];
    ListXattr "listxattr" { who: Who, file: Target } [file];
    /// All paths that lead to an inode.
    Paths "paths" { file: Target } [file];
    Lookup "lookup" { who: Who, at: Place } [&at.dir];
    Getattr "getattr" { file: Target } [file];
    Access "access" { who: Who, file: Target, mask: u32 } [file];
    Resolve "resolve" { who: Who, start: Target, path: Vec<u8>, follow: bool } [start];
    Read "read" { file: Target, offset: u64, len: u64 } [file];
    Readlink "readlink" { file: Target } [file];
    Readdir "readdir" { dir: Target, page: usize } [dir];
    Seek "seek" { file: Target, offset: u64, what: Seek } [file];
    // Subvolumes.
    RootCreate "root_create" { who: Who, name: Vec<u8>, mode: u32 } [];
    RootDelete "root_delete" { who: Who, name: Vec<u8> } [];
    /// Free so many slices of deleted subvolumes; 0: all of them.
    Reap "reap" { slices: u64 } [];
    /// The handle of an inode that is gone must be stale.
    Stale "stale" { which: usize } [];
    // Durability.
    Fsync "fsync" { file: Target, datasync: bool } [file];
    Sync "sync";
    Checkpoint "checkpoint";
    /// Close and open; with `release`, open files are released first.
    Reopen "reopen" { release: bool } [];
    /// The power goes; `seed` chooses the moment and the losses.
    Crash "crash" { seed: u64 } [];
    /// Of the next call, these allocations are refused.
    NoMemory "no_memory" (Refusal);
}

impl Op {
    /// Returns the place where the operation makes a name, if it does: how to find the inode of a
    /// creation whose result was lost with the process.
    pub fn makes(&self) -> Option<&Place> {
        match self {
            Op::Create { at, .. }
            | Op::Mkdir { at, .. }
            | Op::Mknod { at, .. }
            | Op::Symlink { at, .. } => Some(at),
            Op::Rename { from, flags, .. } => flags.whiteout.then_some(from),
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

/// The flags of a rename, to read.
fn way(flags: RenameFlags) -> &'static str {
    match flags {
        RenameFlags { exchange: true, .. } => " exchange",
        RenameFlags { noreplace: true, .. } => " noreplace",
        RenameFlags { whiteout: true, .. } => " whiteout",
        _ => "",
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
