//! Volumes as commands use them, by the calls of the library: opened by the command itself or, if
//! another process serves a volume, in a session with that.
//!
//! Files are named by paths from the top of the volume, without symlinks and dots
//! ([`Session::resolve`]), so that a name which somebody has replaced meanwhile leads nowhere else.

mod way;

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use shoal::raw::{
    AclChange, Attr, Caller, Child, Code, Cookies, DirEntry, Error, Fields, FileKind, Filter, Ino,
    Listing, Local, RenameFlags, SetAttr, Volume, XattrFlags, connect, is_bucket, is_served,
    limits,
};
use shoal_session::{Calls, How, Node, Opened, Remote};

use crate::acl::{ACCESS, DEFAULT};
use crate::direct::{self, Direct};
use crate::failure::{self, Failure, Reason, Result};
use crate::interrupt;
use crate::location::{self, Location, Split, split_last};

pub(crate) use crate::direct::Access;
pub(crate) use way::Way;

/// Entries fetched with one call while a directory is listed. Bounds the memory for directories of
/// any size, and is large enough that the cost of the call does not matter.
const BATCH: usize = 1024;

/// Volumes are opened by this command, whoever serves them.
static DIRECT: AtomicBool = AtomicBool::new(false);

/// Lets this command open volumes itself in any case (`--direct`).
pub(crate) fn insist(direct: bool) {
    DIRECT.store(direct, Ordering::Relaxed);
}

/// A volume in use by a command.
pub(crate) struct Session {
    calls: Arc<dyn Calls>,
    /// Caller of the calls.
    pub who: Caller,
    /// Path of the volume, as the user wrote it.
    pub path: PathBuf,
    access: Access,
    /// The volume, if the command has opened it itself.
    direct: Option<Direct>,
}

/// A file found in a directory.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    /// Name.
    pub name: Box<[u8]>,
    /// Inode number.
    pub ino: Ino,
    /// Type.
    pub kind: FileKind,
    /// Attributes, unless names alone are read, or the inode cannot be.
    pub attr: Option<Attr>,
    /// Why the attributes cannot be read.
    pub failed: Option<Error>,
}

impl Found {
    /// Returns a file with all attributes.
    pub(crate) fn with_attributes(name: Box<[u8]>, attr: Attr) -> Found {
        let Attr { ino, kind, .. } = attr;
        Found { name, ino, kind, attr: Some(attr), failed: None }
    }

    /// Returns an entry without attributes.
    pub(crate) fn by_name(entry: &DirEntry<'_>, failed: Option<Error>) -> Found {
        let DirEntry { name, ino, kind, .. } = *entry;
        Found { name: name.into(), ino, kind, attr: None, failed }
    }
}

/// Position in a directory listing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cursor {
    /// Go on after this cookie (0: at the start).
    After(u64),
    /// Go on after this inode, in the order of their numbers.
    Inode(Ino),
    /// Go on after this cookie, with inodes of higher numbers alone: behind damage that has ended
    /// their order.
    Above(u64, Ino),
    /// Everything has been listed.
    End,
}

/// A directory entry to be made, changed or removed.
pub(crate) struct Slot {
    /// The directory.
    pub dir: Ino,
    /// The name in it.
    pub name: Vec<u8>,
    /// The path of the entry.
    pub path: Vec<u8>,
}

/// An open file or directory of a volume, closed when this is dropped.
pub(crate) struct Open {
    calls: Arc<dyn Calls>,
    who: Caller,
    /// The node.
    pub node: Node,
    /// The attributes that it had when it was opened.
    pub attr: Attr,
}

impl Drop for Open {
    fn drop(&mut self) {
        // There is nothing left to be done for it.
        let _ = self.calls.close(&self.who, self.node);
    }
}

impl Session {
    /// Opens a volume, or connects to the process that serves it.
    pub(crate) fn open(path: &Path, access: Access) -> Result<Session> {
        Session::attempt(path, access)?.map_err(|error| Failure::volume(path.display(), &error))
    }

    /// The same; the inner error is that of the volume.
    pub(crate) fn attempt(
        path: &Path,
        access: Access,
    ) -> Result<std::result::Result<Session, Error>> {
        let insists = DIRECT.load(Ordering::Relaxed);
        // To look for a server of a volume in a bucket takes requests.
        if !insists && !is_bucket(path) && is_served(path) {
            match Session::connect(path, access) {
                Ok(session) => return Ok(Ok(session)),
                // What a killed server has left listens to nobody.
                Err(error) if error.code() == Code::NotFound => {}
                Err(error) => return Err(Failure::usage(path.display(), error)),
            }
        }
        let refused = match Direct::attempt(path, access)? {
            Ok(direct) => return Ok(Ok(Session::of(direct, access))),
            Err(error) => error,
        };
        if !insists
            && is_bucket(path)
            && refused.code() == Code::Busy
            && let Ok(session) = Session::connect(path, access)
        {
            return Ok(Ok(session));
        }
        Ok(Err(refused))
    }

    /// Works on a volume that the command has opened.
    fn of(direct: Direct, access: Access) -> Session {
        Session {
            calls: Arc::new(Local::new(direct.volume.clone())),
            who: direct.who.clone(),
            path: direct.path.clone(),
            access,
            direct: Some(direct),
        }
    }

    /// Connects to the process that serves a volume.
    pub(crate) fn connect(place: &Path, access: Access) -> shoal::raw::Result<Session> {
        let session = Session::over(connect(place)?, place.to_owned(), access);
        // The server may serve a part of it: its top has another path in the volume.
        match session.calls.attr(&session.who, Node::TOP)?.ino == Ino::ROOT {
            true => Ok(session),
            false => Err(Code::NotFound.into()),
        }
    }

    /// Works by a connection.
    pub(crate) fn over(
        remote: Remote<shoal_session::Session>,
        path: PathBuf,
        access: Access,
    ) -> Session {
        let who = Caller { umask: direct::umask(), ..remote.0.caller().clone() };
        Session { calls: Arc::new(remote), who, path, access, direct: None }
    }

    /// Makes calls about a mount through a file or directory of it, which is the top of them.
    pub(crate) fn through(opened: OwnedFd, path: &Path) -> Session {
        let (calls, who) = (shoal_fuse::calls_by(opened), direct::caller());
        Session { calls, who, path: path.to_owned(), access: Access::Read, direct: None }
    }

    /// Makes everything durable that the command has changed, and releases the volume.
    pub(crate) fn close(self) -> Result<()> {
        let Session { calls, who, path, access, direct } = self;
        match direct {
            Some(direct) => {
                drop(calls);
                direct.close()
            }
            None if access == Access::Read => Ok(()),
            // Of a volume that is read-only nothing is left to be made so.
            None => match calls.sync(&who) {
                Err(error) if error.code() != Code::ReadOnly => {
                    Err(Failure::volume(path.display(), &error))
                }
                _ => Ok(()),
            },
        }
    }

    /// Opens a volume, works, and closes it, also after a failure. The failure of the work comes
    /// first.
    pub(crate) fn with<T>(
        path: &Path,
        access: Access,
        work: impl FnOnce(&Session) -> Result<T>,
    ) -> Result<T> {
        let session = Session::open(path, access)?;
        let result = work(&session);
        let closed = session.close();
        let done = result?;
        closed.map(|()| done)
    }

    /// The calls.
    pub(crate) fn calls(&self) -> &dyn Calls {
        &*self.calls
    }

    /// The volume, if the command has opened it itself.
    pub(crate) fn direct(&self) -> Option<&Volume> {
        self.direct.as_ref().map(|direct| &*direct.volume)
    }

    /// Caller for looking at what the user might not reach through a mount: who has opened a volume
    /// may see all of it.
    pub(crate) fn reader(&self) -> Caller {
        if self.direct.is_some() { Caller::root() } else { self.who.clone() }
    }

    /// Returns the name of a path in it, for messages.
    pub(crate) fn label(&self, path: &[u8]) -> String {
        location::label(&self.path, path)
    }

    /// Makes a call with a path from the top, however long: by a node above it.
    pub(crate) fn on<T>(
        &self,
        path: &[u8],
        call: impl FnOnce(Node, &[u8]) -> shoal::raw::Result<T>,
    ) -> shoal::raw::Result<T> {
        let (mut above, mut rest) = (None::<Open>, path);
        while rest.len() >= limits::PATH_MAX {
            let end = rest[..limits::PATH_MAX].iter().rposition(|byte| *byte == b'/');
            let end = end.filter(|end| *end > 0).ok_or(Code::NameTooLong)?;
            let node = above.as_ref().map_or(Node::TOP, |it| it.node);
            above = Some(self.opened(self.calls.open_dir(&self.who, node, &rest[..end])?));
            rest = &rest[end + 1..];
        }
        call(above.as_ref().map_or(Node::TOP, |it| it.node), rest)
    }

    /// Holds a node until it is dropped.
    pub(crate) fn opened(&self, opened: Opened) -> Open {
        let Opened { node, attr } = opened;
        Open { calls: self.calls.clone(), who: self.who.clone(), node, attr }
    }

    /// Opens the directory at a path, which must be this one, if its number is given.
    pub(crate) fn open_dir(&self, path: &[u8], ino: Option<Ino>) -> shoal::raw::Result<Open> {
        let opened = self.on(path, |node, path| self.calls.open_dir(&self.who, node, path))?;
        self.the_same(opened, ino)
    }

    /// Opens the file at a path, which must be this one, if its number is given.
    pub(crate) fn open_file(
        &self,
        path: &[u8],
        how: How,
        ino: Option<Ino>,
    ) -> shoal::raw::Result<Open> {
        let open = |node, path: &[u8]| self.calls.open_file(&self.who, node, path, how);
        self.the_same(self.on(path, open)?, ino)
    }

    /// Refuses what has been put in the place of a file meanwhile.
    pub(crate) fn the_same(&self, opened: Opened, ino: Option<Ino>) -> shoal::raw::Result<Open> {
        let open = self.opened(opened);
        match ino {
            Some(ino) if open.attr.ino != ino => Err(Code::Stale.into()),
            _ => Ok(open),
        }
    }

    /// Returns the attributes of what is at a path.
    pub(crate) fn look(&self, path: &[u8]) -> shoal::raw::Result<Attr> {
        self.on(path, |node, path| self.calls.find(&self.who, node, path, false))
    }

    /// Changes attributes of what is at a path.
    pub(crate) fn set(&self, path: &[u8], set: SetAttr) -> shoal::raw::Result<Attr> {
        self.on(path, |node, path| self.calls.set_attr(&self.who, node, path, false, set))
    }

    /// Resolves a path as the system does, `/` being the top of the volume: returns attributes,
    /// and the path from the top without symlinks and dots.
    ///
    /// # Errors
    /// Those of `stat(2)`.
    pub(crate) fn resolve(&self, path: &[u8], follow: bool) -> shoal::raw::Result<(Attr, Vec<u8>)> {
        let mut way = Way::at_top(self)?;
        let attr = way.go(path, follow)?;
        Ok((attr, way.real))
    }

    /// Resolves a path to attributes.
    pub(crate) fn find(&self, path: &[u8], follow: bool) -> shoal::raw::Result<Attr> {
        self.place(path, follow).map(|(attr, _)| attr)
    }

    /// Resolves a path; one with a slash at its end must be that of a directory.
    pub(crate) fn place(&self, path: &[u8], follow: bool) -> shoal::raw::Result<(Attr, Vec<u8>)> {
        let Split { name, slash, .. } = split_last(path);
        let found = self.resolve(path, follow || slash)?;
        if slash && !name.is_empty() && found.0.kind != FileKind::Directory {
            return Err(Code::NotDirectory.into());
        }
        Ok(found)
    }

    /// Finds the directory that holds, or will hold, a path's last component.
    pub(crate) fn slot(&self, path: &[u8]) -> Result<Slot, Reason> {
        let split = split_last(path);
        match split.name {
            b"" => Err(Reason::Text("is the top directory of the volume".into())),
            b"." | b".." => Err(Reason::Text("the path must end in a name, not in a dot".into())),
            name => {
                let (parent, above) = self.resolve(split.parent, true)?;
                if parent.kind != FileKind::Directory {
                    return Err(Error::Code(Code::NotDirectory).into());
                }
                let path = location::join(&above, name);
                Ok(Slot { dir: parent.ino, name: name.to_vec(), path })
            }
        }
    }

    /// Looks a path up; `None` when there is nothing.
    pub(crate) fn lookup(&self, path: &[u8]) -> shoal::raw::Result<Option<Attr>> {
        match self.look(path) {
            Ok(entry) => Ok(Some(entry)),
            Err(error) if error.is(Code::NotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Makes an empty file, and opens it for writing.
    pub(crate) fn create(&self, slot: &Slot) -> shoal::raw::Result<Open> {
        let how = How { write: true, create_new: true, mode: 0o666, ..How::default() };
        self.open_file(&slot.path, how, None)
    }

    /// Renames what is at a path.
    pub(crate) fn rename(
        &self,
        from: &[u8],
        to: &[u8],
        flags: RenameFlags,
    ) -> shoal::raw::Result<()> {
        self.on(from, |dir, from| {
            self.on(to, |above, to| self.calls.rename(&self.who, dir, from, above, to, flags))
        })
    }

    /// Gives what is at a path one more name.
    pub(crate) fn link(&self, path: &[u8], to: &[u8]) -> shoal::raw::Result<Attr> {
        self.on(path, |dir, path| {
            self.on(to, |above, to| self.calls.link(&self.who, dir, path, above, to))
        })
    }

    /// Removes what is at a path, which is no directory.
    pub(crate) fn unlink(&self, path: &[u8]) -> shoal::raw::Result<()> {
        self.on(path, |node, path| self.calls.unlink(&self.who, node, path))
    }

    /// Removes the empty directory at a path.
    pub(crate) fn remove_dir(&self, path: &[u8]) -> shoal::raw::Result<()> {
        self.on(path, |node, path| self.calls.remove_dir(&self.who, node, path))
    }

    /// Makes a symlink.
    pub(crate) fn symlink(&self, path: &[u8], target: &[u8]) -> shoal::raw::Result<Attr> {
        self.on(path, |node, path| self.calls.symlink(&self.who, node, path, target))
    }

    /// Makes a directory, and opens it.
    pub(crate) fn make_dir(
        &self,
        who: &Caller,
        path: &[u8],
        mode: u32,
    ) -> shoal::raw::Result<Open> {
        self.on(path, |node, path| self.calls.make_dir(who, node, path, mode))
            .map(|opened| self.opened(opened))
    }

    /// Returns the target of the symlink at a path.
    pub(crate) fn read_link(&self, path: &[u8]) -> shoal::raw::Result<Vec<u8>> {
        self.on(path, |node, path| self.calls.read_link(&self.who, node, path))
    }

    /// Returns the value of an extended attribute of what is at a path.
    pub(crate) fn xattr(
        &self,
        who: &Caller,
        path: &[u8],
        name: &[u8],
    ) -> shoal::raw::Result<Vec<u8>> {
        self.on(path, |node, path| self.calls.xattr(who, node, path, false, name))
    }

    /// Returns the names of all extended attributes of what is at a path, sorted.
    pub(crate) fn xattrs(&self, path: &[u8]) -> shoal::raw::Result<Vec<Vec<u8>>> {
        let who = self.reader();
        let list = self.on(path, |node, path| self.calls.xattrs(&who, node, path, false))?;
        let mut names = names_in(&list);
        names.sort();
        Ok(names)
    }

    /// Returns the access list and the default list of what is at a path, as stored; `None` if it
    /// has none.
    pub(crate) fn lists(&self, path: &[u8]) -> shoal::raw::Result<[Option<Vec<u8>>; 2]> {
        let list = |name: &str| match self.xattr(&self.who, path, name.as_bytes()) {
            Ok(raw) => Ok(Some(raw)),
            Err(error) if error.is(Code::NoData) => Ok(None),
            Err(error) => Err(error),
        };
        Ok([list(ACCESS)?, list(DEFAULT)?])
    }

    /// Changes a list of what is at a path, which must be able to have it.
    pub(crate) fn change_acl(
        &self,
        path: &[u8],
        mode: u32,
        change: &AclChange,
    ) -> shoal::raw::Result<()> {
        let [access, default] = self.lists(path)?;
        let changed = change.applied(mode, access.as_deref(), default.as_deref())?;
        let name = if change.is_of_default() { DEFAULT } else { ACCESS }.as_bytes();
        let (who, flags) = (&self.who, XattrFlags::default());
        self.on(path, |node, path| match changed {
            Some(list) => self.calls.set_xattr(who, node, path, false, name, &list, flags),
            None if default.is_none() => Ok(()),
            None => self.calls.remove_xattr(who, node, path, false, name),
        })
    }

    /// Returns the inodes of a directory and of those above it, upwards.
    pub(crate) fn above(&self, path: &[u8]) -> shoal::raw::Result<Vec<Ino>> {
        let (mut found, mut path) = (Vec::new(), path);
        loop {
            found.push(self.look(path)?.ino);
            if path.is_empty() {
                return Ok(found);
            }
            path = &path[..path.iter().rposition(|byte| *byte == b'/').unwrap_or(0)];
        }
    }

    /// Fetches the next entries of the directory at a path, without `.` and `..`, those of a very
    /// large one in the order of its inodes. An inode that cannot be read hides no name.
    pub(crate) fn list(
        &self,
        (path, dir): (&[u8], Ino),
        cursor: &mut Cursor,
    ) -> shoal::raw::Result<Vec<Found>> {
        let direct = self.direct().map(Volume::bulk);
        if *cursor == Cursor::After(0)
            && let Some(bulk) = &direct
            && bulk.prefers_inode_order(dir)?
        {
            *cursor = Cursor::Inode(Ino::new(dir.root(), 0));
        }
        if let (Cursor::Inode(after), Some(bulk)) = (*cursor, &direct) {
            match bulk.children(&Caller::root(), dir, after, BATCH) {
                Ok((children, next)) => {
                    *cursor = next.map_or(Cursor::End, Cursor::Inode);
                    let found = |Child { name, attr }| Found::with_attributes(name, attr);
                    return Ok(children.into_iter().map(found).collect());
                }
                Err(error) if error.code() == Code::Io => *cursor = Cursor::Above(0, after),
                Err(error) => return Err(error),
            }
        }
        // Subvolumes come first in the order of inodes.
        let above = match *cursor {
            Cursor::Above(_, after) if after.index() > 0 => Some(after),
            _ => None,
        };
        let is_left = |ino: Ino| above.is_none_or(|above| ino.root() == dir.root() && ino > above);
        self.batch((path, dir), Fields::ALL, cursor, &is_left)
    }

    /// The same without attributes, which need not be read then.
    pub(crate) fn list_names(
        &self,
        dir: (&[u8], Ino),
        cursor: &mut Cursor,
    ) -> shoal::raw::Result<Vec<Found>> {
        self.batch(dir, Fields::NONE, cursor, &|_| true)
    }

    /// Collects a batch of the wanted entries behind a cookie.
    fn batch(
        &self,
        (path, dir): (&[u8], Ino),
        want: Fields,
        cursor: &mut Cursor,
        is_wanted: &dyn Fn(Ino) -> bool,
    ) -> shoal::raw::Result<Vec<Found>> {
        let mut entries = Vec::new();
        while let Cursor::After(from) | Cursor::Above(from, _) = *cursor {
            let begun = *cursor;
            let (mut last, mut taken) = (from, 0);
            *cursor = Cursor::End;
            let cookies = Cookies::ALL.after(from);
            let listing = Listing { cookies, want, filter: Filter::new() };
            self.on(path, |node, path| {
                self.calls.list(&self.who, node, path, dir, &listing, &mut |entry, stat| {
                    if taken == BATCH {
                        *cursor = match begun {
                            Cursor::Above(_, above) => Cursor::Above(last, above),
                            _ => Cursor::After(last),
                        };
                        return false;
                    }
                    taken += 1;
                    last = entry.cookie;
                    if is_wanted(entry.ino) {
                        entries.push(match stat {
                            _ if want == Fields::NONE => Found::by_name(entry, None),
                            Err(error) => Found::by_name(entry, Some(error)),
                            Ok(stat) => match stat.attr() {
                                Some(attr) => Found::with_attributes(entry.name.into(), attr),
                                None => Found::by_name(entry, Some(Code::Io.into())),
                            },
                        });
                    }
                    true
                })
            })?;
            if !entries.is_empty() {
                break;
            }
        }
        Ok(entries)
    }
}

/// Returns the names in a list in which each ends with a NUL.
pub(crate) fn names_in(list: &[u8]) -> Vec<Vec<u8>> {
    let names = list.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    names.map(<[u8]>::to_vec).collect()
}

/// The volumes that a command has opened, each once however many arguments name it.
pub(crate) struct Sessions {
    access: Access,
    open: Vec<(PathBuf, Arc<Session>)>,
}

impl Sessions {
    /// Returns an empty set.
    pub(crate) fn new(access: Access) -> Sessions {
        Sessions { access, open: Vec::new() }
    }

    /// Returns the session for a location's volume, opened at the first time.
    pub(crate) fn get(&mut self, location: &Location) -> Result<Arc<Session>> {
        self.get_for(location, self.access)
    }

    /// Returns the session like [`Sessions::get`], opened for `access`. A command that changes a
    /// volume is not ended by the first signal, but asked to stop ([`interrupt`]).
    pub(crate) fn get_for(&mut self, location: &Location, access: Access) -> Result<Arc<Session>> {
        // A path that cannot be resolved is left as it is, and opening it reports why.
        let real = location.volume.canonicalize().unwrap_or_else(|_| location.volume.clone());
        if let Some((_, session)) = self.open.iter().find(|(path, _)| *path == real) {
            return Ok(Arc::clone(session));
        }
        let session = Arc::new(Session::open(&location.volume, access)?);
        if access == Access::Write {
            interrupt::defer();
        }
        self.open.push((real, Arc::clone(&session)));
        Ok(session)
    }

    /// Closes them all, also after a failure: earlier changes must stay.
    pub(crate) fn close(self) -> Result<()> {
        let mut result = Ok(());
        for (_, session) in self.open {
            if let Ok(session) = Arc::try_unwrap(session) {
                result = result.and(session.close());
            }
        }
        result
    }

    /// Runs a command's work and closes the volumes after it. The failure of the work comes first;
    /// but an interrupted command promises that its changes are on disk.
    pub(crate) fn run(
        access: Access,
        work: impl FnOnce(&mut Sessions) -> Result<u8>,
    ) -> Result<u8> {
        let mut sessions = Sessions::new(access);
        let result = work(&mut sessions);
        let closed = sessions.close();
        if interrupt::pending().is_some() && closed.is_err() {
            return closed.map(|()| failure::UNUSABLE);
        }
        let status = result?;
        closed.map(|()| status)
    }
}
