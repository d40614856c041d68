//! Messages between a keeper and the server of its mount, over a socket that is the server's
//! standard input. Each is one datagram: a letter, text, and descriptors.
//!
//! | from | message | meaning |
//! | --- | --- | --- |
//! | keeper | `N` | begin: mount, and serve |
//! | keeper | `R` text, descriptors | go on with a mount |
//! | keeper | `Y` | yield: stop, so that another server can go on |
//! | server | `K` text, descriptors | the mount is usable; this is what another server needs |
//! | server | `Y` | stopped: nothing of this process touches the volume any more |
//! | server | `F` text | it cannot go on with the mount, for this reason |
//! | server | `E` text | the mount has ended, and the volume is closed; or the reason why it is not |
//!
//! Commands ask in the same form: a keeper for another server (`T`), a standby for a take-over
//! (`P`).
//!
//! The keeper does not look into the text of `K`: it hands it on in `R`. So it can keep the mounts
//! of later versions too, as long as [`VERSION`] is the same.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};

/// Version of the messages.
pub(crate) const VERSION: u32 = 1;
/// Longest message in bytes.
const MESSAGE_MAX: usize = 64 << 10;
/// Most descriptors in a message: the kernel's limit is 253.
const DESCRIPTORS_MAX: usize = 250;

/// A message.
#[derive(Debug)]
pub(crate) struct Message {
    /// Its letter.
    pub letter: u8,
    /// Its text.
    pub text: String,
    /// Its descriptors.
    pub descriptors: Vec<OwnedFd>,
}

/// Makes a pair of connected sockets.
pub(crate) fn pair() -> Result<(OwnedFd, OwnedFd), Errno> {
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
}

/// Sends a message.
///
/// # Errors
/// `E2BIG` for one that is too long; those of the socket.
pub(crate) fn send(
    socket: impl AsFd,
    letter: u8,
    text: &str,
    descriptors: &[BorrowedFd<'_>],
) -> Result<(), Errno> {
    if text.len() >= MESSAGE_MAX || descriptors.len() > DESCRIPTORS_MAX {
        return Err(Errno::TOOBIG);
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(Errno::TOOBIG);
    }
    let letter = [letter];
    let parts = [IoSlice::new(&letter), IoSlice::new(text.as_bytes())];
    loop {
        match sendmsg(&socket, &parts, &mut ancillary, SendFlags::NOSIGNAL) {
            Err(Errno::INTR) => {}
            other => return other.map(drop),
        }
    }
}

/// Receives a message. `None`: the other side is gone.
///
/// # Errors
/// `EPROTO` for what is no message; those of the socket.
pub(crate) fn receive(socket: impl AsFd) -> Result<Option<Message>, Errno> {
    let mut bytes = vec![0; MESSAGE_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        let parts = &mut [IoSliceMut::new(&mut bytes)];
        match recvmsg(&socket, parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            // Closed with something unread.
            Err(Errno::CONNRESET) => return Ok(None),
            other => break other?.bytes,
        }
    };
    let mut descriptors = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    let Some((letter, text)) = bytes[..received].split_first() else { return Ok(None) };
    let text = std::str::from_utf8(text).map_err(|_| Errno::PROTO)?;
    Ok(Some(Message { letter: *letter, text: text.to_owned(), descriptors }))
}

/// Sends a request to a socket of a process, and returns its answer. `None`: it has ended, or does
/// not answer this user.
///
/// # Errors
/// `ECONNREFUSED`: the process has no such socket. Those of the socket.
pub(crate) fn ask(
    name: &str,
    process: u32,
    (letter, text): (u8, &str),
    descriptors: &[BorrowedFd<'_>],
) -> std::io::Result<Option<Message>> {
    let socket = UnixStream::connect_addr(&SocketAddr::from_abstract_name(name)?)?;
    if shoal_fuse::peer_of(&socket)?.pid != process {
        return Err(Errno::CONNREFUSED.into());
    }
    match send(&socket, letter, text, descriptors) {
        // A process that refuses has answered without reading the request.
        Err(Errno::PIPE) => {}
        sent => sent?,
    }
    Ok(receive(&socket)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::{Read, Seek, Write};

    #[test]
    fn text_and_descriptors_arrive_together() {
        let (ours, theirs) = pair().expect("sockets");
        let path = std::env::temp_dir().join(format!("shoal-keeping-{}", std::process::id()));
        let mut file = File::options().create_new(true).read(true).write(true).open(&path);
        let file = file.as_mut().expect("a file");
        std::fs::remove_file(&path).expect("removed");
        file.write_all(b"contents").expect("written");
        send(&ours, b'K', "some text\nmore", &[file.as_fd(), file.as_fd()]).expect("sent");
        send(&ours, b'N', "", &[]).expect("sent");
        let message = receive(&theirs).expect("received").expect("a message");
        assert_eq!((message.letter, &*message.text), (b'K', "some text\nmore"));
        let [_, last] = <[OwnedFd; 2]>::try_from(message.descriptors).expect("two");
        let (mut last, mut text) = (File::from(last), String::new());
        last.rewind().expect("rewound");
        last.read_to_string(&mut text).expect("read");
        assert_eq!(text, "contents");
        let message = receive(&theirs).expect("received").expect("a message");
        assert_eq!((message.letter, &*message.text), (b'N', ""));
        drop(ours);
        assert!(receive(&theirs).expect("received").is_none());
    }

    #[test]
    fn what_is_too_much_is_refused_before_it_is_sent() {
        let (ours, theirs) = pair().expect("sockets");
        let long = "x".repeat(MESSAGE_MAX);
        assert_eq!(send(&ours, b'K', &long, &[]), Err(Errno::TOOBIG));
        let many = vec![ours.as_fd(); DESCRIPTORS_MAX + 1];
        assert_eq!(send(&ours, b'K', "", &many), Err(Errno::TOOBIG));
        let most = vec![ours.as_fd(); DESCRIPTORS_MAX];
        send(&ours, b'K', &long[1..], &most).expect("sent");
        let message = receive(&theirs).expect("received").expect("a message");
        assert_eq!(message.descriptors.len(), DESCRIPTORS_MAX);
    }
}
