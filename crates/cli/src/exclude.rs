//! Patterns of `--exclude`, as du(1) and tar(1) have them.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use shoal::raw::glob;

/// Returns whether a path, or the end of it behind any slash, matches one of the patterns.
pub(crate) fn is_excluded(patterns: &[OsString], path: &[u8]) -> bool {
    let ends = |pattern: &[u8]| {
        let behind =
            |at: &usize| path[*at] == b'/' && path.get(at + 1).is_some_and(|it| *it != b'/');
        let mut starts = (0..path.len()).filter(behind).map(|at| at + 1);
        glob::matches(pattern, path) || starts.any(|at| glob::matches(pattern, &path[at..]))
    };
    patterns.iter().any(|pattern| ends(pattern.as_bytes()))
}

/// Returns whether a path, or a directory that it is in, is excluded.
pub(crate) fn is_left_out(patterns: &[OsString], path: &[u8]) -> bool {
    let ends = (1..path.len()).filter(|at| path[*at] == b'/').chain([path.len()]);
    !patterns.is_empty() && ends.into_iter().any(|end| is_excluded(patterns, &path[..end]))
}
