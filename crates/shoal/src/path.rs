//! Paths.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A path: a string, a [`Path`] or bytes. Names in a volume are bytes without NUL and slash, of any
/// encoding.
///
/// A path is relative to the directory whose method takes it, and never leads out of it: absolute
/// paths, symlinks to absolute paths, and `..` above the start are refused with
/// [`CrossesDevices`](std::io::ErrorKind::CrossesDevices).
pub trait AsPath {
    /// The bytes of the path.
    fn as_path(&self) -> &[u8];
}

macro_rules! paths {
    ($($what:ty => |$it:ident| $bytes:expr;)*) => {$(
        impl AsPath for $what {
            #[inline]
            fn as_path(&self) -> &[u8] {
                let $it = self;
                $bytes
            }
        }
    )*};
}

paths! {
    str => |it| it.as_bytes();
    String => |it| it.as_bytes();
    Cow<'_, str> => |it| it.as_bytes();
    [u8] => |it| it;
    Vec<u8> => |it| it;
    OsStr => |it| it.as_bytes();
    OsString => |it| OsStrExt::as_bytes(it.as_os_str());
    Path => |it| it.as_os_str().as_bytes();
    PathBuf => |it| it.as_os_str().as_bytes();
}

impl<const N: usize> AsPath for [u8; N] {
    #[inline]
    fn as_path(&self) -> &[u8] {
        self
    }
}

impl<P: AsPath + ?Sized> AsPath for &P {
    #[inline]
    fn as_path(&self) -> &[u8] {
        (**self).as_path()
    }
}

/// Returns a path of a volume as a path of the standard library.
pub(crate) fn to_path_buf(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(bytes))
}

/// Splits `a/b/c` into `a/b` and `c`: the directory and the name in it. A single name is in "", the
/// directory that the path starts from.
pub fn split_parent(path: &[u8]) -> (&[u8], &[u8]) {
    let trimmed = path.strip_suffix(b"/").unwrap_or(path);
    match trimmed.iter().rposition(|b| *b == b'/') {
        Some(0) => (b"/", &trimmed[1..]),
        Some(at) => (&trimmed[..at], &trimmed[at + 1..]),
        None => (b"", trimmed),
    }
}

#[cfg(test)]
mod tests {
    use super::split_parent;

    #[test]
    fn paths_are_split_at_the_last_slash() {
        let split = |path: &'static str| split_parent(path.as_bytes());
        assert_eq!(split("/a/b/c"), (&b"/a/b"[..], &b"c"[..]));
        assert_eq!(split("/a/"), (&b"/"[..], &b"a"[..]));
        assert_eq!(split("a"), (&b""[..], &b"a"[..]));
    }
}
