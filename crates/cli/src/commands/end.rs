//! How a mount's server reports its end.
//!
//! A mount ends outside the process that unmounts it, and only a parent learns an exit status. So a
//! server listens on a socket with an abstract name that contains its process number. It accepts no
//! connection until it ends: `shoal umount` connects before it unmounts, and reads one line when
//! the server has gone. No line means that the server has not closed the volume.
//!
//! The line goes only to the superuser and to the user who mounted. A stranger can take the name
//! first, or fill the queue; then the end is unknown, and `shoal umount` says so.
//!
//! The process number is the server's own: in a container it is another one than outside, and the
//! server of another container may have the same, and the same network namespace, which is where
//! abstract names live. So a waiter that sees its server checks that the socket is of it.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use shoal_fuse::{Peer, peer_of};

/// Line of a server that has closed its volume.
const CLOSED: &str = "closed";
/// Longest line that is read, in bytes.
const LINE_MAX: u64 = 64 << 10;
/// Longest wait for the line of a server that has ended.
const READ_MAX: Duration = Duration::from_secs(10);

fn name(pid: u32) -> String {
    format!("shoal-end-{pid}")
}

/// The server's end of the socket.
pub(crate) struct Teller(Option<UnixListener>);

impl Teller {
    /// Accepts connections from now on.
    pub(crate) fn listen() -> Teller {
        let name = name(std::process::id());
        let listen = || {
            let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?)?;
            listener.set_nonblocking(true)?;
            std::io::Result::Ok(listener)
        };
        match listen() {
            Ok(listener) => Teller(Some(listener)),
            Err(error) => {
                tracing::warn!(%error, "shoal umount will not be told how this mount ends");
                Teller(None)
            }
        }
    }

    /// Reports the end to those who wait. `failure`: why the volume could not be closed.
    pub(crate) fn tell(self, failure: Option<&str>) {
        let Some(listener) = self.0 else { return };
        while let Ok((mut waiting, _)) = listener.accept() {
            if peer_of(&waiting).is_ok_and(Peer::is_trusted) {
                // A waiter that has gone away in the meantime need not be told.
                let _ = waiting.write_all(failure.unwrap_or(CLOSED).as_bytes());
            }
        }
    }
}

/// Outcome of a server.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum End {
    /// The volume is closed.
    Closed,
    /// It could not be closed, for this reason.
    Failed(String),
    /// The server was killed, or failed.
    Died,
    /// The server does not report: it is another program, or out of reach.
    Unknown,
}

/// The waiter's end of the socket.
pub(crate) enum Waiter {
    /// Connected to the server.
    Connected(UnixStream),
    /// There is no socket to connect to.
    Deaf,
    /// The queue is full.
    Refused,
}

impl Waiter {
    /// Connects to the server of a mount, before it ends. `pid`: its number as it sees itself.
    /// `seen`: its processes, as far as they are seen here.
    pub(crate) fn connect(pid: u32, seen: &[u32]) -> Waiter {
        match dial(pid, seen) {
            Ok(stream) => Waiter::Connected(stream),
            Err(Errno::AGAIN) => Waiter::Refused,
            Err(_) => Waiter::Deaf,
        }
    }

    /// Returns the outcome. Must be called when the server has ended.
    pub(crate) fn end(self) -> End {
        let stream = match self {
            Waiter::Connected(stream) => stream,
            Waiter::Deaf | Waiter::Refused => return End::Unknown,
        };
        let mut line = String::new();
        // It has ended: the line is here, or the connection is broken.
        let _ = stream.set_read_timeout(Some(READ_MAX));
        let _ = stream.take(LINE_MAX).read_to_string(&mut line);
        match &*line {
            "" => End::Died,
            CLOSED => End::Closed,
            _ => End::Failed(line),
        }
    }
}

/// Connects without waiting for room in the queue.
fn dial(pid: u32, seen: &[u32]) -> Result<UnixStream, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket: OwnedFd = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &SocketAddrUnix::new_abstract_name(name(pid).as_bytes())?)?;
    let peer = peer_of(&socket).map_err(|_| Errno::IO)?;
    let is_server = peer.pid == pid || seen.contains(&peer.pid);
    // The server is in this pid namespace: a socket of another process is another server's.
    let is_other = seen.contains(&pid) && peer.pid != pid;
    if is_other || !is_server && !peer.is_trusted() {
        return Err(Errno::CONNREFUSED);
    }
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false).map_err(|_| Errno::IO)?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_told_to_who_connected_before() {
        let pid = std::process::id();
        assert_eq!(Waiter::connect(pid, &[]).end(), End::Unknown);
        for (failure, end) in
            [(None, End::Closed), (Some("v: write failed"), End::Failed("v: write failed".into()))]
        {
            let teller = Teller::listen();
            let waiters = [Waiter::connect(pid, &[]), Waiter::connect(pid, &[])];
            teller.tell(failure);
            for waiter in waiters {
                assert_eq!(waiter.end(), end);
            }
        }
        let teller = Teller::listen();
        let waiter = Waiter::connect(pid, &[]);
        drop(teller);
        assert_eq!(waiter.end(), End::Died);
        // The name may be that of a server in another container.
        let teller = Teller::listen();
        let other = pid | 1 << 30;
        assert!(matches!(Waiter::connect(pid, &[pid]), Waiter::Connected(_)));
        assert!(matches!(Waiter::connect(pid, &[other]), Waiter::Connected(_)), "of this user");
        drop(teller);
        let listener =
            UnixListener::bind_addr(&SocketAddr::from_abstract_name(name(other)).unwrap());
        assert!(matches!(Waiter::connect(other, &[other]), Waiter::Deaf), "not of this process");
        drop(listener);
        // Nobody waits for a queue that a stranger has filled.
        let teller = Teller::listen();
        let mut queue = Vec::new();
        loop {
            match Waiter::connect(pid, &[]) {
                Waiter::Connected(stream) => queue.push(stream),
                Waiter::Refused => break,
                Waiter::Deaf => panic!("it listens"),
            }
        }
        drop(teller);
    }
}
