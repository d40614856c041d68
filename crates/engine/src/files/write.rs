//! Writing. A write that fits in the inode is one transaction. Any other has two parts: its objects
//! are planned, read and written outside of transactions and locks (`plan.rs`). Then one
//! transaction makes the file point to them if the file has not changed; otherwise the write is
//! planned again.

use super::plan::{WritePlan, Written};
use crate::clock::now;
use crate::files::Files;
use crate::permissions;
use crate::records::{self, WRITE_STEP};
use crate::stat::attr_of;
use crate::state::Writing;
use crate::xattr::{Pending, Plan};
use shoal_base::cold::{self, Section};
use shoal_base::limits::FILE_SIZE_MAX;
use shoal_base::timing::Call;
use shoal_base::{Code, Error, Ino, Result};
use shoal_format::inode::{Core, FLAG_CAPABILITY, FLAG_TRUNCATING, Form, Inode};
use shoal_format::item::Item;
use shoal_itable::Locked;
use shoal_txn::Txn;

/// Maximum attempts to plan a write outside of its transaction. Concurrent changes of the file
/// (truncate, fallocate, the cleaner) invalidate a plan; after this many attempts it is planned
/// inside.
const PLANS: usize = 4;

/// Arguments of a write.
#[derive(Clone, Copy)]
struct Request<'d> {
    ino: Ino,
    /// Offset in the file; `None` for an append.
    offset: Option<u64>,
    data: &'d [u8],
    strip: Strip,
}

/// Privileges that a write takes from the file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Strip {
    /// None: the contents were stored before, in a mapping.
    Nothing,
    /// The capabilities.
    Capability,
    /// The capabilities and the set-id bits.
    All,
}

impl Strip {
    fn of(kill_priv: bool) -> Strip {
        if kill_priv { Strip::All } else { Strip::Capability }
    }
}

/// Method of a write.
enum Way<'s> {
    /// There is no data to write; the offset.
    Nothing(u64),
    /// In the inode.
    Within,
    /// With objects, and a plan of them if one was requested.
    Objects(Option<WritePlan<'s>>),
    /// After the truncate in progress.
    AfterTruncate,
}

impl<'v> Files<'v> {
    /// Writes `data` at `offset`. With `kill_priv`, clears the set-id bits as for an unprivileged
    /// writer. Returns the number of bytes written: fewer than requested only after an error,
    /// usually a lack of space or memory. Writing the rest then returns the error.
    pub fn write(self, ino: Ino, offset: u64, data: &[u8], kill_priv: bool) -> Result<usize> {
        let write = || self.write_steps(ino, Some(offset), data, Strip::of(kill_priv));
        self.0.measured(Call::Write, write).map(|(_, written)| written)
    }

    /// Writes `data` that a program has stored in a mapping of the file some time before. Like a
    /// store on the kernel's own filesystems, it takes no privileges from the file. Otherwise as
    /// [`Files::write`].
    pub fn write_back(self, ino: Ino, offset: u64, data: &[u8]) -> Result<usize> {
        let write = || self.write_steps(ino, Some(offset), data, Strip::Nothing);
        self.0.measured(Call::Write, write).map(|(_, written)| written)
    }

    /// Appends to the file. Returns the offset and, as for a write, the number of bytes written.
    /// Concurrent appends never overlap, whatever their length.
    pub fn append(self, ino: Ino, data: &[u8], kill_priv: bool) -> Result<(u64, usize)> {
        self.0.measured(Call::Write, || self.write_steps(ino, None, data, Strip::of(kill_priv)))
    }

    fn write_steps(
        self,
        ino: Ino,
        offset: Option<u64>,
        data: &[u8],
        strip: Strip,
    ) -> Result<(u64, usize)> {
        let mut start = offset;
        // Kept for all steps: otherwise a concurrent append between two steps would be overwritten.
        let mut writing = None;
        let (mut written, mut tries) = (0, 0);
        loop {
            let step = &data[written..data.len().min(written + WRITE_STEP)];
            let offset = start.map(|s| s + written as u64);
            match self.write_step(Request { ino, offset, data: step, strip }, &mut writing) {
                Ok(at) => {
                    start.get_or_insert(at);
                    written += step.len();
                }
                // Other calls used the free space: free some, a few times.
                Err(e)
                    if e.is(Code::NoSpace)
                        && tries < 3
                        && self.0.make_room(step.len() as u64).is_ok_and(|made| made) =>
                {
                    tries += 1;
                    continue;
                }
                Err(e) if written == 0 => return Err(e),
                Err(_) => break,
            }
            if written == data.len() {
                break;
            }
        }
        Ok((start.unwrap_or(0), written))
    }

    /// Performs one transaction of a write. Returns the offset written at.
    fn write_step(self, request: Request<'_>, writing: &mut Option<Writing<'v>>) -> Result<u64> {
        let mut plans = 0;
        loop {
            // From the first plan on, other writers of this file are excluded.
            let way = self.way_of(&request, writing.is_some())?;
            match way {
                Way::Nothing(at) => return Ok(at),
                Way::AfterTruncate => self.finish_truncate(request.ino)?,
                Way::Within => {
                    if let Some(at) = self.write_within(&request)? {
                        return Ok(at);
                    }
                    // The contents no longer fit in the inode.
                    if writing.is_none() {
                        *writing = Some(self.0.writers.enter(request.ino)?);
                    }
                }
                Way::Objects(None) => {
                    // Before space is allocated, which would be of no use.
                    if cold::must_not_wait() && self.0.store.device().writes_wait() {
                        return Err(cold::refuse_device());
                    }
                    *writing = Some(self.0.writers.enter(request.ino)?);
                }
                Way::Objects(Some(mut plan)) => {
                    self.room_for(&request, plan.bytes())?;
                    let written = self.carry_out(request.ino, &mut plan, request.data)?;
                    let done = self.0.reading_first(|| self.point_to(&request, &plan, &written))?;
                    if done {
                        written.tail.into_iter().for_each(|tail| self.0.tails.put(tail));
                        return Ok(plan.at);
                    }
                    plans += 1;
                    if plans == PLANS {
                        return self.write_inside(&request);
                    }
                }
            }
        }
    }

    /// Checks the file and chooses the method of the write; with a plan if `planned`.
    fn way_of(self, request: &Request<'_>, planned: bool) -> Result<Way<'v>> {
        self.0.reading_first(|| {
            let inode = self.0.inode(request.ino)?;
            let _section = Section::begin();
            let slot = inode.read();
            let (at, end) = target(request, &slot.inode)?;
            let core = &slot.inode.core;
            let small = matches!(core.data_form, Form::Empty | Form::Inline);
            if request.data.is_empty() {
                return Ok(Way::Nothing(at));
            }
            if core.flags & FLAG_TRUNCATING != 0 {
                return Ok(Way::AfterTruncate);
            }
            if small && self.objects().fits_inline(&slot.inode, end) {
                return Ok(Way::Within);
            }
            let len = request.data.len();
            let plan = || self.plan_write(request.ino, &slot.inode, request.offset, len);
            planned.then(plan).transpose().map(Way::Objects)
        })
    }

    /// Makes space for the objects of a write, unless the range is preallocated.
    fn room_for(self, request: &Request<'_>, bytes: u64) -> Result<()> {
        self.begin_write(request, bytes + 4096).map(drop)
    }

    fn begin_write(self, request: &Request<'_>, bytes: u64) -> Result<Txn<'v>> {
        match self.0.begin_space(bytes, records::WRITE) {
            Err(e) if e.is(Code::NoSpace) && self.is_promised(request)? => {
                self.0.begin(records::WRITE)
            }
            other => other,
        }
    }

    /// Returns whether the range is preallocated: then its space exists even if the volume is full.
    fn is_promised(self, request: &Request<'_>) -> Result<bool> {
        let (Some(from), len) = (request.offset, request.data.len() as u64) else {
            return Ok(false);
        };
        let inode = self.0.inode(request.ino)?;
        let slot = inode.read();
        let extents = self.objects().extents_in(request.ino, &slot.inode, from, from + len)?;
        let promised = extents.iter().filter(|e| e.is_prealloc());
        let covered: u64 = promised.map(|e| e.end().min(from + len) - e.offset.max(from)).sum();
        Ok(covered == len)
    }

    /// Writes to the inode, in one transaction. Returns `None`, without a change, if the data no
    /// longer fits.
    fn write_within(self, request: &Request<'_>) -> Result<Option<u64>> {
        let Request { ino, data, .. } = *request;
        self.0.reading_first(|| {
            let mut txn = self.begin_write(request, data.len() as u64 * 2 + 4096)?;
            let inode = self.0.inode(ino)?;
            let mut locked = inode.write();
            let (at, end) = target(request, locked.inode())?;
            let core = locked.inode().core;
            let small = matches!(core.data_form, Form::Empty | Form::Inline);
            if core.flags & FLAG_TRUNCATING != 0
                || !small
                || !self.objects().fits_inline(locked.inode(), end)
            {
                return Ok(None);
            }
            txn.check_memory()?;
            let capability = self.plan_strip(request.strip, ino, locked.inode())?;
            let within = capability.is_none();
            self.orphans().before_change(&mut txn, &mut locked, within)?;
            self.write_inline(&mut txn, &mut locked, at, data)?;
            let dropped = self.strip(&mut txn, &mut locked, capability)?;
            self.note_write(&mut txn, &mut locked, end, request.strip)?;
            self.intents().finish(&mut txn, &mut locked, dropped)?;
            txn.stamp(&mut locked)?;
            txn.commit()?;
            Ok(Some(at))
        })
    }

    /// Performs the transaction of a write with objects. Returns `false`, without a change, if the
    /// file has changed since the write was planned.
    fn point_to(
        self,
        request: &Request<'_>,
        plan: &WritePlan<'_>,
        written: &Written<'_>,
    ) -> Result<bool> {
        // The space of its objects has been allocated; this is for metadata.
        let mut txn = self.begin_write(request, 4096)?;
        let inode = self.0.inode(request.ino)?;
        let mut locked = inode.write();
        let (_, end) = target(request, locked.inode())?;
        if locked.inode().core.flags & FLAG_TRUNCATING != 0
            || !self.is_as_seen(request.ino, locked.inode(), plan)?
        {
            return Ok(false);
        }
        self.replace_by(&mut txn, &mut locked, written, end, request.strip)?;
        txn.stamp(&mut locked)?;
        txn.commit()?;
        Ok(true)
    }

    /// Performs the whole write inside one transaction: for a file that other calls change too
    /// often.
    #[cold]
    fn write_inside(self, request: &Request<'_>) -> Result<u64> {
        loop {
            let mut txn = self.begin_write(request, request.data.len() as u64 * 2 + 4096)?;
            let inode = self.0.inode(request.ino)?;
            let mut locked = inode.write();
            let (at, end) = target(request, locked.inode())?;
            if locked.inode().core.flags & FLAG_TRUNCATING != 0 {
                drop((locked, txn));
                self.finish_truncate(request.ino)?;
                continue;
            }
            let len = request.data.len();
            let mut plan = self.plan_write(request.ino, locked.inode(), request.offset, len)?;
            let written = self.carry_out(request.ino, &mut plan, request.data)?;
            self.replace_by(&mut txn, &mut locked, &written, end, request.strip)?;
            txn.stamp(&mut locked)?;
            txn.commit()?;
            return Ok(at);
        }
    }

    /// Makes a locked file point to the written objects, and updates its core.
    fn replace_by(
        self,
        txn: &mut Txn<'_>,
        locked: &mut Locked<'_>,
        written: &Written<'_>,
        end: u64,
        strip: Strip,
    ) -> Result<()> {
        txn.check_memory()?;
        let capability = self.plan_strip(strip, locked.ino(), locked.inode())?;
        let new = &written.extents;
        if let Some((first, last)) = new.first().zip(new.last()) {
            self.objects().charge_growth(locked, first.offset, last.end(), new)?;
        }
        self.orphans().before_change(txn, locked, false)?;
        if let Some((first, last)) = new.first().zip(new.last()) {
            self.objects().outgrow_inline(txn, locked)?;
            self.objects().replace_extents(txn, locked, first.offset, last.end(), new)?;
        }
        let dropped = self.strip(txn, locked, capability)?;
        self.note_write(txn, locked, end, strip)?;
        self.intents().finish(txn, locked, dropped)
    }

    /// Plans the removal of the file's capabilities; `None` if there is nothing to remove. Must be
    /// called before the first change, because it may read.
    #[inline]
    fn plan_strip(self, strip: Strip, ino: Ino, inode: &Inode) -> Result<Option<Plan>> {
        match inode.core.flags & FLAG_CAPABILITY != 0 && strip != Strip::Nothing {
            true => self.permissions().plan_drop_capability(ino, inode).map(Some),
            false => Ok(None),
        }
    }

    /// Removes them. The caller must finish the returned intent.
    #[inline]
    fn strip(
        self,
        txn: &mut Txn<'_>,
        locked: &mut Locked<'_>,
        plan: Option<Plan>,
    ) -> Result<Option<Pending>> {
        plan.map_or(Ok(None), |plan| self.permissions().drop_capability(txn, locked, plan))
    }

    /// Updates size, times and set-id bits after a write.
    fn note_write(
        self,
        txn: &mut Txn<'_>,
        locked: &mut Locked<'_>,
        end: u64,
        strip: Strip,
    ) -> Result<()> {
        let (ino, time) = (locked.ino(), now());
        let core = &mut locked.edit(self.0.table(ino)?, txn.epoch()).core;
        core.size = core.size.max(end);
        core.mtime = time;
        core.ctime = time;
        if strip == Strip::All {
            // The writer's groups are unknown here. A mount sends a SETATTR before.
            permissions::kill_set_id(core, true);
        }
        let core: Core = *core;
        txn.log_core(locked, Item::Core { ino, core });
        Ok(())
    }

    fn write_inline(
        self,
        txn: &mut Txn<'_>,
        locked: &mut Locked<'_>,
        offset: u64,
        data: &[u8],
    ) -> Result<()> {
        let (ino, offset) = (locked.ino(), offset as usize);
        let inode = locked.edit(self.0.table(ino)?, txn.epoch());
        let mut bytes = std::mem::take(&mut inode.data).into_vec();
        bytes.resize(bytes.len().max(offset + data.len()), 0);
        bytes[offset..offset + data.len()].copy_from_slice(data);
        inode.data = bytes.into();
        inode.core.data_form = Form::Inline;
        txn.log(Item::DataFork { ino, form: Form::Inline, bytes: &inode.data });
        Ok(())
    }
}

/// Returns begin and end of a write in this file.
fn target(request: &Request<'_>, inode: &Inode) -> Result<(u64, u64)> {
    let core = &inode.core;
    attr_of(request.ino, inode)?;
    match core.kind() {
        8 => {}
        4 => return Err(Error::Code(Code::IsDirectory)),
        _ => return Err(Error::Code(Code::Invalid)),
    }
    let at = request.offset.unwrap_or(core.size);
    let end = at.checked_add(request.data.len() as u64).filter(|end| *end <= FILE_SIZE_MAX);
    Ok((at, end.ok_or(Error::Code(Code::FileTooBig))?))
}
