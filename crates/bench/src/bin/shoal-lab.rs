//! `shoal-lab`: the workloads of `shoal bench`, and studies that only those who work on Shoal need.

use clap::{Parser, Subcommand};
use shoal_bench::BenchError;
use std::path::PathBuf;
use std::process::ExitCode;

/// Workloads of `shoal bench`, and studies of how Shoal is made
#[derive(Parser)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
struct Command {
    #[command(subcommand)]
    study: Option<Study>,
    #[command(flatten)]
    args: Option<shoal_bench::Args>,
}

#[derive(Subcommand)]
enum Study {
    /// Say which figures of two runs differ by more than their noise
    ///
    /// A run is a file of lines as --json prints them, of at least five rounds or calls. The test
    /// is that of Mann and Whitney; a probability below 0.01 is a difference.
    Compare {
        /// The run that the other one is compared with
        a: PathBuf,
        /// The other run
        b: PathBuf,
    },
}

fn main() -> ExitCode {
    match run(Command::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("shoal-lab: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<(), BenchError> {
    if let Some(Study::Compare { a, b }) = command.study {
        return shoal_bench::compare(&a, &b, &mut std::io::stdout().lock()).map(drop);
    }
    match command.args {
        Some(args) => shoal_bench::run(args),
        None => Err(BenchError::new("name a workload (see --help)")),
    }
}
