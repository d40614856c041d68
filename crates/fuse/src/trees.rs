//! Removed trees, as the kernel knows them.
//!
//! Only the top's name has to be invalidated: only those who are already below it can reach
//! anything there. A large directory's name expires, and the names below are dropped in the
//! background ([`crate::sweep`]); for a small one, or a kernel before 6.2, dropping the name with
//! everything below it is as quick.
//!
//! Files that have another name, or are open, lose the one in the tree in the background; the
//! volume reports each that the kernel knows (`watch_links`), and its attributes are invalidated in
//! the same way.
//!
//! In between somebody may have made the name again, where the kernel did not know the old one. The
//! notice then hits the new name, which is looked up again at its next use.

use shoal::raw::{Attr, FileKind, Ino, Volume};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::time::Duration;

/// Longest wait of the reply for the kernel to forget the name.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);
/// Number of names that the kernel drops in no time.
const SMALL: u64 = 64;

/// Returns whether the kernel may know so many names below a directory that dropping them takes
/// long: it has directories in it, or many files.
pub(crate) fn is_large(top: &Attr) -> bool {
    top.kind == FileKind::Directory && (top.nlink > 2 || top.size > SMALL)
}

/// Returns the path of a name below `top`, the mount's; `None` if its directory has none any more.
pub(crate) fn path_of(volume: &Volume, top: Ino, dir: Ino, name: &[u8]) -> Option<PathBuf> {
    let first = |ino| Some(volume.paths().paths_of(ino).ok()?.into_iter().next()?.to_vec());
    let mut path = Vec::new();
    if dir != top {
        let whole: Vec<u8> = first(dir)?;
        let prefix = if top == Ino::ROOT { Vec::new() } else { first(top)? };
        path.extend_from_slice(whole.strip_prefix(&prefix[..])?.strip_prefix(b"/")?);
        path.push(b'/');
    }
    path.extend_from_slice(name);
    Some(OsString::from_vec(path).into())
}
