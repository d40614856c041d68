//! LSEEK: where a file has data, and where holes.
//!
//! Problem: a program stores to a mapping of a hole. The kernel sends LSEEK without writing the
//! dirty pages first, so the volume still has the hole, and `cp` copies zeros.
//!
//! Rule: a hole is told only if the kernel has no dirty pages there. If it may keep pages of the
//! file ([`Session::may_have_pages`]), they are written and dropped first. Where that takes too
//! long, or this thread must not wait, the answer is that there are no holes, which is always
//! allowed: whoever asked reads zeros then.
//!
//! Data and holes are told by whole pages: a page that is partly data is data. So a dirty page in
//! what is told as a hole was read as a hole before, and the volume has seen that.
//!
//! The caller holds the inode's lock in the kernel: nobody writes or truncates meanwhile.

use super::{Context, Outcome};
use crate::protocol::flags::{SEEK_DATA, SEEK_HOLE};
use crate::protocol::reply::put;
use crate::protocol::wire::{LseekIn, OffsetOut};
use crate::protocol::{Errno, Request};
use crate::session::Session;
use shoal::raw::{Code, Error, Result, Seek};
use std::ops::Range;

/// LSEEK; the kernel does the other kinds itself.
pub(crate) fn lseek(cx: &mut Context<'_>, request: &mut Request<'_>) -> Outcome {
    let arg: LseekIn = request.arg()?;
    let what = match arg.whence {
        SEEK_DATA => Seek::Data,
        SEEK_HOLE => Seek::Hole,
        _ => return Err(Errno::EINVAL),
    };
    let value = find(cx, request, arg.offset, what)?;
    put(request.body(), 0, &OffsetOut { value })
}

fn find(cx: &Context<'_>, request: &Request<'_>, offset: u64, what: Seek) -> Result<u64> {
    let ino = request.node();
    let has_pages = cx.session.may_have_pages(ino);
    let mut all_data = false;
    if has_pages && cx.session.rules.writeback {
        // The volume may not even know the size.
        all_data = !write_pages(cx.session, request, &(offset..u64::MAX));
    }
    let search = || -> Result<(u64, Answer)> {
        let size = cx.volume.attributes().getattr(ino)?.size;
        let seek = |at, what| cx.volume.files().seek(ino, at, what);
        Ok((size, told(offset, size, what, page_size(), seek)?))
    };
    let (size, mut answer) = search()?;
    if has_pages && !all_data && !cx.session.rules.writeback && !answer.hole.is_empty() {
        match write_pages(cx.session, request, &answer.hole) {
            true => answer = search()?.1,
            false => all_data = true,
        }
    }
    match what {
        Seek::Data if all_data && offset < size => Ok(offset),
        Seek::Hole if all_data => Ok(size),
        _ => answer.at.ok_or(Error::Code(Code::NoDevice)),
    }
}

/// Has the kernel write and drop its pages in a range; `false`: not in time.
#[cold]
fn write_pages(session: &Session, request: &Request<'_>, range: &Range<u64>) -> bool {
    let at = range.start;
    let len = if range.end == u64::MAX { 0 } else { range.end - at };
    // A file that was opened by a token has pages of its own.
    let (node, own) = (request.header.nodeid, session.id(request.node()));
    request.may_wait()
        && session.write_pages(node, at, len)
        && (node == own || session.write_pages(own, at, len))
}

fn page_size() -> u64 {
    rustix::param::page_size() as u64
}

/// An answer.
#[derive(PartialEq, Eq, Debug)]
struct Answer {
    /// The place; `None`: no data follows.
    at: Option<u64>,
    /// The bytes that it tells to be a hole.
    hole: Range<u64>,
}

/// Searches by whole pages. `seek` searches by bytes, and fails with `ENXIO` at the end.
fn told(
    offset: u64,
    size: u64,
    what: Seek,
    page: u64,
    seek: impl Fn(u64, Seek) -> Result<u64>,
) -> Result<Answer> {
    if offset >= size {
        return Err(Error::Code(Code::NoDevice));
    }
    let data_after = |at| match seek(at, Seek::Data) {
        Ok(at) => Ok(Some(at)),
        Err(error) if error.is(Code::NoDevice) => Ok(None),
        Err(error) => Err(error),
    };
    let mut at = offset - offset % page;
    if what == Seek::Data {
        let at = data_after(at)?.map(|data| offset.max(data - data % page));
        return Ok(Answer { at, hole: offset..at.unwrap_or(u64::MAX) });
    }
    while at < size {
        let start = seek(at, Seek::Hole)?.next_multiple_of(page);
        if start >= size {
            break;
        }
        let data = data_after(start)?;
        let end = data.map_or(u64::MAX, |data| data - data % page);
        let start = start.max(offset);
        if start < end {
            return Ok(Answer { at: Some(start), hole: start..end });
        }
        at = data.unwrap_or(size);
    }
    Ok(Answer { at: Some(size), hole: 0..0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: usize = 4;

    /// The search in a file of which `data` tells what each byte is.
    fn seek(data: &[bool], at: u64, what: Seek) -> Result<u64> {
        let rest = data.get(at as usize..).filter(|rest| !rest.is_empty());
        let rest = rest.ok_or(Error::Code(Code::NoDevice))?;
        let found = rest.iter().position(|is_data| *is_data == (what == Seek::Data));
        match (found, what) {
            (Some(found), _) => Ok(at + found as u64),
            (None, Seek::Hole) => Ok(data.len() as u64),
            (None, Seek::Data) => Err(Error::Code(Code::NoDevice)),
        }
    }

    /// Every file of up to eleven bytes, every place in it.
    #[test]
    fn whole_pages_are_told() {
        for len in 0..12usize {
            for bits in 0..1u32 << len {
                let data: Vec<bool> = (0..len).map(|n| bits >> n & 1 == 1).collect();
                // The same by pages.
                let pages: Vec<bool> = (0..len)
                    .map(|n| {
                        let start = n - n % PAGE;
                        data[start..len.min(start + PAGE)].contains(&true)
                    })
                    .collect();
                for at in 0..14 {
                    for what in [Seek::Data, Seek::Hole] {
                        let search = |at, what| seek(&data, at, what);
                        let got = told(at, len as u64, what, PAGE as u64, search);
                        let want = seek(&pages, at, what).ok();
                        let Ok(got) = got else {
                            assert!(at as usize >= len, "{data:?} {at} {what:?}");
                            continue;
                        };
                        assert_eq!(got.at, want, "{data:?} {at} {what:?}");
                        for (n, is_data) in (0..).zip(&pages) {
                            let in_hole = got.hole.contains(&n);
                            assert!(!in_hole || !is_data, "{data:?} {at} {what:?}: {got:?}");
                        }
                        let is_hole = match what {
                            Seek::Data => at..want.unwrap_or(len as u64),
                            Seek::Hole => want.unwrap_or(0)..want.map_or(0, |at| at + 1),
                        };
                        let mut told = is_hole.filter(|n| *n < len as u64);
                        assert!(told.all(|n| got.hole.contains(&n)), "{data:?} {at} {got:?}");
                    }
                }
            }
        }
    }
}
