//! The first half of a step: the inodes that come next, found without a transaction.
//!
//! Directories are listed in the order of their cookies, and a directory's contents follow the
//! directory. An entry is read together with the generation of its inode, under the lock of its
//! directory. So the inode that is changed later, when that lock has been released, is the one that
//! had the name, or none.

use super::TreeChanges;
use crate::directories::decoded;
use crate::permissions::{EXEC, READ};
use crate::stat::attr_of;
use crate::types::{Caller, FileKind};
use shoal_base::cold::Section;
use shoal_base::{Code, Error, Ino, Result, RootId};
use shoal_format::dirent::{FIRST_COOKIE, first_key};
use shoal_format::inode::Inode;
use shoal_format::node::Key;
use shoal_format::tree_change::{LEVELS_MAX, Level};
use shoal_itable::TOGETHER;
use shoal_tree::Batch;
use std::collections::VecDeque;
use std::ops::Range;

/// Inodes that are found at a time, and entries that are listed at a time.
const AHEAD: usize = 1024;
/// Names of a directory without subdirectories that is worth a unit of its own.
const WORTH: u64 = 64;
/// Cookie of a directory that is changed itself, with none of its entries.
const ITSELF: u64 = FIRST_COOKIE - 1;

/// Part of a change that comes next.
pub(super) enum Event {
    /// An inode is changed. The cookie is that of its entry.
    Visit { ino: Ino, generation: u32, cookie: u64, path: Range<usize> },
    /// The entries of a directory begin.
    Enter(Level),
    /// The entries of the current directory are done.
    Leave,
    /// The contents of a directory become a unit of their own.
    Spawn { level: Level, path: Range<usize> },
    /// A directory cannot be listed (further).
    Failed { dir: Ino, path: Range<usize>, error: Error },
}

/// An entry of a directory.
struct Entry {
    ino: Ino,
    generation: u32,
    cookie: u64,
    /// It is a directory of this directory.
    is_dir: bool,
    /// It has subdirectories, or many files.
    is_large: bool,
    name: Range<usize>,
}

/// Entries of a directory that have been listed.
#[derive(Default)]
struct Listed {
    entries: VecDeque<Entry>,
    names: Vec<u8>,
    is_last: bool,
}

/// A directory that is being listed.
struct Listing {
    level: Level,
    listed: Listed,
    /// Length of its path.
    path: usize,
}

/// Events that have been found and not been done yet. They can be dropped, and are found again.
#[derive(Default)]
pub(super) struct Ahead {
    pub events: VecDeque<Event>,
    /// Paths of the events.
    pub paths: Vec<u8>,
    listings: Vec<Listing>,
    /// Path of the current directory, below that of the change.
    path: Vec<u8>,
    is_begun: bool,
}

impl Ahead {
    /// For a unit that begins below the directory of the change, at this path.
    pub(super) fn at(path: Vec<u8>) -> Ahead {
        Ahead { path, ..Ahead::default() }
    }

    /// Keeps the directories of a unit that waits, but none of their entries. Everything found must
    /// be done, so the levels are those of the state.
    pub(super) fn keep_levels(&mut self, levels: &[Level]) {
        self.paths = Vec::new();
        for (listing, level) in self.listings.iter_mut().zip(levels) {
            (listing.level, listing.listed) = (*level, Listed::default());
        }
    }

    fn visit(&mut self, ino: Ino, generation: u32, cookie: u64, name: &[u8]) {
        let path = self.path_of(name);
        self.events.push_back(Event::Visit { ino, generation, cookie, path });
    }

    /// Notes the path of an entry of the current directory; without a name, its own.
    fn path_of(&mut self, name: &[u8]) -> Range<usize> {
        let start = self.paths.len();
        self.paths.extend_from_slice(&self.path);
        if !self.path.is_empty() && !name.is_empty() {
            self.paths.push(b'/');
        }
        self.paths.extend_from_slice(name);
        start..self.paths.len()
    }

    fn enter(&mut self, level: Level, name: &[u8]) {
        let path = self.path.len();
        if path > 0 && !name.is_empty() {
            self.path.push(b'/');
        }
        self.path.extend_from_slice(name);
        self.listings.push(Listing { level, listed: Listed::default(), path });
    }
}

impl TreeChanges<'_> {
    /// Finds what comes next in a unit at these levels. `spawns`: there should be more units for
    /// other threads, so a large directory becomes one.
    pub(super) fn gather(self, who: &Caller, levels: &[Level], ahead: &mut Ahead, spawns: bool) {
        ahead.paths.clear();
        if !std::mem::replace(&mut ahead.is_begun, true) {
            levels.iter().for_each(|level| ahead.enter(*level, b""));
        }
        if let [Listing { level, .. }] = &mut ahead.listings[..]
            && level.cookie < ITSELF
        {
            level.cookie = ITSELF;
            let Level { dir, generation, cookie } = *level;
            ahead.visit(dir, generation, cookie, b"");
            if !who.bypasses() {
                return;
            }
        }
        while ahead.events.len() < AHEAD {
            let Some(here) = ahead.listings.last_mut() else { return };
            if let Some(entry) = here.listed.entries.pop_front() {
                let name = here.listed.names[entry.name.clone()].to_vec();
                ahead.visit(entry.ino, entry.generation, entry.cookie, &name);
                if !entry.is_dir {
                    continue;
                }
                let level = Level { dir: entry.ino, generation: entry.generation, cookie: ITSELF };
                let is_for_others = spawns && entry.is_large;
                if is_for_others || ahead.listings.len() == LEVELS_MAX {
                    let path = ahead.path_of(&name);
                    ahead.events.push_back(Event::Spawn { level, path });
                    return;
                }
                ahead.events.push_back(Event::Enter(level));
                ahead.enter(level, &name);
                // What an ordinary user may list is decided when the directory has been changed.
                if !who.bypasses() {
                    return;
                }
            } else if here.listed.is_last {
                ahead.path.truncate(here.path);
                ahead.listings.pop();
                ahead.events.push_back(Event::Leave);
            } else {
                self.list_more(who, ahead);
            }
        }
    }

    /// Lists more of the current directory.
    fn list_more(self, who: &Caller, ahead: &mut Ahead) {
        let Some(here) = ahead.listings.last_mut() else { return };
        let dir = here.level.dir;
        match self.list(who, &here.level) {
            Ok(listed) => {
                if let Some(last) = listed.entries.back() {
                    here.level.cookie = last.cookie;
                }
                here.listed = listed;
            }
            Err(error) => {
                here.listed = Listed { is_last: true, ..Listed::default() };
                // A removed directory has no contents.
                if !error.is(Code::Stale) {
                    let path = ahead.path_of(b"");
                    ahead.events.push_back(Event::Failed { dir, path, error });
                }
            }
        }
    }

    /// Lists entries behind a cookie, with the generations of their inodes.
    ///
    /// These are read when the directory is not locked: whoever renames into a subdirectory may
    /// hold that and wait for this one. If the directory is as before afterwards, its entries are
    /// those whose inodes were read. Otherwise another call has changed it, and fewer are listed.
    fn list(self, who: &Caller, level: &Level) -> Result<Listed> {
        let mut most = AHEAD;
        loop {
            let (mut listed, lsn) = self.0.reading_first(|| self.entries(who, level, most))?;
            self.read_generations(level.dir, &mut listed);
            if self.0.root(level.dir)?.table.look(level.dir, |inode| inode.core.lsn)? == lsn {
                return Ok(listed);
            }
            most = (most / 4).max(1);
        }
    }

    /// Lists at most so many entries behind a cookie. Returns also the LSN of the directory's last
    /// change.
    fn entries(self, who: &Caller, level: &Level, most: usize) -> Result<(Listed, u64)> {
        let (dir, root) = (level.dir, self.0.root(level.dir)?);
        let place = self.0.inode(dir)?;
        // Under the lock nothing is read from the device, as in a lookup.
        let _section = Section::begin();
        let slot = place.read();
        attr_of(dir, &slot.inode)?;
        let core = &slot.inode.core;
        if core.generation != level.generation || !core.is_dir() || core.nlink == 0 {
            return Err(Error::Code(Code::Stale));
        }
        self.permissions().permit(who, dir, &slot.inode, READ | EXEC)?;
        let from = match level.cookie < FIRST_COOKIE {
            true => first_key(dir),
            false => Key::of(dir, level.cookie).next(),
        };
        let mut batch = Batch::default();
        let next = root.dirents.scan(from, Key::behind(dir), most, &mut batch)?;
        let mut listed = Listed { is_last: next.is_none(), ..Listed::default() };
        for (key, raw) in batch.iter() {
            let entry = decoded(dir, key, raw)?;
            let start = listed.names.len();
            listed.names.extend_from_slice(entry.name);
            listed.entries.push_back(Entry {
                ino: entry.ino,
                generation: 0,
                cookie: entry.cookie,
                is_dir: entry.kind == FileKind::Directory,
                is_large: false,
                name: start..listed.names.len(),
            });
        }
        Ok((listed, core.lsn))
    }

    /// Reads the generations of listed entries. That of an inode that is not in use, or cannot be
    /// read, stays 0.
    fn read_generations(self, dir: Ino, listed: &mut Listed) {
        let Ok(root) = self.0.root(dir) else { return };
        let mut inodes = Vec::with_capacity(TOGETHER);
        let entries = listed.entries.make_contiguous();
        for some in entries.chunks_mut(TOGETHER) {
            inodes.clear();
            inodes.extend(some.iter().map(|entry| entry.ino));
            root.table.look_at_each(&inodes, |at, inode| note(&mut some[at], dir, inode));
        }
        let missing = |entry: &&mut Entry| entry.generation == 0;
        let inodes: Vec<Ino> = entries.iter_mut().filter(missing).map(|entry| entry.ino).collect();
        if !inodes.is_empty() {
            self.0.store.read_ahead().inodes(inodes.into_iter());
        }
        for entry in entries.iter_mut().filter(missing) {
            if let Ok(root) = self.0.root(entry.ino) {
                // Whoever changes it finds the error.
                let _ = root.table.look(entry.ino, |inode| note(entry, dir, inode));
            }
        }
    }
}

/// Notes the generation of an entry's inode. A directory that is moved away is not entered; neither
/// is one that damage has given a second name, which could be above itself.
fn note(entry: &mut Entry, dir: Ino, inode: &Inode) {
    let core = &inode.core;
    if !core.in_use() {
        return;
    }
    entry.generation = core.generation;
    entry.is_large = core.nlink > 2 || core.size >= WORTH;
    let is_top = entry.ino.root() != dir.root() && dir.root() == RootId(0);
    entry.is_dir &= core.is_dir() && (is_top || core.parent_or_rdev == dir.0);
}
