//! Several processes that share the seeds. Processes and not threads: what a run does must depend
//! on its seed alone, and the reserve of memory is the process's.

use super::{Arguments, print_progress};
use crate::runner::Report;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Instant;

/// First word of a line that reports a run.
const RUN: &str = "run:";

/// Reports a run to who leads.
pub(super) fn tell(report: &Report) {
    let numbers: Vec<String> = report.numbers().iter().map(u64::to_string).collect();
    println!("{RUN} {}", numbers.join(" "));
}

fn heard(line: &str) -> Option<Report> {
    let words = line.strip_prefix(RUN)?.split_whitespace();
    let numbers: Vec<u64> = words.map(|word| word.parse().ok()).collect::<Option<_>>()?;
    Report::from_numbers(&numbers)
}

/// Starts the processes, prints what they say, and ends the others when one has found something.
pub(super) fn lead(arguments: Arguments, workers: u64) -> bool {
    let start = Instant::now();
    let (says, hear) = mpsc::channel();
    let start_one = |i: u64| {
        let mut child = worker(arguments, workers, i);
        let out = child.stdout.take().expect("piped");
        let says = says.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                let _ = says.send((i, line));
            }
        });
        child
    };
    let mut crew: Vec<Child> = (0..workers.min(arguments.count())).map(start_one).collect();
    drop(says);
    let (mut total, mut runs, mut failed) = (Report::default(), 0, None);
    for (i, line) in hear {
        if let Some(report) = heard(&line) {
            total += report;
            runs += 1;
            if runs % 100 == 0 {
                print_progress(runs, start, &total);
            }
            continue;
        }
        if failed.is_none() {
            failed = Some(i);
            println!("after {runs} seeds without a violation:");
            let others = crew.iter_mut().enumerate().filter(|(other, _)| *other as u64 != i);
            others.for_each(|(_, child)| drop(child.kill()));
        }
        if failed == Some(i) {
            println!("{line}");
        }
    }
    let mut well = failed.is_none();
    for mut child in crew {
        let status = child.wait();
        if well && !status.as_ref().is_ok_and(std::process::ExitStatus::success) {
            println!("a process ended with {status:?}");
            well = false;
        }
    }
    if well {
        print_progress(runs, start, &total);
    }
    well
}

fn worker(arguments: Arguments, workers: u64, i: u64) -> Child {
    let Arguments { seeds, ops, .. } = arguments;
    let mut command = Command::new(std::env::current_exe().expect("who runs has a path"));
    let mut option = |name: &str, value: u64| {
        command.args([name, &value.to_string()]);
    };
    if let Some(seconds) = seeds.seconds {
        option("--seconds", seconds);
    }
    option("--seed", seeds.seed.wrapping_add(i));
    option("--seeds", arguments.count() - i);
    option("--ops", ops as u64);
    option("--every", workers);
    if let Some(profile) = arguments.profile {
        command.args(["--profile", profile.name]);
    }
    if arguments.sessions {
        command.arg("--sessions");
    }
    command.stdout(Stdio::piped()).spawn().expect("a process can be started")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_heard_as_they_were_told() {
        let numbers: Vec<u64> = (1..=Report::default().numbers().len() as u64).collect();
        let report = Report::from_numbers(&numbers).expect("as many as there are");
        assert_eq!(report.numbers(), numbers);
        let words: Vec<String> = numbers.iter().map(u64::to_string).collect();
        assert_eq!(heard(&format!("run: {}", words.join(" "))), Some(report));
        assert_eq!((heard("run: 1 2"), heard("seed 7 fails")), (None, None));
    }
}
