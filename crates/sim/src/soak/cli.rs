//! The command `cargo xtask soak`.

use super::rounds::{Programs, Soak, Tally};
use super::worker::{Orders, work};
use crate::mounted;
use shoal::{MkfsOptions, mkfs};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const USAGE: &str = "\
usage: soak [--minutes N] [--rounds N] [--seed S] [--directory DIR] [--shoal PROGRAM]

  --minutes N       as long as this (1)
  --rounds N        as many rounds, however long that takes
  --seed S          what the processes do, and when they are killed (1)
  --directory DIR   where the volume and its mount point are made, and removed when all was well
  --shoal PROGRAM   the command shoal (beside this program)";

const VOLUME: u64 = 512 << 20;

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arguments {
    limit: Duration,
    rounds: Option<u64>,
    seed: u64,
    directory: PathBuf,
    shoal: Option<PathBuf>,
}

/// Reads the command line.
pub fn parse(mut words: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let directory = std::env::temp_dir().join(format!("shoal-soak-{}", std::process::id()));
    let limit = Duration::from_secs(60);
    let mut arguments = Arguments { limit, rounds: None, seed: 1, directory, shoal: None };
    while let Some(word) = words.next() {
        let value = words.next().ok_or_else(|| format!("{word}: value missing\n{USAGE}"))?;
        let number = || value.parse().map_err(|_| format!("{word} {value}: not a number\n{USAGE}"));
        match word.as_str() {
            "--minutes" => arguments.limit = Duration::from_secs(60 * number()?),
            "--rounds" => arguments.rounds = Some(number()?),
            "--seed" => arguments.seed = number()?,
            "--directory" => arguments.directory = PathBuf::from(value),
            "--shoal" => arguments.shoal = Some(PathBuf::from(value)),
            _ => return Err(format!("{word}: unknown\n{USAGE}")),
        }
    }
    Ok(arguments)
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
    let Arguments { limit, rounds, seed, directory, .. } = arguments;
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
        None => began.elapsed() < *limit,
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
    let Tally { rounds, kills, early_kills, unmounts, deeds, acknowledged, files, working } = tally;
    format!(
        "{rounds} rounds in {:.1} s: {kills} kills at work, {early_kills} in recovery, {unmounts} \
         unmounts; {deeds} operations ({:.0}/s while mounted for work), {acknowledged} of them \
         acknowledged; {files} acknowledged files verified",
        elapsed.as_secs_f64(),
        *deeds as f64 / working.as_secs_f64().max(0.001),
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
            command.args(["mount", "--foreground", "--report-ready"]).arg(volume).arg(directory);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_read() {
        let words = |text: &str| parse(text.split_whitespace().map(str::to_string));
        let read = words("--minutes 2 --rounds 7 --seed 3").expect("fine");
        let told = (read.limit, read.rounds, read.seed);
        assert_eq!(told, (Duration::from_secs(120), Some(7), 3));
        assert!(words("--hours 3").unwrap_err().contains("unknown"));
    }
}
