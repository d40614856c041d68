//! Reading the feed in batches: first renames, then removed names, then the inodes that have
//! changed, in the order of their numbers.

use super::Changes;
use super::dirs::Dirs;
use crate::stat::attr_of;
use crate::types::{Attr, Caller, Change, ChangeMark, FileKind};
use shoal_base::limits::INODES_PER_BLOCK;
use shoal_base::sync::thread;
use shoal_base::timing::Call;
use shoal_base::{Code, Epoch, Generation, Ino, Lsn, Result};
use shoal_format::inode::{Inode, Stamp};
use shoal_itable::InodeTable;
use shoal_txn::RemovedName;
use std::collections::{HashMap, HashSet, VecDeque};

/// Blocks among which the changed ones are found at a time: bounds the memory of a reader.
const RANGE: u64 = 1 << 16;
/// Blocks that are read ahead.
const AHEAD: usize = 128;
/// Changes of a batch, at most.
const BATCH_MAX: usize = 1 << 16;
/// Attempts while directories are being renamed, before transactions are quiesced.
const TRIES: usize = 64;

/// A moment: what is from then on has changed.
#[derive(Clone, Copy)]
pub(super) struct Since {
    pub lsn: Lsn,
    /// Epochs from this one on.
    pub epoch: Epoch,
    /// `None`: everything is new.
    pub time: Option<Stamp>,
}

/// An inode that has changed.
#[derive(Clone, Copy)]
pub(super) struct Found {
    pub ino: Ino,
    pub generation: Generation,
    pub kind: FileKind,
    pub created: bool,
    /// Names before this cookie have been told.
    pub cookie: u64,
}

/// The removed names that a reader tells.
#[derive(Default)]
pub(super) struct Removed {
    /// All of them, by LSN.
    pub names: Vec<RemovedName>,
    /// There are no others.
    pub are_all: bool,
    /// First of an inode's names that another one replaced, by inode.
    pub moved: Vec<usize>,
    /// Inodes told as renamed, with their earlier names.
    pub renamed: HashMap<Ino, usize>,
    /// Names in directories that have been considered.
    pub seen: HashSet<(Ino, Vec<u8>)>,
}

/// Position of a reader.
enum Stage {
    /// The next of [`Removed::moved`].
    Renamed(usize),
    /// The next of [`Removed::names`].
    Removed(usize),
    /// The next range of inode blocks.
    Inodes(u64),
    Done,
}

/// Reader of the changes since a mark. It keeps its position, and no locks or references: the
/// volume may be used, and closed, while it exists.
pub struct ChangeReader {
    pub(super) dir: Ino,
    pub(super) since: Since,
    mark: ChangeMark,
    pub(super) removed: Removed,
    pub(super) dirs: Dirs,
    stage: Stage,
    /// Blocks of the current range, ascending.
    blocks: VecDeque<u64>,
    /// Inodes whose names are still to be told.
    found: VecDeque<Found>,
}

impl ChangeReader {
    pub(super) fn new(
        who: &Caller,
        dir: Ino,
        since: Option<&ChangeMark>,
        mark: ChangeMark,
        window: Option<Option<(Vec<RemovedName>, Lsn)>>,
    ) -> ChangeReader {
        let from = match since {
            None => Since { lsn: Lsn(0), epoch: 0, time: None },
            Some(ChangeMark { lsn, epoch, time, .. }) => {
                let time = Stamp { sec: time.sec, nsec: time.nsec };
                Since { lsn: *lsn, epoch: epoch + 1, time: Some(time) }
            }
        };
        let mut removed = match window {
            // Without a mark nothing is known that could be gone.
            None => Removed { are_all: true, ..Removed::default() },
            Some(None) => Removed::default(),
            Some(Some((names, complete_from))) => {
                Removed { names, are_all: complete_from <= from.lsn, ..Removed::default() }
            }
        };
        removed.names.retain(|removed| removed.dir.root() == dir.root());
        let mut met = HashSet::new();
        let moved = removed.names.iter().enumerate();
        let moved = moved.filter(|(_, name)| name.moved && met.insert((name.ino, name.generation)));
        removed.moved = moved.map(|(at, _)| at).collect();
        ChangeReader {
            dir,
            since: from,
            mark,
            removed,
            dirs: Dirs::new(who, dir),
            stage: Stage::Renamed(0),
            blocks: VecDeque::new(),
            found: VecDeque::new(),
        }
    }

    /// Returns the mark for the next call. It is valid once everything has been read.
    pub fn mark(&self) -> ChangeMark {
        self.mark
    }

    /// Returns whether all removed names, and the earlier names of all that was renamed, are told.
    /// Otherwise some of them are unknown, and gone from directories that are told as created,
    /// changed or renamed: these must be listed and compared.
    pub fn has_all_removed(&self) -> bool {
        self.removed.are_all
    }

    /// Frees the memory of paths that are known, some 40 MB at most, until the next call finds
    /// them again: for a reader that has to wait.
    pub fn forget_paths(&mut self) {
        self.dirs.forget();
    }

    /// Returns whether everything has been read.
    pub fn is_done(&self) -> bool {
        matches!(self.stage, Stage::Done)
    }
}

impl Changes<'_> {
    /// Returns the next changes, about `most` of them, which are durable; none at the end.
    ///
    /// Each inode is told once, with all its names, those of many links in several changes that
    /// follow one another. An inode is told if its last change is not before the mark; one that was
    /// made and removed since is not, but the name that it had may be. Files and directories that
    /// the caller could not find by listing are left out.
    ///
    /// # Errors
    /// `ESTALE` if the subvolume is deleted meanwhile; those of the device, and damage; those of a
    /// sync. The reader can be used again.
    pub fn next(self, reader: &mut ChangeReader, most: usize) -> Result<Vec<Change>> {
        self.0.measured(Call::Changes, || {
            loop {
                let told = self.next_of_step(reader, most)?;
                if !told.is_empty() || reader.is_done() {
                    return Ok(told);
                }
            }
        })
    }

    /// As [`Changes::next`], but one bounded step, for a caller that must answer in time: the
    /// result may be empty before the end ([`ChangeReader::is_done`]).
    ///
    /// # Errors
    /// Those of [`Changes::next`].
    pub fn next_of_step(self, reader: &mut ChangeReader, most: usize) -> Result<Vec<Change>> {
        self.0.measured(Call::Changes, || {
            let told = self.step(reader, most.clamp(1, BATCH_MAX))?;
            if !told.is_empty() && self.0.store.journal().is_ok() {
                self.0.sync()?;
            }
            Ok(told)
        })
    }

    fn step(self, reader: &mut ChangeReader, most: usize) -> Result<Vec<Change>> {
        let ChangeReader { removed, dirs, .. } = reader;
        match reader.stage {
            Stage::Renamed(at) => {
                let end = removed.moved.len().min(at + most);
                let (told, done) = self.steadily(dirs, |dirs| {
                    self.tell_renamed(dirs, reader.since, removed, &removed.moved[at..end])
                })?;
                let end = at + done;
                let renamed = told.iter().map(|(change, name)| (change.ino, *name));
                removed.renamed.extend(renamed);
                let is_last = end == removed.moved.len();
                reader.stage = if is_last { Stage::Removed(0) } else { Stage::Renamed(end) };
                Ok(told.into_iter().map(|(change, _)| change).collect())
            }
            Stage::Removed(at) => {
                let end = removed.names.len().min(at + most);
                let (told, end) =
                    self.steadily(dirs, |dirs| self.tell_removed(dirs, removed, at..end))?;
                for name in &removed.names[at..end] {
                    removed.seen.insert((name.dir, name.name.clone()));
                }
                let is_last = end == removed.names.len();
                reader.stage = if is_last { Stage::Inodes(0) } else { Stage::Removed(end) };
                Ok(told)
            }
            Stage::Inodes(from) if reader.found.is_empty() && reader.blocks.is_empty() => {
                reader.stage = self.next_range(reader, from)?;
                Ok(Vec::new())
            }
            Stage::Inodes(_) if reader.found.is_empty() => {
                self.find(reader, most)?;
                Ok(Vec::new())
            }
            Stage::Inodes(_) => {
                let told =
                    self.steadily(dirs, |dirs| self.tell_found(dirs, removed, &reader.found))?;
                reader.found.drain(..told.inodes);
                if let (Some(cookie), Some(found)) = (told.cookie, reader.found.front_mut()) {
                    found.cookie = cookie;
                }
                Ok(told.changes)
            }
            Stage::Done => Ok(Vec::new()),
        }
    }

    /// Finds the changed blocks of the next range.
    fn next_range(self, reader: &mut ChangeReader, from: u64) -> Result<Stage> {
        let table = &self.0.root(reader.dir)?.table;
        let Some(from) = table.next_in_use(from)? else { return Ok(Stage::Done) };
        let end = from.saturating_add(RANGE);
        reader.blocks = table.blocks_changed(from..end, reader.since.epoch)?.into();
        Ok(Stage::Inodes(end))
    }

    /// Finds about `most` changed inodes.
    fn find(self, reader: &mut ChangeReader, most: usize) -> Result<()> {
        let table = &self.0.root(reader.dir)?.table;
        let mut ahead = 0;
        while let Some(number) = reader.blocks.front().copied()
            && reader.found.len() < most
        {
            if ahead == 0 {
                ahead = AHEAD;
                let next = reader.blocks.iter().take(AHEAD);
                let cold = next.filter(|number| table.is_cold(**number));
                let inodes = cold.map(|number| table.block_id(*number).first);
                self.0.store.read_ahead().inodes(inodes);
            }
            ahead -= 1;
            match self.find_in(table, number, reader.since) {
                // The block is not used any more, unless the whole subvolume is not.
                Err(e) if e.is(Code::Stale) => self.0.root(reader.dir).map(|_| ())?,
                found => reader.found.extend(found?),
            }
            // Only now: after an error the block is read again.
            reader.blocks.pop_front();
        }
        Ok(())
    }

    fn find_in(self, table: &InodeTable, number: u64, since: Since) -> Result<Vec<Found>> {
        let mut found = Vec::with_capacity(INODES_PER_BLOCK);
        let mut failed = None;
        table.with_view(number, |block| {
            block.for_each(|ino, inode| match since.find(ino, inode) {
                Ok(one) => found.extend(one),
                Err(e) => failed = failed.take().or(Some(e)),
            });
        })?;
        failed.map_or(Ok(found), Err)
    }

    /// Calls `tell` until no directory is renamed meanwhile, so that all paths are of one moment.
    fn steadily<T>(
        self,
        dirs: &mut Dirs,
        mut tell: impl FnMut(&mut Dirs) -> Result<T>,
    ) -> Result<T> {
        for _ in 0..TRIES {
            if let Some(stamp) = self.0.shape.quiet() {
                if dirs.stamp != Some(stamp) {
                    dirs.forget();
                    dirs.stamp = Some(stamp);
                }
                let told = tell(dirs);
                if self.0.shape.is_still(stamp) {
                    return told;
                }
            }
            thread::yield_now();
        }
        self.0.store.checkpoints().quiesced(|_| {
            dirs.forget();
            tell(dirs)
        })
    }
}

impl Since {
    /// Returns an inode if it has a name and has changed.
    fn find(self, ino: Ino, inode: &Inode) -> Result<Option<Found>> {
        let core = &inode.core;
        if !core.in_use() || core.nlink == 0 || core.lsn < self.lsn.0 {
            return Ok(None);
        }
        let Attr { kind, generation, .. } = attr_of(ino, inode)?;
        let created = self.is_after(core.btime);
        Ok(Some(Found { ino, generation, kind, created, cookie: 0 }))
    }

    /// Returns whether an inode with this time of creation was made since.
    pub(super) fn is_after(self, btime: Stamp) -> bool {
        self.time.is_none_or(|time| (btime.sec, btime.nsec) >= (time.sec, time.nsec))
    }
}
