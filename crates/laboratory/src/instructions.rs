//! `laboratory instructions`: instructions of each call of the study `parents`, counted by valgrind
//! (callgrind) over all threads of the process, with parent pointers kept in each of three ways.
//!
//! callgrind writes its counts down whenever the study calls its function `boundary`: before and
//! after each phase. A phase includes making everything durable, as its times in the study do.
//! Background threads decide by the clock when they work, so runs differ by a few percent: the
//! median of several is printed, with the smallest and the largest.

use crate::error::{LabError, Result};
use crate::process::Scratch;
use crate::sample::{median, quantile};
use serde_json::{Value, json};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Ways to keep parent pointers, as the study names them.
const SETTINGS: [&str; 3] = ["off", "shortcut", "intents"];

/// Option that makes callgrind write down its counts.
const DUMP: &str = "--dump-before=shoal_bench::lab::parents::boundary*";

/// Command line.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The program `shoal-lab`
    #[arg(long, value_name = "FILE")]
    studies: PathBuf,
    /// Volume of the study, as vol:FILE
    #[arg(long, value_name = "TARGET")]
    target: String,
    /// Files: calls of each kind
    #[arg(long, default_value_t = 4000, value_name = "N")]
    files: u64,
    /// Runs of each setting, of which the medians are printed
    #[arg(long, default_value_t = 3, value_name = "N")]
    rounds: u32,
    /// Overwrite the volume, even if it looks like a filesystem
    #[arg(long)]
    force: bool,
}

/// Counts each setting, and prints a line for each kind of call.
pub(crate) fn run(args: &Args) -> Result<()> {
    let folder = Scratch::new("instructions")?;
    SETTINGS.iter().try_for_each(|setting| rounds(args, setting, folder.path()))
}

/// Counts one setting, as often as wanted.
fn rounds(args: &Args, setting: &str, folder: &Path) -> Result<()> {
    let mut counted: Vec<(Phase, Vec<f64>)> = Vec::new();
    for _ in 0..args.rounds.max(1) {
        for (index, (phase, total)) in count(args, setting, folder)?.into_iter().enumerate() {
            let each = total as f64 / phase.ops as f64;
            match counted.get_mut(index) {
                Some((_, all)) => all.push(each),
                None => counted.push((phase, vec![each])),
            }
        }
    }
    counted.iter().try_for_each(|(phase, each)| print(phase, setting, each))
}

/// Counts one setting once. Returns the instructions of each phase.
fn count(args: &Args, setting: &str, folder: &Path) -> Result<Vec<(Phase, u64)>> {
    let out = folder.join(setting);
    let mut valgrind = Command::new("valgrind");
    valgrind
        .args(["--tool=callgrind", DUMP])
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(&args.studies)
        .args(["parents", "--json", "--setting", setting, "--target", &args.target])
        .args(["--files", &args.files.to_string()])
        .args(args.force.then_some("--force"));
    let output = valgrind.stdin(Stdio::null()).output().map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => {
            LabError::failed("program", "valgrind", "is missing: apt-get install valgrind")
        }
        _ => LabError::failed("starting", "valgrind", e),
    })?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(LabError::failed("valgrind of", args.studies.display(), said));
    }
    let phases = phases(&String::from_utf8_lossy(&output.stdout));
    if phases.is_empty() {
        return Err(LabError::failed("reading", args.studies.display(), "it printed no result"));
    }
    let counted = phases.into_iter().enumerate().map(|(index, phase)| {
        // Dumps are numbered from 1: before the first phase, then two for each.
        let total = total(&folder.join(format!("{setting}.{}", 2 * index + 2)))?;
        Ok((phase, total))
    });
    counted.collect()
}

/// A phase of the study.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Phase {
    workload: String,
    ops: u64,
}

/// Reads the phases from the lines of the study, in their order.
fn phases(text: &str) -> Vec<Phase> {
    let phase = |line: &str| {
        let line: Value = serde_json::from_str(line).ok()?;
        let ops = line.get("ops")?.as_u64().filter(|ops| *ops > 0)?;
        Some(Phase { workload: line.get("workload")?.as_str()?.to_owned(), ops })
    };
    text.lines().filter_map(phase).collect()
}

/// Returns the instructions of a dump.
fn total(path: &Path) -> Result<u64> {
    let failed = |why: &dyn std::fmt::Display| LabError::failed("reading", path.display(), why);
    let text = fs::read(path).map_err(|e| failed(&e))?;
    let sum = totals(&String::from_utf8_lossy(&text));
    sum.ok_or_else(|| failed(&"it has no total of instructions"))
}

/// Returns the number of the event Ir in the line that begins with `totals:`, or if there is none
/// in the one that begins with `summary:`.
fn totals(dump: &str) -> Option<u64> {
    let after = |name: &str| dump.lines().find_map(|line| line.strip_prefix(name));
    let event = after("events:")?.split_whitespace().position(|event| event == "Ir")?;
    let numbers = after("totals:").or_else(|| after("summary:"))?;
    numbers.split_whitespace().nth(event)?.parse().ok()
}

fn print(phase: &Phase, setting: &str, each: &[f64]) -> Result<()> {
    let line = json!({
        "workload": phase.workload,
        "parents": setting,
        "ops": phase.ops,
        "runs": each.len(),
        "instructions": median(each),
        "instructions_min": quantile(each, 0.0),
        "instructions_max": quantile(each, 1.0),
    });
    let mut out = std::io::stdout().lock();
    let printed = writeln!(out, "{line}").and_then(|()| out.flush());
    printed.map_err(|e| LabError::failed("printing", "a result", e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_of_a_dump() {
        let dump = "version: 1\nevents: Ir\nsummary: 763001\n\nfn=(1) main\n7 5\ntotals: 763129\n";
        assert_eq!(totals(dump), Some(763_129));
        assert_eq!(totals("events: Dr Ir\nsummary: 5 7\n"), Some(7));
        let garbage = [
            "",
            "totals:",
            "totals: 5",
            "events: Ir\ntotals: -5",
            "events: Ir\ntotals: ",
            "events: Dr\ntotals: 5",
            "events: Ir\ntotals: 99999999999999999999",
        ];
        for dump in garbage {
            assert_eq!(totals(dump), None, "{dump}");
        }
    }

    #[test]
    fn phases_in_their_order() {
        let text = "{\"workload\":\"create\",\"ops\":5}\n\
                    {\"workload\":\"unlink\",\"ops\":6}\nnoise\n\
                    {\"workload\":7,\"ops\":6}\n{\"workload\":\"x\",\"ops\":0}\n";
        let expected = [("create", 5), ("unlink", 6)]
            .map(|(workload, ops)| Phase { workload: workload.to_owned(), ops });
        assert_eq!(phases(text), expected);
        assert_eq!(phases(""), []);
    }
}
