//! The calls of a history and what is answered to them.

use crate::rng::Rng;
use std::fmt;

/// Names in each directory.
pub const NAMES: usize = 3;
/// Directories that the threads have a handle of, at most.
pub const DIRS: usize = 4;
/// Handles in all: the directories, then the files.
pub const HANDLES: usize = DIRS + 2;

/// How the directories, then the files, are called in the table of a history.
const HANDLE_NAMES: [&str; HANDLES] = ["a", "b", "c", "d", "F", "G"];
const ENTRY_NAMES: [&str; NAMES] = ["x", "y", "z"];

/// A name in a directory that the caller has a handle of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct At {
    /// Number of the handle.
    pub dir: u8,
    /// Number of the name.
    pub name: u8,
}

impl At {
    /// The name itself.
    pub fn text(self) -> &'static str {
        ENTRY_NAMES[usize::from(self.name)]
    }
}

/// Which rename.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Replaces what is there.
    Plain,
    /// `RENAME_NOREPLACE`
    NoReplace,
    /// `RENAME_EXCHANGE`
    Exchange,
}

/// A call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Call {
    /// Makes a file that must not be there yet.
    Create(At),
    /// Makes a directory.
    Mkdir(At),
    /// Removes a name of a file.
    Unlink(At),
    /// Removes an empty directory.
    Rmdir(At),
    /// Renames.
    Rename(At, At, Mode),
    /// Gives a file that the caller has a handle of one more name.
    Link(u8, At),
    /// Looks a name up.
    Lookup(At),
    /// Lists a directory.
    List(u8),
    /// What a listing said of one name: never called, but made of `List` for the search.
    Probe(At),
    /// Attributes of what the caller has a handle of.
    Stat(u8),
    /// Removes a directory with everything in it. Only the library has it.
    RemoveTree(At),
    /// Writes as many bytes as `Content::length_of` says, all of this value, to the start of a file
    /// that the caller has a handle of. This and what follows: only under a scheduler.
    Write(u8, u8),
    /// Cuts such a file, or makes it longer, to [`HEAD`] bytes or to none.
    Cut(u8, bool),
    /// Reads all of such a file.
    Read(u8),
}

/// Bytes of the start of a file that are written alone: they fit in an inode.
pub const HEAD: u64 = 100;
/// Bytes that are written else: they do not.
pub const WHOLE: u64 = 6000;

/// What is in a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default)]
pub struct Content {
    /// Length: 0, [`HEAD`] or [`WHOLE`].
    pub len: u64,
    /// Value of the first [`HEAD`] bytes.
    pub head: u8,
    /// Value of the others.
    pub tail: u8,
}

impl Content {
    /// How many bytes are written with this value.
    pub fn length_of(value: u8) -> u64 {
        if value.is_multiple_of(2) { WHOLE } else { HEAD }
    }

    /// After a write.
    pub fn written(self, value: u8) -> Content {
        let len = Content::length_of(value);
        let tail = if len == WHOLE { value } else { self.tail };
        Content { len: self.len.max(len), head: value, tail }
    }

    /// After a cut: what was cut off reads as zero.
    pub fn cut(self, to_head: bool) -> Content {
        match to_head {
            true => Content { len: HEAD, tail: 0, ..self },
            false => Content::default(),
        }
    }

    /// What these bytes are, if every piece of them is of one value.
    pub fn of(bytes: &[u8]) -> Option<Content> {
        let (head, tail) = bytes.split_at(bytes.len().min(HEAD as usize));
        let value = |bytes: &[u8]| {
            let first = bytes.first().copied().unwrap_or(0);
            bytes.iter().all(|byte| *byte == first).then_some(first)
        };
        Some(Content { len: bytes.len() as u64, head: value(head)?, tail: value(tail)? })
    }
}

/// File or directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Dir,
}

/// What a name was seen to mean.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Seen {
    /// Its type.
    pub kind: Kind,
    /// Inode number.
    pub ino: u64,
    /// Generation of the number; 0: not shown.
    pub age: u32,
}

/// What was answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reply {
    /// Done, with nothing to say.
    Done,
    /// Looked up, or made and seen at once.
    Found(Seen),
    /// A listing, by number of the name.
    Listed([Option<Seen>; NAMES]),
    /// One name of a listing.
    Probed(Option<Seen>),
    /// Attributes: links, and for a directory how many entries it has.
    Attrs {
        /// Links.
        links: u32,
        /// Entries.
        entries: u64,
    },
    /// What was read; `None`: a mixture of what several wrote.
    Content(Option<Content>),
    /// Failed with this errno.
    Failed(i32),
}

/// What a history is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flavour {
    /// Handles of directories that are used.
    pub dirs: u8,
    /// Names that are used.
    pub names: u8,
    /// With `RemoveTree`. Then the third directory holds the fourth and a name of the second file,
    /// and nobody has a handle of either: what is found in a removed tree until it is freed is
    /// nobody's business.
    pub trees: bool,
    /// Little but making, replacing and looking up: what is replaced goes while it is looked up.
    pub replacing: bool,
    /// With contents of files.
    pub data: bool,
}

impl Flavour {
    /// Draws one.
    pub fn draw(rng: &mut Rng, with_trees: bool) -> Flavour {
        let small = Flavour { dirs: 2, names: 2, trees: false, replacing: false, data: false };
        match rng.below(8) {
            0 => Flavour { dirs: 1, ..small },
            7 => Flavour { dirs: 1, replacing: true, ..small },
            1 => small,
            2 if with_trees => Flavour { names: 3, trees: true, ..small },
            3 => Flavour { dirs: 3, names: 3, ..small },
            _ => Flavour { dirs: 4, names: 3, ..small },
        }
    }

    fn at(self, rng: &mut Rng) -> At {
        let name = rng.below(u64::from(self.names)) as u8;
        // All three are used so that what is at the last one moves too.
        let name = if self.names == 2 && name == 1 && !self.replacing { 2 } else { name };
        At { dir: rng.below(u64::from(self.dirs)) as u8, name }
    }

    fn file(rng: &mut Rng) -> u8 {
        (DIRS as u64 + rng.below(2)) as u8
    }

    /// Draws a call.
    pub fn call(self, rng: &mut Rng) -> Call {
        if self.data && rng.chance(40) {
            let file = Self::file(rng);
            return match rng.below(8) {
                0..4 => Call::Write(file, rng.range(1, 200) as u8),
                4 => Call::Cut(file, rng.chance(50)),
                _ => Call::Read(file),
            };
        }
        if self.replacing {
            return match rng.below(10) {
                0..3 => Call::Create(self.at(rng)),
                3..6 => Call::Rename(self.at(rng), self.at(rng), Mode::Plain),
                6..9 => Call::Lookup(self.at(rng)),
                _ => Call::List(0),
            };
        }
        match rng.below(100) {
            0..12 => Call::Create(self.at(rng)),
            12..19 => Call::Mkdir(self.at(rng)),
            19..31 => Call::Unlink(self.at(rng)),
            31..39 if self.trees => Call::RemoveTree(self.at(rng)),
            31..39 => Call::Rmdir(self.at(rng)),
            39..60 => Call::Rename(self.at(rng), self.at(rng), Mode::Plain),
            60..65 => Call::Rename(self.at(rng), self.at(rng), Mode::NoReplace),
            65..71 => Call::Rename(self.at(rng), self.at(rng), Mode::Exchange),
            71..79 => Call::Link(Self::file(rng), self.at(rng)),
            79..90 => Call::Lookup(self.at(rng)),
            90..95 => Call::List(rng.below(u64::from(self.dirs)) as u8),
            _ => match rng.chance(50) {
                true => Call::Stat(Self::file(rng)),
                false => Call::Stat(rng.below(u64::from(self.dirs)) as u8),
            },
        }
    }

    /// What is asked once all have ended, one call after the other: everything that can be seen.
    pub fn epilogue(self) -> Vec<Call> {
        let dirs = if self.trees { 2 } else { DIRS as u8 };
        let mut calls = Vec::new();
        for dir in 0..dirs {
            let names = 0..NAMES as u8;
            calls.extend(names.map(|name| Call::Lookup(At { dir, name })));
            calls.push(Call::Stat(dir));
        }
        calls.extend((DIRS as u8..HANDLES as u8).map(Call::Stat));
        if self.data {
            calls.extend((DIRS as u8..HANDLES as u8).map(Call::Read));
        }
        calls
    }
}

/// What each thread of a history does: its calls, each with the turns that it spins before.
#[derive(Clone, Debug)]
pub struct Program {
    /// What it is about.
    pub flavour: Flavour,
    /// By thread.
    pub threads: Vec<Vec<(u32, Call)>>,
}

impl Program {
    /// Draws the program of a seed. `spin` bounds the delays.
    pub fn draw(seed: u64, with_trees: bool, spin: u64) -> Program {
        let mut rng = Rng::new(seed).fork(0x11EA);
        let flavour = Flavour::draw(&mut rng, with_trees);
        let calls = |rng: &mut Rng| {
            let count = rng.range(3, 6);
            (0..count).map(|_| (rng.below(spin) as u32, flavour.call(rng))).collect()
        };
        let threads = (0..rng.range(2, 4)).map(|_| calls(&mut rng)).collect();
        Program { flavour, threads }
    }
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", HANDLE_NAMES[usize::from(self.dir)], self.text())
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let handle = |number: &u8| HANDLE_NAMES[usize::from(*number)];
        match self {
            Call::Create(at) => write!(f, "create {at}"),
            Call::Mkdir(at) => write!(f, "mkdir {at}"),
            Call::Unlink(at) => write!(f, "unlink {at}"),
            Call::Rmdir(at) => write!(f, "rmdir {at}"),
            Call::Rename(from, to, Mode::Plain) => write!(f, "rename {from} {to}"),
            Call::Rename(from, to, Mode::NoReplace) => write!(f, "rename {from} {to} noreplace"),
            Call::Rename(from, to, Mode::Exchange) => write!(f, "exchange {from} {to}"),
            Call::Link(file, at) => write!(f, "link {} {at}", handle(file)),
            Call::Lookup(at) => write!(f, "lookup {at}"),
            Call::List(dir) => write!(f, "list {}", handle(dir)),
            Call::Probe(at) => write!(f, "list: {at}"),
            Call::Stat(of) => write!(f, "stat {}", handle(of)),
            Call::RemoveTree(at) => write!(f, "remove-tree {at}"),
            Call::Write(file, value) => {
                write!(f, "write {} {value}*{}", handle(file), Content::length_of(*value))
            }
            Call::Cut(file, true) => write!(f, "cut {} {HEAD}", handle(file)),
            Call::Cut(file, false) => write!(f, "cut {} 0", handle(file)),
            Call::Read(file) => write!(f, "read {}", handle(file)),
        }
    }
}

/// The forms in which replies travel between processes; [`Reply::parse`] reads them, but for
/// contents of files, which do not travel.
impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reply::Done => write!(f, "done"),
            Reply::Found(seen) => write!(f, "{seen}"),
            Reply::Listed(entries) => {
                write!(f, "list")?;
                entries.iter().try_for_each(|entry| match entry {
                    Some(seen) => write!(f, ",{seen}"),
                    None => write!(f, ",-"),
                })
            }
            Reply::Probed(None) => write!(f, "-"),
            Reply::Probed(Some(seen)) => write!(f, "{seen}"),
            Reply::Attrs { links, entries } => write!(f, "links={links}:{entries}"),
            Reply::Content(Some(Content { len, head, tail })) => {
                write!(f, "bytes={len}:{head}:{tail}")
            }
            Reply::Content(None) => write!(f, "bytes=mixed"),
            Reply::Failed(errno) => {
                let known = shoal::Code::ALL.iter().find(|code| code.errno() == *errno);
                match known {
                    Some(code) => write!(f, "{}", code.name()),
                    None => write!(f, "errno={errno}"),
                }
            }
        }
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.kind == Kind::Dir { "dir" } else { "file" };
        write!(f, "{kind}:{}:{}", self.ino, self.age)
    }
}

impl Seen {
    fn parse(text: &str) -> Option<Seen> {
        let mut parts = text.split(':');
        let kind = match parts.next()? {
            "dir" => Kind::Dir,
            "file" => Kind::File,
            _ => return None,
        };
        Some(Seen { kind, ino: parts.next()?.parse().ok()?, age: parts.next()?.parse().ok()? })
    }
}

impl Reply {
    /// Reads what `Display` wrote.
    pub fn parse(text: &str) -> Option<Reply> {
        if text == "done" {
            return Some(Reply::Done);
        }
        if let Some(list) = text.strip_prefix("list,") {
            let entries: Vec<Option<Seen>> = list.split(',').map(Seen::parse).collect();
            return entries.try_into().ok().map(Reply::Listed);
        }
        if let Some((links, entries)) = text.strip_prefix("links=").and_then(|t| t.split_once(':'))
        {
            let (links, entries) = (links.parse().ok()?, entries.parse().ok()?);
            return Some(Reply::Attrs { links, entries });
        }
        if let Some(errno) = text.strip_prefix("errno=") {
            return errno.parse().ok().map(Reply::Failed);
        }
        match shoal::Code::ALL.iter().find(|code| code.name() == text) {
            Some(code) => Some(Reply::Failed(code.errno())),
            None => Seen::parse(text).map(Reply::Found),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_survive_the_pipe() {
        let seen = Seen { kind: Kind::Dir, ino: 7, age: 2 };
        for reply in [
            Reply::Done,
            Reply::Found(seen),
            Reply::Listed([None, Some(seen), None]),
            Reply::Attrs { links: 2, entries: 3 },
            Reply::Failed(17),
            Reply::Failed(107),
        ] {
            assert_eq!(Reply::parse(&reply.to_string()), Some(reply));
        }
    }

    #[test]
    fn a_seed_draws_the_same_program() {
        let text = |seed| format!("{:?}", Program::draw(seed, true, 100));
        assert_eq!(text(3), text(3));
        assert_ne!(text(3), text(4));
    }
}
