//! The changes that a batch consists of.

use super::{RenameFlags, SetAttr};

/// One change of a batch. Paths are relative to the directory in which the batch is made, and must
/// not lead out of it. A symlink as the last component is not followed unless the variant says so.
#[derive(Clone, Copy, Debug)]
pub enum BatchOp<'a> {
    /// Creates a regular file with the given contents.
    File {
        /// Its path.
        path: &'a [u8],
        /// Permission bits, to which the caller's umask applies.
        mode: u32,
        /// Contents of the whole file.
        contents: &'a [u8],
        /// If the name exists and is no directory, replace it with the new file. The permission
        /// bits of a regular file are kept; writing to it must be permitted. A symlink is itself
        /// replaced, not the file that it leads to. Other names and open handles of the old file
        /// keep the old contents. Without this flag, an existing name is an error (`EEXIST`).
        replace: bool,
    },
    /// Creates a directory.
    Dir {
        /// Its path.
        path: &'a [u8],
        /// Permission bits, to which the caller's umask applies.
        mode: u32,
    },
    /// Creates a symbolic link.
    Symlink {
        /// Its path.
        path: &'a [u8],
        /// Target of the link.
        target: &'a [u8],
    },
    /// Creates a hard link.
    Link {
        /// Existing name of the file.
        from: &'a [u8],
        /// The new name.
        to: &'a [u8],
    },
    /// Renames, as [`crate::Namespace::rename`] does.
    Rename {
        /// The old name.
        from: &'a [u8],
        /// The new name.
        to: &'a [u8],
        /// Flags.
        flags: RenameFlags,
    },
    /// Removes a name of a file other than a directory.
    Remove {
        /// The name.
        path: &'a [u8],
    },
    /// Removes an empty directory.
    RemoveDir {
        /// Its path.
        path: &'a [u8],
    },
    /// Changes attributes except the size. Follows symlinks.
    SetAttr {
        /// Path of the file or directory.
        path: &'a [u8],
        /// The attributes.
        set: SetAttr,
    },
    /// Sets an extended attribute, or removes it. Follows symlinks. Not for access control lists.
    SetXattr {
        /// Path of the file or directory.
        path: &'a [u8],
        /// Full name, for example `user.x`.
        name: &'a [u8],
        /// The value; `None` removes the attribute, which must exist.
        value: Option<&'a [u8]>,
    },
}

impl std::fmt::Display for BatchOp<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
        match self {
            BatchOp::File { path, .. } => write!(f, "write \"{}\"", text(path)),
            BatchOp::Dir { path, .. } => write!(f, "make directory \"{}\"", text(path)),
            BatchOp::Symlink { path, .. } => write!(f, "make symlink \"{}\"", text(path)),
            BatchOp::Link { from, to } => write!(f, "link \"{}\" to \"{}\"", text(from), text(to)),
            BatchOp::Rename { from, to, .. } => {
                write!(f, "rename \"{}\" to \"{}\"", text(from), text(to))
            }
            BatchOp::Remove { path } => write!(f, "remove \"{}\"", text(path)),
            BatchOp::RemoveDir { path } => write!(f, "remove directory \"{}\"", text(path)),
            BatchOp::SetAttr { path, .. } => write!(f, "set attributes of \"{}\"", text(path)),
            BatchOp::SetXattr { path, name, value } => {
                let verb = if value.is_some() { "set" } else { "remove" };
                write!(f, "{verb} attribute \"{}\" of \"{}\"", text(name), text(path))
            }
        }
    }
}
