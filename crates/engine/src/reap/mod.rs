//! What is freed behind the calls: inodes with a slot in the orphan table that nobody holds, trees
//! that were removed, roots that were deleted. In steps, each one transaction of bounded size that
//! leaves the volume as it should be, so a crash between two needs no thought: the slot leads the
//! next session to what is left.
//!
//! | in the slot | a step | file |
//! | --- | --- | --- |
//! | a file without a name | removes some records; the last frees the inode and the slot | `file.rs` |
//! | a file with a name, marked as being cut | removes some records beyond its size | `../data/truncate.rs` |
//! | a directory without a name | takes some of its entries; subdirectories that are not empty get slots of their own | `tree.rs` |
//! | (a deleted root: its own record says so) | frees some inodes | `roots.rs` |
//!
//! *Who does it.* A background thread, after the calls: when others commit transactions while it
//! works, it rests three times as long as it worked. Not when space is short: then it does not
//! rest, and a call that found none takes steps itself before it gives up. Without background
//! threads (simulation, recovery tools) the call that leaves something does all of it at its end.
//!
//! The newest comes first: of a tree, the leaves, so that few slots are taken at a time.

mod file;
mod roots;
mod tree;

pub(crate) use roots::RootReaper;

use crate::holds::Orphan;
use crate::orphan::Left;
use crate::records;
use crate::types::{OrphanInfo, OrphanState};
use crate::volume::Inner;
use shoal_base::counters::Counter;
use shoal_base::planted::{self, Defect};
use shoal_base::sync::{AtomicBool, Condvar, Mutex};
use shoal_base::{Code, Error, Ino, Lsn, Result};
use shoal_format::inode::FLAG_CUT;
use shoal_format::item::Item;
use shoal_txn::OrphanSlot;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Who wants to hear of inodes.
type Watcher = Arc<dyn Fn(&[Ino]) + Send + Sync>;

/// What waits to be freed.
#[derive(Default)]
pub(crate) struct Reaping {
    /// Who wants to hear which names held inodes lose behind the calls.
    watcher: Mutex<Option<Watcher>>,
    queue: Mutex<Queue>,
    /// A step has ended.
    stepped: Condvar,
    /// There is something to do, or the thread shall stop.
    wake: Condvar,
}

#[derive(Default)]
struct Queue {
    /// The newest last.
    waiting: Vec<(Ino, OrphanSlot)>,
    /// Steps under way.
    busy: usize,
}

/// What a step leaves of what it was about.
enum Step {
    /// More of the same.
    More,
    /// Nothing; or it is somebody else's now.
    Done,
}

impl Inner {
    /// Something has a slot, and nobody holds it. Without locks, after the commit.
    pub(crate) fn reap_later(&self, ino: Ino, slot: OrphanSlot) -> Result<()> {
        self.reaping.queue.lock().waiting.push((ino, slot));
        self.reap_soon()
    }

    /// Something waits to be freed: wakes who does that, or does it. Without memory it waits for
    /// the next who comes here: the call that left it is done, and must not say that it is not.
    pub(crate) fn reap_soon(&self) -> Result<()> {
        if self.options.background {
            self.reaping.wake.notify_all();
            return Ok(());
        }
        loop {
            match self.reap_orphan() {
                Ok(true) => {}
                Ok(false) | Err(Error::Code(Code::NoMemory)) => return Ok(()),
                Err(e) => return Err(e),
            }
        }
    }

    /// Gives numbers back, and lets what has a slot wait, as the newest, until it is freed. Whether
    /// there was such.
    pub(crate) fn let_go(&self, left: impl IntoIterator<Item = Left>) -> Result<bool> {
        let mut waiting = Vec::new();
        for left in left {
            match left {
                Left::Number(inode) => self.table(inode.ino)?.give_back(&inode),
                Left::Slot(ino, slot) => waiting.push((ino, slot)),
            }
        }
        let some = !waiting.is_empty();
        if some {
            self.reaping.queue.lock().waiting.append(&mut waiting);
        }
        Ok(some)
    }

    /// The last reference to something with a slot is gone. What one transaction frees is freed
    /// here.
    pub(crate) fn reap_released(&self, ino: Ino, slot: OrphanSlot) -> Result<()> {
        match self.reading_first(|| self.one_step(ino, slot)) {
            Ok(Step::Done) => Ok(()),
            Ok(Step::More) | Err(Error::Code(Code::NoMemory)) => self.reap_later(ino, slot),
            Err(e) => {
                self.reaping.queue.lock().waiting.push((ino, slot));
                Err(e)
            }
        }
    }

    /// After recovery: everything in the table waits to be looked at. Returns how many.
    pub(crate) fn adopt_orphans(&self) -> Result<u64> {
        let all = self.store.orphans.all();
        for (ino, slot) in &all {
            let cut = self.inode(*ino).is_ok_and(|inode| {
                let core = inode.read().inode.core;
                core.nlink != 0 && core.flags & FLAG_CUT != 0
            });
            if cut {
                self.cuts.lock().insert(*ino, *slot);
            }
        }
        let count = all.len() as u64;
        if planted::is(Defect::OrphansIgnored) {
            return Ok(count);
        }
        self.reaping.queue.lock().waiting.extend(all);
        Ok(count)
    }

    /// Whether anything waits to be freed, deleted roots apart.
    pub fn is_reaping(&self) -> bool {
        let queue = self.reaping.queue.lock();
        !queue.waiting.is_empty() || queue.busy > 0
    }

    /// Frees a piece of what waits: of orphans, else of deleted roots. `false`: there is nothing.
    /// Waits for a piece that somebody else is freeing.
    pub fn reap_some(&self) -> Result<bool> {
        if self.reap_orphan()? {
            return Ok(true);
        }
        let mut queue = self.reaping.queue.lock();
        if queue.busy > 0 {
            self.reaping.stepped.wait(&mut queue);
            return Ok(true);
        }
        drop(queue);
        self.reap_roots_some()
    }

    /// One step of what came last; `false`: nothing waits.
    pub(crate) fn reap_orphan(&self) -> Result<bool> {
        let mut queue = self.reaping.queue.lock();
        let Some((ino, slot)) = queue.waiting.pop() else { return Ok(false) };
        queue.busy += 1;
        drop(queue);
        let step = self.reading_first(|| self.one_step(ino, slot));
        let mut queue = self.reaping.queue.lock();
        queue.busy -= 1;
        match &step {
            Ok(Step::Done) => {}
            // Below what it has brought itself.
            Ok(Step::More) => queue.waiting.push((ino, slot)),
            Err(Error::Corrupt(e)) => {
                let error = Error::Corrupt(e.clone());
                tracing::error!(%ino, %error, "orphan left for fsck");
            }
            Err(_) => queue.waiting.push((ino, slot)),
        }
        drop(queue);
        self.reaping.stepped.notify_all();
        match step {
            Err(Error::Corrupt(_)) | Ok(_) => Ok(true),
            Err(e) => Err(e),
        }
    }

    fn one_step(&self, ino: Ino, slot: OrphanSlot) -> Result<Step> {
        if !self.store.orphans.has(slot, ino) {
            return Ok(Step::Done);
        }
        let core = match self.inode(ino) {
            // Of a deleted root, with which it goes; or nothing at all.
            Err(Error::Code(Code::Stale)) => return self.clear_slot(ino, slot),
            other => other?.read().inode.core,
        };
        let cut = core.flags & FLAG_CUT != 0 && core.nlink != 0;
        match core.in_use() {
            true if cut => Ok(if self.cut_step(ino)? { Step::More } else { Step::Done }),
            true if core.nlink == 0 && core.is_dir() => self.tree_step(ino, slot),
            true if core.nlink == 0 => self.file_step(ino, slot),
            _ => self.clear_slot(ino, slot),
        }
    }

    /// A slot that protects nothing: what it names is free, or has a name, or was never there. Only
    /// damage leaves such, and the end of a deleted root.
    fn clear_slot(&self, ino: Ino, slot: OrphanSlot) -> Result<Step> {
        if self.cuts.lock().get(&ino) == Some(&slot) {
            return Ok(Step::Done);
        }
        let mut txn = self.begin(records::REAP_FILE)?;
        if self.store.orphans.free(slot, ino) {
            if self.root(ino).is_ok() {
                tracing::warn!(%ino, "orphan slot names a free or linked inode: cleared");
            }
            txn.log(Item::OrphanDel { ino });
        }
        txn.commit()?;
        Ok(Step::Done)
    }

    /// Whoever keeps attributes of inodes that it holds (a mount's kernel) is told of those that
    /// have lost a name behind the calls: after the transaction, by the thread that made it,
    /// without locks. The last who asks is told.
    pub fn watch_links(&self, told: impl Fn(&[Ino]) + Send + Sync + 'static) {
        *self.reaping.watcher.lock() = Some(Arc::new(told));
    }

    fn tell_links(&self, changed: impl Iterator<Item = Ino>) {
        let Some(told) = self.reaping.watcher.lock().clone() else { return };
        let held: Vec<Ino> = changed.filter(|ino| self.holds.is_held(*ino)).collect();
        if !held.is_empty() {
            told(&held);
        }
    }

    /// A step is committed.
    pub(crate) fn step_done(&self, lsn: Lsn) -> Result<()> {
        match self.options.attr_intents_flushed {
            true => self.store.journal()?.commit(lsn),
            false => Ok(()),
        }
    }

    fn count_reaped(&self, n: u64) {
        self.store.counters.add(Counter::Reaped, n);
        self.store.counters.add(Counter::ReapSteps, 1);
    }

    /// Wakes the background thread.
    pub(crate) fn wake_reaper(&self) {
        let _queue = self.reaping.queue.lock();
        self.reaping.wake.notify_all();
    }

    /// For the background thread: waits until something has to be freed, at most this long.
    pub(crate) fn wait_for_reaping(&self, at_most: Duration) {
        let mut queue = self.reaping.queue.lock();
        if queue.waiting.is_empty() {
            self.reaping.wake.wait_for(&mut queue, at_most);
        }
    }

    /// For the background thread: rests, unless it shall stop or space is wanted.
    pub(crate) fn rest_from_reaping(&self, long: Duration, stop: &AtomicBool) {
        let mut queue = self.reaping.queue.lock();
        if !stop.load(Ordering::Acquire) {
            self.reaping.wake.wait_for(&mut queue, long);
        }
    }

    /// Less than an eighth of the segments is free: what waits to be freed is wanted.
    pub(crate) fn is_short_of_space(&self) -> bool {
        self.store.space.free_segments() < self.store.geometry.segments / 8
    }
}

/// What stands in the orphan table, for people.
impl Inner {
    /// Every slot in use, and every inode that lives on in memory alone, by number.
    pub fn orphans(&self) -> Vec<OrphanInfo> {
        self.orphans_after(Ino(0), usize::MAX)
    }

    /// The same, those with larger numbers than this and at most so many.
    pub fn orphans_after(&self, after: Ino, at_most: usize) -> Vec<OrphanInfo> {
        let held: HashMap<Ino, Orphan> = self.holds.orphans().into_iter().collect();
        let slots = self.store.orphans.all().into_iter().map(|(ino, _)| (ino, true));
        let detached = held.iter().filter(|(_, how)| matches!(how, Orphan::Detached(_)));
        let mut all: Vec<(Ino, bool)> =
            slots.chain(detached.map(|(ino, _)| (*ino, false))).collect();
        all.sort_unstable();
        let info = |(ino, slot)| self.orphan_info(ino, slot, held.contains_key(&ino));
        all.into_iter().filter(|(ino, _)| *ino > after).take(at_most).map(info).collect()
    }

    fn orphan_info(&self, ino: Ino, slot: bool, held: bool) -> OrphanInfo {
        let mut info = OrphanInfo { ino, slot, held, ..OrphanInfo::default() };
        let Ok(inode) = self.inode(ino) else { return info };
        let (core, parent) = {
            let slot = inode.read();
            (slot.inode.core, self.last_parent(ino, &slot.inode))
        };
        info.state = match core.in_use() {
            false => OrphanState::Broken,
            true if core.nlink != 0 && core.flags & FLAG_CUT != 0 => OrphanState::Cut,
            true if core.nlink != 0 => OrphanState::Broken,
            true if core.is_dir() => OrphanState::Tree,
            true => OrphanState::Unlinked,
        };
        (info.size, info.bytes) = (core.size, if core.is_dir() { 0 } else { core.bytes });
        info.path = parent.and_then(|(link, name)| {
            let dir = self.getattr(link.dir).ok()?;
            if dir.generation.0 != link.generation {
                return None;
            }
            let mut above = self.paths_of(link.dir).ok()?.into_iter().next()?;
            if above != b"/" {
                above.push(b'/');
            }
            above.extend(name);
            Some(above)
        });
        info
    }
}
