//! Cost of the checks of our own code: `shoal bench create` with them and without, in turns.

use std::path::Path;
use std::process::Command;

/// Rounds, unless told: many short ones, of which a shared machine disturbs only some.
pub const ROUNDS: usize = 41;
/// Files that each round makes.
const FILES: &str = "500000";

/// One run: nanoseconds a file, by the clock and of processors.
#[derive(Clone, Copy)]
struct Cost {
    elapsed: f64,
    cpu: f64,
}

/// Builds the command twice and runs both in turns; prints the figures of each round, and the
/// medians of the rounds' ratios. That of processor time is the quieter one on a shared machine.
pub fn run(root: &Path, rounds: usize) -> Result<(), String> {
    let on = build(root, "target", "")?;
    let off = build(root, "target/unchecked", "--cfg shoal_unchecked -Coverflow-checks=off")?;
    let mut all = Vec::new();
    for round in 0..rounds.max(1) {
        // Who goes first changes, so that neither always finds the machine as the other left it.
        let first = if round % 2 == 0 { &on } else { &off };
        let second = if round % 2 == 0 { &off } else { &on };
        let (first, second) = (create(first)?, create(second)?);
        let (with, without) = if round % 2 == 0 { (first, second) } else { (second, first) };
        println!(
            "with checks {:4.0} ns a file ({:4.0} of a processor), without {:4.0} ({:4.0})",
            with.elapsed, with.cpu, without.elapsed, without.cpu
        );
        all.push((with.elapsed / without.elapsed, with.cpu / without.cpu));
    }
    let cost =
        |pick: fn(&(f64, f64)) -> f64| (median(all.iter().map(pick).collect()) - 1.0) * 100.0;
    let (elapsed, cpu) = (cost(|r| r.0), cost(|r| r.1));
    println!("the checks cost {elapsed:+.1} % of time, {cpu:+.1} % of processor time (medians)");
    Ok(())
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// Builds the command; where it is.
fn build(root: &Path, target: &str, flags: &str) -> Result<std::path::PathBuf, String> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let target = root.join(target);
    let words = ["build", "--quiet", "--release", "--package", "shoal-cli"];
    let mut command = Command::new(cargo);
    command.args(words).current_dir(root).env("CARGO_TARGET_DIR", &target);
    let status = command.env("RUSTFLAGS", flags).status().map_err(|e| format!("cargo: {e}"))?;
    match status.success() {
        true => Ok(target.join("release/shoal")),
        false => Err("the build failed".into()),
    }
}

/// Makes files with one thread on a new volume in memory.
fn create(shoal: &Path) -> Result<Cost, String> {
    let volume = Path::new("/dev/shm").join(format!("shoal-checks-cost-{}", std::process::id()));
    let mut command = Command::new(shoal);
    command.args(["bench", "create", "--files", FILES, "--json", "--target"]);
    let made = command.arg(format!("vol:{}", volume.display())).output();
    let made = made.map_err(|e| format!("{}: {e}", shoal.display()))?;
    let (said, wrong) =
        (String::from_utf8_lossy(&made.stdout), String::from_utf8_lossy(&made.stderr));
    let whole = said.lines().last().unwrap_or_default();
    let report: serde_json::Value =
        serde_json::from_str(whole).map_err(|e| format!("{}: {e}: {wrong}", shoal.display()))?;
    let figure = |name: &str| report[name].as_f64().ok_or(format!("no {name} in {report}"));
    let each = 1e9 / figure("ops")?;
    Ok(Cost { elapsed: figure("seconds")? * each, cpu: figure("cpu_seconds")? * each })
}
