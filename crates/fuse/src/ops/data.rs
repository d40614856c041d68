//! Contents of files.

use super::{Context, Outcome};
use crate::protocol::flags::*;
use crate::protocol::reply::put;
use crate::protocol::wire::*;
use crate::protocol::{Errno, Opcode, Request};
use crate::tokens::is_virtual;
use shoal::raw::{Fallocate, Ino};

/// Most bytes that one COPY_FILE_RANGE copies, so that it cannot keep a thread for minutes; the
/// caller goes on from there.
const COPY_MAX: u64 = 64 << 20;

/// READ.
pub(crate) fn read(cx: &mut Context<'_>, request: &mut Request<'_>) -> Outcome {
    let arg: ReadIn = request.arg()?;
    let node = request.node();
    if arg.bits & BY_LOCK_OWNER == 0 {
        cx.session.pages.are_read(node);
        cx.volume.references().set_cached(node, true);
    }
    let body = request.body();
    let size = (arg.size as usize).min(body.len());
    let (files, room) = (cx.volume.files(), &mut body[..size]);
    match arg.flags & O_NOATIME {
        0 => Ok(files.read(node, arg.offset, room)?),
        _ => Ok(files.read_noatime(node, arg.offset, room)?),
    }
}

/// WRITE. The offset is right also with `O_APPEND` as long as all writers come through this mount:
/// the kernel holds the file's lock and knows its size.
pub(crate) fn write(cx: &mut Context<'_>, request: &mut Request<'_>) -> Outcome {
    let arg: ReadIn = request.arg()?;
    let (files, kill) = (cx.volume.files(), arg.bits & WRITE_KILL_SUIDGID != 0);
    // Of a write past the page cache the kernel sends all pieces at once, in no order: each belongs
    // where it says.
    let is_in_order = arg.bits & (WRITE_CACHE | BY_LOCK_OWNER) == 0;
    if arg.flags & O_APPEND != 0 && is_in_order && cx.session.unread.is_beside() {
        return append_beside(cx, request, &arg);
    }
    let data = request.payload().get(..arg.size as usize).ok_or(Errno::EIO)?;
    let written = match arg.bits & WRITE_CACHE {
        0 => files.write(request.node(), arg.offset, data, kill)?,
        // What takes privileges away is the system call `write`, for which the kernel did it when
        // it collected the data. Others may have been given to the file since.
        _ => files.write_back(request.node(), arg.offset, data)?,
    };
    if arg.bits & BY_LOCK_OWNER != 0 {
        cx.session.written_past_pages(request.node(), arg.offset, written as u64);
    }
    put(request.body(), 0, &WriteOut { size: written as u32, padding: 0 })
}

/// A WRITE of a file with `O_APPEND` when sessions change files too: the kernel places it at the
/// end that it knows of, which it has not asked for since it was told that it is old. What it has
/// put into pages there goes.
fn append_beside(cx: &mut Context<'_>, request: &mut Request<'_>, arg: &ReadIn) -> Outcome {
    let (node, kill) = (request.node(), arg.bits & WRITE_KILL_SUIDGID != 0);
    let data = request.payload().get(..arg.size as usize).ok_or(Errno::EIO)?;
    let (at, written) = cx.volume.files().append(node, data, kill)?;
    if at != arg.offset {
        cx.session.appended_elsewhere(node, arg.offset.min(at));
    }
    put(request.body(), 0, &WriteOut { size: written as u32, padding: 0 })
}

/// FALLOCATE.
pub(crate) fn fallocate(cx: &mut Context<'_>, request: &mut Request<'_>) -> Outcome {
    let arg: FallocateIn = request.arg()?;
    cx.volume.files().fallocate(
        request.node(),
        fallocate_mode(arg.mode)?,
        arg.offset,
        arg.length,
    )?;
    cx.session.changed(request.node(), cx.tid);
    Ok(0)
}

/// Decodes the mode of `fallocate`.
fn fallocate_mode(bits: u32) -> Result<Fallocate, Errno> {
    const PUNCH: u32 = FALLOC_PUNCH_HOLE | FALLOC_KEEP_SIZE;
    const ZERO_KEEP: u32 = FALLOC_ZERO_RANGE | FALLOC_KEEP_SIZE;
    match bits {
        0 => Ok(Fallocate::Allocate { keep_size: false }),
        FALLOC_KEEP_SIZE => Ok(Fallocate::Allocate { keep_size: true }),
        PUNCH => Ok(Fallocate::PunchHole),
        FALLOC_ZERO_RANGE => Ok(Fallocate::ZeroRange { keep_size: false }),
        ZERO_KEEP => Ok(Fallocate::ZeroRange { keep_size: true }),
        _ => Err(Errno::EOPNOTSUPP),
    }
}

/// COPY_FILE_RANGE and COPY_FILE_RANGE_64, which differ in the reply only.
pub(crate) fn copy(cx: &mut Context<'_>, request: &mut Request<'_>) -> Outcome {
    let arg: CopyRangeIn = request.arg()?;
    if arg.flags != 0 {
        return Err(Errno::EINVAL);
    }
    let (from, to) = (request.node(), Ino(arg.nodeid_out));
    if is_virtual(to) {
        // The kernel reads and writes instead, for which the token's rights are checked.
        return Err(Errno::EOPNOTSUPP);
    }
    let len = arg.len.min(COPY_MAX);
    let copied = cx.volume.files().copy_range(from, arg.off_in, to, arg.off_out, len)?;
    match request.opcode {
        Some(Opcode::CopyFileRange64) => put(request.body(), 0, &OffsetOut { value: copied }),
        _ => put(request.body(), 0, &WriteOut { size: copied as u32, padding: 0 }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fallocate_modes() {
        assert_eq!(fallocate_mode(0), Ok(Fallocate::Allocate { keep_size: false }));
        assert_eq!(fallocate_mode(1), Ok(Fallocate::Allocate { keep_size: true }));
        assert_eq!(fallocate_mode(3), Ok(Fallocate::PunchHole));
        assert_eq!(fallocate_mode(0x10), Ok(Fallocate::ZeroRange { keep_size: false }));
        assert_eq!(fallocate_mode(0x11), Ok(Fallocate::ZeroRange { keep_size: true }));
        for bad in [2, 8, 0x20, 0x13, 0x40] {
            assert_eq!(fallocate_mode(bad), Err(Errno::EOPNOTSUPP), "{bad:#x}");
        }
    }
}
