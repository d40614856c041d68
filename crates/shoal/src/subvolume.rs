//! Subvolumes.

use crate::error::{Doing, Result};
use crate::raw::{Caller, Ino, RootInfo};
use crate::{AsPath, Credentials, Dir, Volume};

/// The subvolumes of a volume: directories in its top with inode numbers and trees of their own.
/// Deleting one takes the time of one rename, whatever it holds. Links and renames between
/// subvolumes fail.
///
/// Creating and deleting one checks no permissions: the caller must.
#[derive(Clone, Copy, Debug)]
pub struct Subvolumes<'v>(pub(crate) &'v Volume);

/// A subvolume.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Subvolume {
    /// Its name in the top directory.
    pub name: Vec<u8>,
    /// Its number: the top 16 bits of its inode numbers.
    pub id: u16,
    /// Its top directory.
    pub top: Ino,
    /// Inodes in use.
    pub inodes: u64,
}

impl Volume {
    /// The subvolumes: trees with inode numbers of their own, each deleted at once.
    pub fn subvolumes(&self) -> Subvolumes<'_> {
        Subvolumes(self)
    }
}

impl Subvolumes<'_> {
    /// Makes an empty subvolume, whose top directory has permissions 0755 and the owner of this
    /// process.
    ///
    /// # Errors
    /// `AlreadyExists`; `StorageFull` when the volume holds as many as it can, one for each 32 KiB.
    pub fn create(&self, name: impl AsPath) -> Result<Dir> {
        let (name, me) = (name.as_path(), Credentials::current());
        let who = Caller { gid: me.gid(), checked: true, ..Caller::user(me.uid(), me.gid()) };
        let top = self.0.calls().make_subvolume(&who, name, 0o755).doing("make subvolume", name)?;
        Ok(Dir::new(self.0.clone(), me.0, &top, name))
    }

    /// Opens a subvolume's top directory.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn open(&self, name: impl AsPath, who: Credentials) -> Result<Dir> {
        let name = name.as_path();
        let top = self.0.calls().open_subvolume(&who.0, name).doing("open subvolume", name)?;
        Ok(Dir::new(self.0.clone(), who.0, &top, name))
    }

    /// All subvolumes, by number.
    ///
    /// # Errors
    /// Those of the connection to a volume that another process serves.
    pub fn list(&self) -> Result<Vec<Subvolume>> {
        let all = self.0.calls().all_subvolumes(self.0.superuser()).done("list subvolumes")?;
        let live = all.into_iter().filter(|root| !root.deleted);
        let info = |root: RootInfo| {
            let RootInfo { name, id, top, inodes, .. } = root;
            Subvolume { name, id, top, inodes }
        };
        Ok(live.map(info).collect())
    }

    /// Deletes a subvolume with everything in it. Its space is freed in the background.
    ///
    /// # Errors `NotFound`; `InvalidInput` for a directory that is not a subvolume.
    pub fn delete(&self, name: impl AsPath) -> Result<()> {
        let name = name.as_path();
        let deleted = self.0.calls().delete_subvolume(self.0.superuser(), name);
        deleted.doing("delete subvolume", name)
    }
}
