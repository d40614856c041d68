//! A mail server's tree in the measured directory, its copy, and the programs that walk it.

use super::Plan;
use super::children::{self, Output};
use crate::error::{LabError, Result};
use crate::process;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The tree, removed when dropped unless it is to stay.
#[derive(Debug)]
pub(crate) struct Planted {
    /// The folder that `shoal bench` made.
    top: PathBuf,
    /// The tree in it.
    pub tree: PathBuf,
    /// The same files, outside the measured directory.
    pub copy: PathBuf,
    keep: bool,
}

impl Planted {
    /// Makes the tree and its copy.
    pub(super) fn new(plan: &Plan<'_>) -> Result<Planted> {
        let failed = |why: &dyn std::fmt::Display| {
            LabError::failed("making a tree in", plan.root.display(), why)
        };
        let before = trees_in(plan.root).map_err(|e| failed(&e))?;
        let mut make = Command::new(plan.shoal);
        make.args(["bench", "make-tree", "--like", "maildir", "--keep", "--json", "--files"])
            .arg(plan.files.to_string())
            .arg("--target")
            .arg(format!("dir:{}", plan.root.display()));
        let made = process::text_of(&mut make);
        let after = trees_in(plan.root).map_err(|e| failed(&e))?;
        let top = after.into_iter().find(|top| !before.contains(top));
        let planted = top.map(|top| Planted {
            tree: top.join("mail"),
            top,
            copy: plan.scratch.join("copy"),
            keep: plan.keep,
        });
        made?;
        let planted = planted.ok_or_else(|| failed(&"there is no new tree"))?;
        let mut copy = Command::new("cp");
        copy.arg("-a").args([&planted.tree, &planted.copy]);
        children::run(&mut copy, Output::Null)?;
        Ok(planted)
    }
}

impl Drop for Planted {
    fn drop(&mut self) {
        if !self.keep {
            let _left = fs::remove_dir_all(&self.top);
        }
    }
}

/// Returns the folders that hold a tree.
fn trees_in(root: &Path) -> std::io::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(root)?.collect::<std::io::Result<Vec<_>>>()?;
    let paths = entries.into_iter().map(|entry| entry.path());
    Ok(paths.filter(|path| path.join("mail").is_dir()).collect())
}

/// Origin of a tool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum By {
    Usual,
    Shoal,
}

impl By {
    pub(super) fn name(self) -> &'static str {
        match self {
            By::Usual => "usual",
            By::Shoal => "shoal",
        }
    }
}

/// One command on the tree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Tool {
    pub case: &'static str,
    pub by: By,
    pub program: OsString,
    pub args: Vec<OsString>,
    pub output: Output,
    /// It changes the tree.
    pub changes: bool,
    /// Done once more than it is measured: its first run finds everything new.
    pub needs_first: bool,
}

impl Tool {
    /// A tool of Shoal, if `program` is the command `shoal`, or a usual one; `words` are separated
    /// by spaces.
    fn new(case: &'static str, by: By, program: impl Into<OsString>, words: &str) -> Tool {
        Tool {
            case,
            by,
            program: program.into(),
            args: words.split_whitespace().map(OsString::from).collect(),
            output: Output::Null,
            changes: false,
            needs_first: false,
        }
    }

    fn on(mut self, paths: &[&Path]) -> Tool {
        self.args.extend(paths.iter().map(|path| path.as_os_str().to_owned()));
        self
    }

    fn then(mut self, words: &str) -> Tool {
        self.args.extend(words.split_whitespace().map(OsString::from));
        self
    }

    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.args);
        command
    }
}

/// Programs that walk the tree, as `ls` and its arguments are named in the table of 2006.
pub(crate) fn usual(planted: &Planted, scratch: &Path, ls: &str) -> Vec<Tool> {
    let tree = &*planted.tree;
    let of = |case, program: &str, words: &str| Tool::new(case, By::Usual, program, words);
    // The content of a folder, not the folder.
    let [inside, inside_copy] = [tree, &planted.copy].map(|path| path.join(""));
    let tar =
        Tool { output: Output::Pipe, needs_first: true, ..of("tar incremental", "tar", "-C") };
    vec![
        of("ls -lR", "ls", ls).on(&[tree]),
        of("find -not -user", "find", "").on(&[tree]).then("-not -user root"),
        of("du -s", "du", "-s").on(&[tree]),
        of("rsync -a, no change", "rsync", "-a").on(&[&inside, &inside_copy]),
        tar.on(&[tree]).then("-g").on(&[&scratch.join("snapshot")]).then("-cf - ."),
    ]
}

/// Programs that walk trees by several threads, as far as they are installed, and what they are
/// compared with.
pub(crate) fn parallel(planted: &Planted) -> Vec<Tool> {
    let tree = &*planted.tree;
    let fd = if process::is_installed("fd") { "fd" } else { "fdfind" };
    let of = |case, program: &str, words: &str| Tool::new(case, By::Usual, program, words);
    let others = [
        of("bfs: find -not -user", "bfs", "").on(&[tree]).then("-not -user root"),
        of("bfs: find -size", "bfs", "").on(&[tree]).then("-size +20k"),
        of("fd: find -size", fd, "--unrestricted --size +20k .").on(&[tree]),
        of("dua: du -s", "dua", "aggregate").on(&[tree]),
    ];
    let find = of("find -size", "find", "").on(&[tree]).then("-size +20k");
    let installed = others.into_iter().filter(|tool| process::is_installed(&tool.program));
    std::iter::once(find).chain(installed).collect()
}

/// Usual programs that change every file.
fn changing(planted: &Planted) -> Vec<Tool> {
    let of = |case, program: &str, words: &str| Tool {
        changes: true,
        ..Tool::new(case, By::Usual, program, words).on(&[&planted.tree])
    };
    vec![of("chown -R", "chown", "-R 1000:1000"), of("chmod -R", "chmod", "-R go-rwx")]
}

/// The tools of Shoal that walk the tree.
pub(crate) fn own(planted: &Planted, shoal: &Path) -> Vec<Tool> {
    let tree = &*planted.tree;
    let of = |case, words: &str| Tool::new(case, By::Shoal, shoal, words).on(&[tree]);
    vec![
        of("ls -lR", "ls -lR"),
        of("find -not -user", "find").then("-not -user root"),
        of("du -s", "du -s"),
    ]
}

/// More of them, of which only times are of interest.
pub(crate) fn own_too(planted: &Planted, shoal: &Path) -> Vec<Tool> {
    let tree = &*planted.tree;
    let mut quota = Command::new(shoal);
    quota.args(["quota", "set"]).arg(tree).args(["--bytes", "none"]);
    let of = |case, words: &str| Tool::new(case, By::Shoal, shoal, words).on(&[tree]);
    let mut tools = vec![of("find -size", "find").then("-size +20k")];
    match children::run(&mut quota, Output::Null) {
        Ok(_) => tools.push(of("du -s --kept", "du -s --kept")),
        Err(error) => eprintln!("laboratory: du -s --kept is left out: {error}"),
    }
    tools
}

/// The tools of Shoal that change every file, otherwise than the usual ones did.
fn own_changing(planted: &Planted, shoal: &Path) -> Vec<Tool> {
    let of = |case, words: &str| Tool {
        changes: true,
        ..Tool::new(case, By::Shoal, shoal, words).on(&[&planted.tree])
    };
    vec![of("chown -R", "chown -R 1001:1001"), of("chmod -R", "chmod -R go+rX")]
}

/// Measures these tools, then those that change every file. One that fails is left out.
///
/// # Errors
/// None of them could be measured.
pub(crate) fn measure_each(
    workload: &str,
    plan: &Plan<'_>,
    planted: &Planted,
    mut tools: Vec<Tool>,
    measure: impl Fn(&Plan<'_>, &Tool) -> Result<()>,
) -> Result<()> {
    tools.extend(changing(planted));
    if plan.own {
        tools.extend(own_changing(planted, plan.shoal));
    }
    let mut cases = 0;
    for tool in &tools {
        match measure(plan, tool) {
            Ok(()) => cases += 1,
            Err(error) => eprintln!("laboratory: {} is left out: {error}", tool.case),
        }
    }
    match cases {
        0 => Err(LabError::failed("workload", workload, "no program could be measured")),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planted() -> Planted {
        let [top, tree, copy] = ["/m/top", "/m/top/mail", "/s/copy"].map(PathBuf::from);
        Planted { top, tree, copy, keep: true }
    }

    fn line(tool: &Tool) -> String {
        let words = std::iter::once(&tool.program).chain(&tool.args);
        words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn command_lines() {
        let planted = planted();
        let lines: Vec<String> =
            usual(&planted, Path::new("/s"), "--color -lR").iter().map(line).collect();
        assert_eq!(
            lines,
            [
                "ls --color -lR /m/top/mail",
                "find /m/top/mail -not -user root",
                "du -s /m/top/mail",
                "rsync -a /m/top/mail/ /s/copy/",
                "tar -C /m/top/mail -g /s/snapshot -cf - .",
            ]
        );
        let shoal = Path::new("/bin/shoal");
        let lines: Vec<String> = own(&planted, shoal).iter().map(line).collect();
        assert_eq!(lines[1], "/bin/shoal find /m/top/mail -not -user root");
        let lines: Vec<String> = own_changing(&planted, shoal).iter().map(line).collect();
        assert_eq!(lines[1], "/bin/shoal chmod -R go+rX /m/top/mail");
    }

    #[test]
    fn a_case_has_a_line_of_its_own() {
        let planted = planted();
        let mut all = usual(&planted, Path::new("/s"), "-lR");
        all.extend(parallel(&planted));
        all.extend(changing(&planted));
        let names: std::collections::HashSet<&str> = all.iter().map(|tool| tool.case).collect();
        assert_eq!(names.len(), all.len());
    }
}
