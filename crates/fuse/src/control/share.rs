//! Tokens of files in a mounted volume.

use super::Call;
use crate::protocol::control::{BY_NAME, Kind, entries};
use rustix::fs::StatVfsMountFlags;
use rustix::io::Errno as Os;
use shoal::raw::{Rights, Token};
use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

/// A token made through a mount.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shared {
    /// The token.
    pub token: Token,
    /// The mount opens tokens by name, below `.shoal-open` in its top directory.
    pub by_name: bool,
}

/// Makes a token for a file of a mount, with at most the caller's own rights to it.
///
/// # Errors
/// `EACCES` if the caller does not have these rights, `EISDIR` or `EINVAL` for anything but a
/// regular file, `EROFS` for rights to write in a read-only mount, `ENOTTY` when this is no mount
/// of Shoal or a file opened by a token.
pub fn share(opened: impl AsFd, rights: Rights, lifetime: Duration) -> io::Result<Shared> {
    let flags = rustix::fs::fstatvfs(&opened)?.f_flag;
    if rights.contains(Rights::WRITE) && flags.contains(StatVfsMountFlags::RDONLY) {
        // The server does not know of a read-only view.
        return Err(Os::ROFS.into());
    }
    let mut call = Call::new(Kind::Share, rights.bits().into());
    call.head.numbers[0] = lifetime.as_secs();
    call.send(opened)?;
    let text = entries(&call.page.0).next().map(|entry| entry.texts[0].to_vec());
    let token = text.and_then(|text| String::from_utf8(text).ok()?.parse().ok());
    let token = token.ok_or(io::Error::from(Os::PROTO))?;
    Ok(Shared { token, by_name: call.head.flags & BY_NAME != 0 })
}

/// Revokes all tokens of the volume whose mount `opened` is in. Open files stay open.
///
/// # Errors
/// `EPERM` unless the caller is the superuser or the user who mounted, and in a mount of one
/// subvolume; `EROFS` when the volume is read-only, `ENOTTY` when this is no mount of Shoal.
pub fn revoke_tokens(opened: impl AsFd) -> io::Result<()> {
    Call::new(Kind::Revoke, 0).send(opened)
}
