//! New files, directories, links. The umask comes beside the mode, and the volume applies it,
//! unless the directory has a default ACL.

use super::open::{check_open, truncate_at_open};
use super::{Context, Outcome, reply_entry, reply_new_entry};
use crate::protocol::flags::{O_EXCL, O_TRUNC};
use crate::protocol::reply::{entry, open_out, put};
use crate::protocol::wire::{CreateIn, LinkIn, MkdirIn, MknodIn};
use crate::protocol::{Errno, Request};
use crate::tokens::is_virtual;
use shoal::raw::{Attr, Code, FileKind, Ino};

/// CREATE: creates and opens.
pub(crate) fn create(cx: &mut Context<'_>, request: &mut Request<'_>) -> Outcome {
    let arg: CreateIn = request.arg()?;
    cx.who.umask = arg.umask;
    let (dir, name) = (request.node(), request.name()?);
    let end = match cx.volume.namespace().create(cx.who, dir, name, arg.mode & 0o7777) {
        Err(error) if error.is(Code::Exists) && arg.flags & O_EXCL == 0 => {
            let found = open_existing(cx, dir, name, &arg)?;
            cx.session.changed(dir, cx.tid);
            reply_entry(cx, request, &found)?
        }
        made => {
            let made = made?;
            cx.session.changed(dir, cx.tid);
            reply_new_entry(cx, request, &made)?
        }
    };
    put(request.body(), end, &open_out())
}

/// Opens a file that appeared between the kernel's lookup and its CREATE, through the library.
#[cold]
fn open_existing(
    cx: &mut Context<'_>,
    dir: Ino,
    name: &[u8],
    arg: &CreateIn,
) -> Result<Attr, Errno> {
    let attr = cx.volume.namespace().lookup(cx.who, dir, name)?;
    if attr.kind != FileKind::Regular {
        // The kernel must look again: it would open this as a file.
        return Err(Errno::ESTALE);
    }
    check_open(cx, attr.ino, arg.flags)?;
    match arg.flags & O_TRUNC {
        0 => Ok(attr),
        _ => truncate_at_open(cx, attr.ino, arg.open_flags),
    }
}

/// TMPFILE: a file without a name, already held once by the volume. The name in the request is
/// ignored.
pub(crate) fn tmpfile(cx: &mut Context<'_>, request: &mut Request<'_>) -> Outcome {
    let arg: CreateIn = request.arg()?;
    cx.who.umask = arg.umask;
    let made = cx.volume.namespace().tmpfile(cx.who, request.node(), arg.mode & 0o7777)?;
    cx.session.known.give(made.ino);
    let sent =
        put(request.body(), 0, &entry(&made)).and_then(|end| put(request.body(), end, &open_out()));
    if sent.is_err() {
        cx.session.not_given(made.ino);
    }
    sent
}

/// MKNOD.
pub(crate) fn mknod(cx: &mut Context<'_>, request: &mut Request<'_>) -> Outcome {
    let arg: MknodIn = request.arg()?;
    cx.who.umask = arg.umask;
    let made =
        cx.volume.namespace().mknod(cx.who, request.node(), request.name()?, arg.mode, arg.rdev)?;
    cx.session.changed(request.node(), cx.tid);
    reply_new_entry(cx, request, &made)
}

/// MKDIR.
pub(crate) fn mkdir(cx: &mut Context<'_>, request: &mut Request<'_>) -> Outcome {
    let arg: MkdirIn = request.arg()?;
    cx.who.umask = arg.umask;
    let made =
        cx.volume.namespace().mkdir(cx.who, request.node(), request.name()?, arg.mode & 0o7777)?;
    cx.session.changed(request.node(), cx.tid);
    reply_new_entry(cx, request, &made)
}

/// SYMLINK.
pub(crate) fn symlink(cx: &mut Context<'_>, request: &mut Request<'_>) -> Outcome {
    let (name, target) = request.name_and_target()?;
    let made = cx.volume.namespace().symlink(cx.who, request.node(), name, target)?;
    cx.session.changed(request.node(), cx.tid);
    reply_new_entry(cx, request, &made)
}

/// LINK. The request is about the directory; the inode is its argument.
pub(crate) fn link(cx: &mut Context<'_>, request: &mut Request<'_>) -> Outcome {
    let arg: LinkIn = request.arg()?;
    if is_virtual(Ino(arg.oldnodeid)) {
        // A token gives no right to name the file.
        return Err(Errno::EPERM);
    }
    let (dir, name) = (request.node(), request.name()?);
    let acts = cx.session.crossing.request([Some((dir, name)), None], cx.tid);
    let acts = acts.ok_or(Errno::ESTALE)?;
    cx.session.unread.link(Ino(arg.oldnodeid), dir, cx.tid);
    let linked = cx.volume.namespace().link(cx.who, Ino(arg.oldnodeid), dir, name)?;
    drop(acts);
    cx.session.changed(request.node(), cx.tid);
    reply_entry(cx, request, &linked)
}
