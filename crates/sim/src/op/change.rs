//! Changes of a batch as data. Their paths are relative to the directory in which the batch is
//! made, so that a change still means something after others have been left out before it.

use super::{Data, elided};
use shoal::raw::{BatchOp, RenameFlags, SetAttr};
use std::fmt;

/// One change of [`super::Op::Batch`].
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the fields are those of the volume's `BatchOp`")]
pub enum Change {
    File { path: Vec<u8>, mode: u32, data: Data, replace: bool },
    Dir { path: Vec<u8>, mode: u32 },
    Symlink { path: Vec<u8>, target: Vec<u8> },
    Link { from: Vec<u8>, to: Vec<u8> },
    Rename { from: Vec<u8>, to: Vec<u8>, flags: RenameFlags },
    Remove { path: Vec<u8> },
    RemoveDir { path: Vec<u8> },
    SetAttr { path: Vec<u8>, set: SetAttr },
    SetXattr { path: Vec<u8>, name: Vec<u8>, data: Data },
    RemoveXattr { path: Vec<u8>, name: Vec<u8> },
}

impl Change {
    /// Name of the single operation, as in the table of allowed differences.
    pub fn name(&self) -> &'static str {
        match self {
            Change::File { .. } => "create",
            Change::Dir { .. } => "mkdir",
            Change::Symlink { .. } => "symlink",
            Change::Link { .. } => "link",
            Change::Rename { .. } => "rename",
            Change::Remove { .. } => "unlink",
            Change::RemoveDir { .. } => "rmdir",
            Change::SetAttr { .. } => "setattr",
            Change::SetXattr { .. } => "setxattr",
            Change::RemoveXattr { .. } => "removexattr",
        }
    }

    /// Returns whether it may make an inode.
    pub fn makes(&self) -> bool {
        match self {
            Change::File { .. } | Change::Dir { .. } | Change::Symlink { .. } => true,
            Change::Rename { flags, .. } => flags.whiteout,
            _ => false,
        }
    }

    /// Bytes of contents.
    pub fn len(&self) -> u64 {
        match self {
            Change::File { data, .. } | Change::SetXattr { data, .. } => u64::from(data.len),
            _ => 0,
        }
    }

    /// Returns whether it has no contents.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Calls `f` with the changes as the volume takes them.
pub fn with_batch_ops<R>(changes: &[Change], f: impl FnOnce(&[BatchOp<'_>]) -> R) -> R {
    let contents: Vec<Vec<u8>> = changes
        .iter()
        .map(|change| match change {
            Change::File { data, .. } | Change::SetXattr { data, .. } => data.bytes(),
            _ => Vec::new(),
        })
        .collect();
    let ops = changes.iter().zip(&contents).map(|(change, contents)| batch_op(change, contents));
    f(&ops.collect::<Vec<_>>())
}

fn batch_op<'c>(change: &'c Change, contents: &'c [u8]) -> BatchOp<'c> {
    match change {
        Change::File { path, mode, replace, .. } => {
            BatchOp::File { path, mode: *mode, contents, replace: *replace }
        }
        Change::Dir { path, mode } => BatchOp::Dir { path, mode: *mode },
        Change::Symlink { path, target } => BatchOp::Symlink { path, target },
        Change::Link { from, to } => BatchOp::Link { from, to },
        Change::Rename { from, to, flags } => BatchOp::Rename { from, to, flags: *flags },
        Change::Remove { path } => BatchOp::Remove { path },
        Change::RemoveDir { path } => BatchOp::RemoveDir { path },
        Change::SetAttr { path, set } => BatchOp::SetAttr { path, set: *set },
        Change::SetXattr { path, name, .. } => {
            BatchOp::SetXattr { path, name, value: Some(contents) }
        }
        Change::RemoveXattr { path, name } => BatchOp::SetXattr { path, name, value: None },
    }
}

/// A path to read: long names cut.
fn shown(path: &[u8]) -> String {
    let parts: Vec<String> = path.split(|byte| *byte == b'/').map(elided).collect();
    parts.join("/")
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self {
            Change::File { path, mode, data, replace } => {
                write!(f, " {} {mode:#o}: {data}", shown(path))?;
                f.write_str(if *replace { " replacing" } else { "" })
            }
            Change::Dir { path, mode } => write!(f, " {} {mode:#o}", shown(path)),
            Change::Symlink { path, target } => {
                write!(f, " {} -> {}", shown(path), elided(target))
            }
            Change::Link { from, to } => write!(f, " {} as {}", shown(from), shown(to)),
            Change::Rename { from, to, flags } => {
                write!(f, " {} to {}", shown(from), shown(to))?;
                f.write_str(super::way(*flags))
            }
            Change::Remove { path } | Change::RemoveDir { path } => write!(f, " {}", shown(path)),
            Change::SetXattr { path, name, data } => {
                write!(f, " {} {} = {data}", shown(path), elided(name))
            }
            Change::RemoveXattr { path, name } => {
                write!(f, " {} {}", shown(path), elided(name))
            }
            Change::SetAttr { path, set } => {
                write!(f, " {}", shown(path))?;
                set.mode.map_or(Ok(()), |mode| write!(f, " mode {mode:#o}"))?;
                if set.uid.is_some() || set.gid.is_some() {
                    write!(f, " owner {:?}:{:?}", set.uid, set.gid)?;
                }
                if set.atime.is_some() || set.mtime.is_some() {
                    write!(f, " times {:?} {:?}", set.atime, set.mtime)?;
                }
                Ok(())
            }
        }
    }
}
