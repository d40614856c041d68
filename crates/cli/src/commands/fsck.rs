//! `shoal fsck`: checks a volume that nobody uses, and changes nothing.
//!
//! Damage that already keeps the volume from being opened is a problem found, not a failure to
//! look: exit status 4. Only what keeps us from looking at all is 8.

use std::path::Path;

use serde::Serialize;
use shoal::{CheckReport, Error, OpenOptions, Problem, RecoveryReport, Volume};

use crate::args::FsckArgs;
use crate::commands::info::JsonRecovery;
use crate::failure::{Failure, OK, Result};
use crate::output::{Out, json_name, printable};
use crate::progress::Progress;
use crate::size::human;

/// Problems were found and left as they are.
pub const UNCORRECTED: u8 = 4;
/// The check could not be made.
pub const OPERATIONAL: u8 = 8;
/// Wrong usage.
pub const USAGE: u8 = 16;

/// Rule named for damage that is met before the check itself can start.
const UNREADABLE: &str = "volume-unreadable";

/// Checks a volume.
pub fn run(args: &FsckArgs) -> Result<u8> {
    let (report, recovery) = check(&args.volume)?;
    let mut out = Out::new();
    if args.json {
        out.json(&JsonCheck::new(&args.volume, &report, &recovery))?;
    } else {
        print(&mut out, &args.volume, &report, &recovery)?;
    }
    out.flush()?;
    Ok(if report.problems.is_empty() { OK } else { UNCORRECTED })
}

/// Opens and checks; damage in either becomes a problem of the report.
fn check(path: &Path) -> Result<(CheckReport, RecoveryReport)> {
    let options = OpenOptions { read_only: true, background: false, ..OpenOptions::default() };
    let volume = match Volume::open(path, &options) {
        Ok(volume) => volume,
        Err(error) => return Ok((damage(path, error)?, RecoveryReport::default())),
    };
    let recovery = volume.info().recovery;
    let mut progress = Progress::share();
    let result = volume.check(&mut |done, total| progress.set("checking", done, total));
    progress.finish();
    let report = match result {
        Ok(report) => report,
        Err(error) => damage(path, error)?,
    };
    // Nothing was written, so closing can lose nothing.
    let _ = volume.close();
    Ok((report, recovery))
}

/// A report of the damage that ended the check early, or the failure that did.
fn damage(path: &Path, error: Error) -> Result<CheckReport> {
    match &error {
        Error::Corrupt(_) => {
            let problem = Problem { rule: UNREADABLE, message: error.to_string() };
            Ok(CheckReport { problems: vec![problem], ..CheckReport::default() })
        }
        _ => Err(Failure::volume(path.display(), &error).with_status(OPERATIONAL)),
    }
}

fn print(
    out: &mut Out,
    path: &Path,
    report: &CheckReport,
    recovery: &RecoveryReport,
) -> Result<()> {
    let path = path.display();
    for Problem { rule, message } in &report.problems {
        // A message may quote names from the volume.
        out.line(&format!("{rule}: {}", printable(message.as_bytes())))?;
    }
    if recovery.needed {
        out.line(&format!(
            "{path}: was not closed; checked with the {} records of its journal replayed in memory",
            recovery.records
        ))?;
    }
    let verdict = match report.problems.len() {
        0 => "clean".to_owned(),
        1 => "1 problem, left uncorrected".to_owned(),
        n => format!("{n} problems, left uncorrected"),
    };
    out.line(&format!(
        "{path}: {verdict}; checked {} inodes, {} directories, {} entries, {} extents, {} blocks, \
         {} of file data",
        report.inodes,
        report.directories,
        report.dirents,
        report.extents,
        report.blocks,
        human(report.data_bytes)
    ))
}

/// The result in JSON.
#[derive(Serialize)]
struct JsonCheck<'a> {
    volume: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    volume_bytes: Option<String>,
    clean: bool,
    problems: Vec<JsonProblem<'a>>,
    inodes: u64,
    directories: u64,
    dirents: u64,
    extents: u64,
    blocks: u64,
    data_bytes: u64,
    recovery: JsonRecovery<'a>,
}

/// A problem in JSON.
#[derive(Serialize)]
struct JsonProblem<'a> {
    rule: &'a str,
    message: &'a str,
}

impl<'a> JsonCheck<'a> {
    fn new(path: &Path, report: &'a CheckReport, recovery: &'a RecoveryReport) -> JsonCheck<'a> {
        let (volume, volume_bytes) = json_name(path.as_os_str().as_encoded_bytes());
        let problems = report
            .problems
            .iter()
            .map(|problem| JsonProblem { rule: problem.rule, message: &problem.message })
            .collect();
        JsonCheck {
            volume,
            volume_bytes,
            clean: report.problems.is_empty(),
            problems,
            inodes: report.inodes,
            directories: report.directories,
            dirents: report.dirents,
            extents: report.extents,
            blocks: report.blocks,
            data_bytes: report.data_bytes,
            recovery: recovery.into(),
        }
    }
}
