//! Progress on a terminal, and error lines that do not break it.
//!
//! A bar appears only when standard error is a terminal, and only for work that lasts: nothing is
//! drawn during the first moments, so short commands stay quiet.

use std::fmt::Display;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::size::human;
use crate::text::printable;

/// Work shorter than this shows nothing.
const QUIET: Duration = Duration::from_millis(400);
/// Time between two updates.
const PERIOD: Duration = Duration::from_millis(100);
/// Time between two lines without a terminal.
const LINE_PERIOD: Duration = Duration::from_secs(30);
/// Redraws a second.
const DRAWS_PER_SECOND: u8 = 10;

/// Progress of a command, and its error lines.
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    /// Prefix of the lines without a terminal; `None` for no lines.
    lines: Option<String>,
    started: Instant,
    updated: Instant,
    shown: bool,
    failures: u64,
}

impl Progress {
    /// For work of unknown amount.
    pub(crate) fn counting() -> Progress {
        Progress::new("{spinner} {msg}")
    }

    /// For work of known amount.
    pub(crate) fn share() -> Progress {
        Progress::new("{msg} {wide_bar} {percent:>3} %  {eta} left")
    }

    /// For work of known amount; without a terminal, a line every 30 seconds, which begins with
    /// `name`.
    pub(crate) fn share_in_lines(name: &dyn Display) -> Progress {
        let mut progress = Progress::share();
        progress.lines = progress.bar.is_none().then(|| name.to_string());
        progress
    }

    /// Shows nothing.
    pub(crate) fn hidden() -> Progress {
        Progress { bar: None, ..Progress::counting() }
    }

    fn new(template: &str) -> Progress {
        let style =
            ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::no_length().with_style(style);
            bar.set_draw_target(ProgressDrawTarget::hidden());
            bar
        });
        let now = Instant::now();
        Progress { bar, lines: None, started: now, updated: now, shown: false, failures: 0 }
    }

    /// Returns whether it is time to show something again; cheap enough to call for each file.
    fn due(&mut self) -> bool {
        if self.bar.is_none() || self.updated.elapsed() < PERIOD {
            return false;
        }
        self.updated = Instant::now();
        if !self.shown && self.started.elapsed() >= QUIET {
            self.shown = true;
            if let Some(bar) = &self.bar {
                bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(DRAWS_PER_SECOND));
            }
        }
        self.shown
    }

    /// Shows the files and bytes done, and the current file.
    pub(crate) fn count(&mut self, files: u64, bytes: u64, current: &[u8]) {
        if !self.due() {
            return;
        }
        if let Some(bar) = &self.bar {
            let per_second = files as f64 / self.started.elapsed().as_secs_f64();
            let done = human(bytes);
            let name = printable(current);
            bar.set_message(format!("{files} files, {done}, {per_second:.0} files/s  {name}"));
            bar.tick();
        }
    }

    /// Shows the share of the work done.
    pub(crate) fn set(&mut self, what: &str, done: u64, total: u64) {
        if let Some(name) = &self.lines
            && self.updated.elapsed() >= LINE_PERIOD
        {
            self.updated = Instant::now();
            eprint_line(&line(name, what, (done, total), self.started.elapsed()));
        }
        if !self.due() {
            return;
        }
        if let Some(bar) = &self.bar {
            bar.set_message(what.to_owned());
            bar.set_length(total);
            bar.set_position(done);
        }
    }

    /// Reports the failure of one object; the command goes on.
    pub(crate) fn failure(&mut self, object: impl Display, reason: impl Display) {
        self.failures += 1;
        self.note(&format!("{object}: {reason}"));
    }

    /// Writes a line to standard error, above the bar.
    pub(crate) fn note(&self, line: &str) {
        match &self.bar {
            Some(bar) if self.shown => bar.suspend(|| eprint_line(line)),
            _ => eprint_line(line),
        }
    }

    /// Runs `print`, which writes to standard output, with the bar removed.
    pub(crate) fn aside<T>(&self, print: impl FnOnce() -> T) -> T {
        match &self.bar {
            Some(bar) if self.shown => bar.suspend(print),
            _ => print(),
        }
    }

    /// Removes the bar; returns the exit status that the failures demand.
    pub(crate) fn finish(&self) -> u8 {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        if self.failures == 0 { crate::failure::OK } else { crate::failure::SOME_FAILED }
    }
}

/// Writes `shoal: LINE` to standard error. Unlike `eprintln!` it survives a closed standard error:
/// there is nobody left to tell.
pub(crate) fn eprint_line(line: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr().lock(), "shoal: {line}");
}

/// Writes a line to standard error, in place of a bar that is drawn again below it.
pub(crate) fn eprint_line_over_bar(line: &str) {
    use std::io::Write;
    let mut stderr = std::io::stderr().lock();
    if stderr.is_terminal() {
        let _ = stderr.write_all(b"\r\x1b[K");
    }
    eprint_line(line);
}

/// Returns the share done, and the time left at the average rate so far.
fn line(name: &str, what: &str, (done, total): (u64, u64), elapsed: Duration) -> String {
    let share = done as f64 / total.max(1) as f64;
    let percent = (share * 100.0) as u64;
    let left = elapsed.as_secs_f64() * (1.0 / share.max(1e-9) - 1.0);
    let left = match left as u64 {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{} min", seconds / 60),
        seconds => format!("{} h", seconds / 3600),
    };
    format!("{name}: {what}: {percent} %, about {left} left")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_is_expected_to_go_as_fast() {
        let at =
            |done, seconds| line("v", "checking names", (done, 1000), Duration::from_secs(seconds));
        assert_eq!(at(250, 30), "v: checking names: 25 %, about 90 s left");
        assert_eq!(at(100, 60), "v: checking names: 10 %, about 9 min left");
        assert_eq!(at(10, 600), "v: checking names: 1 %, about 16 h left");
        assert_eq!(at(1000, 9), "v: checking names: 100 %, about 0 s left");
        assert!(at(0, 1).starts_with("v: checking names: 0 %"));
    }
}
