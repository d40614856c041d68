//! Destinations of a mount's log: a file, standard error, or the system log.
//!
//! The system log is the datagram socket that every syslog daemon, journald included, listens on.
//! Without one, the log of a mount in the background is lost; `--log` is the remedy.
//!
//! A user who repeats a call that fails must not fill the log: a place in the program may log
//! [`LINES_MAX`] lines in [`WINDOW`]. Those beyond are counted, and the next line of that place is
//! preceded by their number.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::net::UnixDatagram;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tracing::callsite::Identifier;
use tracing::level_filters::LevelFilter;
use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;

use crate::args::{LogFormat, LogLevel};

/// Socket of syslog daemons.
const SYSTEM_LOG: &str = "/dev/log";
/// The facility `daemon`, as a part of the number in front of each message.
const FACILITY_DAEMON: u8 = 3 << 3;
/// Most lines of a place in a window.
const LINES_MAX: u64 = 20;
/// Time for which lines are counted together.
const WINDOW: Duration = Duration::from_secs(10);

/// Destination of the log.
pub(crate) enum Destination {
    /// A file, opened for appending.
    File(File),
    /// Standard error.
    StandardError,
    /// The system log.
    System(UnixDatagram),
    /// Nowhere.
    None,
}

impl Destination {
    /// Opens the system log, if there is one.
    pub(crate) fn system_log() -> Destination {
        let connect = || {
            let socket = UnixDatagram::unbound()?;
            socket.connect(SYSTEM_LOG)?;
            // A log that nobody reads must not stop the mount.
            socket.set_nonblocking(true)?;
            io::Result::Ok(socket)
        };
        connect().map_or(Destination::None, Destination::System)
    }
}

/// Starts logging for the whole process.
pub(crate) fn start(destination: Destination, level: LogLevel, format: LogFormat) {
    let filter = match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    // The system log adds the time itself.
    let with_time = !matches!(destination, Destination::System(_));
    let builder = tracing_subscriber::fmt()
        .with_max_level(filter)
        .with_ansi(false)
        .with_target(false)
        // They go to standard error, which may be closed.
        .log_internal_errors(false)
        .with_writer(Log::new(destination, format));
    // It fails only if logging has been started before.
    let _ = match format {
        LogFormat::Json => builder
            .json()
            .flatten_event(true)
            .finish()
            .pipe(tracing::subscriber::set_global_default),
        _ if with_time => builder.finish().pipe(tracing::subscriber::set_global_default),
        _ => builder.without_time().finish().pipe(tracing::subscriber::set_global_default),
    };
}

/// Calls a function on a value, so that types of subscriber can share one ending.
trait Pipe: Sized {
    fn pipe<T>(self, function: impl FnOnce(Self) -> T) -> T {
        function(self)
    }
}
impl<S: tracing::Subscriber> Pipe for S {}

/// Makes a writer for each event.
struct Log {
    destination: Destination,
    format: LogFormat,
    limiter: Limiter,
}

impl Log {
    fn new(destination: Destination, format: LogFormat) -> Log {
        Log { destination, format, limiter: Limiter::default() }
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Line<'a>;

    fn make_writer(&'a self) -> Line<'a> {
        Line { destination: Some(&self.destination), level: Level::INFO }
    }

    fn make_writer_for(&'a self, metadata: &Metadata<'_>) -> Line<'a> {
        let level = *metadata.level();
        let mut line = Line { destination: Some(&self.destination), level };
        // What is asked for in detail is wanted in detail.
        if level > Level::INFO {
            return line;
        }
        match self.limiter.admit(metadata.callsite(), Instant::now()) {
            Some(0) => {}
            Some(left_out) => {
                // A log that cannot be written has nobody to be told.
                let _ = line.write(left_out_line(left_out, self.format).as_bytes());
            }
            None => line.destination = None,
        }
        line
    }
}

/// Returns the line about lines that were left out.
fn left_out_line(left_out: u64, format: LogFormat) -> String {
    match format {
        LogFormat::Text => format!("{left_out} lines like the next one were left out\n"),
        LogFormat::Json => {
            let message = "lines like the next one were left out";
            format!("{{\"message\":\"{message}\",\"count\":{left_out}}}\n")
        }
    }
}

/// Counts lines by the place in the program that they come from; there are only so many.
#[derive(Default)]
struct Limiter(Mutex<HashMap<Identifier, Window>>);

/// Lines of a place.
struct Window {
    begun: Instant,
    lines: u64,
}

impl Limiter {
    /// Admits a line of a place. Returns the number of those that were left out before it; `None`:
    /// this one is left out.
    fn admit(&self, place: Identifier, now: Instant) -> Option<u64> {
        let mut windows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let window = windows.entry(place).or_insert(Window { begun: now, lines: 0 });
        let mut left_out = 0;
        if now.saturating_duration_since(window.begun) >= WINDOW {
            left_out = window.lines.saturating_sub(LINES_MAX);
            *window = Window { begun: now, lines: 0 };
        }
        window.lines += 1;
        (window.lines <= LINES_MAX).then_some(left_out)
    }
}

/// Writes one event.
struct Line<'a> {
    /// `None`: it is left out.
    destination: Option<&'a Destination>,
    level: Level,
}

impl Write for Line<'_> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match self.destination {
            Some(Destination::File(file)) => (&*file).write(line),
            Some(Destination::StandardError) => io::stderr().write(line),
            Some(Destination::System(socket)) => {
                socket.send(&system_message(self.level, line)).map(|_| line.len())
            }
            Some(Destination::None) | None => Ok(line.len()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Formats a message as syslog daemons expect it: `<27>shoal[123]: text`.
fn system_message(level: Level, line: &[u8]) -> Vec<u8> {
    let severity = match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        _ => 7,
    };
    let head = format!("<{}>shoal[{}]: ", FACILITY_DAEMON | severity, std::process::id());
    let mut message = head.into_bytes();
    message.extend_from_slice(line.trim_ascii_end());
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_messages_have_their_severity() {
        let message = String::from_utf8(system_message(Level::ERROR, b"bad\n")).expect("UTF-8");
        assert_eq!(message, format!("<27>shoal[{}]: bad", std::process::id()));
        assert!(system_message(Level::INFO, b"").starts_with(b"<30>"));
    }

    #[test]
    fn a_place_logs_few_lines_and_counts_the_others() {
        static PLACE: Place = Place;
        let place = || Identifier(&PLACE);
        let (limiter, begun) = (Limiter::default(), Instant::now());
        let admitted = (0..1000).filter(|_| limiter.admit(place(), begun).is_some()).count();
        assert_eq!(admitted, LINES_MAX as usize);
        assert_eq!(limiter.admit(place(), begun + WINDOW / 2), None);
        let later = begun + WINDOW;
        assert_eq!(limiter.admit(place(), later), Some(1001 - LINES_MAX));
        assert_eq!(limiter.admit(place(), later), Some(0));
        for format in [LogFormat::Text, LogFormat::Json] {
            assert!(left_out_line(996, format).contains("996"));
        }
        let json: serde_json::Value =
            serde_json::from_str(&left_out_line(996, LogFormat::Json)).expect("JSON");
        assert_eq!(json["count"], 996);
    }

    /// A place in a program.
    struct Place;

    impl tracing::Callsite for Place {
        fn set_interest(&self, _: tracing::subscriber::Interest) {}
        fn metadata(&self) -> &Metadata<'_> {
            unreachable!("only its address counts")
        }
    }
}
