//! Errors of the library.

use crate::raw;
use std::fmt;
use std::io;
use std::sync::Arc;

/// Result of the library's calls.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error: what was tried, on which path, and why it failed.
///
/// `Display` says all three, and what to do about it where the reason alone does not.
///
/// It converts to [`io::Error`] and back. The [`io::Error`] has the same kind and message, and
/// holds the [`Error`]: [`Error::from`] returns that as it was, with its errno and path. Its
/// [`raw_os_error`](io::Error::raw_os_error) is `None`, as for every error with a message. An
/// [`io::Error`] of a system call keeps errno, kind and message as an [`Error`], and converts back
/// to itself.
#[derive(Clone)]
pub struct Error(Box<Inner>);

#[derive(Clone)]
struct Inner {
    /// Empty for an error that was no call of the library.
    doing: &'static str,
    path: Option<Box<[u8]>>,
    source: Source,
}

#[derive(Clone)]
enum Source {
    Engine(raw::Error),
    System(Arc<io::Error>),
}

impl Error {
    #[cold]
    pub(crate) fn new(doing: &'static str, path: Option<&[u8]>, source: raw::Error) -> Error {
        let source = Source::Engine(source);
        Error(Box::new(Inner { doing, path: path.map(Box::from), source }))
    }

    /// An error that the engine does not have.
    #[cold]
    pub(crate) fn system(doing: &'static str, path: Option<&[u8]>, error: io::Error) -> Error {
        let source = Source::System(Arc::new(error));
        Error(Box::new(Inner { doing, path: path.map(Box::from), source }))
    }

    /// The kind, as the standard library has it for system calls that fail so. A device that is
    /// full is [`io::ErrorKind::StorageFull`] like a full volume; damage is
    /// [`io::ErrorKind::InvalidData`].
    pub fn kind(&self) -> io::ErrorKind {
        match &self.0.source {
            Source::Engine(raw::Error::Corrupt(_)) => io::ErrorKind::InvalidData,
            Source::Engine(other) => io::Error::from_raw_os_error(other.errno()).kind(),
            Source::System(error) => error.kind(),
        }
    }

    /// The Linux errno, positive. `EIO` for an [`io::Error`] that had none.
    pub fn errno(&self) -> i32 {
        match &self.0.source {
            Source::Engine(error) => error.errno(),
            Source::System(error) => error.raw_os_error().unwrap_or(raw::Code::Io.errno()),
        }
    }

    /// The path that the call was given, if it was given one. For a call on an open file or
    /// directory, the path by which it was opened.
    pub fn path(&self) -> Option<&[u8]> {
        self.0.path.as_deref()
    }

    /// The error of the engine; `None` if this was made of an [`io::Error`].
    pub fn get_ref(&self) -> Option<&raw::Error> {
        match &self.0.source {
            Source::Engine(error) => Some(error),
            Source::System(_) => None,
        }
    }

    /// Advice for errors whose reason does not say what to do.
    fn remedy(&self) -> Option<&'static str> {
        match self.get_ref()? {
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

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Engine(error) => error.fmt(f),
            Source::System(error) => error.fmt(f),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { doing, path, source } = &*self.0;
        if doing.is_empty() {
            return source.fmt(f);
        }
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
        match &self.0.source {
            Source::Engine(source) => write!(f, "Error({self}, {source:?})"),
            Source::System(source) => write!(f, "Error({self}, {source:?})"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.0.source {
            Source::Engine(error) => Some(error),
            Source::System(error) => Some(error),
        }
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        let error = match *error.0 {
            Inner { doing: "", path: None, source: Source::System(system) } => {
                match Arc::try_unwrap(system) {
                    Ok(system) => return system,
                    Err(shared) => Error::from_system(shared),
                }
            }
            inner => Error(Box::new(inner)),
        };
        io::Error::new(error.kind(), error)
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Error {
        match error.downcast::<Error>() {
            Ok(own) => own,
            Err(error) => Error::from_system(Arc::new(error)),
        }
    }
}

impl Error {
    #[cold]
    fn from_system(error: Arc<io::Error>) -> Error {
        Error(Box::new(Inner { doing: "", path: None, source: Source::System(error) }))
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

    #[test]
    fn errors_survive_a_conversion_to_those_of_the_standard_library() {
        let own = Error::new("write", Some(b"a"), raw::Code::Quota.into());
        let there: io::Error = own.clone().into();
        assert_eq!((there.kind(), there.to_string()), (own.kind(), own.to_string()));
        let back = Error::from(there);
        assert_eq!((back.errno(), back.path()), (122, Some(&b"a"[..])));
        assert_eq!(back.to_string(), own.to_string());

        let system = || io::Error::from_raw_os_error(28);
        let error = Error::from(system());
        assert_eq!((error.errno(), error.kind()), (28, io::ErrorKind::StorageFull));
        assert_eq!(error.to_string(), system().to_string());
        assert!(error.get_ref().is_none());
        // Shared with a clone, it cannot become itself again, and keeps the number all the same.
        let clone = error.clone();
        assert_eq!(Error::from(io::Error::from(clone)).errno(), 28);
        assert_eq!(io::Error::from(error).raw_os_error(), Some(28));

        let short = io::Error::from(io::ErrorKind::UnexpectedEof);
        let error = Error::from(short);
        assert_eq!((error.errno(), error.kind()), (5, io::ErrorKind::UnexpectedEof));
    }
}
