//! `shoal-peers`: embedded databases that do what a create of a filesystem does, for comparison
//! with the library of Shoal.
//!
//! The same operation, step by step, on the same key bytes ([`records`]) goes to each engine
//! through one trait ([`engine::Engine`]); [`engines::ENGINES`] is the table of them. An engine
//! is set up as a filesystem would use it: one process, a cache that holds everything, no sync
//! until the end.

mod error;
mod resources;

mod records;

mod engine;

mod engines;

mod verify;

mod create;

#[cfg(test)]
mod tests;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// The same allocator as that of the command `shoal`. It does not serve the engines in C.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Embedded databases that do what a create of a filesystem does
#[derive(Parser)]
#[command(name = "shoal-peers", max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Create files, in directories of 1,000, and check afterwards that they are there
    Create(create::Args),
}

fn main() -> ExitCode {
    let Task::Create(args) = Cli::parse().task;
    match create::run(&args) {
        Ok(line) => {
            line.print(args.json);
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("shoal-peers: {error}");
            ExitCode::from(2)
        }
    }
}
