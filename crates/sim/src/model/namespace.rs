//! Names: making, linking, removing, renaming, listing, and the references that keep an unlinked
//! inode alive.

use super::digest::entry_hash;
use super::{Birth, Body, Content, Model, Name, Node, Outcome, Touch};
use shoal::raw::{Caller, Code, FileKind, Generation, Ino, RenameFlags};
use shoal_base::limits::{NAME_MAX, PATH_MAX};
use std::collections::BTreeMap;

/// Search permission, and write permission.
const SEARCH: u32 = 1;
const WRITE_SEARCH: u32 = 3;

const STICKY: u32 = 0o1000;
const SET_GID: u32 = 0o2000;
const GROUP_EXECUTE: u32 = 0o010;

/// Place of a new name: the directory, checked for existence of the name.
type At<'a> = (Ino, &'a [u8]);

impl Model {
    /// Looks a name up.
    pub(crate) fn lookup(&self, who: &Caller, dir: Ino, name: &[u8]) -> Outcome<Ino> {
        self.entries(dir)?;
        self.permit(who, dir, SEARCH)?;
        if name.len() > NAME_MAX {
            return Err(Code::NameTooLong);
        }
        self.entries(dir)?.get(name).copied().ok_or(Code::NotFound)
    }

    /// A regular file. `ino` in these calls: the number that the volume chose.
    pub(crate) fn create(
        &mut self,
        who: &Caller,
        at: At,
        mode: u32,
        ino: Option<Ino>,
    ) -> Outcome<Ino> {
        self.may_make(who, at)?;
        let body = Body::File(Content::default());
        Ok(self.make(who, at, Birth { kind: FileKind::Regular, perm: mode, rdev: 0, body }, ino))
    }

    /// A directory.
    pub(crate) fn mkdir(
        &mut self,
        who: &Caller,
        at: At,
        mode: u32,
        ino: Option<Ino>,
    ) -> Outcome<Ino> {
        self.may_make(who, at)?;
        let body = Body::Dir(BTreeMap::new());
        // Set-id bits are not the caller's to give, only inherited.
        let perm = mode & 0o1777;
        Ok(self.make(who, at, Birth { kind: FileKind::Directory, perm, rdev: 0, body }, ino))
    }

    /// Anything but a directory or symlink, by the type bits of `mode`.
    pub(crate) fn mknod(
        &mut self,
        who: &Caller,
        at: At,
        mode: u32,
        rdev: u32,
        ino: Option<Ino>,
    ) -> Outcome<Ino> {
        let kind = FileKind::from_mode(mode).ok_or(Code::Invalid)?;
        self.may_make(who, at)?;
        let device = matches!(kind, FileKind::CharDevice | FileKind::BlockDevice);
        if device && !who.bypasses() {
            return Err(Code::NotPermitted);
        }
        let body = match kind {
            FileKind::Regular => Body::File(Content::default()),
            _ => Body::Special,
        };
        let rdev = if device { rdev } else { 0 };
        Ok(self.make(who, at, Birth { kind, perm: mode & 0o7777, rdev, body }, ino))
    }

    /// A symbolic link.
    pub(crate) fn symlink(
        &mut self,
        who: &Caller,
        at: At,
        target: &[u8],
        ino: Option<Ino>,
    ) -> Outcome<Ino> {
        match target.len() {
            0 => return Err(Code::NotFound),
            n if n >= PATH_MAX => return Err(Code::NameTooLong),
            _ => {}
        }
        self.may_make(who, at)?;
        let birth = Birth {
            kind: FileKind::Symlink,
            perm: 0o777,
            rdev: 0,
            body: Body::Link(target.to_vec()),
        };
        // The umask is not for symlinks.
        let who = Caller { umask: 0, ..who.clone() };
        Ok(self.make(&who, at, birth, ino))
    }

    /// A file without a name, held once.
    pub(crate) fn tmpfile(
        &mut self,
        who: &Caller,
        dir: Ino,
        mode: u32,
        ino: Option<Ino>,
    ) -> Outcome<Ino> {
        // A removed directory will do: it only says on which filesystem, and whose group.
        self.entries(dir)?;
        self.permit(who, dir, WRITE_SEARCH)?;
        let body = Body::File(Content::default());
        let birth = Birth { kind: FileKind::Regular, perm: mode, rdev: 0, body };
        let ino = self.give_birth(who, dir, birth, ino);
        let node = self.nodes.get_mut(&ino).expect("just born");
        (node.held, node.nlink, node.linkable) = (1, 0, true);
        Ok(ino)
    }

    /// An unlinked inode may be linked all the same: it has names in a tree that is being removed.
    pub(crate) fn let_link(&mut self, ino: Ino, linkable: bool) {
        if let Some(node) = self.nodes.get_mut(&ino) {
            node.linkable = linkable;
        }
    }

    /// Another name for an inode.
    pub(crate) fn link(&mut self, who: &Caller, ino: Ino, (dir, name): At) -> Outcome<()> {
        if ino.root() != dir.root() {
            return Err(Code::CrossRoot);
        }
        if !self.nodes.contains_key(&ino) {
            return Err(Code::Stale);
        }
        self.may_make(who, (dir, name))?;
        let node = &self.nodes[&ino];
        if node.kind == FileKind::Directory {
            return Err(Code::NotPermitted);
        }
        if node.nlink == 0 && !node.linkable {
            return Err(Code::NotFound);
        }
        let node = self.nodes.get_mut(&ino).expect("checked");
        node.nlink += 1;
        node.linkable = false;
        self.insert(dir, name, ino);
        self.touch_ctime(ino);
        Ok(())
    }

    /// Removes a name of anything but a directory.
    pub(crate) fn unlink(&mut self, who: &Caller, dir: Ino, name: &[u8]) -> Outcome<()> {
        let victim = self.lookup(who, dir, name)?;
        self.may_delete(who, dir, victim)?;
        if self.nodes[&victim].kind == FileKind::Directory {
            return Err(Code::IsDirectory);
        }
        self.remove(dir, name);
        self.lose_name(victim);
        Ok(())
    }

    /// Removes an empty directory.
    pub(crate) fn rmdir(&mut self, who: &Caller, dir: Ino, name: &[u8]) -> Outcome<()> {
        let victim = self.lookup(who, dir, name)?;
        self.may_delete(who, dir, victim)?;
        if !self.entries(victim)?.is_empty() {
            return Err(Code::NotEmpty);
        }
        self.remove(dir, name);
        self.lose_name(victim);
        Ok(())
    }

    /// Renames, replacing or swapping as POSIX and Linux' `renameat2` say. Returns the whiteout
    /// that it leaves, if it does.
    pub(crate) fn rename(
        &mut self,
        who: &Caller,
        from: At,
        to: At,
        flags: RenameFlags,
        ino: Option<Ino>,
    ) -> Outcome<Option<Ino>> {
        if flags.exchange && (flags.noreplace || flags.whiteout) {
            return Err(Code::Invalid);
        }
        if from.0.root() != to.0.root() {
            return Err(Code::CrossRoot);
        }
        // Both walks end before either last name is looked up.
        for dir in [from.0, to.0] {
            self.entries(dir)?;
            self.permit(who, dir, SEARCH)?;
        }
        let source = self.lookup(who, from.0, from.1)?;
        not_a_top(from.0, source)?;
        let target = match self.lookup(who, to.0, to.1) {
            Ok(target) => Some(target),
            Err(Code::NotFound) => None,
            Err(code) => return Err(code),
        };
        self.may_rename(who, from, to, (source, target), flags)?;
        if target == Some(source) {
            // Two names of one file (or the same name): nothing happens, by POSIX.
            return Ok(None);
        }
        self.remove(from.0, from.1);
        if let Some(target) = target {
            self.remove(to.0, to.1);
            if flags.exchange {
                self.insert(from.0, from.1, target);
                self.nodes.get_mut(&target).expect("found").parent = from.0;
                self.touch_ctime(target);
            } else {
                self.lose_name(target);
            }
        }
        self.insert(to.0, to.1, source);
        self.nodes.get_mut(&source).expect("found").parent = to.0;
        self.touch_ctime(source);
        let kind = FileKind::CharDevice;
        let birth = Birth { kind, perm: 0, rdev: 0, body: Body::Special };
        Ok(flags.whiteout.then(|| self.make(who, from, birth, ino)))
    }

    /// Keeps an inode alive without a name.
    pub(crate) fn hold(&mut self, ino: Ino) -> Outcome<()> {
        self.nodes.get_mut(&ino).ok_or(Code::Stale)?.held += 1;
        Ok(())
    }

    /// Ends one hold.
    pub(crate) fn release(&mut self, ino: Ino) {
        if let Some(node) = self.nodes.get_mut(&ino) {
            node.held -= 1;
            self.bury_if_dead(ino);
        }
    }

    /// The checks of `vfs_rename` and its callers, in their order.
    fn may_rename(
        &self,
        who: &Caller,
        from: At,
        to: At,
        (source, target): (Ino, Option<Ino>),
        flags: RenameFlags,
    ) -> Outcome<()> {
        if flags.noreplace && target.is_some() {
            return Err(Code::Exists);
        }
        if flags.exchange && target.is_none() {
            return Err(Code::NotFound);
        }
        if self.is_above(source, to.0) {
            return Err(Code::Invalid);
        }
        if target.is_some_and(|target| self.is_above(target, from.0)) {
            return Err(if flags.exchange { Code::Invalid } else { Code::NotEmpty });
        }
        if target == Some(source) {
            return Ok(());
        }
        target.map_or(Ok(()), |target| not_a_top(to.0, target))?;
        self.may_delete(who, from.0, source)?;
        let source_is_dir = self.nodes[&source].kind == FileKind::Directory;
        let target_is_dir = target.is_some_and(|t| self.nodes[&t].kind == FileKind::Directory);
        match target {
            None => self.may_add(who, to.0)?,
            Some(target) => {
                self.may_delete(who, to.0, target)?;
                if !flags.exchange && source_is_dir && !target_is_dir {
                    return Err(Code::NotDirectory);
                }
                if !flags.exchange && !source_is_dir && target_is_dir {
                    return Err(Code::IsDirectory);
                }
            }
        }
        if from.0 != to.0 {
            // A directory's ".." changes: that is writing to it.
            if source_is_dir {
                self.permit(who, source, 2)?;
            }
            if flags.exchange && target_is_dir {
                self.permit(who, target.expect("is a directory"), 2)?;
            }
        }
        match target {
            Some(target) if target_is_dir && !flags.exchange => {
                let empty = self.entries(target)?.is_empty();
                if empty { Ok(()) } else { Err(Code::NotEmpty) }
            }
            _ => Ok(()),
        }
    }

    /// Returns whether `above` is `below` or one of its ancestors.
    fn is_above(&self, above: Ino, below: Ino) -> bool {
        let mut at = below;
        while at != above {
            // A removed directory that is still held is below nothing: it may outlive its parent,
            // whose number may then be a file's, or another directory's.
            match self.node(at) {
                Some(node) if node.kind != FileKind::Directory || node.nlink == 0 => return false,
                Some(node) if node.parent != at => at = node.parent,
                _ => return false,
            }
        }
        true
    }

    /// Returns whether `who` may create `name` in `dir`, which must not have it.
    fn may_make(&self, who: &Caller, (dir, name): At) -> Outcome<()> {
        if name == b"." || name == b".." {
            self.entries(dir)?;
            self.permit(who, dir, SEARCH)?;
            return Err(Code::Exists);
        }
        match self.lookup(who, dir, name) {
            Ok(_) => Err(Code::Exists),
            Err(Code::NotFound) => self.may_add(who, dir),
            Err(code) => Err(code),
        }
    }

    /// Returns whether `who` may add entries to `dir`.
    fn may_add(&self, who: &Caller, dir: Ino) -> Outcome<()> {
        if self.nodes[&dir].nlink == 0 {
            return Err(Code::NotFound);
        }
        self.permit(who, dir, WRITE_SEARCH)
    }

    /// Returns whether `who` may remove `victim`'s entry from `dir`.
    pub(super) fn may_delete(&self, who: &Caller, dir: Ino, victim: Ino) -> Outcome<()> {
        self.permit(who, dir, WRITE_SEARCH)?;
        not_a_top(dir, victim)?;
        let (dir, victim) = (&self.nodes[&dir], &self.nodes[&victim]);
        let sticky = dir.perm & STICKY != 0;
        if sticky && !who.bypasses() && who.uid != victim.uid && who.uid != dir.uid {
            return Err(Code::NotPermitted);
        }
        Ok(())
    }

    pub(super) fn make(
        &mut self,
        who: &Caller,
        (dir, name): At,
        birth: Birth,
        ino: Option<Ino>,
    ) -> Ino {
        let ino = self.give_birth(who, dir, birth, ino);
        self.insert(dir, name, ino);
        ino
    }

    /// A new node with one link; owner and group by the rules of the set-group-id directory.
    fn give_birth(&mut self, who: &Caller, dir: Ino, birth: Birth, ino: Option<Ino>) -> Ino {
        let ino = ino.unwrap_or(Ino(self.next_ino));
        self.next_ino = self.next_ino.max(ino.0 + 1);
        let parent = &self.nodes[&dir];
        let mut perm = birth.perm & 0o7777 & !who.umask;
        let mut gid = who.gid;
        if parent.perm & SET_GID != 0 {
            gid = parent.gid;
            if birth.kind == FileKind::Directory {
                perm |= SET_GID;
            }
        }
        let both = SET_GID | GROUP_EXECUTE;
        let strip = birth.kind != FileKind::Directory && perm & both == both;
        if strip && parent.perm & SET_GID != 0 && who.uid != 0 && !who.in_group(gid) {
            perm &= !SET_GID;
        }
        let node = Node {
            generation: Generation(0),
            kind: birth.kind,
            perm,
            nlink: 1,
            uid: who.uid,
            gid,
            rdev: birth.rdev,
            body: birth.body,
            xattrs: Default::default(),
            times: None,
            held: 0,
            parent: dir,
            linkable: false,
        };
        let clash = self.nodes.insert(ino, node);
        assert!(clash.is_none(), "inode {ino} was given to a second file while in use");
        self.touch(ino, Touch { born: true, ..Touch::default() });
        ino
    }

    pub(super) fn insert(&mut self, dir: Ino, name: &[u8], child: Ino) {
        self.digest = self.digest.wrapping_add(entry_hash(dir, name, child));
        self.dir_mut(dir).insert(name.to_vec(), child);
        self.touch_contents(dir);
    }

    pub(super) fn remove(&mut self, dir: Ino, name: &[u8]) {
        let child = self.dir_mut(dir).remove(name).expect("looked up before");
        self.digest = self.digest.wrapping_sub(entry_hash(dir, name, child));
        self.touch_contents(dir);
    }

    fn dir_mut(&mut self, dir: Ino) -> &mut BTreeMap<Name, Ino> {
        match &mut self.nodes.get_mut(&dir).expect("checked").body {
            Body::Dir(entries) => entries,
            _ => unreachable!("checked to be a directory"),
        }
    }

    pub(super) fn lose_name(&mut self, ino: Ino) {
        self.nodes.get_mut(&ino).expect("had a name").nlink -= 1;
        self.touch_ctime(ino);
        self.bury_if_dead(ino);
    }
}

/// The top of a root keeps its name, like a mount point.
fn not_a_top(dir: Ino, child: Ino) -> Outcome<()> {
    if child.root() == dir.root() { Ok(()) } else { Err(Code::Busy) }
}
