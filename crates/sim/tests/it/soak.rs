//! A few rounds of the soak (`cargo xtask soak` is the long one): a busy mount is killed, and
//! nothing that was acknowledged is lost.
//!
//! `SHOAL_SOAK_ROUNDS` says how many rounds (default 3).

use crate::common;

use shoal::raw::{MkfsOptions, OpenOptions, Volume, mkfs};
use shoal_sim::deadline::{from_environment, within};
use shoal_sim::soak::rounds::{Programs, Soak};
use shoal_sim::soak::worker::{Orders, work};
use std::path::Path;

/// Entry of the workers.
#[test]
fn work_helper() {
    if let Some(orders) = Orders::given() {
        work(&orders);
    }
}

fn check(volume: &Path) -> Result<(), String> {
    let options = OpenOptions { read_only: true, ..OpenOptions::default() };
    let volume = Volume::open(volume, &options).map_err(|e| e.to_string())?;
    let report = volume.check(&mut |_, _| {}).map_err(|e| e.to_string())?;
    if report.problems.is_empty() { Ok(()) } else { Err(format!("{:#?}", report.problems)) }
}

#[test]
fn a_busy_mount_is_killed() {
    if !shoal_skip::can_mount() {
        return;
    }
    let base = Path::new(env!("CARGO_TARGET_TMPDIR")).join("soak");
    let _ = std::fs::remove_dir_all(&base);
    std::fs::create_dir_all(base.join("mnt")).expect("directory");
    let options = MkfsOptions { size: 256 << 20, ..MkfsOptions::default() };
    mkfs(&base.join("volume"), &options).expect("mkfs");
    let place = base.clone();
    let tally = within(600, "rounds", move || {
        let programs = Programs {
            server: Box::new(common::server),
            worker: Box::new(|| common::again("soak::work_helper")),
            check: Box::new(check),
        };
        let mut soak = Soak::new(programs, &place, 1);
        for round in 0..from_environment("SHOAL_SOAK_ROUNDS", 3) {
            soak.round().unwrap_or_else(|e| panic!("round {round}: {e}"));
        }
        soak.tally
    });
    assert!(tally.operations > 0, "the workers have done nothing");
    std::fs::remove_dir_all(&base).expect("clean up");
}
