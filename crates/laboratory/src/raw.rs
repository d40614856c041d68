//! Raw files of a run: a line of JSON for each line that a measured program printed, one file for
//! each experiment. Nothing in a report comes from elsewhere.

use crate::error::{LabError, Result};
use crate::machine::{Machine, Now};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

/// One line.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub(crate) struct Line {
    /// The measured system: a filesystem, or Shoal in one of its settings.
    pub system: String,
    /// The case: an operation, a number of threads or of files.
    pub case: String,
    /// From 0.
    pub round: u32,
    /// The command, without the folder of this run.
    pub command: String,
    #[serde(flatten)]
    pub now: Now,
    /// The line of the program.
    pub result: Map<String, Value>,
}

impl Line {
    /// Returns a figure of the result: a number, or one within an object, as in
    /// `latency_ns.p99`; `cpu_us` is the processor time of an operation, `X_each` is X of one.
    pub(crate) fn figure(&self, name: &str) -> Option<f64> {
        let number = |name: &str| self.result.get(name).and_then(Value::as_f64);
        if name == "cpu_us" {
            return Some(number("cpu_seconds")? * 1e6 / number("ops").filter(|ops| *ops > 0.0)?);
        }
        if let Some(whole) = name.strip_suffix("_each") {
            return Some(number(whole)? / number("ops").filter(|ops| *ops > 0.0)?);
        }
        match name.split_once('.') {
            Some((object, part)) => self.result.get(object)?.get(part)?.as_f64(),
            None => number(name),
        }
    }
}

/// A system that could not be measured.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Skipped {
    pub experiment: String,
    pub system: String,
    pub why: String,
}

/// The folder of a run.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    folder: PathBuf,
}

impl Run {
    /// Opens the folder, and makes it if it is missing.
    pub(crate) fn at(folder: &Path) -> Result<Run> {
        fs::create_dir_all(folder)
            .map_err(|e| LabError::failed("making folder", folder.display(), e))?;
        Ok(Run { folder: folder.into() })
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the machine's description. A run belongs to one machine and one commit.
    pub(crate) fn machine(&self) -> Result<Option<Machine>> {
        let path = self.folder.join("machine.json");
        let failed = |why: String| LabError::failed("reading", path.display(), why);
        match fs::read(&path) {
            Ok(bytes) => {
                serde_json::from_slice(&bytes).map(Some).map_err(|e| failed(e.to_string()))
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(failed(e.to_string())),
        }
    }

    pub(crate) fn put_machine(&self, machine: &Machine) -> Result<()> {
        let path = self.folder.join("machine.json");
        let failed = |why: String| LabError::failed("writing", path.display(), why);
        let mut text = serde_json::to_string_pretty(machine).map_err(|e| failed(e.to_string()))?;
        text.push('\n');
        fs::write(&path, text).map_err(|e| failed(e.to_string()))
    }

    /// Returns the systems that could not be measured.
    pub(crate) fn skipped(&self) -> Result<Vec<Skipped>> {
        let path = self.folder.join("skipped.json");
        let failed = |why: String| LabError::failed("reading", path.display(), why);
        match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|e| failed(e.to_string())),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(e) => Err(failed(e.to_string())),
        }
    }

    pub(crate) fn put_skipped(&self, skipped: &[Skipped]) -> Result<()> {
        let path = self.folder.join("skipped.json");
        let failed = |why: String| LabError::failed("writing", path.display(), why);
        let mut text = serde_json::to_string_pretty(skipped).map_err(|e| failed(e.to_string()))?;
        text.push('\n');
        fs::write(&path, text).map_err(|e| failed(e.to_string()))
    }

    /// The raw file of an experiment.
    pub(crate) fn path(&self, experiment: &str) -> PathBuf {
        self.folder.join(format!("{experiment}.jsonl"))
    }

    /// Returns the lines of an experiment; none if it has not been begun. A last line that was
    /// being written when the machine stopped is left out.
    pub(crate) fn lines(&self, experiment: &str) -> Result<Vec<Line>> {
        let path = self.path(experiment);
        let failed = |why: String| LabError::failed("reading", path.display(), why);
        let text = match fs::read_to_string(&path) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other.map_err(|e| failed(e.to_string()))?,
        };
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let parse = |(at, line)| {
            serde_json::from_str(line).map_err(|e| failed(format!("line {}: {e}", at + 1)))
        };
        whole.lines().enumerate().map(parse).collect()
    }

    /// Appends the lines of one measurement.
    pub(crate) fn append(&self, experiment: &str, lines: &[Line]) -> Result<()> {
        let path = self.path(experiment);
        let failed = |why: String| LabError::failed("writing", path.display(), why);
        let mut text = String::new();
        for line in lines {
            text += &serde_json::to_string(line).map_err(|e| failed(e.to_string()))?;
            text.push('\n');
        }
        // A torn line of an earlier run must not swallow the first of these.
        let torn = fs::read(&path).is_ok_and(|bytes| bytes.last().is_some_and(|b| *b != b'\n'));
        if torn {
            let whole = fs::read_to_string(&path).map_err(|e| failed(e.to_string()))?;
            let end = whole.rfind('\n').map_or(0, |end| end + 1);
            fs::write(&path, &whole[..end]).map_err(|e| failed(e.to_string()))?;
        }
        let file = fs::OpenOptions::new().create(true).append(true).open(&path);
        let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
        written.map_err(|e| failed(e.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(round: u32) -> Line {
        let result = "{\"ops\":1000,\"cpu_seconds\":0.002,\"latency_ns\":{\"p99\":7}}";
        Line {
            system: "xfs".into(),
            case: "create".into(),
            round,
            command: "shoal bench".into(),
            now: Now { load: 0.5, mhz: 0.0, others: None },
            result: serde_json::from_str(result).expect("an object"),
        }
    }

    #[test]
    fn a_torn_line_is_measured_again() {
        let folder = std::env::temp_dir().join(format!("shoal-raw-{}", std::process::id()));
        let run = Run::at(&folder).expect("a folder");
        assert!(run.lines("names").expect("nothing yet").is_empty());
        run.append("names", &[line(0), line(1)]).expect("written");
        let path = run.path("names");
        let text = fs::read_to_string(&path).expect("text");
        fs::write(&path, &text[..text.len() - 5]).expect("torn");
        assert_eq!(run.lines("names").expect("whole lines").len(), 1);
        run.append("names", &[line(1)]).expect("written");
        let lines = run.lines("names").expect("lines");
        assert_eq!(lines.iter().map(|line| line.round).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(lines[0].figure("cpu_us"), Some(2.0));
        assert_eq!(lines[0].figure("latency_ns.p99"), Some(7.0));
        assert_eq!(lines[0].figure("none"), None);
        fs::remove_dir_all(folder).expect("removed");
    }
}
