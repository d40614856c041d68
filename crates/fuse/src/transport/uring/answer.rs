//! Answers in place: the request in a slot becomes the reply in the same slot.

use super::slots::Slot;
use crate::protocol::wire::{InHeader, OutHeader, RING_HEAD, RingEntry};
use crate::protocol::{Errno, Opcode, Reply, Request};
use crate::service::Serve;
use zerocopy::{FromBytes, IntoBytes};

/// Kind of thread that answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Thread {
    /// The thread of a ring: while it waits for a device, its processor's callers wait as well.
    Ring,
    /// A helper.
    Helper,
}

/// The outcome of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Answered {
    /// The reply is in the slot.
    Yes,
    /// Nothing was done: a helper must answer it, because it always may wait.
    Waits,
    /// The same, because it waits for the device.
    Device,
}

/// Answers the request in `slot`.
///
/// Every request gets a reply. The kernel sends FORGET by a ring when it cannot use an entry of a
/// listing; its slot must be committed, too, or the reader of the directory waits for ever.
#[inline]
pub(super) fn answer<S: Serve>(worker: &mut S, mut slot: Slot<'_>, thread: Thread) -> Answered {
    let (header, filled) = (header(&slot), entry(&slot).payload_size as usize);
    let op_size = Opcode::from_number(header.opcode).map_or(0, Opcode::header_size);
    let request = Request::from_parts(header, &slot.op[..op_size], slot.payload, filled);
    let reply = match request {
        Ok(request) if thread == Thread::Ring && worker.may_block(&request) => {
            return Answered::Waits;
        }
        Ok(mut request) => {
            if thread == Thread::Helper {
                request.let_wait();
            }
            worker.handle(&mut request)
        }
        Err(errno) => malformed(&header, errno),
    };
    let (len, error) = match reply {
        Reply::Later { device: true } if thread == Thread::Ring => return Answered::Device,
        Reply::Later { device: false } if thread == Thread::Ring => return Answered::Waits,
        // Who may wait puts nothing off.
        Reply::Silent | Reply::Later { .. } => (0, 0),
        Reply::Body(len) => (len, 0),
        Reply::Error(errno) => (0, -errno.0),
    };
    put_head(&mut slot, header.unique, len, error);
    Answered::Yes
}

/// A request in memory of its own, while its slot waits.
pub(super) struct Apart {
    head: [u8; RING_HEAD],
    payload: Vec<u8>,
}

impl Apart {
    /// Copies the request in a slot.
    pub(super) fn of(slot: &mut Slot<'_>) -> Apart {
        let (header, filled) = (header(slot), (entry(slot).payload_size as usize));
        let filled = filled.min(slot.payload.len());
        let op_size = Opcode::from_number(header.opcode).map_or(0, Opcode::header_size);
        let request = Request::from_parts(header, &slot.op[..op_size], slot.payload, filled);
        let mut payload = vec![0; request.map_or(0, |request| request.reply_max()).max(filled)];
        payload[..filled].copy_from_slice(&slot.payload[..filled]);
        let mut apart = Apart { head: [0; RING_HEAD], payload };
        let own = apart.slot();
        own.in_out.copy_from_slice(slot.in_out);
        own.op.copy_from_slice(slot.op);
        own.entry.copy_from_slice(slot.entry);
        apart
    }

    /// Returns it as a slot.
    pub(super) fn slot(&mut self) -> Slot<'_> {
        Slot::of(&mut self.head, &mut self.payload)
    }

    /// Copies the reply to the slot.
    pub(super) fn reply(&mut self, slot: &mut Slot<'_>) {
        let own = self.slot();
        let len = entry(&own).payload_size as usize;
        slot.in_out.copy_from_slice(own.in_out);
        slot.entry.copy_from_slice(own.entry);
        slot.payload[..len].copy_from_slice(&own.payload[..len]);
    }

    /// Takes the reply back: nobody waits for it.
    pub(super) fn undo<S: Serve>(&mut self, op: Option<Opcode>, worker: &S) {
        let own = self.slot();
        let len = entry(&own).payload_size as usize;
        let error = OutHeader::read_from_prefix(own.in_out).map_or(0, |(head, _)| head.error);
        if error == 0 {
            worker.undo(op, &mut own.payload[..len]);
        }
    }
}

/// Answers the request in a slot with an error.
pub(super) fn fail(mut slot: Slot<'_>, unique: u64, errno: Errno) {
    put_head(&mut slot, unique, 0, -errno.0);
}

/// Puts the head of a reply with a body of `len` bytes into a slot.
#[inline]
fn put_head(slot: &mut Slot<'_>, unique: u64, len: usize, error: i32) {
    let len = len as u32;
    let head = OutHeader { len: size_of::<OutHeader>() as u32 + len, error, unique };
    let entry = RingEntry { payload_size: len, ..entry(slot) };
    // Both are shorter than the parts that hold them.
    let _ = head.write_to_prefix(slot.in_out);
    let _ = entry.write_to_prefix(slot.entry);
}

/// Returns the header of the request in a slot, which is shorter than the part that holds it.
#[inline]
pub(super) fn header(slot: &Slot<'_>) -> InHeader {
    InHeader::read_from_prefix(slot.in_out).map_or_else(|_| none(), |(it, _)| it)
}

/// The same of number and sizes.
#[inline]
fn entry(slot: &Slot<'_>) -> RingEntry {
    RingEntry::read_from_prefix(slot.entry).map_or_else(|_| none(), |(it, _)| it)
}

/// Returns the number under which the reply in a slot is committed: that of its request.
#[inline]
pub(super) fn commit_id(slot: &Slot<'_>) -> u64 {
    entry(slot).commit_id
}

#[cold]
fn none<T: Default>() -> T {
    T::default()
}

#[cold]
fn malformed(header: &InHeader, errno: Errno) -> Reply {
    tracing::error!(code = header.opcode, "malformed request");
    Reply::Error(errno)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::wire::CreateIn;
    use std::sync::Arc;

    /// Replies with the payload reversed, or with a given reply.
    struct Mirror(Option<Reply>);

    impl Serve for Mirror {
        type Shared = ();

        fn new(_: Arc<()>) -> Mirror {
            Mirror(None)
        }

        fn handle(&mut self, request: &mut Request<'_>) -> Reply {
            if let Ok(arg) = request.arg::<CreateIn>() {
                assert_eq!(arg.mode, 0o600);
            }
            let len = request.payload().len();
            request.body()[..len].reverse();
            self.0.unwrap_or(Reply::Body(len))
        }

        fn undo(&self, _: Option<Opcode>, _: &mut [u8]) {}
    }

    struct Memory {
        head: [u8; RING_HEAD],
        payload: [u8; 64],
    }

    impl Memory {
        fn with(opcode: u32, payload: &[u8]) -> Memory {
            let mut memory = Memory { head: [0; RING_HEAD], payload: [0; 64] };
            let header = InHeader { opcode, unique: 8, ..InHeader::default() };
            header.write_to_prefix(&mut memory.head).unwrap();
            let arg = CreateIn { mode: 0o600, ..CreateIn::default() };
            arg.write_to_prefix(&mut memory.head[128..]).unwrap();
            let payload_size = payload.len() as u32;
            let entry = RingEntry { commit_id: 77, payload_size, ..RingEntry::default() };
            entry.write_to_prefix(&mut memory.head[256..]).unwrap();
            let room = memory.payload.len().min(payload.len());
            memory.payload[..room].copy_from_slice(&payload[..room]);
            memory
        }

        fn slot(&mut self) -> Slot<'_> {
            Slot::of(&mut self.head, &mut self.payload)
        }

        fn reply(&self) -> (OutHeader, RingEntry) {
            let head = OutHeader::read_from_prefix(&self.head).unwrap().0;
            (head, RingEntry::read_from_prefix(&self.head[256..]).unwrap().0)
        }
    }

    #[test]
    fn a_reply_replaces_its_request() {
        let mut memory = Memory::with(Opcode::Create as u32, b"name\0");
        assert_eq!(answer(&mut Mirror(None), memory.slot(), Thread::Ring), Answered::Yes);
        assert_eq!(memory.payload[..5], *b"\0eman");
        let (head, entry) = memory.reply();
        assert_eq!((head.len, head.error, head.unique), (21, 0, 8));
        assert_eq!((entry.payload_size, entry.commit_id), (5, 77));
        assert_eq!(commit_id(&memory.slot()), 77);
    }

    #[test]
    fn errors_and_silence_are_replies_too() {
        for (reply, error) in [(Reply::Error(Errno::ENOENT), -2), (Reply::Silent, 0)] {
            let mut memory = Memory::with(Opcode::Create as u32, b"name\0");
            assert_eq!(
                answer(&mut Mirror(Some(reply)), memory.slot(), Thread::Ring),
                Answered::Yes
            );
            let (head, entry) = memory.reply();
            assert_eq!((head.len, head.error, entry.payload_size), (16, error, 0));
        }
    }

    #[test]
    fn what_waits_for_the_disk_is_for_helpers() {
        let mut memory = Memory::with(Opcode::Fsync as u32, b"");
        let before = memory.head;
        assert_eq!(answer(&mut Mirror(None), memory.slot(), Thread::Ring), Answered::Waits);
        assert_eq!(memory.head, before, "nothing done");
    }

    #[test]
    fn more_payload_than_there_is_room_for_is_an_error() {
        let mut memory = Memory::with(Opcode::Mkdir as u32, &[1; 65]);
        assert_eq!(answer(&mut Mirror(None), memory.slot(), Thread::Ring), Answered::Yes);
        assert_eq!(memory.reply().0.error, -Errno::EIO.0);
    }
}
