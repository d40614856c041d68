//! The state that all calls on an open volume share, and what every room stands on: places of
//! inodes, transactions, reads outside of them.
//!
//! Each part of the state has a narrow face and is in a file of its own. The calls are in *rooms*,
//! one for each subject: [`room!`] declares a handle on the state. A room calls the rooms below it
//! through the accessors that its declaration lists; the list in `lib.rs` is their order. What must
//! call upwards, because any call may have to free space, does so through [`Upkeep`].

mod changing;
mod decoded;
mod detached;
mod holds;
mod measured;
mod quota_table;
mod reaping;
mod refusal;
mod shape;
mod tails;
mod token_key;
mod unread;
mod writers;

pub(crate) use changing::Changing;
pub(crate) use decoded::Decoded;
pub(crate) use detached::Detached;
pub use holds::Outside;
pub(crate) use holds::{Holds, Inodes, Orphan};
pub(crate) use quota_table::{QuotaPart, QuotaTable};
pub use reaping::Teller;
pub(crate) use reaping::{Reaping, RootReaper};
pub(crate) use refusal::Refusal;
pub(crate) use shape::Shape;
pub(crate) use tails::{Growth, Tail, Tails, WINDOW};
pub(crate) use token_key::{TokenKey, TokenKeyCache};
pub(crate) use unread::Unread;
pub(crate) use writers::{Writers, Writing};

use crate::stat::attr_of;
use crate::types::{Attr, HoldLife, OpenOptions, RecoveryReport};
use shoal_base::cold::{self, Cold};
use shoal_base::planted::{self, Defect};
use shoal_base::sync::Mutex;
use shoal_base::{Code, Error, Ino, Lsn, Result, RootId};
use shoal_format::checkpoint::RootState;
use shoal_format::features::RO_COMPAT_PARENTS;
use shoal_format::inode::Core;
use shoal_format::item::Item;
use shoal_format::node::{Key, TreeId};
use shoal_itable::{InodeRef, InodeTable, Locked, TOGETHER};
use shoal_txn::{Need, OrphanSlot, RecordKind, Root, Store, Txn};
use std::collections::HashMap;
// Orders nothing, so it is no step of a model.
use std::sync::atomic::AtomicBool;

/// Declares a room: a handle on the state of a volume with the calls of one subject. The accessors
/// in braces are the rooms that it may call, all of them below it.
macro_rules! room {
    (
        $(#[$meta:meta])*
        $vis:vis struct $Room:ident { $($name:ident: $Lower:ident),* $(,)? }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy)]
        $vis struct $Room<'v>(pub(crate) &'v $crate::state::State);

        impl<'v> $Room<'v> {
            $(
                #[inline(always)]
                fn $name(self) -> $Lower<'v> {
                    $Lower(self.0)
                }
            )*
        }
    };
}
pub(crate) use room;

/// The calls from below to the rooms that free space, which themselves use almost everything else.
pub(crate) trait Upkeep: Send + Sync {
    /// Begins a transaction that needs `bytes` of new space, after a first attempt has found too
    /// little: reaps, checkpoints and cleans as much as necessary.
    ///
    /// # Errors
    /// `ENOSPC` if there is nothing more to free.
    fn begin_after_relief<'v>(
        &self,
        state: &'v State,
        bytes: u64,
        kind: RecordKind,
    ) -> Result<Txn<'v>>;

    /// Frees space for a call that was admitted, but then found its space used by others. Returns
    /// `false` if nothing could be freed.
    fn make_room(&self, state: &State, bytes: u64) -> Result<bool>;

    /// Refills the reserve by checkpoints and cleaning, before a call that may use it.
    fn refill_reserve(&self, state: &State) -> Result<()>;

    /// Performs a step for the newest inode in the reap queue. Returns `false` if it is empty.
    fn reap_orphan(&self, state: &State) -> Result<bool>;
}

/// The shared state of an open volume.
pub(crate) struct State {
    pub(crate) store: Store,
    pub(crate) holds: Holds,
    /// Number of unlinked but open inodes that exist only in memory.
    pub(crate) detached: Detached,
    /// Files with a truncate in progress, and their orphan slots.
    pub(crate) truncates: Mutex<HashMap<Ino, OrphanSlot>>,
    /// The list of `TruncateTracking::List`.
    #[cfg(feature = "lab")]
    pub(crate) tracked: Mutex<std::collections::VecDeque<Ino>>,
    /// Inodes to be freed in the background.
    pub(crate) reaping: Reaping,
    /// Changes of trees that no call is making.
    pub(crate) changing: Changing,
    /// Held while a subvolume is created or deleted: one at a time.
    pub(crate) rooting: Mutex<()>,
    pub(crate) root_reaper: Mutex<RootReaper>,
    /// Held while the cleaner runs: one at a time.
    pub(crate) cleaning: Mutex<()>,
    /// The last time that cleaning freed no space.
    pub(crate) refusal: Mutex<Option<Refusal>>,
    /// Files to which objects are being written.
    pub(crate) writers: Writers,
    /// Objects that can still be extended.
    pub(crate) tails: Tails,
    pub(crate) decoded: Decoded,
    pub(crate) token_key: TokenKeyCache,
    pub(crate) quotas: QuotaTable,
    pub(crate) options: OpenOptions,
    pub(crate) recovery: Mutex<RecoveryReport>,
    /// Areas that the last scrub could not read.
    pub(crate) unread: Mutex<Unread>,
    /// Sequence counter of directory renames.
    pub(crate) shape: Shape,
    /// Every name has a parent pointer: a feature of the volume.
    pub(crate) parents: bool,
    /// Reads do not change access times; a mount can switch it.
    pub(crate) noatime: AtomicBool,
    upkeep: &'static dyn Upkeep,
}

/// Attributes of those of several inodes that were in memory.
pub(crate) struct Together {
    pub attrs: Vec<Attr>,
    /// The position in `attrs` of each inode.
    places: Vec<u32>,
}

impl Together {
    /// Returns the attributes of the `at`-th inode.
    #[inline]
    pub(crate) fn get(&self, at: usize) -> Option<&Attr> {
        self.attrs.get(self.places[at] as usize)
    }
}

impl State {
    /// Returns the state for an opened store.
    pub(crate) fn new(store: Store, options: &OpenOptions, upkeep: &'static dyn Upkeep) -> State {
        let features = store.checkpoints().superblock().ro_compat;
        let cache_bytes = store.options().cache_bytes;
        State {
            store,
            holds: Holds::new(options.holds),
            detached: Detached::new(cache_bytes, options.holds != HoldLife::Process),
            truncates: Mutex::default(),
            #[cfg(feature = "lab")]
            tracked: Mutex::default(),
            reaping: Reaping::default(),
            changing: Changing::default(),
            rooting: Mutex::default(),
            root_reaper: Mutex::default(),
            cleaning: Mutex::new(()),
            refusal: Mutex::default(),
            writers: Writers::default(),
            tails: Tails::default(),
            decoded: Decoded::default(),
            token_key: TokenKeyCache::default(),
            quotas: QuotaTable::default(),
            options: options.clone(),
            recovery: Mutex::default(),
            unread: Mutex::default(),
            shape: Shape::default(),
            parents: features & RO_COMPAT_PARENTS != 0,
            noatime: AtomicBool::new(options.noatime),
            upkeep,
        }
    }

    /// Returns the live subvolume of an inode; `ESTALE` if the subvolume has been deleted. Fails in
    /// a child of `fork`, also for calls that are not measured.
    #[inline]
    pub(crate) fn root(&self, ino: Ino) -> Result<&Root> {
        self.store.origin.check()?;
        let root = self.store.root(ino)?;
        match root.state() {
            RootState::Live => Ok(root),
            RootState::Deleted | RootState::Vacant => Err(Error::Code(Code::Stale)),
        }
    }

    /// Returns the inode table of an inode that was found before, even if its subvolume has since
    /// been deleted.
    #[inline]
    pub(crate) fn table(&self, ino: Ino) -> Result<&InodeTable> {
        Ok(&self.store.root(ino)?.table)
    }

    /// Returns the inode's place. It may be free: check its core under its lock.
    #[inline]
    pub(crate) fn inode(&self, ino: Ino) -> Result<InodeRef> {
        self.root(ino)?.table.get(ino)
    }

    /// As [`State::inode`], also in a deleted subvolume: for work on the whole volume.
    pub(crate) fn place_of(&self, ino: Ino) -> Result<InodeRef> {
        self.table(ino)?.get(ino)
    }

    /// Returns the attributes of an inode.
    pub(crate) fn attr(&self, ino: Ino) -> Result<Attr> {
        self.root(ino)?.table.look(ino, |inode| attr_of(ino, inode))?
    }

    /// As [`State::attr`] for several inodes of a subvolume, 65,536 at most, and only in memory.
    /// The others must be read, or are not in use, or damaged.
    ///
    /// They are looked up in the order of their numbers: inodes beside each other are in the same
    /// block, and in cache lines that the processor fetches ahead by itself.
    pub(crate) fn attrs_in_memory(
        &self,
        root: RootId,
        inodes: impl Iterator<Item = Ino>,
    ) -> Result<Together> {
        let inodes: Vec<Ino> = inodes.collect();
        debug_assert!(inodes.len() <= 1 << 16);
        let numbered = (0..).zip(&inodes).map(|(at, ino)| ino.index() << 16 | at);
        let mut order: Vec<u64> = numbered.collect();
        order.sort_unstable();
        let table = &self.root(Ino::new(root, 0))?.table;
        let mut found = Together {
            attrs: Vec::with_capacity(inodes.len()),
            places: vec![u32::MAX; inodes.len()],
        };
        let mut some = [Ino(0); TOGETHER];
        for group in order.chunks(TOGETHER) {
            let position = |of: u64| (of & 0xffff) as usize;
            some.iter_mut().zip(group).for_each(|(ino, of)| *ino = inodes[position(*of)]);
            table.look_at_each(&some[..group.len()], |at, inode| {
                if let Ok(attr) = attr_of(some[at], inode) {
                    found.places[position(group[at])] = found.attrs.len() as u32;
                    found.attrs.push(attr);
                }
            });
        }
        Ok(found)
    }

    /// Replaces the core of a locked inode, in memory and in the record.
    pub(crate) fn put_core(
        &self,
        txn: &mut Txn<'_>,
        locked: &mut Locked<'_>,
        core: Core,
    ) -> Result<()> {
        let ino = locked.ino();
        locked.edit(self.table(ino)?, txn.epoch()).core = core;
        txn.log_core(locked, Item::Core { ino, core });
        Ok(())
    }

    /// Runs a call of one transaction, or of several that are each complete, without device reads
    /// inside a transaction. If a block or node is not in memory, it is read outside of the
    /// transaction, and the call is started again ([`shoal_base::cold`]). Before its first change
    /// the call must not leave anything behind.
    #[inline]
    pub(crate) fn reading_first<R>(&self, call: impl FnMut() -> Result<R>) -> Result<R> {
        cold::retried(|cold| self.read_cold(cold), call)
    }

    #[cold]
    fn read_cold(&self, cold: &Cold) -> Result<()> {
        match *cold {
            Cold::Block(ino) => self.place_of(ino).map(|_| ()),
            Cold::Node { root, tree, hi, lo } => {
                let id = TreeId::from_number(tree).ok_or(Error::Code(Code::Stale))?;
                let root = self.store.root(Ino::new(root, 0))?;
                root.tree(id).get(Key::new(hi, lo), |_| ()).map(|_| ())
            }
            // It ends the call of a thread that must not wait.
            Cold::Device => Ok(()),
        }
    }

    /// Begins a transaction that needs `bytes` of new space. If there is not enough, first frees
    /// space by reaping, checkpoints and cleaning.
    #[inline]
    pub(crate) fn begin_space(&self, bytes: u64, kind: RecordKind) -> Result<Txn<'_>> {
        // Nothing that could be freed here would help.
        if self.store.device().is_full() {
            return Err(Error::Code(Code::NoSpace));
        }
        match self.store.begin(Need::Space(bytes), kind) {
            Err(e) if e.is(Code::NoSpace) => {
                self.may_free()?;
                self.upkeep.begin_after_relief(self, bytes, kind)
            }
            other => other,
        }
    }

    /// Begins a transaction that frees space or only changes existing data.
    #[inline]
    pub(crate) fn begin(&self, kind: RecordKind) -> Result<Txn<'_>> {
        if self.store.room().is_tight() && !cold::is_again() {
            self.may_free()?;
            let _apart = cold::apart();
            self.upkeep.refill_reserve(self)?;
        }
        self.store.begin(Need::Release, kind)
    }

    /// Begins a transaction that changes names without making them longer, after there was no space
    /// for it. It may use the reserve as long as that is not tight: the rest is for removals.
    ///
    /// # Errors
    /// `ENOSPC` if the reserve is tight, and cannot be refilled.
    #[cold]
    pub(crate) fn begin_from_reserve(&self, kind: RecordKind) -> Result<Txn<'_>> {
        let begun = self.begin(kind)?;
        match self.store.room().is_tight() {
            true => Err(Error::Code(Code::NoSpace)),
            false => Ok(begun),
        }
    }

    /// Frees space for a call that was admitted, but then found its space used by others. Returns
    /// `false` if nothing could be freed.
    #[cold]
    pub(crate) fn make_room(&self, bytes: u64) -> Result<bool> {
        self.may_free()?;
        self.upkeep.make_room(self, bytes)
    }

    /// Fails on a thread that must not wait: checkpoints and cleaning write to the device.
    #[cold]
    fn may_free(&self) -> Result<()> {
        if cold::must_not_wait() { Err(cold::refuse()) } else { Ok(()) }
    }

    /// Queues an inode with a slot that is not in use. Must be called without locks, after the
    /// commit.
    pub(crate) fn reap_later(&self, ino: Ino, slot: OrphanSlot) -> Result<()> {
        self.reaping.push(ino, slot);
        self.reap_soon()
    }

    /// Wakes the background thread or, without one, does the work. If memory is short the rest
    /// stays queued: the call that queued it has succeeded, and must not return an error.
    pub(crate) fn reap_soon(&self) -> Result<()> {
        if self.options.background {
            self.reaping.notify();
            return Ok(());
        }
        loop {
            match self.upkeep.reap_orphan(self) {
                Ok(true) => {}
                Ok(false) | Err(Error::Code(Code::NoMemory)) => return Ok(()),
                Err(e) => return Err(e),
            }
        }
    }

    /// Must be called after the commit of a step.
    pub(crate) fn step_done(&self, lsn: Lsn) -> Result<()> {
        match self.options.lab().attr_intents_flushed {
            true => self.store.journal()?.commit(lsn),
            false => Ok(()),
        }
    }

    /// Makes everything acknowledged so far durable.
    pub(crate) fn sync(&self) -> Result<()> {
        self.store.writable()?;
        let journal = self.store.journal()?;
        if planted::is(Defect::SyncReturns) {
            return Ok(());
        }
        journal.commit(journal.staged_lsn())
    }
}
