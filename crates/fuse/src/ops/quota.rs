//! Quotas of directory trees, through a mount ([`crate::protocol::control`]).
//!
//! A mount of one subvolume shows and changes the quotas of that subvolume. Paths are from the top
//! of the mount; ordinary users are told none, as a name above them need not be theirs to know.

use super::{Context, Next, is_owner};
use crate::protocol::control::{
    Answer, Cursor, Entry, HAS_PATH, IS_EXACT, NO_LIMIT, PAGE, SET_BYTES, SET_INODES,
};
use crate::protocol::wire::ControlHead;
use shoal::raw::{Code, Ino, Quota, QuotaLimits};

/// Gives a directory a quota, or changes its limits. This may walk its tree.
pub(crate) fn set(cx: &Context<'_>, dir: Ino, head: &ControlHead) -> Next {
    let quotas = cx.volume.quotas();
    let now = match quotas.get(dir) {
        Ok(quota) => quota.limits,
        Err(error) if error.is(Code::NoData) => QuotaLimits::default(),
        Err(error) => return Err(error.into()),
    };
    let limit = |flag: u32, at: usize, now: Option<u64>| match head.flags & flag {
        0 => now,
        _ => Some(head.numbers[at]).filter(|limit| *limit != NO_LIMIT),
    };
    let bytes = limit(SET_BYTES, 0, now.bytes);
    let inodes = limit(SET_INODES, 1, now.inodes);
    quotas.set(cx.who, dir, QuotaLimits { bytes, inodes })?;
    Ok(None)
}

/// Removes the quota of a directory.
pub(crate) fn remove(cx: &Context<'_>, dir: Ino) -> Next {
    cx.volume.quotas().remove(cx.who, dir)?;
    Ok(None)
}

/// Answers the quota of the tree that an inode is in, if there is one and it is in this mount.
pub(crate) fn of(cx: &Context<'_>, ino: Ino, answer: &mut Answer<'_>) -> Next {
    let shown = |quota: &Quota| is_shown(cx, quota);
    if let Some(quota) = cx.volume.quotas().of(ino)?.filter(shown) {
        // An empty page has room for it.
        push(cx, answer, &quota);
    }
    Ok(None)
}

/// Lists all quotas; the cursor is the directory of the last one of the page before.
pub(crate) fn list(cx: &Context<'_>, cursor: u64, answer: &mut Answer<'_>) -> Option<Cursor> {
    let mut last: Cursor = [cursor, 0, 0];
    for quota in cx.volume.quotas().list() {
        if quota.dir.0 <= cursor || !is_shown(cx, &quota) {
            continue;
        }
        if !push(cx, answer, &quota) {
            return Some(last);
        }
        last = [quota.dir.0, 0, 0];
    }
    None
}

fn is_shown(cx: &Context<'_>, quota: &Quota) -> bool {
    let top = cx.session.top;
    top == Ino::ROOT || quota.dir.root() == top.root()
}

/// Adds a quota to an answer. Returns whether it fits.
fn push(cx: &Context<'_>, answer: &mut Answer<'_>, quota: &Quota) -> bool {
    let path = match is_owner(cx.who.uid) {
        true => path_of(cx, quota.dir),
        false => None,
    };
    let flag = |is: bool, bit| if is { bit } else { 0 };
    let QuotaLimits { bytes, inodes } = quota.limits;
    let limits = [bytes, inodes].map(|limit| limit.unwrap_or(NO_LIMIT).to_le_bytes());
    answer.push(&Entry {
        numbers: [quota.dir.0, quota.bytes, quota.inodes],
        flags: flag(quota.is_exact, IS_EXACT) | flag(path.is_some(), HAS_PATH),
        texts: [path.as_deref().unwrap_or_default(), limits.as_flattened()],
    })
}

/// Returns the path of a directory from the top of the mount, if a page can hold it.
fn path_of(cx: &Context<'_>, dir: Ino) -> Option<Vec<u8>> {
    let first = |ino: Ino| cx.volume.paths().paths_of(ino).ok()?.into_iter().next();
    let top = cx.session.top;
    let path = first(dir)?;
    let below = match top {
        Ino::ROOT => path,
        top => path.strip_prefix(&first(top)?[..])?.to_vec(),
    };
    let path = if below.is_empty() { b"/".to_vec() } else { below };
    (path.len() < PAGE / 2).then_some(path)
}
