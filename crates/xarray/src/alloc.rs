//! The one failure an array knows: no memory for a node. Tests can make it happen.

use std::fmt;

/// There was no memory for a node. The array is as it was before the call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AllocError;

impl fmt::Display for AllocError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no memory for a node of an array")
    }
}

impl std::error::Error for AllocError {}

/// Lets allocations fail, for tests: of this crate, and of others by the feature `fail-alloc`.
#[cfg(any(test, feature = "fail-alloc"))]
pub mod fail {
    use std::cell::Cell;

    thread_local! {
        static LEFT: Cell<Option<u64>> = const { Cell::new(None) };
    }

    /// From now on this thread gets `nodes` more nodes and then none; `None`: as many as it wants.
    pub fn after(nodes: Option<u64>) {
        LEFT.set(nodes);
    }

    /// Whether the next allocation of a node may be tried; counts it.
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
