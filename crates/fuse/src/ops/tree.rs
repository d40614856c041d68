//! Removal of a tree ([`crate::protocol::control`]).
//!
//! Permission: the caller must be allowed to empty and remove the tree name by name. The volume
//! checks that on every mount, because the kernel has checked only that the directory could be
//! opened. (It has not checked whether the mount is a read-only view of a writable one; a program
//! that hands such views to others must not rely on them to keep the superuser from this ioctl.)
//!
//! The kernel does not interpret an ioctl, and keeps its names for ever. So the top's name is
//! invalidated ([`crate::notices`]), and the reply waits for that:
//!
//! | when | another program | the caller |
//! | --- | --- | --- |
//! | before the transaction | sees the tree | waits |
//! | from then until the name has expired in the kernel | still sees the tree by names that the kernel knows, and reads from its cache; the name cannot be made again (`EEXIST`); requests to the server find less and less, and nothing can be made in the top (`ENOENT`) | waits |
//! | from then until the name is unhashed | sees no such name, but may have to wait until the kernel has dropped the names below | waits |
//! | after the reply | sees no such name | the same |
//!
//! Only the top's name has to be invalidated: only those who are already below it can reach
//! anything there. A large directory's name expires, and the names below are dropped in the
//! background ([`crate::sweep`]); for a small one, or a kernel before 6.2, dropping the name with
//! everything below it is as quick. If the kernel takes long, because the directory's lock is held,
//! the reply goes out with a flag, and the client polls until the name is gone.
//!
//! Files that have another name, or are open, lose the one in the tree in the background; the
//! volume reports each that the kernel knows (`watch_links`), and its attributes are invalidated in
//! the same way.
//!
//! In between somebody may have made the name again, where the kernel did not know the old one. The
//! notice then hits the new name, which is looked up again at its next use.

use super::{Context, Next};
use crate::notices::Notice;
use crate::protocol::Errno;
use crate::protocol::control::{Answer, STILL_SHOWN, TOP_ONLY};
use crate::protocol::wire::ControlHead;
use shoal::raw::{Attr, FileKind, Ino, TreeCheck, Volume};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::time::Duration;

/// Longest wait of the reply for the kernel to forget the name.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);
/// Number of names that the kernel drops in no time.
const SMALL: u64 = 64;

/// Answers [`Kind::RemoveTree`](crate::protocol::control::Kind::RemoveTree).
pub(crate) fn remove(
    cx: &Context<'_>,
    dir: Ino,
    head: &ControlHead,
    name: &[u8],
    answer: &mut Answer<'_>,
) -> Next {
    let check = match head.flags & TOP_ONLY {
        0 => TreeCheck::Tree,
        _ if cx.who.uid == 0 => TreeCheck::Top,
        _ => return Err(Errno::EPERM),
    };
    // Only for the notices and the reply: the transaction decides which inode goes.
    let top = cx.volume.namespace().lookup(cx.who, dir, name)?;
    cx.volume.namespace().remove_tree(cx.who, dir, name, check)?;
    forget(cx, dir, name, Some(&top), answer);
    Ok(None)
}

/// Makes the kernel forget the name of a removed tree, and completes the answer. `top`: its top, if
/// it is known.
pub(crate) fn forget(
    cx: &Context<'_>,
    dir: Ino,
    name: &[u8],
    top: Option<&Attr>,
    answer: &mut Answer<'_>,
) {
    let session = cx.session;
    let expire = top.is_none_or(is_large) && session.notices.can_expire();
    let notice = |expire| Notice::Name { dir: session.id(dir), name: name.into(), expire };
    let node = |ino| Notice::Attributes { node: session.id(ino) };
    let given = session
        .notices
        .give([notice(expire), node(dir)].into_iter().chain(top.map(|top| node(top.ino))));
    let is_forgotten = session.notices.wait(given, PATIENCE);
    if expire && is_forgotten {
        let path = path_of(cx.volume, cx.session.top, dir, name);
        session.sweeper.sweep(path, &session.notices, notice(false), PATIENCE);
    }
    answer.head.flags = if is_forgotten { 0 } else { STILL_SHOWN };
    answer.head.numbers[0] = top.map_or(0, |top| top.ino.0);
}

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
