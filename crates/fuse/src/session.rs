//! State shared by all requests of one mount: the volume, and the division of permission checks.

use crate::about::About;
use crate::calls::Calls;
use crate::crossing::Crossing;
use crate::documents::{Documents, is_document};
use crate::inherited::Inherited;
use crate::known::Known;
use crate::listings::Listings;
use crate::look::Looking;
use crate::notices::{Notice, Notices};
use crate::observe::Observer;
use crate::observe::damage::Met;
use crate::observe::trace::Noted;
use crate::pages::Pages;
use crate::protocol::reply::{TTL_FOREVER, take_damage};
use crate::protocol::{Opcode, Reply, Request};
use crate::stripped::Stripped;
use crate::sweep::Sweeper;
use crate::tokens::{Tokens, is_virtual};
use crate::unread::Unread;
use crate::views::Views;
use shoal::raw::{FileKind, Ino, Volume};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// State of a mount. There is no table of nodes or handles: a node id is an inode number (but for
/// the top, files opened by tokens, and documents), and open files have no state.
pub(crate) struct Session {
    /// The volume served.
    pub views: Views,
    /// Division of permission checks.
    pub rules: Rules,
    /// The directory that the mount shows as its top: the volume's, or that of a subvolume.
    pub top: Ino,
    /// Notices to the kernel.
    pub notices: Arc<Notices>,
    /// Attributes that the kernel may not have taken yet.
    pub unread: Unread,
    /// Files that may have cached pages.
    pub pages: Pages,
    /// Files that have lost their capabilities.
    pub stripped: Stripped,
    /// Listings cached by the kernel.
    pub listings: Listings,
    /// Inodes that it may know.
    pub known: Known,
    /// Names that sessions change.
    pub crossing: Crossing,
    /// Drops the names of removed trees.
    pub sweeper: Sweeper,
    /// Files that were opened by tokens.
    pub tokens: Tokens,
    /// Requests of dead servers, where a server can be replaced.
    pub calls: Option<Calls>,
    /// Inodes that the kernel may have kept from a server before.
    pub inherited: Inherited,
    /// Process that clients take for the server ([`Session::server`]); 0: this one.
    pub keeper: u32,
    /// The threads that look for requests before they sleep; set by the transport.
    pub looking: OnceLock<Arc<Looking>>,
    /// Times and counts the requests.
    pub observer: Observer,
    /// Documents about it.
    pub documents: Documents,
    /// Facts about the mount, and whether it has become read-only.
    pub about: About,
}

impl Session {
    /// Creates the state of a new mount.
    pub(crate) fn new(
        volume: Arc<Volume>,
        rules: Rules,
        top: Ino,
        notices: Arc<Notices>,
    ) -> Session {
        let session = Session::without_kernel(volume, rules, top, notices);
        session.known.give(top);
        session
    }

    /// Creates the state of a volume that is served by sessions alone: no kernel knows its inodes.
    pub(crate) fn without_kernel(
        volume: Arc<Volume>,
        rules: Rules,
        top: Ino,
        notices: Arc<Notices>,
    ) -> Session {
        let (unread, pages) = (Unread::default(), Pages::default());
        let (listings, sweeper) = (Listings::default(), Sweeper::default());
        let (tokens, observer) = (Tokens::default(), Observer::default());
        let about = About::default();
        Session {
            calls: None,
            inherited: Inherited::default(),
            keeper: 0,
            looking: OnceLock::new(),
            views: Views::new(volume),
            rules,
            top,
            notices,
            unread,
            pages,
            stripped: Stripped::default(),
            listings,
            known: Known::default(),
            crossing: Crossing::default(),
            sweeper,
            tokens,
            observer,
            documents: Documents::default(),
            about,
        }
    }

    /// Expects requests of a connection that outlives its server. `inherited`: a server before this
    /// one has answered some.
    pub(crate) fn keep(&mut self, calls: Calls, keeper: u32, inherited: bool) {
        (self.calls, self.keeper) = (Some(calls), keeper);
        if inherited {
            self.unread.inherit();
            self.pages.inherit();
            self.known.inherit();
            self.tokens.inherit();
            self.documents.inherit();
        }
    }

    /// Returns the process that lives as long as the mount: the keeper, as long as it is there.
    pub(crate) fn server(&self) -> u32 {
        self.keeper().unwrap_or_else(std::process::id)
    }

    /// Returns the process that will replace this server if it dies; `None`: it has none, or has
    /// outlived it.
    pub(crate) fn keeper(&self) -> Option<u32> {
        let parent = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get() as u32);
        parent.filter(|parent| self.keeper == *parent && self.keeper != 0)
    }

    /// Returns the inode of a node id. The kernel calls the top 1, whatever it is.
    #[inline]
    pub(crate) fn node(&self, id: u64) -> Ino {
        if id == TOP { self.top } else { Ino(id) }
    }

    /// Records an answered request. Control files may take long: they are never slow.
    #[inline]
    pub(crate) fn answered(
        &self,
        op: Opcode,
        begun: Instant,
        request: &Request<'_>,
        reply: &Reply,
    ) {
        if let Some(slow) = self.observer.end(op, begun, request, reply)
            && !is_virtual(request.node())
        {
            let (ino, header) = (request.node(), &request.header);
            self.observer.slow.note(&self.views.get(), self.top, ino, header, &slow);
        }
    }

    /// Counts a request that has failed with EIO, if it has met damage, and logs the path.
    #[cold]
    pub(crate) fn failed(&self, op: Opcode, request: &Request<'_>) {
        let Some(met) = take_damage().and_then(|error| Met::of(&error)) else { return };
        let Observer { damage, slow, .. } = &self.observer;
        let ino = met.ino.unwrap_or(request.node());
        let path = || slow.path_of(&self.views.get(), self.top, ino);
        if let Some(file) = damage.note(met.kind, ino, path) {
            let path = file.path.as_deref().map(String::from_utf8_lossy).unwrap_or_default();
            let (kind, op, pid, uid) =
                (met.kind.name(), op.name(), request.header.pid, request.header.uid);
            // With quotes: whoever makes names must not make lines.
            tracing::error!(kind, ino = ino.0, ?path, op, pid, uid, "a damaged file was read");
        }
    }

    /// Keeps an answered request for a trace.
    #[cold]
    pub(crate) fn traced(
        &self,
        noted: &mut Noted,
        op: Opcode,
        begun: Instant,
        request: &mut Request<'_>,
        reply: &Reply,
    ) {
        let answer = (reply, &*request.body());
        self.observer.trace.keep(noted, op, begun, answer, |id| self.node(id).0);
    }

    /// Returns the node id by which the kernel knows an inode.
    #[inline]
    pub(crate) fn id(&self, ino: Ino) -> u64 {
        if ino == self.top { TOP } else { ino.0 }
    }
}

/// Longest wait of a reply with attributes until the kernel knows that it must not keep them.
const PATIENCE: Duration = Duration::from_millis(20);
/// A name that no directory has: a notice about it waits for the directory's lock, and changes
/// nothing.
const NO_NAME: &[u8] = b"\xff\xfeno name";
/// Longest wait of a direct write until the kernel has dropped older pages, which it locks while it
/// reads them.
const PAGES_PATIENCE: Duration = Duration::from_secs(1);
/// Longest wait until the kernel has written dirty pages.
const WRITE_PATIENCE: Duration = Duration::from_secs(3);

impl Session {
    /// Records that thread `tid` has changed attributes of `ino`, and that its reply has not the
    /// new ones.
    #[inline]
    pub(crate) fn changed(&self, ino: Ino, tid: u32) {
        if self.unread.changed(ino, tid) {
            self.notices.tell(&Notice::Attributes { node: self.id(ino) });
        }
    }

    /// Announces that thread `tid` is about to be shown attributes of `inodes`, which were read
    /// before and must not be cached.
    #[cold]
    pub(crate) fn show_only(&self, inodes: &[Ino], tid: u32) {
        let forget = |ino: &Ino| Notice::Attributes { node: self.id(*ino) };
        let given = self.notices.give(inodes.iter().map(forget));
        if !self.notices.wait(given, PATIENCE) {
            tracing::debug!(?inodes, tid, "the kernel takes long to forget attributes");
        }
    }

    /// A notice that waits until nobody has a directory locked, and changes nothing.
    pub(crate) fn wait_for(&self, dir: Ino) -> Notice {
        // If there is such a name after all, it is looked up once more.
        Notice::Name { dir: self.id(dir), name: NO_NAME.into(), expire: true }
    }

    /// Waits until the threads that have taken names from `ino` are done, so that the kernel can
    /// keep its attributes. For a request of thread `tid` that may wait, and whose caller has no
    /// directory locked.
    #[cold]
    pub(crate) fn await_losses(&self, ino: Ino, tid: u32) {
        for loss in self.unread.losses(ino, tid) {
            let given = self.notices.give([self.wait_for(loss.dir)]);
            if self.notices.wait(given, PAGES_PATIENCE) {
                self.unread.has_lost(&loss);
            } else {
                tracing::debug!(?ino, tid, "the kernel takes long to take a name");
            }
        }
    }

    /// Returns whether the kernel keeps listings: only where nothing is checked when a directory is
    /// opened, and a file knows the directory whose listing has to go with it.
    #[inline]
    pub(crate) fn keeps_listings(&self) -> bool {
        self.rules.no_open && self.views.get().paths().has_parent_pointers()
    }

    /// Takes a reference back that the kernel was to be given and will not get.
    pub(crate) fn not_given(&self, ino: Ino) {
        self.views.get().references().release(ino, 1);
        self.known.take_back(ino, 1);
    }

    /// Records that the kernel has dropped `n` references to an inode.
    pub(crate) fn forgotten(&self, ino: Ino, n: u64) {
        if is_document(ino) {
            return self.documents.forget(ino, n);
        }
        if is_virtual(ino) {
            if let Some(shared) = self.tokens.forget(ino, n) {
                self.views.get().references().release(shared, 1);
            }
            return;
        }
        let dir = self.keeps_listings().then(|| self.views.get().paths().home_of(ino)).flatten();
        self.views.get().references().release(ino, n);
        self.known.take_back(ino, n);
        if let Some(dir) = dir
            && self.listings.has_lost(dir)
            && !self.notices.suggest(Notice::Listing { node: self.id(dir) })
        {
            // The next inode that is dropped repeats it.
            self.listings.is_listed(dir);
        }
    }

    /// Has the kernel drop cached pages of `ino` after a direct write of `len` bytes at `at`.
    /// Returns when it has, or late. For a thread that may block.
    #[inline]
    pub(crate) fn written_past_pages(&self, ino: Ino, at: u64, len: u64) {
        if len > 0 && self.pages.may_be_old(ino) {
            self.drop_pages(ino, at, len);
        }
    }

    /// Has the kernel drop what it keeps of `ino` after a change of `len` bytes at `at` that came
    /// through a node of [`Tokens`], of which it knows no relation to the inode's.
    pub(crate) fn written_by_token(&self, ino: Ino, at: u64, len: u64) {
        // The attributes change in any case, and go with the data.
        self.drop_pages(ino, at, len.max(1));
    }

    /// Has the kernel drop its pages of `ino` from a place on, and its attributes, after the reply:
    /// it holds pages of the request until then.
    #[cold]
    pub(crate) fn appended_elsewhere(&self, ino: Ino, from: u64) {
        let _ = self.notices.drop_pages(self.id(ino), from, 0);
    }

    #[cold]
    fn drop_pages(&self, ino: Ino, at: u64, len: u64) {
        if !self.forget_pages(self.id(ino), at, len, PAGES_PATIENCE) {
            tracing::debug!(?ino, at, len, "the kernel takes long to drop pages");
        }
    }

    fn forget_pages(&self, node: u64, at: u64, len: u64, at_most: Duration) -> bool {
        let given = self.notices.drop_pages(node, at, len);
        self.pages.wait().is_some_and(|_waiting| self.notices.wait_for_pages(given, at_most))
    }
}

/// Data that the kernel has and the server has not.
impl Session {
    /// Returns whether the kernel may have pages of `ino` that a program can store to without a
    /// request: pages of a mapping were read before, or are full pages that a program has written.
    /// The latter cannot be where the volume has a hole.
    #[inline]
    pub(crate) fn may_have_pages(&self, ino: Ino) -> bool {
        self.rules.writeback || self.views.get().references().may_be_cached(ino)
    }

    /// Has the kernel write and drop its pages of a node in `len` bytes from `at` (0: to the end);
    /// `false`: not in time. For a request that may wait.
    pub(crate) fn write_pages(&self, node: u64, at: u64, len: u64) -> bool {
        let written = self.forget_pages(node, at, len, WRITE_PATIENCE);
        if !written {
            tracing::debug!(node, at, len, "the kernel takes long to write pages");
        }
        written
    }

    /// Has the kernel write and drop all pages of `ino`, so that they do not arrive after a change
    /// which comes later. For a request that may wait.
    #[cold]
    pub(crate) fn write_all_pages(&self, ino: Ino) {
        let volume = self.views.get();
        // Before the notice: a page that is read meanwhile is recorded again.
        volume.references().set_cached(ino, false);
        if !self.write_pages(self.id(ino), 0, 0) {
            volume.references().set_cached(ino, true);
        }
    }

    /// Returns the blocks to show of an inode that has `blocks`. A file without any counts as one
    /// hole for programs such as `tar`, which then do not ask for data: so one for which the kernel
    /// may have data has a block.
    #[inline]
    pub(crate) fn blocks(&self, ino: Ino, kind: FileKind, size: u64, blocks: u64) -> u64 {
        let may_be_one_hole = blocks == 0 && (size > 0 || self.rules.writeback);
        match may_be_one_hole && kind == FileKind::Regular && self.may_have_pages(ino) {
            true => 1,
            false => blocks,
        }
    }
}

/// The kernel's node id for the top of a mount.
const TOP: u64 = 1;

/// Division of permission checks between the kernel and Shoal.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Rules {
    /// The kernel checks permissions (`default_permissions`): the volume must not check again.
    pub kernel_checks: bool,
    /// OPEN is answered ENOSYS, once: from then on neither OPEN nor RELEASE is sent; the same with
    /// directories ([`Session::keeps_listings`]). Only where an open would check nothing.
    pub no_open: bool,
    /// Extended attributes are answered ENOSYS: the kernel asks for none any more.
    pub no_xattr: bool,
    /// STATX is answered ENOSYS: the kernel has the attributes from listings and lookups, which
    /// have no time of birth, and asks for nothing else.
    pub no_btime: bool,
    /// Names are looked up anew each time: several users may come in, Shoal checks permissions, and
    /// the right to search a directory is checked only when a name in it is looked up.
    pub ask_names: bool,
    /// Tokens are opened by name (`ops/token.rs`). Only where OPEN is sent, and the kernel collects
    /// no writes.
    pub tokens: bool,
    /// The kernel collects writes, and keeps times and sizes of its own.
    pub writeback: bool,
}

impl Rules {
    /// Returns for how many seconds the kernel may keep names.
    #[inline]
    pub(crate) fn names_valid(self) -> u64 {
        if self.ask_names { 0 } else { TTL_FOREVER }
    }
}
