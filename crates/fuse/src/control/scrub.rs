//! A check of a mounted volume, asked for piece by piece.

use super::{Page, ask_page};
use crate::protocol::flags::IOCTL_SCRUB;
use crate::protocol::page::PAGE;
use crate::protocol::scrub::{IS_END, problems};
use crate::protocol::wire::ScrubHead;
use shoal::ScrubAt;
use std::io;
use std::os::fd::AsFd;
use zerocopy::{FromBytes, IntoBytes};

/// What one step of a scrub has read and found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ScrubStep {
    /// Where to go on; `None`: all has been read.
    pub next: Option<ScrubAt>,
    /// Blocks of metadata read.
    pub blocks: u64,
    /// Data objects read.
    pub objects: u64,
    /// Bytes read, of both.
    pub bytes: u64,
    /// What is wrong: the name of the rule, and a text.
    pub problems: Vec<(String, String)>,
    /// Problems found and not told, for want of room. A smaller step from the same place tells
    /// more of them.
    pub left_out: u32,
}

/// Checks about `bytes` more of the volume that is mounted where `opened` is a file or directory
/// of, from `at` on, beginning with the default. The server reads 8 MiB at most, however many are
/// asked for.
///
/// # Errors
/// `EPERM` unless the caller is the superuser or the user who mounted, `EINVAL` for 0 bytes,
/// `EIO` when the device cannot be read (the server's log says where), `ENOTTY` when this is no
/// mount of Shoal.
pub fn scrub_of(opened: impl AsFd, at: ScrubAt, bytes: u64) -> io::Result<ScrubStep> {
    let mut page = Page([0; PAGE]);
    let ask = ScrubHead { stage: at.stage, key: at.key.into(), bytes, ..ScrubHead::default() };
    // A page is longer than its head.
    let _ = ask.write_to_prefix(&mut page.0);
    ask_page::<IOCTL_SCRUB>(opened, &mut page)?;
    let head = ScrubHead::read_from_prefix(&page.0).map_or_else(|_| ask, |(head, _)| head);
    let next = ScrubAt { stage: head.stage, key: head.key.into() };
    Ok(ScrubStep {
        next: (head.flags & IS_END == 0).then_some(next),
        blocks: head.blocks,
        objects: head.objects,
        bytes: head.bytes,
        problems: problems(&page.0).collect(),
        left_out: head.left_out,
    })
}
