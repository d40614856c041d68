//! The one error type of this crate: a line for people, naming the object and what failed.

use std::fmt;

/// Result of everything here.
pub(crate) type Result<T, E = BenchError> = std::result::Result<T, E>;

/// One line that names the object and what went wrong with it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BenchError(String);

impl BenchError {
    /// An error that says `message`.
    pub fn new(message: impl Into<String>) -> BenchError {
        BenchError(message.into())
    }

    /// `what` of `object` failed because of `why`.
    #[cold]
    pub(crate) fn failed(what: &str, object: impl fmt::Display, why: impl fmt::Display) -> Self {
        BenchError(format!("{what} {object}: {why}"))
    }
}

impl fmt::Display for BenchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BenchError {}

impl From<String> for BenchError {
    fn from(message: String) -> BenchError {
        BenchError(message)
    }
}

impl From<BenchError> for String {
    fn from(error: BenchError) -> String {
        error.0
    }
}
