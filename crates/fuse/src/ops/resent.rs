//! Answers to requests that a dead server has carried out and not answered ([`crate::calls`]).
//!
//! The kernel holds the locks of the directories of such a request until it is answered, so nobody
//! has changed through the mount what it has made: its answer is what is there now. Permission was
//! checked when it was carried out.
//!
//! | request | answer |
//! | --- | --- |
//! | CREATE, MKNOD, MKDIR, SYMLINK, LINK | the entry |
//! | UNLINK, RMDIR, RENAME, SETXATTR, REMOVEXATTR | success |
//! | SETATTR | the attributes |
//! | WRITE | all of it was written: it is one record |
//! | IOCTL that removes a tree or a subvolume | the name is gone from the kernel's cache |
//! | any other | answered like a new one, because that changes nothing more |
//!
//! Among the others is TMPFILE: the file that was made has no name, the kernel does not know it,
//! and it is freed. FALLOCATE and COPY_FILE_RANGE are several records, of which any may be made
//! twice.

use super::{Context, Outcome, control, kill_set_id, read_attr, reply_entry};
use crate::protocol::flags::{BY_LOCK_OWNER, O_APPEND, SETATTR_KILL_SUIDGID, SETATTR_MODE};
use crate::protocol::reply::{attr_out, open_out, put};
use crate::protocol::wire::{ReadIn, SetattrIn, WriteOut};
use crate::protocol::{Opcode, Request};
use shoal::raw::Caller;

/// Answers a request that has been carried out; `None` if it is to be answered like a new one.
pub(crate) fn answer(op: Opcode, cx: &Context<'_>, request: &mut Request<'_>) -> Option<Outcome> {
    Some(match op {
        Opcode::Create => entry(cx, request).and_then(|end| put(request.body(), end, &open_out())),
        Opcode::Mknod | Opcode::Mkdir | Opcode::Symlink | Opcode::Link => entry(cx, request),
        Opcode::Unlink | Opcode::Rmdir | Opcode::Rename | Opcode::Rename2 => changed(cx, request),
        Opcode::Setxattr | Opcode::Removexattr => changed(cx, request),
        Opcode::Setattr => attributes(cx, request),
        Opcode::Write => written(cx, request),
        Opcode::Ioctl => return control::made(cx, request),
        _ => return None,
    })
}

fn changed(cx: &Context<'_>, request: &Request<'_>) -> Outcome {
    cx.session.changed(request.node(), cx.tid);
    Ok(0)
}

/// Replies with the name that the request has made.
fn entry(cx: &Context<'_>, request: &mut Request<'_>) -> Outcome {
    let dir = request.node();
    let name = match request.opcode {
        Some(Opcode::Symlink) => request.name_and_target()?.0,
        _ => request.name()?,
    };
    let found = cx.volume.namespace().lookup(&Caller::root(), dir, name)?;
    cx.session.changed(dir, cx.tid);
    reply_entry(cx, request, &found)
}

fn attributes(cx: &Context<'_>, request: &mut Request<'_>) -> Outcome {
    let arg: SetattrIn = request.arg()?;
    let mut found = read_attr(cx, request.node())?;
    if arg.valid & SETATTR_KILL_SUIDGID != 0 && arg.valid & SETATTR_MODE == 0 {
        // Another transaction, which may not have been made.
        found = kill_set_id(cx, found, true)?;
    }
    put(request.body(), 0, &attr_out(&found))
}

fn written(cx: &Context<'_>, request: &mut Request<'_>) -> Outcome {
    let arg: ReadIn = request.arg()?;
    // Of another one the kernel has the pages locked, until it has this answer.
    if arg.bits & BY_LOCK_OWNER != 0 {
        cx.session.written_past_pages(request.node(), arg.offset, u64::from(arg.size));
    } else if arg.flags & O_APPEND != 0 {
        // It may have gone to another end than the kernel's.
        cx.session.appended_elsewhere(request.node(), 0);
    }
    put(request.body(), 0, &WriteOut { size: arg.size, padding: 0 })
}
