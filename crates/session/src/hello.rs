//! How a session begins: over a Unix socket, which then stays open as long as both live.
//!
//! The client sends its version and the memory that it has made; the server answers with its
//! version and its bells, or with the reason why not. A bell is an event counter that wakes the
//! server's thread for some of the processors: the client rings the one for the processor that it
//! runs on, because to wake another processor that has halted takes much longer.

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use shoal_base::{Code, Error, Result};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Identifies the messages.
const MAGIC: u64 = 0x5348_4f41_4c53_4553;
/// Version of this protocol: of the memory, the lanes, and all rows. Both sides must have the same.
pub const VERSION: u32 = 1;
/// Bells of a session, at most.
pub const BELLS_MAX: usize = 8;
/// The bytes that ring a bell: one, in the byte order of the machine.
#[allow(clippy::host_endian_bytes, reason = "the kernel reads a number of this machine")]
pub(crate) const RING: [u8; 8] = 1u64.to_ne_bytes();
/// Bytes of a message, at most.
const MESSAGE_MAX: usize = 4096;

/// The answer of a server.
#[derive(Debug)]
pub struct Welcome {
    /// The volume.
    pub volume: [u8; 16],
    /// Number of the mount's filesystem; 0 without a mount.
    pub device: u64,
    /// The bells; the one for processor `n` is the `n`th, modulo their number.
    pub bells: Vec<OwnedFd>,
}

fn broken(what: &str, error: impl std::fmt::Display) -> Error {
    Error::refused(Code::Io, format!("session: {what}: {error}"))
}

fn send(socket: impl AsFd, message: &[u8], files: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(BELLS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() && !control.push(SendAncillaryMessage::ScmRights(files)) {
        return Err(Errno::INVAL);
    }
    let parts = [IoSlice::new(message)];
    rustix::net::sendmsg(socket, &parts, &mut control, SendFlags::NOSIGNAL).map(drop)
}

fn receive(socket: impl AsFd) -> Result<(Vec<u8>, Vec<OwnedFd>), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(BELLS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut message = vec![0; MESSAGE_MAX];
    let parts = &mut [IoSliceMut::new(&mut message)];
    let got = rustix::net::recvmsg(socket, parts, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let files = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(files) => Some(files),
        _ => None,
    });
    let files = files.flatten().collect();
    message.truncate(got.bytes);
    Ok((message, files))
}

/// Client: asks for a session with this memory, and waits for the answer.
///
/// # Errors
/// What the server says; `EIO` if it is no server, `EOPNOTSUPP` if it has another version.
pub fn ask(socket: impl AsFd, memory: impl AsFd) -> Result<Welcome> {
    let message = [&MAGIC.to_le_bytes()[..], &VERSION.to_le_bytes()].concat();
    send(&socket, &message, &[memory.as_fd()]).map_err(|e| broken("the server is gone", e))?;
    let (answer, bells) = receive(&socket).map_err(|e| broken("the server is gone", e))?;
    let strange = || broken("the socket's owner does not answer", "it is no server of a volume");
    let (magic, rest) = answer.split_first_chunk().ok_or_else(strange)?;
    let (version, rest) = rest.split_first_chunk().ok_or_else(strange)?;
    if u64::from_le_bytes(*magic) != MAGIC {
        return Err(strange());
    }
    let version = u32::from_le_bytes(*version);
    if version != VERSION {
        let message = format!(
            "the server speaks version {version} of sessions, this program version {VERSION}: use \
             programs of one version of Shoal"
        );
        return Err(Error::refused(Code::NotSupported, message));
    }
    let (errno, rest) = rest.split_first_chunk().ok_or_else(strange)?;
    let errno = i32::from_le_bytes(*errno);
    if errno != 0 {
        let code = Code::ALL.iter().find(|code| code.errno() == errno).copied();
        let why = String::from_utf8_lossy(rest).into_owned();
        return Err(Error::refused(code.unwrap_or(Code::Io), why));
    }
    let (volume, rest) = rest.split_first_chunk().ok_or_else(strange)?;
    match rest.try_into().map(u64::from_le_bytes) {
        Ok(device) if !bells.is_empty() => Ok(Welcome { volume: *volume, device, bells }),
        _ => Err(strange()),
    }
}

/// Server: takes a client's question, and the memory that it has sent. Other descriptors that have
/// come are put into `others`: to close one may take as long as its filesystem likes.
///
/// # Errors
/// `EINVAL` if it is none, `EOPNOTSUPP` if it has another version.
pub fn take(socket: impl AsFd, others: &mut Vec<OwnedFd>) -> Result<OwnedFd> {
    let (message, mut files) = receive(socket).map_err(|e| broken("the client is gone", e))?;
    let strange = || Error::refused(Code::Invalid, "this is the socket of sessions of a volume");
    let version = message.split_first_chunk().and_then(|(magic, rest)| {
        let version = rest.try_into().ok().map(u32::from_le_bytes);
        version.filter(|_| u64::from_le_bytes(*magic) == MAGIC)
    });
    let memory = if files.len() == 1 { files.pop() } else { None };
    others.append(&mut files);
    match (version, memory) {
        (Some(VERSION), Some(memory)) => Ok(memory),
        (version, memory) => {
            others.extend(memory);
            match version {
                Some(VERSION) | None => Err(strange()),
                Some(_) => Err(Error::refused(Code::NotSupported, "another version")),
            }
        }
    }
}

/// Server: answers.
///
/// # Errors
/// Those of `sendmsg(2)`.
pub fn answer(
    socket: impl AsFd,
    outcome: Result<([u8; 16], u64, &[BorrowedFd<'_>]), &Error>,
) -> Result<(), Errno> {
    let mut message = [&MAGIC.to_le_bytes()[..], &VERSION.to_le_bytes()].concat();
    let (errno, rest, bells) = match outcome {
        Ok((volume, device, bells)) => (0, [&volume[..], &device.to_le_bytes()].concat(), bells),
        Err(error) => (error.errno(), error.to_string().into_bytes(), &[][..]),
    };
    message.extend_from_slice(&errno.to_le_bytes());
    message.extend_from_slice(&rest[..rest.len().min(MESSAGE_MAX - message.len())]);
    send(socket, &message, bells)
}
