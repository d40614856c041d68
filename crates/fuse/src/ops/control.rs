//! Ioctls: six of our own, each for a function of [`crate::control`], no others.

use super::{Context, Outcome};
use crate::protocol::flags::{
    IOCTL_INSPECT, IOCTL_PARENTS, IOCTL_REMOVE_TREE, IOCTL_SCRUB, IOCTL_SERVER_PID, IOCTL_SYNC,
};
use crate::protocol::reply::put;
use crate::protocol::wire::{IoctlIn, IoctlOut};
use crate::protocol::{Errno, Request};

/// IOCTL.
pub fn ioctl(cx: &mut Context<'_>, request: &mut Request<'_>) -> Outcome {
    let arg: IoctlIn = request.arg()?;
    match arg.cmd {
        IOCTL_SYNC => {
            cx.volume.sync()?;
            put(request.body(), 0, &IoctlOut::default())
        }
        IOCTL_SERVER_PID => {
            let end = put(request.body(), 0, &IoctlOut::default())?;
            put(request.body(), end, &std::process::id())
        }
        IOCTL_PARENTS => super::parents::parents(cx, request),
        IOCTL_REMOVE_TREE => super::tree::remove(cx, request),
        IOCTL_INSPECT => super::inspect::inspect(cx, request),
        IOCTL_SCRUB => super::scrub::scrub(cx, request),
        _ => Err(Errno::ENOTTY),
    }
}
