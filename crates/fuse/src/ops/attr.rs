//! Attributes of an inode, symlink targets, permission checks, and figures of the volume.

use super::{Context, Outcome, kill_set_id, read_attr, set_id_bits};
use crate::caller::keeps_set_id;
use crate::protocol::flags::*;
use crate::protocol::reply::{attr_out, put, statx_out};
use crate::protocol::wire::{AccessIn, SetattrIn, StatfsOut, StatxIn};
use crate::protocol::{Errno, Request};
use shoal::raw::{Attr, Caller, Ino, SetAttr, SetTime, Time, must_not_wait, refuse_to_wait};

/// Unit of STATFS in bytes.
const STATFS_BLOCK: u32 = 4096;

/// GETATTR.
pub(crate) fn getattr(cx: &mut Context<'_>, request: &mut Request<'_>) -> Outcome {
    await_losses(cx, request)?;
    let attr = read_attr(cx, request.node())?;
    put(request.body(), 0, &attr_out(&attr))
}

/// STATX: GETATTR with the time of birth. Listings bring no such time, so the kernel sends it once
/// for each file of which a program wants it, unless `no_btime` stops that.
pub(crate) fn statx(cx: &mut Context<'_>, request: &mut Request<'_>) -> Outcome {
    let _: StatxIn = request.arg()?;
    if cx.session.rules.no_btime {
        return Err(Errno::ENOSYS);
    }
    await_losses(cx, request)?;
    let attr = read_attr(cx, request.node())?;
    put(request.body(), 0, &statx_out(&attr))
}

/// Waits until the kernel can keep the attributes that it asks for ([`crate::unread`]).
#[inline]
fn await_losses(cx: &Context<'_>, request: &Request<'_>) -> Result<(), Errno> {
    if cx.session.unread.losses(request.node(), cx.tid).is_empty() {
        return Ok(());
    }
    if must_not_wait() {
        return Err(refuse_to_wait().into());
    }
    cx.session.await_losses(request.node(), cx.tid);
    Ok(())
}

/// SETATTR.
pub(crate) fn setattr(cx: &mut Context<'_>, request: &mut Request<'_>) -> Outcome {
    let arg: SetattrIn = request.arg()?;
    let set = wanted(&arg)?;
    cx.identify_for_set_id(request.node())?;
    let nothing = SetAttr { by_handle: set.by_handle, ..SetAttr::default() };
    let is_stripped = cx.session.stripped.take(request.node(), cx.tid);
    if request.may_wait() && sets_mtime(&arg) && cx.session.may_have_pages(request.node()) {
        // Stores to a mapping that were made before must not change the time when they arrive.
        cx.session.write_all_pages(request.node());
    }
    let mut attr: Attr = match set == nothing {
        true => without_set_id(cx, request.node(), is_stripped)?,
        false => cx.volume.attributes().setattr(cx.who, request.node(), &set)?,
    };
    if arg.valid & SETATTR_KILL_SUIDGID != 0 && set.mode.is_none() {
        // If a bit depends on the caller's groups, the volume has checked it.
        attr = kill_set_id(cx, attr, true)?;
    }
    attr.blocks = cx.session.blocks(attr.ino, attr.kind, attr.size, attr.blocks);
    put(request.body(), 0, &attr_out(&attr))
}

/// Returns whether a SETATTR is a program's change of the time of modification. During a change of
/// the size, which may also set it, the kernel writes no pages.
pub(crate) fn sets_mtime(arg: &SetattrIn) -> bool {
    arg.valid & (SETATTR_MTIME | SETATTR_MTIME_NOW) != 0 && arg.valid & SETATTR_SIZE == 0
}

/// A SETATTR with nothing to change. The kernel sends it when an unprivileged user writes to a file
/// with set-id bits, allocates in it or copies into it: the bits must go. It sends the same for a
/// `chown` of neither owner nor group, which anybody may call; so they go only for callers that
/// could clear them by a write. And it sends the same when it has removed the file's capabilities
/// ([`crate::stripped`]), which must not cost a privileged user's file the bits.
fn without_set_id(cx: &Context<'_>, ino: Ino, is_stripped: bool) -> Result<Attr, Errno> {
    let attr = cx.volume.attributes().getattr(ino)?;
    let in_group = cx.who.uid == 0 || cx.who.in_group(attr.gid);
    if set_id_bits(attr.mode, in_group) == 0 {
        return Ok(attr);
    }
    if is_stripped && keeps_set_id(cx.tid, cx.who.uid) {
        return Ok(attr);
    }
    let who = Caller { checked: false, ..cx.who.clone() };
    match who.uid == attr.uid || cx.volume.attributes().access(&who, ino, MAY_WRITE).is_ok() {
        true => kill_set_id(cx, attr, in_group),
        false => Ok(attr),
    }
}

/// Returns the changes that a SETATTR asks for.
fn wanted(arg: &SetattrIn) -> Result<SetAttr, Errno> {
    let has = |bit: u32| arg.valid & bit != 0;
    let time = |sec: u64, nsec: u32| match nsec {
        0..1_000_000_000 => Ok(Time { sec: sec as i64, nsec }),
        _ => Err(Errno::EINVAL),
    };
    let mut set = SetAttr { by_handle: has(SETATTR_FH), ..SetAttr::default() };
    if has(SETATTR_MODE) {
        set.mode = Some(arg.mode & 0o7777);
    }
    if has(SETATTR_UID) {
        set.uid = Some(arg.uid);
    }
    if has(SETATTR_GID) {
        set.gid = Some(arg.gid);
    }
    if has(SETATTR_SIZE) {
        set.size = Some(arg.size);
    }
    if has(SETATTR_ATIME_NOW) {
        set.atime = Some(SetTime::Now);
    } else if has(SETATTR_ATIME) {
        set.atime = Some(SetTime::To(time(arg.atime, arg.atimensec)?));
    }
    if has(SETATTR_MTIME_NOW) {
        set.mtime = Some(SetTime::Now);
    } else if has(SETATTR_MTIME) {
        set.mtime = Some(SetTime::To(time(arg.mtime, arg.mtimensec)?));
    }
    if has(SETATTR_CTIME) {
        set.ctime = Some(time(arg.ctime, arg.ctimensec)?);
    }
    Ok(set)
}

/// ACCESS; not sent when the kernel checks permissions.
pub(crate) fn access(cx: &mut Context<'_>, request: &mut Request<'_>) -> Outcome {
    let arg: AccessIn = request.arg()?;
    cx.volume.attributes().access(
        cx.who,
        request.node(),
        arg.mask & (MAY_READ | MAY_WRITE | MAY_EXEC),
    )?;
    Ok(0)
}

/// READLINK. The kernel caches the target, so the copy here is made once per link.
pub(crate) fn readlink(cx: &mut Context<'_>, request: &mut Request<'_>) -> Outcome {
    let target = cx.volume.namespace().readlink(request.node())?;
    let room = request.body().get_mut(..target.len()).ok_or(Errno::EIO)?;
    room.copy_from_slice(&target);
    Ok(target.len())
}

/// STATFS: of a tree with a quota its limits.
pub(crate) fn statfs(cx: &mut Context<'_>, request: &mut Request<'_>) -> Outcome {
    let facts = cx.volume.statfs_of(request.node());
    let block = u64::from(STATFS_BLOCK);
    let out = StatfsOut {
        blocks: facts.bytes_total / block,
        bfree: facts.bytes_free / block,
        bavail: facts.bytes_available / block,
        files: facts.inodes_used.saturating_add(facts.inodes_free),
        ffree: facts.inodes_free,
        bsize: STATFS_BLOCK,
        namelen: 255,
        frsize: STATFS_BLOCK,
        ..StatfsOut::default()
    };
    put(request.body(), 0, &out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arg(valid: u32) -> SetattrIn {
        SetattrIn {
            valid,
            size: 7,
            mode: 0o104_755,
            uid: 1,
            gid: 2,
            atime: 10,
            atimensec: 11,
            mtime: u64::MAX,
            mtimensec: 13,
            ctime: 14,
            ctimensec: 15,
            ..SetattrIn::default()
        }
    }

    #[test]
    fn the_combinations_that_the_kernel_sends() {
        let nothing = SetAttr::default();
        assert_eq!(wanted(&arg(0)), Ok(nothing));
        let chmod = SetAttr { mode: Some(0o4755), ..nothing };
        assert_eq!(wanted(&arg(0x1)), Ok(chmod));
        let chown = SetAttr { uid: Some(1), gid: Some(2), ..nothing };
        assert_eq!(wanted(&arg(0x806)), Ok(chown));
        let truncate = SetAttr { size: Some(7), ..nothing };
        assert_eq!(wanted(&arg(0x208)), Ok(truncate));
        let ftruncate = SetAttr { by_handle: true, ..truncate };
        assert_eq!(wanted(&arg(0x248)), Ok(ftruncate));
        let times = SetAttr {
            atime: Some(SetTime::To(Time { sec: 10, nsec: 11 })),
            mtime: Some(SetTime::To(Time { sec: -1, nsec: 13 })),
            ..nothing
        };
        assert_eq!(wanted(&arg(0x30)), Ok(times));
        let now = SetAttr { atime: Some(SetTime::Now), mtime: Some(SetTime::Now), ..nothing };
        assert_eq!(wanted(&arg(0x1b0)), Ok(now));
        let writeback = SetAttr {
            mtime: Some(SetTime::To(Time { sec: -1, nsec: 13 })),
            ctime: Some(Time { sec: 14, nsec: 15 }),
            ..nothing
        };
        assert_eq!(wanted(&arg(0x420)), Ok(writeback));
    }

    #[test]
    fn bad_nanoseconds_are_refused() {
        let bad = SetattrIn { mtimensec: 1_000_000_000, ..arg(SETATTR_MTIME) };
        assert_eq!(wanted(&bad), Err(Errno::EINVAL));
    }
}
