//! `fs-mark`: the program fs_mark, as scripts/fs-mark.sh runs it: empty files by two threads, no
//! sync, five iterations. A case is the number of files at the end of an iteration.

use super::children::{self, Times};
use super::{Folder, Plan};
use crate::error::{LabError, Result};
use crate::process;
use std::process::Command;

const THREADS: u64 = 2;
const ITERATIONS: u64 = 5;

/// Runs the workload.
pub(crate) fn run(plan: &Plan<'_>) -> Result<()> {
    if !process::is_installed("fs_mark") {
        return Err(LabError::failed("program", "fs_mark", "is missing: apt-get install fsmark"));
    }
    let folder = Folder { path: plan.root.join("f"), keep: plan.keep };
    let mut command = Command::new("fs_mark");
    command.args(["-D", "1000", "-S", "0", "-s", "0", "-k"]);
    for (option, number) in [("-n", plan.files), ("-L", ITERATIONS), ("-t", THREADS)] {
        command.arg(option).arg(number.to_string());
    }
    for thread in 0..THREADS {
        let path = folder.path.join(thread.to_string());
        std::fs::create_dir_all(&path)
            .map_err(|e| LabError::failed("making folder", path.display(), e))?;
        command.arg("-d").arg(path);
    }
    // It writes a log beside itself unless told where.
    command.arg("-l").arg(plan.scratch.join("fs_mark.log")).current_dir(plan.scratch);
    let before = children::cpu_of_children();
    let text = process::text_of(&mut command)?;
    let cpu_seconds = children::cpu_of_children() - before;
    let rows = parse(&text)?;
    let ops = plan.files * THREADS;
    for row in &rows {
        let seconds = ops as f64 / row.files_per_second;
        // It is known of all iterations together.
        let times = Times { seconds, cpu_seconds: cpu_seconds / rows.len() as f64 };
        children::print(["fs-mark", &row.count.to_string(), "usual"], ops, times, &[])?;
    }
    Ok(())
}

/// An iteration.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Row {
    /// Files so far.
    count: u64,
    files_per_second: f64,
}

/// Reads the table that fs_mark prints.
///
/// # Errors
/// It has no row.
fn parse(text: &str) -> Result<Vec<Row>> {
    let rows: Vec<Row> = text.lines().filter_map(row).collect();
    match rows.is_empty() {
        true => Err(LabError::failed("reading the table of", "fs_mark", "it has no rows")),
        false => Ok(rows),
    }
}

/// Returns what a line says; `None` if it is no row. An asterisk marks rows whose time was not as
/// wanted.
fn row(line: &str) -> Option<Row> {
    let words: Vec<&str> = line.trim_start_matches(['*', ' ']).split_whitespace().collect();
    let [_usage, count, _size, rate, _overhead, ..] = words[..] else { return None };
    let files_per_second: f64 = rate.parse().ok()?;
    let is_rate = files_per_second.is_finite() && files_per_second > 0.0;
    is_rate.then_some(Row { count: count.parse().ok()?, files_per_second })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "
#  fs_mark  -D  1000  -S  0  -n  100  -s  0  -L  2  -k  -t  2
#\tVersion 3.3, 2 thread(s) starting at Wed Nov 25 00:43:10 2026
#\tFile names: 40 bytes long, (16 initial bytes of time stamp with 24 random bytes at end of name)

FSUse%        Count         Size    Files/sec     App Overhead
     3          200            0      25011.3             1523
*    3          400            0      24000.0             1500
";

    #[test]
    fn a_row_is_an_iteration() {
        let rows = parse(TEXT).expect("a table");
        let expected = [(200, 25011.3), (400, 24000.0)]
            .map(|(count, files_per_second)| Row { count, files_per_second });
        assert_eq!(rows, expected);
    }

    #[test]
    fn garbage_is_refused() {
        let garbage = [
            "",
            "FSUse% Count",
            "fill_dir:mkdir x failed: No such file or directory",
            "3 200 0 0.0 5",
            "3 200 0 inf 5",
            "3 -1 0 7.0 5",
            "3 200 0 7.0",
            "a b c d e",
        ];
        for text in garbage {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
