//! Answers to operations, as far as an order of operations explains them.

use super::program::NAMES;
use crate::call::Answer;
use crate::op::Op;
use shoal::raw::{Attr, Code, FileKind};
use shoal_base::checksum;
use std::fmt;

/// Inode that a name was seen to mean.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Seen {
    /// Set if it is a directory.
    pub dir: bool,
    /// Inode number.
    pub ino: u64,
    /// Generation of the number; 0: not shown.
    pub age: u32,
}

impl Seen {
    /// An inode of the library.
    pub fn of(attr: &Attr) -> Seen {
        Seen { dir: attr.kind == FileKind::Directory, ino: attr.ino.0, age: attr.generation.0 }
    }
}

/// An answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reply {
    /// Done, with nothing to say.
    Done,
    /// Looked up, or made and seen at once.
    Found(Seen),
    /// A listing, by number of the name.
    Listed([Option<Seen>; NAMES.len()]),
    /// One name of a listing.
    Probed(Option<Seen>),
    /// Attributes: links, and for a directory how many entries it has.
    Attrs {
        /// Links.
        links: u32,
        /// Entries.
        entries: u64,
    },
    /// Bytes that were read: how many, and their checksum.
    Bytes(u64, u64),
    /// Failed with this errno.
    Failed(i32),
}

impl Reply {
    /// The answer to a read.
    pub fn of_bytes(bytes: &[u8]) -> Reply {
        Reply::Bytes(bytes.len() as u64, checksum(bytes))
    }

    /// The answer to a call of the library, which has told these attributes.
    pub fn of_answer(op: &Op, answer: Answer, told: Option<Attr>) -> Reply {
        match (answer, told) {
            (Answer::Bytes(bytes), _) => Reply::of_bytes(&bytes),
            (Answer::Node(_), Some(attr)) if !matches!(op, Op::Link { .. }) => {
                Reply::Found(Seen::of(&attr))
            }
            (Answer::Unit, Some(attr)) => {
                let entries = if attr.kind == FileKind::Directory { attr.size } else { 0 };
                Reply::Attrs { links: attr.nlink, entries }
            }
            _ => Reply::Done,
        }
    }

    /// The answer to a listing; other names than those of [`NAMES`] are left out.
    pub fn of_list(entries: impl Iterator<Item = (Vec<u8>, Seen)>) -> Reply {
        let mut listed = [None; NAMES.len()];
        for (name, seen) in entries {
            if let Some(number) = NAMES.iter().position(|known| *known == name) {
                listed[number] = Some(Seen { age: 0, ..seen });
            }
        }
        Reply::Listed(listed)
    }
}

/// The forms in which replies travel between processes; [`Reply::parse`] reads them.
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
            Reply::Bytes(len, sum) => write!(f, "bytes={len}:{sum:x}"),
            Reply::Failed(errno) => match Code::ALL.iter().find(|code| code.errno() == *errno) {
                Some(code) => write!(f, "{}", code.name()),
                None => write!(f, "errno={errno}"),
            },
        }
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.dir { "dir" } else { "file" };
        write!(f, "{kind}:{}:{}", self.ino, self.age)
    }
}

impl Seen {
    fn parse(text: &str) -> Option<Seen> {
        let mut parts = text.split(':');
        let dir = match parts.next()? {
            "dir" => true,
            "file" => false,
            _ => return None,
        };
        Some(Seen { dir, ino: parts.next()?.parse().ok()?, age: parts.next()?.parse().ok()? })
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
        if let Some((len, sum)) = text.strip_prefix("bytes=").and_then(|t| t.split_once(':')) {
            return Some(Reply::Bytes(len.parse().ok()?, u64::from_str_radix(sum, 16).ok()?));
        }
        if let Some(errno) = text.strip_prefix("errno=") {
            return errno.parse().ok().map(Reply::Failed);
        }
        match Code::ALL.iter().find(|code| code.name() == text) {
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
        let seen = Seen { dir: true, ino: 7, age: 2 };
        for reply in [
            Reply::Done,
            Reply::Found(seen),
            Reply::Listed([None, Some(seen), None]),
            Reply::Attrs { links: 2, entries: 3 },
            Reply::of_bytes(b"some"),
            Reply::Failed(17),
            Reply::Failed(107),
        ] {
            assert_eq!(Reply::parse(&reply.to_string()), Some(reply));
        }
    }
}
