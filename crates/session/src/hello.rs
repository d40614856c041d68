//! How a session begins: over a Unix socket, which then stays open as long as both live.
//!
//! The client sends its version and the memory that it has made; the server answers with its
//! version and its bells, or with the reason why not. A bell is an event counter that wakes the
//! server's thread for some of the processors: the client rings the one for the processor that it
//! runs on, because to wake another processor that has halted takes much longer.
//!
//! A session that outlives its server also gets a *ticket*, and a descriptor that hangs up when
//! nobody is left who would start another server. With its ticket a client attaches to the next
//! server: it sends both the ticket and the same memory.

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
pub const VERSION: u32 = 4;
/// Bells of a session, at most.
pub const BELLS_MAX: usize = 8;
/// Descriptors of a message, at most.
const FILES_MAX: usize = BELLS_MAX + 2;
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
    /// Of a session that outlives its server.
    pub kept: Option<KeptWelcome>,
}

/// The part of an answer that is for a session that outlives its server.
#[derive(Debug)]
pub struct KeptWelcome {
    /// The ticket for the next server.
    pub ticket: Ticket,
    /// It hangs up when nobody serves, or will start a server.
    pub life: OwnedFd,
    /// The page with the number of the volume's state.
    pub state: OwnedFd,
}

/// The right to go on with a session at the next server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ticket {
    /// Number of the session.
    pub slot: u32,
    /// Known to its client and to servers.
    pub secret: [u64; 2],
}

impl Ticket {
    const BYTES: usize = 20;

    fn to_bytes(self) -> [u8; Ticket::BYTES] {
        let mut bytes = [0; Ticket::BYTES];
        bytes[..4].copy_from_slice(&self.slot.to_le_bytes());
        bytes[4..12].copy_from_slice(&self.secret[0].to_le_bytes());
        bytes[12..].copy_from_slice(&self.secret[1].to_le_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Option<Ticket> {
        let (slot, secret) = bytes.split_first_chunk()?;
        let (first, second) = secret.split_first_chunk()?;
        let second = second.try_into().ok()?;
        let secret = [u64::from_le_bytes(*first), u64::from_le_bytes(second)];
        Some(Ticket { slot: u32::from_le_bytes(*slot), secret })
    }
}

fn broken(what: &str, error: impl std::fmt::Display) -> Error {
    Error::refused(Code::Io, format!("session: {what}: {error}"))
}

fn send(socket: impl AsFd, message: &[u8], files: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() && !control.push(SendAncillaryMessage::ScmRights(files)) {
        return Err(Errno::INVAL);
    }
    let parts = [IoSlice::new(message)];
    rustix::net::sendmsg(socket, &parts, &mut control, SendFlags::NOSIGNAL).map(drop)
}

fn receive(socket: impl AsFd) -> Result<(Vec<u8>, Vec<OwnedFd>), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX))];
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

/// Client: asks for a session with this memory, and waits for the answer. With a ticket: to go on
/// with one.
///
/// # Errors
/// What the server says; `EIO` if it is no server, `EOPNOTSUPP` if it has another version.
pub fn ask(socket: impl AsFd, memory: impl AsFd, ticket: Option<Ticket>) -> Result<Welcome> {
    let mut message = [&MAGIC.to_le_bytes()[..], &VERSION.to_le_bytes()].concat();
    ticket.iter().for_each(|ticket| message.extend_from_slice(&ticket.to_bytes()));
    send(&socket, &message, &[memory.as_fd()]).map_err(|e| broken("the server is gone", e))?;
    let (answer, mut bells) = receive(&socket).map_err(|e| broken("the server is gone", e))?;
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
    let (device, ticket) = rest.split_first_chunk().ok_or_else(strange)?;
    let kept = match ticket {
        [] => None,
        ticket => {
            let ticket = Ticket::from_bytes(ticket).ok_or_else(strange)?;
            let state = bells.pop().ok_or_else(strange)?;
            Some(KeptWelcome { ticket, life: bells.pop().ok_or_else(strange)?, state })
        }
    };
    match bells.is_empty() {
        true => Err(strange()),
        false => Ok(Welcome { volume: *volume, device: u64::from_le_bytes(*device), bells, kept }),
    }
}

/// Server: takes a client's question: the memory that it has sent, and its ticket, if it wants to
/// go on with a session. Other descriptors that have
/// come are put into `others`: to close one may take as long as its filesystem likes.
///
/// # Errors
/// `EINVAL` if it is none, `EOPNOTSUPP` if it has another version.
pub fn take(socket: impl AsFd, others: &mut Vec<OwnedFd>) -> Result<(OwnedFd, Option<Ticket>)> {
    let (message, mut files) = receive(socket).map_err(|e| broken("the client is gone", e))?;
    let strange = || Error::refused(Code::Invalid, "this is the socket of sessions of a volume");
    let head = message.split_first_chunk().and_then(|(magic, rest)| {
        let (version, ticket) = rest.split_first_chunk()?;
        (u64::from_le_bytes(*magic) == MAGIC).then(|| (u32::from_le_bytes(*version), ticket))
    });
    let ticket = match head {
        Some((VERSION, [])) => Some(None),
        Some((VERSION, ticket)) => Ticket::from_bytes(ticket).map(Some),
        _ => None,
    };
    let memory = if files.len() == 1 { files.pop() } else { None };
    others.append(&mut files);
    match (ticket, memory) {
        (Some(ticket), Some(memory)) => Ok((memory, ticket)),
        (_, memory) => {
            others.extend(memory);
            match head {
                Some((VERSION, _)) | None => Err(strange()),
                Some(_) => Err(Error::refused(Code::NotSupported, "another version")),
            }
        }
    }
}

/// The parts of a server's answer: the volume, the number of its filesystem, the bells, and for a
/// session that outlives its server a ticket with the descriptors that go with it.
pub type Answer<'a> = ([u8; 16], u64, &'a [BorrowedFd<'a>], Option<(Ticket, [BorrowedFd<'a>; 2])>);

/// Server: answers.
///
/// # Errors
/// Those of `sendmsg(2)`.
pub fn answer(socket: impl AsFd, outcome: Result<Answer<'_>, &Error>) -> Result<(), Errno> {
    let mut message = [&MAGIC.to_le_bytes()[..], &VERSION.to_le_bytes()].concat();
    let (errno, rest, files) = match outcome {
        Ok((volume, device, bells, kept)) => {
            let mut rest = [&volume[..], &device.to_le_bytes()].concat();
            let mut files = bells.to_vec();
            if let Some((ticket, with)) = kept {
                rest.extend_from_slice(&ticket.to_bytes());
                files.extend(with);
            }
            (0, rest, files)
        }
        Err(error) => (error.errno(), error.to_string().into_bytes(), Vec::new()),
    };
    message.extend_from_slice(&errno.to_le_bytes());
    message.extend_from_slice(&rest[..rest.len().min(MESSAGE_MAX - message.len())]);
    send(socket, &message, &files)
}
