//! Reading, and searching for data and holes.

use crate::clock::now;
use crate::files::Files;
use crate::objects::END;
use crate::records;
use crate::stat::attr_of;
use crate::types::Seek;
use shoal_base::cold::Section;
use shoal_base::timing::Call;
use shoal_base::{Code, Error, Ino, Result};
use shoal_format::extent::Extent;
use shoal_format::inode::{Core, Form, Inode};
use shoal_format::node::Key;
use shoal_space::Hold;
use std::sync::atomic::Ordering;

/// Age in seconds from which on an access time is updated even without a change (as the kernel's
/// `relatime`).
const ATIME_SECONDS: i64 = 24 * 3600;

impl<'v> Files<'v> {
    /// Switches the updates of access times on or off, in place of
    /// [`crate::OpenOptions::noatime`].
    pub fn set_noatime(self, noatime: bool) {
        self.0.noatime.store(noatime, Ordering::Relaxed);
    }

    /// Reads up to `buf.len()` bytes at `offset`; fewer only at the end of the file.
    pub fn read(self, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.0.measured(Call::Read, || self.read_file(ino, offset, buf))
    }

    /// Reads without a change of the access time (`O_NOATIME`). Otherwise as [`Files::read`].
    pub fn read_noatime(self, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let read = || self.read_data(ino, offset, buf).map(|(read, _)| read);
        self.0.measured(Call::Read, read)
    }

    fn read_data(self, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<(usize, Core)> {
        self.read_as(ino, offset, buf, |inode| match inode.core.kind() {
            8 => Ok(()),
            4 => Err(Error::Code(Code::IsDirectory)),
            _ => {
                attr_of(ino, inode)?;
                Err(Error::Code(Code::Invalid))
            }
        })
    }

    fn read_file(self, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let (read, core) = self.read_data(ino, offset, buf)?;
        if read > 0 && self.atime_is_stale(&core) {
            self.renew_atime(ino)?;
        }
        Ok(read)
    }

    /// Reads the contents of an inode of any type (for symlinks).
    pub(crate) fn read_any(self, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.read_as(ino, offset, buf, |_| Ok(())).map(|(read, _)| read)
    }

    /// Reads from an inode that `check` accepts. Returns the number of bytes, and the inode's core.
    ///
    /// The inode is locked only to find its extents. They are read without the lock, because
    /// transactions may wait for the lock, and a checkpoint and all other calls for these. The
    /// result is nevertheless one state of the file: objects never change, and are held.
    fn read_as(
        self,
        ino: Ino,
        offset: u64,
        buf: &mut [u8],
        check: impl Fn(&Inode) -> Result<()>,
    ) -> Result<(usize, Core)> {
        let (len, core, held) = self.0.reading_first(|| {
            let inode = self.0.inode(ino)?;
            let _section = Section::begin();
            let slot = inode.read();
            check(&slot.inode)?;
            let core = slot.inode.core;
            let len = core.size.saturating_sub(offset).min(buf.len() as u64) as usize;
            let held = self.find_bytes(ino, &slot.inode, offset, &mut buf[..len])?;
            Ok((len, core, held))
        })?;
        if let Some((extents, _holds)) = held {
            self.read_extents(ino, &extents, offset, &mut buf[..len])?;
        }
        Ok((len, core))
    }

    /// Copies the bytes that are in the inode itself to `buf`. Returns the extents of others, with
    /// holds.
    fn find_bytes(
        self,
        ino: Ino,
        inode: &Inode,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<Option<(Vec<Extent>, Vec<Hold<'v>>)>> {
        if buf.is_empty() {
            return Ok(None);
        }
        match inode.core.data_form {
            Form::Empty => buf.fill(0),
            Form::Inline => {
                let have = inode.data.get(offset as usize..).unwrap_or_default();
                let n = have.len().min(buf.len());
                buf[..n].copy_from_slice(&have[..n]);
                buf[n..].fill(0);
            }
            Form::Extents | Form::Tree => {
                let extents =
                    self.objects().extents_in(ino, inode, offset, offset + buf.len() as u64)?;
                let holds = self.objects().hold_extents(&extents);
                return Ok(Some((extents, holds)));
            }
        }
        Ok(None)
    }

    fn read_extents(self, ino: Ino, extents: &[Extent], offset: u64, buf: &mut [u8]) -> Result<()> {
        let end = offset + buf.len() as u64;
        let mut at = offset;
        for extent in extents {
            let (from, to) = (extent.offset.max(offset), extent.end().min(end));
            if from < at || from >= to {
                let rule = format!("overlapping extents at {from}");
                return Err(Error::corrupt(format!("inode {ino}"), None, rule));
            }
            buf[(at - offset) as usize..(from - offset) as usize].fill(0);
            let out = &mut buf[(from - offset) as usize..(to - offset) as usize];
            self.objects().read_extent(ino, extent, (from - extent.offset) as usize, out)?;
            at = to;
        }
        buf[(at - offset) as usize..].fill(0);
        Ok(())
    }

    fn atime_is_stale(self, core: &Core) -> bool {
        if self.0.noatime.load(Ordering::Relaxed) || self.0.store.writable().is_err() {
            return false;
        }
        let old = now().sec.saturating_sub(core.atime.sec) >= ATIME_SECONDS;
        core.atime <= core.mtime || core.atime <= core.ctime || old
    }

    fn renew_atime(self, ino: Ino) -> Result<()> {
        // Whoever keeps copies asks now and then: reads would end those of everybody who walks.
        let mut txn = match self.0.begin(records::ATIME.beside_copies()) {
            Ok(txn) => txn,
            // The read succeeds even if nothing can be written.
            Err(_) => return Ok(()),
        };
        let inode = self.0.inode(ino)?;
        let mut locked = inode.write();
        let core = locked.inode().core;
        if core.in_use() && self.atime_is_stale(&core) {
            // Never before the times that it is compared with, although the clock is coarse.
            let atime = now().max(core.mtime).max(core.ctime);
            if atime != core.atime {
                self.orphans().before_change(&mut txn, &mut locked, true)?;
                self.0.put_core(&mut txn, &mut locked, Core { atime, ..core })?;
            }
        }
        txn.stamp(&mut locked)?;
        txn.commit().map(|_| ())
    }

    /// Returns the first data or hole at or after `offset`; `ENXIO` at or past the end.
    /// Preallocated space counts as data.
    pub fn seek(self, ino: Ino, offset: u64, what: Seek) -> Result<u64> {
        self.0.measured(Call::Seek, || self.find(ino, offset, what))
    }

    fn find(self, ino: Ino, offset: u64, what: Seek) -> Result<u64> {
        let inode = self.0.inode(ino)?;
        let slot = inode.read();
        let (core, size) = (&slot.inode.core, slot.inode.core.size);
        if !core.is_file() {
            return Err(Error::Code(Code::Invalid));
        }
        if offset >= size {
            return Err(Error::Code(Code::NoDevice));
        }
        if core.data_form == Form::Inline {
            let data_end = (slot.inode.data.len() as u64).min(size);
            return match what {
                Seek::Data if offset < data_end => Ok(offset),
                Seek::Data => Err(Error::Code(Code::NoDevice)),
                Seek::Hole => Ok(if offset < data_end { data_end } else { offset }),
            };
        }
        match what {
            Seek::Data => {
                let next = self.next_extent(ino, &slot.inode, offset)?.filter(|e| e.offset < size);
                next.map(|e| e.offset.max(offset)).ok_or(Error::Code(Code::NoDevice))
            }
            Seek::Hole => {
                let mut at = offset;
                while let Some(extent) = self.next_extent(ino, &slot.inode, at)? {
                    if extent.offset > at {
                        break;
                    }
                    at = extent.end();
                }
                Ok(at.min(size))
            }
        }
    }

    /// Returns the first extent that ends after `at`.
    fn next_extent(self, ino: Ino, inode: &Inode, at: u64) -> Result<Option<Extent>> {
        if inode.core.data_form != Form::Tree {
            return Ok(self.objects().extents_in(ino, inode, at, u64::MAX)?.first().copied());
        }
        if let Some(covering) = self.objects().extents_in(ino, inode, at, at + 1)?.first() {
            return Ok(Some(*covering));
        }
        let (from, end) = (Key::of(ino, at), Key::of(ino, END));
        let mut next = None;
        self.0.store.root(ino)?.extents.for_each(from, end, &mut |key, raw| {
            next = Extent::decode_value(key.lo, raw);
            Ok(false)
        })?;
        Ok(next)
    }
}
