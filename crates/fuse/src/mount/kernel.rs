//! Mounting and unmounting by system call, for root.

use super::options::MountOptions;
use crate::table::FS_TYPE;
use rustix::mount::{MountFlags, UnmountFlags};
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

/// Mounts the connection `device` on `dir`. Returns before the handshake, which the kernel has
/// queued as the first request.
pub(crate) fn mount(
    device: &OwnedFd,
    dir: &Path,
    source: &str,
    options: &MountOptions,
) -> io::Result<()> {
    let mut data = format!(
        "fd={},rootmode=40000,user_id={},group_id={}",
        device.as_raw_fd(),
        rustix::process::getuid().as_raw(),
        rustix::process::getgid().as_raw(),
    );
    if options.allow_other {
        data.push_str(",allow_other");
    }
    if options.kernel_checks() {
        data.push_str(",default_permissions");
    }
    let data = CString::new(data)?;
    Ok(rustix::mount::mount(source, dir, FS_TYPE, flags(options), data.as_c_str())?)
}

/// Changes the options of the mount on `dir`.
pub(crate) fn remount(dir: &Path, options: &MountOptions) -> io::Result<()> {
    let mut flags = flags(options);
    // Without either the kernel keeps what there is.
    flags.set(MountFlags::RELATIME, !options.noatime);
    Ok(rustix::mount::mount_remount(dir, flags, c"")?)
}

/// Returns the options that every file system has.
fn flags(options: &MountOptions) -> MountFlags {
    let mut flags = MountFlags::empty();
    flags.set(MountFlags::RDONLY, options.read_only);
    // Off by default: the volume may be anybody's file.
    flags.set(MountFlags::NOSUID, !options.suid);
    flags.set(MountFlags::NODEV, !options.dev);
    flags.set(MountFlags::NOEXEC, options.noexec);
    flags.set(MountFlags::NOATIME, options.noatime);
    flags.set(MountFlags::SYNCHRONOUS, options.sync);
    flags.set(MountFlags::DIRSYNC, options.dirsync);
    flags
}

/// Unmounts `dir` and ends the connection first, so that nobody waits for its server.
pub(crate) fn unmount_by_force(dir: &Path) -> io::Result<()> {
    Ok(rustix::mount::unmount(dir, UnmountFlags::FORCE | UnmountFlags::NOFOLLOW)?)
}

/// Unmounts `dir`; `lazy` detaches it at once and ends it when the last user is gone.
pub(crate) fn unmount(dir: &Path, lazy: bool) -> io::Result<()> {
    let how = if lazy { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    Ok(rustix::mount::unmount(dir, how | UnmountFlags::NOFOLLOW)?)
}
