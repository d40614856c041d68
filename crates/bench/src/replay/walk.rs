//! The directories on the way of a thread, opened once, as a program with working directories has
//! them. They are opened anew when any thread has moved or removed a directory.

use super::{Called, Calls};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// Most directories that a thread has open.
const OPEN_MAX: usize = 256;

/// Number of directories that have been moved or removed.
#[derive(Default)]
pub(crate) struct Epoch(AtomicU64);

/// Directories of a thread.
pub(crate) struct Walker<'a, C: Calls> {
    top: C::Dir,
    open: HashMap<Box<[u8]>, C::Dir>,
    epoch: &'a Epoch,
    /// The epoch in which they were opened.
    seen: u64,
}

impl<'a, C: Calls> Walker<'a, C> {
    pub(super) fn new(top: C::Dir, epoch: &'a Epoch) -> Walker<'a, C> {
        Walker { top, open: HashMap::new(), epoch, seen: 0 }
    }

    /// Records that a directory may have been moved or removed.
    pub(super) fn moved(&self) {
        self.epoch.0.fetch_add(1, Ordering::AcqRel);
    }

    /// Returns a directory.
    pub(super) fn enter(&mut self, calls: &C, path: &[u8]) -> Called<C::Dir> {
        let epoch = self.epoch.0.load(Ordering::Acquire);
        if epoch != self.seen || self.open.len() >= OPEN_MAX {
            self.open.clear();
            self.seen = epoch;
        }
        if path.is_empty() {
            return Ok(self.top.clone());
        }
        if let Some(dir) = self.open.get(path) {
            return Ok(dir.clone());
        }
        let mut at = self.top.clone();
        for name in path.split(|byte| *byte == b'/') {
            at = calls.enter(&at, name)?;
        }
        self.open.insert(path.into(), at.clone());
        Ok(at)
    }
}
