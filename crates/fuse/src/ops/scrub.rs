//! The ioctl that checks a piece of the volume ([`crate::protocol::scrub`]).
//!
//! Who may ask: the superuser and the user whom the server runs as, who could read the volume's
//! file as well. It is always about the whole volume, also where one root alone is mounted: damage
//! in another root is damage to the same device.

use super::{Context, Outcome};
use crate::protocol::page::PAGE;
use crate::protocol::reply::put;
use crate::protocol::scrub::{IS_END, push, question, writer};
use crate::protocol::wire::{IoctlIn, IoctlOut, ScrubHead};
use crate::protocol::{Errno, Request};
use shoal::{ScrubAt, ScrubReport, Volume};

/// A scrub reads what the newest checkpoint points to. What has been written since, and perhaps
/// synced, would be left out: so it begins with a checkpoint.
fn begin(volume: &Volume) {
    let is_new = || volume.staged_lsn().0 > volume.info().checkpoint_lsn;
    if volume.read_only_reason().is_none()
        && is_new()
        && let Err(error) = volume.checkpoint()
    {
        // The volume is read-only now. What the last checkpoint points to can be read.
        tracing::error!(%error, "no checkpoint for a scrub");
    }
}

/// IOCTL_SCRUB.
pub fn scrub(cx: &mut Context<'_>, request: &mut Request<'_>) -> Outcome {
    let arg: IoctlIn = request.arg()?;
    if (arg.in_size as usize) < PAGE || (arg.out_size as usize) < PAGE {
        return Err(Errno::EINVAL);
    }
    let (at, bytes) = question(request.payload())?;
    if cx.who.uid != 0 && cx.who.uid != rustix::process::geteuid().as_raw() {
        return Err(Errno::EPERM);
    }
    if at == ScrubAt::default() {
        begin(cx.volume);
    }
    let mut report = ScrubReport::default();
    let next = cx.volume.scrub_step(at, bytes, &mut report)?;
    let start = put(request.body(), 0, &IoctlOut::default())?;
    let mut page = writer(request.body().get_mut(start..).ok_or(Errno::EIO)?);
    let fit = report.problems.iter().take_while(|problem| push(&mut page, problem)).count();
    let (flags, place) = (if next.is_none() { IS_END } else { 0 }, next.unwrap_or_default());
    let count = page.count();
    Ok(start
        + page.finish(&ScrubHead {
            stage: place.stage,
            key: place.key.into(),
            bytes: report.bytes,
            blocks: report.blocks,
            objects: report.objects,
            flags,
            count,
            left_out: (report.problems.len() - fit) as u32,
            padding: 0,
        })?)
}
