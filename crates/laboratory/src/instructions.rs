//! `laboratory instructions`: instructions of each call of the study `parents`, counted by valgrind
//! (callgrind) over all threads of the process, with parent pointers kept in each of three ways.
//!
//! callgrind writes its counts down whenever the study calls its function `boundary`: before and
//! after each phase. A phase includes making everything durable, as its times in the study do.
//! Background threads decide by the clock when they work, so runs differ by a few percent: the
//! median of several is printed, with the smallest and the largest.
//!
//! The function of a phase makes its calls, in a thread of its own. What it takes, with all that it
//! calls, is therefore the part of the calling thread, without the journal's writer and
//! checkpoints.

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

/// Functions of the study's phases.
const FUNCTIONS: [(&str, &str); 4] = [
    ("create", "shoal_bench::lab::parents::create"),
    ("rename", "shoal_bench::lab::parents::rename"),
    ("rename-other-length", "shoal_bench::lab::parents::rename_other"),
    ("unlink", "shoal_bench::lab::parents::unlink"),
];

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
    let mut counted: Vec<(Phase, Vec<[f64; 2]>)> = Vec::new();
    for _ in 0..args.rounds.max(1) {
        for (index, (phase, counts)) in count(args, setting, folder)?.into_iter().enumerate() {
            let each = counts.map(|count| count as f64 / phase.ops as f64);
            match counted.get_mut(index) {
                Some((_, all)) => all.push(each),
                None => counted.push((phase, vec![each])),
            }
        }
    }
    counted.iter().try_for_each(|(phase, each)| print(phase, setting, each))
}

/// Counts one setting once. Returns the instructions of each phase: of all threads, and of the
/// calls alone.
fn count(args: &Args, setting: &str, folder: &Path) -> Result<Vec<(Phase, [u64; 2])>> {
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
        let counts = counts(&folder.join(format!("{setting}.{}", 2 * index + 2)), &phase)?;
        Ok((phase, counts))
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

/// Returns the instructions of a phase from its dump: all of them, and those of its function.
fn counts(path: &Path, phase: &Phase) -> Result<[u64; 2]> {
    let failed = |why: &dyn std::fmt::Display| LabError::failed("reading", path.display(), why);
    let bytes = fs::read(path).map_err(|e| failed(&e))?;
    let text = String::from_utf8_lossy(&bytes);
    let all = totals(&text).ok_or_else(|| failed(&"it has no total of instructions"))?;
    let function = FUNCTIONS.iter().find(|(workload, _)| *workload == phase.workload);
    let function = function.map_or("", |(_, function)| *function);
    let calls = inclusive(&text, function);
    let calls = calls.ok_or_else(|| failed(&format!("it has no call of {function}")))?;
    Ok([all, calls])
}

/// Returns the number of the event Ir in the line that begins with `totals:`, or if there is none
/// in the one that begins with `summary:`.
fn totals(dump: &str) -> Option<u64> {
    let after = |name: &str| dump.lines().find_map(|line| line.strip_prefix(name));
    let event = after("events:")?.split_whitespace().position(|event| event == "Ir")?;
    let numbers = after("totals:").or_else(|| after("summary:"))?;
    numbers.split_whitespace().nth(event)?.parse().ok()
}

/// Returns the instructions of a function with all that it calls: those of all calls of it, `None`
/// if there are none. A dump gives each name a number the first time, and a call of a function as
/// three lines: its name, `calls=` with how often, and its place with the cost.
fn inclusive(dump: &str, function: &str) -> Option<u64> {
    let after = |name: &str| dump.lines().find_map(|line| line.strip_prefix(name));
    let event = after("events:")?.split_whitespace().position(|event| event == "Ir")?;
    let places = after("positions:").map_or(1, |names| names.split_whitespace().count());
    // Mangled names end in a hash.
    let is_it = |name: &str| {
        name.strip_prefix(function).is_some_and(|rest| rest.is_empty() || rest.starts_with("::h"))
    };
    let (mut wanted, mut callee, mut sum) = (None, None, None);
    let mut lines = dump.lines();
    while let Some(line) = lines.next() {
        if let Some(named) = line.strip_prefix("fn=").or_else(|| line.strip_prefix("cfn=")) {
            let (id, name) = named.split_once(' ').unwrap_or((named, ""));
            if is_it(name) {
                wanted = Some(id);
            }
            callee = line.starts_with('c').then_some(id);
        } else if line.starts_with("calls=") {
            let cost = lines.next()?.split_whitespace().nth(places + event);
            if wanted.is_some() && callee == wanted {
                *sum.get_or_insert(0) += cost?.parse::<u64>().ok()?;
            }
        }
    }
    sum
}

fn print(phase: &Phase, setting: &str, each: &[[f64; 2]]) -> Result<()> {
    let [all, calls]: [Vec<f64>; 2] = [0, 1].map(|at| each.iter().map(|it| it[at]).collect());
    let line = json!({
        "workload": phase.workload,
        "parents": setting,
        "ops": phase.ops,
        "runs": each.len(),
        "instructions": median(&all),
        "instructions_min": quantile(&all, 0.0),
        "instructions_max": quantile(&all, 1.0),
        "call_instructions": median(&calls),
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
    fn a_function_with_all_that_it_calls() {
        let dump = "positions: line\nevents: Ir\nsummary: 900\n\n\
                    fn=(1) run\n7 5\ncfi=(2) a.rs\ncfn=(3) s::create::h0123\ncalls=1 40\n8 700\n\
                    cfn=(4) s::create_other\ncalls=2 60\n+1 90\n\n\
                    fn=(3)\n40 300\ncfn=(5) engine\ncalls=9 1\n* 400\n\n\
                    fn=(6) again\n3 1\ncfn=(3)\ncalls=1 40\n4 11\ntotals: 900\n";
        assert_eq!(inclusive(dump, "s::create"), Some(711));
        assert_eq!(inclusive(dump, "s::create_other"), Some(90));
        let two = dump.replace("line", "instr line").replace("8 700", "0x1 8 700");
        assert_eq!(inclusive(&two.replace("4 11", "0x2 4 11"), "s::create"), Some(711));
        for none in ["s::unlink", "s::creat", "run"] {
            assert_eq!(inclusive(dump, none), None, "{none}");
        }
        assert_eq!(inclusive(&dump.replace("8 700", "8 x"), "s::create"), None);
        assert_eq!(inclusive("cfn=(1) s::create\ncalls=1 1", "s::create"), None);
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
