//! The other door of a mounted volume: sessions, by which programs change it without the kernel.
//!
//! Both doors see one truth. What a call of a session has changed, and the kernel may know
//! ([`crate::known`]), the kernel is told before the call returns: names that it has, or has been
//! told do not exist, listings, attributes, pages. And data that only the kernel has, in dirty
//! pages of a mapping, is written before a session reads or writes that file.
//!
//! A notice waits for locks that callers hold in the kernel. So the thread that makes a session's
//! calls only notes what is owed ([`OWED`]); one that nobody waits for pays ([`Host::owed`]).

use crate::crossing::Name;
use crate::mounted::Mounted;
use crate::notices::Notice;
use crate::session::Session;
use crate::trees::{PATIENCE, is_large, path_of};
use shoal::raw::{Attr, Code, Error, Ino, Local, Result, must_not_wait, refuse_to_wait};
use shoal_session::{Calls, Changed, Counted, Host, Newest, Node, Owed, Told};
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::Instant;

/// Why nothing is changed by a session of some mounts.
const COLLECTS: &str = "a mount with writeback is changed by its paths alone";

thread_local! {
    /// Changes by the calls of this thread that the kernel has not been told of.
    static OWED: RefCell<Vec<Notice>> = const { RefCell::new(Vec::new()) };
    /// Directories and names of large trees that they have removed.
    static REMOVED: RefCell<Vec<(Ino, Box<[u8]>)>> = const { RefCell::new(Vec::new()) };
    /// The client of this thread's call wants to be refused where the kernel knows the name.
    static OR_KERNEL: Cell<bool> = const { Cell::new(false) };
    /// Names that the call of this thread changes, as it has announced.
    static NAMES: RefCell<Vec<Name>> = const { RefCell::new(Vec::new()) };
}

/// A mounted volume, as the host of sessions.
pub(crate) struct Door {
    session: Arc<Session>,
    volume: Behind,
    device: u64,
    /// User who may enter beside the superuser; `None`: all.
    only: Option<u32>,
    /// The kernel has sizes, times and data that the volume has not: what a session changed would
    /// be undone.
    collects: bool,
}

/// The volume behind a door.
enum Behind {
    /// One that this process has open.
    Own(Local),
    /// Views of one that another process changes, the newest one for each call.
    Views(Box<dyn Calls>),
}

impl Door {
    /// Opens the door of a mount. `device`: its number. `collects`: its kernel collects writes.
    pub(crate) fn new(
        session: Arc<Session>,
        device: u64,
        only: Option<u32>,
        collects: bool,
    ) -> Door {
        let volume = Behind::Own(local_of(&session));
        Door { session, volume, device, only, collects }
    }

    /// Opens the door of a volume without a mount: there is no kernel to tell.
    pub(crate) fn without_kernel(session: Arc<Session>, only: Option<u32>) -> Door {
        let volume = Behind::Own(quiet(&session));
        Door { session, volume, device: 0, only, collects: false }
    }

    /// Opens the door of a mount that follows a volume of another process: nothing is changed by
    /// it, and its kernel keeps what another process may change for a moment only.
    pub(crate) fn of_views(session: Arc<Session>, device: u64, only: Option<u32>) -> Door {
        let of = session.clone();
        let newest =
            move || -> Arc<dyn Calls> { Arc::new(quiet(&of).of_view().of_subvolume(of.top)) };
        let volume = Behind::Views(Box::new(Newest(newest)));
        Door { session, volume, device, only, collects: false }
    }
}

impl Host for Door {
    fn calls(&self) -> &dyn Calls {
        match &self.volume {
            Behind::Own(local) => local,
            Behind::Views(views) => &**views,
        }
    }

    fn device(&self) -> u64 {
        self.device
    }

    fn top(&self) -> Node {
        Node(self.session.top.0)
    }

    fn is_read_only(&self) -> bool {
        matches!(self.volume, Behind::Views(_)) || self.session.about.is_read_only()
    }

    fn begin_change(&self) -> bool {
        matches!(self.volume, Behind::Own(_)) && !self.collects && self.session.about.enter()
    }

    fn end_change(&self) {
        self.session.about.leave();
    }

    fn refusal(&self) -> Error {
        match self.collects && !self.is_read_only() {
            true => Error::refused(Code::NotSupported, COLLECTS),
            false => Code::ReadOnly.into(),
        }
    }

    fn is_watched(&self) -> bool {
        self.session.observer.top.was_watched()
            && self.session.observer.top.is_watched(Instant::now())
    }

    fn count(&self, call: &Counted) {
        self.session.observer.top.count_call(call);
    }

    fn may_enter(&self, uid: u32) -> bool {
        uid == 0 || self.only.is_none_or(|only| only == uid)
    }

    #[inline]
    fn may_refuse(&self, is_wanted: bool) {
        OR_KERNEL.set(is_wanted);
    }

    fn tell_states(&self, first: u64, tell: Box<dyn Fn(u64) + Send + Sync>) {
        // A view changes as a whole, and nobody is told before.
        if let Behind::Own(_) = &self.volume {
            self.session.views.keep().changes().tell_states(first, tell);
        }
    }

    fn retell(&self, changed: Changed<'_>) {
        if let Behind::Own(local) = &self.volume {
            local.tell_again(changed);
        }
    }

    fn owed(&self) -> Option<Owed> {
        let (owed, removed, names) = (OWED.take(), REMOVED.take(), NAMES.take());
        if owed.is_empty() {
            names.iter().for_each(|name| self.session.crossing.told(name));
            return None;
        }
        let session = self.session.clone();
        Some(Box::new(move || {
            session.notices.tell_each(&owed);
            names.iter().for_each(|name| session.crossing.told(name));
            removed.into_iter().for_each(|(dir, name)| drop_names(&session, dir, name));
        }))
    }

    fn refused(&self) {
        OWED.take();
        REMOVED.take();
        NAMES.take().iter().for_each(|name| self.session.crossing.told(name));
    }
}

/// The calls on the volume of a mount as it is now, of which the kernel is told.
pub(crate) fn local_of(session: &Arc<Session>) -> Local {
    quiet(session).telling(Arc::new(Kernel(session.clone()))).of_subvolume(session.top)
}

/// The calls on the volume as it is now, of which no kernel is told.
fn quiet(session: &Arc<Session>) -> Local {
    Local::new(session.views.keep()).of_server(Arc::new(Mounted(session.clone())))
}

/// Tells the kernel what a call of this thread has changed, and waits for it, but not long: for a
/// thread that answers requests.
pub(crate) fn pay_owed(session: &Session) {
    let (owed, removed, names) = (OWED.take(), REMOVED.take(), NAMES.take());
    if !owed.is_empty() {
        let given = session.notices.give(owed);
        if session.notices.wait(given, PATIENCE) {
            removed.into_iter().for_each(|(dir, name)| drop_names(session, dir, name));
        }
    }
    names.iter().for_each(|name| session.crossing.told(name));
}

/// Has the kernel drop the names below a tree, whose own name has expired ([`crate::sweep`]).
fn drop_names(session: &Session, dir: Ino, name: Box<[u8]>) {
    let path = path_of(&session.views.keep(), session.top, dir, &name);
    let drop = Notice::Name { dir: session.id(dir), name, expire: false };
    session.sweeper.sweep(path, &session.notices, drop, PATIENCE);
}

/// The kernel of a mount, as the listener of changes that do not come from it.
struct Kernel(Arc<Session>);

impl Kernel {
    /// Notes the time of a change, for a listing that has read the attributes before it and gives
    /// the inode to the kernel after it.
    fn note(&self, ino: Ino) {
        self.0.unread.changed_beside(ino);
        for dir in self.0.unread.links(ino) {
            self.owe(self.0.wait_for(dir));
        }
    }

    fn owe(&self, notice: Notice) {
        OWED.with(|owed| {
            let owed = &mut *owed.borrow_mut();
            // The notice of a listing is one of the directory's attributes as well.
            let is_covered = match &notice {
                Notice::Attributes { node } => owed.contains(&Notice::Listing { node: *node }),
                _ => false,
            };
            if !is_covered && owed.last() != Some(&notice) {
                owed.push(notice);
            }
        });
    }
}

impl Told for Kernel {
    fn before_data(&self, ino: Ino) -> Result<()> {
        if !self.0.may_have_pages(ino) {
            return Ok(());
        }
        if must_not_wait() {
            return Err(refuse_to_wait());
        }
        self.0.write_all_pages(ino);
        Ok(())
    }

    fn before_name(&self, dir: Ino, name: &[u8]) -> Result<()> {
        if self.0.known.has(dir) {
            if OR_KERNEL.get() {
                return Err(Code::Busy.into());
            }
            let name = self.0.crossing.announce(dir, name)?;
            NAMES.with_borrow_mut(|names| names.push(name));
        }
        Ok(())
    }

    fn name(&self, dir: Ino, name: &[u8]) {
        if self.0.known.has(dir) {
            let node = self.0.id(dir);
            let is_last = |(of, last): &(Ino, Box<[u8]>)| *of == dir && **last == *name;
            let expire = REMOVED.with_borrow(|removed| removed.last().is_some_and(is_last));
            self.owe(Notice::Name { dir: node, name: name.into(), expire });
            self.owe(Notice::Listing { node });
        }
    }

    fn attributes(&self, ino: Ino) {
        self.note(ino);
        if self.0.known.has(ino) {
            self.owe(Notice::Attributes { node: self.0.id(ino) });
        }
    }

    fn data(&self, ino: Ino, at: u64, len: u64) {
        self.note(ino);
        if self.0.known.has(ino) {
            self.owe(Notice::Data { node: self.0.id(ino), at, len });
        }
    }

    fn tree(&self, dir: Ino, name: &[u8], top: &Attr) {
        self.attributes(top.ino);
        if self.0.known.has(dir) && is_large(top) && self.0.notices.can_expire() {
            REMOVED.with_borrow_mut(|removed| removed.push((dir, name.into())));
        }
    }
}

impl std::fmt::Debug for Door {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Door(device {})", self.device)
    }
}
