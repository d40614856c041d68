//! INIT, the first request of every connection: the kernel offers capabilities, the server takes
//! some.

use super::refused;
use crate::protocol::init::{Agreed, Wish, negotiate};
use crate::protocol::reply::put;
use crate::protocol::wire::{InitIn, InitOut, OutHeader};
use crate::protocol::{Opcode, Request};
use crate::transport::device::HEADROOM;
use rustix::io::Errno as Os;
use shoal::raw::{Code, Error, Result};
use std::io;
use std::os::fd::OwnedFd;
use zerocopy::IntoBytes;

/// The kernel's offer, not answered yet: callers on the mount wait until it is.
pub(super) struct Offer {
    init: InitIn,
    unique: u64,
}

impl Offer {
    /// Reads INIT.
    pub(super) fn read(device: &OwnedFd) -> Result<Offer> {
        // The kernel wants room for more than it sends.
        let mut buffer = vec![0u8; 3 * HEADROOM];
        let filled = loop {
            match rustix::io::read(device, &mut buffer[..]) {
                Err(Os::INTR | Os::AGAIN) => {}
                outcome => break outcome.map_err(|os| failed(&os.into()))?,
            }
        };
        let (request, _) = Request::split(&mut buffer, filled).map_err(|_| nonsense())?;
        match (request.opcode, request.arg()) {
            (Some(Opcode::Init), Ok(init)) => Ok(Offer { init, unique: request.header.unique }),
            _ => Err(nonsense()),
        }
    }

    /// Returns whether the kernel offers `capability`.
    pub(super) fn has(&self, capability: u64) -> bool {
        self.init.offered() & capability != 0
    }

    /// Answers; the mount is usable from then on.
    pub(super) fn answer(self, device: &OwnedFd, wish: &Wish) -> Result<Agreed> {
        const HEAD: usize = size_of::<OutHeader>();
        let negotiated = negotiate(&self.init, wish);
        let (out, agreed) = negotiated.map_err(|why| Error::refused(Code::Io, why))?;
        let mut reply = [0; HEAD + size_of::<InitOut>()];
        let end = put(&mut reply, HEAD, &out).map_err(|_| nonsense())?;
        let head = OutHeader { len: end as u32, error: 0, unique: self.unique };
        reply[..HEAD].copy_from_slice(head.as_bytes());
        rustix::io::write(device, &reply[..end]).map_err(|os| failed(&os.into()))?;
        tracing::debug!(?agreed, "mounted");
        Ok(agreed)
    }
}

#[cold]
fn failed(error: &io::Error) -> Error {
    refused(Code::Io, "handshake with the kernel failed", error)
}

#[cold]
fn nonsense() -> Error {
    Error::refused(Code::Io, "handshake with the kernel failed: no INIT came")
}
