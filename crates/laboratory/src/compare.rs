//! `cargo xtask lab compare A B`: which figures of two runs differ by more than their noise.
//!
//! A run is a file of lines as `--json` prints them, of several rounds or of several calls; or a
//! raw file of the laboratory, or a folder of such files. Lines
//! that agree in their words and in the number of threads are samples of one measurement; every
//! number in them is a figure. Where a line for all rounds follows those of the rounds it is left
//! out.
//!
//! For each figure: the medians, their ratio with an interval of 95 %, and the probability that two
//! runs of the same code are as far apart ([`rank`]). Below [`ALPHA`] it is called a
//! difference. So of a hundred figures that are the same one is called different, and with fewer
//! than five samples of each none is.

use crate::error::{LabError, Result};
use crate::rank;
use crate::sample::median;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

/// Probability below which a difference is more than noise.
const ALPHA: f64 = 0.01;
/// Samples that such a probability needs at least.
const SAMPLES_MIN: usize = 5;
/// Numbers that say what was done, and are no figures.
const CONDITIONS: [&str; 9] =
    ["threads", "ops", "round", "rounds", "runs", "samples", "load", "mhz", "others"];
/// The object in a line of the laboratory that has the measured program's line.
const RESULT: &str = "result";

/// The measurements of a run: of each the samples of its figures, by name.
type Run = BTreeMap<String, BTreeMap<String, Vec<f64>>>;

/// Compares two runs, and prints a table to `out`. Returns the number of figures that differ.
///
/// # Errors
/// A file that cannot be read or is none of `--json`; runs without a measurement in common.
pub(crate) fn compare(a: &Path, b: &Path, out: &mut dyn Write) -> Result<usize> {
    let (run_a, run_b) = (read(a)?, read(b)?);
    let both: Vec<&String> = run_a.keys().filter(|name| run_b.contains_key(*name)).collect();
    if both.is_empty() {
        let remedy = "they have no measurement in common: the workload, target and threads must be \
                      the same";
        return Err(LabError::failed("comparing", a.display(), remedy));
    }
    let mut differing = 0;
    let mut text = String::new();
    for name in both {
        text += &format!("{name}\n");
        for (figure, of_a) in &run_a[name] {
            let Some(of_b) = run_b[name].get(figure) else { continue };
            let row = Row::of(figure, of_a, of_b);
            differing += usize::from(row.differs());
            text += &row.show();
        }
    }
    let left_out = run_a
        .keys()
        .chain(run_b.keys())
        .filter(|name| !(run_a.contains_key(*name) && run_b.contains_key(*name)));
    for name in left_out {
        text += &format!("{name}\n  only in one of the runs\n");
    }
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(differing),
        Err(error) => Err(LabError::failed("printing", "the comparison", error)),
        Ok(()) => Ok(differing),
    }
}

/// A figure in both runs.
struct Row<'r> {
    figure: &'r str,
    samples: [&'r [f64]; 2],
    probability: f64,
    ratio: f64,
    interval: [f64; 2],
}

impl Row<'_> {
    fn of<'r>(figure: &'r str, a: &'r [f64], b: &'r [f64]) -> Row<'r> {
        let (ratio, interval) = rank::ratio(a, b);
        Row { figure, samples: [a, b], probability: rank::probability(a, b), ratio, interval }
    }

    fn differs(&self) -> bool {
        self.probability < ALPHA
    }

    fn show(&self) -> String {
        let [a, b] = self.samples.map(|samples| figure_text(median(samples)));
        let [low, high] = self.interval;
        let fewest = self.samples.map(<[f64]>::len).into_iter().min().unwrap_or(0);
        let verdict = match (self.differs(), is_rate(self.figure) == (self.ratio > 1.0)) {
            (false, _) if fewest < SAMPLES_MIN => "too few samples",
            (false, _) => "within noise",
            (true, true) => "better",
            (true, false) => "worse",
        };
        let [n, m] = self.samples.map(<[f64]>::len);
        format!(
            "  {:<24} {a:>12} {b:>12}  x {:.3} ({low:.3} to {high:.3})  p {:.4}  {n}+{m}  \
             {verdict}\n",
            self.figure, self.ratio, self.probability
        )
    }
}

/// Returns whether more is better: it is of rates alone, not of times and bytes.
fn is_rate(figure: &str) -> bool {
    figure.contains("per_second")
}

fn figure_text(value: f64) -> String {
    match value.abs() {
        size if size >= 1e4 || value == 0.0 => format!("{value:.0}"),
        size if size >= 1.0 => format!("{value:.3}"),
        _ => format!("{value:.6}"),
    }
}

fn read(path: &Path) -> Result<Run> {
    let failed = |why: String| LabError::failed("reading", path.display(), why);
    let text = text_of(path).map_err(|error| failed(error.to_string()))?;
    let mut rounds = Run::new();
    let mut wholes = Run::new();
    for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let parsed: Map<String, Value> = serde_json::from_str(line)
            .map_err(|error| failed(format!("line {} is none of --json: {error}", at + 1)))?;
        let run = if parsed.contains_key("round") { &mut rounds } else { &mut wholes };
        let figures = run.entry(name_of(&parsed)).or_default();
        parsed.iter().for_each(|(key, value)| add(figures, key, value));
    }
    for (name, figures) in wholes {
        rounds.entry(name).or_insert(figures);
    }
    match rounds.is_empty() {
        true => Err(failed("it has no lines of --json".to_owned())),
        false => Ok(rounds),
    }
}

/// Returns all lines of a file, or of the raw files in a folder.
fn text_of(path: &Path) -> std::io::Result<String> {
    if !path.is_dir() {
        return std::fs::read_to_string(path);
    }
    let mut files = Vec::new();
    for entry in std::fs::read_dir(path)? {
        let file = entry?.path();
        if file.extension().is_some_and(|kind| kind == "jsonl") {
            files.push(file);
        }
    }
    files.sort();
    files.iter().map(std::fs::read_to_string).collect()
}

/// Returns what a line says of the measurement: its words, and the number of threads.
fn name_of(line: &Map<String, Value>) -> String {
    let word = |(key, value): (&String, &Value)| match value {
        Value::String(text) => Some(format!("{key} {text}")),
        Value::Bool(is) => Some(format!("{key} {is}")),
        Value::Number(number) if key == "threads" => Some(format!("threads {number}")),
        _ => None,
    };
    line.iter().filter_map(word).collect::<Vec<_>>().join(", ")
}

/// Adds the numbers of a value: of an object by their names.
fn add(figures: &mut BTreeMap<String, Vec<f64>>, key: &str, value: &Value) {
    match value {
        Value::Number(number) if !CONDITIONS.contains(&key) => {
            figures.entry(key.to_owned()).or_default().extend(number.as_f64());
        }
        Value::Object(parts) => {
            for (part, value) in parts.iter().filter(|(part, _)| *part != "samples") {
                match key {
                    RESULT => add(figures, part, value),
                    _ => add(figures, &format!("{key}.{part}"), value),
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, text: &str) -> std::path::PathBuf {
        let name = format!("shoal-compare-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, text).expect("a file");
        path
    }

    fn run(rates: &[f64], p99: f64) -> String {
        let line = |(round, rate): (usize, &f64)| {
            format!(
                "{{\"workload\":\"create\",\"target\":\"vol:v\",\"round\":{round},\"threads\":2,\
                 \"ops\":1000,\"ops_per_second\":{rate},\"latency_ns\":{{\"p99\":{p99},\
                 \"samples\":7}}}}\n"
            )
        };
        let rounds: String = rates.iter().enumerate().map(line).collect();
        // The line for all rounds is no sample.
        rounds
            + "{\"workload\":\"create\",\"target\":\"vol:v\",\"threads\":2,\"ops_per_second\":1}\n"
    }

    #[test]
    fn a_difference_is_told_from_noise() {
        let (base, other) = ([100.0, 101.0, 99.0, 102.0, 98.0], [100.5, 101.5, 99.5, 97.0, 103.0]);
        let slow = base.map(|rate| rate * 0.8);
        let a = file("a", &run(&base, 5.0));
        for (name, rates, p99, differing, says) in [
            ("noise", &other, 5.0, 0, "within noise"),
            ("slow", &slow, 5.0, 1, "p 0.0079  5+5  worse"),
            ("fast", &base, 4.0, 1, "latency_ns.p99                  5.000        4.000  x 0.800"),
        ] {
            let b = file(name, &run(rates, p99));
            let mut out = Vec::new();
            assert_eq!(compare(&a, &b, &mut out).expect(name), differing, "{name}");
            let text = String::from_utf8(out).expect("text");
            assert!(text.starts_with("target vol:v, threads 2, workload create\n"), "{text}");
            assert!(text.contains(says), "{text}");
            std::fs::remove_file(b).expect("removed");
        }
        let few = file("few", &run(&slow[..3], 5.0));
        let mut out = Vec::new();
        assert_eq!(compare(&a, &few, &mut out).expect("few"), 0);
        assert!(String::from_utf8_lossy(&out).contains("too few samples"));
        for path in [a, few] {
            std::fs::remove_file(path).expect("removed");
        }
    }

    #[test]
    fn folders_of_the_laboratory_are_compared() {
        let folders = [1.0, 0.5].map(|factor| {
            let name = format!("shoal-compare-{}-{factor}", std::process::id());
            let folder = std::env::temp_dir().join(name);
            std::fs::create_dir_all(&folder).expect("a folder");
            let line = |round: u32| {
                let rate = f64::from(100 + round) * factor;
                format!(
                    "{{\"system\":\"XFS\",\"case\":\"create\",\"round\":{round},\"load\":{round},\
                     \"result\":{{\"ops\":10,\"ops_per_second\":{rate}}}}}\n"
                )
            };
            let text: String = (0..5).map(line).collect();
            std::fs::write(folder.join("names.jsonl"), text).expect("a file");
            std::fs::write(folder.join("machine.json"), "no lines").expect("a file");
            folder
        });
        let mut out = Vec::new();
        assert_eq!(compare(&folders[0], &folders[1], &mut out).expect("compared"), 1);
        let text = String::from_utf8(out).expect("text");
        assert!(text.starts_with("case create, system XFS\n  ops_per_second "), "{text}");
        assert_eq!(text.lines().count(), 2, "{text}");
        folders.iter().for_each(|folder| std::fs::remove_dir_all(folder).expect("removed"));
    }

    #[test]
    fn what_cannot_be_compared_is_said() {
        let good = file("good", &run(&[1.0], 1.0));
        let other = file("other", &run(&[1.0], 1.0).replace("create", "unlink"));
        let bad = file("bad", "create 5\n");
        let empty = file("empty", "\n");
        let says = |b: &Path| compare(&good, b, &mut Vec::new()).expect_err("refused").to_string();
        assert!(says(&other).contains("no measurement in common"));
        assert!(says(&bad).contains("line 1 is none of --json"));
        assert!(says(&empty).contains("no lines"));
        assert!(says(Path::new("/none")).contains("/none"));
        for path in [good, other, bad, empty] {
            std::fs::remove_file(path).expect("removed");
        }
    }
}
