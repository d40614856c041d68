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
    /// Its effective group.
    pub gid: u32,
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
        0 => Ok(Peer { pid: found.pid.cast_unsigned(), uid: found.uid, gid: found.gid }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Groups that a process may have.
const GROUPS_MAX: usize = 65_536;

/// Returns the supplementary groups that the process at the other end had when it connected.
///
/// # Errors
/// Those of `getsockopt(2)`.
pub fn groups_of(socket: impl AsFd) -> io::Result<Vec<u32>> {
    let mut groups = vec![0u32; 64];
    loop {
        let mut len = size_of_val(&groups[..]) as libc::socklen_t;
        // SAFETY: the kernel writes at most `len` bytes to `groups`, which has as many, and any
        // bytes are numbers.
        let result = unsafe {
            libc::getsockopt(
                socket.as_fd().as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERGROUPS,
                groups.as_mut_ptr().cast(),
                &raw mut len,
            )
        };
        if result == 0 {
            groups.truncate(len as usize / size_of::<u32>());
            return Ok(groups);
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::ERANGE) || groups.len() >= GROUPS_MAX {
            return Err(error);
        }
        groups.resize(GROUPS_MAX, 0);
    }
}

/// Rights of the superuser that calls of the volume take for granted: to change owners, to pass
/// permissions, to act as an owner, to keep set-id bits.
const NEEDED: u64 = 1 << 0 | 1 << 1 | 1 << 3 | 1 << 4;

impl Peer {
    /// Returns whether a process of user 0 has the rights of the superuser: in a container it may
    /// not. Those that it has in a user namespace of its own do not count. `false` if that cannot
    /// be seen.
    pub fn has_rights_of_superuser(self) -> bool {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid));
        let effective = status.ok().and_then(|text| {
            let line = text.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
            u64::from_str_radix(line.trim(), 16).ok()
        });
        effective.is_some_and(|effective| effective & NEEDED == NEEDED)
            && self.is_in_own_user_namespace()
    }

    /// Returns when the process began, in ticks since the machine did: with its number it is one
    /// process for certain. 0 if that cannot be seen.
    pub fn begun(self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/stat", self.pid));
        let field = |text: String| {
            // The name of the program, in brackets, may have any bytes.
            text.rsplit_once(") ")?.1.split(' ').nth(19)?.parse().ok()
        };
        status.ok().and_then(field).unwrap_or(0)
    }

    /// Returns whether it is in the user namespace of this process.
    fn is_in_own_user_namespace(self) -> bool {
        let of = |process: &str| {
            let namespace = std::fs::read_link(format!("/proc/{process}/ns/user"));
            namespace.map(|link| link.into_os_string().into_encoded_bytes())
        };
        // Everybody may read the users of a namespace, and not all its name.
        let users = |process: &str| std::fs::read(format!("/proc/{process}/uid_map"));
        let (peer, own) = (self.pid.to_string(), "self");
        match (of(&peer), of(own)) {
            (Ok(peer), Ok(own)) => peer == own,
            _ => matches!((users(&peer), users(own)), (Ok(peer), Ok(own)) if peer == own),
        }
    }

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
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        assert_eq!(peer, Peer { pid: std::process::id(), uid, gid });
        assert!(peer.is_trusted());
        assert!(peer.is_in_own_user_namespace());
        assert!(peer.begun() > 0 && peer.begun() == peer.begun());
        assert_eq!(Peer { pid: 0, ..peer }.begun(), 0, "of another pid namespace");
        assert!(!Peer { pid: 0, ..peer }.has_rights_of_superuser(), "of another pid namespace");
        let groups: Vec<u32> =
            rustix::process::getgroups().unwrap().into_iter().map(|group| group.as_raw()).collect();
        assert_eq!(groups_of(&one).unwrap(), groups);
        assert!(peer_of(std::fs::File::open("/dev/null").unwrap()).is_err());
    }
}
