//! Removal of names. The inodes live on until the kernel has forgotten them.

use super::{Context, Outcome};
use crate::protocol::{Errno, Request};
use shoal::raw::{Attr, FileKind, Ino};

/// Records that a file is about to lose a name in `dir`: the kernel then takes one off its link
/// count by itself.
#[inline]
pub(super) fn loses_name(cx: &Context<'_>, dir: Ino, attr: &Attr) {
    if attr.nlink > 1 && attr.kind != FileKind::Directory {
        cx.session.unread.lose(attr.ino, dir, cx.tid);
    }
}

/// UNLINK.
pub(crate) fn unlink(cx: &mut Context<'_>, request: &mut Request<'_>) -> Outcome {
    let (dir, name) = (request.node(), request.name()?);
    // The name means the same until the kernel gets its reply: it has the directory locked, and a
    // session waits.
    let acts = cx.session.crossing.request([Some((dir, name)), None], cx.tid);
    let _acts = acts.ok_or(Errno::ESTALE)?;
    if let Ok(attr) = cx.volume.namespace().lookup(cx.who, dir, name) {
        loses_name(cx, dir, &attr);
    }
    cx.volume.namespace().unlink(cx.who, dir, name)?;
    cx.session.changed(dir, cx.tid);
    Ok(0)
}

/// RMDIR.
pub(crate) fn rmdir(cx: &mut Context<'_>, request: &mut Request<'_>) -> Outcome {
    let (dir, name) = (request.node(), request.name()?);
    let acts = cx.session.crossing.request([Some((dir, name)), None], cx.tid);
    let _acts = acts.ok_or(Errno::ESTALE)?;
    cx.volume.namespace().rmdir(cx.who, dir, name)?;
    cx.session.changed(dir, cx.tid);
    Ok(0)
}
