//! Reserving space, making holes, zeroing ranges.

use crate::attr::attr_of;
use crate::clock::now;
use crate::types::Fallocate;
use crate::volume::Inner;
use shoal_base::limits::FILE_SIZE_MAX;
use shoal_base::{Code, Error, Ino, Result};
use shoal_format::Ptr;
use shoal_format::extent::{Extent, PREALLOC_MAX};
use shoal_format::inode::{FLAG_CUT, Form};
use shoal_format::item::Item;
use shoal_itable::Locked;
use shoal_txn::Txn;

/// Preallocated extents for `[from, to)`.
fn promise(from: u64, to: u64) -> Vec<Extent> {
    let mut extents = Vec::new();
    let mut at = from;
    while at < to {
        let len = (to - at).min(u64::from(PREALLOC_MAX)) as u32;
        extents.push(Extent { offset: at, len, skip: 0, ptr: Ptr::NULL });
        at += u64::from(len);
    }
    extents
}

impl Inner {
    /// Reserves, punches or zeroes `[offset, offset + len)`.
    pub fn fallocate(&self, ino: Ino, mode: Fallocate, offset: u64, len: u64) -> Result<()> {
        if len == 0 {
            return Err(Error::Code(Code::Invalid));
        }
        let end = offset.checked_add(len).filter(|end| *end <= FILE_SIZE_MAX);
        let end = end.ok_or(Error::Code(Code::FileTooBig))?;
        let mut txn = match mode {
            Fallocate::PunchHole => self.begin()?,
            _ => self.begin_space(len.saturating_add(4096))?,
        };
        let inode = self.inode(ino)?;
        let mut locked = inode.write();
        attr_of(ino, locked.inode())?;
        if !locked.inode().core.is_file() {
            let dir = locked.inode().core.is_dir();
            return Err(Error::Code(if dir { Code::IsDirectory } else { Code::Invalid }));
        }
        if locked.inode().core.flags & FLAG_CUT != 0 {
            drop((locked, txn));
            self.finish_cut(ino)?;
            return self.fallocate(ino, mode, offset, len);
        }
        self.before_change(&mut txn, &mut locked, false)?;
        let keep_size = match mode {
            Fallocate::Allocate { keep_size } => {
                self.reserve(&mut txn, &mut locked, offset, end)?;
                keep_size
            }
            Fallocate::PunchHole => {
                let stop = end.min(locked.inode().core.size);
                self.clear(&mut txn, &mut locked, offset, end.max(stop), &[])?;
                true
            }
            Fallocate::ZeroRange { keep_size } => {
                self.clear(&mut txn, &mut locked, offset, end, &promise(offset, end))?;
                keep_size
            }
        };
        let dropped = self.drop_capability(&mut txn, &mut locked)?;
        let (time, lsn) = (now(), txn.lsn_before());
        let core = &mut locked.edit(self.table(ino)?, txn.epoch).core;
        if !keep_size {
            core.size = core.size.max(end);
        }
        core.mtime = time;
        core.ctime = time;
        core.lsn = lsn;
        let core = *core;
        txn.log(Item::Core { ino, core });
        self.finish(&mut txn, &mut locked, dropped)?;
        txn.commit().map(|_| ())
    }

    /// Fills the holes of the range with promises.
    fn reserve(
        &self,
        txn: &mut Txn<'_>,
        locked: &mut Locked<'_>,
        from: u64,
        to: u64,
    ) -> Result<()> {
        if !self.leave_inline(txn, locked, to)? {
            return Ok(());
        }
        let ino = locked.ino();
        let mut new = Vec::new();
        let mut at = from;
        for extent in self.extents_in(ino, locked.inode(), from, to)? {
            if extent.offset > at {
                new.extend(promise(at, extent.offset));
            }
            new.push(extent.slice(from, to));
            at = extent.end();
        }
        if at < to {
            new.extend(promise(at, to));
        }
        self.replace_extents(txn, locked, from, to, &new)
    }

    /// Puts `new` in the range, in place of everything there.
    fn clear(
        &self,
        txn: &mut Txn<'_>,
        locked: &mut Locked<'_>,
        from: u64,
        to: u64,
        new: &[Extent],
    ) -> Result<()> {
        let ino = locked.ino();
        let inline = locked.inode().core.data_form == Form::Inline;
        if inline && (new.is_empty() || self.fits_inline(locked.inode(), to)) {
            let inode = locked.edit(self.table(ino)?, txn.epoch);
            let len = inode.data.len();
            let (a, b) = (len.min(from as usize), len.min(to.min(len as u64) as usize));
            inode.data[a..b].fill(0);
            txn.log(Item::DataFork { ino, form: Form::Inline, bytes: &inode.data });
            return Ok(());
        }
        self.leave_inline(txn, locked, u64::MAX)?;
        self.replace_extents(txn, locked, from, to, new)
    }

    /// Makes a file that shall reach `end` use extents if it has to; returns whether it does.
    fn leave_inline(&self, txn: &mut Txn<'_>, locked: &mut Locked<'_>, end: u64) -> Result<bool> {
        let form = locked.inode().core.data_form;
        if form == Form::Inline {
            if self.fits_inline(locked.inode(), end) {
                return Ok(false);
            }
            let extent = self.write_object(locked.ino(), 0, &[&locked.inode().data])?;
            self.outgrow_inline(txn, locked)?;
            self.replace_extents(txn, locked, 0, extent.end(), &[extent])?;
        }
        Ok(true)
    }
}
