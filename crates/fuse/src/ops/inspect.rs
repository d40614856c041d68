//! Counters, the reason for being read-only, orphans, deleted subvolumes; discarding of free space
//! ([`crate::protocol::control`]).
//!
//! A mount of one subvolume shows the orphans of that subvolume and no deleted ones, and does not
//! discard.

use super::{Context, Next};
use crate::protocol::Errno;
use crate::protocol::control::{
    Answer, Cursor, ENTRIES_MAX, Entry, GAUGE, HAS_PATH, HAS_SLOT, IS_HELD, PAGE, state_bits,
};
use crate::stats::Stat;
use shoal::raw::{Ino, OrphanInfo};

/// Bytes discarded for a page.
const TRIM_STEP: u64 = 1 << 30;
/// Longest reason sent, in bytes.
const REASON_MAX: usize = 1024;

/// Lists the counters; the cursor is the number of a row.
pub(crate) fn counters(cx: &Context<'_>, cursor: u64, answer: &mut Answer<'_>) -> Option<Cursor> {
    let stats = Stat::all(&cx.volume.info());
    let rest = stats.iter().enumerate().skip(usize::try_from(cursor).unwrap_or(usize::MAX));
    for (row, stat) in rest {
        let (numbers, flags) = ([stat.value, 0, 0], if stat.gauge { GAUGE } else { 0 });
        let texts = [stat.name.as_bytes(), stat.what.as_bytes()];
        if !answer.push(&Entry { numbers, flags, texts }) {
            return at(row as u64);
        }
    }
    None
}

fn at(cursor: u64) -> Option<Cursor> {
    Some([cursor, 0, 0])
}

/// Answers why the volume takes no changes, in one entry.
pub(crate) fn reason(cx: &Context<'_>, answer: &mut Answer<'_>) -> Option<Cursor> {
    if let Some(reason) = cx.volume.read_only_reason() {
        let text = &reason.as_bytes()[..reason.floor_char_boundary(REASON_MAX)];
        // An empty page has room for it.
        answer.push(&Entry { texts: [text, b""], ..Entry::default() });
    }
    None
}

/// Discards a piece of the free space; the cursor is the number of the page.
pub(crate) fn trim(cx: &Context<'_>, cursor: u64, answer: &mut Answer<'_>) -> Next {
    if cx.session.top != Ino::ROOT {
        return Err(Errno::EPERM);
    }
    let bytes = cx.volume.maintenance().trim(cursor == 0, TRIM_STEP)?;
    // An empty page has room for it.
    answer.push(&Entry { numbers: [bytes, 0, 0], ..Entry::default() });
    // The caller chooses where to begin.
    Ok(if bytes > 0 { at(cursor.saturating_add(1)) } else { None })
}

/// Lists the orphans; the cursor is the last inode number of the page before.
pub(crate) fn orphans(cx: &Context<'_>, cursor: u64, answer: &mut Answer<'_>) -> Next {
    let top = cx.session.top;
    let (from, prefix) = match top {
        Ino::ROOT => (cursor, Vec::new()),
        top => {
            let path = cx.volume.paths().paths_of(top)?.into_iter().next().ok_or(Errno::ESTALE)?;
            (cursor.max(top.0.saturating_sub(1)), path)
        }
    };
    let found = cx.volume.references().orphan_list_after(Ino(from), ENTRIES_MAX);
    let is_all = found.len() < ENTRIES_MAX;
    let mut last = from;
    for orphan in found {
        if top != Ino::ROOT && orphan.ino.root() != top.root() {
            return Ok(None);
        }
        last = orphan.ino.0;
        if !push_orphan(answer, &orphan, &prefix) {
            return Ok(at(last - 1));
        }
    }
    Ok(if is_all { None } else { at(last) })
}

/// Adds an orphan, without its path if no page can hold that.
fn push_orphan(answer: &mut Answer<'_>, orphan: &OrphanInfo, prefix: &[u8]) -> bool {
    let path = orphan.path.as_deref().and_then(|path| path.strip_prefix(prefix));
    let path = path.filter(|path| path.len() < PAGE / 2);
    let flag = |is: bool, bit| if is { bit } else { 0 };
    answer.push(&Entry {
        numbers: [orphan.ino.0, orphan.size, orphan.bytes],
        flags: flag(orphan.slot, HAS_SLOT)
            | flag(orphan.held, IS_HELD)
            | flag(path.is_some(), HAS_PATH)
            | state_bits(orphan.state),
        texts: [path.unwrap_or_default(), b""],
    })
}

/// Lists the deleted subvolumes; the cursor is the first subvolume of the page.
pub(crate) fn deleted(cx: &Context<'_>, cursor: u64, answer: &mut Answer<'_>) -> Option<Cursor> {
    if cx.session.top != Ino::ROOT {
        return None;
    }
    let roots = cx.volume.subvolumes().list();
    let rest = roots.iter().filter(|root| root.deleted && u64::from(root.id) >= cursor);
    for root in rest {
        let numbers = [root.top.0, root.inodes, 0];
        if !answer.push(&Entry { numbers, ..Entry::default() }) {
            return at(root.id.into());
        }
    }
    None
}
