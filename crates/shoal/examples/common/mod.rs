//! The start of every example: opens the volume that its first argument names, connects to the one
//! behind `--connect`, or makes a new one in a temporary directory, which is removed at the end.

#![allow(dead_code, reason = "each example uses a part of this")]

use shoal::{Credentials, Dir, Result, ServeOptions, Volume};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Number of a process that [`Place::run_processes`] has started.
const NUMBER: &str = "SHOAL_EXAMPLE_PROCESS";

/// The volume that an example works on.
pub(crate) struct Place {
    /// Path of the volume, or the place to connect to.
    pub path: PathBuf,
    /// Another process has the volume open.
    is_served: bool,
    /// The arguments behind it.
    pub arguments: Vec<String>,
    scratch: Option<PathBuf>,
}

impl Place {
    /// The place that the command line names: `EXAMPLE [[--connect] VOLUME [ARGUMENT]...]`.
    pub(crate) fn from_arguments(example: &str) -> Place {
        let mut arguments = std::env::args().skip(1).peekable();
        let is_served = arguments.next_if(|argument| argument == "--connect").is_some();
        if let Some(path) = arguments.next() {
            let (path, arguments) = (path.into(), arguments.collect());
            return Place { path, is_served, arguments, scratch: None };
        }
        let name = format!("shoal-example-{example}-{}", std::process::id());
        let scratch = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&scratch).expect("a temporary directory can be made");
        let path = scratch.join("volume.shoal");
        Place { path, is_served: false, arguments: Vec::new(), scratch: Some(scratch) }
    }

    /// Returns whether the command line names the volume, which may then hold anything.
    pub(crate) fn is_named(&self) -> bool {
        self.scratch.is_none()
    }

    /// Opens the volume, and makes it if it does not exist. Its file is sparse, so that 1 GiB takes
    /// no more space than what is written.
    pub(crate) fn open(&self) -> Result<Volume> {
        if self.is_served {
            return Volume::connect(&self.path);
        }
        Volume::options().create(true).size(1 << 30).open(&self.path)
    }

    /// The number of this process among those of [`Place::run_processes`].
    pub(crate) fn process() -> Option<usize> {
        std::env::var(NUMBER).ok()?.parse().ok()
    }

    /// Runs this program as some more processes, all at the same time on this volume, and waits for
    /// their ends. Each connects, and has a number.
    pub(crate) fn run_processes(
        &self,
        volume: &Volume,
        count: usize,
    ) -> Result<(), Box<dyn std::error::Error>> {
        if self.is_served {
            return self.run_at(&self.path, count);
        }
        // The volume is open here, so this process serves it: until `serving` is dropped.
        let socket = format!("shoal-example-{}.sock", std::process::id());
        let socket = std::env::temp_dir().join(socket);
        let serving = volume.serve(ServeOptions::new().socket(socket))?;
        self.run_at(serving.socket(), count)
    }

    fn run_at(&self, place: &Path, count: usize) -> Result<(), Box<dyn std::error::Error>> {
        let mut processes = Vec::new();
        for number in 0..count {
            let mut command = Command::new(std::env::current_exe()?);
            command.arg("--connect").arg(place).args(&self.arguments);
            processes.push(command.env(NUMBER, number.to_string()).spawn()?);
        }
        for mut process in processes {
            let status = process.wait()?;
            if !status.success() {
                return Err(format!("a process of the example failed: {status}").into());
            }
        }
        Ok(())
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
