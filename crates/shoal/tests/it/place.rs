//! The place of the tests' volumes: open in this process, and once more, by the "test"
//! `everything_by_sessions`, served, with a session between the test and the volume. It can be had
//! for a single test with `SHOAL_TEST_SERVED=1`.

use shoal::{ServeOptions, Volume, VolumeOptions, raw};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

const SERVED: &str = "SHOAL_TEST_SERVED";

/// Returns whether a session is between the tests and their volumes.
pub(crate) fn is_served() -> bool {
    std::env::var_os(SERVED).is_some()
}

/// Makes a volume in memory.
pub(crate) fn volume(options: VolumeOptions) -> Volume {
    static MADE: AtomicU32 = AtomicU32::new(0);
    let volume = options.in_memory().unwrap();
    if !is_served() {
        return volume;
    }
    let number = MADE.fetch_add(1, Ordering::Relaxed);
    let name = format!("shoal-served-{}-{number}.sock", std::process::id());
    let serving = volume.serve(ServeOptions::new().socket(std::env::temp_dir().join(name)));
    let serving = serving.unwrap();
    let served = Volume::connect(serving.socket()).unwrap();
    let _ = std::fs::remove_file(serving.socket());
    // As long as the test program.
    std::mem::forget(serving);
    SERVED_HERE.lock().unwrap().push(volume);
    served
}

/// The volumes that sessions of this program lead to.
static SERVED_HERE: Mutex<Vec<Volume>> = Mutex::new(Vec::new());

/// Calls `look` with the volume itself, wherever it is open.
pub(crate) fn look_at<T>(volume: &Volume, look: impl FnOnce(&raw::Volume) -> T) -> T {
    if let Some(raw) = volume.raw() {
        return look(raw);
    }
    let uuid = volume.uuid().unwrap();
    let is_it = |served: &&Volume| served.uuid().unwrap() == uuid;
    let served = SERVED_HERE.lock().unwrap().iter().find(is_it).cloned().unwrap();
    look(served.raw().unwrap())
}

/// Runs all tests again, on volumes that are served.
#[test]
fn everything_by_sessions() {
    if is_served() {
        return;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.env(SERVED, "1").args(["bulk::", "changes::", "library::", "like_std::", "tokens::"]);
    command.args(["tree_change::", "whole::"]);
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(!text.contains(" 0 passed"), "{text}");
}
