//! What a hand does in its directory, and what the directory must contain then.
//!
//! Contents describe themselves: each 32 bytes say which file they were written to, and where.

use crate::rng::Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

/// Names of files in a hand's directory.
const NAMES: u64 = 10;
/// Bytes of a file at most.
const SIZE_MAX: u64 = 160_000;
const RECORD: u64 = 32;

/// A deed: one system call, apart from `RemoveTree`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Deed {
    /// Makes an empty file with this number, which no other ever had in this directory.
    Create(String, u64),
    /// Writes what belongs at this offset, so many bytes.
    Write(String, u64, u64),
    /// Truncates or extends.
    Truncate(String, u64),
    /// Sets the attribute `user.soak`.
    Xattr(String, u64),
    /// Renames, replacing.
    Rename(String, String),
    /// One more name.
    Link(String, String),
    /// Removes a name.
    Unlink(String),
    /// Removes a name of a file that stays open until the process ends.
    Hide(String),
    /// Makes a directory.
    Mkdir(String),
    /// Removes a directory and the files in it, with `rm -r`.
    RemoveTree(String),
    /// Makes a file durable, and so everything before it.
    Fsync(String),
    /// Makes the hand's directory durable, likewise.
    FsyncDir,
}

impl Deed {
    /// Whether everything before it is durable when it has succeeded.
    pub fn acknowledges(&self) -> bool {
        matches!(self, Deed::Fsync(_) | Deed::FsyncDir)
    }
}

impl fmt::Display for Deed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Deed::Create(name, id) => write!(f, "create {name} {id}"),
            Deed::Write(name, offset, len) => write!(f, "write {name} {offset} {len}"),
            Deed::Truncate(name, len) => write!(f, "truncate {name} {len}"),
            Deed::Xattr(name, value) => write!(f, "xattr {name} {value}"),
            Deed::Rename(from, to) => write!(f, "rename {from} {to}"),
            Deed::Link(from, to) => write!(f, "link {from} {to}"),
            Deed::Unlink(name) => write!(f, "unlink {name}"),
            Deed::Hide(name) => write!(f, "hide {name}"),
            Deed::Mkdir(name) => write!(f, "mkdir {name}"),
            Deed::RemoveTree(name) => write!(f, "rm-r {name}"),
            Deed::Fsync(name) => write!(f, "fsync {name}"),
            Deed::FsyncDir => write!(f, "fsync-dir"),
        }
    }
}

impl Deed {
    /// Reads what `Display` wrote.
    pub fn parse(text: &str) -> Option<Deed> {
        let words: Vec<&str> = text.split(' ').collect();
        let name = |at: usize| words.get(at).map(|word| (*word).to_owned());
        let number = |at: usize| words.get(at).and_then(|word| word.parse::<u64>().ok());
        Some(match *words.first()? {
            "create" => Deed::Create(name(1)?, number(2)?),
            "write" => Deed::Write(name(1)?, number(2)?, number(3)?),
            "truncate" => Deed::Truncate(name(1)?, number(2)?),
            "xattr" => Deed::Xattr(name(1)?, number(2)?),
            "rename" => Deed::Rename(name(1)?, name(2)?),
            "link" => Deed::Link(name(1)?, name(2)?),
            "unlink" => Deed::Unlink(name(1)?),
            "hide" => Deed::Hide(name(1)?),
            "mkdir" => Deed::Mkdir(name(1)?),
            "rm-r" => Deed::RemoveTree(name(1)?),
            "fsync" => Deed::Fsync(name(1)?),
            "fsync-dir" => Deed::FsyncDir,
            _ => return None,
        })
    }
}

/// The bytes of file `id` of `hand` from `offset` on.
pub fn contents(hand: &str, id: u64, offset: u64, len: u64) -> Vec<u8> {
    let first = offset / RECORD;
    let mut bytes = Vec::with_capacity((len + 2 * RECORD) as usize);
    for record in first..(offset + len).div_ceil(RECORD) {
        let text = format!("{hand} {id} {record:x}");
        bytes.extend(format!("{text:.<31}\n").into_bytes());
    }
    let skip = (offset - first * RECORD) as usize;
    bytes.drain(..skip);
    bytes.truncate(len as usize);
    bytes
}

/// What a file is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct File {
    /// Its bytes.
    pub data: Arc<Vec<u8>>,
    /// `user.soak`, if it has it.
    pub xattr: Option<u64>,
}

/// What a hand's directory contains.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tree {
    /// Directories in it.
    pub dirs: BTreeSet<String>,
    /// Names, with the number of the file; files by their inode, when read from a volume.
    pub names: BTreeMap<String, u64>,
    /// Files by number.
    pub files: BTreeMap<u64, File>,
}

impl Tree {
    /// What it contains after a deed that succeeded.
    pub fn apply(&mut self, hand: &str, deed: &Deed) {
        match deed {
            Deed::Create(name, id) => {
                self.names.insert(name.clone(), *id);
                self.files.insert(*id, File { data: Arc::default(), xattr: None });
            }
            Deed::Write(name, offset, len) => {
                let id = self.names[name];
                let end = (offset + len) as usize;
                self.edit(name, |file| {
                    let data = Arc::make_mut(&mut file.data);
                    data.resize(data.len().max(end), 0);
                    let bytes = contents(hand, id, *offset, *len);
                    data[*offset as usize..end].copy_from_slice(&bytes);
                });
            }
            Deed::Truncate(name, len) => {
                self.edit(name, |file| Arc::make_mut(&mut file.data).resize(*len as usize, 0));
            }
            Deed::Xattr(name, value) => self.edit(name, |file| file.xattr = Some(*value)),
            Deed::Rename(from, to) => {
                let same = self.names.get(from) == self.names.get(to);
                if !same && let Some(id) = self.names.remove(from) {
                    self.names.insert(to.clone(), id);
                }
            }
            Deed::Link(from, to) => {
                let id = self.names[from];
                self.names.insert(to.clone(), id);
            }
            Deed::Unlink(name) | Deed::Hide(name) => drop(self.names.remove(name)),
            Deed::Mkdir(name) => drop(self.dirs.insert(name.clone())),
            Deed::RemoveTree(dir) => {
                self.dirs.remove(dir);
                self.names.retain(|name, _| !is_below(dir, name));
            }
            Deed::Fsync(_) | Deed::FsyncDir => {}
        }
        let used: BTreeSet<u64> = self.names.values().copied().collect();
        self.files.retain(|id, _| used.contains(id));
    }

    fn edit(&mut self, name: &str, change: impl FnOnce(&mut File)) {
        let file = self.names.get(name).and_then(|id| self.files.get_mut(id));
        change(file.expect("deeds are drawn for files that there are"));
    }

    /// Draws the next deed. `id` is a number that no file had.
    pub fn draw(&self, rng: &mut Rng, id: u64) -> Deed {
        let fresh = |rng: &mut Rng| {
            let dirs: Vec<&String> = self.dirs.iter().collect();
            let name = format!("f{}", rng.below(NAMES));
            match dirs.is_empty() || rng.chance(60) {
                true => name,
                false => format!("{}/{name}", rng.pick(&dirs)),
            }
        };
        let name = fresh(rng);
        let existing: Vec<&String> = self.names.keys().collect();
        if existing.len() < 3 || rng.chance(12) && !self.names.contains_key(&name) {
            return match self.names.contains_key(&name) {
                true => Deed::FsyncDir,
                false => Deed::Create(name, id),
            };
        }
        let old = (*rng.pick(&existing)).clone();
        let size = self.files[&self.names[&old]].data.len() as u64;
        match rng.below(100) {
            0..30 => {
                let (offset, len) = span(rng, size);
                Deed::Write(old, offset, len)
            }
            30..36 => Deed::Truncate(old, rng.below(size + size / 4 + 100).min(SIZE_MAX)),
            36..42 => Deed::Xattr(old, rng.next()),
            42..58 => Deed::Rename(old, name),
            58..63 if !self.names.contains_key(&name) => Deed::Link(old, name),
            63..71 => Deed::Unlink(old),
            71..74 => Deed::Hide(old),
            74..80 => self.draw_directory(rng),
            80..94 => Deed::Fsync(old),
            _ => Deed::FsyncDir,
        }
    }

    fn draw_directory(&self, rng: &mut Rng) -> Deed {
        let dir = format!("d{}", rng.below(2));
        if self.dirs.contains(&dir) { Deed::RemoveTree(dir) } else { Deed::Mkdir(dir) }
    }
}

/// Where to write in a file of this size: mostly little, mostly at the end.
fn span(rng: &mut Rng, size: u64) -> (u64, u64) {
    let offset = match rng.below(10) {
        0..6 => size,
        6..9 => rng.below(size + 1),
        _ => size + rng.below(9_000),
    };
    let len = match rng.below(10) {
        0..5 => rng.range(1, 300),
        5..9 => rng.range(1, 9_000),
        _ => rng.range(1, 70_000),
    };
    let offset = offset.min(SIZE_MAX - 1);
    (offset, len.min(SIZE_MAX - offset))
}

/// Whether a name is in a directory.
pub fn is_below(dir: &str, name: &str) -> bool {
    name.strip_prefix(dir).is_some_and(|rest| rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_say_whose_they_are() {
        let whole = contents("h1", 7, 0, 100);
        assert!(whole.starts_with(b"h1 7 0..."));
        assert_eq!(contents("h1", 7, 33, 40), whole[33..73]);
        assert!(contents("h1", 7, 5, 0).is_empty());
    }

    #[test]
    fn deeds_survive_the_notes() {
        let (mut rng, mut tree) = (Rng::new(1), Tree::default());
        for id in 0..2_000 {
            let deed = tree.draw(&mut rng, id);
            assert_eq!(Deed::parse(&deed.to_string()).as_ref(), Some(&deed));
            tree.apply("h", &deed);
        }
        assert!(!tree.names.is_empty());
    }
}
