//! The ioctl that removes a tree ([`crate::protocol::tree`]).
//!
//! Who may: whoever could empty and remove the tree name by name; the volume looks at that, on
//! every mount, because an open directory is all that the kernel has looked at. (It has not looked
//! whether the mount is a read-only view of one that is writable; a program that hands such views
//! to others must not rely on them to keep the superuser from this ioctl.)
//!
//! The kernel knows nothing of what an ioctl does, and believes its names for ever. So the name is
//! made to be forgotten ([`crate::notices`]), and the reply waits for that:
//!
//! | when | another program | the caller |
//! | --- | --- | --- |
//! | before the transaction | sees the tree | waits |
//! | from then until the name has expired in the kernel | by names that the kernel knows still sees the tree, and reads what is in its cache; the name cannot be made again (`EEXIST`); what asks the server finds less and less, and nothing can be made in the top (`ENOENT`) | waits |
//! | from then until the name is unhashed | sees no such name, but may have to wait until the kernel has dropped the names below | waits |
//! | after the reply | sees no such name | the same |
//!
//! Only the top's name has to be forgotten: below it nothing can be reached then but by who is
//! there already. A large directory's name expires, and the names below are dropped in the
//! background ([`crate::sweep`]); for a small one, or a kernel before 6.2, dropping the name with
//! all below it is as quick. If the kernel takes long, because the directory's lock is held, the
//! reply goes out with a mark, and the client looks until the name is gone.
//!
//! Files that lose a name with the tree and have another, or are open, do so behind the call; the
//! volume tells of each that the kernel knows (`watch_links`), and its attributes are to be
//! forgotten in the same way.
//!
//! In between somebody may have made the name anew, where the kernel did not know the old one. The
//! notice then hits the new name, which is looked up again at its next use.

use super::{Context, Outcome};
use crate::notices::Notice;
use crate::protocol::reply::put;
use crate::protocol::tree::{SIZE, STILL_SHOWN, TOP_ONLY, question};
use crate::protocol::wire::{IoctlIn, IoctlOut, TreeHead};
use crate::protocol::{Errno, Request};
use shoal::{Attr, FileKind, Ino, TreeCheck};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::time::Duration;

/// How long the reply waits for the kernel to forget the name.
const PATIENCE: Duration = Duration::from_secs(1);
/// Names in a directory that the kernel drops in no time.
const SMALL: u64 = 64;

/// IOCTL_REMOVE_TREE.
pub fn remove(cx: &mut Context<'_>, request: &mut Request<'_>) -> Outcome {
    let arg: IoctlIn = request.arg()?;
    if (arg.in_size as usize) < SIZE || (arg.out_size as usize) < SIZE {
        return Err(Errno::EINVAL);
    }
    let (head, name) = question(request.payload())?;
    let check = match head.flags & TOP_ONLY {
        0 => TreeCheck::Tree,
        _ if cx.who.uid == 0 => TreeCheck::Top,
        _ => return Err(Errno::EPERM),
    };
    let (session, dir) = (cx.session, request.node());
    // Only to be named in what is told: which inode goes is decided in the transaction.
    let top = cx.volume.lookup(cx.who, dir, name)?;
    cx.volume.remove_tree(cx.who, dir, name, check)?;
    let expire = is_large(&top) && session.notices.can_expire();
    let notice = |expire| Notice::Name { dir: session.id(dir), name: name.into(), expire };
    let given = session.notices.give([
        notice(expire),
        Notice::Attributes { node: session.id(dir) },
        Notice::Attributes { node: session.id(top.ino) },
    ]);
    let is_forgotten = session.notices.wait(given, PATIENCE);
    if expire && is_forgotten {
        let path = path_of(cx, dir, name);
        session.sweeper.sweep(path, &session.notices, notice(false), PATIENCE);
    }
    let flags = if is_forgotten { 0 } else { STILL_SHOWN };
    let start = put(request.body(), 0, &IoctlOut::default())?;
    put(request.body(), start, &TreeHead { ino: top.ino.0, flags, ..head })
}

/// Returns whether the kernel may know so many names below a directory that dropping them takes
/// long: it has directories in it, or many files.
fn is_large(top: &Attr) -> bool {
    top.kind == FileKind::Directory && (top.nlink > 2 || top.size > SMALL)
}

/// The path of a name below the mount's top; `None` if its directory has none any more.
fn path_of(cx: &Context<'_>, dir: Ino, name: &[u8]) -> Option<PathBuf> {
    let first = |ino| Some(cx.volume.paths_of(ino).ok()?.into_iter().next()?.to_vec());
    let mut path = Vec::new();
    if dir != cx.session.top {
        let whole: Vec<u8> = first(dir)?;
        let prefix = if cx.session.top == Ino::ROOT { Vec::new() } else { first(cx.session.top)? };
        path.extend_from_slice(whole.strip_prefix(&prefix[..])?.strip_prefix(b"/")?);
        path.push(b'/');
    }
    path.extend_from_slice(name);
    Some(OsString::from_vec(path).into())
}
