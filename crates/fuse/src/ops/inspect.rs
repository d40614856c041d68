//! The ioctl that lists counters, orphans and deleted roots ([`crate::protocol::inspect`]).
//!
//! Who may ask: for counters, and why the volume is read-only, everybody: they say nothing of
//! anybody's files. For the rest, which
//! has paths in it, the superuser and the user whom the server runs as, as for names
//! (`ops/parents.rs`). A mount of one root shows the orphans of that root, and no deleted roots.

use super::{Context, Outcome};
use crate::protocol::inspect::*;
use crate::protocol::page::{PAGE, Writer};
use crate::protocol::reply::put;
use crate::protocol::wire::{CounterRecord, InspectHead, IoctlIn, IoctlOut, OrphanRecord};
use crate::protocol::{Errno, Request};
use crate::stats::Stat;
use shoal::{Ino, OrphanInfo};

/// Bytes discarded for a page.
const TRIM_STEP: u64 = 1 << 30;

/// IOCTL_INSPECT.
pub fn inspect(cx: &mut Context<'_>, request: &mut Request<'_>) -> Outcome {
    let arg: IoctlIn = request.arg()?;
    if (arg.in_size as usize) < PAGE || (arg.out_size as usize) < PAGE {
        return Err(Errno::EINVAL);
    }
    let head = question(request.payload())?;
    let uid = cx.who.uid;
    let is_public = matches!(head.what, COUNTERS | READ_ONLY);
    if !is_public && uid != 0 && uid != rustix::process::geteuid().as_raw() {
        return Err(Errno::EPERM);
    }
    let start = put(request.body(), 0, &IoctlOut::default())?;
    let mut page = writer(request.body().get_mut(start..).ok_or(Errno::EIO)?);
    let next = match head.what {
        COUNTERS => counters(cx, &mut page, head.cookie),
        ORPHANS => orphans(cx, &mut page, head.cookie)?,
        READ_ONLY => reason(cx, &mut page),
        TRIM => trim(cx, &mut page, head.cookie)?,
        _ => roots(cx, &mut page, head.cookie),
    };
    let (flags, count) = (if next.is_none() { IS_END } else { 0 }, page.count());
    let head = InspectHead { cookie: next.unwrap_or(0), flags, count, ..head };
    Ok(start + page.finish(&head)?)
}

/// Where the page after this one starts; the cookie is the number of a row.
fn counters(cx: &Context<'_>, page: &mut Writer<'_>, cookie: u64) -> Option<u64> {
    let stats = Stat::all(&cx.volume.info());
    let rest = stats.iter().enumerate().skip(usize::try_from(cookie).unwrap_or(usize::MAX));
    for (row, stat) in rest {
        if !push_counter(page, stat) {
            return Some(row as u64);
        }
    }
    None
}

fn push_counter(page: &mut Writer<'_>, stat: &Stat) -> bool {
    let record = CounterRecord {
        value: stat.value,
        name_len: stat.name.len() as u16,
        what_len: stat.what.len() as u16,
        gauge: stat.gauge.into(),
    };
    page.push(&record, [&*stat.name, &*stat.what].concat().as_bytes())
}

/// One record, on the first page.
fn reason(cx: &Context<'_>, page: &mut Writer<'_>) -> Option<u64> {
    if let Some(reason) = cx.volume.read_only_reason() {
        let text = &reason.as_bytes()[..reason.floor_char_boundary(REASON_MAX)];
        let record = CounterRecord { what_len: text.len() as u16, ..CounterRecord::default() };
        // An empty page has room for it.
        page.push(&record, text);
    }
    None
}

/// The cookie is the number of the page. A mount of one root does not do it.
fn trim(cx: &Context<'_>, page: &mut Writer<'_>, cookie: u64) -> Result<Option<u64>, Errno> {
    if cx.session.top != Ino::ROOT {
        return Err(Errno::EPERM);
    }
    let value = cx.volume.trim(cookie == 0, TRIM_STEP)?;
    // An empty page has room for it.
    page.push(&CounterRecord { value, ..CounterRecord::default() }, b"");
    Ok((value > 0).then_some(cookie + 1))
}

/// The cookie is the last inode number of the page before.
fn orphans(cx: &Context<'_>, page: &mut Writer<'_>, cookie: u64) -> Result<Option<u64>, Errno> {
    let top = cx.session.top;
    let (from, prefix) = match top {
        Ino::ROOT => (cookie, Vec::new()),
        top => {
            let path = cx.volume.paths_of(top)?.into_iter().next().ok_or(Errno::ESTALE)?;
            (cookie.max(top.0.saturating_sub(1)), path)
        }
    };
    let found = cx.volume.orphans_after(Ino(from), ORPHANS_MAX);
    let is_all = found.len() < ORPHANS_MAX;
    let mut last = from;
    for orphan in found {
        if top != Ino::ROOT && orphan.ino.root() != top.root() {
            return Ok(None);
        }
        last = orphan.ino.0;
        if !push_orphan(page, &orphan, &prefix) {
            return Ok(Some(last - 1));
        }
    }
    Ok(if is_all { None } else { Some(last) })
}

/// A path that no page can hold is left out.
fn push_orphan(page: &mut Writer<'_>, orphan: &OrphanInfo, prefix: &[u8]) -> bool {
    let path = orphan.path.as_deref().and_then(|path| path.strip_prefix(prefix));
    let path = path.filter(|path| path.len() < PAGE / 2);
    let flag = |is: bool, bit| if is { bit } else { 0 };
    let record = OrphanRecord {
        ino: orphan.ino.0,
        size: orphan.size,
        bytes: orphan.bytes,
        state: number_of(orphan.state),
        flags: flag(orphan.slot, HAS_SLOT)
            | flag(orphan.held, IS_HELD)
            | flag(path.is_some(), HAS_PATH),
        len: path.map_or(0, <[u8]>::len) as u16,
        padding: 0,
    };
    page.push(&record, path.unwrap_or_default())
}

/// The cookie is the first root of the page.
fn roots(cx: &Context<'_>, page: &mut Writer<'_>, cookie: u64) -> Option<u64> {
    if cx.session.top != Ino::ROOT {
        return None;
    }
    let roots = cx.volume.root_list();
    let rest = roots.iter().filter(|root| root.deleted && u64::from(root.id) >= cookie);
    for root in rest {
        let (ino, size) = (root.top.0, root.inodes);
        if !page.push(&OrphanRecord { ino, size, ..OrphanRecord::default() }, b"") {
            return Some(root.id.into());
        }
    }
    None
}
