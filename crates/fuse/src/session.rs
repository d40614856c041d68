//! What all requests of one mount share: the volume, and who checks what.

use crate::listings::Listings;
use crate::notices::{Notice, Notices};
use crate::pages::Pages;
use crate::protocol::reply::TTL_FOREVER;
use crate::sweep::Sweeper;
use crate::unread::Unread;
use shoal::{Ino, Volume};
use std::sync::Arc;
use std::time::Duration;

/// One mount's worth of state. There is no table of nodes or handles: a node id is an inode
/// number (but for the top), and open files need nothing of us.
pub struct Session {
    /// The volume served.
    pub volume: Arc<Volume>,
    /// Who checks what.
    pub rules: Rules,
    /// The directory that the mount shows as its top: the volume's, or that of one of its roots.
    pub top: Ino,
    /// What the kernel has to be told.
    pub notices: Arc<Notices>,
    /// Attributes that it may not have taken yet.
    pub unread: Unread,
    /// What the page cache may hold.
    pub pages: Pages,
    /// Listings that the kernel keeps.
    pub listings: Listings,
    /// Drops the names of removed trees.
    pub sweeper: Sweeper,
}

impl Session {
    /// A mount that nobody has asked anything of.
    pub fn new(volume: Arc<Volume>, rules: Rules, top: Ino, notices: Arc<Notices>) -> Session {
        let (unread, pages) = (Unread::default(), Pages::default());
        let (listings, sweeper) = (Listings::default(), Sweeper::default());
        Session { volume, rules, top, notices, unread, pages, listings, sweeper }
    }

    /// The inode behind a node id. The kernel calls the top 1, whatever it is.
    #[inline]
    pub fn node(&self, id: u64) -> Ino {
        if id == TOP { self.top } else { Ino(id) }
    }

    /// The node id by which the kernel knows an inode.
    #[inline]
    pub fn id(&self, ino: Ino) -> u64 {
        if ino == self.top { TOP } else { ino.0 }
    }
}

/// How long attributes wait until the kernel knows that it must not keep them.
const PATIENCE: Duration = Duration::from_millis(20);
/// How long a direct write waits until the kernel has dropped older pages, which it locks while it
/// reads them.
const PAGES_PATIENCE: Duration = Duration::from_secs(1);

impl Session {
    /// Thread `tid` has changed attributes of `ino`, and its reply does not tell the new ones.
    #[inline]
    pub fn changed(&self, ino: Ino, tid: u32) {
        if self.unread.changed(ino, tid) {
            self.notices.tell(&Notice::Attributes { node: self.id(ino) });
        }
    }

    /// Attributes that were read of `inodes` are about to be shown to thread `tid`, and must not be
    /// kept.
    #[cold]
    pub fn show_only(&self, inodes: &[Ino], tid: u32) {
        let forget = |ino: &Ino| Notice::Attributes { node: self.id(*ino) };
        let given = self.notices.give(inodes.iter().map(forget));
        if !self.notices.wait(given, PATIENCE) {
            tracing::debug!(?inodes, tid, "the kernel takes long to forget attributes");
        }
    }

    /// Whether the kernel keeps listings: only where nothing is checked when a directory is opened,
    /// and a file knows the directory whose listing has to go with it.
    #[inline]
    pub fn keeps_listings(&self) -> bool {
        self.rules.no_open && self.volume.has_parent_pointers()
    }

    /// The kernel has dropped `n` references to an inode.
    pub fn forgotten(&self, ino: Ino, n: u64) {
        let dir = self.keeps_listings().then(|| self.volume.home_of(ino)).flatten();
        self.volume.release(ino, n);
        if let Some(dir) = dir
            && self.listings.has_lost(dir)
            && !self.notices.suggest(Notice::Listing { node: self.id(dir) })
        {
            // The next one that is dropped says it again.
            self.listings.is_listed(dir);
        }
    }

    /// A direct write has changed `len` bytes of `ino` at `at`. Has the kernel drop what it may
    /// have read of them before; returns when it has, or late. For a thread that may block.
    #[inline]
    pub fn written_past_pages(&self, ino: Ino, at: u64, len: u64) {
        if len > 0 && self.pages.may_be_old(ino) {
            self.drop_pages(ino, at, len);
        }
    }

    #[cold]
    fn drop_pages(&self, ino: Ino, at: u64, len: u64) {
        let given = self.notices.give([Notice::Data { node: self.id(ino), at, len }]);
        let waited = self.pages.wait().map(|_waiting| self.notices.wait(given, PAGES_PATIENCE));
        if waited != Some(true) {
            tracing::debug!(?ino, at, len, "the kernel takes long to drop pages");
        }
    }
}

/// The kernel's node id for the top of a mount.
const TOP: u64 = 1;

/// Division of labour between the kernel and us.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Rules {
    /// The kernel checks permissions (`default_permissions`): the volume must not check again.
    pub kernel_checks: bool,
    /// OPEN is answered ENOSYS, once: from then on neither OPEN nor RELEASE is sent; the same with
    /// directories ([`Session::keeps_listings`]). Only where nothing would be checked at open
    /// anyway.
    pub no_open: bool,
    /// Extended attributes are answered ENOSYS: none are asked for any more.
    pub no_xattr: bool,
    /// Names are looked up anew each time: several users may come in, we check permissions, and
    /// the right to search a directory is asked for with its names only.
    pub ask_names: bool,
}

impl Rules {
    /// For how many seconds the kernel may keep names.
    #[inline]
    pub fn names_valid(self) -> u64 {
        if self.ask_names { 0 } else { TTL_FOREVER }
    }
}
