//! Failures of commands: one line for the reader and one exit status for the script.
//!
//! Every line has the form `OBJECT: reason (remedy)`; `main` puts `shoal: ` before it. A reader
//! that closes its end of a pipe has seen enough, so that is a success, and a case of its own here.

use std::fmt::{self, Display};
use std::io;

use shoal::raw::Code;

use crate::mounts;

/// Everything that was asked for is done.
pub(crate) const OK: u8 = 0;
/// Some of it failed; each failure has been reported on its own line.
pub(crate) const SOME_FAILED: u8 = 1;
/// Wrong usage, or a volume that cannot be used.
pub(crate) const UNUSABLE: u8 = 2;

/// Result of a command or of one of its steps.
pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

/// Reason why a command stops.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Standard output has no reader any more: stop quietly, successfully.
    BrokenPipe,
    /// Stop with this line and this exit status.
    Line {
        /// `OBJECT: reason (remedy)`.
        line: String,
        /// Exit status.
        status: u8,
    },
}

impl Failure {
    /// Failure of an operation on an object.
    pub(crate) fn failed(object: impl Display, reason: impl Display) -> Failure {
        Failure::Line { line: format!("{object}: {reason}"), status: SOME_FAILED }
    }

    /// Wrong usage.
    pub(crate) fn usage(object: impl Display, reason: impl Display) -> Failure {
        Failure::Line { line: format!("{object}: {reason}"), status: UNUSABLE }
    }

    /// A volume that cannot be used. A refusal by the library names its object and remedy itself.
    pub(crate) fn volume(path: impl Display, error: &shoal::raw::Error) -> Failure {
        let line = match error {
            shoal::raw::Error::Refused { code: Code::Busy, message } => {
                mounts::explained(&path.to_string(), message).unwrap_or_else(|| message.clone())
            }
            shoal::raw::Error::Refused { message, .. } => message.clone(),
            shoal::raw::Error::Device(failure) if failure.operation == "open" => {
                not_opened(&path, failure)
            }
            other => format!("{path}: {other}"),
        };
        Failure::Line { line, status: UNUSABLE }
    }

    /// Returns the line, if there is one.
    pub(crate) fn line(&self) -> Option<&str> {
        match self {
            Failure::Line { line, .. } => Some(line),
            Failure::BrokenPipe => None,
        }
    }

    /// Returns the same failure with another exit status.
    pub(crate) fn with_status(self, status: u8) -> Failure {
        match self {
            Failure::Line { line, .. } => Failure::Line { line, status },
            Failure::BrokenPipe => Failure::BrokenPipe,
        }
    }

    /// Failure to write to standard output.
    pub(crate) fn output(error: io::Error) -> Failure {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::BrokenPipe,
            _ => Failure::failed("standard output", Reason::from(error)),
        }
    }
}

/// Returns the line for a file or device that cannot be opened.
fn not_opened(path: &impl Display, failure: &shoal::raw::DeviceFailure) -> String {
    let error = io::Error::from_raw_os_error(failure.errno);
    if error.kind() == io::ErrorKind::ReadOnlyFilesystem {
        return format!(
            "{path}: its device or filesystem is read-only (mount it with --read-only, or copy it)"
        );
    }
    format!("{path}: cannot be opened: {}", system_text(&error))
}

/// Reason why one operation failed, on whichever side, in the same words.
#[derive(Debug)]
pub(crate) enum Reason {
    /// An error of the operating system.
    System(io::Error),
    /// An error of the volume.
    Volume(shoal::raw::Error),
    /// A text of our own.
    Text(String),
    /// The user has interrupted the command; its exit status.
    Interrupted(u8),
}

impl Reason {
    /// Returns whether other files would fail too: the volume is read-only now, or full.
    pub(crate) fn stops_everything(&self) -> bool {
        match self {
            Reason::Volume(shoal::raw::Error::Poisoned(_)) => true,
            Reason::Volume(error) => error.code() == shoal::raw::Code::NoSpace,
            Reason::System(error) => error.kind() == io::ErrorKind::StorageFull,
            Reason::Text(_) => false,
            Reason::Interrupted(_) => true,
        }
    }

    /// Returns whether it is this errno.
    pub(crate) fn is(&self, code: shoal::raw::Code) -> bool {
        match self {
            Reason::System(error) => error.raw_os_error() == Some(code.errno()),
            Reason::Volume(error) => error.code() == code,
            Reason::Text(_) | Reason::Interrupted(_) => false,
        }
    }
}

impl Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::System(error) => f.write_str(&system_text(error)),
            Reason::Volume(error) => error.fmt(f),
            Reason::Text(text) => f.write_str(text),
            Reason::Interrupted(_) => f.write_str("interrupted"),
        }
    }
}

impl From<io::Error> for Reason {
    fn from(error: io::Error) -> Reason {
        Reason::System(error)
    }
}

impl From<rustix::io::Errno> for Reason {
    fn from(error: rustix::io::Errno) -> Reason {
        Reason::System(error.into())
    }
}

impl From<shoal::raw::Error> for Reason {
    fn from(error: shoal::raw::Error) -> Reason {
        Reason::Volume(error)
    }
}

/// Returns the operating system's text in our style: lower case, without the number.
fn system_text(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error ").next().unwrap_or_default();
    // An abbreviation keeps its capitals.
    let second_is_lower = text.chars().nth(1).is_some_and(|c| c.is_lowercase());
    match text.chars().next() {
        Some(first) if second_is_lower => {
            first.to_lowercase().chain(text.chars().skip(1)).collect()
        }
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_errors_read_like_ours() {
        let missing = Reason::from(io::Error::from_raw_os_error(2));
        assert_eq!(missing.to_string(), "no such file or directory");
        assert!(missing.is(shoal::raw::Code::NotFound));
        let ours = Reason::from(shoal::raw::Error::Code(shoal::raw::Code::NotFound));
        assert_eq!(missing.to_string(), ours.to_string());
    }

    #[test]
    fn a_refusal_speaks_for_itself() {
        let refused =
            shoal::raw::Error::refused(shoal::raw::Code::Busy, "v.img: in use by process 7");
        let Failure::Line { line, status } = Failure::volume("v.img", &refused) else { panic!() };
        assert_eq!((line.as_str(), status), ("v.img: in use by process 7", UNUSABLE));
    }

    /// It said "open of 0 bytes at byte 0 failed".
    #[test]
    fn a_device_that_cannot_be_opened_has_a_remedy() {
        let line = |errno| {
            let device = "v.img".to_owned();
            let failure =
                shoal::raw::DeviceFailure { operation: "open", device, offset: 0, len: 0, errno };
            let error = shoal::raw::Error::Device(Box::new(failure));
            Failure::volume("v.img", &error).line().unwrap_or_default().to_owned()
        };
        assert!(line(30).contains("v.img: its device or filesystem is read-only (mount it with"));
        assert_eq!(line(6), "v.img: cannot be opened: no such device or address");
    }

    #[test]
    fn a_closed_pipe_is_no_failure() {
        let error = io::Error::from(io::ErrorKind::BrokenPipe);
        assert!(matches!(Failure::output(error), Failure::BrokenPipe));
    }
}
