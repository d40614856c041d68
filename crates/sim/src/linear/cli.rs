//! The command `cargo xtask linear`.

use super::crew::{self, Crew};
use super::library::{Tally, run};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const USAGE: &str = "\
usage: linear [--seed N] [--seeds COUNT] [--seconds S] [--directory DIR]

  --seed N         first seed (0)
  --seeds COUNT    number of seeds (10000)
  --seconds S      stop after S seconds, whatever --seeds says
  --directory DIR  by system calls of several processes in this directory, not on the library";

/// Seeds between two looks at the time.
const STRIDE: u64 = 4096;

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arguments {
    seed: u64,
    seeds: u64,
    limit: Option<Duration>,
    directory: Option<PathBuf>,
}

/// Reads the command line.
pub fn parse(mut words: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let mut arguments = Arguments { seed: 0, seeds: 10_000, limit: None, directory: None };
    while let Some(word) = words.next() {
        let value = words.next().ok_or_else(|| format!("{word}: value missing\n{USAGE}"))?;
        if word == "--directory" {
            arguments.directory = Some(PathBuf::from(value));
            continue;
        }
        let number: u64 =
            value.parse().map_err(|_| format!("{word} {value}: not a number\n{USAGE}"))?;
        match word.as_str() {
            "--seed" => arguments.seed = number,
            "--seeds" => arguments.seeds = number,
            "--seconds" => {
                (arguments.limit, arguments.seeds) = (Some(Duration::from_secs(number)), u64::MAX);
            }
            _ => return Err(format!("{word}: unknown\n{USAGE}")),
        }
    }
    Ok(arguments)
}

/// Does it. Returns whether all was well.
pub fn cli(arguments: &Arguments) -> bool {
    if crew::asked() {
        return crew::act().inspect_err(|message| eprintln!("{message}")).is_ok();
    }
    match &arguments.directory {
        None => strides(arguments, &mut run),
        Some(directory) => match start(directory) {
            Ok(mut crew) => strides(arguments, &mut |seeds| crew.run(seeds)),
            Err(message) => {
                println!("{message}");
                false
            }
        },
    }
}

/// A crew of this same program.
fn start(directory: &Path) -> Result<Crew, String> {
    let own = std::env::current_exe().map_err(|e| e.to_string())?;
    Crew::start(directory, &|| {
        let mut command = Command::new(&own);
        command.arg("linear");
        command
    })
}

fn strides(
    arguments: &Arguments,
    run: &mut dyn FnMut(Range<u64>) -> Result<Tally, String>,
) -> bool {
    let began = Instant::now();
    let end = arguments.seed.saturating_add(arguments.seeds);
    // A mounted directory is slower.
    let stride = if arguments.directory.is_some() { STRIDE / 16 } else { STRIDE };
    let (mut next, mut total) = (arguments.seed, Tally::default());
    while next < end && arguments.limit.is_none_or(|limit| began.elapsed() < limit) {
        let seeds = next..end.min(next + stride);
        next = seeds.end;
        match run(seeds) {
            Ok(tally) => total += tally,
            Err(message) => {
                println!("{message}");
                return false;
            }
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    let Tally { histories, calls, overlapping, states, early } = total;
    println!(
        "{histories} histories in {seconds:.1} s ({:.0}/s): {calls} calls, {:.0} % of them \
         overlapping with another's; {states} states kept in searches; {early} where attributes \
         showed a change before names did; 0 violations",
        histories as f64 / seconds,
        100.0 * overlapping as f64 / calls.max(1) as f64,
    );
    true
}

impl std::ops::AddAssign for Tally {
    fn add_assign(&mut self, other: Tally) {
        self.histories += other.histories;
        self.calls += other.calls;
        self.overlapping += other.overlapping;
        self.states += other.states;
        self.early += other.early;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_read() {
        let words = |text: &str| parse(text.split_whitespace().map(str::to_string));
        let read = words("--seed 7 --seconds 3").expect("fine");
        assert_eq!((read.seed, read.limit), (7, Some(Duration::from_secs(3))));
        assert!(words("--seed").unwrap_err().contains("missing"));
        assert!(words("--depth 3").unwrap_err().contains("unknown"));
    }
}
