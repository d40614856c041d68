//! Destinations of a mount's log: a file, standard error, or the system log.
//!
//! The system log is the datagram socket that every syslog daemon, journald included, listens on.
//! Without one, the log of a mount in the background is lost; `--log` is the remedy.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;

use tracing::level_filters::LevelFilter;
use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;

use crate::args::LogLevel;

/// Socket of syslog daemons.
const SYSTEM_LOG: &str = "/dev/log";
/// The facility `daemon`, as a part of the number in front of each message.
const FACILITY_DAEMON: u8 = 3 << 3;

/// Destination of the log.
pub enum Destination {
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
    pub fn system_log() -> Destination {
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
pub fn start(destination: Destination, level: LogLevel) {
    let level = match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    // The system log adds the time itself.
    let with_time = !matches!(destination, Destination::System(_));
    let builder = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_ansi(false)
        .with_target(false)
        // They go to standard error, which may be closed.
        .log_internal_errors(false)
        .with_writer(Log(Arc::new(destination)));
    // It fails only if logging has been started before.
    let _ = if with_time {
        builder.finish().pipe(tracing::subscriber::set_global_default)
    } else {
        builder.without_time().finish().pipe(tracing::subscriber::set_global_default)
    };
}

/// Calls a function on a value, so that two types of subscriber can share one ending.
trait Pipe: Sized {
    fn pipe<T>(self, function: impl FnOnce(Self) -> T) -> T {
        function(self)
    }
}
impl<S: tracing::Subscriber> Pipe for S {}

/// Makes a writer for each event.
struct Log(Arc<Destination>);

impl<'a> MakeWriter<'a> for Log {
    type Writer = Line<'a>;

    fn make_writer(&'a self) -> Line<'a> {
        Line { destination: &self.0, level: Level::INFO }
    }

    fn make_writer_for(&'a self, metadata: &Metadata<'_>) -> Line<'a> {
        Line { destination: &self.0, level: *metadata.level() }
    }
}

/// Writes one event.
struct Line<'a> {
    destination: &'a Destination,
    level: Level,
}

impl Write for Line<'_> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match self.destination {
            Destination::File(file) => (&*file).write(line),
            Destination::StandardError => io::stderr().write(line),
            Destination::System(socket) => {
                socket.send(&system_message(self.level, line)).map(|_| line.len())
            }
            Destination::None => Ok(line.len()),
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
}
