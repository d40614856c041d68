//! The open volume: what all calls share.

use crate::background::Background;
use crate::check::scrub::Unread;
use crate::holds::Holds;
use crate::orphan::Detached;
use crate::reap::{Reaping, RootReaper};
use crate::shape::Shape;
use crate::types::{OpenOptions, RecoveryReport};
use shoal_base::cold::{self, Cold};
use shoal_base::sync::Mutex;
use shoal_base::{Code, Error, Ino, Result};
use shoal_format::checkpoint::RootState;
use shoal_format::node::{Key, TreeId};
use shoal_itable::{InodeRef, InodeTable};
use shoal_txn::{Need, OrphanSlot, RecordKind, Root, Store, Txn};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// An open volume. All methods may be called from any thread.
///
/// Dropping it without [`Volume::close`] is like a crash: nothing acknowledged by `fsync` or `sync`
/// is lost, and the next open replays the journal.
pub struct Volume {
    pub(crate) inner: Arc<Inner>,
    pub(crate) background: Mutex<Option<Background>>,
}

/// The calls of a volume, which [`Volume`] dereferences to: what front ends and background threads
/// share.
pub struct Inner {
    pub(crate) store: Store,
    pub(crate) holds: Holds,
    /// How many inodes live on in memory alone.
    pub(crate) detached: Detached,
    /// Files whose tail is being removed, and their slots in the orphan table.
    pub(crate) cuts: Mutex<HashMap<Ino, OrphanSlot>>,
    /// The list of `TruncateTracking::List`, a measuring aid.
    pub(crate) tracked: Mutex<VecDeque<Ino>>,
    /// What is to be freed behind the calls.
    pub(crate) reaping: Reaping,
    /// Roots are made and deleted one at a time.
    pub(crate) rooting: Mutex<()>,
    pub(crate) root_reaper: Mutex<RootReaper>,
    /// One cleaning at a time.
    pub(crate) cleaning: Mutex<()>,
    /// The last time that cleaning made no room.
    pub(crate) refusal: Mutex<Option<crate::clean::Refusal>>,
    /// Files to which objects are being written.
    pub(crate) writers: crate::data::Writers,
    /// Objects that may grow.
    pub(crate) tails: crate::data::Tails,
    pub(crate) decoded: crate::data::Decoded,
    pub(crate) options: OpenOptions,
    pub(crate) recovery: Mutex<RecoveryReport>,
    /// What the last scrub could not read.
    pub(crate) unread: Mutex<Unread>,
    /// Whether directories stand still.
    pub(crate) shape: Shape,
    /// Every name has a parent pointer: the volume's feature.
    pub(crate) parents: bool,
}

impl std::ops::Deref for Volume {
    type Target = Inner;
    fn deref(&self) -> &Inner {
        &self.inner
    }
}

impl Inner {
    /// The live root that an inode lives in; `ESTALE` when the root has been deleted.
    #[inline]
    pub(crate) fn root(&self, ino: Ino) -> Result<&Root> {
        let root = self.store.root(ino)?;
        match root.state() {
            RootState::Live => Ok(root),
            RootState::Deleted | RootState::Vacant => Err(Error::Code(Code::Stale)),
        }
    }
    /// The table of an inode that has been found, whatever has become of its root since.
    #[inline]
    pub(crate) fn table(&self, ino: Ino) -> Result<&InodeTable> {
        Ok(&self.store.root(ino)?.table)
    }
    /// The inode's place; it may be free: look at its core under its lock.
    #[inline]
    pub(crate) fn inode(&self, ino: Ino) -> Result<InodeRef> {
        self.root(ino)?.table.get(ino)
    }

    /// The same, also in a root that has been deleted: for what looks after the whole volume.
    pub(crate) fn place_of(&self, ino: Ino) -> Result<InodeRef> {
        self.table(ino)?.get(ino)
    }

    /// Runs a call of one transaction, or several that are each complete, so that it reads nothing
    /// inside the checkpoint's gate: what is not in memory is read before, and the call begins
    /// again ([`shoal_base::cold`]). Until its first change the call must leave nothing behind.
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
        }
    }

    /// Begins a transaction that wants `bytes` of new space; when there is none, first makes what
    /// can be made by checkpointing and cleaning.
    #[inline]
    pub(crate) fn begin_space(&self, bytes: u64, kind: RecordKind) -> Result<Txn<'_>> {
        match self.store.begin(Need::Space(bytes), kind) {
            Err(e) if e.is(Code::NoSpace) => self.begin_after_relief(bytes, kind),
            other => other,
        }
    }

    /// What waits to be freed comes first, all of it if need be; then what is dead but scattered.
    /// When somebody has tried that, and nothing has been freed since, the answer is known.
    #[cold]
    fn begin_after_relief(&self, bytes: u64, kind: RecordKind) -> Result<Txn<'_>> {
        let mut round = 0;
        loop {
            let apart = cold::apart();
            if self.is_hopeless(bytes) {
                return Err(Error::Code(Code::NoSpace));
            }
            let reaped = self.reap_for(bytes)?;
            let gained = self.relieve(bytes)? || reaped;
            let room = self.store.has_room(bytes);
            if room || !gained || round >= 8 {
                drop(apart);
                match self.store.begin(Need::Space(bytes), kind) {
                    // Others have taken the room in between: the last of it, or of what is so far.
                    Err(e) if e.is(Code::NoSpace) && room && round < 8 => {}
                    begun => return begun,
                }
            }
            // While there is something to free, there may be space.
            round += u32::from(room || !reaped);
        }
    }

    /// Frees what waits to be freed until `bytes` and some more are no longer live: of use after a
    /// checkpoint. `false`: nothing was waiting.
    pub(crate) fn reap_for(&self, bytes: u64) -> Result<bool> {
        let space = &self.store.space;
        let wanted = bytes.saturating_add(self.store.geometry.segment_size);
        let (before, mut reaped) = (space.live_bytes(), false);
        while space.live_bytes().saturating_add(wanted) > before && self.reap_some()? {
            reaped = true;
        }
        Ok(reaped)
    }

    /// Begins a transaction that gives space back or only changes what exists.
    #[inline]
    pub(crate) fn begin(&self, kind: RecordKind) -> Result<Txn<'_>> {
        if self.store.is_tight() && !cold::is_again() {
            let _apart = cold::apart();
            self.refill_reserve()?;
        }
        self.store.begin(Need::Release, kind)
    }
}
