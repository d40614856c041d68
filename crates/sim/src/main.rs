//! The command `shoal-sim`, called by `cargo xtask sim`, and by `cargo xtask exhaustive`.

use shoal_sim::{cli, exhaustive};
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1).peekable();
    let done = match words.next_if(|word| word == "exhaustive") {
        Some(_) => exhaustive::cli::parse(words).map(|a| exhaustive::cli::cli(&a)),
        None => cli::parse(words).map(cli::cli),
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
