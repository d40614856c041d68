//! The command `shoal-sim`, called by `cargo xtask sim`, by `cargo xtask exhaustive` and the like.

use shoal_sim::{cli, exhaustive, linear, soak};
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1).peekable();
    let command = words.next_if(|word| !word.starts_with("--"));
    let done = match command.as_deref() {
        None => cli::parse(words).map(cli::cli),
        Some("exhaustive") => exhaustive::cli::parse(words).map(|a| exhaustive::cli::cli(&a)),
        Some("linear") => linear::cli::parse(words).map(|a| linear::cli::cli(&a)),
        #[cfg(shoal_shuttle)]
        Some("scheduled") => {
            shoal_sim::scheduled::cli::parse(words).map(shoal_sim::scheduled::cli::cli)
        }
        Some("soak") => soak::cli::parse(words).map(|a| soak::cli::cli(&a)),
        Some(other) => Err(format!("{other}: unknown")),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::from(2)
        }
    }
}
