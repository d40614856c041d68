//! Errors of the library.

use crate::raw;
use std::fmt;
use std::io;

/// Result of the library's calls.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error: what was tried, on which path, and why it failed.
///
/// `Display` says all three, and what to do about it where the reason alone does not. Converts to
/// [`io::Error`] with a kind that means the same.
#[derive(Clone)]
pub struct Error(Box<Inner>);

#[derive(Clone)]
struct Inner {
    doing: &'static str,
    path: Option<Box<[u8]>>,
    source: raw::Error,
}

impl Error {
    #[cold]
    pub(crate) fn new(doing: &'static str, path: Option<&[u8]>, source: raw::Error) -> Error {
        Error(Box::new(Inner { doing, path: path.map(Box::from), source }))
    }

    /// The kind, as the standard library has it for system calls that fail so. A device that is
    /// full is [`io::ErrorKind::StorageFull`] like a full volume; damage is
    /// [`io::ErrorKind::InvalidData`].
    pub fn kind(&self) -> io::ErrorKind {
        match &self.0.source {
            raw::Error::Corrupt(_) => io::ErrorKind::InvalidData,
            other => io::Error::from_raw_os_error(other.errno()).kind(),
        }
    }

    /// The Linux errno, positive.
    pub fn raw_os_error(&self) -> i32 {
        self.0.source.errno()
    }

    /// The path that the call was given, if it was given one.
    pub fn path(&self) -> Option<&[u8]> {
        self.0.path.as_deref()
    }

    /// The error of the engine.
    pub fn get_ref(&self) -> &raw::Error {
        &self.0.source
    }

    /// Advice for errors whose reason does not say what to do.
    fn remedy(&self) -> Option<&'static str> {
        match &self.0.source {
            raw::Error::Corrupt(_) => Some("run shoal fsck on the closed volume"),
            raw::Error::Poisoned(_) => Some("close the volume and open it again to recover it"),
            raw::Error::Code(raw::Code::NoSpace) => {
                Some("remove files, or make a larger volume and copy")
            }
            raw::Error::Code(raw::Code::Stale) => Some("look it up again: it has been removed"),
            raw::Error::Code(raw::Code::BadHandle) => {
                Some("open it with FileOptions that allow the call")
            }
            _ => None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { doing, path, source } = &*self.0;
        f.write_str(doing)?;
        if let Some(path) = path {
            write!(f, " \"{}\"", path.escape_ascii())?;
        }
        write!(f, ": {source}")?;
        match self.remedy() {
            Some(remedy) => write!(f, " ({remedy})"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Error({self}, {:?})", self.0.source)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0.source)
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        io::Error::new(error.kind(), error)
    }
}

/// Adds what was tried to an error of the engine.
pub(crate) trait Doing<T> {
    /// On a path.
    fn doing(self, what: &'static str, path: &[u8]) -> Result<T>;
    /// On something without a path.
    fn done(self, what: &'static str) -> Result<T>;
}

impl<T> Doing<T> for raw::Result<T> {
    #[inline]
    fn doing(self, what: &'static str, path: &[u8]) -> Result<T> {
        self.map_err(|e| Error::new(what, Some(path), e))
    }
    #[inline]
    fn done(self, what: &'static str) -> Result<T> {
        self.map_err(|e| Error::new(what, None, e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_mean_what_they_say() {
        let of = |source| Error::new("write", Some(b"a"), source);
        let device = |errno| {
            raw::Error::Device(Box::new(raw::DeviceFailure {
                operation: "write",
                device: "disk".to_owned(),
                offset: 0,
                len: 1,
                errno,
            }))
        };
        assert_eq!(of(raw::Code::NotFound.into()).kind(), io::ErrorKind::NotFound);
        assert_eq!(of(device(28)).kind(), io::ErrorKind::StorageFull);
        assert_eq!(of(raw::Code::NoSpace.into()).kind(), io::ErrorKind::StorageFull);
        assert_eq!(of(raw::Code::CrossRoot.into()).kind(), io::ErrorKind::CrossesDevices);
        assert_eq!(of(raw::Code::NotEmpty.into()).kind(), io::ErrorKind::DirectoryNotEmpty);
        assert_eq!(of(raw::Error::Poisoned("x".into())).kind(), io::ErrorKind::ReadOnlyFilesystem);
        assert_eq!(
            of(raw::Error::corrupt("node", None, "magic")).kind(),
            io::ErrorKind::InvalidData
        );
        let io: io::Error = of(raw::Code::NoSpace.into()).into();
        assert_eq!(io.kind(), io::ErrorKind::StorageFull);
        assert!(io.to_string().starts_with("write \"a\": no space left on the volume ("), "{io}");
    }
}
