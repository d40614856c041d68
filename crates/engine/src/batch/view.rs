//! The first step of a batch: what its paths mean, and which inodes it concerns.

use super::Stop;
use super::hashed::Hashed;
use super::premises::Premises;
use super::prepared::{Make, Prepared, Step};
use super::rights::Rights;
use crate::attributes::check_of_batch;
use crate::batch::Batches;
use crate::namei::beneath::{Lookup, Node, Visible, leads_out, split_last, walk};
use crate::namei::birth::New;
use crate::namei::create::new_symlink;
use crate::namei::rename::Names;
use crate::permissions;
use crate::types::{BatchOp, Caller, Entry, FileKind, SetAttr};
use shoal_base::cold::Section;
use shoal_base::limits::NAME_MAX;
use shoal_base::{Code, Error, Ino, Result};
use shoal_format::inode::FLAG_TRUNCATING;
use shoal_itable::InodeRef;
use shoal_txn::Root;
use std::cell::Cell;
use std::collections::HashMap;

/// The names of the volume as the changes so far would leave them.
struct View<'s, 'w, 'o> {
    volume: Batches<'s>,
    who: &'w Caller,
    /// The same, with its permissions checked.
    trusted: Caller,
    root: &'s Root,
    start: Ino,
    /// Names that changes have made or, if `None`, taken.
    names: HashMap<(Ino, &'o [u8]), Option<Node>, Hashed>,
    /// Directories of paths.
    paths: HashMap<&'o [u8], Ino, Hashed>,
    /// Directories in which names change.
    dirs: HashMap<Ino, Dir, Hashed>,
    /// New directories, and new symlinks with their targets.
    made: HashMap<Ino, &'o [u8], Hashed>,
    /// Inodes concerned that are there already.
    known: HashMap<Ino, InodeRef, Hashed>,
    /// New inodes, which nobody else can find, and where each is.
    fresh: Vec<InodeRef>,
    fresh_at: HashMap<Ino, usize, Hashed>,
    /// Permissions of directories that are new or are changed, or in which a directory is new.
    rights: HashMap<Ino, Rights, Hashed>,
    premises: Premises,
}

/// A directory in which names change.
struct Dir {
    inode: InodeRef,
    entries: u64,
    /// The caller may look names up. If not, the change itself fails for it, in its order of
    /// errors.
    may_search: bool,
}

/// Resolves the paths of all changes.
pub(super) fn resolve<'s, 'o>(
    volume: Batches<'s>,
    who: &Caller,
    start: Ino,
    ops: &[BatchOp<'o>],
) -> Result<Prepared<'s, 'o>, Stop> {
    let batch = resolve_with(volume, who, start, ops, Premises::default())?;
    match batch.steps.last() {
        // What the device or the memory refuses has no premises, and is not tried again.
        Some(Step::Fails(Error::Code(code))) if *code != Code::NoMemory => {
            resolve_with(volume, who, start, ops, Premises::of_failure())
        }
        _ => Ok(batch),
    }
}

fn resolve_with<'s, 'o>(
    volume: Batches<'s>,
    who: &Caller,
    start: Ino,
    ops: &[BatchOp<'o>],
    premises: Premises,
) -> Result<Prepared<'s, 'o>, Stop> {
    let root = volume.0.root(start).map_err(|e| Stop::Failed(0, e))?;
    let mut view = View {
        volume,
        who,
        trusted: Caller { checked: true, ..who.clone() },
        root,
        start,
        names: HashMap::default(),
        paths: HashMap::default(),
        dirs: HashMap::default(),
        made: HashMap::default(),
        known: HashMap::default(),
        fresh: Vec::new(),
        fresh_at: HashMap::default(),
        rights: HashMap::default(),
        premises,
    };
    let (mut steps, mut bytes) = (Vec::with_capacity(ops.len()), 0);
    for op in ops {
        match view.step(op) {
            Ok(step) => steps.push(step),
            Err(e) => {
                steps.push(Step::Fails(e));
                break;
            }
        }
    }
    for step in &steps {
        bytes += match step {
            Step::Make(make) => make.contents.len(),
            Step::SetXattr { value, .. } => value.map_or(0, <[u8]>::len),
            _ => 0,
        } as u64;
    }
    let moves = steps.iter().any(|step| matches!(step, Step::Rename { .. }));
    let fresh = view.fresh.iter().map(|inode| inode.ino).collect();
    let premises = view.premises;
    let mut inodes = view.fresh;
    inodes.extend(view.known.into_values());
    inodes.sort_unstable_by_key(|inode| inode.ino);
    let twice = inodes.windows(2).any(|pair| pair[0].ino == pair[1].ino);
    let (holds, used) = (Vec::new(), Cell::new(false));
    let batch =
        Prepared { volume, start, steps, inodes, moves, bytes, fresh, used, holds, premises };
    // An inode that was found has been freed since, and its number is that of a new one: its
    // lock would be waited for by the one who holds it.
    if twice { Err(Stop::Changed) } else { Ok(batch) }
}

impl<'s, 'o> View<'s, '_, 'o> {
    fn step(&mut self, op: &BatchOp<'o>) -> Result<Step<'o>> {
        Ok(match *op {
            BatchOp::File { path, mode, contents, replace } => {
                let (dir, name) = self.place(path, false)?;
                let mode = FileKind::Regular.mode_bits() | mode & 0o7777;
                let replaces = if replace { self.replaced(dir, name)? } else { None };
                let make = self.make(dir, name, mode, contents, replaces)?;
                Step::Make(Make { may_replace: replace, ..make })
            }
            BatchOp::Dir { path, mode } => {
                let (dir, name) = self.place(path, true)?;
                let mode = FileKind::Directory.mode_bits() | mode & 0o1777;
                Step::Make(self.make(dir, name, mode, b"", None)?)
            }
            BatchOp::Symlink { path, target } => {
                let (dir, name) = self.place(path, false)?;
                let New { mode, contents, .. } = new_symlink(target)?;
                Step::Make(self.make(dir, name, mode, contents, None)?)
            }
            BatchOp::Link { from, to } => {
                let (from_dir, from) = self.place(from, false)?;
                let missing = if self.is_closed(from_dir) { Code::Access } else { Code::NotFound };
                let node = match from {
                    // No directory gets a further name, whichever it is.
                    b"." | b".." if self.is_closed(from_dir) => None,
                    b"." | b".." => Some(Node { ino: from_dir, kind: FileKind::Directory }),
                    _ if from.len() > NAME_MAX && !self.is_closed(from_dir) => {
                        return Err(Error::Code(Code::NameTooLong));
                    }
                    _ => self.known(from_dir, from)?,
                };
                let node = node.ok_or(Error::Code(missing))?;
                let (dir, name) = self.place(to, false)?;
                // The top directory of a subvolume is never locked, and so never found to be the
                // one that was resolved.
                if node.ino.root() != dir.root() {
                    return Err(Error::Code(Code::CrossRoot));
                }
                self.names.insert((dir, name), Some(node));
                Step::Link { from_dir, from, file: node.ino, dir, name }
            }
            BatchOp::Rename { from, to, flags } => {
                let (from_dir, from) = self.place(from, true)?;
                let (to_dir, to) = self.place(to, true)?;
                let names = Names { from_dir, from, to_dir, to, flags };
                names.check()?;
                let whiteout = self.rename(&names)?;
                Step::Rename { names, whiteout }
            }
            BatchOp::Remove { path } => self.remove(path, false)?,
            BatchOp::RemoveDir { path } => self.remove(path, true)?,
            BatchOp::SetAttr { path, set } => {
                if set.size.is_some() {
                    return Err(Error::Code(Code::Invalid));
                }
                let Node { ino, kind } = self.target_of(path)?;
                let of_rights = set.mode.is_some() || set.uid.is_some() || set.gid.is_some();
                if kind == FileKind::Directory && of_rights {
                    self.change_rights(ino, &set)?;
                }
                Step::SetAttr { ino, set }
            }
            BatchOp::SetXattr { path, name, value } => {
                let ino = self.target_of(path)?.ino;
                check_of_batch(name, value)?;
                Step::SetXattr { ino, name, value }
            }
        })
    }

    /// The inode that a path leads to, which is going to be locked.
    fn target_of(&mut self, path: &[u8]) -> Result<Node> {
        let start = self.start;
        let node = walk(self, start, path, true)?;
        self.concerns(node.ino)?;
        Ok(node)
    }

    /// The directory and the last name of a path.
    fn place(&mut self, path: &'o [u8], may_be_dir: bool) -> Result<(Ino, &'o [u8])> {
        if path.starts_with(b"/") {
            return Err(leads_out(path));
        }
        if !may_be_dir && path.ends_with(b"/") {
            return Err(Error::Code(Code::NotDirectory));
        }
        let (above, name) = split_last(path);
        let dir = match self.paths.get(above) {
            Some(dir) => *dir,
            None => {
                let start = self.start;
                let node = walk(self, start, above, true)?;
                if node.kind != FileKind::Directory {
                    return Err(Error::Code(Code::NotDirectory));
                }
                if node.ino.root() != self.start.root() {
                    return Err(Error::Code(Code::CrossRoot));
                }
                self.paths.insert(above, node.ino);
                node.ino
            }
        };
        if !self.dirs.contains_key(&dir) {
            let inode = self.concerns(dir)?;
            let entries = inode.read().inode.core.size;
            let may_search = match self.rights.get(&dir) {
                Some(rights) => rights.may_search(self.who),
                None => self.may_search(dir, &inode)?,
            };
            self.dirs.insert(dir, Dir { inode, entries, may_search });
        }
        Ok((dir, name))
    }

    /// Returns whether the caller may look names up in a directory, before the batch.
    fn may_search(&self, dir: Ino, inode: &InodeRef) -> Result<bool> {
        let permitted = self.volume.0.reading_first(|| {
            // As in a lookup: nothing is read from the device under the directory's lock.
            let _section = Section::begin();
            let slot = inode.read();
            self.volume.permissions().permit(self.who, dir, &slot.inode, permissions::EXEC)
        });
        match permitted {
            Err(e) if !e.is(Code::Access) => Err(e),
            permitted => Ok(permitted.is_ok()),
        }
    }

    /// The permissions of a directory that the batch changes or makes a directory in.
    fn rights(&mut self, dir: Ino) -> Result<&mut Rights> {
        if !self.rights.contains_key(&dir) {
            let inode = self.concerns(dir)?;
            let rights = self.volume.0.reading_first(|| {
                let _section = Section::begin();
                Rights::of(self.volume.permissions(), dir, &inode.read().inode)
            })?;
            self.premises.rights(dir, rights.base())?;
            self.rights.insert(dir, rights);
        }
        self.rights.get_mut(&dir).ok_or(Error::Code(Code::Stale))
    }

    fn change_rights(&mut self, dir: Ino, set: &SetAttr) -> Result<()> {
        let who = self.who;
        let rights = self.rights(dir)?;
        rights.change(who, set)?;
        let may_search = rights.may_search(who);
        if let Some(dir) = self.dirs.get_mut(&dir) {
            dir.may_search = may_search;
        }
        // They may lead through it.
        self.paths.clear();
        Ok(())
    }

    /// Looks a name up in a directory of [`View::place`]. Returns `None` for a name that is free.
    fn last(&mut self, dir: Ino, name: &[u8]) -> Result<Option<Node>> {
        self.asks(dir)?;
        if self.is_closed(dir) {
            return Ok(None);
        }
        if let Some(node) = self.names.get(&(dir, name)) {
            return Ok(*node);
        }
        if self.made.contains_key(&dir) {
            return Ok(None);
        }
        let found = self.volume.directories().find_entry(dir, name)?;
        self.premises.answer(dir, name, found.map(|entry| entry.child));
        let Some(found) = found else { return Ok(None) };
        Ok(FileKind::from_dirent_type(found.kind).map(|kind| Node { ino: found.child, kind }))
    }

    /// Before a lookup of a batch that fails. Directories of another subvolume are not locked.
    fn asks(&mut self, dir: Ino) -> Result<()> {
        let is_old = dir.root() == self.start.root() && !self.made.contains_key(&dir);
        if self.premises.with_answers() && is_old {
            let inode = self.concerns(dir)?;
            let decided_by = Rights::decided_by(&inode.read().inode.core);
            self.premises.rights(dir, decided_by)?;
        }
        Ok(())
    }

    /// Returns whether the caller may not look names up in a directory of [`View::place`].
    fn is_closed(&self, dir: Ino) -> bool {
        self.dirs.get(&dir).is_some_and(|dir| !dir.may_search)
    }

    /// As [`View::last`]; the inode is going to be locked.
    fn known(&mut self, dir: Ino, name: &[u8]) -> Result<Option<Node>> {
        let node = self.last(dir, name)?;
        if let Some(node) = node
            && node.ino.root() == dir.root()
        {
            self.whole(node.ino)?;
        }
        Ok(node)
    }

    /// Adds an inode to those that are going to be locked.
    fn concerns(&mut self, ino: Ino) -> Result<InodeRef> {
        if let Some(inode) = self.known.get(&ino) {
            return Ok(inode.clone());
        }
        if let Some(at) = self.fresh_at.get(&ino) {
            return Ok(self.fresh[*at].clone());
        }
        if ino.root() != self.start.root() {
            return Err(Error::Code(Code::CrossRoot));
        }
        let inode = self.root.table.get(ino)?;
        self.known.insert(ino, inode.clone());
        Ok(inode)
    }

    /// The same, of an inode that may lose its last name: what another call has begun to truncate
    /// is truncated first.
    fn whole(&mut self, ino: Ino) -> Result<()> {
        let inode = self.concerns(ino)?;
        let is_cut = inode.read().inode.core.flags & FLAG_TRUNCATING != 0;
        if is_cut { self.volume.files().finish_truncate(ino) } else { Ok(()) }
    }

    /// The file, symlink or special file that a new file replaces.
    fn replaced(&mut self, dir: Ino, name: &[u8]) -> Result<Option<Ino>> {
        if name == b"." || name == b".." {
            let code = if self.is_closed(dir) { Code::Access } else { Code::IsDirectory };
            return Err(Error::Code(code));
        }
        match self.last(dir, name)? {
            None => Ok(None),
            Some(Node { kind: FileKind::Directory, .. }) => Err(Error::Code(Code::IsDirectory)),
            Some(Node { ino, kind }) => {
                self.forget_paths(kind);
                self.whole(ino).map(|()| Some(ino))
            }
        }
    }

    fn make(
        &mut self,
        dir: Ino,
        name: &'o [u8],
        mode: u32,
        contents: &'o [u8],
        replaces: Option<Ino>,
    ) -> Result<Make<'o>> {
        let ino = self.allocate(dir)?;
        let kind = FileKind::from_mode(mode).ok_or(Error::Code(Code::Invalid))?;
        if kind == FileKind::Directory {
            let who = self.who;
            let rights = self.rights(dir)?.of_new(who, mode);
            self.rights.insert(ino, rights);
        }
        if matches!(kind, FileKind::Directory | FileKind::Symlink) {
            self.made.insert(ino, contents);
        }
        self.names.insert((dir, name), Some(Node { ino, kind }));
        let extents = Vec::new();
        Ok(Make { dir, name, ino, mode, contents, extents, may_replace: false, replaces })
    }

    /// Allocates the number of a new inode in a directory in which names change.
    fn allocate(&mut self, dir: Ino) -> Result<Ino> {
        let here = self.dirs.get_mut(&dir).ok_or(Error::Code(Code::Stale))?;
        let inode = self.root.table.numbers().allocate(here.inode.at(), here.entries)?;
        here.entries += 1;
        let ino = inode.ino;
        self.fresh_at.insert(ino, self.fresh.len());
        self.fresh.push(inode);
        Ok(ino)
    }

    /// Returns the number of the whiteout, if the rename makes one.
    fn rename(&mut self, names: &Names<'o>) -> Result<Option<Ino>> {
        let source = self.known(names.from_dir, names.from)?;
        let target = self.known(names.to_dir, names.to)?;
        let (from, to) = ((names.from_dir, names.from), (names.to_dir, names.to));
        let mut whiteout = None;
        if names.flags.exchange {
            self.names.insert(from, target);
        } else if target.map(|target| target.ino) != source.map(|source| source.ino) {
            if names.flags.whiteout {
                whiteout = Some(self.allocate(names.from_dir)?);
            }
            let node = |ino| Node { ino, kind: FileKind::CharDevice };
            self.names.insert(from, whiteout.map(node));
        }
        self.names.insert(to, source);
        source.into_iter().chain(target).for_each(|node| self.forget_paths(node.kind));
        Ok(whiteout)
    }

    fn remove(&mut self, path: &'o [u8], want_dir: bool) -> Result<Step<'o>> {
        let (dir, name) = self.place(path, want_dir)?;
        match name {
            b"." if want_dir => return Err(Error::Code(Code::Invalid)),
            b".." if want_dir => return Err(Error::Code(Code::NotEmpty)),
            // Others find their error where their single calls do.
            _ => {}
        }
        let node = self.known(dir, name)?;
        self.names.insert((dir, name), None);
        node.into_iter().for_each(|node| self.forget_paths(node.kind));
        Ok(Step::Remove { dir, name, want_dir })
    }

    /// Paths may lead elsewhere when a directory or a symlink moves or goes.
    fn forget_paths(&mut self, kind: FileKind) {
        if matches!(kind, FileKind::Directory | FileKind::Symlink) {
            self.paths.clear();
        }
    }
}

impl Lookup for View<'_, '_, '_> {
    fn find(&mut self, dir: Ino, name: &[u8]) -> Result<Option<Node>> {
        let rights = self.rights.get(&dir);
        if rights.is_some_and(|rights| !rights.may_search(self.who)) {
            return Err(Error::Code(Code::Access));
        }
        if let Some(node) = self.names.get(&(dir, name)) {
            return Ok(*node);
        }
        if self.made.contains_key(&dir) {
            let too_long = name.len() > NAME_MAX;
            return if too_long { Err(Error::Code(Code::NameTooLong)) } else { Ok(None) };
        }
        // As the batch leaves them, they have been asked.
        let trusted = rights.is_some();
        self.asks(dir)?;
        let who = if trusted { &self.trusted } else { self.who };
        let found = match self.volume.namespace().lookup(who, dir, name) {
            Ok(Entry { ino, kind, generation, .. }) => {
                self.premises.see(ino, generation.0);
                Some(Node { ino, kind })
            }
            Err(Error::Code(Code::NotFound)) => None,
            Err(e) => return Err(e),
        };
        if dir.root() == self.start.root() {
            self.premises.answer(dir, name, found.map(|node| node.ino));
        }
        Ok(found)
    }
    fn target(&mut self, link: Ino) -> Result<Vec<u8>> {
        match self.made.get(&link) {
            Some(target) => Ok(target.to_vec()),
            None => Visible(self.volume.namespace(), self.who).target(link),
        }
    }
}
