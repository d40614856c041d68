//! Descriptors that one process leaves to the next.

use shoal_base::{Code, Error, Result};
use std::fs::File;
use std::sync::Arc;

/// Duplicates descriptors.
pub(crate) fn copies(files: &[Arc<File>]) -> Result<Vec<File>> {
    let copy = |file: &Arc<File>| {
        file.try_clone().map_err(|error| {
            Error::refused(Code::Io, format!("cannot duplicate a descriptor: {error}"))
        })
    };
    files.iter().map(copy).collect()
}
