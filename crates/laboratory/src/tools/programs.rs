//! `programs`: what people run, one program after the other, on a tree of real files: headers,
//! Python, documents and Perl as this machine has them, the same for every system of a run.

use super::children::{self, Output, Times};
use super::{Folder, Plan};
use crate::error::{LabError, Result};
use crate::process;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Folders of the files.
const SOURCES: [&str; 4] =
    ["/usr/include", "/usr/lib/python3", "/usr/share/doc", "/usr/share/perl"];
/// Name of the tree in the measured directory.
const TOP: &str = "programs";
/// Larger files are left out: a few would be most of the time.
const SIZE_MAX: u64 = 1 << 20;
/// For each of so many files in the tree one is made by each of the last programs.
const PART: u64 = 4;
/// A script that writes, reads and lists small files.
const SCRIPT: &str = r#"
import os, sys
top, count = sys.argv[1], int(sys.argv[2])
os.mkdir(top)
for n in range(count):
    with open(f"{top}/{n}", "wb") as file: file.write(b"x" * 1000)
for n in range(count):
    with open(f"{top}/{n}", "rb") as file: assert len(file.read()) == 1000
assert len(os.listdir(top)) == count
"#;

/// Runs the workload.
pub(crate) fn run(plan: &Plan<'_>) -> Result<()> {
    let given = Given::new(plan)?;
    let tree = Folder { path: plan.root.join(TOP), keep: plan.keep };
    fs::create_dir(&tree.path)
        .map_err(|e| LabError::failed("making folder", tree.path.display(), e))?;
    for case in cases(&given, &tree.path) {
        let program = case.line.split(' ').next().unwrap_or_default();
        if !process::is_installed(program) {
            eprintln!("laboratory: {} is left out: {program} is not installed", case.name);
            continue;
        }
        if case.is_warm {
            children::run(&mut given.command(&case.line), Output::Null)?;
        }
        let beside = case.is_beside.then(Computing::begin).transpose()?;
        let times = children::run(&mut given.command(&case.line), Output::Null)?;
        drop(beside);
        children::print(["programs", case.name, "usual"], case.files, times, &[])?;
    }
    Ok(())
}

/// The files outside the measured directory.
struct Given {
    archive: PathBuf,
    /// The same files.
    source: PathBuf,
    /// A repository with the same files, in one commit.
    repository: PathBuf,
    /// Paths of the directories in the tree, each ended by a zero.
    directories: PathBuf,
    scratch: PathBuf,
    files: u64,
}

impl Given {
    fn new(plan: &Plan<'_>) -> Result<Given> {
        let at = |name: &str| plan.scratch.join(name);
        let mut files = Vec::new();
        SOURCES.iter().for_each(|folder| collect(Path::new(folder), &mut files));
        let wanted = usize::try_from(plan.files).unwrap_or(usize::MAX);
        files.sort();
        // Of all parts of the folders, however few.
        let step = (files.len() / wanted.max(1)).max(1);
        let files: Vec<PathBuf> = files.into_iter().step_by(step).take(wanted).collect();
        let given = Given {
            archive: at("archive.tar"),
            source: at("source"),
            repository: at("repository"),
            directories: at("directories"),
            scratch: plan.scratch.to_owned(),
            files: files.len() as u64,
        };
        let list: Vec<u8> = files.iter().flat_map(|file| line_of(file)).collect();
        given.write(&at("list"), &list)?;
        let [archive, source, repository, list] =
            [&given.archive, &given.source, &given.repository, &at("list")]
                .map(|path| path.display().to_string());
        for folder in [&given.source, &given.repository] {
            fs::create_dir(folder).map_err(|e| LabError::failed("making", folder.display(), e))?;
        }
        given.prepare(&format!("tar -C / -cf {archive} --null -T {list}"))?;
        given.prepare(&format!("tar -xf {archive} -C {source}"))?;
        if process::is_installed("git") {
            given.prepare(&format!("git init -q {repository}"))?;
            given.prepare(&format!("tar -xf {archive} -C {repository}"))?;
            given.prepare(&format!("git -C {repository} add -A"))?;
            given.prepare(&format!(
                "git -C {repository} -c user.name=lab -c user.email=lab@localhost commit -q -m all"
            ))?;
        }
        let mut directories = Vec::new();
        let tree = plan.root.join(TOP).join("t");
        directories_of(&given.source, &tree, &mut directories);
        given.write(&given.directories, &directories)?;
        Ok(given)
    }

    fn write(&self, path: &Path, bytes: &[u8]) -> Result<()> {
        fs::write(path, bytes).map_err(|e| LabError::failed("writing", path.display(), e))
    }

    fn prepare(&self, line: &str) -> Result<Times> {
        children::run(&mut self.command(line), Output::Null)
    }

    /// A command line; no word of it has a space. What the user has configured does not count.
    fn command(&self, line: &str) -> Command {
        let mut words = line.split(' ');
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words.map(|word| if word == "SCRIPT" { SCRIPT } else { word }));
        command.current_dir(&self.scratch).env("HOME", &self.scratch);
        command.env("GIT_CONFIG_NOSYSTEM", "1");
        command
    }
}

/// Adds the regular files below a folder that are not too large.
fn collect(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let Ok(found) = entry.metadata() else { continue };
        match found.is_dir() {
            true => collect(&entry.path(), into),
            false if found.is_file() && found.len() <= SIZE_MAX => into.push(entry.path()),
            false => {}
        }
    }
}

/// A path without its first slash, and a zero.
fn line_of(path: &Path) -> Vec<u8> {
    let bytes = path.as_os_str().as_bytes();
    [bytes.strip_prefix(b"/").unwrap_or(bytes), b"\0"].concat()
}

/// Adds the directories below `source`, by the paths that they have in the tree at `at`.
fn directories_of(source: &Path, at: &Path, into: &mut Vec<u8>) {
    for entry in fs::read_dir(source).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            let at = at.join(entry.file_name());
            into.extend([at.as_os_str().as_bytes(), b"\0"].concat());
            directories_of(&entry.path(), &at, into);
        }
    }
}

/// A program on the tree.
struct Case {
    name: &'static str,
    line: String,
    /// Files that it is about.
    files: u64,
    /// It is run once before: then everything is in caches.
    is_warm: bool,
    /// Programs that only compute run beside it, one for each processor.
    is_beside: bool,
}

/// The programs in their order: each finds what those before it have made.
fn cases(given: &Given, top: &Path) -> Vec<Case> {
    let [archive, source, repository, directories, log] = [
        &given.archive,
        &given.source,
        &given.repository,
        &given.directories,
        &given.scratch.join("fs_mark.log"),
    ]
    .map(|path| path.display().to_string());
    let (top, all, part) = (top.display(), given.files, (given.files / PART).max(1));
    let once =
        |name, files, line: String| Case { name, line, files, is_warm: false, is_beside: false };
    let warm = |name, line: String| Case { is_warm: true, ..once(name, all, line) };
    let mark =
        |folder: &str| format!("fs_mark -d {top}/{folder} -n {part} -s 1000 -t 1 -S 0 -k -l {log}");
    vec![
        once("tar -x", all, format!("tar -xf {archive} --one-top-level={top}/t")),
        once("cp -a", all, format!("cp -a {top}/t {top}/c")),
        once("git clone", all, format!("git clone -q {repository} {top}/g")),
        warm("git status", format!("git -C {top}/g status")),
        once("Python", part, format!("python3 -c SCRIPT {top}/p {part}")),
        warm("ls -lR", format!("ls -lR {top}/t")),
        warm("find -not -user", format!("find {top}/t -not -user root")),
        warm("du -s", format!("du -s {top}/t")),
        warm("stat of directories", format!("xargs -0 -a {directories} stat --printf=%s --")),
        warm("rsync -a, no change", format!("rsync -a {source}/ {top}/t/")),
        once("fs_mark", part, mark("m1")),
        Case { is_beside: true, ..once("fs_mark, beside computing", part, mark("m2")) },
        once("rm -rf", 2 * all, format!("rm -rf {top}/t {top}/c")),
    ]
}

/// Programs that compute, one for each processor, until this is dropped.
struct Computing(Vec<Child>);

impl Computing {
    fn begin() -> Result<Computing> {
        let count = std::thread::available_parallelism().map_or(1, usize::from);
        let mut all = Computing(Vec::new());
        for _ in 0..count {
            let mut command = Command::new("sh");
            command.args(["-c", "while :; do :; done"]).stdin(Stdio::null());
            let child = command.spawn().map_err(|e| LabError::failed("starting", "sh", e))?;
            all.0.push(child);
        }
        Ok(all)
    }
}

impl Drop for Computing {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ended = child.kill().and_then(|()| child.wait());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::Scratch;

    #[test]
    fn each_program_finds_what_those_before_it_have_made() {
        let (root, scratch) = (Scratch::new("test-programs"), Scratch::new("test-programs-given"));
        let (root, scratch) = (root.expect("a folder"), scratch.expect("a folder"));
        let plan = Plan {
            root: root.path(),
            shoal: Path::new("shoal"),
            own: false,
            files: 40,
            keep: true,
            scratch: scratch.path(),
        };
        let given = Given::new(&plan).expect("files of this machine");
        assert!((1..=40).contains(&given.files));
        assert!(fs::metadata(&given.directories).expect("a list").len() > 0);
        let top = root.path().join(TOP);
        fs::create_dir(&top).expect("a folder");
        let all = cases(&given, &top);
        let names: std::collections::HashSet<&str> = all.iter().map(|case| case.name).collect();
        assert_eq!(names.len(), all.len());
        for case in all.iter().filter(|case| !case.name.starts_with("fs_mark")) {
            if process::is_installed(case.line.split(' ').next().expect("a word")) {
                children::run(&mut given.command(&case.line), Output::Null).expect(case.name);
            }
        }
        let left = fs::read_dir(&top).expect("a folder").count();
        assert!(left <= 2, "p, and g where git is installed: {left}");
    }

    #[test]
    fn programs_that_compute_end_with_their_owner() {
        let beside = Computing::begin().expect("started");
        let ids: Vec<u32> = beside.0.iter().map(Child::id).collect();
        assert!(!ids.is_empty());
        drop(beside);
        assert!(ids.iter().all(|id| !Path::new(&format!("/proc/{id}")).exists()));
    }
}
