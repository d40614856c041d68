//! Subvolumes made, deleted and listed through a mount ([`crate::protocol::control`]), for the
//! superuser and the user whom the server runs as. A mount of one subvolume shows no others.
//!
//! The kernel knows nothing of these changes, and keeps names for ever, those too that do not
//! exist. So the name is invalidated, and the reply waits for that. What is below a deleted one
//! goes as with a removed tree ([`super::tree`]): the kernel drops its names in the background, and
//! whoever is in it gets ESTALE.

use super::tree::path_of;
use super::{Context, Next};
use crate::notices::Notice;
use crate::protocol::Errno;
use crate::protocol::control::{Answer, Cursor, Entry, IS_DELETED, STILL_SHOWN};
use crate::protocol::wire::ControlHead;
use shoal::raw::{Caller, Ino, SetAttr};
use std::time::Duration;

/// Longest wait of the reply for the kernel to forget the name.
const PATIENCE: Duration = Duration::from_secs(1);
/// Permission bits.
const MODE: u64 = 0o7777;

/// Answers [`Kind::MakeSubvolume`](crate::protocol::control::Kind::MakeSubvolume). The subvolume
/// belongs to the caller.
pub(crate) fn make(
    cx: &Context<'_>,
    head: &ControlHead,
    name: &[u8],
    answer: &mut Answer<'_>,
) -> Next {
    whole(cx)?;
    let [mode, umask, ..] = head.numbers;
    if mode > MODE || umask > MODE {
        return Err(Errno::EINVAL);
    }
    let (mode, umask) = (mode as u32, umask as u32);
    let who = Caller { umask, checked: true, ..cx.who.clone() };
    let made = cx.volume.subvolumes().create(&who, name, mode)?;
    // A top with the set-group-id bit gives its group to new directories; the mode was asked for.
    if umask == 0 && made.mode & MODE as u32 != mode {
        let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
        cx.volume.attributes().setattr(&who, made.ino, &set)?;
    }
    // A name that the kernel knows to be missing.
    forget(cx, name, None);
    answer.head.numbers[0] = made.ino.0;
    Ok(None)
}

/// Answers [`Kind::DeleteSubvolume`](crate::protocol::control::Kind::DeleteSubvolume).
pub(crate) fn delete(cx: &Context<'_>, name: &[u8], answer: &mut Answer<'_>) -> Next {
    whole(cx)?;
    let who = Caller { checked: true, ..cx.who.clone() };
    // Only for the notices and the reply.
    let top = cx.volume.subvolumes().top(name).ok();
    cx.volume.subvolumes().delete(&who, name)?;
    let is_forgotten = forget(cx, name, top);
    answer.head.flags = if is_forgotten { 0 } else { STILL_SHOWN };
    answer.head.numbers[0] = top.map_or(0, |top| top.0);
    Ok(None)
}

/// Lists the subvolumes; the cursor is the number of the last one of the page before.
pub(crate) fn list(cx: &Context<'_>, cursor: u64, answer: &mut Answer<'_>) -> Next {
    whole(cx)?;
    let mut last: Cursor = [cursor, 0, 0];
    for root in cx.volume.subvolumes().list() {
        if u64::from(root.id) <= cursor {
            continue;
        }
        let flags = if root.deleted { IS_DELETED } else { 0 };
        let numbers = [root.top.0, root.inodes, 0];
        if !answer.push(&Entry { numbers, flags, texts: [&root.name, b""] }) {
            return Ok(Some(last));
        }
        last = [u64::from(root.id), 0, 0];
    }
    Ok(None)
}

/// Refuses in a mount of one subvolume.
fn whole(cx: &Context<'_>) -> Result<(), Errno> {
    if cx.session.top == Ino::ROOT { Ok(()) } else { Err(Errno::EPERM) }
}

/// Makes the kernel forget a name in the volume's top. Returns whether it has; it may take longer
/// for a name whose directory is in use.
fn forget(cx: &Context<'_>, name: &[u8], top: Option<Ino>) -> bool {
    let session = cx.session;
    let dir = session.id(Ino::ROOT);
    let expire = top.is_some() && session.notices.can_expire();
    let notice = |expire| Notice::Name { dir, name: name.into(), expire };
    let attributes = |node| Notice::Attributes { node };
    let told = [notice(expire), attributes(dir)];
    let of_top = top.map(|top| attributes(session.id(top)));
    let given = session.notices.give(told.into_iter().chain(of_top));
    let is_forgotten = session.notices.wait(given, PATIENCE);
    if expire && is_forgotten {
        let path = path_of(cx.volume, cx.session.top, Ino::ROOT, name);
        session.sweeper.sweep(path, &session.notices, notice(false), PATIENCE);
    }
    is_forgotten
}
