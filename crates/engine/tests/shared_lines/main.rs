//! Counts the cache lines that move between two threads that create, unlink, stat, look up and
//! truncate. A test without the harness, whose own thread would use memory during a trace.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod lines;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod trace;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod truncates;

fn main() {
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    if !std::env::args().any(|arg| arg == "--list") {
        lines::run();
        truncates::run();
    }
}
