//! The house rules. A rule holds where a machine checks it; the unchecked ones drift. What each is
//! for is in CONTRIBUTING.md.

mod doc_comments;
mod documents;
mod graph;
mod layers;
mod modules;
mod order;
mod shape;
mod whole_matches;
mod words;

use crate::repository::Repository;
use crate::source::Source;
use crate::{format_doc, ladder};
use std::fmt;
use std::path::{Path, PathBuf};

/// A place where a rule does not hold.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Problem {
    /// The file.
    pub path: PathBuf,
    /// The line, from 1; 0: the file as a whole.
    pub line: usize,
    /// The fault, and its remedy.
    pub message: String,
}

impl Problem {
    fn new(path: &Path, line: usize, message: impl Into<String>) -> Problem {
        Problem { path: path.into(), line, message: message.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path.display(), self.message),
            line => write!(f, "{}:{line}: {}", self.path.display(), self.message),
        }
    }
}

/// All rules on the whole repository; sorted by place.
pub fn check_all(repository: &Repository) -> Result<Vec<Problem>, String> {
    let mut problems = Vec::new();
    for path in repository.with_extension("rs") {
        let source = Source::new(&repository.read(path)?);
        shape::check(path, &source, &mut problems);
        words::check_rust(path, &source, &mut problems);
        doc_comments::check(path, &source, &mut problems);
    }
    for path in repository.files() {
        words::check_text(repository, path, &mut problems)?;
    }
    let crates = repository.crates()?;
    modules::check(repository, &crates, &mut problems)?;
    layers::check(repository, &crates, &mut problems)?;
    order::check(repository, &crates, &mut problems);
    whole_matches::check(repository, &crates, &mut problems)?;
    documents::check(repository, &mut problems)?;
    for generated in [ladder::refresh(repository, true), format_doc::refresh(repository, true)] {
        if let Err(stale) = generated? {
            problems.push(Problem::new(Path::new(""), 0, stale));
        }
    }
    problems.sort();
    problems.dedup();
    Ok(problems)
}
