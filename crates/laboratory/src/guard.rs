//! `laboratory guard`: a program that ends with the laboratory, however that ends.
//!
//! A run that is killed by SIGKILL can do nothing any more, and the program that it measures would
//! go on for minutes, on processors that others measure then. So each measured program is started
//! by a guard, whose standard input is a pipe that only the run holds. When it is closed, by the
//! run or by the kernel at the run's end, the guard kills the program with all processes of its
//! group.
//!
//! A signal at the parent's death (`prctl`) would reach the program, but not those that it started.

use crate::error::{LabError, Result};
use crate::process::name_of;
use rustix::process::{Pid, Signal, kill_process_group};
use std::ffi::OsString;
use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

/// Name of the command, as [`around`] starts it.
const WORD: &str = "guard";

/// Command line.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    program: Vec<OsString>,
}

/// Returns the command that runs `command` under a guard. `this` is the laboratory.
pub(crate) fn around(this: &Path, command: &Command) -> Command {
    let mut guard = Command::new(this);
    guard.args([WORD, "--"]).arg(command.get_program()).args(command.get_args());
    guard
}

/// Runs the program to its end, or kills it when standard input is closed. Returns its status; that
/// of one that a signal ended is 128 and the signal's number, as in a shell.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let [program, rest @ ..] = &args.program[..] else {
        return Err(LabError::failed("guarding", "a program", "none is named"));
    };
    let mut command = Command::new(program);
    command.args(rest).stdin(Stdio::null()).process_group(0);
    let name = name_of(&command);
    let mut child = command.spawn().map_err(|e| LabError::failed("starting", &name, e))?;
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    std::thread::spawn(move || {
        // Nothing is ever written to it: this returns at its end.
        let _end = std::io::stdin().lock().read_to_end(&mut Vec::new());
        // An error says that it has ended by itself just now.
        let _gone = group.map(|group| kill_process_group(group, Signal::KILL));
    });
    let status = child.wait().map_err(|e| LabError::failed("waiting for", &name, e))?;
    let code = status.code().or_else(|| Some(128 + status.signal()?));
    Ok(ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)))
}
