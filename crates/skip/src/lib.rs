//! Support for the tests of all crates: waits for events, inputs of property tests, counted skips.
//!
//! A test that `scripts/test.sh` runs depends on no time, no chance and no load: it waits for
//! events ([`wait_until`]), and its inputs are the same in every run ([`property`]).
//!
//! # Tests that cannot run on a machine
//!
//! A test that returns early passes, and a suite of such tests passes by not running. So every skip
//! goes through [`skipped`] or [`can_mount`], and:
//!
//! | variable | effect |
//! | --- | --- |
//! | `SHOAL_REQUIRE_MOUNT` (not empty) | [`can_mount`] panics where it would skip; `scripts/test.sh` sets it where root and `/dev/fuse` exist |
//! | `SHOAL_SKIPPED` (a file) | each skip appends a line, `test TAB reason`; `scripts/test.sh` prints them at the end |
//!
//! A dev-dependency: nothing that is released uses it.

mod inputs;
pub mod s3;
mod waits;

pub use inputs::property;
pub use waits::{PATIENCE, tick, wait_for, wait_until};

use std::fs::OpenOptions;
use std::io::Write;
use std::panic::Location;
use std::path::Path;

const REQUIRE: &str = "SHOAL_REQUIRE_MOUNT";
const RECORD: &str = "SHOAL_SKIPPED";
const NO_MOUNT: &str = "needs root and /dev/fuse";

/// Returns whether the tests run as root.
#[must_use]
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Returns whether mounts can be tested here; records a skip if not.
///
/// # Panics
/// If mounts cannot be tested although `SHOAL_REQUIRE_MOUNT` is set.
#[track_caller]
#[must_use]
pub fn can_mount() -> bool {
    let can = is_root() && Path::new("/dev/fuse").exists();
    if !can {
        lacks_mount();
    }
    can
}

#[track_caller]
fn lacks_mount() {
    let is_required = std::env::var_os(REQUIRE).is_some_and(|value| !value.is_empty());
    assert!(!is_required, "{REQUIRE} is set, but this test {NO_MOUNT}");
    skipped(NO_MOUNT);
}

/// Records that the calling test, or a part of it, is skipped because the machine lacks something.
///
/// Writes past the test program's capture of what passing tests print.
///
/// # Panics
/// If the file of `SHOAL_SKIPPED` cannot be written: the skip would not be counted.
#[track_caller]
pub fn skipped(reason: &str) {
    let at = Location::caller();
    let test = match std::thread::current().name() {
        // With one test thread the tests run on the main thread.
        None | Some("main") => format!("{}:{}", at.file(), at.line()),
        Some(name) => name.to_owned(),
    };
    // One line, whatever a tool has said.
    let reason = reason.split_whitespace().collect::<Vec<_>>().join(" ");
    let _ = writeln!(std::io::stderr(), "SKIPPED {test}: {reason}");
    if let Some(path) = std::env::var_os(RECORD).filter(|path| !path.is_empty()) {
        let opened = OpenOptions::new().append(true).create(true).open(&path);
        // One write: test programs append to the same file at the same time.
        let line = format!("{test}\t{reason}\n");
        let written = opened.and_then(|mut file| file.write_all(line.as_bytes()));
        assert!(written.is_ok(), "{RECORD}: cannot record a skip in {path:?}: {written:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Output};

    const PLAY: &str = "SHOAL_SKIP_PLAY";

    /// Skips as the environment says; for the test below, which runs this program again.
    #[test]
    fn play() {
        match std::env::var(PLAY).as_deref() {
            Ok("mount") => lacks_mount(),
            Ok("tool") => skipped("no such\n tool"),
            _ => {}
        }
    }

    fn run(play: &str, require: &str, record: &Path) -> Output {
        Command::new(std::env::current_exe().expect("own name"))
            .args(["--exact", "tests::play"])
            .envs([(PLAY, play), (REQUIRE, require)])
            .env(RECORD, record)
            .output()
            .expect("run this program again")
    }

    #[test]
    fn skips_are_counted_and_mounts_can_be_required() {
        let record = std::env::temp_dir().join(format!("shoal-skip-{}", std::process::id()));
        let said = |out: &Output| String::from_utf8_lossy(&out.stderr).into_owned();
        for require in ["", "1"] {
            let tool = run("tool", require, &record);
            assert!(tool.status.success(), "{tool:?}");
            assert!(said(&tool).contains("SKIPPED tests::play: no such tool\n"), "{tool:?}");
        }
        let free = run("mount", "", &record);
        assert!(free.status.success() && said(&free).contains(NO_MOUNT), "{free:?}");
        let required = run("mount", "1", &record);
        assert!(!required.status.success(), "{required:?}");
        let lines = std::fs::read_to_string(&record).expect("the record");
        std::fs::remove_file(&record).expect("remove the record");
        let tool = "tests::play\tno such tool\n";
        assert_eq!(lines, format!("{tool}{tool}tests::play\t{NO_MOUNT}\n"));
        let lost = run("tool", "", Path::new("/nowhere/at/all"));
        assert!(!lost.status.success(), "a skip that is not counted: {lost:?}");
    }
}
