//! Operations of the superuser in short, for lists of them that are written by hand.

use super::{Change, Data, Op, Place, Target, Who};
use shoal::raw::{ModeChange, RenameFlags, TreeChange};

const ROOT: Who = Who::Root;

/// Target by path.
pub fn path(path: &str) -> Target {
    Target::Path(path.into())
}

/// A name in a directory.
pub fn at(dir: &str, name: &str) -> Place {
    Place { dir: path(dir), name: name.into() }
}

/// The last name of a path, in the directory before it.
pub fn place(path: &str) -> Place {
    let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
    at(dir, name)
}

/// Makes a file.
pub fn create(dir: &str, name: &str) -> Op {
    Op::Create { who: ROOT, at: at(dir, name), mode: 0o644 }
}

/// Makes a directory.
pub fn mkdir(dir: &str, name: &str) -> Op {
    Op::Mkdir { who: ROOT, at: at(dir, name), mode: 0o755 }
}

/// Makes another name for a file.
pub fn link(from: &str, dir: &str, name: &str) -> Op {
    Op::Link { who: ROOT, from: path(from), at: at(dir, name) }
}

/// Removes a name of a file.
pub fn unlink(dir: &str, name: &str) -> Op {
    Op::Unlink { who: ROOT, at: at(dir, name) }
}

/// Removes an empty directory.
pub fn rmdir(dir: &str, name: &str) -> Op {
    Op::Rmdir { who: ROOT, at: at(dir, name) }
}

/// Removes a directory with all that is in it.
pub fn remove_tree(dir: &str, name: &str) -> Op {
    Op::RemoveTree { who: ROOT, at: at(dir, name) }
}

/// Changes permission bits of everything below a directory.
pub fn change_modes(top: &str, mode: &str) -> Op {
    let change = TreeChange { mode: ModeChange::parse(mode), ..TreeChange::default() };
    Op::ChangeTree { who: ROOT, top: path(top), change }
}

/// Changes the owner of everything below a directory.
pub fn change_owners(top: &str, uid: u32, gid: u32) -> Op {
    let change = TreeChange { uid: Some(uid), gid: Some(gid), ..TreeChange::default() };
    Op::ChangeTree { who: ROOT, top: path(top), change }
}

/// Renames, over what may be there.
pub fn rename(from: Place, to: Place) -> Op {
    Op::Rename { who: ROOT, from, to, flags: RenameFlags::default() }
}

/// Renames, and leaves a whiteout.
pub fn whiteout(from: Place, to: Place) -> Op {
    let flags = RenameFlags { whiteout: true, ..RenameFlags::default() };
    Op::Rename { who: ROOT, from, to, flags }
}

/// Makes several changes, whose paths are relative to a directory, as one.
pub fn batch(start: &str, changes: Vec<Change>) -> Op {
    Op::Batch { who: ROOT, start: path(start), changes }
}

/// Opens what is at a path.
pub fn open(file: &str, slot: usize) -> Op {
    Op::Open { file: path(file), slot }
}

/// Writes bytes of its own to each offset.
pub fn write(file: Target, offset: u64, len: u32) -> Op {
    let data = Data { seed: 1_000_003 + offset, len };
    Op::Write { file, offset, data, kill_priv: false }
}

/// Sets the size of an open file.
pub fn truncate(file: Target, size: u64) -> Op {
    Op::Truncate { who: ROOT, file, size, by_handle: true }
}

/// Sets an attribute to a value of so many bytes.
pub fn setxattr(file: &str, name: &str, len: u32) -> Op {
    let data = Data { seed: 77 + u64::from(len), len };
    Op::SetXattr { who: ROOT, file: path(file), name: name.into(), data, flags: Default::default() }
}

/// Makes a file durable.
pub fn fsync(file: &str) -> Op {
    Op::Fsync { file: path(file), datasync: false }
}

/// Makes a subvolume.
pub fn root_create(name: &str) -> Op {
    Op::RootCreate { who: ROOT, name: name.into(), mode: 0o755 }
}

/// Deletes a subvolume.
pub fn root_delete(name: &str) -> Op {
    Op::RootDelete { who: ROOT, name: name.into() }
}
