//! `source-tree`: an archive of source-like files is extracted by tar, read again by tar, and
//! removed by rm. The same number of files makes the same archive on every machine.

use super::children::{self, Output, Times};
use super::{Folder, Plan};
use crate::error::{LabError, Result};
use crate::random::Random;
use std::fs;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Seed of every tree.
const SEED: u64 = 0x5eed;
/// Sizes of files, in bytes: from, to. Small ones are more frequent, as in source trees.
const SIZES: (u64, u64) = (1 << 10, 30 << 10);
/// Files in a directory, about.
const PER_DIR: u64 = 12;
/// Directories in a directory.
const FAN_OUT: u64 = 6;

/// Runs the workload.
pub(crate) fn run(plan: &Plan<'_>) -> Result<()> {
    let archive = plan.scratch.join("source.tar");
    make_archive(plan.files, plan.scratch, &archive)?;
    let tree = Folder { path: plan.root.join("source"), keep: false };
    let print = |case, times: Times| {
        children::print(["source-tree", case, "usual"], plan.files, times, &[])
    };
    let mut extract = Command::new("tar");
    extract.arg("-C").arg(plan.root).arg("-xf").arg(&archive);
    print("tar -x", children::run(&mut extract, Output::Null)?)?;
    let mut read = Command::new("tar");
    read.arg("-C").arg(plan.root).args(["-cf", "-", "source"]);
    print("tar -c", children::run(&mut read, Output::Pipe)?)?;
    let mut remove = Command::new("rm");
    remove.arg("-rf").arg(&tree.path);
    print("rm -rf", children::run(&mut remove, Output::Null)?)
}

/// Makes the tree in a folder, packs it, and removes it.
fn make_archive(files: u64, folder: &Path, archive: &Path) -> Result<()> {
    let source = Folder { path: folder.join("source"), keep: false };
    write_tree(files, &source.path)
        .map_err(|e| LabError::failed("making the files of", source.path.display(), e))?;
    let mut pack = Command::new("tar");
    pack.arg("-C")
        .arg(folder)
        .args(["--sort=name", "--mtime=@0", "-cf"])
        .arg(archive)
        .arg("source");
    children::run(&mut pack, Output::Null).map(drop)
}

fn write_tree(files: u64, source: &Path) -> std::io::Result<()> {
    let mut random = Random(SEED);
    let mut made = None;
    for index in 0..files {
        let dir = dir_of(index / PER_DIR);
        if made.as_ref() != Some(&dir) {
            fs::create_dir_all(source.join(&dir))?;
        }
        let name = format!("{}_{index}.c", word(&mut random));
        let mut out = BufWriter::new(fs::File::create(source.join(&dir).join(name))?);
        out.write_all(content(&mut random).as_bytes())?;
        out.flush()?;
        made = Some(dir);
    }
    Ok(())
}

/// Returns the path of a directory by its number: each holds files, and up to six directories.
fn dir_of(number: u64) -> PathBuf {
    let mut parts = Vec::new();
    let mut at = number;
    while at > 0 {
        parts.push(format!("dir{at}"));
        at = (at - 1) / FAN_OUT;
    }
    parts.iter().rev().collect()
}

/// Returns lines of words, as many bytes as a size drawn at random.
fn content(random: &mut Random) -> String {
    // The smaller of two, so that small files are more frequent.
    let (from, to) = SIZES;
    let size = from + random.below(to - from).min(random.below(to - from));
    let size = usize::try_from(size).unwrap_or(usize::MAX);
    let mut text = String::with_capacity(size + 64);
    while text.len() < size {
        text.push_str("    ");
        for _ in 0..3 + random.below(5) {
            text.push_str(word(random));
            text.push(' ');
        }
        text.push_str(&format!("= {};\n", random.below(100_000)));
    }
    text.truncate(size);
    text
}

fn word(random: &mut Random) -> &'static str {
    const WORDS: [&str; 16] = [
        "inode", "buffer", "return", "struct", "offset", "length", "if", "for", "static",
        "uint32_t", "lock", "parent", "entry", "error", "page", "queue",
    ];
    WORDS[random.below(WORDS.len() as u64) as usize]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::Scratch;

    /// Paths and contents of a tree.
    fn listing(files: u64, folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
        write_tree(files, folder).expect("made");
        let (mut found, mut dirs) = (Vec::new(), vec![folder.to_owned()]);
        while let Some(dir) = dirs.pop() {
            for entry in fs::read_dir(dir).expect("a folder") {
                let path = entry.expect("an entry").path();
                match path.is_dir() {
                    true => dirs.push(path),
                    false => {
                        let name = path.strip_prefix(folder).expect("inside").to_owned();
                        found.push((name, fs::read(path).expect("read")));
                    }
                }
            }
        }
        found.sort();
        found
    }

    #[test]
    fn the_same_number_of_files_makes_the_same_tree() {
        let scratch = Scratch::new("test-source").expect("a folder");
        let first = listing(200, &scratch.path().join("a"));
        assert_eq!(first.len(), 200);
        assert_eq!(first, listing(200, &scratch.path().join("b")));
        let (from, to) = SIZES;
        assert!(first.iter().all(|(_, text)| (from..to).contains(&(text.len() as u64))));
        assert!(first.iter().any(|(path, _)| path.components().count() >= 3));
    }

    #[test]
    fn directories_hold_directories() {
        let paths = [0, 1, 6, 7, 43].map(|number| dir_of(number).display().to_string());
        assert_eq!(paths, ["", "dir1", "dir6", "dir1/dir7", "dir1/dir7/dir43"]);
    }
}
