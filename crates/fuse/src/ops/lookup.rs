//! Names to inodes, and the release of the kernel's references.

use super::{Context, Outcome, info, reply_entry, token};
use crate::protocol::Request;
use crate::protocol::probe::{is_probe, probe_entry};
use crate::protocol::reply::{negative_entry, put};
use crate::protocol::wire::{BatchForgetIn, EntryOut, ForgetIn, ForgetOne};
use shoal::raw::{Code, Ino};
use zerocopy::FromBytes;

/// LOOKUP. "." and ".." come only for inodes that the kernel has forgotten and a caller has a
/// handle of: any live number is good, also one never seen since the mount began.
pub(crate) fn lookup(cx: &mut Context<'_>, request: &mut Request<'_>) -> Outcome {
    let node = request.node();
    if cx.session.rules.no_open && is_probe(request) {
        return put(request.body(), 0, &probe_entry());
    }
    let found = match request.name()? {
        b"." => cx.volume.attributes().getattr(node),
        b".." => cx
            .volume
            .directories()
            .parent_of(node)
            .and_then(|parent| cx.volume.attributes().getattr(parent)),
        name => {
            cx.session.crossing.looked_up(node, name, cx.tid);
            cx.volume.namespace().lookup(cx.who, node, name)
        }
    };
    match found {
        Ok(attr) => reply_entry(cx, request, &attr),
        Err(error) if error.is(Code::NotFound) => {
            if token::is_directory(cx, node, request.name()?) {
                return token::reply_directory(request);
            }
            if info::is_directory(cx, node, request.name()?) {
                return info::reply_directory(request);
            }
            let entry_valid = cx.session.rules.names_valid();
            put(request.body(), 0, &EntryOut { entry_valid, ..negative_entry() })
        }
        Err(error) => Err(error.into()),
    }
}

/// FORGET.
pub(crate) fn forget(cx: &mut Context<'_>, request: &mut Request<'_>) -> Outcome {
    let arg: ForgetIn = request.arg()?;
    cx.session.forgotten(request.node(), arg.nlookup);
    Ok(0)
}

/// BATCH_FORGET.
pub(crate) fn batch_forget(cx: &mut Context<'_>, request: &mut Request<'_>) -> Outcome {
    let arg: BatchForgetIn = request.arg()?;
    let mut rest = request.payload();
    for _ in 0..arg.count {
        let Ok((one, tail)) = ForgetOne::read_from_prefix(rest) else { break };
        cx.session.forgotten(Ino(one.nodeid), one.nlookup);
        rest = tail;
    }
    Ok(0)
}
