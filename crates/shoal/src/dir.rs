//! Directories.

use crate::error::{Doing, Error, Result};
use crate::held::{Held, unless_stale};
use crate::metadata::times;
use crate::path::to_path_buf;
use crate::raw::{self, Attr, Code, Entry, FileKind, Ino, RenameFlags, SetAttr, TreeCheck};
use crate::xattr::xattrs;
use crate::{AsPath, Credentials, Handle, Metadata, Volume};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

/// An open directory: a capability. Only files below it can be reached through it, and calls are
/// checked against the credentials with which it was opened.
///
/// Cheap to clone. It stays usable when it is renamed; when it is removed, making files in it fails
/// with `NotFound`.
#[derive(Clone)]
pub struct Dir(pub(crate) Arc<Held>);

impl Dir {
    pub(crate) fn top(volume: Volume, ino: Ino, who: Credentials) -> Dir {
        Dir(Arc::new(Held::top(volume, who.0, ino)))
    }

    #[inline]
    pub(crate) fn raw(&self) -> &raw::Volume {
        self.0.volume.raw()
    }

    fn target(&self) -> (&raw::Volume, &raw::Caller, Ino) {
        (self.raw(), &self.0.who, self.0.ino)
    }

    /// A directory's credentials decide.
    #[inline]
    fn may_use_xattrs(&self, _change: bool) -> raw::Result<()> {
        Ok(())
    }

    /// The directory and the name that a path ends in.
    #[inline]
    pub(crate) fn place<'p>(&self, path: &'p [u8]) -> raw::Result<(Ino, &'p [u8])> {
        match path.contains(&b'/') {
            false => Ok((self.0.ino, path)),
            true => self.raw().namespace().parent_beneath(&self.0.who, self.0.ino, path),
        }
    }

    /// As [`Dir::place`], for a call that makes anything but a directory: it fails if the path ends
    /// in a slash.
    #[inline]
    fn new_place<'p>(&self, path: &'p [u8]) -> raw::Result<(Ino, &'p [u8])> {
        let (dir, name) = self.place(path)?;
        if path.ends_with(b"/") {
            self.raw().namespace().lookup(&self.0.who, dir, name)?;
            return Err(Code::Exists.into());
        }
        Ok((dir, name))
    }

    /// The kind of the file at a path that ends in a slash, without following a symlink; `None` if
    /// it does not end so.
    fn kind_before_slash(
        &self,
        path: &[u8],
        (dir, name): (Ino, &[u8]),
    ) -> raw::Result<Option<FileKind>> {
        // The call itself refuses "." and "..".
        if !path.ends_with(b"/") || matches!(name, b"." | b"..") {
            return Ok(None);
        }
        self.raw().namespace().lookup(&self.0.who, dir, name).map(|found| Some(found.kind))
    }

    /// Finds the inode that a path leads to.
    #[inline]
    pub(crate) fn find(&self, path: &[u8], follow: bool) -> raw::Result<Entry> {
        let (who, dir) = (&self.0.who, self.0.ino);
        let plain = !path.contains(&b'/') && !matches!(path, b"" | b"." | b"..");
        if plain {
            let entry = self.raw().namespace().lookup(who, dir, path)?;
            if !follow || entry.kind != FileKind::Symlink {
                return Ok(entry);
            }
        }
        self.raw().namespace().resolve_beneath(who, dir, path, follow)
    }

    /// Runs a call on the inode that a path leads to. It is held during the call, so that no other
    /// file gets its number; if another has taken its path, the call is made on that one.
    pub(crate) fn on_found<T>(
        &self,
        path: &[u8],
        follow: bool,
        call: impl Fn(Held, &Attr) -> raw::Result<T>,
    ) -> raw::Result<T> {
        unless_stale(|| {
            let attr = self.find(path, follow)?;
            let held = Held::new(self.0.volume.clone(), self.0.who.clone(), &attr)?;
            call(held, &attr)
        })
    }

    /// Opens a directory below this one. The empty path is this one.
    ///
    /// # Errors
    /// `NotFound`, `NotADirectory`, `PermissionDenied`.
    pub fn open_dir(&self, path: impl AsPath) -> Result<Dir> {
        let path = path.as_path();
        let open = |held, attr: &Attr| match attr.kind {
            FileKind::Directory => Ok(Dir(Arc::new(held))),
            _ => Err(Code::NotDirectory.into()),
        };
        self.on_found(path, true, open).doing("open directory", path)
    }

    /// Makes a directory, with permissions 0777 less the umask, and opens it.
    ///
    /// # Errors
    /// `AlreadyExists`, `NotFound` when the directory above does not exist, `PermissionDenied`,
    /// `StorageFull`.
    pub fn create_dir(&self, path: impl AsPath) -> Result<Dir> {
        let path = path.as_path();
        let make = || {
            let (dir, name) = self.place(path)?;
            self.raw().namespace().mkdir(&self.0.who, dir, name, 0o777)
        };
        let attr = make().doing("make directory", path)?;
        let found = Held::new(self.0.volume.clone(), self.0.who.clone(), &attr);
        found.map(|held| Dir(Arc::new(held))).doing("make directory", path)
    }

    /// Makes a directory and the missing directories above it, and opens it. Succeeds if it exists.
    ///
    /// # Errors
    /// `AlreadyExists` or `NotADirectory` when something on the path is another kind of file; those
    /// of [`Dir::create_dir`].
    pub fn create_dir_all(&self, path: impl AsPath) -> Result<Dir> {
        let path = path.as_path();
        if let Ok(dir) = self.open_dir(path) {
            return Ok(dir);
        }
        // Up to the first directory whose parent exists, and down again.
        let mut missing = Vec::new();
        let mut above = path;
        while let Err(e) = self.make_or_find_dir(above) {
            if !e.is(Code::NotFound) || above.is_empty() {
                return Err(Error::new("make directory", Some(above), e));
            }
            missing.push(above);
            above = raw::split_parent(above).0;
        }
        for path in missing.into_iter().rev() {
            self.make_or_find_dir(path).doing("make directory", path)?;
        }
        self.open_dir(path)
    }

    /// Makes a directory. Succeeds if it is there, also by a symlink.
    fn make_or_find_dir(&self, path: &[u8]) -> raw::Result<()> {
        let made = self.place(path).and_then(|(dir, name)| match name {
            b"" => Ok(()),
            _ => self.raw().namespace().mkdir(&self.0.who, dir, name, 0o777).map(drop),
        });
        match made {
            Err(e) if e.is(Code::NotFound) => Err(e),
            Err(_) if self.find(path, true).is_ok_and(|it| it.kind == FileKind::Directory) => {
                Ok(())
            }
            made => made,
        }
    }

    /// Removes a name of a file. The file lives on as long as it has other names, or is open.
    ///
    /// # Errors
    /// `NotFound`, `IsADirectory`, `PermissionDenied`; `NotADirectory` if the path ends in a slash.
    pub fn remove_file(&self, path: impl AsPath) -> Result<()> {
        let path = path.as_path();
        let remove = || {
            let (dir, name) = self.place(path)?;
            match self.kind_before_slash(path, (dir, name))? {
                None => self.raw().namespace().unlink(&self.0.who, dir, name),
                Some(FileKind::Directory) => Err(Code::IsDirectory.into()),
                Some(_) => Err(Code::NotDirectory.into()),
            }
        };
        remove().doing("remove", path)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// `NotFound`, `NotADirectory`, `DirectoryNotEmpty`, `PermissionDenied`.
    pub fn remove_dir(&self, path: impl AsPath) -> Result<()> {
        let path = path.as_path();
        let remove = || {
            let (dir, name) = self.place(path)?;
            self.raw().namespace().rmdir(&self.0.who, dir, name)
        };
        remove().doing("remove directory", path)
    }

    /// Removes a directory with everything below it, as one change: when this returns the tree is
    /// gone, and its space is freed in the background. Nothing is removed unless all of it may be.
    /// A symlink is removed itself, as by [`std::fs::remove_dir_all`]; with a slash behind it, it
    /// is refused.
    ///
    /// # Errors
    /// `NotFound`, `NotADirectory` for any other file, `PermissionDenied` for anything in it,
    /// `ResourceBusy` for a subvolume, `InvalidInput` for a path that ends in `.` or `..`.
    pub fn remove_dir_all(&self, path: impl AsPath) -> Result<()> {
        let path = path.as_path();
        let remove = || {
            let (dir, name) = self.place(path)?;
            let names = self.raw().namespace();
            let kind = self.kind_before_slash(path, (dir, name))?;
            if kind.is_some_and(|kind| kind != FileKind::Directory) {
                self.find(path, true)?;
                return Err(Code::NotDirectory.into());
            }
            names.remove_dir_tree(&self.0.who, dir, name, TreeCheck::Tree)
        };
        remove().doing("remove tree", path)
    }

    /// Renames a file or directory, and replaces what is there: a file by a file, an empty
    /// directory by a directory.
    ///
    /// # Errors
    /// `NotFound`, `DirectoryNotEmpty`, `InvalidInput` for a directory into itself,
    /// `CrossesDevices` between subvolumes, `PermissionDenied`.
    pub fn rename(&self, from: impl AsPath, to: impl AsPath) -> Result<()> {
        self.rename_with(from, to, RenameFlags::default())
    }

    /// Renames with flags: refuse to replace, exchange the two, or leave a whiteout.
    ///
    /// # Errors
    /// `AlreadyExists` when `to` exists and must not be replaced; those of [`Dir::rename`].
    pub fn rename_with(
        &self,
        from: impl AsPath,
        to: impl AsPath,
        flags: RenameFlags,
    ) -> Result<()> {
        let (from, to) = (from.as_path(), to.as_path());
        let rename = || {
            let (from_path, to_path) = (from, to);
            let (from_dir, from) = self.place(from)?;
            let (to_dir, to) = self.place(to)?;
            if from_path.ends_with(b"/") || to_path.ends_with(b"/") {
                self.may_have_slash((from_dir, from), (to_dir, to), to_path, flags)?;
            }
            self.raw().namespace().rename(&self.0.who, from_dir, from, to_dir, to, flags)
        };
        rename().doing("rename", from)
    }

    /// Only the names of directories may have a slash behind them.
    #[cold]
    fn may_have_slash(
        &self,
        (from_dir, from): (Ino, &[u8]),
        to: (Ino, &[u8]),
        to_path: &[u8],
        flags: RenameFlags,
    ) -> raw::Result<()> {
        if [from, to.1].iter().any(|name| matches!(*name, b"." | b"..")) {
            return Ok(());
        }
        let is_dir = |found: &Entry| found.kind == FileKind::Directory;
        let source = self.raw().namespace().lookup(&self.0.who, from_dir, from)?;
        let target = self.kind_before_slash(to_path, to);
        let both = match target {
            Ok(Some(_)) if flags.noreplace => return Err(Code::Exists.into()),
            Ok(Some(kind)) if flags.exchange => kind == FileKind::Directory,
            Err(e) if !e.is(Code::NotFound) || flags.exchange => return Err(e),
            _ => true,
        };
        if is_dir(&source) && both { Ok(()) } else { Err(Code::NotDirectory.into()) }
    }

    /// Gives a file one more name.
    ///
    /// # Errors
    /// `NotFound`, `AlreadyExists`, `PermissionDenied` for a directory, `CrossesDevices`.
    pub fn hard_link(&self, from: impl AsPath, to: impl AsPath) -> Result<()> {
        let (from, to) = (from.as_path(), to.as_path());
        let link = |held: Held, _: &Attr| {
            let (dir, name) = self.new_place(to)?;
            match self.raw().namespace().link(&self.0.who, held.ino, dir, name) {
                // Unlinked since it was found: there may be another at its path.
                Err(_) if self.raw().attributes().getattr(held.ino)?.nlink == 0 => {
                    Err(Code::Stale.into())
                }
                linked => linked.map(drop),
            }
        };
        self.on_found(from, false, link).doing("link", to)
    }

    /// Makes a symbolic link at `path`.
    ///
    /// # Errors
    /// `AlreadyExists`, `NotFound`, `InvalidFilename` for a target of 4,096 bytes or more.
    pub fn symlink(&self, target: impl AsPath, path: impl AsPath) -> Result<()> {
        let path = path.as_path();
        let make = || {
            let (dir, name) = self.new_place(path)?;
            self.raw().namespace().symlink(&self.0.who, dir, name, target.as_path()).map(drop)
        };
        make().doing("make symlink", path)
    }

    /// Target of a symbolic link.
    ///
    /// # Errors `InvalidInput` for anything but a symlink.
    pub fn read_link(&self, path: impl AsPath) -> Result<PathBuf> {
        let path = path.as_path();
        let target =
            self.on_found(path, false, |held, _| self.raw().namespace().readlink(held.ino));
        target.map(|target| to_path_buf(&target)).doing("read symlink", path)
    }

    /// Attributes of the file that a path leads to. The empty path is this directory.
    ///
    /// # Errors
    /// `NotFound`, `PermissionDenied`.
    pub fn metadata(&self, path: impl AsPath) -> Result<Metadata> {
        let path = path.as_path();
        self.find(path, true).map(Metadata).doing("look up", path)
    }

    /// The same, without following a symlink at the end.
    ///
    /// # Errors
    /// Those of [`Dir::metadata`].
    pub fn symlink_metadata(&self, path: impl AsPath) -> Result<Metadata> {
        let path = path.as_path();
        self.find(path, false).map(Metadata).doing("look up", path)
    }

    /// Returns whether a path leads to something.
    ///
    /// # Errors
    /// Those of [`Dir::metadata`], but for `NotFound`.
    pub fn exists(&self, path: impl AsPath) -> Result<bool> {
        let path = path.as_path();
        match self.find(path, true) {
            Ok(_) => Ok(true),
            Err(e) if e.is(Code::NotFound) => Ok(false),
            Err(e) => Err(Error::new("look up", Some(path), e)),
        }
    }

    fn set(&self, doing: &'static str, path: &[u8], set: SetAttr) -> Result<()> {
        let set = self.on_found(path, true, |held, _| {
            self.raw().attributes().setattr(&self.0.who, held.ino, &set).map(drop)
        });
        set.doing(doing, path)
    }

    /// Sets the permission bits.
    ///
    /// # Errors
    /// `PermissionDenied` for others than the owner.
    pub fn set_permissions(&self, path: impl AsPath, mode: u32) -> Result<()> {
        let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
        self.set("set permissions of", path.as_path(), set)
    }

    /// Sets owner and group; `None` leaves it as it is.
    ///
    /// # Errors `PermissionDenied` unless the caller is the superuser or the owner, who may only
    /// choose one of their own groups.
    pub fn set_owner(&self, path: impl AsPath, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        let set = SetAttr { uid, gid, ..SetAttr::default() };
        self.set("set owner of", path.as_path(), set)
    }

    /// Sets the times of the last access and of the last change.
    ///
    /// # Errors
    /// `PermissionDenied` for others than the owner.
    pub fn set_times(
        &self,
        path: impl AsPath,
        accessed: SystemTime,
        modified: SystemTime,
    ) -> Result<()> {
        self.set("set times of", path.as_path(), times(accessed, modified))
    }

    /// Makes all changes so far durable, in this directory and elsewhere.
    ///
    /// # Errors
    /// Those of the device; the volume is read-only then.
    pub fn sync_all(&self) -> Result<()> {
        self.raw().files().fsync(self.0.ino, false).done("sync directory")
    }

    /// A handle of this directory, which stays valid after renames and restarts.
    pub fn handle(&self) -> Result<Handle> {
        let attr = self.raw().attributes().getattr(self.0.ino).done("make a handle")?;
        Ok(Handle::of(&attr))
    }

    /// The volume that it is in.
    pub fn volume(&self) -> &Volume {
        &self.0.volume
    }
}

impl Volume {
    /// The top directory. Calls on it and below are checked against these credentials.
    pub fn root(&self, who: Credentials) -> Dir {
        Dir::top(self.clone(), Ino::ROOT, who)
    }
}

xattrs!(Dir, "directory");

impl std::fmt::Debug for Dir {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Dir(inode {})", self.0.ino)
    }
}
