//! Marks of the change feed on the command line, and in files.

use std::fs;
use std::io;
use std::path::Path;

use shoal::raw::ChangeMark;

use crate::failure::{Failure, Reason, Result};
use crate::new_file::{Terms, write_whole};

/// Returns the mark that is given as text, or is in a file; `None` if there is none, or no such
/// file.
pub(crate) fn read(text: Option<&str>, file: Option<&Path>) -> Result<Option<ChangeMark>> {
    let (text, label) = match (text, file) {
        (Some(text), _) => (text.to_owned(), "--since".to_owned()),
        (None, Some(file)) => {
            let label = file.display().to_string();
            match fs::read_to_string(file) {
                Ok(text) => (text, label),
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(Failure::failed(label, Reason::from(error))),
            }
        }
        (None, None) => return Ok(None),
    };
    let mark = text.trim_end().parse();
    mark.map(Some).map_err(|error| Failure::usage(label, Reason::Volume(error)))
}

/// Replaces the file of a mark, so that it has the old or the new one at any time.
pub(crate) fn replace(file: &Path, mark: &ChangeMark) -> Result<()> {
    write_whole(file, format!("{mark}\n").as_bytes(), &Terms::default())
}
