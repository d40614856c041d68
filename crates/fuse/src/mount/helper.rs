//! Mounting and unmounting without being root: `fusermount3`, which is set-user-id root, mounts and
//! passes the open device back through a socket.

use super::options::MountOptions;
use rustix::io::FdFlags;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType,
    recvmsg, socketpair,
};
use std::ffi::OsString;
use std::io::{self, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Names of the helper, the better one first; it is searched for in `PATH` and in these
/// directories.
const NAMES: &[&str] = &["fusermount3", "fusermount"];
const PLACES: &[&str] = &["/usr/bin", "/bin", "/usr/local/bin", "/usr/sbin", "/sbin"];

/// Mounts on `dir`; returns the device.
pub(super) fn mount(dir: &Path, source: &str, options: &MountOptions) -> io::Result<OwnedFd> {
    let helper = find()?;
    let (ours, theirs) =
        socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // The child must inherit its end. Another thread that forks right now would leak it to its own
    // child too, which does no harm: we do not wait for the end of the stream.
    rustix::io::fcntl_setfd(&theirs, FdFlags::empty())?;
    let mut child = Command::new(helper)
        .arg("-o")
        .arg(option_list(source, options))
        .arg("--")
        .arg(dir)
        .env("_FUSE_COMMFD", theirs.as_raw_fd().to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    drop(theirs);
    let mut complaint = String::new();
    if let Some(stderr) = child.stderr.as_mut() {
        // A message that cannot be read is not worth an error of its own.
        let _ = stderr.read_to_string(&mut complaint);
    }
    let status = child.wait()?;
    let device = if status.success() { receive(&ours)? } else { None };
    device.ok_or_else(|| io::Error::other(last_line(&complaint, "the helper refused")))
}

/// Unmounts `dir`.
pub(super) fn unmount(dir: &Path, lazy: bool) -> io::Result<()> {
    let output = Command::new(find()?)
        .arg(if lazy { "-uz" } else { "-u" })
        .arg("--")
        .arg(dir)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .output()?;
    if output.status.success() {
        return Ok(());
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(last_line(&complaint, "the helper refused")))
}

/// Receives the descriptor that comes through `socket`.
fn receive(socket: &OwnedFd) -> io::Result<Option<OwnedFd>> {
    let mut byte = [0u8; 1];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut data = [IoSliceMut::new(&mut byte)];
    recvmsg(socket, &mut data, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    Ok(control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    }))
}

/// Mount options for the helper. In its list a comma or backslash within a value is escaped.
fn option_list(source: &str, options: &MountOptions) -> OsString {
    let source = source.replace('\\', "\\\\").replace(',', "\\,");
    let mut list = format!("fsname={source},subtype=shoal,nosuid,nodev");
    list.push_str(if options.read_only { ",ro" } else { ",rw" });
    for (set, name) in [
        (options.noexec, ",noexec"),
        (options.noatime, ",noatime"),
        (options.sync, ",sync"),
        (options.dirsync, ",dirsync"),
        (options.allow_other, ",allow_other"),
        (options.kernel_checks(), ",default_permissions"),
    ] {
        if set {
            list.push_str(name);
        }
    }
    list.into()
}

fn find() -> io::Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = || std::env::split_paths(&path).chain(PLACES.iter().map(PathBuf::from));
    NAMES
        .iter()
        .flat_map(|name| places().map(move |place| place.join(name)))
        .find(|candidate| candidate.is_file())
        .ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::NotFound,
                "fusermount3 is not installed (package fuse3), and only root can do without",
            )
        })
}

fn last_line(complaint: &str, otherwise: &str) -> String {
    let line = complaint.lines().rev().find(|line| !line.trim().is_empty());
    line.map_or(otherwise, str::trim).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_escaped() {
        let list = option_list("/a,b\\c", &MountOptions::default());
        assert_eq!(list, "fsname=/a\\,b\\\\c,subtype=shoal,nosuid,nodev,rw");
        let options = MountOptions::parse("ro,allow_other,noexec").unwrap();
        let list = option_list("v", &options);
        assert_eq!(
            list,
            "fsname=v,subtype=shoal,nosuid,nodev,ro,noexec,allow_other,default_permissions"
        );
    }

    #[test]
    fn the_last_line_is_the_reason() {
        assert_eq!(last_line("a\nfusermount3: no\n\n", "x"), "fusermount3: no");
        assert_eq!(last_line(" \n", "x"), "x");
    }
}
