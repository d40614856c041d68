//! Opening. No state is kept: a handle is 0, and reads and writes name the inode.

use super::{Context, Outcome, kill_set_id};
use crate::protocol::flags::*;
use crate::protocol::reply::{open_out, put};
use crate::protocol::wire::{OpenIn, OpenOut};
use crate::protocol::{Errno, Request};
use shoal::raw::{Attr, Ino, SetAttr};

/// OPEN. Not sent again once refused (see [`crate::session::Rules::no_open`]), as the first one is
/// ([`crate::protocol::probe`]).
pub(crate) fn open(cx: &mut Context<'_>, request: &mut Request<'_>) -> Outcome {
    if cx.session.rules.no_open {
        return Err(Errno::ENOSYS);
    }
    let arg: OpenIn = request.arg()?;
    check_open(cx, request.node(), arg.flags)?;
    if arg.flags & O_TRUNC != 0 {
        let _: Attr = truncate_at_open(cx, request.node(), arg.open_flags)?;
    }
    put(request.body(), 0, &open_out())
}

/// OPENDIR. Once refused, neither it nor RELEASEDIR is sent again, and the kernel keeps listings
/// ([`crate::listings`]).
pub(crate) fn opendir(cx: &mut Context<'_>, request: &mut Request<'_>) -> Outcome {
    if cx.session.keeps_listings() {
        return Err(Errno::ENOSYS);
    }
    let _: OpenIn = request.arg()?;
    if !cx.who.bypasses() {
        cx.volume.attributes().access(cx.who, request.node(), MAY_READ)?;
    }
    put(request.body(), 0, &OpenOut::default())
}

/// Checks that the caller may open `ino` with `flags`, unless the kernel has checked.
pub(crate) fn check_open(cx: &Context<'_>, ino: Ino, flags: u32) -> Result<(), Errno> {
    if cx.who.bypasses() {
        return Ok(());
    }
    Ok(cx.volume.attributes().access(cx.who, ino, access_mask(flags))?)
}

/// Returns the permissions that an open with `flags` needs.
pub(crate) fn access_mask(flags: u32) -> u32 {
    let mask = match flags & O_ACCMODE {
        _ if flags & O_EXEC != 0 => MAY_EXEC,
        O_WRONLY => MAY_WRITE,
        0 => MAY_READ,
        // O_RDWR, and the value 3, which some drivers take for ioctls: Linux wants both.
        _ => MAY_READ | MAY_WRITE,
    };
    if flags & O_TRUNC != 0 { mask | MAY_WRITE } else { mask }
}

/// `O_TRUNC`. The right to write has been checked.
pub(crate) fn truncate_at_open(
    cx: &mut Context<'_>,
    ino: Ino,
    open_flags: u32,
) -> Result<Attr, Errno> {
    cx.identify_for_set_id(ino)?;
    let set = SetAttr { size: Some(0), by_handle: true, ..SetAttr::default() };
    let attr = cx.volume.attributes().setattr(cx.who, ino, &set)?;
    match open_flags & OPEN_KILL_SUIDGID {
        0 => Ok(attr),
        // The kernel has not sent the caller's groups.
        _ => kill_set_id(cx, attr, true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks() {
        assert_eq!(access_mask(0), MAY_READ);
        assert_eq!(access_mask(O_WRONLY), MAY_WRITE);
        assert_eq!(access_mask(O_RDWR), MAY_READ | MAY_WRITE);
        assert_eq!(access_mask(3), MAY_READ | MAY_WRITE);
        assert_eq!(access_mask(O_TRUNC), MAY_READ | MAY_WRITE);
        assert_eq!(access_mask(O_EXEC), MAY_EXEC);
    }
}
