//! Attributes of an inode, as for `stat`, from its core.

use crate::types::{Attr, FileKind, Time};
use shoal_base::{Code, Error, Generation, Ino, Result};
use shoal_format::inode::{Form, Inode, Stamp};

impl From<Stamp> for Time {
    fn from(s: Stamp) -> Time {
        Time { sec: s.sec, nsec: s.nsec }
    }
}

/// Returns the attributes of an inode in use, as for `stat`.
#[inline]
pub(crate) fn attr_of(ino: Ino, inode: &Inode) -> Result<Attr> {
    let c = &inode.core;
    if !c.in_use() {
        return Err(Error::Code(Code::Stale));
    }
    let Some(kind) = FileKind::from_mode(c.mode) else {
        let rule = format!("mode {:o} has no file type", c.mode);
        return Err(Error::corrupt(format!("inode {ino}"), None, rule));
    };
    let device = matches!(kind, FileKind::CharDevice | FileKind::BlockDevice);
    Ok(Attr {
        ino,
        generation: Generation(c.generation),
        kind,
        mode: c.mode,
        nlink: c.nlink,
        uid: c.uid,
        gid: c.gid,
        rdev: if device { c.parent_or_rdev as u32 } else { 0 },
        size: c.size,
        blocks: c.bytes.div_ceil(512) + inline_blocks(inode),
        atime: c.atime.into(),
        mtime: c.mtime.into(),
        ctime: c.ctime.into(),
        btime: c.btime.into(),
        version: c.lsn,
    })
}

/// Returns the units of 512 bytes that a file's contents in the inode fill. They take no space of
/// their own, but programs that copy take a file of no blocks for one hole; ext4 shows them for the
/// same reason.
#[inline]
fn inline_blocks(inode: &Inode) -> u64 {
    match inode.core.is_file() && inode.core.data_form == Form::Inline {
        true => (inode.data.len() as u64).div_ceil(512),
        false => 0,
    }
}
