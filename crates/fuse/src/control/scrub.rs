//! Scrub of a mounted volume, in steps.

use super::Call;
use crate::protocol::control::{END, Kind, entries};
use shoal::raw::ScrubAt;
use std::io;
use std::os::fd::AsFd;

/// Result of one step of a scrub.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ScrubStep {
    /// Start of the next step; `None`: everything has been read.
    pub next: Option<ScrubAt>,
    /// Blocks of metadata read.
    pub blocks: u64,
    /// Data objects read.
    pub objects: u64,
    /// Bytes read, of both.
    pub bytes: u64,
    /// Problems: the name of the rule, and a text.
    pub problems: Vec<(String, String)>,
    /// Problems found that did not fit into the answer. A smaller step from the same place returns
    /// more of them.
    pub left_out: u64,
}

/// Checks about `bytes` of the volume whose mount `opened` is in, from `at` on, beginning with the
/// default. The server reads at most 8 MiB.
///
/// # Errors
/// `EPERM` unless the caller is the superuser or the user who mounted, `EINVAL` for 0 bytes,
/// `EIO` when the device cannot be read (the server's log says where), `ENOTTY` when this is no
/// mount of Shoal.
pub fn scrub_of(opened: impl AsFd, at: ScrubAt, bytes: u64) -> io::Result<ScrubStep> {
    let mut call = Call::new(Kind::Scrub, 0);
    call.head.cursor = [at.stage, at.key.0, at.key.1];
    call.head.numbers[0] = bytes;
    call.send(opened)?;
    let ([stage, hi, lo], [bytes, blocks, objects, left_out]) =
        (call.head.cursor, call.head.numbers);
    let text_of = |text: &[u8]| String::from_utf8_lossy(text).into_owned();
    Ok(ScrubStep {
        next: (call.head.flags & END == 0).then_some(ScrubAt { stage, key: (hi, lo) }),
        blocks,
        objects,
        bytes,
        problems: entries(&call.page.0).map(|it| it.texts.map(text_of).into()).collect(),
        left_out,
    })
}
