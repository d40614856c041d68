//! `VOLUME:/path`: a place inside a volume, told apart from a local path.
//!
//! - The first `:/` (or a `:` at the end) behind the name of an existing file or device separates
//!   the volume from the path in it; if there is no such file, simply the first one does, so that
//!   a missing volume is reported as a missing volume.
//! - An argument that starts with `./` is local, unless what stands before its `:/` is an existing
//!   file and no local directory has the name with the colon: so a local path that contains `:/`
//!   can always be written, and `./vol.img:/a` still means what it seems to.
//! - A bucket is named by a URL, `s3://bucket/prefix`; a `:/` behind its scheme separates as above.
//! - A command that takes only volumes reads an argument without `:/` as the volume's top
//!   directory.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use crate::text::printable;

/// A place in a volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Location {
    /// The volume's file or device.
    pub volume: PathBuf,
    /// Absolute path in it; slashes are as they were typed, `/` for the top.
    pub path: Vec<u8>,
}

/// An argument of a command that also takes local paths.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// A local path.
    Local(PathBuf),
    /// A place in a volume.
    Volume(Location),
}

impl Location {
    /// Reads the argument of a command that takes only volumes.
    pub(crate) fn parse(argument: &OsStr) -> Location {
        match split(argument.as_bytes(), &|path| is_volume(path)) {
            Some(at) => Location::at(argument.as_bytes(), at),
            None => Location { volume: PathBuf::from(argument), path: b"/".to_vec() },
        }
    }

    fn at(argument: &[u8], colon: usize) -> Location {
        let volume = PathBuf::from(OsString::from_vec(argument[..colon].to_vec()));
        let path = match &argument[colon + 1..] {
            b"" => b"/".to_vec(),
            path => path.to_vec(),
        };
        Location { volume, path }
    }

    /// Returns the name in messages: `vol.img:/a/b`.
    pub(crate) fn label(&self) -> String {
        label(&self.volume, &self.path)
    }
}

/// Returns the name of a path in a volume, for messages.
pub(crate) fn label(volume: &Path, path: &[u8]) -> String {
    format!("{}:{}", volume.display(), printable(path))
}

impl Place {
    /// Reads an argument that may be a local path or a place in a volume.
    pub(crate) fn parse(argument: &OsStr) -> Place {
        Place::parse_with(argument, &|path| is_volume(path), &|path| path.is_dir())
    }

    fn parse_with(
        argument: &OsStr,
        is_volume: &dyn Fn(&Path) -> bool,
        is_directory: &dyn Fn(&Path) -> bool,
    ) -> Place {
        let bytes = argument.as_bytes();
        let local = || Place::Local(PathBuf::from(argument));
        let Some(colon) = split(bytes, is_volume) else {
            // A bucket is no local path: its name alone is the top of the volume in it.
            return match shoal::raw::is_bucket(Path::new(argument)) {
                true => Place::Volume(Location::parse(argument)),
                false => local(),
            };
        };
        if bytes.starts_with(b"./") {
            let before = Path::new(OsStr::from_bytes(&bytes[..colon]));
            let with_colon = Path::new(OsStr::from_bytes(&bytes[..=colon]));
            if !is_volume(before) || is_directory(with_colon) {
                return local();
            }
        }
        Place::Volume(Location::at(bytes, colon))
    }
}

/// Returns the index of the colon that ends the volume's name.
fn split(argument: &[u8], is_volume: &dyn Fn(&Path) -> bool) -> Option<usize> {
    let scheme = match shoal::raw::is_bucket(Path::new(OsStr::from_bytes(argument))) {
        true => argument.iter().position(|byte| *byte == b':').map_or(0, |colon| colon + 3),
        false => 0,
    };
    let colons = || {
        (scheme + 1..argument.len())
            .filter(|&at| argument[at] == b':')
            .filter(|&at| argument.get(at + 1).is_none_or(|next| *next == b'/'))
    };
    colons()
        .find(|&at| is_volume(Path::new(OsStr::from_bytes(&argument[..at]))))
        .or_else(|| colons().next())
}

/// Returns whether a path may hold a volume.
fn is_volume(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| found.is_file() || found.file_type().is_block_device())
}

/// A path in a volume, split: the directory that holds the last component, and that component.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Split<'a> {
    /// Path of the directory.
    pub parent: &'a [u8],
    /// The last component: empty for the top directory; may be `.` or `..`.
    pub name: &'a [u8],
    /// The path ended with a slash, so it means a directory.
    pub slash: bool,
}

/// Splits off the last component.
pub(crate) fn split_last(path: &[u8]) -> Split<'_> {
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
    let trimmed = &path[..end];
    let slash = end < path.len();
    match trimmed.iter().rposition(|byte| *byte == b'/') {
        Some(0) => Split { parent: b"/", name: &trimmed[1..], slash },
        Some(at) => Split { parent: &trimmed[..at], name: &trimmed[at + 1..], slash },
        None if trimmed.is_empty() && slash => Split { parent: b"/", name: b"", slash },
        None => Split { parent: b"", name: trimmed, slash },
    }
}

/// Appends a component to a path.
pub(crate) fn push(path: &mut Vec<u8>, name: &[u8]) {
    if !path.is_empty() && path.last() != Some(&b'/') {
        path.push(b'/');
    }
    path.extend_from_slice(name);
}

/// Joins a path and a component below it.
pub(crate) fn join(path: &[u8], name: &[u8]) -> Vec<u8> {
    let mut joined = path.to_vec();
    push(&mut joined, name);
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files `vol.img`, `d/v`, `odd:/v`; directories `vol.img:` in `both` mode only.
    fn place(argument: &str, colon_directory: bool) -> Place {
        let is_volume = |path: &Path| {
            let files = ["vol.img", "./vol.img", "d/v", "odd:/v", "./odd:/v"];
            files.iter().any(|file| path == Path::new(file))
        };
        let is_directory = |_: &Path| colon_directory;
        Place::parse_with(OsStr::new(argument), &is_volume, &is_directory)
    }

    fn volume(volume: &str, path: &str) -> Place {
        Place::Volume(Location { volume: volume.into(), path: path.into() })
    }

    #[test]
    fn local_and_volume_are_told_apart() {
        let cases: &[(&str, Place)] = &[
            ("file", Place::Local("file".into())),
            ("a/b:c", Place::Local("a/b:c".into())),
            (":/x", Place::Local(":/x".into())),
            ("./no:/x", Place::Local("./no:/x".into())),
            ("vol.img:/", volume("vol.img", "/")),
            ("vol.img:", volume("vol.img", "/")),
            ("vol.img:/a/b", volume("vol.img", "/a/b")),
            ("./vol.img:/a", volume("./vol.img", "/a")),
            ("d/v:/x:/y", volume("d/v", "/x:/y")),
            ("odd:/v:/y", volume("odd:/v", "/y")),
            ("missing:/y", volume("missing", "/y")),
        ];
        for (argument, expected) in cases {
            assert_eq!(place(argument, false), *expected, "{argument}");
        }
        assert_eq!(place("./vol.img:/a", true), Place::Local("./vol.img:/a".into()));
        assert_eq!(place("vol.img:/a", true), volume("vol.img", "/a"));
    }

    #[test]
    fn a_bare_volume_means_its_top() {
        let location = Location::parse(OsStr::new("vol.img"));
        assert_eq!(location, Location { volume: "vol.img".into(), path: b"/".to_vec() });
        assert_eq!(location.label(), "vol.img:/");
    }

    #[test]
    fn the_last_component() {
        let cases: &[(&str, &str, &str, bool)] = &[
            ("/", "/", "", true),
            ("//", "/", "", true),
            ("/a", "/", "a", false),
            ("/a/", "/", "a", true),
            ("/a/b", "/a", "b", false),
            ("/a//b//", "/a/", "b", true),
            ("/a/..", "/a", "..", false),
            ("a", "", "a", false),
            ("a/b", "a", "b", false),
        ];
        for (path, parent, name, slash) in cases {
            let expected =
                Split { parent: parent.as_bytes(), name: name.as_bytes(), slash: *slash };
            assert_eq!(split_last(path.as_bytes()), expected, "{path}");
        }
        assert_eq!(join(b"/", b"a"), b"/a");
        assert_eq!(join(b"/a", b"b"), b"/a/b");
        assert_eq!(join(b"", b"b"), b"b");
    }
}
