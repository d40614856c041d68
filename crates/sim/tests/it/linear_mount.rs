//! Operations of several processes on the same names of a mount can be put in an order, the
//! kernel's caches of names and attributes included.

use crate::common;

use shoal::raw::{MkfsOptions, OpenOptions, Volume, mkfs};
use shoal_sim::deadline::{from_environment, within};
use shoal_sim::linear::crew::{Crew, act, asked};
use shoal_sim::mounted::Server;
use std::path::Path;

/// Entry of the processes.
#[test]
fn act_helper() {
    if asked() {
        act().expect("act");
    }
}

/// Runs histories on a mount; `doors`: on both of its doors.
fn run(name: &str, doors: bool, seeds: u64) {
    if asked() || !shoal_skip::can_mount() {
        return;
    }
    let base = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let (volume, directory) = (base.join("volume"), base.join("mnt"));
    let _ = std::fs::remove_dir_all(&base);
    std::fs::create_dir_all(&directory).expect("directory");
    mkfs(&volume, &MkfsOptions { size: 256 << 20, ..MkfsOptions::default() }).expect("mkfs");
    let server = Server::start(common::server(&volume, &directory), &directory).expect("start");
    let first = from_environment("SHOAL_LINEAR_SEED", 0);
    let seeds = from_environment("SHOAL_LINEAR_SEEDS", seeds);
    let on = directory.clone();
    let tally = within(600, "histories", move || {
        let mut crew = Crew::start(&on, doors, &|| common::again("linear_mount::act_helper"))?;
        crew.run(first..first + seeds)
    });
    let tally = tally.unwrap_or_else(|wrong| panic!("{wrong}"));
    server.stop().expect("stop");
    println!("{tally:?}");
    assert_eq!(tally.histories, seeds);
    assert!(tally.overlapping > 0, "the processes never met");
    let options = OpenOptions { read_only: true, ..OpenOptions::default() };
    let volume = Volume::open(&volume, &options).expect("open");
    let report = volume.check(&mut |_, _| {}).expect("check");
    assert!(report.problems.is_empty(), "{:#?}", report.problems);
    std::fs::remove_dir_all(&base).expect("clean up");
}

#[test]
fn processes_on_a_mount() {
    run("linear-mount", false, 300);
}

/// In each history some of the processes make system calls, and some have a session each. Of a
/// thousand of these seeds, about ten found a file read up to an old size, because another process
/// had taken a name from it, and one in four thousand found the name of one file in the place of
/// another, because a session had changed it between the kernel's look and its rename.
#[test]
fn processes_at_both_doors() {
    run("linear-doors", true, 1000);
}
