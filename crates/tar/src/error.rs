//! Errors of an archive, with the place.

use std::fmt;
use std::io;

/// Result of reading an archive.
pub type Result<T> = std::result::Result<T, Error>;

/// Failure to read an archive.
#[derive(Debug)]
pub struct Error {
    /// Bytes from the beginning of the archive to the place.
    pub offset: u64,
    /// Name of the member at hand, or of the last one before; empty at the beginning.
    pub member: Vec<u8>,
    /// Problem.
    pub problem: Problem,
}

/// Kind of failure.
#[derive(Debug)]
pub enum Problem {
    /// The archive cannot be read.
    Input(io::Error),
    /// It ends in the middle of a member.
    Truncated,
    /// It ends behind a member, without the blocks of zeros that end an archive.
    NoEnd,
    /// There is no header where one should be, or it is damaged.
    NoHeader,
    /// A field or record has a value that it cannot have.
    Invalid(&'static str),
    /// Something is longer than [`EXTENSION_MAX`](crate::EXTENSION_MAX).
    TooLong(&'static str),
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::Input(error) => error.fmt(f),
            Problem::Truncated => f.write_str("the archive is truncated"),
            Problem::NoEnd => f.write_str("the archive has no end marker: it may be truncated"),
            Problem::NoHeader => f.write_str("no header here: not a tar archive, or damaged"),
            Problem::Invalid(what) => write!(f, "invalid {what}: the archive is damaged"),
            Problem::TooLong(what) => write!(f, "{what} of more than 4 MiB"),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Error { offset, member, problem } = self;
        match member.is_empty() {
            true => write!(f, "{problem} (offset {offset})"),
            false => write!(f, "{problem} (at \"{}\", offset {offset})", member.escape_ascii()),
        }
    }
}

impl std::error::Error for Error {}
