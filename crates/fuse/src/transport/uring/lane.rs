//! One ring and its thread: the requests of one processor's callers, answered on that processor.
//!
//! | a slot's command completes with | then |
//! | --- | --- |
//! | 0 | the slot holds a request: it is answered, and the reply committed |
//! | `ENOTCONN`, `ECANCELED` | the connection has ended; the slot is gone |
//! | anything else | our mistake, which is logged; the slot is gone |
//!
//! The thread ends when all its slots are gone.

use super::answer::{Answered, Thread, answer, commit_id};
use super::helpers::{Helpers, Job};
use super::inbox::Inbox;
use super::slots::{Held, Slots};
use crate::protocol::wire::{
    RING_COMMIT_AND_FETCH, RING_REGISTER, RingCommand, SQE_FIXED_FILE, URING_CMD,
};
use crate::service::Serve;
use io_uring::squeue::Entry128;
use io_uring::{IoUring, cqueue, opcode, types};
use parking_lot::Mutex;
use rustix::event::PollFlags;
use rustix::io::Errno as Os;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;
use zerocopy::IntoBytes;

/// User data of the completion for mail in the inbox.
const MAIL: u64 = u64::MAX;
/// User data of the completion that ends the wait for the slots.
const TIMER: u64 = u64::MAX - 1;
/// Seconds to wait for the kernel to give the slots back after the end of the connection.
const PATIENCE_S: u64 = 2;

/// A ring and its slots.
pub(super) struct Lane<S: Serve> {
    ring: IoUring<Entry128, cqueue::Entry>,
    slots: Arc<Slots>,
    /// The kernel's queue of each slot.
    queues: Vec<u16>,
    worker: S,
    inbox: Arc<Inbox>,
    helpers: Arc<Helpers<S>>,
    /// Slots in use by the kernel, by this thread or by a helper.
    live: usize,
    /// Slots in use by helpers.
    away: usize,
    /// The connection has ended, as another thread has reported.
    ended: bool,
}

impl<S: Serve> Lane<S> {
    /// Creates a ring with a slot for each of `queues`, for the connection of `device`. Must be
    /// used by the calling thread.
    pub(super) fn new(
        worker: S,
        device: BorrowedFd<'_>,
        queues: Vec<u16>,
        payload: usize,
        inbox: Arc<Inbox>,
        helpers: Arc<Helpers<S>>,
    ) -> io::Result<Lane<S>> {
        let count = u16::try_from(queues.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        let ring = make_ring(u32::from(count) + 2)?;
        ring.submitter().register_files(&[device.as_raw_fd()])?;
        let slots = Arc::new(Slots::new(count, payload)?);
        let ended = false;
        Ok(Lane { ring, slots, queues, worker, inbox, helpers, live: 0, away: 0, ended })
    }

    /// Registers the slots with the kernel; returns how many it has refused. Must be called right
    /// after the handshake, as callers wait for it.
    pub(super) fn register(&mut self) -> io::Result<usize> {
        for slot in 0..self.slots.count() {
            let address = self.slots.vectors(slot);
            let wanted = RingCommand { address, len: 2, ..RingCommand::default() };
            self.push(command(wanted, RING_REGISTER, slot, self.queues[usize::from(slot)]));
            self.live += 1;
        }
        self.listen();
        self.ring.submit()?;
        let before = self.live;
        // A refusal completes at once, and a request may have come already.
        self.drain();
        Ok(before - self.live)
    }

    /// Serves until the connection has ended.
    pub(super) fn run(mut self) {
        while self.live > 0 {
            match self.ring.submit_and_wait(1) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Completions must be handled before the kernel takes more.
                Err(error) if error.raw_os_error() == Some(Os::BUSY.raw_os_error()) => {}
                Err(error) => {
                    tracing::error!(%error, "a ring has failed");
                    break;
                }
            }
            if !self.drain() {
                break;
            }
        }
        if self.live > 0 {
            // The kernel may still write there.
            std::mem::forget(self.slots.clone());
        }
    }

    /// Handles all completions. `false`: there is no sense in waiting for more.
    fn drain(&mut self) -> bool {
        loop {
            let next = self.ring.completion().next();
            let Some(done) = next else { return true };
            match (done.user_data(), done.result()) {
                (MAIL, _) => self.open_mail(),
                (TIMER, _) => {
                    tracing::warn!(slots = self.live, "the kernel keeps slots after the end");
                    return self.away > 0;
                }
                (slot, 0) => self.serve(slot as u16),
                (slot, error) => self.lost(slot as u16, error),
            }
        }
    }

    /// Answers the request in a slot, or passes it to a helper.
    #[inline]
    fn serve(&mut self, slot: u16) {
        // SAFETY: the completion of the slot's last command has just been taken from the ring.
        let mut held = unsafe { self.slots.take(slot) };
        let device = match answer(&mut self.worker, self.slots.open(&mut held), Thread::Ring) {
            Answered::Yes => return self.commit(held),
            Answered::Waits => false,
            Answered::Device => true,
        };
        let (slots, inbox) = (self.slots.clone(), self.inbox.clone());
        let held = Arc::new(Mutex::new(Some(held)));
        match self.helpers.give(Job { held, slots, inbox, device }) {
            Ok(()) => self.away += 1,
            // No helper: answered here, and all other callers wait.
            Err(mut held) => {
                answer(&mut self.worker, self.slots.open(&mut held), Thread::Helper);
                self.commit(held);
            }
        }
    }

    /// Hands a reply to the kernel, together with its slot.
    #[inline]
    fn commit(&mut self, mut held: Held) {
        let commit_id = commit_id(&self.slots.open(&mut held));
        let wanted = RingCommand { commit_id, ..RingCommand::default() };
        let slot = held.slot();
        let queue = self.queues[usize::from(slot)];
        self.push(command(wanted, RING_COMMIT_AND_FETCH, slot, queue));
    }

    /// Records that a slot does not come back.
    #[cold]
    fn lost(&mut self, slot: u16, error: i32) {
        self.live -= 1;
        let error = Os::from_raw_os_error(-error);
        if !matches!(error, Os::NOTCONN | Os::CANCELED) && !self.ended {
            let queue = self.queues[usize::from(slot)];
            tracing::error!(%error, slot, queue, "a ring's slot is lost");
        }
    }

    #[cold]
    fn open_mail(&mut self) {
        let mail = self.inbox.take();
        self.away -= mail.answered.len();
        for held in mail.answered {
            self.commit(held);
        }
        if mail.ended && !self.ended {
            self.ended = true;
            let patience = types::Timespec::new().sec(PATIENCE_S);
            let timeout = opcode::Timeout::new(&patience).build().user_data(TIMER);
            self.push(timeout.into());
            // The timer's length is read when it is submitted, and `patience` ends here.
            let _ = self.ring.submit();
        }
        self.listen();
    }

    /// Asks for a completion when there is mail.
    fn listen(&mut self) {
        let event = types::Fd(self.inbox.event());
        let poll = opcode::PollAdd::new(event, u32::from(PollFlags::IN.bits())).build();
        self.push(poll.user_data(MAIL).into());
    }

    fn push(&mut self, entry: Entry128) {
        // SAFETY: what the entry points to lives as long as the lane: the device and the event in
        // fields of ours, the slots' memory until the kernel has given every slot back. (The timer
        // is submitted at once.)
        let pushed = unsafe { self.ring.submission().push(&entry) };
        // One entry for each slot, one for the inbox, one for the timer: the ring was made for it.
        assert!(pushed.is_ok(), "a ring is as long as it has slots");
    }
}

impl<S: Serve> Drop for Lane<S> {
    fn drop(&mut self) {
        self.helpers.ring_gone();
    }
}

/// Makes a ring with room for `entries` at a time.
fn make_ring(entries: u32) -> io::Result<IoUring<Entry128, cqueue::Entry>> {
    let mut builder = IoUring::<Entry128, cqueue::Entry>::builder();
    builder.setup_submit_all().setup_cqsize(2 * entries.next_power_of_two());
    let plain = builder.clone();
    // Completions are handled when this thread asks for them, without a signal.
    match builder.setup_single_issuer().setup_defer_taskrun().build(entries) {
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => plain.build(entries),
        outcome => outcome,
    }
}

/// Builds a command to the connection, which is the only file in the ring's table.
fn command(wanted: RingCommand, which: u32, slot: u16, queue: u16) -> Entry128 {
    let command = RingCommand {
        opcode: URING_CMD,
        flags: SQE_FIXED_FILE,
        fd: 0,
        command: which,
        user_data: slot.into(),
        queue,
        ..wanted
    };
    const _: () = assert!(size_of::<Entry128>() == size_of::<RingCommand>());
    // SAFETY: a long entry is the kernel's structure, 128 bytes of plain numbers in which every
    // value is allowed; ours has the same fields at the same places. (The crate cannot build this
    // one: it has no way to set the length.)
    unsafe { std::ptr::from_ref(command.as_bytes()).cast::<Entry128>().read_unaligned() }
}
