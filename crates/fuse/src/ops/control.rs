//! Ioctls: three of our own, each for functions of [`crate::control`], no others.
//!
//! | subject of IOCTL_CONTROL ([`crate::protocol::control`]) | who may ask |
//! | --- | --- |
//! | counters, histograms of operations, reason for being read-only | everybody: they say nothing of anybody's files |
//! | removal of a tree | whoever could empty and remove it name by name ([`super::tree`]) |
//! | a token for a file | whoever has the rights that it shall grant ([`super::share`]) |
//! | the quota of a file | everybody: `statvfs` says as much |
//! | setting and removal of quotas | the superuser ([`super::quota`]) |
//! | change of the mount's options | the superuser ([`super::facts`]) |
//! | everything else | the superuser and the user whom the server runs as, who can read the volume itself |
//!
//! The names of a file are for few, because they include names in directories that the caller need
//! not be allowed to search. Others get EPERM, also for their own files.

use super::{
    Context, Outcome, facts, inspect, is_owner, observe, parents, quota, scrub, share, subvolume,
    tree,
};
use crate::protocol::control::{Answer, Kind, PAGE, parse};
use crate::protocol::flags::{IOCTL_CONTROL, IOCTL_SERVER_PID, IOCTL_SYNC};
use crate::protocol::reply::put;
use crate::protocol::wire::{IoctlIn, IoctlOut};
use crate::protocol::{Errno, Request};

/// IOCTL.
pub(crate) fn ioctl(cx: &mut Context<'_>, request: &mut Request<'_>) -> Outcome {
    let arg: IoctlIn = request.arg()?;
    match arg.cmd {
        IOCTL_SYNC => {
            cx.volume.sync()?;
            put(request.body(), 0, &IoctlOut::default())
        }
        IOCTL_SERVER_PID => {
            let end = put(request.body(), 0, &IoctlOut::default())?;
            put(request.body(), end, &cx.session.server())
        }
        IOCTL_CONTROL if (arg.in_size as usize) < PAGE || (arg.out_size as usize) < PAGE => {
            Err(Errno::EINVAL)
        }
        IOCTL_CONTROL => {
            cx.identify();
            control(cx, request)
        }
        _ => Err(Errno::ENOTTY),
    }
}

fn control(cx: &Context<'_>, request: &mut Request<'_>) -> Outcome {
    let (kind, head, name) = parse(request.payload())?;
    if !may_ask(kind, cx.who.uid) {
        return Err(Errno::EPERM);
    }
    let change = changes(kind).then(|| cx.session.about.begin_change().ok_or(Errno::EROFS));
    let _in_progress = change.transpose()?;
    let (node, name) = (request.node(), name.to_vec());
    let start = put(request.body(), 0, &IoctlOut::default())?;
    let room = request.body().get_mut(start..).ok_or(Errno::EIO)?;
    let mut answer = Answer::new(room, kind);
    let next = match kind {
        Kind::Names => parents::names(cx, node, &head, &mut answer)?,
        Kind::RemoveTree => tree::remove(cx, node, &head, &name, &mut answer)?,
        Kind::Counters => inspect::counters(cx, head.cursor[0], &mut answer),
        Kind::ReadOnly => inspect::reason(cx, &mut answer),
        Kind::Orphans => inspect::orphans(cx, head.cursor[0], &mut answer)?,
        Kind::Deleted => inspect::deleted(cx, head.cursor[0], &mut answer),
        Kind::Trim => inspect::trim(cx, head.cursor[0], &mut answer)?,
        Kind::Scrub => scrub::scrub(cx, &head, &mut answer)?,
        Kind::Share => share::share(cx, node, &head, &mut answer)?,
        Kind::Revoke => share::revoke(cx)?,
        Kind::SetQuota => quota::set(cx, node, &head)?,
        Kind::RemoveQuota => quota::remove(cx, node)?,
        Kind::Quota => quota::of(cx, node, &mut answer)?,
        Kind::Quotas => quota::list(cx, head.cursor[0], &mut answer),
        Kind::Operations => observe::operations(cx, head.cursor[0], &mut answer),
        Kind::Top => observe::top(cx, head.cursor[0], &mut answer),
        Kind::Trace => observe::trace(cx, head.cursor[0], &mut answer),
        Kind::Facts => facts::list(cx, head.cursor[0], &mut answer),
        Kind::Remount => facts::remount(cx, head.flags)?,
        Kind::SetLabel => facts::set_label(cx, &name)?,
        Kind::MakeSubvolume => subvolume::make(cx, &head, &name, &mut answer)?,
        Kind::DeleteSubvolume => subvolume::delete(cx, &name, &mut answer)?,
        Kind::Subvolumes => subvolume::list(cx, head.cursor[0], &mut answer)?,
    };
    Ok(start + answer.finish(next)?)
}

/// Returns whether a user may ask. For the removal of a tree, tokens, and changes of quotas, the
/// volume decides.
fn may_ask(kind: Kind, uid: u32) -> bool {
    match kind {
        Kind::Counters | Kind::Operations | Kind::ReadOnly | Kind::RemoveTree | Kind::Share => true,
        Kind::SetQuota | Kind::RemoveQuota | Kind::Quota => true,
        Kind::Names | Kind::Orphans | Kind::Deleted | Kind::Trim => is_owner(uid),
        Kind::Top | Kind::Trace => is_owner(uid),
        Kind::Scrub | Kind::Revoke | Kind::Quotas | Kind::Facts => is_owner(uid),
        Kind::SetLabel | Kind::Subvolumes => is_owner(uid),
        Kind::MakeSubvolume | Kind::DeleteSubvolume => is_owner(uid),
        Kind::Remount => uid == 0,
    }
}

/// Returns whether a request changes the volume, which a mount that has become read-only refuses.
fn changes(kind: Kind) -> bool {
    match kind {
        Kind::RemoveTree | Kind::SetQuota | Kind::RemoveQuota | Kind::Revoke => true,
        Kind::SetLabel | Kind::MakeSubvolume | Kind::DeleteSubvolume => true,
        Kind::Names | Kind::Counters | Kind::ReadOnly | Kind::Orphans | Kind::Deleted => false,
        Kind::Trim | Kind::Scrub | Kind::Share | Kind::Quota | Kind::Quotas => false,
        Kind::Facts | Kind::Remount | Kind::Subvolumes => false,
        Kind::Operations | Kind::Top | Kind::Trace => false,
    }
}
