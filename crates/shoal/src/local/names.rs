//! Adding, removing and moving names.

use super::Local;
use crate::path::split_parent;
use shoal_engine::{Attr, Caller, Code, FileKind, Ino, RenameFlags, Result, TreeCheck};
use shoal_session::Opened;

impl Local {
    pub(super) fn new_dir(&self, who: &Caller, dir: Ino, path: &[u8], mode: u32) -> Result<Attr> {
        let (dir, name) = self.place(who, dir, path)?;
        let made = self.volume.namespace().mkdir(who, dir, name, mode)?;
        self.tell_new(dir, name);
        Ok(made)
    }

    pub(super) fn new_dirs(
        &self,
        who: &Caller,
        dir: Ino,
        path: &[u8],
        mode: u32,
    ) -> Result<Opened> {
        if let Ok(found) = self.directory(who, dir, path) {
            return Ok(found);
        }
        // Up to the first directory whose parent exists, and down again.
        let mut missing = Vec::new();
        let mut above = path;
        while let Err(e) = self.make_or_find_dir(who, dir, above, mode) {
            if !e.is(Code::NotFound) || above.is_empty() {
                return Err(e);
            }
            missing.push(above);
            above = split_parent(above).0;
        }
        for path in missing.into_iter().rev() {
            self.make_or_find_dir(who, dir, path, mode)?;
        }
        self.directory(who, dir, path)
    }

    /// Makes a directory. Succeeds if it is there, also by a symlink.
    fn make_or_find_dir(&self, who: &Caller, top: Ino, path: &[u8], mode: u32) -> Result<()> {
        let made = self.place(who, top, path).and_then(|(dir, name)| match name {
            b"" => Ok(()),
            _ => self.new_dir(who, dir, name, mode).map(drop),
        });
        let is_dir = |it: Attr| it.kind == FileKind::Directory;
        match made {
            Err(e) if e.is(Code::NotFound) => Err(e),
            Err(_) if self.find_at(who, top, path, true).is_ok_and(is_dir) => Ok(()),
            made => made,
        }
    }

    pub(super) fn new_node(
        &self,
        who: &Caller,
        dir: Ino,
        path: &[u8],
        mode: u32,
        device: u32,
    ) -> Result<Attr> {
        let (dir, name) = self.new_place(who, dir, path)?;
        let made = self.volume.namespace().mknod(who, dir, name, mode, device)?;
        self.tell_new(dir, name);
        Ok(made)
    }

    pub(super) fn new_symlink(
        &self,
        who: &Caller,
        dir: Ino,
        path: &[u8],
        target: &[u8],
    ) -> Result<Attr> {
        let (dir, name) = self.new_place(who, dir, path)?;
        let made = self.volume.namespace().symlink(who, dir, name, target)?;
        self.tell_new(dir, name);
        Ok(made)
    }

    pub(super) fn new_link(
        &self,
        who: &Caller,
        (from_dir, from): (Ino, &[u8]),
        (to_dir, to): (Ino, &[u8]),
    ) -> Result<Attr> {
        self.on_found(who, from_dir, from, false, |attr| {
            let (dir, name) = self.new_place(who, to_dir, to)?;
            match self.volume.namespace().link(who, attr.ino, dir, name) {
                // Unlinked since it was found: there may be another at its path.
                Err(_) if self.has_no_name(from, attr.ino)? => Err(Code::Stale.into()),
                Err(e) => Err(e),
                Ok(linked) => {
                    self.tell_gone(dir, name, Some(attr.ino));
                    Ok(linked)
                }
            }
        })
    }

    /// Returns whether the inode that a path was found to lead to has lost its last name.
    fn has_no_name(&self, path: &[u8], ino: Ino) -> Result<bool> {
        Ok(!path.is_empty() && self.volume.attributes().getattr(ino)?.nlink == 0)
    }

    pub(super) fn remove_file(&self, who: &Caller, dir: Ino, path: &[u8]) -> Result<()> {
        let (dir, name) = self.place(who, dir, path)?;
        match self.kind_before_slash(who, path, (dir, name))? {
            None => {}
            Some(FileKind::Directory) => return Err(Code::IsDirectory.into()),
            Some(_) => return Err(Code::NotDirectory.into()),
        }
        let before = self.before(dir, name)?;
        self.volume.namespace().unlink(who, dir, name)?;
        self.tell_gone(dir, name, before.map(|it| it.ino));
        Ok(())
    }

    pub(super) fn remove_empty(&self, who: &Caller, dir: Ino, path: &[u8]) -> Result<()> {
        let (dir, name) = self.place(who, dir, path)?;
        let before = self.before(dir, name)?;
        self.volume.namespace().rmdir(who, dir, name)?;
        self.tell_gone(dir, name, before.map(|it| it.ino));
        Ok(())
    }

    pub(super) fn remove_whole(
        &self,
        who: &Caller,
        top: Ino,
        path: &[u8],
        check: TreeCheck,
    ) -> Result<()> {
        let (dir, name) = self.place(who, top, path)?;
        let kind = self.kind_before_slash(who, path, (dir, name))?;
        if kind.is_some_and(|kind| kind != FileKind::Directory) {
            self.find_at(who, top, path, true)?;
            return Err(Code::NotDirectory.into());
        }
        let before = self.before(dir, name)?;
        self.volume.namespace().remove_dir_tree(who, dir, name, check)?;
        self.tell_tree(dir, name, before.as_ref());
        Ok(())
    }

    pub(super) fn move_name(
        &self,
        who: &Caller,
        (from_top, from_path): (Ino, &[u8]),
        (to_top, to_path): (Ino, &[u8]),
        flags: RenameFlags,
    ) -> Result<()> {
        let from = self.place(who, from_top, from_path)?;
        let to = self.place(who, to_top, to_path)?;
        if from_path.ends_with(b"/") || to_path.ends_with(b"/") {
            self.may_have_slash(who, from, to, to_path, flags)?;
        }
        let before = [self.before(from.0, from.1)?, self.before(to.0, to.1)?];
        let before = before.map(|it| it.map(|it| it.ino));
        self.volume.namespace().rename(who, from.0, from.1, to.0, to.1, flags)?;
        self.tell_gone(from.0, from.1, before[0]);
        self.tell_gone(to.0, to.1, before[1]);
        Ok(())
    }

    /// Only the names of directories may have a slash behind them.
    #[cold]
    fn may_have_slash(
        &self,
        who: &Caller,
        (from_dir, from): (Ino, &[u8]),
        to: (Ino, &[u8]),
        to_path: &[u8],
        flags: RenameFlags,
    ) -> Result<()> {
        if [from, to.1].iter().any(|name| matches!(*name, b"." | b"..")) {
            return Ok(());
        }
        let is_dir = |found: &Attr| found.kind == FileKind::Directory;
        let source = self.volume.namespace().lookup(who, from_dir, from)?;
        let target = self.kind_before_slash(who, to_path, to);
        let both = match target {
            Ok(Some(_)) if flags.noreplace => return Err(Code::Exists.into()),
            Ok(Some(kind)) if flags.exchange => kind == FileKind::Directory,
            Err(e) if !e.is(Code::NotFound) || flags.exchange => return Err(e),
            _ => true,
        };
        if is_dir(&source) && both { Ok(()) } else { Err(Code::NotDirectory.into()) }
    }
}
