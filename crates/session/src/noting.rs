//! A thread's note of the call that it makes, for the next server.
//!
//! Each thread that makes calls of sessions has a cell beside the journal's ring, from its first
//! change on.

use shoal_engine::{CallNote, Left, RingMemory};
use std::cell::RefCell;
use std::sync::Arc;

thread_local! {
    static NOTE: RefCell<Option<(Arc<RingMemory>, Option<CallNote>)>> =
        const { RefCell::new(None) };
}

/// Records that this thread makes a call, with what a server before this one has left of it.
#[inline]
pub(crate) fn begin(ring: &Arc<RingMemory>, unique: u64, left: Option<Left>) {
    NOTE.with_borrow_mut(|note| {
        if !note.as_ref().is_some_and(|(of, _)| Arc::ptr_eq(of, ring)) {
            claim(note, ring);
        }
        if let Some((_, Some(note))) = note {
            note.begin(unique, left);
        }
    });
}

#[cold]
fn claim(note: &mut Option<(Arc<RingMemory>, Option<CallNote>)>, ring: &Arc<RingMemory>) {
    // One of another volume is given up first: a thread has one.
    *note = None;
    let claimed = ring.claim_call();
    if claimed.is_none() {
        tracing::warn!("too many threads: a call may be made twice if the server is killed");
    }
    *note = Some((ring.clone(), claimed));
}

/// Records that its outcome is known.
#[inline]
pub(crate) fn end() {
    NOTE.with_borrow(|note| {
        if let Some((_, Some(note))) = note {
            note.end();
        }
    });
}
