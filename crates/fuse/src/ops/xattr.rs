//! Extended attributes.
//!
//! No path may answer ENOSYS: the kernel would never ask again, on the whole mount. An absent
//! attribute is ENODATA, a namespace that does not exist EOPNOTSUPP. The kernel asks for
//! `security.capability` once before the first write to a file that is new to it, and, because
//! Shoal clears set-id bits itself (HANDLE_KILLPRIV_V2), not before each; `no_xattr` saves that one
//! too.

use super::{Context, Outcome};
use crate::protocol::flags::{MAY_WRITE, SETXATTR_ACL_KILL_SGID, XATTR_CREATE, XATTR_REPLACE};
use crate::protocol::reply::put;
use crate::protocol::wire::{GetxattrIn, GetxattrOut, SetxattrIn};
use crate::protocol::{Errno, Request};
use shoal::raw::{Caller, Ino, XattrFlags};

/// Name of a file's capabilities.
const CAPABILITY: &[u8] = b"security.capability";

/// SETXATTR.
pub(crate) fn set(cx: &mut Context<'_>, request: &mut Request<'_>) -> Outcome {
    supported(cx)?;
    let arg: SetxattrIn = request.arg()?;
    let (name, rest) = request.xattr_name()?;
    let value = rest.get(..arg.size as usize).ok_or(Errno::EIO)?;
    let flags = XattrFlags {
        create: arg.flags & XATTR_CREATE != 0,
        replace: arg.flags & XATTR_REPLACE != 0,
        // Sent where the kernel checks; elsewhere the volume checks the caller's groups.
        clear_set_group_id: arg.setxattr_flags & SETXATTR_ACL_KILL_SGID != 0,
    };
    cx.volume.attributes().setxattr(cx.who, request.node(), name, value, flags)?;
    cx.session.changed(request.node(), cx.tid);
    Ok(0)
}

/// GETXATTR.
pub(crate) fn get(cx: &mut Context<'_>, request: &mut Request<'_>) -> Outcome {
    supported(cx)?;
    let arg: GetxattrIn = request.arg()?;
    let (name, _) = request.xattr_name()?;
    let value = cx.volume.attributes().getxattr(cx.who, request.node(), name)?;
    sized(request, arg.size, &value)
}

/// LISTXATTR.
pub(crate) fn list(cx: &mut Context<'_>, request: &mut Request<'_>) -> Outcome {
    supported(cx)?;
    let arg: GetxattrIn = request.arg()?;
    // Names of `trusted` are for the superuser.
    cx.identify();
    let names = cx.volume.attributes().listxattr(cx.who, request.node())?;
    sized(request, arg.size, &names)
}

/// REMOVEXATTR.
pub(crate) fn remove(cx: &mut Context<'_>, request: &mut Request<'_>) -> Outcome {
    supported(cx)?;
    let (name, _) = request.xattr_name()?;
    match name == CAPABILITY {
        true => remove_capability(cx, request.node())?,
        false => cx.volume.attributes().removexattr(cx.who, request.node(), name)?,
    }
    cx.session.changed(request.node(), cx.tid);
    Ok(0)
}

/// Removes the capabilities of a file. The kernel asks for it also before a write to the file, by
/// anybody who may write; it has refused the system call to all who may not set capabilities.
#[cold]
fn remove_capability(cx: &Context<'_>, ino: Ino) -> Result<(), Errno> {
    let may_write = cx.volume.attributes().access(cx.who, ino, MAY_WRITE).is_ok();
    let root = Caller::root();
    let who = if may_write { &root } else { &*cx.who };
    cx.volume.attributes().removexattr(who, ino, CAPABILITY)?;
    cx.session.stripped.add(ino, cx.tid);
    Ok(())
}

/// Fails under `no_xattr`, so that the kernel stops asking.
fn supported(cx: &Context<'_>) -> Result<(), Errno> {
    match cx.session.rules.no_xattr {
        true => Err(Errno::ENOSYS),
        false => Ok(()),
    }
}

/// Replies with the bytes, or with their number if there is no room for them yet.
fn sized(request: &mut Request<'_>, room: u32, bytes: &[u8]) -> Outcome {
    let len = bytes.len();
    if room == 0 {
        return put(request.body(), 0, &GetxattrOut { size: len as u32, padding: 0 });
    }
    if len > room as usize {
        return Err(Errno::ERANGE);
    }
    let place = request.body().get_mut(..len).ok_or(Errno::EIO)?;
    place.copy_from_slice(bytes);
    Ok(len)
}
