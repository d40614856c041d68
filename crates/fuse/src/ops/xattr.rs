//! Extended attributes.
//!
//! No corner may answer ENOSYS: the kernel would never ask again, on the whole mount. Absent is
//! ENODATA, a namespace that does not exist EOPNOTSUPP. The kernel asks for `security.capability`
//! once before the first write to a file it has just come to know, and, because we clear set-id
//! bits ourselves (HANDLE_KILLPRIV_V2), not before each; `no_xattr` spares that one too.

use super::{Context, Outcome};
use crate::protocol::flags::{SETXATTR_ACL_KILL_SGID, XATTR_CREATE, XATTR_REPLACE};
use crate::protocol::reply::put;
use crate::protocol::wire::{GetxattrIn, GetxattrOut, SetxattrIn};
use crate::protocol::{Errno, Request};
use shoal::XattrFlags;

/// SETXATTR.
pub fn set(cx: &mut Context<'_>, request: &mut Request<'_>) -> Outcome {
    supported(cx)?;
    let arg: SetxattrIn = request.arg()?;
    let (name, rest) = request.xattr_name()?;
    let value = rest.get(..arg.size as usize).ok_or(Errno::EIO)?;
    let flags = XattrFlags {
        create: arg.flags & XATTR_CREATE != 0,
        replace: arg.flags & XATTR_REPLACE != 0,
        // Sent where the kernel checks; elsewhere the volume looks at the caller's groups.
        clear_set_group_id: arg.setxattr_flags & SETXATTR_ACL_KILL_SGID != 0,
    };
    cx.volume.setxattr(cx.who, request.node(), name, value, flags)?;
    cx.session.changed(request.node(), cx.tid);
    Ok(0)
}

/// GETXATTR.
pub fn get(cx: &mut Context<'_>, request: &mut Request<'_>) -> Outcome {
    supported(cx)?;
    let arg: GetxattrIn = request.arg()?;
    let (name, _) = request.xattr_name()?;
    let value = cx.volume.getxattr(cx.who, request.node(), name)?;
    sized(request, arg.size, &value)
}

/// LISTXATTR.
pub fn list(cx: &mut Context<'_>, request: &mut Request<'_>) -> Outcome {
    supported(cx)?;
    let arg: GetxattrIn = request.arg()?;
    let names = cx.volume.listxattr(cx.who, request.node())?;
    sized(request, arg.size, &names)
}

/// REMOVEXATTR.
pub fn remove(cx: &mut Context<'_>, request: &mut Request<'_>) -> Outcome {
    supported(cx)?;
    let (name, _) = request.xattr_name()?;
    cx.volume.removexattr(cx.who, request.node(), name)?;
    cx.session.changed(request.node(), cx.tid);
    Ok(0)
}

/// Under `no_xattr` the kernel is told to stop asking.
fn supported(cx: &Context<'_>) -> Result<(), Errno> {
    match cx.session.rules.no_xattr {
        true => Err(Errno::ENOSYS),
        false => Ok(()),
    }
}

/// The bytes themselves, or their number when there is no room for them yet.
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
