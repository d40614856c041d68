//! The namespace: one file for each kind of call.
//!
//! Locks: a directory before its children; two directories of a rename without waiting for the
//! second while holding the first; children of a rename directories first, then by number.

mod create;
mod link;
mod lookup;
mod remove_tree;
mod rename;
mod roots;
mod unlink;

pub(crate) use unlink::Loss;

use crate::perm;
use crate::types::Caller;
use crate::volume::Inner;
use shoal_base::{Code, Error, Ino, Result};
use shoal_format::inode::{Core, Inode, Stamp};
use shoal_format::item::Item;
use shoal_itable::{InodeTable, Locked};
use shoal_txn::Txn;

/// Bytes that a call which makes a name is taken to want: its share of nodes and inode blocks.
const NAME_COST: u64 = 1024;

impl Inner {
    /// Checks that entries of this directory may be added or removed.
    #[inline]
    fn check_change(&self, who: &Caller, dir: Ino, inode: &Inode) -> Result<()> {
        check_dir(&inode.core)?;
        if inode.core.nlink == 0 {
            return Err(Error::Code(Code::NotFound));
        }
        self.permit(who, dir, inode, perm::WRITE | perm::EXEC)
    }

    /// Checks that names may be looked up in it: before anything is said of the name, as Linux
    /// does.
    #[inline]
    fn check_search(&self, who: &Caller, dir: Ino, inode: &Inode) -> Result<()> {
        check_dir(&inode.core)?;
        self.permit(who, dir, inode, perm::EXEC)
    }
}

/// An entry that names the directory it is in: damage, and locking it would never end.
#[cold]
fn names_itself(dir: Ino) -> Error {
    Error::corrupt(format!("entry of directory {dir}"), None, "names the directory itself")
}

/// Checks that it is a directory in use.
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

/// Notes in a directory that its entries changed: counts and times, in memory and in the record.
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
    txn.log(item);
}

/// The same in memory; returns the item that must be logged.
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
    let core = &mut dir.edit(table, txn.epoch).core;
    core.size = core.size.wrapping_add_signed(entries);
    core.nlink = (i64::from(core.nlink) + links) as u32;
    core.mtime = stamp;
    core.ctime = stamp;
    Item::DirTouch { ino, nlink: core.nlink, size: core.size, stamp }
}

/// Sets the links of an inode, and its ctime, in memory and in the record.
fn set_links(
    txn: &mut Txn<'_>,
    table: &InodeTable,
    inode: &mut Locked<'_>,
    nlink: u32,
    ctime: Stamp,
) {
    let ino = inode.ino();
    let core = &mut inode.edit(table, txn.epoch).core;
    core.nlink = nlink;
    core.ctime = ctime;
    txn.log_core(inode, Item::Links { ino, nlink, ctime });
}
