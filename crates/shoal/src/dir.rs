//! Directories.

use crate::error::{Doing, Error, Result};
use crate::held::Held;
use crate::metadata::times;
use crate::path::to_path_buf;
use crate::raw::{self, Attr, Caller, Code, FileKind, RenameFlags, SetAttr, XattrFlags};
use crate::xattr::{split_names, xattrs};
use crate::{AsPath, Credentials, Handle, Metadata, Volume};
use shoal_session::{Calls, Node, Opened};
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
    /// Takes a directory that a call has opened, by this path from the top directory.
    pub(crate) fn new(volume: Volume, who: Caller, opened: &Opened, path: &[u8]) -> Dir {
        Dir(Arc::new(Held::new(volume, who, opened, path.into())))
    }

    /// A directory that a call on this one has opened.
    fn below(&self, opened: &Opened, path: &[u8]) -> Dir {
        let mut whole = self.0.path.to_vec();
        if !whole.is_empty() && !path.is_empty() {
            whole.push(b'/');
        }
        whole.extend_from_slice(path);
        let (volume, who) = (self.0.volume.clone(), self.0.who.clone());
        Dir(Arc::new(Held::new(volume, who, opened, whole.into())))
    }

    /// The path by which it was opened, if it is known, for messages.
    pub(crate) fn path(&self) -> Option<&[u8]> {
        Some(&*self.0.path).filter(|path| !path.is_empty())
    }

    /// Adds what was tried with this directory to an error.
    #[inline]
    pub(crate) fn done<T>(&self, result: raw::Result<T>, what: &'static str) -> Result<T> {
        result.map_err(|e| Error::new(what, self.path(), e))
    }

    #[inline]
    pub(crate) fn calls(&self) -> &dyn Calls {
        self.0.calls()
    }

    #[inline]
    pub(crate) fn who(&self) -> &Caller {
        &self.0.who
    }

    #[inline]
    pub(crate) fn node(&self) -> Node {
        self.0.node
    }

    fn target(&self) -> (&dyn Calls, &Caller, Node) {
        (self.calls(), &self.0.who, self.0.node)
    }

    /// A directory's credentials decide.
    #[inline]
    fn may_use_xattrs(&self, _change: bool) -> raw::Result<()> {
        Ok(())
    }

    #[inline]
    fn find(&self, path: &[u8], follow: bool) -> raw::Result<Attr> {
        self.calls().find(self.who(), self.node(), path, follow)
    }

    /// Opens a directory below this one. The empty path is this one.
    ///
    /// # Errors
    /// `NotFound`, `NotADirectory`, `PermissionDenied`.
    pub fn open_dir(&self, path: impl AsPath) -> Result<Dir> {
        let path = path.as_path();
        let opened = self.calls().open_dir(self.who(), self.node(), path);
        opened.map(|opened| self.below(&opened, path)).doing("open directory", path)
    }

    /// Makes a directory, with permissions 0777 less the umask, and opens it.
    ///
    /// # Errors
    /// `AlreadyExists`, `NotFound` when the directory above does not exist, `PermissionDenied`,
    /// `StorageFull`.
    pub fn create_dir(&self, path: impl AsPath) -> Result<Dir> {
        let path = path.as_path();
        let made = self.calls().make_dir(self.who(), self.node(), path, 0o777);
        made.map(|opened| self.below(&opened, path)).doing("make directory", path)
    }

    /// Makes a directory and the missing directories above it, and opens it. Succeeds if it exists.
    ///
    /// # Errors
    /// `AlreadyExists` or `NotADirectory` when something on the path is another kind of file; those
    /// of [`Dir::create_dir`].
    pub fn create_dir_all(&self, path: impl AsPath) -> Result<Dir> {
        let path = path.as_path();
        let made = self.calls().make_dirs(self.who(), self.node(), path, 0o777);
        made.map(|opened| self.below(&opened, path)).doing("make directory", path)
    }

    /// Removes a name of a file. The file lives on as long as it has other names, or is open.
    ///
    /// # Errors
    /// `NotFound`, `IsADirectory`, `PermissionDenied`; `NotADirectory` if the path ends in a slash.
    pub fn remove_file(&self, path: impl AsPath) -> Result<()> {
        let path = path.as_path();
        self.calls().unlink(self.who(), self.node(), path).doing("remove", path)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// `NotFound`, `NotADirectory`, `DirectoryNotEmpty`, `PermissionDenied`.
    pub fn remove_dir(&self, path: impl AsPath) -> Result<()> {
        let path = path.as_path();
        self.calls().remove_dir(self.who(), self.node(), path).doing("remove directory", path)
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
        let check = raw::TreeCheck::Tree;
        self.calls().remove_tree(self.who(), self.node(), path, check).doing("remove tree", path)
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

    /// Renames a file or directory to a path below another directory of the volume. The credentials
    /// of this directory are checked in both.
    ///
    /// ```
    /// # use shoal::{Credentials, Volume};
    /// # fn main() -> shoal::Result<()> {
    /// # let volume = Volume::options().size(64 << 20).in_memory()?;
    /// # let root = volume.root(Credentials::root());
    /// let (new, done) = (root.create_dir("new")?, root.create_dir("done")?);
    /// new.write("job", "...")?;
    /// new.rename_into("job", &done, "job-1")?;
    /// assert!(done.exists("job-1")?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `CrossesDevices` when `to_dir` is in another volume; those of [`Dir::rename`].
    pub fn rename_into(&self, from: impl AsPath, to_dir: &Dir, to: impl AsPath) -> Result<()> {
        let (from, to) = (from.as_path(), to.as_path());
        let flags = RenameFlags::default();
        let renamed = self
            .with(to_dir)
            .and_then(|node| self.calls().rename(self.who(), self.node(), from, node, to, flags));
        renamed.doing("rename", from)
    }

    /// The node of a directory, which must be in the same volume.
    pub(crate) fn with(&self, other: &Dir) -> raw::Result<Node> {
        match self.volume().is_same(other.volume()) {
            true => Ok(other.node()),
            false => Err(Code::CrossRoot.into()),
        }
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
        let node = self.node();
        self.calls().rename(self.who(), node, from, node, to, flags).doing("rename", from)
    }

    /// Gives a file one more name.
    ///
    /// # Errors
    /// `NotFound`, `AlreadyExists`, `PermissionDenied` for a directory, `CrossesDevices`.
    pub fn hard_link(&self, from: impl AsPath, to: impl AsPath) -> Result<()> {
        let (from, to) = (from.as_path(), to.as_path());
        let node = self.node();
        self.calls().link(self.who(), node, from, node, to).map(drop).doing("link", to)
    }

    /// Gives a file one more name, below another directory of the volume. The credentials of this
    /// directory are checked in both.
    ///
    /// # Errors
    /// `CrossesDevices` when `to_dir` is in another volume; those of [`Dir::hard_link`].
    pub fn hard_link_into(&self, from: impl AsPath, to_dir: &Dir, to: impl AsPath) -> Result<()> {
        let (from, to) = (from.as_path(), to.as_path());
        let linked = self
            .with(to_dir)
            .and_then(|node| self.calls().link(self.who(), self.node(), from, node, to));
        linked.map(drop).doing("link", to)
    }

    /// Makes a special file, or an empty regular one, with permission bits `mode` less the umask.
    /// `device` is the number of a device file, as [`Metadata::rdev`] returns it; 0 for others.
    /// Shoal itself never opens a special file.
    ///
    /// # Errors
    /// `AlreadyExists`, `NotFound` when the directory does not exist; `InvalidInput` for a
    /// directory or a symlink, which have calls of their own; `PermissionDenied`, also for a
    /// device file by others than the superuser.
    pub fn make_node(
        &self,
        path: impl AsPath,
        kind: FileKind,
        mode: u32,
        device: u32,
    ) -> Result<Metadata> {
        let path = path.as_path();
        let made = match kind {
            FileKind::Directory | FileKind::Symlink => Err(Code::Invalid.into()),
            _ => {
                let mode = kind.mode_bits() | mode & 0o7777;
                self.calls().make_node(self.who(), self.node(), path, mode, device)
            }
        };
        made.map(Metadata).doing("make special file", path)
    }

    /// Makes a symbolic link at `path`.
    ///
    /// # Errors
    /// `AlreadyExists`, `NotFound`, `InvalidFilename` for a target of 4,096 bytes or more.
    pub fn symlink(&self, target: impl AsPath, path: impl AsPath) -> Result<()> {
        let (target, path) = (target.as_path(), path.as_path());
        let made = self.calls().symlink(self.who(), self.node(), path, target);
        made.map(drop).doing("make symlink", path)
    }

    /// Target of a symbolic link.
    ///
    /// # Errors `InvalidInput` for anything but a symlink.
    pub fn read_link(&self, path: impl AsPath) -> Result<PathBuf> {
        let path = path.as_path();
        let target = self.calls().read_link(self.who(), self.node(), path);
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

    fn set(&self, doing: &'static str, path: &[u8], follow: bool, set: SetAttr) -> Result<()> {
        let set = self.calls().set_attr(self.who(), self.node(), path, follow, set);
        set.map(drop).doing(doing, path)
    }

    /// Sets the permission bits.
    ///
    /// # Errors
    /// `PermissionDenied` for others than the owner.
    pub fn set_permissions(&self, path: impl AsPath, mode: u32) -> Result<()> {
        let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
        self.set("set permissions of", path.as_path(), true, set)
    }

    /// Sets owner and group; `None` leaves it as it is.
    ///
    /// # Errors `PermissionDenied` unless the caller is the superuser or the owner, who may only
    /// choose one of their own groups.
    pub fn set_owner(&self, path: impl AsPath, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        let set = SetAttr { uid, gid, ..SetAttr::default() };
        self.set("set owner of", path.as_path(), true, set)
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
        self.set("set times of", path.as_path(), true, times(accessed, modified))
    }

    /// Sets owner and group of a symlink itself, or of any other file; `None` leaves it as it is.
    ///
    /// # Errors
    /// Those of [`Dir::set_owner`].
    pub fn set_symlink_owner(
        &self,
        path: impl AsPath,
        uid: Option<u32>,
        gid: Option<u32>,
    ) -> Result<()> {
        let set = SetAttr { uid, gid, ..SetAttr::default() };
        self.set("set owner of", path.as_path(), false, set)
    }

    /// Sets the times of a symlink itself, or of any other file.
    ///
    /// # Errors
    /// Those of [`Dir::set_times`].
    pub fn set_symlink_times(
        &self,
        path: impl AsPath,
        accessed: SystemTime,
        modified: SystemTime,
    ) -> Result<()> {
        self.set("set times of", path.as_path(), false, times(accessed, modified))
    }

    /// Sets an extended attribute of the file that a path leads to, of at most 64 KiB. A symlink at
    /// the end is followed.
    ///
    /// # Errors
    /// `NotFound`; those of [`Dir::set_xattr`].
    pub fn set_xattr_of(
        &self,
        path: impl AsPath,
        name: impl AsPath,
        value: impl AsRef<[u8]>,
    ) -> Result<()> {
        let (path, name, flags) = (path.as_path(), name.as_path(), XattrFlags::default());
        let (calls, who, node) = self.target();
        let set = calls.set_xattr(who, node, path, true, name, value.as_ref(), flags);
        set.doing("set attribute of", path)
    }

    /// The value of an extended attribute of the file that a path leads to; `None` when it has none
    /// of that name.
    ///
    /// # Errors
    /// `NotFound` when there is no file; those of [`Dir::xattr`].
    pub fn xattr_of(&self, path: impl AsPath, name: impl AsPath) -> Result<Option<Vec<u8>>> {
        let (path, (calls, who, node)) = (path.as_path(), self.target());
        match calls.xattr(who, node, path, true, name.as_path()) {
            Err(e) if e.is(Code::NoData) => Ok(None),
            value => value.map(Some).doing("read attribute of", path),
        }
    }

    /// The names of all extended attributes of the file that a path leads to.
    ///
    /// # Errors
    /// `NotFound`; those of [`Dir::xattrs`].
    pub fn xattrs_of(&self, path: impl AsPath) -> Result<Vec<Vec<u8>>> {
        let (path, (calls, who, node)) = (path.as_path(), self.target());
        let list = calls.xattrs(who, node, path, true).doing("list attributes of", path)?;
        Ok(split_names(&list))
    }

    /// Removes an extended attribute of the file that a path leads to.
    ///
    /// # Errors
    /// `NotFound` when there is no file; those of [`Dir::remove_xattr`].
    pub fn remove_xattr_of(&self, path: impl AsPath, name: impl AsPath) -> Result<()> {
        let (path, (calls, who, node)) = (path.as_path(), self.target());
        let removed = calls.remove_xattr(who, node, path, true, name.as_path());
        removed.doing("remove attribute of", path)
    }

    /// Makes all changes so far durable, in this directory and elsewhere.
    ///
    /// # Errors
    /// Those of the device; the volume is read-only then.
    pub fn sync_all(&self) -> Result<()> {
        self.done(self.calls().fsync(self.who(), self.node(), false), "sync directory")
    }

    /// Opens the directory that a handle names, with the credentials of this directory, which must
    /// be in the same volume. The directory need not be below this one.
    ///
    /// # Errors
    /// `ESTALE` when it has been removed, `NotADirectory`; `PermissionDenied` when the user may not
    /// search it.
    pub fn open_dir_by_handle(&self, handle: Handle) -> Result<Dir> {
        let opened = self.calls().open_handle(self.who(), self.node(), handle.0, None);
        let opened = opened.done("open handle")?;
        Ok(Dir::new(self.0.volume.clone(), self.0.who.clone(), &opened, b""))
    }

    /// A handle of this directory, which stays valid after renames and restarts.
    pub fn handle(&self) -> Result<Handle> {
        let attr = self.done(self.calls().attr(self.who(), self.node()), "make a handle")?;
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
        Dir(Arc::new(Held::top(self.clone(), who.0)))
    }
}

xattrs!(Dir, "directory");

impl std::fmt::Debug for Dir {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Dir(inode {})", self.0.ino)
    }
}
