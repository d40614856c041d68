//! Names that go away. Their inodes live on until the kernel has forgotten them.

use super::{Context, Outcome};
use crate::protocol::Request;

/// UNLINK.
pub fn unlink(cx: &mut Context<'_>, request: &mut Request<'_>) -> Outcome {
    cx.volume.unlink(cx.who, request.node(), request.name()?)?;
    Ok(0)
}

/// RMDIR.
pub fn rmdir(cx: &mut Context<'_>, request: &mut Request<'_>) -> Outcome {
    cx.volume.rmdir(cx.who, request.node(), request.name()?)?;
    Ok(0)
}
