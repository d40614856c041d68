//! Attributes of inodes by their names in directories.
//!
//! A name and its inode must be read under one lock of the directory: between two, the name may be
//! removed and its inode number reused. So the names of a group are looked up, and their inodes
//! read, under the directory's lock, as one `lookup` does for one name. Nothing is read from the
//! device under it: what is missing is collected, read ahead after the lock is released, and the
//! group is begun again.

use super::{Answers, Bulk, Wish, block_of};
use crate::namei::names_itself;
use crate::stat::attr_of;
use crate::types::{Caller, Fields, FileKind, Freshness, Stat, StatItem};
use shoal_base::cold::{Cold, Section};
use shoal_base::limits::NAME_MAX;
use shoal_base::{Code, Error, Ino, Result};
use shoal_format::node::Key;

/// Names that are looked up under one lock of their directory: a few tens of microseconds.
const TOGETHER: usize = 256;

/// An item by name, and its position in the chunk.
#[derive(Clone, Copy)]
struct Named<'n> {
    dir: Ino,
    name: &'n [u8],
    at: usize,
}

impl Named<'_> {
    /// Returns whether the name needs more than its directory's entries, or is none.
    fn is_special(&self) -> bool {
        matches!(self.name, b"" | b"." | b"..") || self.name.len() > NAME_MAX
    }
}

/// An entry that was found, and the position of its item.
struct FoundEntry {
    child: Ino,
    at: usize,
}

impl Bulk<'_> {
    /// Answers the items of a chunk that are names.
    pub(super) fn names(
        self,
        who: &Caller,
        items: &[StatItem<'_>],
        wish: Wish,
        answers: &mut Answers,
    ) {
        let named = items.iter().enumerate().filter_map(|(at, item)| match *item {
            StatItem::Name(dir, name) => Some(Named { dir, name, at }),
            StatItem::Number(..) => None,
        });
        let (special, mut named): (Vec<_>, Vec<_>) = named.partition(Named::is_special);
        named.sort_by_key(|item| item.dir);
        for same in named.chunk_by(|a, b| a.dir == b.dir) {
            for group in same.chunks(TOGETHER) {
                let done = self.0.reading_first(|| self.group(who, group, wish, answers));
                if let Err(e) = done {
                    group.iter().for_each(|item| answers[item.at] = Err(e.clone()));
                }
            }
        }
        for item in special {
            answers[item.at] = match wish.freshness {
                Freshness::DontWait => Ok(Stat::default()),
                _ => self.namespace().lookup(who, item.dir, item.name).map(Stat::from),
            };
        }
    }

    /// Answers the names of one directory. Fails with [`Error::Cold`], and has read ahead then, if
    /// something is not in memory.
    fn group(
        self,
        who: &Caller,
        group: &[Named<'_>],
        wish: Wish,
        answers: &mut Answers,
    ) -> Result<()> {
        let mut missing = Vec::new();
        let tried = self.try_group(who, group, wish, answers, &mut missing);
        match tried {
            Err(Error::Cold(_)) if !wish.may_read() => {
                group.iter().for_each(|item| answers[item.at] = Ok(Stat::default()));
                return Ok(());
            }
            other => other?,
        }
        let Some(first) = missing.first().copied().filter(|_| wish.may_read()) else {
            return Ok(());
        };
        let blocks = missing.iter().filter_map(|cold| match *cold {
            Cold::Block(ino) => Some(ino),
            Cold::Node { .. } | Cold::Device => None,
        });
        self.0.store.read_ahead().inodes(blocks);
        let leaves = missing.iter().filter_map(|cold| match *cold {
            Cold::Node { root, hi, lo, .. } => Some((root, Key::new(hi, lo))),
            Cold::Block(_) | Cold::Device => None,
        });
        self.0.store.read_ahead().entries(leaves);
        Err(Error::Cold(first))
    }

    /// Answers the names of one directory under its lock, and collects what is not in memory. Those
    /// that are missing keep an answer without the attributes that need it.
    fn try_group(
        self,
        who: &Caller,
        group: &[Named<'_>],
        wish: Wish,
        answers: &mut Answers,
        missing: &mut Vec<Cold>,
    ) -> Result<()> {
        let Some(dir) = group.first().map(|item| item.dir) else { return Ok(()) };
        // Nothing is read from the device from here on, the directory's own block included.
        let _section = Section::begin();
        let table = &self.0.root(dir)?.table;
        let pin = table.pin();
        let inode = table.borrow(&pin, dir)?;
        let slot = inode.read();
        self.namespace().check_search(who, dir, &slot.inode)?;
        let mut found = Vec::with_capacity(group.len());
        for item in group {
            answers[item.at] = match self.directories().find_entry(dir, item.name) {
                Ok(None) => Err(Error::Code(Code::NotFound)),
                Ok(Some(entry)) if entry.child == dir => Err(names_itself(dir)),
                Ok(Some(entry)) => match FileKind::from_dirent_type(entry.kind) {
                    Some(kind) => {
                        let child = entry.child;
                        found.push(FoundEntry { child, at: item.at });
                        Ok(Stat::of_entry(child, kind))
                    }
                    None => {
                        let object = format!("entry of directory {dir}");
                        Err(Error::corrupt(object, None, "no file type"))
                    }
                },
                Err(Error::Cold(cold)) => {
                    missing.push(cold);
                    Ok(Stat::default())
                }
                Err(e) => Err(e),
            };
        }
        if Fields::OF_ENTRY.contains(wish.want) {
            return Ok(());
        }
        found.sort_unstable_by_key(|entry| entry.child);
        for block in found.chunk_by(|a, b| block_of(a.child) == block_of(b.child)) {
            self.look_at(block, answers, missing);
        }
        Ok(())
    }

    /// Answers the entries of one inode block, if it is in memory.
    fn look_at(self, block: &[FoundEntry], answers: &mut Answers, missing: &mut Vec<Cold>) {
        let Some(first) = block.first() else { return };
        let root = self.0.root(first.child);
        let pin = root.as_ref().ok().map(|root| (&root.table, root.table.pin()));
        let number = block_of(first.child).1;
        let view = pin.as_ref().and_then(|(table, pin)| table.view(pin, number));
        for FoundEntry { child, at } in block {
            let attr = match &view {
                Some(view) => view.look(*child, |inode| attr_of(*child, inode)),
                // Reads it only if the call could not be answered from memory many times.
                None => self.0.attr(*child),
            };
            match attr {
                Err(Error::Cold(cold)) => missing.push(cold),
                attr => answers[*at] = attr.map(Stat::from),
            }
        }
    }
}
