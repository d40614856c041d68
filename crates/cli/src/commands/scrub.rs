//! `shoal scrub`: reads everything on a volume, step by step, mounted or not, and reports damage.

use std::path::Path;
use std::time::{Duration, Instant};

use shoal::raw::{Error, ScrubAt};
use shoal_session::ScrubStep;

use crate::args::ScrubArgs;
use crate::commands::fsck::{self, OPERATIONAL, UNCORRECTED};
use crate::failure::{Failure, OK, Result};
use crate::json::Object;
use crate::mounted;
use crate::output::Out;
use crate::progress::{Progress, eprint_line};
use crate::session::{Access, Session};
use crate::size::human;
use crate::text::printable;

/// Bytes of a step. A mount reuses no freed space while a step is under way, so a step must take
/// milliseconds.
const STEP: u64 = 4 << 20;
/// Least bytes of a step, however low the rate.
const STEP_MIN: u64 = 64 << 10;
/// Steps a second, at least, with a rate.
const STEPS_PER_SECOND: u64 = 4;

/// Checks a volume.
pub(crate) fn run(args: &ScrubArgs) -> Result<u8> {
    fsck::end_on_signal(&args.volume);
    let mut scrub = Scrub {
        args,
        out: Out::new(),
        progress: if args.quiet || args.json { Progress::hidden() } else { Progress::share() },
        started: Instant::now(),
        found: ScrubStep::default(),
        live_bytes: 0,
    };
    let stopped = match Place::open(&args.volume) {
        Ok(place) => scrub.everything(&place),
        Err(Closed::Damaged(problem)) => {
            scrub.add(ScrubStep { problems: vec![problem], ..ScrubStep::default() })
        }
        Err(Closed::Refused(failure)) => Err(failure),
    };
    scrub.progress.finish();
    scrub.finish(stopped)
}

/// Reason why a volume cannot be opened.
enum Closed {
    /// Damage, which is a problem found: rule and text.
    Damaged((String, String)),
    /// Any other reason.
    Refused(Failure),
}

/// Volume to scrub: one that is mounted or served, or one that the command has opened.
struct Place(Session);

impl Place {
    fn open(path: &Path) -> Result<Place, Closed> {
        let session =
            match path.is_dir() {
                true => mounted::session(path).map_err(Closed::Refused)?,
                false => Session::attempt(path, Access::Read).map_err(Closed::Refused)?.map_err(
                    |error| match error {
                        Error::Corrupt(_) => {
                            let text = format!(
                                "{error}; nothing else was read (shoal fsck looks further)"
                            );
                            Closed::Damaged(("volume-unreadable".to_owned(), text))
                        }
                        _ => Closed::Refused(Failure::volume(path.display(), &error)),
                    },
                )?,
            };
        Ok(Place(session))
    }

    /// Returns the bytes in use, about as many as there are to read; 0: unknown.
    fn bytes(&self) -> u64 {
        let metrics = self.0.calls().all_metrics(&self.0.who).unwrap_or_default();
        metrics.iter().find(|it| it.name == "live_bytes").map_or(0, |it| it.value)
    }

    fn step(&self, at: ScrubAt, bytes: u64) -> Result<ScrubStep> {
        let step = self.0.calls().scrub(&self.0.who, std::process::id(), at, bytes);
        step.map_err(|error| mounted::failed(&self.0, &error))
    }
}

/// State of a scrub.
struct Scrub<'a> {
    args: &'a ScrubArgs,
    out: Out,
    progress: Progress,
    started: Instant,
    /// The sum of all steps.
    found: ScrubStep,
    /// Bytes in use; 0: unknown.
    live_bytes: u64,
}

impl Scrub<'_> {
    fn everything(&mut self, place: &Place) -> Result<()> {
        let whole =
            self.args.rate.map_or(STEP, |rate| (rate / STEPS_PER_SECOND).clamp(STEP_MIN, STEP));
        let (mut at, mut bytes) = (Some(ScrubAt::default()), whole);
        while let Some(here) = at {
            let step = place.step(here, bytes)?;
            if step.left_out > 0 && bytes > 1 {
                // A mount has to fit them on one page: again, in pieces small enough to report all
                // of theirs.
                bytes = (bytes / 4).max(1);
                continue;
            }
            (at, bytes) = (step.next, (bytes * 2).min(whole));
            self.add(step)?;
            if self.live_bytes == 0 {
                // After the first step, which begins with a checkpoint.
                self.live_bytes = place.bytes();
            }
            let total = self.live_bytes;
            self.progress.set("reading", self.found.bytes.min(total), total);
            self.pause();
        }
        Ok(())
    }

    fn add(&mut self, step: ScrubStep) -> Result<()> {
        self.found.blocks += step.blocks;
        self.found.objects += step.objects;
        self.found.bytes += step.bytes;
        self.found.left_out += step.left_out;
        let problems = &step.problems;
        if !self.args.json && !problems.is_empty() {
            let out = &mut self.out;
            self.progress.aside(|| {
                for (rule, text) in problems {
                    // A text may quote names from the volume.
                    let (rule, text) = (printable(rule.as_bytes()), printable(text.as_bytes()));
                    out.line(&format!("{rule}: {text}"))?;
                }
                out.flush()
            })?;
        }
        self.found.problems.extend(step.problems);
        Ok(())
    }

    /// Waits as long as the rate demands.
    fn pause(&mut self) {
        let Some(rate) = self.args.rate else { return };
        std::thread::sleep(rest(self.found.bytes, rate, self.started.elapsed()));
    }

    /// Prints the result, also of a scrub that was stopped.
    fn finish(mut self, stopped: Result<()>) -> Result<u8> {
        let seconds = self.started.elapsed().as_secs_f64();
        let line = match stopped {
            Ok(()) => None,
            Err(Failure::Line { line, .. }) => Some(line),
            Err(failure) => return Err(failure),
        };
        if self.args.json {
            let mut out = std::mem::replace(&mut self.out, Out::new());
            let result = json(&self, line.as_deref(), seconds);
            out.json(result)?;
            out.flush()?;
        } else if line.is_none() && !self.args.quiet {
            let summary = summary(&self.args.volume, &self.found, self.live_bytes, seconds);
            self.out.line(&summary)?;
        }
        self.out.flush()?;
        if let Some(line) = line {
            eprint_line(&line);
            return Ok(OPERATIONAL);
        }
        Ok(if problems(&self.found) == 0 { OK } else { UNCORRECTED })
    }
}

fn problems(found: &ScrubStep) -> u64 {
    found.problems.len() as u64 + found.left_out
}

fn summary(volume: &Path, found: &ScrubStep, live_bytes: u64, seconds: f64) -> String {
    let left_out = match found.left_out {
        0 => String::new(),
        n => format!(" ({n} of them too many in one place to be told)"),
    };
    let verdict = match problems(found) {
        0 => "clean".to_owned(),
        1 => "1 problem".to_owned(),
        n => format!("{n} problems{left_out}"),
    };
    let per_second = (found.bytes as f64 / seconds.max(1e-6) / 1e6) as u64;
    // Some of it may have been rewritten, and read twice, in the meantime.
    let share = match found.bytes.saturating_mul(100).checked_div(live_bytes) {
        None => String::new(),
        Some(share) => format!(" of {} in use ({} %)", human(live_bytes), share.min(100)),
    };
    format!(
        "{}: {verdict}; read {} blocks, {} data objects, {}{share}, in {seconds:.1} s, \
         {per_second} MB/s",
        volume.display(),
        found.blocks,
        found.objects,
        human(found.bytes)
    )
}

/// Returns the wait after `bytes` have been read in a time, so that no more than `rate` bytes are
/// read in a second.
fn rest(bytes: u64, rate: u64, elapsed: Duration) -> Duration {
    Duration::from_secs_f64(bytes as f64 / rate as f64).saturating_sub(elapsed)
}

fn json(scrub: &Scrub<'_>, stopped: Option<&str>, seconds: f64) -> Object {
    let found = &scrub.found;
    let listed = found.problems.iter();
    let listed = listed.map(|(rule, text)| Object::new().put("rule", rule).put("message", text));
    Object::new()
        .put_name("volume", scrub.args.volume.as_os_str().as_encoded_bytes())
        .put("clean", problems(found) == 0 && stopped.is_none())
        .put_list("problems", listed)
        .put("left_out", found.left_out)
        .put("blocks", found.blocks)
        .put("objects", found.objects)
        .put("bytes", found.bytes)
        .put("live_bytes", scrub.live_bytes)
        .put("seconds", seconds)
        .put_some("stopped", stopped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_kept_over_all_steps() {
        let ms = Duration::from_millis;
        assert_eq!(rest(2 << 20, 4 << 20, ms(0)), ms(500));
        assert_eq!(rest(2 << 20, 4 << 20, ms(100)), ms(400));
        assert_eq!(rest(2 << 20, 4 << 20, ms(501)), ms(0), "it is late");
        assert_eq!(rest(0, 1, ms(0)), ms(0));
    }
}
