//! Preallocating space, punching holes, zeroing ranges.
//!
//! A range with many extents is processed in steps. Each is a transaction of bounded size that
//! leaves a consistent file. So after a crash, or a lack of space or memory, only the beginning of
//! the range may be done, as in XFS. Another thread of a program that uses the library may see this
//! state too (above a mount the kernel's inode lock prevents it).

use crate::clock::now;
use crate::files::Files;
use crate::records;
use crate::stat::attr_of;
use crate::types::Fallocate;
use shoal_base::cold::Section;
use shoal_base::limits::FILE_SIZE_MAX;
use shoal_base::timing::Call;
use shoal_base::{Code, Error, Ino, Result};
use shoal_format::extent::{Extent, PREALLOC_MAX};
use shoal_format::inode::{FLAG_TRUNCATING, Form, Inode};
use shoal_format::item::Item;
use shoal_itable::Locked;
use shoal_txn::{Store, Txn};
use std::cell::Cell;
use std::ops::Range;

/// Returns preallocated extents for `[from, to)`.
fn promise(from: u64, to: u64) -> Vec<Extent> {
    let mut extents = Vec::new();
    let mut at = from;
    while at < to {
        let len = (to - at).min(u64::from(PREALLOC_MAX)) as u32;
        extents.push(Extent::prealloc(at, len));
        at += u64::from(len);
    }
    extents
}

/// Returns the extents, which must be in order, and preallocated extents for the holes between them
/// in `[from, to)`.
fn filled(extents: &[Extent], from: u64, to: u64) -> Vec<Extent> {
    let (mut all, mut at) = (Vec::with_capacity(2 * extents.len() + 1), from);
    for extent in extents {
        if extent.offset > at {
            all.extend(promise(at, extent.offset));
        }
        all.push(*extent);
        at = at.max(extent.end());
    }
    if at < to {
        all.extend(promise(at, to));
    }
    all
}

/// Returns the bytes of `[from, to)` in those of the overlapping extents that `keeps` accepts.
fn kept_in(extents: &[Extent], from: u64, to: u64, keeps: impl Fn(&Extent) -> bool) -> u64 {
    let kept = extents.iter().filter(|e| keeps(e));
    kept.map(|e| u64::from(e.slice(from, to).len)).sum()
}

/// Space reserved for the steps of one call, so that no other call uses it.
struct Reserved<'s> {
    store: &'s Store,
    left: Cell<u64>,
}

impl<'s> Reserved<'s> {
    fn new(store: &'s Store, bytes: u64) -> Reserved<'s> {
        store.promises().reserve(bytes);
        Reserved { store, left: Cell::new(bytes) }
    }
    /// Releases bytes that a step has preallocated.
    fn used(&self, bytes: u64) {
        let bytes = bytes.min(self.left.get());
        self.left.set(self.left.get() - bytes);
        self.store.promises().release(bytes);
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        self.used(self.left.get());
    }
}

/// Result of a step.
enum Step {
    /// Everything before this offset is done; the step used this many bytes.
    Done { to: u64, took: u64 },
    /// Nothing has been done, because a truncate is in progress and must be finished first.
    Truncating,
}

impl<'v> Files<'v> {
    /// Preallocates, punches or zeroes `[offset, offset + len)`.
    ///
    /// # Errors
    /// `EINVAL` for an empty range or a file that is not regular, `EISDIR`, `EFBIG`. `ENOSPC` if
    /// the volume has too little space: before any change, unless other calls use the space
    /// meanwhile.
    pub fn fallocate(self, ino: Ino, mode: Fallocate, offset: u64, len: u64) -> Result<()> {
        self.0.measured(Call::Fallocate, || self.fallocate_all(ino, mode, offset, len))
    }

    fn fallocate_all(self, ino: Ino, mode: Fallocate, offset: u64, len: u64) -> Result<()> {
        if len == 0 {
            return Err(Error::Code(Code::Invalid));
        }
        let end = offset.checked_add(len).filter(|end| *end <= FILE_SIZE_MAX);
        let end = end.ok_or(Error::Code(Code::FileTooBig))?;
        let reserved = self.can_fallocate(ino, mode, offset, end)?;
        let mut at = offset;
        while at < end {
            match self.0.reading_first(|| self.fallocate_step(ino, mode, at, end))? {
                Step::Done { to, took } => {
                    reserved.used(took);
                    at = to;
                }
                Step::Truncating => self.finish_truncate(ino)?,
            }
        }
        Ok(())
    }

    /// Checks the file, and reserves space for the whole range before anything changes.
    fn can_fallocate(
        self,
        ino: Ino,
        mode: Fallocate,
        offset: u64,
        end: u64,
    ) -> Result<Reserved<'v>> {
        let mut wanted = match mode {
            Fallocate::PunchHole => 0,
            Fallocate::ZeroRange { .. } | Fallocate::Allocate { .. } => end - offset,
        };
        // Preallocated space is not needed again. Zeroed data keeps its place until the next
        // checkpoint.
        let keeps = |e: &Extent| e.is_prealloc() || matches!(mode, Fallocate::Allocate { .. });
        let mut at = offset;
        while at < end {
            let (to, kept) = self.0.reading_first(|| {
                let inode = self.0.inode(ino)?;
                let _section = Section::begin();
                let slot = inode.read();
                check_kind(ino, &slot.inode)?;
                if wanted == 0 {
                    return Ok((end, 0));
                }
                let to = self.objects().step_end(ino, &slot.inode, at, end)?;
                Ok((
                    to,
                    kept_in(&self.objects().extents_in(ino, &slot.inode, at, to)?, at, to, keeps),
                ))
            })?;
            wanted -= kept;
            at = to;
        }
        if wanted > 0 {
            if matches!(mode, Fallocate::Allocate { .. }) {
                // Each step takes its part.
                let (project, bytes) = self.0.table(ino)?.look(ino, |inode| {
                    (inode.core.project, self.with_inline(inode, wanted, offset..end))
                })?;
                drop(self.0.store.roots().projects().charge(project, 0, bytes)?);
            }
            drop(self.0.begin_space(wanted.saturating_add(4096), records::FALLOCATE)?);
        }
        Ok(Reserved::new(&self.0.store, wanted))
    }

    /// Returns the bytes that a file needs for a range which takes this many, with its contents if
    /// they leave the inode; none if they stay.
    fn with_inline(self, inode: &Inode, bytes: u64, range: Range<u64>) -> u64 {
        let len = inode.data.len() as u64;
        match inode.core.data_form {
            Form::Inline if self.objects().fits_inline(inode, range.end) => 0,
            Form::Inline => (bytes + len).saturating_sub(len.saturating_sub(range.start)),
            _ => bytes,
        }
    }

    /// Performs one transaction, from `at` on.
    fn fallocate_step(self, ino: Ino, mode: Fallocate, at: u64, end: u64) -> Result<Step> {
        let mut txn = self.0.begin(records::FALLOCATE)?;
        let inode = self.0.inode(ino)?;
        let mut locked = inode.write();
        check_kind(ino, locked.inode())?;
        if locked.inode().core.flags & FLAG_TRUNCATING != 0 {
            return Ok(Step::Truncating);
        }
        let to = match mode {
            // A range without data takes no time, however long it is.
            Fallocate::PunchHole => self.objects().hole_end(ino, locked.inode(), at, end)?,
            Fallocate::ZeroRange { .. } | Fallocate::Allocate { .. } => {
                self.objects().step_end(ino, locked.inode(), at, end)?
            }
        };
        let old = self.objects().extents_in(ino, locked.inode(), at, to)?;
        let took = match mode {
            Fallocate::PunchHole => 0,
            Fallocate::ZeroRange { .. } => to - at - kept_in(&old, at, to, Extent::is_prealloc),
            Fallocate::Allocate { .. } => to - at - kept_in(&old, at, to, |_| true),
        };
        txn.check_memory()?;
        let capability = self.permissions().plan_drop_capability(ino, locked.inode())?;
        if took > 0 && locked.inode().core.project != 0 {
            let freed = match mode {
                Fallocate::ZeroRange { .. } => kept_in(&old, at, to, |e| !e.is_prealloc()),
                _ => 0,
            };
            let bytes = took.saturating_sub(freed);
            locked.charge(self.with_inline(locked.inode(), bytes, at..to))?;
        }
        self.orphans().before_change(&mut txn, &mut locked, false)?;
        match mode {
            Fallocate::Allocate { .. } => self.reserve(&mut txn, &mut locked, at, to)?,
            Fallocate::PunchHole => self.clear(&mut txn, &mut locked, at, to, &[])?,
            Fallocate::ZeroRange { .. } => {
                self.clear(&mut txn, &mut locked, at, to, &promise(at, to))?;
            }
        }
        let keeps = match mode {
            Fallocate::Allocate { keep_size } | Fallocate::ZeroRange { keep_size } => keep_size,
            Fallocate::PunchHole => true,
        };
        let dropped = self.permissions().drop_capability(&mut txn, &mut locked, capability)?;
        let time = now();
        let core = &mut locked.edit(self.0.table(ino)?, txn.epoch()).core;
        if !keeps && to == end {
            core.size = core.size.max(end);
        }
        core.mtime = time;
        core.ctime = time;
        let core = *core;
        txn.log_core(&mut locked, Item::Core { ino, core });
        self.intents().finish(&mut txn, &mut locked, dropped)?;
        txn.stamp(&mut locked)?;
        txn.commit()?;
        Ok(Step::Done { to, took })
    }

    /// Preallocates the holes of the range.
    fn reserve(self, txn: &mut Txn<'_>, locked: &mut Locked<'_>, from: u64, to: u64) -> Result<()> {
        if !self.leave_inline(txn, locked, to)? {
            return Ok(());
        }
        let ino = locked.ino();
        let there = self.objects().extents_in(ino, locked.inode(), from, to)?;
        // Whole extents, so that none is split at the ends of the range.
        let start = there.first().map_or(from, |e| e.offset.min(from));
        let end = there.last().map_or(to, |e| e.end().max(to));
        self.objects().replace_extents(txn, locked, start, end, &filled(&there, from, to))
    }

    /// Replaces everything in the range by `new`.
    fn clear(
        self,
        txn: &mut Txn<'_>,
        locked: &mut Locked<'_>,
        from: u64,
        to: u64,
        new: &[Extent],
    ) -> Result<()> {
        let ino = locked.ino();
        let inline = locked.inode().core.data_form == Form::Inline;
        if inline && (new.is_empty() || self.objects().fits_inline(locked.inode(), to)) {
            let inode = locked.edit(self.0.table(ino)?, txn.epoch());
            let len = inode.data.len();
            let (a, b) = (len.min(from as usize), len.min(to.min(len as u64) as usize));
            inode.data[a..b].fill(0);
            txn.log(Item::DataFork { ino, form: Form::Inline, bytes: &inode.data });
            return Ok(());
        }
        self.leave_inline(txn, locked, u64::MAX)?;
        self.objects().replace_extents(txn, locked, from, to, new)
    }

    /// Converts an inline file that does not fit in the inode up to `end` to extents. Returns
    /// `false` if it stays inline.
    fn leave_inline(self, txn: &mut Txn<'_>, locked: &mut Locked<'_>, end: u64) -> Result<bool> {
        let form = locked.inode().core.data_form;
        if form == Form::Inline {
            if self.objects().fits_inline(locked.inode(), end) {
                return Ok(false);
            }
            let extent = self.objects().write_object(locked.ino(), 0, &[&locked.inode().data])?;
            self.objects().outgrow_inline(txn, locked)?;
            self.objects().replace_extents(txn, locked, 0, extent.end(), &[extent])?;
        }
        Ok(true)
    }
}

/// Checks that an inode is a regular file in use.
fn check_kind(ino: Ino, inode: &Inode) -> Result<()> {
    attr_of(ino, inode)?;
    match inode.core.kind() {
        8 => Ok(()),
        4 => Err(Error::Code(Code::IsDirectory)),
        _ => Err(Error::Code(Code::Invalid)),
    }
}
