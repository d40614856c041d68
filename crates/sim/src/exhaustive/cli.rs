//! The command `cargo xtask exhaustive`.

use super::actions::all;
use super::explore::{Points, explore};
use super::report;
use super::run::{Found, Wanted, run};
use super::sequence::Only;
use super::start::{Mode, Start};
use std::time::{Duration, Instant};

/// Options of exhaustive runs.
#[derive(clap::Args, Clone, Debug)]
pub struct Arguments {
    /// All sequences of up to N operations; 0: none
    #[arg(long, value_name = "N", default_value_t = 2)]
    #[arg(value_parser = clap::value_parser!(u8).range(0..=2))]
    length: u8,
    /// And N sequences of three, chosen by --seed
    #[arg(long, value_name = "N", default_value_t = 0)]
    sample3: u64,
    /// Chooses them
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Stop after N seconds
    #[arg(long, value_name = "N")]
    seconds: Option<u64>,
    /// Threads
    #[arg(long, value_name = "N", default_value_t = 1)]
    threads: usize,
    /// plain, intents, small, eager; otherwise one after the other
    #[arg(long, value_parser = mode)]
    mode: Option<Mode>,
    /// One sequence (12n-40f), or one crash point of it (12n-40f@3)
    #[arg(long, value_name = "ID")]
    only: Option<Only>,
    /// Print the operations with their numbers
    #[arg(long)]
    list: bool,
}

fn mode(name: &str) -> Result<Mode, String> {
    let found = Mode::EACH.iter().find(|(_, known)| *known == name);
    found.map(|(mode, _)| *mode).ok_or_else(|| "no mode is called that".into())
}

impl Arguments {
    fn modes(&self) -> Vec<Mode> {
        self.mode.map_or(Mode::EACH.map(|(mode, _)| mode).into(), |mode| vec![mode])
    }

    fn wanted(&self, began: Instant) -> Wanted {
        Wanted {
            length: usize::from(self.length),
            every: 1,
            sample: self.sample3,
            seed: self.seed,
            limit: self.seconds.map(|all| Duration::from_secs(all).saturating_sub(began.elapsed())),
            threads: self.threads,
        }
    }
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
    let modes = arguments.modes();
    for mode in &modes {
        match of_mode(*mode, &arguments.wanted(began), arguments.only.as_ref()) {
            Ok(found) => all.add(found),
            Err(message) => {
                println!("{message}");
                return false;
            }
        }
    }
    if arguments.only.is_none() && modes.len() > 1 {
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
