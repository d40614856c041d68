//! Durability.

use super::{Context, Outcome};
use crate::protocol::Request;
use crate::protocol::flags::FSYNC_DATASYNC;
use crate::protocol::wire::FsyncIn;

/// FSYNC and FSYNCDIR.
pub(crate) fn fsync(cx: &mut Context<'_>, request: &mut Request<'_>) -> Outcome {
    let arg: FsyncIn = request.arg()?;
    cx.volume.files().fsync(request.node(), arg.fsync_flags & FSYNC_DATASYNC != 0)?;
    Ok(0)
}

/// SYNCFS. Ordinary mounts never get it, hence IOCTL_SYNC; answered all the same.
pub(crate) fn syncfs(cx: &mut Context<'_>, _request: &mut Request<'_>) -> Outcome {
    cx.volume.sync()?;
    Ok(0)
}
