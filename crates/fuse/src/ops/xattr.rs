//! Extended attributes: not yet. ENOSYS makes the kernel stop asking for the life of the mount,
//! which also spares a GETXATTR for `security.capability` before first writes. When attributes
//! arrive, no corner may answer ENOSYS: absent is ENODATA, unsupported is EOPNOTSUPP.

use super::{Context, Outcome};
use crate::protocol::{Errno, Request};

/// SETXATTR.
pub fn set(_cx: &mut Context<'_>, _request: &mut Request<'_>) -> Outcome {
    Err(Errno::ENOSYS)
}

/// GETXATTR.
pub fn get(_cx: &mut Context<'_>, _request: &mut Request<'_>) -> Outcome {
    Err(Errno::ENOSYS)
}

/// LISTXATTR.
pub fn list(_cx: &mut Context<'_>, _request: &mut Request<'_>) -> Outcome {
    Err(Errno::ENOSYS)
}

/// REMOVEXATTR.
pub fn remove(_cx: &mut Context<'_>, _request: &mut Request<'_>) -> Outcome {
    Err(Errno::ENOSYS)
}
