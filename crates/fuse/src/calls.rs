//! Requests that a server before this one had read and not answered.
//!
//! A mount with a keeper outlives its server. The kernel gives the next one what was not answered
//! (`FUSE_NOTIFY_RESEND`), with [`RESENT`] in its number. Which of these requests were carried out
//! is in the memory of the journal's ring ([`shoal::raw::Outcome`]); each thread notes its own
//! there. Calls of sessions have cells beside these, and their own numbers
//! ([`shoal_session::OF_SESSIONS`]).

use parking_lot::Mutex;
use shoal::raw::{CallNote, Left, Outcome, RingMemory};
use shoal_session::OF_SESSIONS;
use std::collections::HashMap;
use std::sync::Arc;

/// Bit in the number of a request that the kernel has sent again.
pub(crate) const RESENT: u64 = 1 << 63;

/// Returns a number of nodes that no server before this one has reached: none makes a million in a
/// second.
pub(crate) fn first_number() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |now| now.as_secs() << 20)
}

/// The calls of a mount whose server can be replaced.
pub(crate) struct Calls {
    memory: Arc<RingMemory>,
    left: Mutex<HashMap<u64, Left>>,
}

impl Calls {
    /// Finds what dead servers of the same connection have left.
    pub(crate) fn inherited(memory: Arc<RingMemory>) -> Calls {
        let left = memory.calls_left().into_iter().filter(|left| left.unique & OF_SESSIONS == 0);
        let left = left.map(|left| (left.unique, left)).collect();
        Calls { memory, left: Mutex::new(left) }
    }

    /// For a new connection: nothing is left.
    pub(crate) fn new(memory: Arc<RingMemory>) -> Calls {
        memory.forget_calls();
        Calls { memory, left: Mutex::default() }
    }

    /// Returns the notes of a new thread; `None` if there are too many threads.
    pub(crate) fn thread(&self) -> Option<Noted> {
        let note = self.memory.claim_call();
        if note.is_none() {
            tracing::warn!("too many threads: a call may be made twice if the server is killed");
        }
        note.map(|note| Noted { note, done: None })
    }
}

/// A thread's note of its request in work.
pub(crate) struct Noted {
    note: CallNote,
    /// A dead server's note of the request in work, which it had carried out.
    done: Option<Left>,
}

impl Noted {
    /// Records that request `unique` is in work. Returns what a dead server has left of it.
    #[inline]
    pub(crate) fn begin(&mut self, calls: &Calls, unique: u64) -> Outcome {
        match unique & RESENT {
            0 => self.note.begin(unique, None),
            _ => return self.begin_resent(calls, unique & !RESENT),
        }
        Outcome::Undone
    }

    #[cold]
    fn begin_resent(&mut self, calls: &Calls, unique: u64) -> Outcome {
        let left = calls.left.lock().remove(&unique);
        let outcome = left.as_ref().map_or(Outcome::Undone, |left| left.outcome);
        match outcome {
            Outcome::Undone => self.note.begin(unique, left),
            // Its note stays until it is answered: a further server must find it.
            Outcome::Done | Outcome::Deadly => self.done = left,
        }
        outcome
    }

    /// Records that the request has been answered.
    #[inline]
    pub(crate) fn end(&mut self) {
        self.note.end();
        if let Some(done) = self.done.take() {
            done.answered();
        }
    }
}
