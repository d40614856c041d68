//! The one error type of this crate: a line for people, naming the object and what failed.

use std::fmt;

/// Result of everything here.
pub(crate) type Result<T, E = LabError> = std::result::Result<T, E>;

/// One line that names the object and what went wrong with it.
#[derive(Debug)]
pub(crate) struct LabError(String);

impl LabError {
    /// `what` of `object` failed because of `why`.
    #[cold]
    pub(crate) fn failed(
        what: &str,
        object: impl fmt::Display,
        why: impl fmt::Display,
    ) -> LabError {
        LabError(format!("{what} {object}: {why}"))
    }
}

impl fmt::Display for LabError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
