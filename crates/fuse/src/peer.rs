//! The process at the other end of a Unix socket.
//!
//! `rustix::net::sockopt::socket_peercred` must not be used for it: the kernel says process 0 of a
//! peer that is in no pid namespace of the caller, such as one outside the caller's container, and
//! rustix has no value for a process 0.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// The credentials of a process when it connected, or began to listen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Peer {
    /// Its number; 0 if it is outside the caller's pid namespace.
    pub pid: u32,
    /// Its effective user.
    pub uid: u32,
}

/// Returns the process at the other end of a connected Unix socket.
///
/// # Errors
/// Those of `getsockopt(2)`.
pub fn peer_of(socket: impl AsFd) -> io::Result<Peer> {
    let mut found = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    let socket = socket.as_fd().as_raw_fd();
    // SAFETY: the kernel writes at most `len` bytes to `found`, which has as many, and any bytes
    // are a value of it.
    let result = unsafe {
        libc::getsockopt(
            socket,
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut found).cast(),
            &raw mut len,
        )
    };
    match result {
        0 => Ok(Peer { pid: found.pid.cast_unsigned(), uid: found.uid }),
        _ => Err(io::Error::last_os_error()),
    }
}

impl Peer {
    /// Returns whether it may know and do all that this process's user may: it is that user's, or
    /// the superuser's.
    pub fn is_trusted(self) -> bool {
        self.uid == 0 || self.uid == rustix::process::geteuid().as_raw()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_socket_of_this_process_has_it_as_its_peer() {
        let (one, _two) = UnixStream::pair().unwrap();
        let peer = peer_of(&one).unwrap();
        let uid = rustix::process::geteuid().as_raw();
        assert_eq!(peer, Peer { pid: std::process::id(), uid });
        assert!(peer.is_trusted());
        assert!(peer_of(std::fs::File::open("/dev/null").unwrap()).is_err());
    }
}
