//! Ioctls: three of our own (for [`crate::sync`], [`crate::server_pid`], [`crate::names_of`]), no
//! others.

use super::{Context, Outcome};
use crate::protocol::flags::{IOCTL_PARENTS, IOCTL_SERVER_PID, IOCTL_SYNC};
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
        _ => Err(Errno::ENOTTY),
    }
}
