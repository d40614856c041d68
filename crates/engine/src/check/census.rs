//! What a check keeps of the inodes in use, from pass to pass.
//!
//! Problem: a volume holds more inodes than a hash map of them would fit in memory.
//!
//! Rule: three bytes for each slot of an inode block that exists, found by the block's place among
//! the numbers of its root. More is kept of few only: of directories, of inodes with many links,
//! and of those whose bytes of extents do not add up yet.

use shoal_base::limits::INODES_PER_BLOCK;
use shoal_base::{Ino, RootId};
use std::collections::HashMap;

/// Type of a directory, as in an inode's mode and in an entry.
pub(super) const DIRECTORY: u8 = 4;

/// In `Root::kinds`: the type.
const KIND: u8 = 0x0f;
/// In `Root::kinds`: its tail is being removed, says the inode.
const CUT: u8 = 0x10;
/// In `Root::kinds`: it has an orphan slot, and no name is wanted.
const ORPHAN: u8 = 0x20;
/// In `Root::links`, `Root::names`: the number stands in `Census::many`.
const MANY: u8 = u8::MAX;

/// The inodes of a root; three bytes for each slot of its blocks.
struct Root {
    id: RootId,
    /// Numbers of its blocks, ascending.
    blocks: Vec<u64>,
    /// Type and flags; 0: not in use.
    kinds: Vec<u8>,
    /// Links that the inode says it has.
    links: Vec<u8>,
    /// Names found.
    names: Vec<u8>,
}

/// What a check knows of a directory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dir {
    pub ino: Ino,
    /// The directory that it says it is in.
    pub parent: Ino,
    /// Entries that it says it has.
    pub size: u64,
    /// Entries found.
    pub entries: u64,
    /// Subdirectories found.
    pub subdirs: u64,
    pub generation: u32,
}

/// What a check knows of an inode in use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub ino: Ino,
    pub kind: u8,
    pub cut: bool,
    pub orphan: bool,
    pub links: u32,
    /// Names found.
    pub names: u32,
}

/// The inodes in use.
#[derive(Default)]
pub(super) struct Census {
    roots: Vec<Root>,
    /// Ascending.
    dirs: Vec<Dir>,
    /// Links and names of those that have many.
    many: HashMap<Ino, (u32, u32)>,
    /// Bytes of extents that a core says it has, less those found, while it is not 0. Not of
    /// directories.
    bytes: HashMap<Ino, i128>,
    count: u64,
    /// The directory that was asked for last: entries come directory by directory.
    last: usize,
}

impl Census {
    /// The inodes of this root come next, ascending, from these blocks. Roots come ascending.
    pub fn begin(&mut self, id: RootId, blocks: Vec<u64>) {
        let slots = blocks.len() * INODES_PER_BLOCK;
        let bytes = || vec![0; slots];
        self.roots.push(Root { id, kinds: bytes(), links: bytes(), names: bytes(), blocks });
    }

    /// An inode in use that has no name yet. Directories come ascending.
    pub fn insert(&mut self, ino: Ino, kind: u8, links: u32, cut: bool) {
        let Some((root, at)) = self.place(ino) else { return };
        let root = &mut self.roots[root];
        root.kinds[at] = kind & KIND | if cut { CUT } else { 0 };
        root.links[at] = u8::try_from(links).unwrap_or(MANY);
        if root.links[at] == MANY {
            self.many.insert(ino, (links, 0));
        }
        self.count += 1;
    }

    /// What is kept of a directory beside.
    pub fn insert_dir(&mut self, ino: Ino, parent: Ino, size: u64, generation: u32) {
        self.dirs.push(Dir { ino, parent, size, entries: 0, subdirs: 0, generation });
    }

    /// Number of inodes in use.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Where an inode's bytes are, if its block exists.
    fn place(&self, ino: Ino) -> Option<(usize, usize)> {
        let root = self.roots.binary_search_by_key(&ino.root(), |root| root.id).ok()?;
        let number = ino.index() / INODES_PER_BLOCK as u64;
        let blocks = &self.roots[root].blocks;
        // Mostly there are no gaps.
        let block = match blocks.get(number as usize) {
            Some(at) if *at == number => number as usize,
            _ => blocks.binary_search(&number).ok()?,
        };
        Some((root, block * INODES_PER_BLOCK + ino.index() as usize % INODES_PER_BLOCK))
    }

    /// Looks at an inode that is in use.
    pub fn get(&self, ino: Ino) -> Option<Seen> {
        let (root, at) = self.place(ino)?;
        self.seen(&self.roots[root], at, ino)
    }

    fn seen(&self, root: &Root, at: usize, ino: Ino) -> Option<Seen> {
        let kind = root.kinds[at];
        if kind == 0 {
            return None;
        }
        let (mut links, mut names) = (u32::from(root.links[at]), u32::from(root.names[at]));
        if root.links[at] == MANY || root.names[at] == MANY {
            (links, names) = self.many.get(&ino).copied().unwrap_or((links, names));
        }
        let (cut, orphan) = (kind & CUT != 0, kind & ORPHAN != 0);
        Some(Seen { ino, kind: kind & KIND, cut, orphan, links, names })
    }

    /// A name of an inode in use has been found.
    pub fn name(&mut self, ino: Ino) {
        let Some((root, at)) = self.place(ino) else { return };
        let root = &mut self.roots[root];
        if root.links[at] < MANY && root.names[at] < MANY - 1 {
            root.names[at] += 1;
            return;
        }
        let known = (u32::from(root.links[at]), u32::from(root.names[at]));
        root.names[at] = MANY;
        let (_, names) = self.many.entry(ino).or_insert(known);
        *names = names.saturating_add(1);
    }

    /// An inode has an orphan slot: no name is wanted.
    pub fn orphan(&mut self, ino: Ino) {
        if let Some((root, at)) = self.place(ino) {
            self.roots[root].kinds[at] |= ORPHAN;
        }
    }

    /// The cut of an inode has its orphan slot.
    pub fn cut_known(&mut self, ino: Ino) {
        if let Some((root, at)) = self.place(ino) {
            self.roots[root].kinds[at] &= !CUT;
        }
    }

    /// The directory, to look at and to count in.
    pub fn dir(&mut self, ino: Ino) -> Option<&mut Dir> {
        if self.dirs.get(self.last).is_none_or(|dir| dir.ino != ino) {
            self.last = self.dirs.binary_search_by_key(&ino, |dir| dir.ino).ok()?;
        }
        self.dirs.get_mut(self.last)
    }

    /// All directories, ascending.
    pub fn dirs(&self) -> &[Dir] {
        &self.dirs
    }

    /// All inodes in use, ascending.
    pub fn iter(&self) -> impl Iterator<Item = Seen> {
        self.roots.iter().flat_map(move |root| {
            let first = |block: usize| root.blocks[block] * INODES_PER_BLOCK as u64;
            (0..root.kinds.len()).filter_map(move |at| {
                let index = first(at / INODES_PER_BLOCK) + (at % INODES_PER_BLOCK) as u64;
                self.seen(root, at, Ino::new(root.id, index))
            })
        })
    }

    /// The first inode in use behind this one; `None` begins.
    pub fn after(&self, ino: Option<Ino>) -> Option<Ino> {
        let (mut root, mut at) = match ino {
            None => (0, 0),
            Some(ino) => self.place(ino).map(|(root, at)| (root, at + 1))?,
        };
        while let Some(here) = self.roots.get(root) {
            if let Some(next) = here.kinds[at..].iter().position(|kind| *kind != 0) {
                let at = at + next;
                let block = here.blocks[at / INODES_PER_BLOCK] * INODES_PER_BLOCK as u64;
                return Some(Ino::new(here.id, block + (at % INODES_PER_BLOCK) as u64));
            }
            (root, at) = (root + 1, 0);
        }
        None
    }

    /// Bytes of extents that an inode says it has (more than 0), or of an extent of it that was
    /// found (less).
    pub fn add_bytes(&mut self, ino: Ino, bytes: i128) {
        if bytes == 0 {
            return;
        }
        let left = self.bytes.entry(ino).or_insert(0);
        *left += bytes;
        if *left == 0 {
            self.bytes.remove(&ino);
        }
    }

    /// Inodes whose bytes do not add up, ascending, each with what was found too little.
    pub fn wrong_bytes(&self) -> Vec<(Ino, i128)> {
        let mut wrong: Vec<_> = self.bytes.iter().map(|(ino, left)| (*ino, *left)).collect();
        wrong.sort_unstable();
        wrong
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_is_told() {
        let mut census = Census::default();
        census.begin(RootId(0), vec![0, 1, 7, 9_000_000]);
        census.begin(RootId(3), vec![2]);
        let at = |root, index| Ino::new(RootId(root), index);
        let inodes = [at(0, 1), at(0, 33), at(0, 7 * 32 + 31), at(0, 9_000_000 * 32), at(3, 64)];
        for (links, ino) in [1, 254, 255, 70_000, 2].into_iter().zip(inodes) {
            census.insert(ino, 8, links, ino == inodes[4]);
            assert_eq!(census.get(ino).map(|seen| seen.links), Some(links));
        }
        for free in [at(0, 2), at(0, 64), at(1, 1), at(3, 63), at(3, 96), at(0, 1 << 40)] {
            assert!(census.get(free).is_none(), "{free}");
            census.name(free);
        }
        let mut all = Vec::new();
        while let Some(ino) = census.after(all.last().copied()) {
            all.push(ino);
        }
        assert_eq!(all, inodes);
        assert!(census.iter().map(|seen| seen.ino).eq(inodes) && census.count() == 5);
        for ino in inodes {
            for names in 1..600 {
                census.name(ino);
                let seen = census.get(ino).expect("in use");
                assert_eq!((seen.names, seen.kind), (names, 8), "{ino}");
            }
        }
        let links: Vec<u32> = census.iter().map(|seen| seen.links).collect();
        assert_eq!(links, [1, 254, 255, 70_000, 2]);
        census.orphan(inodes[0]);
        census.cut_known(inodes[4]);
        let flags: Vec<_> = census.iter().map(|seen| (seen.orphan, seen.cut)).collect();
        assert_eq!((flags[0], flags[1], flags[4]), ((true, false), (false, false), (false, false)));
    }

    #[test]
    fn bytes_that_add_up_are_forgotten() {
        let mut census = Census::default();
        let (a, b) = (Ino::new(RootId(0), 5), Ino::new(RootId(0), 6));
        for (ino, bytes) in [(b, 10), (a, 7), (b, -4), (a, -8), (b, -6), (a, 0)] {
            census.add_bytes(ino, bytes);
        }
        assert_eq!(census.wrong_bytes(), [(a, -1)]);
    }
}
