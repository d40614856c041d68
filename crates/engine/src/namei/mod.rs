//! The namespace: one file for each kind of call.
//!
//! Lock order: a directory before its children. Of the two directories of a rename, the second must
//! be acquired without waiting while the first is held. Of the children of a rename, directories
//! first, then by number.

pub(crate) mod beneath;
pub(crate) mod birth;
pub(crate) mod create;
mod link;
mod lookup;
mod moving;
mod remove_tree;
pub(crate) mod rename;
mod unlink;
mod whiteout;

pub(crate) use unlink::Loss;

use crate::directories::{Directories, Found};
use crate::files::Files;
use crate::intents::Intents;
use crate::objects::Objects;
use crate::orphans::Orphans;
use crate::paths::Paths;
use crate::permissions::{self, Permissions};
use crate::state::room;
use crate::types::{Caller, FileKind};
use crate::xattr::Xattrs;
use shoal_base::{Code, Error, Ino, Result};
use shoal_format::inode::{Core, Inode, Stamp};
use shoal_format::item::Item;
use shoal_itable::{InodeTable, Locked};
use shoal_txn::Txn;

/// Estimated bytes that a new name needs in nodes and inode blocks.
pub(crate) const NAME_COST: u64 = 1024;

room! {
    /// Names: lookups, and all calls that add, remove or move a name.
    pub struct Namespace {
        directories: Directories,
        files: Files,
        intents: Intents,
        objects: Objects,
        orphans: Orphans,
        paths: Paths,
        permissions: Permissions,
        xattrs: Xattrs,
    }
}

impl Namespace<'_> {
    /// Checks that entries of this directory may be added or removed.
    #[inline]
    fn check_change(self, who: &Caller, dir: Ino, inode: &Inode) -> Result<()> {
        check_dir(&inode.core)?;
        if inode.core.nlink == 0 {
            return Err(Error::Code(Code::NotFound));
        }
        self.permissions().permit(who, dir, inode, permissions::WRITE | permissions::EXEC)
    }

    /// Checks search permission. Must be called before any statement about a name, as in Linux.
    #[inline]
    pub(crate) fn check_search(self, who: &Caller, dir: Ino, inode: &Inode) -> Result<()> {
        check_dir(&inode.core)?;
        self.permissions().permit(who, dir, inode, permissions::EXEC)
    }
}

/// Returns the error for an entry that names its own directory. This is damage, and locking it
/// would deadlock.
#[cold]
pub(crate) fn names_itself(dir: Ino) -> Error {
    Error::corrupt(format!("entry of directory {dir}"), None, "names the directory itself")
}

/// Checks that an inode is a directory in use.
#[inline]
fn check_dir(core: &Core) -> Result<()> {
    if !core.in_use() {
        return Err(Error::Code(Code::Stale));
    }
    if !core.is_dir() {
        return Err(Error::Code(Code::NotDirectory));
    }
    Ok(())
}

/// Checks that an inode may get a name in this directory: both must be in the same project, so that
/// each is the use of its directory tree (as XFS project quotas).
#[inline]
pub(crate) fn check_project(core: &Core, dir: &Core) -> Result<()> {
    match core.project == dir.project {
        true => Ok(()),
        false => Err(Error::Code(Code::CrossRoot)),
    }
}

fn is_dir(found: &Found) -> bool {
    found.kind == FileKind::Directory as u8
}

/// Updates counts and times of a directory whose entries changed, in memory and in the record.
#[inline]
pub(crate) fn touch_dir(
    txn: &mut Txn<'_>,
    table: &InodeTable,
    dir: &mut Locked<'_>,
    entries: i64,
    links: i64,
    stamp: Stamp,
) {
    let item = touched(txn, table, dir, entries, links, stamp);
    if !txn.dir_touched(dir.ino()) {
        txn.log(item);
    }
}

/// As [`touch_dir`], only in memory. Returns the item that must be logged.
#[inline]
fn touched(
    txn: &mut Txn<'_>,
    table: &InodeTable,
    dir: &mut Locked<'_>,
    entries: i64,
    links: i64,
    stamp: Stamp,
) -> Item<'static> {
    txn.will_log_core(dir);
    let ino = dir.ino();
    let core = &mut dir.edit(table, txn.epoch()).core;
    core.size = core.size.wrapping_add_signed(entries);
    core.nlink = (i64::from(core.nlink) + links) as u32;
    core.mtime = stamp;
    core.ctime = stamp;
    Item::DirTouch { ino, nlink: core.nlink, size: core.size, stamp }
}

/// Sets the link count and ctime of an inode, in memory and in the record.
fn set_links(
    txn: &mut Txn<'_>,
    table: &InodeTable,
    inode: &mut Locked<'_>,
    nlink: u32,
    ctime: Stamp,
) {
    let ino = inode.ino();
    let core = &mut inode.edit(table, txn.epoch()).core;
    core.nlink = nlink;
    core.ctime = ctime;
    txn.log_core(inode, Item::Links { ino, nlink, ctime });
}
