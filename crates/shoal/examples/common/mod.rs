//! The start of every example: opens the volume that its first argument names, or a new one in a
//! temporary directory, which is removed at the end.

#![allow(dead_code, reason = "each example uses a part of this")]

use shoal::{Credentials, Dir, Result, Volume};
use std::path::PathBuf;

/// The volume that an example works on.
pub(crate) struct Place {
    /// Path of the volume.
    pub path: PathBuf,
    /// The arguments behind it.
    pub arguments: Vec<String>,
    scratch: Option<PathBuf>,
}

impl Place {
    /// The place that the command line names: `EXAMPLE [VOLUME [ARGUMENT]...]`.
    pub(crate) fn from_arguments(example: &str) -> Place {
        let mut arguments = std::env::args().skip(1);
        if let Some(path) = arguments.next() {
            return Place { path: path.into(), arguments: arguments.collect(), scratch: None };
        }
        let name = format!("shoal-example-{example}-{}", std::process::id());
        let scratch = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&scratch).expect("a temporary directory can be made");
        let path = scratch.join("volume.shoal");
        Place { path, arguments: Vec::new(), scratch: Some(scratch) }
    }

    /// Returns whether the command line names the volume, which may then hold anything.
    pub(crate) fn is_named(&self) -> bool {
        self.scratch.is_none()
    }

    /// Opens the volume, and makes it if it does not exist. Its file is sparse, so that 1 GiB takes
    /// no more space than what is written.
    pub(crate) fn open(&self) -> Result<Volume> {
        Volume::options().create(true).size(1 << 30).open(&self.path)
    }

    /// Opens the directory that the argument with this number names, or `default`; a new one.
    pub(crate) fn directory(&self, volume: &Volume, argument: usize, default: &str) -> Result<Dir> {
        let path = self.arguments.get(argument).map_or(default, String::as_str);
        // Paths in the library are relative to a directory, as with `openat`.
        volume.root(Credentials::current()).create_dir_all(path.trim_start_matches('/'))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(scratch) = &self.scratch
            && let Err(error) = std::fs::remove_dir_all(scratch)
        {
            eprintln!("{}: {error}", scratch.display());
        }
    }
}
