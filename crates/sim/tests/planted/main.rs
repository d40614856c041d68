//! Tests that plant defects. A program of its own: a defect is planted in the whole process, so
//! each test holds [`alone`], and tests of sound code are elsewhere.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod defects;
mod linear;
mod synced_appends;

use parking_lot::{Mutex, MutexGuard};

/// Keeps the other tests of this program waiting until it is dropped.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock()
}
