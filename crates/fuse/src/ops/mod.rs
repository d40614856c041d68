//! Handlers, one for each request: each takes its arguments from the request, calls the volume,
//! leaves the reply in the request's body and returns its length.
//!
//! Every reply that names an inode gives the kernel a reference to it, so it is held
//! ([`shoal::raw::References::hold`]) before the reply is sent; FORGET releases it.

pub(crate) mod attr;
pub(crate) mod control;
pub(crate) mod create;
pub(crate) mod data;
pub(crate) mod dir;
pub(crate) mod info;
pub(crate) mod lookup;
pub(crate) mod open;
pub(crate) mod remove;
pub(crate) mod rename;
pub(crate) mod resent;
pub(crate) mod seek;
pub(crate) mod sync;
pub(crate) mod token;
pub(crate) mod xattr;

use crate::caller::{UNKNOWN, identify};
use crate::protocol::flags::{S_ISGID, S_ISUID, S_IXGRP};
use crate::protocol::reply::{entry, put};
use crate::protocol::{Errno, Request};
use crate::session::Session;
use shoal::raw::{Attr, Caller, FileKind, Ino, SetAttr, Volume};
use std::sync::Arc;

/// Length of the reply, or the error.
pub(crate) type Outcome = Result<usize, Errno>;

/// Context of a handler besides the request.
pub(crate) struct Context<'a> {
    /// The mount.
    pub session: &'a Arc<Session>,
    /// Its volume.
    pub volume: &'a Volume,
    /// Caller of the request.
    pub who: &'a mut Caller,
    /// Thread that waits for the reply; 0: in another pid namespace.
    pub tid: u32,
}

impl Context<'_> {
    /// Finds out the caller, if the kernel has not sent it. Must be called before a permission
    /// that the kernel has not checked is decided by the user.
    pub(crate) fn identify(&mut self) {
        if self.who.uid == UNKNOWN {
            identify(self.who, self.tid);
        }
    }

    /// The same before a change that clears set-id bits, which depends on the user: only if the
    /// inode has some.
    pub(crate) fn identify_for_set_id(&mut self, ino: Ino) -> Result<(), Errno> {
        if self.who.uid == UNKNOWN
            && self.volume.attributes().getattr(ino)?.mode & (S_ISUID | S_ISGID) != 0
        {
            self.identify();
        }
        Ok(())
    }
}

/// Returns whether a user could read the volume itself.
fn is_owner(uid: u32) -> bool {
    uid == 0 || uid == rustix::process::geteuid().as_raw()
}

/// Reads attributes for a reply. Sends the notices that keep the kernel from caching old ones.
#[inline]
fn read_attr(cx: &Context<'_>, ino: Ino) -> Result<Attr, Errno> {
    let unread = &cx.session.unread;
    unread.give(ino, cx.tid, unread.now());
    let mut attr = cx.volume.attributes().getattr(ino)?;
    if unread.is_losing(ino, cx.tid) {
        cx.session.show_only(&[ino], cx.tid);
    }
    attr.blocks = cx.session.blocks(ino, attr.kind, attr.size, attr.blocks);
    Ok(attr)
}

/// Replies with `attr` as an entry, and takes its reference.
#[inline]
fn reply_entry(cx: &Context<'_>, request: &mut Request<'_>, attr: &Attr) -> Outcome {
    reply_entry_by(cx, request, attr, read_attr)
}

/// Replies like [`reply_entry`], with an inode that this request has made. Nobody else finds it
/// before the kernel has taken the reply, because the kernel has its directory locked; so nobody
/// can change attributes that are under way, and they are not recorded in [`crate::unread`]. A
/// record for each new file would share its slot with a directory sooner or later, and cost a
/// notice at each change in that directory.
#[inline]
fn reply_new_entry(cx: &Context<'_>, request: &mut Request<'_>, attr: &Attr) -> Outcome {
    reply_entry_by(cx, request, attr, |cx, ino| {
        cx.volume.references().is_new(ino);
        let attr = cx.volume.attributes().getattr(ino)?;
        // With `writeback` its data may come long after its attributes are asked for.
        let blocks = match cx.session.rules.writeback {
            true => cx.session.blocks(ino, attr.kind, attr.size, attr.blocks),
            false => attr.blocks,
        };
        Ok(Attr { blocks, ..attr })
    })
}

#[inline]
fn reply_entry_by(
    cx: &Context<'_>,
    request: &mut Request<'_>,
    attr: &Attr,
    read: impl FnOnce(&Context<'_>, Ino) -> Result<Attr, Errno>,
) -> Outcome {
    cx.volume.references().hold(attr.ino, 1)?;
    cx.session.known.give(attr.ino);
    // Since the name was looked up the inode may have changed, or gone, and its number may have
    // been reused: the kernel gets attributes that were read after the reference was taken.
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
        cx.session.not_given(attr.ino);
    }
    reply
}

/// Returns the set-id bits that a change by an unprivileged user clears in `mode`.
fn set_id_bits(mode: u32, in_group: bool) -> u32 {
    // A set-group-id bit without group execution once meant mandatory locking: members of the group
    // keep it.
    let group = if mode & S_IXGRP != 0 || !in_group { S_ISGID } else { 0 };
    mode & (S_ISUID | group)
}

/// Clears the set-id bits of a file as part of a truncation or change of owner. The caller need not
/// be allowed to change the mode as such.
fn kill_set_id(cx: &Context<'_>, attr: Attr, in_group: bool) -> Result<Attr, Errno> {
    let bits = set_id_bits(attr.mode, in_group);
    if attr.kind != FileKind::Regular || bits == 0 {
        return Ok(attr);
    }
    let set = SetAttr { mode: Some(attr.mode & 0o7777 & !bits), ..SetAttr::default() };
    Ok(cx.volume.attributes().setattr(&Caller::root(), attr.ino, &set)?)
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
