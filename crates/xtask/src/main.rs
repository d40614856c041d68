//! `cargo xtask …`: one command for everything that a contributor runs beside `cargo` itself.

use clap::{Args, Parser, Subcommand};
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use xtask::{api, checks_cost, format_doc, ladder, mutate, repository::Repository, rules};

/// Everything that a contributor runs beside cargo itself
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Check the house rules (also run by cargo test)
    Tidy,
    /// Write the ladder of crates in ARCHITECTURE.md
    Ladder(Check),
    /// Write the byte tables in docs/on-disk-format.md
    FormatDoc(Check),
    /// Write the public API of the library in docs/public-api.txt
    Api(Check),
    /// Make the frozen images of this version of the format; with --check, only see that each comes
    /// out the same twice
    Freeze(Check),
    /// Change every declaration of the format in one place, and see whether the golden bytes notice
    MutateFormat {
        /// Only every N-th change
        #[arg(long, value_name = "N", default_value_t = 1)]
        step: usize,
    },
    /// Run the simulation in release mode
    Sim(Sim),
    /// Run every short sequence of operations, crashed everywhere
    Exhaustive(Rest),
    /// Look for an order of what several threads do to the same names
    Linear(Rest),
    /// Use a mount, kill its server, check, compare; again and again
    Soak(Rest),
    /// Kill the server of a mount, or replace it, while programs that know each result work on it
    Kills {
        /// Number of kills
        #[arg(long, value_name = "N", default_value_t = 1000)]
        rounds: u64,
    },
    /// Measure Shoal beside other filesystems, and write the report (--quick, --full, --help); or
    /// run one workload of shoal bench, or a study that no release has
    Lab(Rest),
    /// Time creates with the checks of our own code and without
    ChecksCost {
        /// Rounds of both
        #[arg(long, value_name = "N", default_value_t = checks_cost::ROUNDS)]
        rounds: usize,
    },
    /// Run scripts/tour.sh
    Tour(Rest),
    /// Run .ci/run, or the stages that are named
    Ci(Rest),
}

#[derive(Args)]
struct Check {
    /// Change nothing, and fail if something would
    #[arg(long)]
    check: bool,
}

#[derive(Args)]
struct Rest {
    /// Arguments of the program that is run; `-- --help` lists them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
    rest: Vec<OsString>,
}

#[derive(Args)]
struct Sim {
    /// Run whole volumes with their threads under a scheduler
    #[arg(long)]
    scheduled: bool,
    /// Run what the tests run of that
    #[arg(long, requires = "scheduled")]
    test: bool,
    #[command(flatten)]
    rest: Rest,
}

fn main() -> ExitCode {
    match run(Cli::parse().task) {
        Ok(code) => code,
        Err(message) => {
            eprintln!("xtask: {message}");
            ExitCode::from(2)
        }
    }
}

fn run(task: Task) -> Result<ExitCode, String> {
    let repository = Repository::find()?;
    let root = repository.root();
    match task {
        Task::Tidy => {
            let problems = rules::check_all(&repository)?;
            let mut text: String = problems.iter().map(|problem| format!("{problem}\n")).collect();
            text.push_str(&format!("tidy: {} problems\n", problems.len()));
            // Whoever reads may have seen enough.
            let _ = std::io::stdout().write_all(text.as_bytes());
            Ok(ExitCode::from(u8::from(!problems.is_empty())))
        }
        Task::Ladder(Check { check }) => {
            done("ARCHITECTURE.md", ladder::refresh(&repository, check)?)
        }
        Task::FormatDoc(Check { check }) => {
            done(format_doc::PATH, format_doc::refresh(&repository, check)?)
        }
        Task::Api(Check { check }) => done(api::PATH, api::refresh(&repository, check)?),
        Task::Freeze(Check { check }) => freeze(root, check),
        Task::MutateFormat { step } => {
            Ok(ExitCode::from(u8::from(!mutate::run(&repository, step)?)))
        }
        Task::Sim(Sim { scheduled: true, test, rest }) => scheduled(root, test, &rest),
        Task::Sim(Sim { rest, .. }) => simulator(root, "", &rest),
        Task::Exhaustive(rest) => simulator(root, "exhaustive", &rest),
        Task::Linear(rest) => simulator(root, "linear", &rest),
        Task::Kills { rounds } => {
            let words = "test --quiet --package shoal-cli --test it -- --nocapture";
            let mut command = cargo_command(root, words);
            command.arg("keeper::programs_go_on").env("SHOAL_KEEPER_ROUNDS", rounds.to_string());
            finish(command)
        }
        Task::Soak(rest) => {
            // The workers are the simulator's, the mount is that of the command.
            let build = "build --quiet --release --package shoal-cli";
            match cargo(root, build, &Rest { rest: Vec::new() })? {
                ExitCode::SUCCESS => simulator(root, "soak", &rest),
                code => Ok(code),
            }
        }
        Task::Lab(rest) => lab(root, rest),
        Task::ChecksCost { rounds } => checks_cost::run(root, rounds).map(|()| ExitCode::SUCCESS),
        Task::Tour(rest) => start(root, "scripts/tour.sh", &rest),
        Task::Ci(rest) => start(root, ".ci/run", &rest),
    }
}

/// Makes the frozen images: the ignored test of the program that reads them.
fn freeze(root: &Path, check: bool) -> Result<ExitCode, String> {
    let words = "test --quiet --package shoal-sim --test it frozen:: -- --ignored --nocapture";
    let mut command = cargo_command(root, words);
    command.env("FROZEN", if check { "check" } else { "write" });
    finish(command)
}

/// Builds the programs of the laboratory, and starts it; or only the one with the studies.
fn lab(root: &Path, mut rest: Rest) -> Result<ExitCode, String> {
    const TASKS: [&str; 6] = ["run", "report", "compare", "agreement", "tools", "instructions"];
    let first = rest.rest.first().map(|word| word.to_string_lossy().into_owned());
    let is_option = first.as_ref().is_none_or(|word| word.starts_with('-'));
    let studies = "--package shoal-bench --features lab --bin shoal-lab";
    if !is_option && !TASKS.contains(&first.as_deref().unwrap_or_default()) {
        return cargo(root, &format!("run --quiet --release {studies} --"), &rest);
    }
    if is_option {
        rest.rest.insert(0, "run".into());
    }
    // One at a time: together, the command would have the features of the studies.
    let none = Rest { rest: Vec::new() };
    for what in
        ["--package shoal-cli", studies, "--package shoal-peers", "--package shoal-laboratory"]
    {
        let code = cargo(root, &format!("build --quiet --release {what}"), &none)?;
        if code != ExitCode::SUCCESS {
            return Ok(code);
        }
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or("target".into(), PathBuf::from);
    let program = root.join(target).join("release/laboratory");
    let mut command = Command::new(&program);
    command.args(&rest.rest).current_dir(root);
    // In the place of this process: a signal that ends a run reaches it.
    Err(format!("{}: {}", program.display(), command.exec()))
}

/// Runs the simulator, which is of use only with optimisation.
fn simulator(root: &Path, kind: &str, rest: &Rest) -> Result<ExitCode, String> {
    cargo(root, &format!("run --quiet --release --package shoal-sim -- {kind}"), rest)
}

/// Runs the simulator, or its tests, with a scheduler's locks, atomics and threads in place of the
/// real ones. The tests are built as all tests are: only crates with the feature are built anew.
fn scheduled(root: &Path, test: bool, rest: &Rest) -> Result<ExitCode, String> {
    let words = match test {
        true => "test --quiet --workspace --features shoal-sim/scheduled --test scheduled --",
        false => {
            "run --quiet --profile scheduled --package shoal-sim --features scheduled -- scheduled"
        }
    };
    cargo(root, words, rest)
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

fn cargo_command(root: &Path, words: &str) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(words.split_whitespace()).current_dir(root);
    command
}

fn cargo(root: &Path, words: &str, rest: &Rest) -> Result<ExitCode, String> {
    let mut command = cargo_command(root, words);
    command.args(&rest.rest);
    finish(command)
}

fn start(root: &Path, program: &str, rest: &Rest) -> Result<ExitCode, String> {
    let mut command = Command::new(root.join(program));
    command.args(&rest.rest).current_dir(root);
    finish(command)
}

fn finish(mut command: Command) -> Result<ExitCode, String> {
    let program = command.get_program().display().to_string();
    let status = command.status().map_err(|e| format!("{program}: {e}"))?;
    Ok(ExitCode::from(u8::try_from(status.code().unwrap_or(1)).unwrap_or(1)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn read(line: &str) -> Result<Task, clap::Error> {
        let words = line.split_whitespace();
        Cli::try_parse_from(std::iter::once("xtask").chain(words)).map(|cli| cli.task)
    }

    #[test]
    fn what_follows_goes_to_the_program() {
        Cli::command().debug_assert();
        for (line, is_scheduled, is_test, expected) in [
            ("sim --seed 1 --seeds 100", false, false, "--seed 1 --seeds 100"),
            ("sim --profile adversary --help", false, false, "--profile adversary --help"),
            ("sim -- --help", false, false, "--help"),
            ("sim --scheduled --seed 1 --seconds 60", true, false, "--seed 1 --seconds 60"),
            ("sim --scheduled --test --nocapture", true, true, "--nocapture"),
            ("sim --scheduled --test", true, true, ""),
        ] {
            let Ok(Task::Sim(sim)) = read(line) else { panic!("{line}") };
            assert_eq!((sim.scheduled, sim.test), (is_scheduled, is_test), "{line}");
            assert_eq!(sim.rest.rest.join(" ".as_ref()), *expected, "{line}");
        }
        for line in
            ["exhaustive --threads 2", "soak --minutes 2", "lab create --sample 1", "tour -x"]
        {
            read(line).expect(line);
        }
    }

    #[test]
    fn other_options_are_errors() {
        for line in ["tidy --check", "tidy x", "ladder --chekc", "mutate-format --step x", "api x"]
        {
            assert!(read(line).is_err(), "{line}");
        }
        for line in ["", "nothing", "sim --test", "checks-cost --rounds", "freeze --step 3"] {
            assert!(read(line).is_err(), "{line}");
        }
        for line in
            ["ladder --check", "mutate-format --step 50", "checks-cost --rounds 3", "ci lints"]
        {
            read(line).expect(line);
        }
    }
}
