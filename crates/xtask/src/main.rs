//! `cargo xtask …`: one command for everything that a contributor runs beside `cargo` itself.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use xtask::{checks_cost, format_doc, ladder, mutate, repository::Repository, rules};

const HELP: &str = "\
cargo xtask COMMAND

  tidy                     check the house rules (also run by cargo test)
  ladder [--check]         write, or check, the ladder of crates in ARCHITECTURE.md
  format-doc [--check]     write, or check, the byte tables in docs/on-disk-format.md
  freeze [--check]         make the frozen images of this version of the format; with --check, only
                           see that each comes out the same twice
  mutate-format [--step N] change every declaration of the format in one place, or every N-th, and
                           see whether the golden bytes notice
  sim --seed N [...]       run the simulation in release mode; further options go to it
  sim --scheduled [...]    run whole volumes with threads under a scheduler: --seed, --seeds,
                           --seconds; or --test, what the tests run of it
  exhaustive [...]         run every short sequence of operations, crashed everywhere
  linear [...]             histories of several threads on the same names have an order
  soak [--minutes N] [...] use a mount, kill its server, check, compare; again and again
  checks-cost [--rounds N] time creates with the checks of our own code and without
  tour [...]               run scripts/tour.sh
  ci                       run .ci/run
";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match run(&words) {
        Ok(code) => code,
        Err(message) => {
            eprintln!("xtask: {message}");
            ExitCode::from(2)
        }
    }
}

fn run(words: &[String]) -> Result<ExitCode, String> {
    let repository = Repository::find()?;
    let root = repository.root();
    let (command, rest) = match words.split_first() {
        Some((command, rest)) => (command.as_str(), rest),
        None => ("help", words),
    };
    let check = rest.iter().any(|word| word == "--check");
    match command {
        "tidy" => {
            let problems = rules::check_all(&repository)?;
            let mut text: String = problems.iter().map(|problem| format!("{problem}\n")).collect();
            text.push_str(&format!("tidy: {} problems\n", problems.len()));
            // Whoever reads may have seen enough.
            let _ = std::io::stdout().write_all(text.as_bytes());
            Ok(ExitCode::from(u8::from(!problems.is_empty())))
        }
        "ladder" => done("ARCHITECTURE.md", ladder::refresh(&repository, check)?),
        "format-doc" => done(format_doc::PATH, format_doc::refresh(&repository, check)?),
        "freeze" => freeze(root, check),
        "mutate-format" => {
            let step = match rest {
                [] => 1,
                [word, n] if word == "--step" => n.parse().map_err(|e| format!("{n}: {e}"))?,
                _ => return Err("mutate-format takes --step N".into()),
            };
            Ok(ExitCode::from(u8::from(!mutate::run(&repository, step)?)))
        }
        "sim" if rest.first().is_some_and(|word| word == "--scheduled") => {
            scheduled(root, &rest[1..])
        }
        "sim" => simulator(root, &[], rest),
        "exhaustive" => simulator(root, &["exhaustive"], rest),
        "linear" => simulator(root, &["linear"], rest),
        "soak" => {
            // The workers are the simulator's, the mount is that of the command.
            let code = cargo(root, &["build", "--quiet", "--release", "--package", "shoal-cli"])?;
            if code == ExitCode::SUCCESS { simulator(root, &["soak"], rest) } else { Ok(code) }
        }
        "checks-cost" => checks_cost::run(root, rest).map(|()| ExitCode::SUCCESS),
        "tour" => {
            start(root, "scripts/tour.sh", &rest.iter().map(String::as_str).collect::<Vec<_>>())
        }
        "ci" => start(root, ".ci/run", &[]),
        "help" | "--help" | "-h" => {
            print!("{HELP}");
            Ok(ExitCode::SUCCESS)
        }
        other => Err(format!("no command '{other}'; cargo xtask help lists them")),
    }
}

/// Makes the frozen images: the ignored test of the program that reads them.
fn freeze(root: &Path, check: bool) -> Result<ExitCode, String> {
    let words = "test --quiet --package shoal-sim --test frozen -- --ignored --nocapture";
    let mut command = Command::new(cargo_program());
    command.args(words.split(' ')).current_dir(root);
    command.env("FROZEN", if check { "check" } else { "write" });
    finish("cargo", command)
}

/// Runs the simulator, which is of use only with optimisation.
fn simulator(root: &Path, first: &[&str], rest: &[String]) -> Result<ExitCode, String> {
    let mut words: Vec<&str> = "run --quiet --release --package shoal-sim --".split(' ').collect();
    words.extend(first);
    words.extend(rest.iter().map(String::as_str));
    cargo(root, &words)
}

/// Runs the simulator, or its tests, with a scheduler's locks, atomics and threads in place of the
/// real ones: another build of nearly everything, in a folder of its own.
fn scheduled(root: &Path, rest: &[String]) -> Result<ExitCode, String> {
    let (first, rest) = match rest.split_first() {
        Some((word, rest)) if word == "--test" => {
            ("test --quiet --profile scheduled --package shoal-sim --test scheduled --", rest)
        }
        _ => ("run --quiet --profile scheduled --package shoal-sim -- scheduled", rest),
    };
    let mut words: Vec<&str> = first.split(' ').collect();
    words.extend(rest.iter().map(String::as_str));
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or(root.join("target"), PathBuf::from);
    let mut flags = std::env::var("RUSTFLAGS").unwrap_or_default();
    flags.push_str(" --cfg shoal_shuttle");
    let mut command = Command::new(cargo_program());
    command.args(&words).env("RUSTFLAGS", flags.trim_start());
    command.env("CARGO_TARGET_DIR", target.join("shuttle")).current_dir(root);
    finish("cargo", command)
}

fn cargo_program() -> String {
    std::env::var("CARGO").unwrap_or_else(|_| "cargo".into())
}

fn cargo(root: &Path, words: &[&str]) -> Result<ExitCode, String> {
    start(root, &cargo_program(), words)
}

/// Says whether a generated document was fresh; a stale one fails a check.
fn done(path: &str, fresh: Result<bool, String>) -> Result<ExitCode, String> {
    match fresh {
        Ok(true) => println!("{path} is up to date"),
        Ok(false) => println!("{path} rewritten"),
        Err(stale) => {
            println!("{stale}");
            return Ok(ExitCode::FAILURE);
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn start(root: &Path, program: &str, words: &[&str]) -> Result<ExitCode, String> {
    let program = if program.contains('/') { root.join(program) } else { program.into() };
    let mut command = Command::new(&program);
    command.args(words).current_dir(root);
    finish(&program.display().to_string(), command)
}

fn finish(program: &str, mut command: Command) -> Result<ExitCode, String> {
    let status = command.status().map_err(|e| format!("{program}: {e}"))?;
    Ok(ExitCode::from(u8::try_from(status.code().unwrap_or(1)).unwrap_or(1)))
}
