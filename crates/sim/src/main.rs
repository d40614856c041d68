//! The command `shoal-sim`, called by `cargo xtask sim`.

use std::process::ExitCode;

fn main() -> ExitCode {
    match shoal_sim::cli::parse(std::env::args().skip(1)) {
        Ok(arguments) if shoal_sim::cli::cli(arguments) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::from(2)
        }
    }
}
