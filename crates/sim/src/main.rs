//! The command `shoal-sim`, called by `cargo xtask sim`, by `cargo xtask exhaustive` and the like.

use clap::Parser;
use shoal_sim::args::Cli;
use std::process::ExitCode;

fn main() -> ExitCode {
    if Cli::parse().run() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
