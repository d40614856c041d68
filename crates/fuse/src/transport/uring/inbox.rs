//! Messages to the thread of a ring. Only that thread submits to its ring: the kernel delivers a
//! request through the thread that submitted the slot.

use super::slots::Held;
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use zerocopy::IntoBytes;

/// Inbox of one ring's thread.
pub(super) struct Inbox {
    event: OwnedFd,
    mail: Mutex<Mail>,
}

/// Messages received.
#[derive(Default)]
pub(super) struct Mail {
    /// Slots whose replies are ready.
    pub answered: Vec<Held>,
    /// The connection has ended.
    pub ended: bool,
}

impl Inbox {
    /// Creates an empty inbox.
    pub(super) fn new() -> io::Result<Inbox> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Inbox { event, mail: Mutex::default() })
    }

    /// Returns the descriptor that becomes readable when a message has come.
    pub(super) fn event(&self) -> RawFd {
        self.event.as_raw_fd()
    }

    /// Returns a slot whose reply is ready.
    pub(super) fn answered(&self, held: Held) {
        let mut mail = self.mail.lock();
        let first = mail.answered.is_empty();
        mail.answered.push(held);
        drop(mail);
        if first {
            self.ring_bell();
        }
    }

    /// Records that the connection has ended.
    pub(super) fn end(&self) {
        self.mail.lock().ended = true;
        self.ring_bell();
    }

    fn ring_bell(&self) {
        // It cannot fail before 2^64 unread bells.
        let _ = rustix::io::write(&self.event, 1u64.as_bytes());
    }

    /// Takes all messages.
    pub(super) fn take(&self) -> Mail {
        // First the bell: what comes after this rings it again.
        let _ = rustix::io::read(&self.event, &mut [0; 8]);
        let mut mail = self.mail.lock();
        Mail { answered: std::mem::take(&mut mail.answered), ended: mail.ended }
    }
}
