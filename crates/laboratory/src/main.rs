//! `laboratory`: runs the experiments on Shoal and on the filesystems beside it, and writes the
//! report of them. `cargo xtask lab` builds all programs that it needs, and starts it.
//!
//! An experiment ([`experiments`]) is a list of commands, each on one system ([`systems`]), which
//! is made for it ([`place`]). A run ([`runner`]) repeats them round by round, systems in turns,
//! and keeps every line that they print ([`raw`]). A report ([`report`]) is made of these lines
//! alone.

mod error;
mod interrupt;
mod plan;
mod random;
mod sample;
mod turn;

mod wakes;

mod machine;

mod device;
mod process;
mod rank;
mod raw;
mod systems;

mod experiments;
mod guard;
mod others;

mod place;

mod compare;
mod instructions;
mod programs;
mod report;
mod tools;

mod runner;

use clap::{Parser, Subcommand};
use error::Result;
use std::path::PathBuf;
use std::process::ExitCode;

/// Experiments on Shoal and on other filesystems, and the report of them
#[derive(Parser)]
#[command(name = "laboratory", max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Make the measurements that a run still lacks, then its report
    Run(runner::Args),
    /// Write the report of a run again, from its raw files
    Report(report::Args),
    /// Say which figures of two runs differ by more than their noise
    ///
    /// A run is a file of lines as --json prints them, or a folder of raw files, of at least five
    /// rounds or calls. The test is that of Mann and Whitney; a probability below 0.01 is a
    /// difference, so one of a hundred figures that are the same is called different.
    Compare {
        /// The run that the other one is compared with
        a: PathBuf,
        /// The other run
        b: PathBuf,
    },
    /// Say how far the reports of two runs agree: medians and spreads of every number they show
    Agreement(report::agreement::Args),
    /// Measure programs that people use, on a mounted directory
    Tools(tools::Args),
    /// Count the instructions of a call by valgrind
    Instructions(instructions::Args),
    /// Run a program that ends with the run that measures it
    #[command(hide = true)]
    Guard(guard::Args),
}

fn main() -> ExitCode {
    match run(Cli::parse().task) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("laboratory: {error}");
            ExitCode::from(interrupt::pending().unwrap_or(2))
        }
    }
}

fn run(task: Task) -> Result<ExitCode> {
    let done = match task {
        Task::Run(args) => runner::run(&args),
        Task::Report(args) => report::run(&args),
        Task::Compare { a, b } => compare::compare(&a, &b, &mut std::io::stdout().lock()).map(drop),
        Task::Agreement(args) => report::agreement::run(&args, &mut std::io::stdout().lock()),
        Task::Tools(args) => tools::run(&args),
        Task::Instructions(args) => instructions::run(&args),
        Task::Guard(args) => return guard::run(&args),
    };
    done.map(|()| ExitCode::SUCCESS)
}
