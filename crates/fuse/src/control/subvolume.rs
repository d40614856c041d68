//! Subvolumes of a mounted volume.

use super::{Call, wait_until_forgotten};
use crate::protocol::control::{IS_DELETED, Kind, STILL_SHOWN};
use rustix::fs::{StatVfsMountFlags, fstatvfs};
use rustix::io::Errno as Os;
use shoal::raw::{Ino, RootInfo};
use std::io;
use std::os::fd::AsFd;

/// Makes a subvolume in the volume of the mount whose top `top` is. It belongs to the caller.
///
/// # Errors
/// `EEXIST`, `EINVAL` for a name that cannot be one, `ENOSPC` if the volume is full or has as many
/// subvolumes as it can, `EPERM` unless the caller is the superuser or the user who mounted, and in
/// a mount of one subvolume, `EROFS`, `ENOTTY` when this is no mount of Shoal.
pub fn make_subvolume(top: impl AsFd, name: &[u8], mode: u32, umask: u32) -> io::Result<()> {
    writable(&top)?;
    let mut call = Call::new(Kind::MakeSubvolume, 0);
    call.name(name)?;
    (call.head.numbers[0], call.head.numbers[1]) = (u64::from(mode), u64::from(umask));
    call.send(top)
}

/// Deletes a subvolume of the volume of the mount whose top `top` is, and everything in it. The
/// space is freed in the background.
///
/// # Errors
/// `ENOENT`, `EINVAL` if it is not a subvolume; those of [`make_subvolume`].
pub fn delete_subvolume(top: impl AsFd, name: &[u8]) -> io::Result<()> {
    writable(&top)?;
    let mut call = Call::new(Kind::DeleteSubvolume, 0);
    call.name(name)?;
    call.send(&top)?;
    if call.head.flags & STILL_SHOWN != 0 {
        wait_until_forgotten(top, name, call.head.numbers[0]);
    }
    Ok(())
}

/// Returns the subvolumes by number, those that are being freed included.
///
/// # Errors
/// Those of [`make_subvolume`].
pub fn subvolumes_of(opened: impl AsFd) -> io::Result<Vec<RootInfo>> {
    let mut found = Vec::new();
    Call::new(Kind::Subvolumes, 0).list(opened, &mut |entry| {
        let ([top, inodes, _], deleted) = (entry.numbers, entry.flags & IS_DELETED != 0);
        let (id, name) = (Ino(top).root().0, entry.texts[0].to_vec());
        found.push(RootInfo { id, name, top: Ino(top), deleted, inodes });
    })?;
    Ok(found)
}

/// The server does not know of a read-only view.
fn writable(top: impl AsFd) -> io::Result<()> {
    match fstatvfs(&top)?.f_flag.contains(StatVfsMountFlags::RDONLY) {
        true => Err(Os::ROFS.into()),
        false => Ok(()),
    }
}
