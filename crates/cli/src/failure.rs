//! How a command fails: one line for the reader and one exit status for the script.
//!
//! Every line has the form `OBJECT: reason (remedy)`; `main` puts `shoal: ` before it. A reader
//! that closes its end of a pipe has seen enough, so that is success, told apart here.

use std::fmt::{self, Display};
use std::io;

/// Everything that was asked for is done.
pub const OK: u8 = 0;
/// Some of it failed; each failure has been reported on its own line.
pub const SOME_FAILED: u8 = 1;
/// Wrong usage, or a volume that cannot be used.
pub const UNUSABLE: u8 = 2;

/// Result of a command or of one of its steps.
pub type Result<T, E = Failure> = std::result::Result<T, E>;

/// Why a command stops.
#[derive(Debug)]
pub enum Failure {
    /// Nobody reads our output any more: stop quietly, successfully.
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
    /// An operation on an object failed.
    pub fn failed(object: impl Display, reason: impl Display) -> Failure {
        Failure::Line { line: format!("{object}: {reason}"), status: SOME_FAILED }
    }

    /// The request itself is wrong.
    pub fn usage(object: impl Display, reason: impl Display) -> Failure {
        Failure::Line { line: format!("{object}: {reason}"), status: UNUSABLE }
    }

    /// The volume cannot be used. A refusal by the library names its object and remedy itself.
    pub fn volume(path: impl Display, error: &shoal::Error) -> Failure {
        let line = match error {
            shoal::Error::Refused { message, .. } => message.clone(),
            other => format!("{path}: {other}"),
        };
        Failure::Line { line, status: UNUSABLE }
    }

    /// Its line, if it has one.
    pub fn line(&self) -> Option<&str> {
        match self {
            Failure::Line { line, .. } => Some(line),
            Failure::BrokenPipe => None,
        }
    }

    /// The same failure with another exit status.
    pub fn with_status(self, status: u8) -> Failure {
        match self {
            Failure::Line { line, .. } => Failure::Line { line, status },
            Failure::BrokenPipe => Failure::BrokenPipe,
        }
    }

    /// A failure to write to standard output.
    pub fn output(error: io::Error) -> Failure {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::BrokenPipe,
            _ => Failure::failed("standard output", Reason::from(error)),
        }
    }
}

/// Why one operation failed, whichever side it happened on, in the same words.
#[derive(Debug)]
pub enum Reason {
    /// The operating system said so.
    System(io::Error),
    /// The volume said so.
    Volume(shoal::Error),
    /// We say so.
    Text(String),
    /// The user does not want it any more; the exit status for that.
    Interrupted(u8),
}

impl Reason {
    /// Whether it is of no use to go on with other files: the volume is read-only now, or full.
    pub fn stops_everything(&self) -> bool {
        match self {
            Reason::Volume(shoal::Error::Poisoned(_)) => true,
            Reason::Volume(error) => error.code() == shoal::Code::NoSpace,
            Reason::System(error) => error.kind() == io::ErrorKind::StorageFull,
            Reason::Text(_) => false,
            Reason::Interrupted(_) => true,
        }
    }

    /// Whether it is this errno.
    pub fn is(&self, code: shoal::Code) -> bool {
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

impl From<shoal::Error> for Reason {
    fn from(error: shoal::Error) -> Reason {
        Reason::Volume(error)
    }
}

/// The operating system's words in the style of ours: lower case, without the number.
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
        assert!(missing.is(shoal::Code::NotFound));
        let ours = Reason::from(shoal::Error::Code(shoal::Code::NotFound));
        assert_eq!(missing.to_string(), ours.to_string());
    }

    #[test]
    fn a_refusal_speaks_for_itself() {
        let refused = shoal::Error::refused(shoal::Code::Busy, "v.img: in use by process 7");
        let Failure::Line { line, status } = Failure::volume("v.img", &refused) else { panic!() };
        assert_eq!((line.as_str(), status), ("v.img: in use by process 7", UNUSABLE));
    }

    #[test]
    fn a_closed_pipe_is_no_failure() {
        let error = io::Error::from(io::ErrorKind::BrokenPipe);
        assert!(matches!(Failure::output(error), Failure::BrokenPipe));
    }
}
