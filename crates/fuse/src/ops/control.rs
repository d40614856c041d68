//! Ioctls: three of our own, no others.
//!
//! [`IOCTL_CALL`] carries a call of the library's table about the mount or the opened file
//! ([`shoal_session::page`]). Who may make which is decided by the same rules as in a session. The
//! kernel has checked only that the file is open, so the volume checks permission on every mount.
//! (Nobody has checked whether the mount is a read-only view of a writable one; a program that
//! hands such views to others must not rely on them to keep the superuser from this ioctl.)
//!
//! The kernel does not interpret an ioctl, and keeps its names for ever. So names that a call has
//! changed are invalidated ([`crate::notices`]), and the reply waits for that. For a tree:
//!
//! | when | another program | the caller |
//! | --- | --- | --- |
//! | before the transaction | sees the tree | waits |
//! | from then until the name has expired in the kernel | still sees the tree by names that the kernel knows, and reads from its cache; the name cannot be made again (`EEXIST`); requests to the server find less and less, and nothing can be made in the top (`ENOENT`) | waits |
//! | from then until the name is unhashed | sees no such name, but may have to wait until the kernel has dropped the names below | waits |
//! | after the reply | sees no such name | the same |
//!
//! If the kernel takes longer than a second, because the directory's lock is held, the reply goes
//! out all the same.

use super::{Context, Outcome, is_owner};
use crate::doors::{local_of, pay_owed};
use crate::protocol::flags::{IOCTL_CALL, IOCTL_SERVER_PID, IOCTL_SYNC};
use crate::protocol::reply::put;
use crate::protocol::wire::{IoctlIn, IoctlOut};
use crate::protocol::{Errno, Opcode, Request};
use shoal::raw::{Code, Error};
use shoal_session::page::{PAGE, Question, put_answer};
use shoal_session::{Changed, Node};

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
        IOCTL_CALL if (arg.in_size as usize) < PAGE || (arg.out_size as usize) < PAGE => {
            Err(Errno::EINVAL)
        }
        IOCTL_CALL => {
            cx.identify();
            call(cx, request)
        }
        _ => Err(Errno::ENOTTY),
    }
}

fn call(cx: &Context<'_>, request: &mut Request<'_>) -> Outcome {
    // Not logged: any program can send such a page.
    let question = Question::parse(request.payload()).map_err(|_| Errno::EINVAL)?;
    let question = question.ok_or(Errno::EPROTONOSUPPORT)?;
    let local = local_of(cx.session);
    let make = || {
        let _change = match question.may_change() {
            true => Some(cx.session.about.begin_change().ok_or(Code::ReadOnly)?),
            false => None,
        };
        question.answer(&local, Node(request.node().0), cx.who, is_owner(cx.who.uid))
    };
    let answer = make();
    pay_owed(cx.session);
    if let Err(error) = &answer {
        log(cx, request, error);
    }
    reply(request, answer)
}

/// Logs an error of the volume or its device, and counts damage, as for a request that fails.
fn log(cx: &Context<'_>, request: &Request<'_>, error: &Error) {
    if !matches!(error, Error::Code(_) | Error::Refused { .. })
        && Errno::from(error.clone()) == Errno::EIO
    {
        cx.session.failed(Opcode::Ioctl, request);
    }
}

fn reply(request: &mut Request<'_>, answer: shoal::raw::Result<Vec<u8>>) -> Outcome {
    let start = put(request.body(), 0, &IoctlOut::default())?;
    let room = request.body().get_mut(start..).ok_or(Errno::EIO)?;
    Ok(start + put_answer(room, answer)?)
}

/// Answers a call that a dead server has made, if it has removed a name; the kernel may not have
/// been told.
pub(crate) fn made(cx: &Context<'_>, request: &mut Request<'_>) -> Option<Outcome> {
    let arg: IoctlIn = request.arg().ok().filter(|arg: &IoctlIn| arg.cmd == IOCTL_CALL)?;
    let question = Question::parse(request.payload()).ok().flatten()?;
    let name = question.removed().filter(|_| arg.out_size as usize >= PAGE)?;
    // A subvolume has its name in the top.
    let dir = if question.is_of_file() { request.node() } else { cx.session.top };
    local_of(cx.session).tell_again(Changed::Name(Node(dir.0), name));
    pay_owed(cx.session);
    Some(reply(request, Ok(Vec::new())))
}
