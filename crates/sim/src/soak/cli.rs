//! The command `cargo xtask soak`.

use super::rounds::{Programs, Soak, Tally};
use super::worker::{Orders, work};
use crate::mounted;
use shoal::raw::{MkfsOptions, mkfs};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const VOLUME: u64 = 512 << 20;

/// Options of the soak.
#[derive(clap::Args, Clone, Debug)]
pub struct Arguments {
    /// As long as this
    #[arg(long, value_name = "N", default_value_t = 1)]
    minutes: u64,
    /// As many rounds, however long that takes
    #[arg(long, value_name = "N")]
    rounds: Option<u64>,
    /// Seed of the operations and of the kills
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Directory of the volume and its mount point, removed when all was well
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,
    /// The command shoal, if not that beside this program
    #[arg(long, value_name = "PROGRAM")]
    shoal: Option<PathBuf>,
}

/// Does it. Returns whether all was well.
pub fn cli(arguments: &Arguments) -> bool {
    if let Some(orders) = Orders::given() {
        work(&orders);
        return true;
    }
    match soak(arguments) {
        Ok(()) => true,
        Err(message) => {
            println!("{message}");
            false
        }
    }
}

fn soak(arguments: &Arguments) -> Result<(), String> {
    let Arguments { minutes, rounds, seed, .. } = arguments;
    let limit = Duration::from_secs(60 * minutes);
    let own = || std::env::temp_dir().join(format!("shoal-soak-{}", std::process::id()));
    let directory = &arguments.directory.clone().unwrap_or_else(own);
    if !mounted::possible() {
        return Err("a soak needs root and /dev/fuse".into());
    }
    let programs = programs(arguments)?;
    let mount = directory.join("mnt");
    fs::create_dir_all(&mount).map_err(|e| format!("{}: {e}", mount.display()))?;
    let volume = directory.join("volume");
    let options = MkfsOptions { size: VOLUME, ..MkfsOptions::default() };
    mkfs(&volume, &options).map_err(|e| format!("{}: {e}", volume.display()))?;
    println!("seed {seed}, {}", volume.display());
    let mut soak = Soak::new(programs, directory, *seed);
    let (began, mut said) = (Instant::now(), Instant::now());
    let more = |tally: &Tally| match rounds {
        Some(rounds) => tally.rounds < *rounds,
        None => began.elapsed() < limit,
    };
    while more(&soak.tally) {
        soak.round().map_err(|message| {
            let round = soak.tally.rounds;
            format!("VIOLATION in round {round} of seed {seed}: {message}\nkept: {directory:?}")
        })?;
        if said.elapsed() > Duration::from_secs(15) {
            said = Instant::now();
            println!("{}", report(&soak.tally, began.elapsed()));
        }
    }
    println!("{}, 0 violations", report(&soak.tally, began.elapsed()));
    fs::remove_dir_all(directory).map_err(|e| format!("{}: {e}", directory.display()))
}

fn report(tally: &Tally, elapsed: Duration) -> String {
    let Tally { rounds, kills, early_kills, unmounts, operations, acknowledged, files, working } =
        tally;
    format!(
        "{rounds} rounds in {:.1} s: {kills} kills at work, {early_kills} in recovery, {unmounts} \
         unmounts; {operations} operations ({:.0}/s while mounted for work), {acknowledged} of \
         them acknowledged; {files} acknowledged files verified",
        elapsed.as_secs_f64(),
        *operations as f64 / working.as_secs_f64().max(0.001),
    )
}

/// The command for mounts and checks; this program again for the workers.
fn programs(arguments: &Arguments) -> Result<Programs, String> {
    let own = std::env::current_exe().map_err(|e| e.to_string())?;
    let shoal = arguments.shoal.clone().unwrap_or_else(|| own.with_file_name("shoal"));
    if !shoal.exists() {
        return Err(format!("{}: no such program", shoal.display()));
    }
    let checker = shoal.clone();
    Ok(Programs {
        server: Box::new(move |volume, directory| {
            let mut command = Command::new(&shoal);
            command.args(["mount", "--foreground", "--report-ready", "-o", "keeper=off"]);
            command.arg(volume).arg(directory);
            command
        }),
        worker: Box::new(move || {
            let mut command = Command::new(&own);
            command.arg("soak");
            command
        }),
        check: Box::new(move |volume| fsck(&checker, volume)),
    })
}

fn fsck(shoal: &Path, volume: &Path) -> Result<(), String> {
    let checked = Command::new(shoal).arg("fsck").arg(volume).output();
    let checked = checked.map_err(|e| format!("{}: {e}", shoal.display()))?;
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match checked.status.success() {
        true => Ok(()),
        false => Err(format!("fsck:\n{}{}", said(&checked.stdout), said(&checked.stderr))),
    }
}
