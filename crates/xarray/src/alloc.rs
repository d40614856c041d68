//! The one failure of an array: no memory for a node. Tests can inject it.

use std::fmt;

/// No memory for a node. The array is as it was before the call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AllocError;

impl fmt::Display for AllocError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no memory for a node of an array")
    }
}

impl std::error::Error for AllocError {}

/// Injects allocation failures: for tests of this crate, and of others through the feature
/// `fail-alloc`.
#[cfg(any(test, feature = "fail-alloc"))]
pub mod fail {
    use std::cell::Cell;

    thread_local! {
        static LEFT: Cell<Option<u64>> = const { Cell::new(None) };
    }

    /// From now on this thread can allocate `nodes` more nodes and then none. `None` removes the
    /// limit.
    pub fn after(nodes: Option<u64>) {
        LEFT.set(nodes);
    }

    /// Returns whether the next node may be allocated, and counts the attempt.
    pub(crate) fn permits() -> bool {
        match LEFT.get() {
            None => true,
            Some(0) => false,
            Some(left) => {
                LEFT.set(Some(left - 1));
                true
            }
        }
    }
}
