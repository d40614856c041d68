//! Commands that `-exec` and `-execdir` run, for files of a mount, and `-ok` and `-okdir` if the
//! user agrees.
//!
//! With `;` a command runs for each file; with `+` it gets as many as fit, and the rest at the end.
//! `-execdir` runs it in the file's directory, which is opened step by step without following a
//! symlink, and names the file `./NAME`.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::process::{self, ExitStatus};
use std::sync::Arc;

use super::file::{File, World};
use crate::failure::{Failure, Reason, Result};
use crate::location::split_last;
use crate::output::Out;
use crate::progress::Progress;
use crate::text::printable;
use crate::tree::Tree;

/// Bytes of the files that a command gets, at most; the system takes at least as much.
const BYTES_MAX: usize = 96 << 10;
/// Bytes that each of them takes beside its own.
const BYTES_EACH: usize = 9;

/// A command.
#[derive(Debug)]
pub(crate) struct Exec {
    /// The action, as it was written.
    action: OsString,
    words: Vec<OsString>,
    /// `-execdir`, `-okdir`
    in_dir: bool,
    /// `-ok`, `-okdir`
    asks: bool,
    /// `+`
    gathers: bool,
    /// Its number in the expression.
    number: usize,
}

impl Exec {
    /// Reads the words behind an action: `in_dir` for `-execdir` and `-okdir`, `asks` for `-ok` and
    /// `-okdir`.
    pub(crate) fn read<'w>(
        action: &OsStr,
        (in_dir, asks): (bool, bool),
        number: usize,
        next: &mut dyn FnMut() -> Option<&'w OsStr>,
    ) -> Result<Exec> {
        let mut words: Vec<OsString> = Vec::new();
        let gathers = loop {
            let Some(word) = next() else {
                let end = if asks { "';', quoted" } else { "';', quoted, or {} +" };
                return Err(failure(action, &format!("has no end (write {end})")));
            };
            match word.as_bytes() {
                b";" => break false,
                b"+" if !asks && words.last().is_some_and(|last| last == "{}") => break true,
                _ => words.push(word.to_owned()),
            }
        };
        if gathers {
            // The files come in its place.
            words.pop();
        }
        if words.is_empty() {
            return Err(failure(action, "has no command"));
        }
        if gathers && words.iter().any(|word| has_braces(word)) {
            return Err(failure(action, "may have only one {} with +"));
        }
        if in_dir && !is_safe(&std::env::var_os("PATH").unwrap_or_default()) {
            let what = "a relative path in PATH would run commands of the directories that it \
                        searches (set PATH to absolute paths)";
            return Err(failure(action, what));
        }
        Ok(Exec { action: action.to_owned(), words, in_dir, asks, gathers, number })
    }

    /// Runs the command for a file, or keeps the file for later. Returns the value of the action.
    pub(crate) fn run(
        &self,
        file: &File<'_>,
        world: &World<'_>,
        waiting: &mut Waiting,
        out: &mut Out,
        progress: &mut Progress,
    ) -> Result<bool> {
        let (dir, path) = match self.place(file, world) {
            Ok(place) => place,
            Err(error) => {
                progress.failure(world.tree.label(file.path), Reason::from(error));
                return Ok(false);
            }
        };
        if self.asks && !self.is_agreed(file.path, out, progress)? {
            return Ok(false);
        }
        if !self.gathers {
            let words: Vec<OsString> =
                self.words.iter().map(|word| with_path(word, &path)).collect();
            let status = self.spawn(&words, &dir, out, progress)?;
            return Ok(status.is_some_and(|status| status.success()));
        }
        if waiting.0.len() <= self.number {
            waiting.0.resize_with(self.number + 1, Batch::default);
        }
        let batch = &mut waiting.0[self.number];
        let is_full = batch.bytes + path.len() + BYTES_EACH > BYTES_MAX;
        if is_full || !batch.dir.is_same(&dir) {
            self.finish(waiting, out, progress)?;
        }
        let batch = &mut waiting.0[self.number];
        batch.dir = dir;
        batch.bytes += path.len() + BYTES_EACH;
        batch.paths.push(OsString::from_vec(path));
        Ok(true)
    }

    /// Runs the command for the files that wait for it.
    pub(crate) fn finish(
        &self,
        waiting: &mut Waiting,
        out: &mut Out,
        progress: &mut Progress,
    ) -> Result<()> {
        let Some(batch) = waiting.0.get_mut(self.number) else { return Ok(()) };
        let Batch { dir, paths, .. } = std::mem::take(batch);
        if paths.is_empty() {
            return Ok(());
        }
        let words: Vec<OsString> = self.words.iter().cloned().chain(paths).collect();
        if let Some(status) = self.spawn(&words, &dir, out, progress)?
            && !status.success()
        {
            progress.failure(self.label(), format!("ended with {status}"));
        }
        Ok(())
    }

    /// Asks the user whether the command shall run for a file, as find(1) does.
    fn is_agreed(&self, path: &[u8], out: &mut Out, progress: &Progress) -> Result<bool> {
        out.flush()?;
        let program = self.words.first().map(|word| printable(word.as_bytes()));
        let question = format!("< {} ... {} > ? ", program.unwrap_or_default(), printable(path));
        let mut answer = String::new();
        let read = progress.aside(|| {
            // Where nobody can be asked nobody agrees.
            let _ = io::stderr().write_all(question.as_bytes());
            io::stdin().read_line(&mut answer)
        });
        Ok(read.is_ok() && answer.starts_with(['y', 'Y']))
    }

    /// Returns the directory that the command runs in, and the path of the file for it.
    fn place(&self, file: &File<'_>, world: &World<'_>) -> shoal::raw::Result<(Dir, Vec<u8>)> {
        if !self.in_dir {
            return Ok((Dir::Here, file.path.to_vec()));
        }
        match world.tree {
            Tree::Mount(mount) if file.depth > 0 => {
                let (dir, name) = mount.parent(file.path)?;
                Ok((Dir::Open(dir), [b"./", &name[..]].concat()))
            }
            _ => {
                let split = split_last(file.path);
                let parent = if split.parent.is_empty() { b"." } else { split.parent };
                let dir = PathBuf::from(OsStr::from_bytes(parent));
                Ok((Dir::Path(dir), [b"./", split.name].concat()))
            }
        }
    }

    /// Runs a command; `None` if it cannot be started.
    fn spawn(
        &self,
        words: &[OsString],
        dir: &Dir,
        out: &mut Out,
        progress: &mut Progress,
    ) -> Result<Option<ExitStatus>> {
        // What was printed before comes before what the command prints.
        out.flush()?;
        let Some((program, arguments)) = words.split_first() else { return Ok(None) };
        let mut command = process::Command::new(program);
        command.args(arguments);
        if self.asks {
            // The answers are not for the command.
            command.stdin(process::Stdio::null());
        }
        match dir {
            Dir::Here => {}
            Dir::Path(path) => drop(command.current_dir(path)),
            // Resolved by the child before it runs the program.
            Dir::Open(dir) => {
                command.current_dir(format!("/proc/self/fd/{}", dir.as_raw_fd()));
            }
        }
        match progress.aside(|| command.status()) {
            Ok(status) => Ok(Some(status)),
            Err(error) => {
                let what = format!("{}: {}", printable(program.as_bytes()), Reason::from(error));
                progress.failure(self.label(), what);
                Ok(None)
            }
        }
    }

    fn label(&self) -> String {
        printable(self.action.as_bytes()).into_owned()
    }

    /// Failure for a place in a volume that is not mounted.
    pub(crate) fn refused(&self) -> Failure {
        failure(
            &self.action,
            "no command can change a volume that find has open: write the paths with -print0 for \
             xargs -0, or mount the volume",
        )
    }
}

/// Files that wait for their commands, by the number of the command.
#[derive(Default)]
pub(crate) struct Waiting(Vec<Batch>);

/// Files that one command gets.
#[derive(Default)]
struct Batch {
    dir: Dir,
    paths: Vec<OsString>,
    bytes: usize,
}

/// A directory that a command runs in.
#[derive(Clone, Default)]
enum Dir {
    /// That of the process.
    #[default]
    Here,
    /// That of a place.
    Path(PathBuf),
    /// One of the walk.
    Open(Arc<OwnedFd>),
}

impl Dir {
    fn is_same(&self, other: &Dir) -> bool {
        match (self, other) {
            (Dir::Here, Dir::Here) => true,
            (Dir::Path(one), Dir::Path(other)) => one == other,
            (Dir::Open(one), Dir::Open(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }
}

fn failure(word: &OsStr, what: &str) -> Failure {
    Failure::usage(printable(word.as_bytes()), what)
}

fn has_braces(word: &OsStr) -> bool {
    word.as_bytes().windows(2).any(|window| window == b"{}")
}

/// Returns a word with the path for each `{}`.
fn with_path(word: &OsStr, path: &[u8]) -> OsString {
    let mut rest = word.as_bytes();
    let mut whole = Vec::new();
    while let Some(at) = rest.windows(2).position(|window| window == b"{}") {
        whole.extend_from_slice(&rest[..at]);
        whole.extend_from_slice(path);
        rest = &rest[at + 2..];
    }
    whole.extend_from_slice(rest);
    OsString::from_vec(whole)
}

/// Returns whether all directories of a `PATH` are absolute.
fn is_safe(path: &OsStr) -> bool {
    path.as_bytes().split(|byte| *byte == b':').all(|dir| dir.first() == Some(&b'/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pair_of_braces_becomes_the_path() {
        let word = |word: &str| with_path(OsStr::new(word), b"a b").into_vec();
        assert_eq!(word("{}"), b"a b");
        assert_eq!(word("x{}y{}{"), b"xa bya b{");
        assert_eq!(word("{ }"), b"{ }");
        assert!(has_braces(OsStr::new("a{}")) && !has_braces(OsStr::new("{")));
    }

    #[test]
    fn relative_directories_in_path_are_found() {
        let safe = ["/bin", "/bin:/usr/bin"];
        assert!(safe.iter().all(|path| is_safe(OsStr::new(path))));
        let unsafe_ones = ["", ".", "/bin:", ":/bin", "/bin::/x", "/bin:bin"];
        assert!(!unsafe_ones.iter().any(|path| is_safe(OsStr::new(path))));
    }
}
