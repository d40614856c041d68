//! The command `cargo xtask exhaustive`.

use super::actions::all;
use super::explore::{Points, explore};
use super::report;
use super::run::{Found, Wanted, run};
use super::sequence::Only;
use super::start::{Mode, Start};
use std::time::{Duration, Instant};

const USAGE: &str = "\
usage: exhaustive [--length 1|2] [--sample3 N --seed S] [--seconds N] [--threads N]
                  [--mode MODE] [--only ID] [--list]

  --length N     all sequences of up to N operations (2); 0: none
  --sample3 N    and N sequences of three, chosen by --seed
  --seconds N    stop after N seconds
  --threads N    threads (1)
  --mode MODE    plain, intents, small, eager (see `Mode`); otherwise one after the other
  --only ID      one sequence (12n-40f), or one crash point of it (12n-40f@3)
  --list         print the operations with their numbers";

/// What to do.
#[derive(Clone, Debug)]
pub struct Arguments {
    wanted: Wanted,
    modes: Vec<Mode>,
    only: Option<Only>,
    list: bool,
}

/// Reads the command line.
pub fn parse(mut words: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let wanted = Wanted { length: 2, every: 1, sample: 0, seed: 1, limit: None, threads: 1 };
    let modes = Mode::EACH.iter().map(|(mode, _)| *mode).collect();
    let mut arguments = Arguments { wanted, modes, only: None, list: false };
    while let Some(word) = words.next() {
        match word.as_str() {
            "--list" => arguments.list = true,
            _ => {
                let value =
                    words.next().ok_or_else(|| format!("{word}: value missing\n{USAGE}"))?;
                set(&mut arguments, &word, &value)?;
            }
        }
    }
    Ok(arguments)
}

fn set(arguments: &mut Arguments, word: &str, value: &str) -> Result<(), String> {
    if word == "--only" {
        arguments.only = Some(value.parse()?);
        return Ok(());
    }
    if word == "--mode" {
        let mode = Mode::EACH.iter().find(|(_, name)| *name == value);
        let mode = mode.ok_or_else(|| format!("{word} {value}: unknown\n{USAGE}"))?;
        arguments.modes = vec![mode.0];
        return Ok(());
    }
    let number: u64 =
        value.parse().map_err(|_| format!("{word} {value}: not a number\n{USAGE}"))?;
    let wanted = &mut arguments.wanted;
    match word {
        "--length" if number <= 2 => wanted.length = number as usize,
        "--sample3" => wanted.sample = number,
        "--seed" => wanted.seed = number,
        "--seconds" => wanted.limit = Some(Duration::from_secs(number)),
        "--threads" => wanted.threads = number as usize,
        _ => return Err(format!("{word} {value}: unknown\n{USAGE}")),
    }
    Ok(())
}

/// Does it. Returns whether all was well.
pub fn cli(arguments: &Arguments) -> bool {
    if arguments.list {
        for (number, action) in all().iter().enumerate() {
            let ops: Vec<String> = action.ops.iter().map(ToString::to_string).collect();
            println!("{number:4}  {}", ops.join("; "));
        }
        return true;
    }
    let began = Instant::now();
    let mut all = Found { complete: true, ..Found::default() };
    for mode in &arguments.modes {
        let mut wanted = arguments.wanted.clone();
        wanted.limit = wanted.limit.map(|limit| limit.saturating_sub(began.elapsed()));
        match of_mode(*mode, &wanted, arguments.only.as_ref()) {
            Ok(found) => all.add(found),
            Err(message) => {
                println!("{message}");
                return false;
            }
        }
    }
    if arguments.only.is_none() && arguments.modes.len() > 1 {
        println!("all modes:\n{}", report::table(&all));
    }
    all.violations.is_empty()
}

fn of_mode(mode: Mode, wanted: &Wanted, only: Option<&Only>) -> Result<Found, String> {
    let start = Start::new(mode.settings())
        .map_err(|e| format!("the tree to start from cannot be made: {e}"))?;
    let found = match only {
        Some(only) => one(&start, only),
        None => run(&start, wanted, &|found, percent| {
            println!("{:8}{}", mode.name(), report::progress(found, percent));
        }),
    };
    for violation in &found.violations {
        println!("{}", report::violation(&start, violation, mode));
    }
    println!("{}:\n{}", mode.name(), report::table(&found));
    Ok(found)
}

fn one(start: &Start, only: &Only) -> Found {
    let points = only.at.map_or(Points::All, Points::One);
    print!("{}", only.sequence.program());
    let began = Instant::now();
    let mut found = Found { complete: true, ..Found::default() };
    match explore(start, &all(), &only.sequence, points) {
        Ok(counts) => found.counts[only.sequence.0.len().min(3) - 1] = counts,
        Err(violation) => found.violations.push(violation),
    }
    found.elapsed = began.elapsed();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_read() {
        let words = |text: &str| parse(text.split_whitespace().map(str::to_string));
        let read = words("--length 1 --threads 2 --mode small --only 3n-4s@5").unwrap();
        assert_eq!((read.wanted.length, read.wanted.threads), (1, 2));
        assert_eq!(read.modes, [Mode::Small]);
        assert_eq!(read.only.and_then(|only| only.at), Some(5));
        assert!(words("--length 3").unwrap_err().contains("unknown"));
        assert!(words("--seed").unwrap_err().contains("missing"));
        assert!(words("--only x").unwrap_err().contains("not the name"));
    }
}
