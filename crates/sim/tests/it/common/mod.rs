//! Mounts of these tests, served by the test program itself, started again: this crate knows the
//! library of mounts, not the command. And runs that crash everywhere.

use shoal_sim::deadline::within;
use shoal_sim::op::Op;
use shoal_sim::runner::{Settings, Sim};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

const VOLUME: &str = "SHOAL_SIM_SERVE_VOLUME";
const DIRECTORY: &str = "SHOAL_SIM_SERVE_DIRECTORY";

/// The command that serves a volume; this program has a test `serve_helper` that calls [`serve`].
pub(crate) fn server(volume: &Path, directory: &Path) -> Command {
    let mut command = again("serve_helper");
    command.env(VOLUME, volume).env(DIRECTORY, directory);
    command
}

/// This program again, entered at a test.
pub(crate) fn again(test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("own name"));
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]);
    command
}

/// The server's side: serves what the environment says, if it says something.
pub(crate) fn serve() {
    let Some(path) = std::env::var_os(VOLUME).map(PathBuf::from) else { return };
    let directory = std::env::var_os(DIRECTORY).expect("a directory");
    let options = shoal_fuse::MountOptions::default();
    let volume = Arc::new(shoal::raw::Volume::open(&path, &options.open_options()).expect("open"));
    let directory = Path::new(&directory);
    let mount = shoal_fuse::Mount::new(volume.clone(), directory, "sim", &options).expect("mount");
    println!("ready");
    mount.wait();
    let volume = Arc::try_unwrap(volume).ok().expect("the only owner once the mount has ended");
    volume.close().expect("close");
}

/// Runs `ops` on a volume of these settings, whose calls take steps of `step` records, and crashes
/// at every point of the run.
pub(crate) fn crash_at_every_point(
    name: &'static str,
    step: usize,
    settings: Settings,
    ops: &[Op],
) {
    let ops = ops.to_vec();
    within(600, name, move || {
        let mut sim = Sim::new(&settings).expect("a fresh volume");
        for op in &ops {
            sim.step(op).unwrap_or_else(|e| panic!("{name}, steps of {step}: {op}: {e}"));
        }
        let images = sim.crash_everywhere(2, 7);
        let images = images.unwrap_or_else(|e| panic!("{name}, steps of {step}: {e}"));
        println!("{name}, steps of {step}: {images} images");
        sim.finish().unwrap_or_else(|e| panic!("{name}, steps of {step}: {e}"));
    });
}
