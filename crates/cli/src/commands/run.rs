//! `shoal run`: runs a program with the library that makes its calls by sessions.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::args::RunArgs;
use crate::failure::{Failure, OK, Result, UNUSABLE};
use crate::interrupt;
use crate::output::Out;
use crate::progress::eprint_line;
use crate::text::printable;

/// File name of the library.
const LIBRARY: &str = "libshoal_run.so";
/// Environment: its place, the switch, and the file that counts are appended to.
const PLACE: &str = "SHOAL_RUN_LIBRARY";
const SWITCH: &str = "SHOAL_RUN";
const STATISTICS: &str = "SHOAL_RUN_STATS";
/// The dynamic linker's list of libraries to load before all others.
const PRELOAD: &str = "LD_PRELOAD";
/// Exit statuses of programs that run programs.
const CANNOT_RUN: u8 = 126;
const NO_SUCH_COMMAND: u8 = 127;
const BY_SIGNAL: i32 = 128;

/// Runs a program, or prints the environment for one.
pub(crate) fn run(args: &RunArgs) -> Result<u8> {
    let library = library()?;
    let preload = match std::env::var_os(PRELOAD).filter(|before| !before.is_empty()) {
        Some(before)
            if before.as_bytes().windows(LIBRARY.len()).any(|it| it == LIBRARY.as_bytes()) =>
        {
            before
        }
        Some(before) => {
            let mut both = library.into_os_string();
            both.push(":");
            both.push(before);
            both
        }
        None => library.into_os_string(),
    };
    // A program that has been told not to use it does not.
    let switch = std::env::var_os(SWITCH).unwrap_or_else(|| "on".into());
    let Some((program, arguments)) = args.command.split_first() else {
        return print_environment(&preload, &switch);
    };
    let mut command = Command::new(program);
    command.args(arguments).env(PRELOAD, &preload).env(SWITCH, &switch);
    match args.stats {
        true => counted(command, program),
        // There is nothing to do after it.
        false => Err(cannot_run(program, &command.exec())),
    }
}

/// Finds the library.
fn library() -> Result<PathBuf> {
    let given = std::env::var_os(PLACE).map(PathBuf::from);
    let program = std::env::current_exe().unwrap_or_default();
    let folder = program.parent().unwrap_or(Path::new(""));
    let beside = [folder.join(LIBRARY), folder.join("../lib/shoal").join(LIBRARY)];
    let places = given.map_or_else(|| beside.to_vec(), |given| vec![given]);
    let found = places.iter().find_map(|place| place.canonicalize().ok());
    let name = |path: &Path| printable(path.as_os_str().as_bytes()).into_owned();
    let missing = || {
        let tried: Vec<String> = places.iter().map(|place| name(place)).collect();
        let why = format!("no such file; give its place in {PLACE}, or run without 'shoal run'");
        Failure::usage(tried.join(", "), why)
    };
    let found = found.ok_or_else(missing)?;
    // The list of libraries is divided by these.
    if found.as_os_str().as_bytes().iter().any(|byte| matches!(byte, b' ' | b':')) {
        return Err(Failure::usage(name(&found), "a library is not loaded from such a path"));
    }
    Ok(found)
}

fn print_environment(preload: &OsString, switch: &OsString) -> Result<u8> {
    let mut out = Out::new();
    for (name, value) in [(PRELOAD, preload), (SWITCH, switch)] {
        let quoted = value.to_string_lossy().replace('\'', r"'\''");
        out.line(&format!("export {name}='{quoted}'"))?;
    }
    out.flush()?;
    Ok(OK)
}

fn cannot_run(program: &OsString, error: &io::Error) -> Failure {
    let status = match error.kind() {
        io::ErrorKind::NotFound => NO_SUCH_COMMAND,
        _ => CANNOT_RUN,
    };
    Failure::failed(printable(program.as_bytes()), error).with_status(status)
}

/// Runs a program to its end, and prints what it has counted.
fn counted(mut command: Command, program: &OsString) -> Result<u8> {
    let failed = |error: io::Error| Failure::failed("counts", error).with_status(UNUSABLE);
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    let file = rustix::fs::memfd_create("shoal-run", flags).map_err(io::Error::from);
    let file = File::from(file.map_err(failed)?);
    command.env(STATISTICS, format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()));
    // An interrupt from the terminal is for the program, which ends or does not.
    interrupt::defer();
    let ended = command.status().map_err(|error| cannot_run(program, &error))?;
    let mut text = String::new();
    (&file).read_to_string(&mut text).map_err(failed)?;
    for line in table(&text) {
        eprint_line(&line);
    }
    let status = ended.code().or_else(|| ended.signal().map(|signal| BY_SIGNAL + signal));
    Ok(status.and_then(|status| u8::try_from(status).ok()).unwrap_or(CANNOT_RUN))
}

/// Adds the counts of all programs up.
fn table(text: &str) -> Vec<String> {
    let mut sums: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for line in text.lines() {
        let mut fields = line.split(' ');
        let (Some(name), Some(session), Some(mount)) =
            (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        let sum = sums.entry(name).or_default();
        sum.0 += session.parse::<u64>().unwrap_or(0);
        sum.1 += mount.parse::<u64>().unwrap_or(0);
    }
    let total = sums.values().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    let row =
        |name: &str, (session, mount): (u64, u64)| format!("{name:<10} {session:>12} {mount:>12}");
    let head = format!("{:<10} {:>12} {:>12}", "call", "by session", "by mount");
    let rows = sums.iter().map(|(name, sum)| row(name, *sum));
    std::iter::once(head).chain(rows).chain([row("all", total)]).collect()
}

#[cfg(test)]
mod tests {
    use super::table;

    #[test]
    fn counts_of_programs_are_added_up() {
        let rows = table("open 3 1\nstat 10 0\nopen 4 0\nbroken\n");
        let fields: Vec<Vec<&str>> =
            rows.iter().map(|row| row.split_whitespace().collect()).collect();
        assert_eq!(fields[1..], [["open", "7", "1"], ["stat", "10", "0"], ["all", "17", "1"]]);
    }
}
