//! Programs run as children, with their times; lines of results.

use crate::error::{LabError, Result};
use crate::process::{name_of, processor_seconds};
use serde_json::{Map, Value, json};
use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Instant;

/// Times of a program that ended well.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    pub seconds: f64,
    /// User and system time of the program and of its children; in steps of the kernel's ticks.
    pub cpu_seconds: f64,
}

/// Use of a program's standard output.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Output {
    /// Thrown away by the kernel.
    Null,
    /// Read through a pipe and thrown away: tar reads no file if its output is `/dev/null`.
    Pipe,
}

/// Runs a program to its end.
///
/// # Errors
/// It cannot be started, or it fails: then with what it printed on standard error.
pub(crate) fn run(command: &mut Command, output: Output) -> Result<Times> {
    let name = name_of(command);
    let failed = |why: &dyn std::fmt::Display| LabError::failed("running", &name, why);
    let complaints = file_of_errors().map_err(|e| failed(&e))?;
    let mine = complaints.try_clone().map_err(|e| failed(&e))?;
    command.stdin(Stdio::null()).stderr(mine).stdout(match output {
        Output::Null => Stdio::null(),
        Output::Pipe => Stdio::piped(),
    });
    let (start, before) = (Instant::now(), cpu_of_children());
    let mut child = command.spawn().map_err(|e| failed(&e))?;
    let drained = match child.stdout.take() {
        Some(mut pipe) => std::io::copy(&mut pipe, &mut std::io::sink()).map(drop),
        None => Ok(()),
    };
    let status = child.wait().map_err(|e| failed(&e))?;
    let seconds = start.elapsed().as_secs_f64();
    let cpu_seconds = (cpu_of_children() - before).max(0.0);
    drained.map_err(|e| failed(&e))?;
    match status.success() {
        true => Ok(Times { seconds, cpu_seconds }),
        false => {
            let said = said_at_the_end(complaints);
            Err(LabError::failed("running", &name, format!("{status}: {said}")))
        }
    }
}

/// A file without a name for the child's errors: a pipe could fill up while its output is read.
fn file_of_errors() -> std::io::Result<fs::File> {
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    Ok(rustix::fs::memfd_create("shoal-tools", flags)?.into())
}

/// Returns the last lines of the errors.
fn said_at_the_end(mut errors: fs::File) -> String {
    use std::io::{Read, Seek, SeekFrom};
    const MOST: u64 = 1000;
    let end = errors.seek(SeekFrom::End(0)).unwrap_or(0);
    let mut bytes = Vec::new();
    // What cannot be read is missing from a message only.
    let _none = errors
        .seek(SeekFrom::Start(end.saturating_sub(MOST)))
        .and_then(|_| errors.read_to_end(&mut bytes));
    String::from_utf8_lossy(&bytes).trim().to_owned()
}

/// Returns user and system time, in seconds, of all children that have been waited for.
pub(crate) fn cpu_of_children() -> f64 {
    processor_seconds("self")[1]
}

/// Returns user and system time of this process in seconds.
pub(crate) fn cpu_of_self() -> f64 {
    processor_seconds("self")[0]
}

/// Writes everything to the devices, and drops what the kernel has cached of files. The programs
/// themselves are read again, so that no time is for that.
pub(crate) fn drop_caches<'a>(programs: impl IntoIterator<Item = &'a OsStr>) -> Result<()> {
    rustix::fs::sync();
    let path = "/proc/sys/vm/drop_caches";
    fs::write(path, "3").map_err(|e| LabError::failed("writing", path, e))?;
    for program in programs {
        let mut version = Command::new(program);
        version.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // It is read, even if it fails.
        let _any = version.status();
    }
    Ok(())
}

/// Prints one line: the names of the case, its times, and figures of its own.
pub(crate) fn print(names: [&str; 3], ops: u64, times: Times, own: &[(&str, Value)]) -> Result<()> {
    let [workload, case, by] = names;
    let mut line = Map::new();
    let rate = if times.seconds > 0.0 { ops as f64 / times.seconds } else { 0.0 };
    let figures = [
        ("workload", json!(workload)),
        ("case", json!(case)),
        ("by", json!(by)),
        ("ops", json!(ops)),
        ("seconds", json!(times.seconds)),
        // Differences of ticks: no more digits than they have.
        ("cpu_seconds", json!((times.cpu_seconds * 1e4).round() / 1e4)),
        ("ops_per_second", json!(rate)),
    ];
    line.extend(figures.map(|(name, value)| (name.to_owned(), value)));
    line.extend(own.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
    let mut text = Value::Object(line).to_string();
    text.push('\n');
    let mut out = std::io::stdout().lock();
    let printed = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    printed.map_err(|e| LabError::failed("printing", "a result", e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_a_child_are_its_own() {
        let mut spin = Command::new("sh");
        spin.args(["-c", "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; echo out"]);
        let times = run(&mut spin, Output::Pipe).expect("runs");
        assert!(times.seconds > 0.0 && times.cpu_seconds > 0.0, "{times:?}");
        let mut fails = Command::new("sh");
        fails.args(["-c", "echo reason >&2; exit 3"]);
        let error = run(&mut fails, Output::Null).expect_err("fails").to_string();
        assert!(error.contains("3") && error.ends_with("reason"), "{error}");
    }
}
