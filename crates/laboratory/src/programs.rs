//! Measured programs: their command lines, their time limits, the lines that they print.

use crate::error::{LabError, Result};
use crate::experiments::{Labels, Measure, Program};
use crate::guard;
use crate::interrupt;
use crate::machine::Now;
use crate::others::Before;
use crate::place::{Place, Ready};
use crate::process;
use crate::raw::Line;
use crate::systems::System;
use serde_json::{Map, Value, json};
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The programs of a run.
#[derive(Clone, Debug)]
pub(crate) struct Programs {
    /// The command `shoal`.
    pub shoal: PathBuf,
    /// The program `shoal-lab`, with the studies.
    pub studies: PathBuf,
    /// The program `shoal-peers`, with the embedded databases.
    pub peers: PathBuf,
}

impl Programs {
    /// Returns those that were built with this one, from the folder that it is in.
    ///
    /// # Errors
    /// One that is missing there.
    pub(crate) fn beside_this() -> Result<Programs> {
        let this = this_program()?;
        let find = |name: &str| {
            let path = this.with_file_name(name);
            let remedy = "it is not there: cargo xtask lab builds it";
            let is_there = path.is_file();
            is_there.then_some(path).ok_or_else(|| LabError::failed("program", name, remedy))
        };
        Ok(Programs {
            shoal: find("shoal")?,
            studies: find("shoal-lab")?,
            peers: find("shoal-peers")?,
        })
    }
}

/// Time for a guard to kill its program.
const PATIENCE: Duration = Duration::from_secs(2);

/// Workloads whose processor time is that of their server as well: they prepare nothing that it
/// has to do too.
const NOTHING_BEFORE: [&str; 3] = ["create", "write-small", "append"];

/// The measurement's name in raw files: its system, and the command with which it is made alone.
pub(crate) fn describe(measure: &Measure) -> String {
    let program = match measure.program {
        Program::Bench => "shoal bench",
        Program::Studies => "shoal-lab",
        Program::Tools => "laboratory tools",
        Program::Instructions => "laboratory instructions",
        Program::Peers => "shoal-peers",
        Program::Cargo => "cargo",
    };
    format!("{}: {program} {}", measure.system.name(), measure.args)
}

/// The reason why a measurement's programs cannot run here, if there is one.
pub(crate) fn why_not(measure: &Measure) -> Option<String> {
    let word = measure.args.split(' ').next().unwrap_or_default();
    let needed: &[(&str, &str)] = match (measure.program, word) {
        (Program::Tools, "calls") => &[("strace", "strace"), ("rsync", "rsync")],
        (Program::Tools, "programs") => &[("fs_mark", "fsmark"), ("rsync", "rsync")],
        (Program::Tools, "trees") => &[("rsync", "rsync")],
        (Program::Tools, "fs-mark") => &[("fs_mark", "fsmark")],
        (Program::Instructions, _) => &[("valgrind", "valgrind")],
        _ => &[],
    };
    let (program, package) = needed.iter().find(|(program, _)| !process::is_installed(program))?;
    Some(format!("{program} is not installed (apt-get install {package})"))
}

/// Makes a measurement on a system that is ready. Returns its lines.
pub(crate) fn run(
    measure: &Measure,
    round: u32,
    programs: &Programs,
    place: &Place,
    limit: Duration,
) -> Result<Vec<Line>> {
    let ready = place.up(measure)?;
    let now = Now::here();
    let others = Before::now();
    let before = ready.server_seconds();
    let command = command(measure, programs, place, &ready)?;
    let name = process::name_of(&command);
    let text = output(guard::around(&this_program()?, &command), &name, limit)?;
    let server = ready.server_seconds() - before;
    let now = Now { others: Some((others.others() * 1e3).round() / 1e3), ..now };
    let mut results = Vec::new();
    for line in text.lines().filter(|line| line.starts_with('{')) {
        let mut parsed: Map<String, Value> = serde_json::from_str(line)
            .map_err(|e| LabError::failed("reading what was printed by", describe(measure), e))?;
        // It names a folder of this run, which is gone after it.
        parsed.remove("target");
        results.push(parsed);
    }
    if measure.system.has_server() {
        results.iter_mut().for_each(|result| of_server(measure, result, server));
    }
    let lines = label(measure, results, |(system, case), result| Line {
        system,
        case,
        round,
        command: describe(measure),
        now,
        result,
    });
    match lines.is_empty() {
        true => Err(LabError::failed("measuring", describe(measure), "it printed no result")),
        false => Ok(lines),
    }
}

/// Adds the processor time of a mount's server, or leaves the time out where the server's is also
/// for preparations.
fn of_server(measure: &Measure, result: &mut Map<String, Value>, server: f64) {
    let word = measure.args.split(' ').next().unwrap_or_default();
    let client = result.get("cpu_seconds").and_then(Value::as_f64);
    if matches!(measure.labels, Labels::Whole) && NOTHING_BEFORE.contains(&word) {
        result.insert("server_cpu_seconds".into(), json!(server));
        if let Some(client) = client {
            result.insert("cpu_seconds".into(), json!(client + server));
        }
    } else {
        result.remove("cpu_seconds");
        result.insert("client_cpu_seconds".into(), json!(client));
    }
}

/// Names what each result is about.
fn label(
    measure: &Measure,
    results: Vec<Map<String, Value>>,
    line: impl Fn((String, String), Map<String, Value>) -> Line,
) -> Vec<Line> {
    let system = measure.system.name();
    let word = |result: &Map<String, Value>, field: &str| match result.get(field) {
        Some(Value::String(text)) => Some(text.clone()),
        Some(Value::Number(number)) => Some(number.to_string()),
        _ => None,
    };
    let names = |result: &Map<String, Value>| match measure.labels {
        Labels::Whole => Some((system.to_owned(), measure.case.clone())),
        Labels::Settings(setting, case) => {
            Some((format!("Shoal, {}", word(result, setting)?), word(result, case)?))
        }
        Labels::Fields(of_system, case) => Some((word(result, of_system)?, word(result, case)?)),
        Labels::Rounds => {
            let round = result.get("round").and_then(Value::as_u64)?;
            Some((system.to_owned(), (round + 1).to_string()))
        }
        Labels::Cases => {
            let own = word(result, "by").as_deref() == Some("shoal");
            let by = if own { ", its own tools" } else { "" };
            Some((format!("{system}{by}"), word(result, "case")?))
        }
    };
    let results = match measure.labels {
        // Lines of single rounds come before that of the whole.
        Labels::Whole => results.into_iter().next_back().into_iter().collect(),
        _ => results,
    };
    let named = results.into_iter().filter_map(|result| Some((names(&result)?, result)));
    named.map(|(names, result)| line(names, result)).collect()
}

/// The command line of a measurement.
fn command(
    measure: &Measure,
    programs: &Programs,
    place: &Place,
    ready: &Ready<'_>,
) -> Result<Command> {
    let mut command = match measure.program {
        Program::Bench => {
            let mut command = Command::new(&programs.shoal);
            command.arg("bench");
            command
        }
        Program::Studies => Command::new(&programs.studies),
        Program::Tools | Program::Instructions => Command::new(this_program()?),
        Program::Peers => Command::new(&programs.peers),
        Program::Cargo => Command::new("cargo"),
    };
    match measure.program {
        Program::Tools => command.arg("tools"),
        Program::Instructions => command.arg("instructions"),
        _ => &mut command,
    };
    command.args(measure.args.split(' '));
    let mut target = ready.target();
    if measure.system == System::Session {
        target = target.replacen("dir:", "session:", 1);
    }
    match measure.program {
        Program::Peers => {
            command.arg("--json").arg("--folder").arg(place.scratch.join("peers"));
        }
        Program::Tools => {
            command.args(["--target", &target]).arg("--shoal").arg(&programs.shoal);
            if measure.system == System::Mount {
                command.arg("--own");
            }
        }
        Program::Instructions => {
            command.args(["--target", &target]).arg("--studies").arg(&programs.studies);
            if place.device.is_some() {
                command.arg("--force");
            }
        }
        Program::Cargo => {}
        Program::Bench | Program::Studies => {
            command.arg("--json");
            if measure.system != System::Memory {
                command.args(["--target", &target]);
            }
            if place.device.is_some() && target.starts_with("vol:") {
                command.arg("--force");
            }
        }
    }
    Ok(command)
}

fn this_program() -> Result<PathBuf> {
    std::env::current_exe().map_err(|e| LabError::failed("finding", "this program", e))
}

/// Runs a program under its guard to its end, but no longer than `limit`, and not after a signal
/// that ends the run. Returns what it printed.
fn output(mut command: Command, name: &str, limit: Duration) -> Result<String> {
    let failed = |why: String| LabError::failed("running", name, why);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // A signal of the terminal is for the run alone, which then ends this.
    command.process_group(0);
    let mut child = command.spawn().map_err(|e| failed(e.to_string()))?;
    let (said, complained) = (reader(child.stdout.take()), reader(child.stderr.take()));
    let end = wait(&mut child, limit).map_err(|e| failed(e.to_string()))?;
    let [said, complained] = [said, complained].map(|thread| thread.join().unwrap_or_default());
    match end {
        End::Well => {
            // Cases that were left out.
            if !complained.trim().is_empty() {
                eprintln!("laboratory: {name}: {}", complained.trim());
            }
            Ok(said)
        }
        End::Badly => Err(failed(complained.trim().to_owned())),
        End::Late => Err(failed(format!("it was stopped after {} s", limit.as_secs()))),
        End::Interrupted => Err(failed("interrupted".to_owned())),
    }
}

/// Reads all of a pipe, so that the program never waits for a reader.
fn reader(pipe: Option<impl Read + Send + 'static>) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // What was read until an error is better than nothing.
        let _end = pipe.map(|mut pipe| pipe.read_to_end(&mut bytes));
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// How a program ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Well,
    Badly,
    /// It was stopped at its time limit.
    Late,
    /// It was stopped because the run is.
    Interrupted,
}

/// Waits for the end of a program under its guard, or stops it.
fn wait(child: &mut Child, limit: Duration) -> std::io::Result<End> {
    let deadline = Instant::now() + limit;
    let mut why = None;
    while why.is_none() {
        match child.try_wait()? {
            Some(status) => return Ok(if status.success() { End::Well } else { End::Badly }),
            None if interrupt::pending().is_some() => why = Some(End::Interrupted),
            None if Instant::now() >= deadline => why = Some(End::Late),
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    }
    // The guard kills all processes of the program when this closes.
    drop(child.stdin.take());
    let patience = Instant::now() + PATIENCE;
    while child.try_wait()?.is_none() {
        if Instant::now() >= patience {
            child.kill()?;
            child.wait()?;
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(why.unwrap_or(End::Badly))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measure(system: System, labels: Labels, args: &str) -> Measure {
        let (program, case) = (Program::Bench, "create".to_owned());
        let args = args.to_owned();
        Measure { system, case, program, args, labels, size: None, on_disk: false }
    }

    fn labelled(measure: &Measure, text: &str) -> Vec<(String, String)> {
        let results = text.lines().map(|line| serde_json::from_str(line).expect("an object"));
        let line = |(system, case), result| Line {
            system,
            case,
            round: 0,
            command: describe(measure),
            now: Now { load: 0.0, mhz: 0.0, others: None },
            result,
        };
        let lines = label(measure, results.collect(), line);
        lines.into_iter().map(|line| (line.system, line.case)).collect()
    }

    #[test]
    fn results_are_named_by_their_fields() {
        let text = "{\"round\":0,\"parents\":\"off\",\"by\":\"usual\",\"case\":\"du\",\"n\":7}\n\
                    {\"round\":1,\"parents\":\"on\",\"by\":\"shoal\",\"case\":\"ls\",\"n\":8}\n\
                    {\"ops\":1}";
        let pairs = |labels, system| {
            let names = labelled(&measure(system, labels, "create"), text);
            names.iter().map(|(a, b)| format!("{a}/{b}")).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(pairs(Labels::Whole, System::Xfs), "XFS/create");
        assert_eq!(pairs(Labels::Rounds, System::Xfs), "XFS/1 XFS/2");
        assert_eq!(
            pairs(Labels::Settings("parents", "n"), System::Library),
            "Shoal, off/7 Shoal, on/8"
        );
        assert_eq!(pairs(Labels::Fields("parents", "case"), System::Memory), "off/du on/ls");
        assert_eq!(pairs(Labels::Cases, System::Ext4), "ext4/du ext4, its own tools/ls");
    }

    #[test]
    fn the_time_of_a_server_is_counted_or_left_out() {
        let result = || serde_json::from_str("{\"cpu_seconds\":1.5}").expect("an object");
        let of = |args: &str, result: &mut Map<String, Value>| {
            of_server(&measure(System::Mount, Labels::Whole, args), result, 0.25);
        };
        let mut create = result();
        of("create --files 5", &mut create);
        assert_eq!(create["cpu_seconds"], 1.75);
        let mut unlink = result();
        of("unlink --files 5", &mut unlink);
        assert!(!unlink.contains_key("cpu_seconds") && unlink["client_cpu_seconds"] == 1.5);
    }

    #[test]
    fn a_program_that_hangs_is_stopped() {
        let mut command = Command::new("sleep");
        command.arg("60");
        let error = output(command, "sleep", Duration::from_millis(50)).expect_err("stopped");
        assert!(error.to_string().contains("stopped after 0 s"), "{error}");
        let mut command = Command::new("sh");
        command.args(["-c", "echo reason >&2; exit 3"]);
        let error = output(command, "sh", Duration::from_secs(60)).expect_err("failed");
        assert!(error.to_string().ends_with("reason"), "{error}");
    }
}
