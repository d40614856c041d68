//! One handler for each request: takes its arguments from the request, calls the volume, leaves
//! the reply in the request's body and returns its length.
//!
//! Every reply that names an inode gives the kernel a reference to it, so it is held
//! ([`shoal::Volume::hold`]) before the reply is sent; FORGET releases it.

pub mod attr;
pub mod control;
pub mod create;
pub mod data;
pub mod dir;
pub mod inspect;
pub mod lookup;
pub mod open;
pub mod parents;
pub mod remove;
pub mod rename;
pub mod scrub;
pub mod sync;
pub mod tree;
pub mod xattr;

use crate::protocol::flags::{S_ISGID, S_ISUID, S_IXGRP};
use crate::protocol::reply::{entry, put};
use crate::protocol::{Errno, Request};
use crate::session::Session;
use shoal::{Attr, Caller, FileKind, Ino, SetAttr, Volume};

/// Length of the reply, or why there is none.
pub type Outcome = Result<usize, Errno>;

/// What handlers work with besides the request.
pub struct Context<'a> {
    /// The mount.
    pub session: &'a Session,
    /// Its volume.
    pub volume: &'a Volume,
    /// Whose request it is.
    pub who: &'a mut Caller,
    /// The thread that waits for the reply; 0: cannot be seen from here.
    pub tid: u32,
}

/// Reads attributes to be replied with: what the kernel must not keep of them it is told.
#[inline]
fn read_attr(cx: &Context<'_>, ino: Ino) -> Result<Attr, Errno> {
    let unread = &cx.session.unread;
    unread.give(ino, cx.tid, unread.now());
    let attr = cx.volume.getattr(ino)?;
    if unread.is_losing(ino, cx.tid) {
        cx.session.show_only(&[ino], cx.tid);
    }
    Ok(attr)
}

/// Replies with `attr` as an entry, and takes the reference that goes with it.
#[inline]
fn reply_entry(cx: &Context<'_>, request: &mut Request<'_>, attr: &Attr) -> Outcome {
    reply_entry_by(cx, request, attr, read_attr)
}

/// As [`reply_entry`], of an inode that this request has made. Nobody else finds it before the
/// kernel has taken the reply, because the kernel has its directory locked; so nobody can change
/// attributes that are under way, and they are not noted as such ([`crate::unread`]). A note for
/// each new file would share its slot with a directory sooner or later, and have the kernel told of
/// each change in that directory.
#[inline]
fn reply_new_entry(cx: &Context<'_>, request: &mut Request<'_>, attr: &Attr) -> Outcome {
    reply_entry_by(cx, request, attr, |cx, ino| Ok(cx.volume.getattr(ino)?))
}

#[inline]
fn reply_entry_by(
    cx: &Context<'_>,
    request: &mut Request<'_>,
    attr: &Attr,
    read: impl FnOnce(&Context<'_>, Ino) -> Result<Attr, Errno>,
) -> Outcome {
    cx.volume.hold(attr.ino, 1)?;
    // Since the name was looked up the inode may have changed, and gone, and its number may have
    // been used again: what the kernel gets is as it was after the reference was there.
    let reply = match read(cx, attr.ino) {
        Ok(now) if now.generation == attr.generation => {
            let mut out = entry(&now);
            out.nodeid = cx.session.id(attr.ino);
            out.entry_valid = cx.session.rules.names_valid();
            put(request.body(), 0, &out)
        }
        Ok(_) => Err(Errno::ESTALE),
        Err(errno) => Err(errno),
    };
    if reply.is_err() {
        cx.volume.release(attr.ino, 1);
    }
    reply
}

/// The set-id bits that a change by an unprivileged user takes away from `mode`.
fn set_id_bits(mode: u32, in_group: bool) -> u32 {
    // A set-group-id bit without group execution once meant mandatory locking: who is in the group
    // keeps it.
    let group = if mode & S_IXGRP != 0 || !in_group { S_ISGID } else { 0 };
    mode & (S_ISUID | group)
}

/// Clears the set-id bits of a file as part of a truncation or change of owner by `who`, who need
/// not be allowed to change the mode as such.
fn kill_set_id(cx: &Context<'_>, attr: Attr, in_group: bool) -> Result<Attr, Errno> {
    let bits = set_id_bits(attr.mode, in_group);
    if attr.kind != FileKind::Regular || bits == 0 {
        return Ok(attr);
    }
    let set = SetAttr { mode: Some(attr.mode & 0o7777 & !bits), ..SetAttr::default() };
    Ok(cx.volume.setattr(&Caller::root(), attr.ino, &set)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn which_set_id_bits_go() {
        assert_eq!(set_id_bits(0o104_755, true), S_ISUID);
        assert_eq!(set_id_bits(0o106_755, true), S_ISUID | S_ISGID);
        assert_eq!(set_id_bits(0o102_744, true), 0);
        assert_eq!(set_id_bits(0o102_744, false), S_ISGID);
        assert_eq!(set_id_bits(0o100_777, false), 0);
    }
}
