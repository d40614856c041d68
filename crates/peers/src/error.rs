//! The one error type of this crate: a line for people, naming the object and what failed.

use std::fmt;

/// Result of everything here.
pub(crate) type Result<T, E = PeerError> = std::result::Result<T, E>;

/// An error of an engine, or of the files below it.
///
/// It does not implement [`std::error::Error`], so that `?` makes one of every error that does.
#[derive(Debug)]
pub(crate) enum PeerError {
    /// There is an entry of this name.
    Exists(String),
    /// One line about anything else.
    Failed(String),
}

impl PeerError {
    /// There is an entry of this name.
    #[cold]
    pub(crate) fn exists(name: &[u8]) -> PeerError {
        PeerError::Exists(name.escape_ascii().to_string())
    }

    /// An error that says `message`.
    #[cold]
    pub(crate) fn new(message: impl Into<String>) -> PeerError {
        PeerError::Failed(message.into())
    }

    /// The same error, which names the object that it is about.
    #[cold]
    pub(crate) fn about(self, object: impl fmt::Display) -> PeerError {
        PeerError::Failed(format!("{object}: {self}"))
    }
}

impl fmt::Display for PeerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PeerError::Exists(name) => write!(f, "\"{name}\" already exists"),
            PeerError::Failed(message) => f.write_str(message),
        }
    }
}

impl<E: std::error::Error> From<E> for PeerError {
    #[cold]
    fn from(error: E) -> PeerError {
        let message = error.to_string();
        PeerError::Failed(message.lines().collect::<Vec<_>>().join(" "))
    }
}
