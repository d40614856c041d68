//! Choices of a copy, and the handling of files that exist.

use super::side::Meta;

/// Choices of the command line.
#[derive(Clone, Copy, Default)]
pub(super) struct Options {
    /// Copy directories.
    pub recursive: bool,
    /// Print each file.
    pub verbose: bool,
    /// Write each file anew, and give it its name when it is whole. Attributes that the original
    /// does not have are removed.
    pub mirror: bool,
    /// Handling of files that exist.
    pub existing: Existing,
}

/// Handling of a file that exists where a copy is to be made.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Existing {
    /// It is overwritten.
    #[default]
    Overwrite,
    /// It stays.
    Leave,
    /// It stays if its contents are as new as the source's.
    LeaveIfNewer,
}

impl Existing {
    /// Returns whether a file that was found stays as it is.
    pub(super) fn stays(self, source: &Meta, found: Option<&Meta>) -> bool {
        match (self, found) {
            (_, None) | (Existing::Overwrite, _) => false,
            (Existing::Leave, _) => true,
            (Existing::LeaveIfNewer, Some(found)) => found.mtime >= source.mtime,
        }
    }
}
