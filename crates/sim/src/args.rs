//! The command line of `shoal-sim`: one parser for all kinds of runs.

use crate::runner::bucket;
use crate::{cli, exhaustive, linear, scale, soak};
use clap::{Parser, Subcommand};

/// Simulation of Shoal: everything random comes from a seed
#[derive(Parser, Clone, Debug)]
#[command(name = "shoal-sim", args_conflicts_with_subcommands = true, max_term_width = 100)]
pub struct Cli {
    /// Other kinds of runs
    #[command(subcommand)]
    pub kind: Option<Kind>,
    /// Those of runs of one thread
    #[command(flatten)]
    pub simulation: cli::Arguments,
}

/// Kinds of runs beside those of one thread with crashes.
#[derive(Subcommand, Clone, Debug)]
pub enum Kind {
    /// Run volumes in a bucket whose store misbehaves, one owner after the other
    Bucket(bucket::cli::Arguments),
    /// Run every short sequence of operations, crashed everywhere
    Exhaustive(exhaustive::cli::Arguments),
    /// Look for an order of what several threads do to the same names
    Linear(linear::cli::Arguments),
    /// Run whole volumes with their threads under a scheduler
    #[cfg(feature = "scheduled")]
    Scheduled(crate::seeds::Seeds),
    /// Spread a namespace of many subvolumes over many machines, in a model
    Scale(scale::Arguments),
    /// Use a mount, kill its server, check, compare; again and again
    Soak(soak::cli::Arguments),
}

impl Cli {
    /// Does it. Returns whether all was well.
    pub fn run(self) -> bool {
        match self.kind {
            None => cli::cli(self.simulation),
            Some(Kind::Bucket(arguments)) => bucket::cli::cli(&arguments),
            Some(Kind::Exhaustive(arguments)) => exhaustive::cli::cli(&arguments),
            Some(Kind::Linear(arguments)) => linear::cli::cli(&arguments),
            #[cfg(feature = "scheduled")]
            Some(Kind::Scheduled(seeds)) => crate::scheduled::cli::cli(seeds),
            Some(Kind::Scale(arguments)) => scale::cli(&arguments),
            Some(Kind::Soak(arguments)) => soak::cli::cli(&arguments),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;
    use std::time::Instant;

    fn read(line: &str) -> Result<Cli, String> {
        let words = std::iter::once("shoal-sim").chain(line.split_whitespace());
        Cli::try_parse_from(words).map_err(|e| e.to_string())
    }

    #[test]
    fn arguments_are_read() {
        Cli::command().debug_assert();
        let simulation = read("--seed 0x7 --ops 50 --threads 2").expect("fine").simulation;
        assert_eq!((simulation.seeds.seed, simulation.ops, simulation.threads), (7, 50, 2));
        let chosen = read("--profile adversary").expect("fine").simulation.profile;
        assert_eq!(chosen.map(|p| p.name), Some("adversary"));
        for wrong in ["--seed", "--speed 3", "--seed x", "--profile x", "linear --depth 3"] {
            read(wrong).expect_err(wrong);
        }
        for wrong in ["exhaustive --length 3", "exhaustive --only x", "soak --hours 3"] {
            read(wrong).expect_err(wrong);
        }
        for right in [
            "bucket --seed 7 --seeds 3 --ops 50",
            "linear --seed 7 --seconds 3 --directory /x",
            "exhaustive --length 1 --threads 2 --mode small --only 3n-4s@5",
            "soak --minutes 2 --rounds 7 --seed 3",
        ] {
            read(right).expect(right);
        }
    }

    #[test]
    fn a_time_lifts_the_limit_of_seeds() {
        let seeds = |line: &str| read(line).expect("fine").simulation.seeds;
        assert_eq!(seeds("").count(5), 5);
        assert_eq!(seeds("--seconds 3").count(5), u64::MAX);
        assert_eq!(seeds("--seconds 3 --seeds 9").count(5), 9);
        assert!(seeds("--seconds 0").is_over(Instant::now()));
        assert!(!seeds("").is_over(Instant::now()));
    }
}
