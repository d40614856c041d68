//! Processes: whether programs are there, what they print, the time that they have used; a folder
//! for what they need, and what those that were killed have left.

use crate::error::{LabError, Result};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Returns whether a program can be started: found in PATH, or a path of its own.
pub(crate) fn is_installed(program: impl AsRef<OsStr>) -> bool {
    let program = Path::new(program.as_ref());
    if program.components().count() > 1 {
        return program.is_file();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// Runs a program to its end. Returns what it printed on standard output.
pub(crate) fn text_of(command: &mut Command) -> Result<String> {
    let name = name_of(command);
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|e| LabError::failed("running", &name, e))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => {
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            Err(LabError::failed("running", &name, format!("{}: {said}", output.status)))
        }
    }
}

/// Returns the name of a command's program, without its folder.
pub(crate) fn name_of(command: &Command) -> String {
    Path::new(command.get_program()).file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Returns user and system time of a process in seconds, and that of its children that have been
/// waited for. `id` is a number, or `self`; zeros without such a process.
pub(crate) fn processor_seconds(id: impl std::fmt::Display) -> [f64; 2] {
    cpu_fields(&fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default())
}

/// Returns user and system time in seconds, from the line of a process in `/proc`: its own, and
/// that of its children; zeros for a line that is none.
pub(crate) fn cpu_fields(stat: &str) -> [f64; 2] {
    // Fields 14 to 17 of proc_pid_stat(5). The name in field 2 may hold anything, a bracket too.
    let fields = stat.rsplit(") ").next().unwrap_or_default();
    let ticks = |field: usize| {
        let pair = fields.split(' ').skip(field - 3).take(2);
        pair.filter_map(|number| number.parse::<f64>().ok()).sum::<f64>()
    };
    let second = rustix::param::clock_ticks_per_second() as f64;
    [ticks(14) / second, ticks(16) / second]
}

/// Returns the folders that killed processes have left: their names are the prefix and the id of a
/// process that is gone, or of this one, which must not have made its own yet.
pub(crate) fn leftovers(above: &Path, prefix: &str) -> Vec<PathBuf> {
    let is_dead = |id| id == std::process::id() || !Path::new(&format!("/proc/{id}")).exists();
    let entries = fs::read_dir(above).into_iter().flatten().flatten();
    let dead = entries.filter(|entry| {
        let name = entry.file_name();
        let id = name.to_str().and_then(|name| name.strip_prefix(prefix)?.parse::<u32>().ok());
        id.is_some_and(is_dead)
    });
    dead.map(|entry| entry.path()).collect()
}

/// Names of the folders of measured programs.
const SCRATCHES: [&str; 2] = ["tools", "instructions"];

/// Removes the folders of measured programs that were killed.
pub(crate) fn remove_scratches() {
    for name in SCRATCHES {
        for folder in leftovers(&Scratch::above(), &Scratch::prefix(name)) {
            let _left = fs::remove_dir_all(folder);
        }
    }
}

/// A folder of this process, removed when dropped.
#[derive(Debug)]
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    /// Makes it in memory where there is `/dev/shm`, so that no disk is measured; removes those of
    /// processes that were killed.
    pub(crate) fn new(name: &str) -> Result<Scratch> {
        let (above, prefix) = (Scratch::above(), Scratch::prefix(name));
        for folder in leftovers(&above, &prefix) {
            let _left = fs::remove_dir_all(folder);
        }
        let path = above.join(format!("{prefix}{}", std::process::id()));
        fs::create_dir(&path).map_err(|e| LabError::failed("making folder", path.display(), e))?;
        Ok(Scratch(path))
    }

    fn above() -> PathBuf {
        let memory = Path::new("/dev/shm");
        if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() }
    }

    fn prefix(name: &str) -> String {
        format!("shoal-{name}.")
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _left = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_read_behind_any_name() {
        let ticks = rustix::param::clock_ticks_per_second() as f64;
        let stat = "7 (a) b) (c) R 1 7 7 0 -1 0 1 2 3 4 100 50 20 10 20 0 1";
        assert_eq!(cpu_fields(stat), [150.0 / ticks, 30.0 / ticks]);
        for garbage in ["", "7", "7 (x) ", ") ) )", "7 (x) R one two"] {
            assert_eq!(cpu_fields(garbage), [0.0, 0.0], "{garbage}");
        }
    }

    #[test]
    fn programs_are_found_in_the_path() {
        assert!(is_installed("sh") && is_installed("/bin/sh"));
        assert!(!is_installed("shoal-no-such-program") && !is_installed("/no/sh"));
    }

    #[test]
    fn folders_of_living_processes_stay() {
        let above = std::env::temp_dir().join(format!("shoal-dead.{}", std::process::id()));
        for name in ["p.1", "p.4294967295", "p.x", "q.4294967295"] {
            fs::create_dir_all(above.join(name)).expect("a folder");
        }
        assert_eq!(leftovers(&above, "p."), [above.join("p.4294967295")]);
        fs::remove_dir_all(above).expect("removed");
    }

    #[test]
    fn the_folder_is_removed_with_its_content() {
        let scratch = Scratch::new("test-scratch").expect("made");
        let path = scratch.path().to_owned();
        fs::write(path.join("a"), "b").expect("written");
        drop(scratch);
        assert!(!path.exists());
    }
}
