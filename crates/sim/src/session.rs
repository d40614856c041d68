//! Operations by a session: a third way, beside [`crate::call`] and [`crate::system`], to do what
//! an [`Op`] says. The session may be one in this thread, on a simulated volume, or one of a mount.
//!
//! An operation acts on inodes, whatever the permissions on the way to them. So the superuser opens
//! them first, and the call is the operation's caller's, on what is open. What the table of calls
//! cannot say is left to the engine:
//!
//! | operation | reason |
//! | --- | --- |
//! | tmpfile | the row opens the file, and an operation does not hold it |
//! | copy_range | no row |
//! | reap, checkpoint | upkeep of the volume, which is its owner's |
//! | change_tree | a server uses all processors for it: a run would not be the same again |
//! | remove_tree of a file | the row is for directories |
//! | lookup of "", "." and ".." | a path with them is walked, a name is not |
//! | write at the largest offset | it means the end of the file |
//! | contents of what is no file, "truncate of an open file" of a directory | nothing opens it so |
//! | holding a symlink or a special file, and what is then done to it | nothing opens it |
//! | other users' calls on these | there is no way to them but their path, which is checked |
//! | read of no bytes | a client asks nobody |
//! | fsync of an inode that is gone | it has no node |
//!
//! A path is resolved by the rules of sessions: it must not lead out of its directory.

use crate::call::{Answer, as_setattr};
use crate::op::{Op, Place, SLOTS, Target, Who, with_batch_ops};
use parking_lot::Mutex;
use shoal::raw::{
    Attr, Caller, Code, Cookies, Error, Fields, FileKind, Filter, Handle, Ino, Listing, Result,
    TreeCheck, connect_mount,
};
use shoal_session::client::Link;
use shoal_session::{AT_END, Calls, How, Node, Remote, Session};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

static ROOT: LazyLock<Caller> = LazyLock::new(Caller::root);

/// For reading and writing.
const BOTH: How = How {
    read: true,
    write: true,
    append: false,
    truncate: false,
    create: false,
    create_new: false,
    mode: 0,
};

/// An entry of a listing.
pub type Listed = (Vec<u8>, Ino, FileKind);

/// A session, and what a run has open by it.
pub struct BySession<L: Link> {
    calls: Remote<L>,
    /// The directory below which paths are.
    top: Node,
    slots: Mutex<[Option<Held>; SLOTS]>,
    made: AtomicU64,
}

/// A file or directory that a slot holds.
#[derive(Clone, Copy)]
struct Held {
    node: Node,
    kind: FileKind,
}

/// The place of a target: an open node, or a name in one for what nothing opens.
struct Reached<'s, L: Link> {
    session: &'s BySession<L>,
    node: Node,
    name: &'s [u8],
    kind: FileKind,
    /// It was opened for this operation.
    is_own: bool,
}

impl<L: Link> Drop for Reached<'_, L> {
    fn drop(&mut self) {
        if self.is_own {
            self.session.close(self.node);
        }
    }
}

impl<L: Link> Reached<'_, L> {
    /// Returns whether this user can be the one who calls.
    fn may_act(&self, who: Who) -> bool {
        self.name.is_empty() || who == Who::Root
    }

    fn is_file(&self) -> bool {
        self.kind == FileKind::Regular
    }
}

impl<L: Link> BySession<L> {
    /// By a session of the superuser, with nothing open.
    pub fn new(session: L) -> BySession<L> {
        let slots = Mutex::new([None; SLOTS]);
        BySession { calls: Remote(session), top: Node::TOP, slots, made: AtomicU64::new(0) }
    }

    /// Closes everything, and goes on with what is below a directory, by its path from the top of
    /// the session.
    ///
    /// # Errors
    /// Those of the session.
    pub fn enter(&mut self, dir: &[u8]) -> Result<()> {
        for held in self.slots.get_mut().iter_mut().filter_map(Option::take) {
            self.calls.close(&ROOT, held.node)?;
        }
        self.calls.close(&ROOT, self.top)?;
        self.top = Node::TOP;
        self.top = self.calls.open_dir(&ROOT, Node::TOP, dir)?.node;
        Ok(())
    }

    /// Number of operations that were made so.
    pub fn made(&self) -> u64 {
        self.made.load(Ordering::Relaxed)
    }

    /// Returns whether it is the session that holds what is in a slot.
    pub fn holds(&self, slot: usize) -> bool {
        self.slots.lock()[slot].is_some()
    }

    /// Returns whether it can hold what a target means, an inode of this kind.
    pub fn can_hold(&self, target: &Target, kind: FileKind) -> bool {
        match target {
            Target::Slot(slot) => self.holds(*slot),
            Target::Path(_) => matches!(kind, FileKind::Directory | FileKind::Regular),
        }
    }

    /// Opens what is at a path.
    ///
    /// # Errors
    /// Those of the session.
    pub fn open_path(&self, slot: usize, path: &str) -> Result<()> {
        self.open(&Target::Path(path.into()), slot).map(drop)
    }

    fn close(&self, node: Node) {
        let closed = self.calls.close(&ROOT, node);
        debug_assert!(closed.is_ok(), "{closed:?}");
    }

    /// Finds what a target means; `None` if the session cannot hold it.
    fn reach<'s>(&'s self, target: &'s Target) -> Result<Option<Reached<'s, L>>> {
        let path = match target {
            Target::Slot(slot) => {
                let held = self.slots.lock()[*slot];
                return Ok(held.map(|Held { node, kind }| Reached {
                    session: self,
                    node,
                    name: b"",
                    kind,
                    is_own: false,
                }));
            }
            Target::Path(path) => &path[..],
        };
        let top = self.top;
        let kind = self.calls.find(&ROOT, top, path, false)?.kind;
        let (opened, name) = match kind {
            FileKind::Directory => (self.calls.open_dir(&ROOT, top, path)?, &b""[..]),
            FileKind::Regular => (self.calls.open_file(&ROOT, top, path, BOTH)?, &b""[..]),
            _ => {
                let cut = path.iter().rposition(|byte| *byte == b'/');
                let (dir, name) = cut.map_or((&b""[..], path), |at| (&path[..at], &path[at + 1..]));
                (self.calls.open_dir(&ROOT, top, dir)?, name)
            }
        };
        Ok(Some(Reached { session: self, node: opened.node, name, kind, is_own: true }))
    }

    /// The directory of a place, or what is in the place of one: but nothing that has to be named
    /// by a path.
    fn dir<'s>(&'s self, at: &'s Place) -> Result<Option<Reached<'s, L>>> {
        Ok(self.reach(&at.dir)?.filter(|dir| dir.name.is_empty()))
    }

    fn open(&self, file: &Target, slot: usize) -> Result<Option<Answer>> {
        let Some(reached) = self.reach(file)?.filter(|reached| reached.name.is_empty()) else {
            return Ok(None);
        };
        let opened = match reached.kind {
            FileKind::Directory => self.calls.open_dir(&ROOT, reached.node, b"")?,
            _ => self.calls.open_file(&ROOT, reached.node, b"", BOTH)?,
        };
        self.slots.lock()[slot] = Some(Held { node: opened.node, kind: reached.kind });
        Ok(Some(Answer::Unit))
    }

    /// Does what the operation says; `None`: the session cannot. `told` gets the attributes that
    /// the server answers with, if it does.
    ///
    /// # Errors
    /// That of the call.
    pub fn call(&self, op: &Op, told: &mut Option<Attr>) -> Result<Option<Answer>> {
        let done = match op {
            Op::Create { .. } | Op::Mkdir { .. } | Op::Mknod { .. } | Op::Symlink { .. } => {
                self.make(op, told)
            }
            Op::Link { .. } | Op::Unlink { .. } | Op::Rmdir { .. } | Op::RemoveTree { .. } => {
                self.name(op, told)
            }
            Op::Rename { .. } => self.rename(op, told),
            Op::Open { file, slot } => self.open(file, *slot),
            Op::Close { slot } => {
                let held = self.slots.lock()[*slot].take();
                Ok(held.map(|held| {
                    self.close(held.node);
                    Answer::Unit
                }))
            }
            Op::Batch { .. } | Op::RootCreate { .. } | Op::RootDelete { .. } => {
                self.several(op, told)
            }
            Op::Write { .. }
            | Op::Append { .. }
            | Op::Fallocate { .. }
            | Op::Read { .. }
            | Op::Seek { .. } => self.contents(op),
            _ => self.attributes(op, told),
        };
        if !matches!(done, Ok(None)) {
            self.made.fetch_add(1, Ordering::Relaxed);
        }
        done
    }

    fn make(&self, op: &Op, told: &mut Option<Attr>) -> Result<Option<Answer>> {
        let Some(at) = op.makes() else { return Ok(None) };
        let Some(dir) = self.dir(at)? else { return Ok(None) };
        let (node, name) = (dir.node, &at.name[..]);
        let attr = match op {
            Op::Create { who, mode, .. } => {
                let how = How { create_new: true, mode: *mode, ..BOTH };
                let opened = self.calls.open_file(&who.caller(), node, name, how)?;
                self.close(opened.node);
                opened.attr
            }
            Op::Mkdir { who, mode, .. } => {
                let opened = self.calls.make_dir(&who.caller(), node, name, *mode)?;
                self.close(opened.node);
                opened.attr
            }
            Op::Mknod { who, mode, rdev, .. } => {
                self.calls.make_node(&who.caller(), node, name, *mode, *rdev)?
            }
            Op::Symlink { who, target, .. } => {
                self.calls.symlink(&who.caller(), node, name, target)?
            }
            _ => return Ok(None),
        };
        Ok(Some(found(attr, told)))
    }

    fn name(&self, op: &Op, told: &mut Option<Attr>) -> Result<Option<Answer>> {
        let (Op::Link { at, .. }
        | Op::Unlink { at, .. }
        | Op::Rmdir { at, .. }
        | Op::RemoveTree { at, .. }) = op
        else {
            return Ok(None);
        };
        let Some(dir) = self.dir(at)? else { return Ok(None) };
        let (node, name) = (dir.node, &at.name[..]);
        match op {
            Op::Link { who, from, .. } => {
                let Some(from) = self.reach(from)?.filter(|from| from.may_act(*who)) else {
                    return Ok(None);
                };
                let attr = self.calls.link(&who.caller(), from.node, from.name, node, name)?;
                return Ok(Some(found(attr, told)));
            }
            Op::Unlink { who, .. } => self.calls.unlink(&who.caller(), node, name)?,
            Op::Rmdir { who, .. } => self.calls.remove_dir(&who.caller(), node, name)?,
            Op::RemoveTree { who, .. } => {
                self.calls.remove_tree(&who.caller(), node, name, TreeCheck::Tree)?;
            }
            _ => return Ok(None),
        }
        Ok(Some(Answer::Unit))
    }

    fn rename(&self, op: &Op, told: &mut Option<Attr>) -> Result<Option<Answer>> {
        let Op::Rename { who, from, to, flags } = op else { return Ok(None) };
        let (Some(from_dir), Some(to_dir)) = (self.dir(from)?, self.dir(to)?) else {
            return Ok(None);
        };
        let (one, two) = ((from_dir.node, &from.name[..]), (to_dir.node, &to.name[..]));
        self.calls.rename(&who.caller(), one.0, one.1, two.0, two.1, *flags)?;
        if !flags.whiteout {
            return Ok(Some(Answer::Unit));
        }
        let [old, new] = [one, two].map(|(dir, name)| self.calls.find(&ROOT, dir, name, false));
        let (old, new) = (old?, new?);
        // Two names of one file stay as they are.
        Ok(Some(if old.ino == new.ino { Answer::Unit } else { found(old, told) }))
    }

    fn several(&self, op: &Op, told: &mut Option<Attr>) -> Result<Option<Answer>> {
        match op {
            Op::Batch { who, start, changes } => {
                let Some(start) = self.reach(start)? else { return Ok(None) };
                let node = start.node;
                with_batch_ops(changes, |ops| self.calls.batch(&who.caller(), node, ops))?;
            }
            Op::RootCreate { who, name, mode } => {
                let opened = self.calls.make_subvolume(&who.caller(), name, *mode)?;
                self.close(opened.node);
                return Ok(Some(found(opened.attr, told)));
            }
            Op::RootDelete { who, name } => self.calls.delete_subvolume(&who.caller(), name)?,
            _ => return Ok(None),
        }
        Ok(Some(Answer::Unit))
    }

    fn contents(&self, op: &Op) -> Result<Option<Answer>> {
        let (Op::Write { file, .. }
        | Op::Append { file, .. }
        | Op::Fallocate { file, .. }
        | Op::Read { file, .. }
        | Op::Seek { file, .. }) = op
        else {
            return Ok(None);
        };
        let Some(file) = self.reach(file)?.filter(Reached::is_file) else { return Ok(None) };
        let node = file.node;
        // Whoever is no superuser drops privileges of the file.
        let writer = |kill| if kill { Who::One.caller() } else { Caller::root() };
        Ok(Some(match op {
            Op::Write { offset: AT_END, .. } | Op::Read { len: 0, .. } => return Ok(None),
            Op::Write { offset, data, kill_priv, .. } => {
                let wrote = self.calls.write(&writer(*kill_priv), node, *offset, &data.bytes())?;
                Answer::Number(wrote.1)
            }
            Op::Append { data, kill_priv, .. } => {
                let wrote = self.calls.write(&writer(*kill_priv), node, AT_END, &data.bytes())?;
                Answer::Appended(wrote.0, wrote.1 as usize)
            }
            Op::Fallocate { mode, offset, len, .. } => {
                self.calls.allocate(&ROOT, node, *mode, *offset, *len)?;
                Answer::Unit
            }
            Op::Read { offset, len, .. } => {
                let mut bytes = vec![0xA5; *len as usize];
                let read = self.calls.read(&ROOT, node, *offset, &mut bytes)?;
                bytes.truncate(read);
                Answer::Bytes(bytes)
            }
            Op::Seek { offset, what, .. } => {
                Answer::Number(self.calls.seek(&ROOT, node, *offset, *what)?)
            }
            _ => return Ok(None),
        }))
    }

    fn attributes(&self, op: &Op, told: &mut Option<Attr>) -> Result<Option<Answer>> {
        match op {
            Op::Lookup { who, at } => {
                let is_walked = matches!(&at.name[..], b"" | b"." | b"..");
                let Some(dir) = self.dir(at)?.filter(|_| !is_walked) else { return Ok(None) };
                let attr = self.calls.find(&who.caller(), dir.node, &at.name, false)?;
                return Ok(Some(found(attr, told)));
            }
            Op::Resolve { who, start, path, follow } => {
                let Some(start) = self.reach(start)?.filter(|it| it.name.is_empty()) else {
                    return Ok(None);
                };
                let attr = self.calls.find(&who.caller(), start.node, path, *follow);
                // A path that leads out is foreseen.
                let is_foreseen = |e: &Error| e.code() == Code::CrossRoot;
                let attr = attr.map_err(|e| if is_foreseen(&e) { e.code().into() } else { e })?;
                return Ok(Some(found(attr, told)));
            }
            Op::Readdir { dir, page } => {
                let Some(dir) = self.reach(dir)?.filter(|it| it.name.is_empty()) else {
                    return Ok(None);
                };
                let entries = self.list(dir.node, *page)?.into_iter();
                let mut names: Vec<_> = entries.map(|(name, ino, _)| (name, ino)).collect();
                names.sort();
                return Ok(Some(Answer::Names(names)));
            }
            _ => {}
        }
        let file = match op.targets()[..] {
            [file] => self.reach(file)?,
            _ => None,
        };
        match file {
            Some(file) => self.attribute(op, &file, told),
            None => Ok(None),
        }
    }

    /// An operation on one inode, of whatever kind.
    fn attribute(
        &self,
        op: &Op,
        file: &Reached<'_, L>,
        told: &mut Option<Attr>,
    ) -> Result<Option<Answer>> {
        let (node, path) = (file.node, file.name);
        if let Op::Truncate { who, size, by_handle: true, .. } = op {
            if !file.is_file() {
                return Ok(None);
            }
            self.calls.set_size(&who.caller(), node, *size)?;
            return Ok(Some(Answer::Unit));
        }
        if !file.may_act(who_calls(op)) {
            return Ok(None);
        }
        if let Some((who, set)) = as_setattr(op) {
            self.calls.set_attr(&who, node, path, false, set)?;
            return Ok(Some(Answer::Unit));
        }
        let who = who_calls(op).caller();
        match op {
            Op::SetXattr { name, data, flags, .. } => {
                self.calls.set_xattr(&who, node, path, false, name, &data.bytes(), *flags)?;
            }
            Op::RemoveXattr { name, .. } => {
                self.calls.remove_xattr(&who, node, path, false, name)?;
            }
            Op::GetXattr { name, .. } => {
                let value = self.calls.xattr(&who, node, path, false, name)?;
                return Ok(Some(Answer::Bytes(value)));
            }
            Op::ListXattr { .. } => {
                let raw = self.calls.xattrs(&who, node, path, false)?;
                let names = raw.split(|byte| *byte == 0).filter(|name| !name.is_empty());
                let mut names: Vec<Vec<u8>> = names.map(<[u8]>::to_vec).collect();
                names.sort();
                return Ok(Some(Answer::Paths(names)));
            }
            Op::Paths { .. } => {
                let ino = self.calls.find(&who, node, path, false)?.ino;
                let calls: &dyn Calls = &self.calls;
                let mut paths = calls.paths_of(&who, ino)?;
                paths.sort();
                return Ok(Some(Answer::Paths(paths)));
            }
            Op::Getattr { .. } => {
                let attr = match path {
                    b"" => self.calls.attr(&who, node)?,
                    _ => self.calls.find(&who, node, path, false)?,
                };
                *told = Some(attr);
            }
            // The row follows a symlink.
            Op::Access { mask, .. } if path.is_empty() => {
                self.calls.access(&who, node, path, *mask)?;
            }
            Op::Readlink { .. } => {
                return self.calls.read_link(&who, node, path).map(|to| Some(Answer::Bytes(to)));
            }
            _ => return Ok(None),
        }
        Ok(Some(Answer::Unit))
    }

    /// Lists a directory in pages of `page` entries, resuming by cookie.
    fn list(&self, dir: Node, page: usize) -> Result<Vec<Listed>> {
        let (want, filter) = (Fields::INO, Filter::default());
        let mut listing = Listing { cookies: Cookies::ALL, want, filter };
        let mut names = Vec::new();
        loop {
            let (mut taken, mut last) = (0, 0);
            // The number is for volumes in this process.
            self.calls.list(&ROOT, dir, b"", Ino(0), &listing, &mut |entry, _| {
                taken += 1;
                last = entry.cookie;
                names.push((entry.name.to_vec(), entry.ino, entry.kind));
                taken < page.max(1)
            })?;
            if taken < page.max(1) {
                break;
            }
            listing.cookies = listing.cookies.after(last);
        }
        Ok(names)
    }

    /// Lists a directory that a slot holds.
    ///
    /// # Errors
    /// Those of the session.
    pub fn entries(&self, slot: usize) -> Result<Vec<Listed>> {
        let held = self.slots.lock()[slot].ok_or(Code::BadHandle)?;
        self.list(held.node, usize::MAX)
    }

    /// Asks for an inode by a handle.
    ///
    /// # Errors
    /// `ESTALE` if there is none of it any more.
    pub fn by_handle(&self, handle: Handle) -> Result<Answer> {
        self.made.fetch_add(1, Ordering::Relaxed);
        let opened = self.calls.open_handle(&ROOT, Node::TOP, handle, None)?;
        self.close(opened.node);
        Ok(Answer::Node(opened.attr.ino))
    }

    /// Makes durable what an operation says; `false`: the session cannot.
    ///
    /// # Errors
    /// Those of the calls.
    pub fn make_durable(&self, op: &Op) -> std::result::Result<bool, Error> {
        match op {
            Op::Fsync { file, datasync } => {
                let Some(file) = self.reach(file)?.filter(|file| file.name.is_empty()) else {
                    return Ok(false);
                };
                self.calls.fsync(&ROOT, file.node, *datasync)?;
            }
            Op::Sync => self.calls.sync(&ROOT)?,
            _ => return Ok(false),
        }
        self.made.fetch_add(1, Ordering::Relaxed);
        Ok(true)
    }
}

/// The user of an operation on one inode.
fn who_calls(op: &Op) -> Who {
    match op {
        Op::Chmod { who, .. }
        | Op::Chown { who, .. }
        | Op::Utimes { who, .. }
        | Op::Truncate { who, .. }
        | Op::SetXattr { who, .. }
        | Op::RemoveXattr { who, .. }
        | Op::GetXattr { who, .. }
        | Op::ListXattr { who, .. }
        | Op::Access { who, .. } => *who,
        _ => Who::Root,
    }
}

/// Connects to the server of the mount that a directory is in.
///
/// # Errors
/// Says why not.
pub fn of_mount(directory: &Path) -> std::result::Result<Session, String> {
    let device = std::fs::metadata(directory).map_err(|e| e.to_string())?.dev();
    let failed = |e| format!("session of the mount at {}: {e}", directory.display());
    connect_mount(device).map(|remote| remote.0).map_err(failed)
}

/// The answer to who made or found something.
fn found(attr: Attr, told: &mut Option<Attr>) -> Answer {
    *told = Some(attr);
    Answer::Node(attr.ino)
}
