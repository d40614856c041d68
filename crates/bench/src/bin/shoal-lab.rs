//! `shoal-lab`: the workloads of `shoal bench`, and studies that only those who work on Shoal need.

use clap::Parser;
use std::process::ExitCode;

/// Workloads of `shoal bench`, and studies of how Shoal is made
#[derive(Parser)]
struct Command {
    #[command(flatten)]
    args: shoal_bench::Args,
}

fn main() -> ExitCode {
    match shoal_bench::run(Command::parse().args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("shoal-lab: {error}");
            ExitCode::FAILURE
        }
    }
}
