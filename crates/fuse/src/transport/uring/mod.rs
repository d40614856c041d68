//! FUSE by shared rings (io_uring): a request arrives as a completion and its reply leaves with the
//! wait for the next one, in one system call and without a copy through a queue of the device.
//!
//! The kernel has a queue for each possible processor, and sends a request to the queue of its
//! caller's processor. So each online processor gets a ring and a thread bound to it ([`lane`]);
//! the slots for processors that are off are with the first. Requests that may wait for the disk
//! are answered by other threads ([`helpers`]).
//!
//! | step | reason |
//! | --- | --- |
//! | [`prepare`]: rings, memory and threads | before the handshake: without them the kernel must not be told that there are rings, or its callers wait for ever |
//! | the handshake | the kernel accepts no slots before |
//! | [`Prepared::start`]: slots are registered | at once after, since callers wait until every queue has one |
//!
//! If a registration is refused the kernel goes on through the device. FORGET and INTERRUPT always
//! come through the device, so a thread must read that, too.

mod answer;
mod cpus;
mod helpers;
mod inbox;
mod lane;
mod slots;

use super::Threads;
use super::waiting::Waiting;
use crate::protocol::wire::RING_PAYLOAD_MIN;
use crate::service::Serve;
use helpers::Helpers;
use inbox::Inbox;
use lane::Lane;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

/// Slots for each processor: requests of its callers that can be with helpers at a time before the
/// others have to wait. As many as helpers, with few processors; a slot that is not used costs no
/// memory but its place in the ring.
const DEPTH: std::ops::RangeInclusive<usize> = 64..=1024;
/// Slots of all processors, as far as [`DEPTH`] allows.
const SLOTS: usize = 4096;

/// Configuration of rings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Shape {
    /// Slots for each processor.
    pub depth: usize,
    /// Bytes of a slot for names and data: at least the largest write.
    pub payload: usize,
}

impl Shape {
    /// Returns the shape for writes of up to `max_write` bytes.
    pub(crate) fn for_writes(max_write: u32) -> Shape {
        let processors = std::thread::available_parallelism().map_or(1, |n| n.get());
        let depth = (SLOTS / processors).clamp(*DEPTH.start(), *DEPTH.end());
        Shape { depth, payload: RING_PAYLOAD_MIN.max(max_write as usize) }
    }
}

/// Rings that wait for the end of the handshake. Dropping them ends them.
pub(crate) struct Prepared {
    /// Start signals, one for each thread.
    go: Vec<Sender<()>>,
    /// Reports of each thread, first about its making and then about its registration.
    reports: Receiver<io::Result<usize>>,
    live: Live,
}

/// Rings in use.
pub(crate) struct Live {
    inboxes: Vec<Arc<Inbox>>,
    waiting: Arc<Waiting>,
    refused: usize,
}

/// Makes rings for the connection of `device`. Their threads are added to `threads`.
pub(crate) fn prepare<S: Serve>(
    shared: &Arc<S::Shared>,
    device: &OwnedFd,
    shape: Shape,
    threads: &Threads,
) -> io::Result<Prepared> {
    let plan = plan(shape.depth).ok_or(io::ErrorKind::Unsupported)?;
    let waiting = Arc::<Waiting>::default();
    let helpers = Helpers::<S>::new(shared.clone(), threads, &waiting, plan.len());
    let (report, reports) = channel();
    let live = Live { inboxes: Vec::new(), waiting, refused: 0 };
    let mut prepared = Prepared { go: Vec::new(), reports, live };
    for (cpu, queues) in plan {
        let inbox = Arc::new(Inbox::new()?);
        let (go, start) = channel();
        let (device, report) = (device.try_clone()?, report.clone());
        let (shared, inner, helpers) = (shared.clone(), inbox.clone(), helpers.clone());
        let life = move || {
            cpus::stay_on(cpu);
            let worker = S::new(shared);
            match Lane::new(worker, device.as_fd(), queues, shape.payload, inner, helpers) {
                Ok(lane) => run(lane, &start, &report),
                Err(error) => drop(report.send(Err(error))),
            }
        };
        threads.start(format!("shoal-ring-{cpu}"), life)?;
        prepared.go.push(go);
        prepared.live.inboxes.push(inbox);
    }
    prepared.hear()?;
    Ok(prepared)
}

/// Runs a ring's thread after its ring has been made.
fn run<S: Serve>(mut lane: Lane<S>, start: &Receiver<()>, report: &Sender<io::Result<usize>>) {
    if report.send(Ok(0)).is_err() || start.recv().is_err() {
        // The mount has failed.
        return;
    }
    let registered = lane.register();
    let failed = registered.is_err();
    // There is no receiver only if the mount is being taken back, which ends the connection.
    let _ = report.send(registered);
    if !failed {
        lane.run();
    }
}

impl Prepared {
    /// Starts to serve.
    pub(crate) fn start(self) -> io::Result<Live> {
        // A thread that has ended does not report, which is an error below.
        for go in &self.go {
            let _ = go.send(());
        }
        let refused = self.hear()?;
        Ok(Live { refused, ..self.live })
    }

    /// Waits until every thread has reported.
    fn hear(&self) -> io::Result<usize> {
        let mut sum = 0;
        for _ in &self.go {
            sum += self.reports.recv().map_err(|_| io::ErrorKind::BrokenPipe)??;
        }
        Ok(sum)
    }
}

impl Live {
    /// Returns the number of slots that the kernel has refused: if any, requests come through the
    /// device.
    pub(crate) fn refused(&self) -> usize {
        self.refused
    }

    /// Returns the requests that wait.
    pub(crate) fn waiting(&self) -> Arc<Waiting> {
        self.waiting.clone()
    }

    /// Tells the threads that the connection has ended. The kernel also returns each slot; the
    /// threads do not wait for one that it keeps.
    pub(crate) fn end(&self) {
        self.inboxes.iter().for_each(|inbox| inbox.end());
    }
}

/// Returns, for each online processor, the queues of its slots: `depth` times its own, and on the
/// first one each of those that are off.
fn plan(depth: usize) -> Option<Vec<(u16, Vec<u16>)>> {
    let possible = cpus::possible()?;
    let mut online = cpus::online();
    online.retain(|cpu| *cpu < possible);
    let mut plan: Vec<(u16, Vec<u16>)> =
        online.iter().map(|cpu| (*cpu, vec![*cpu; depth])).collect();
    let off = (0..possible).filter(|cpu| !online.contains(cpu));
    plan.first_mut()?.1.extend(off);
    Some(plan)
}
