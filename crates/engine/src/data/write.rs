//! Writing. A write that fits in the inode is one transaction. Any other has two parts: its objects
//! are planned, read and written outside of transactions and locks (`plan.rs`), then one
//! transaction makes the file point to them if it is still what it was; if not, it is planned
//! again.

use super::plan::{WritePlan, Written};
use super::writers::Writing;
use crate::attr::attr_of;
use crate::clock::now;
use crate::perm;
use crate::records::{self, WRITE_STEP};
use crate::volume::Inner;
use shoal_base::cold::Section;
use shoal_base::limits::FILE_SIZE_MAX;
use shoal_base::{Code, Error, Ino, Result};
use shoal_format::inode::{Core, FLAG_CAPABILITY, FLAG_CUT, Form, Inode};
use shoal_format::item::Item;
use shoal_itable::Locked;
use shoal_txn::Txn;

/// Times that a write is planned outside of its transaction. Others that change the file meanwhile
/// (truncate, fallocate, the cleaner) make that useless; after so many it is planned inside.
const PLANS: usize = 4;

/// What to write, to where, how.
#[derive(Clone, Copy)]
struct Request<'d> {
    ino: Ino,
    /// None: at the end of the file.
    offset: Option<u64>,
    data: &'d [u8],
    kill_priv: bool,
}

/// How a write is going to happen.
enum Way<'s> {
    /// There is nothing to write; the offset.
    Nothing(u64),
    /// In the inode.
    Within,
    /// By objects; with a plan of them if one was asked for.
    Objects(Option<WritePlan<'s>>),
    /// After the truncate of the file that is under way.
    AfterCut,
}

impl Inner {
    /// Writes `data` at `offset`. `kill_priv`: clears set-id bits as for an unprivileged writer.
    /// Returns how much was written: less than all only when it failed on the way, as a rule
    /// because space or memory ran out. Writing the rest then says why.
    pub fn write(&self, ino: Ino, offset: u64, data: &[u8], kill_priv: bool) -> Result<usize> {
        self.write_steps(ino, Some(offset), data, kill_priv).map(|(_, written)| written)
    }

    /// Writes at the end of the file, wherever that is; returns the offset, and how much was
    /// written, as for a write. What several threads append never overlaps, however long it is.
    pub fn append(&self, ino: Ino, data: &[u8], kill_priv: bool) -> Result<(u64, usize)> {
        self.write_steps(ino, None, data, kill_priv)
    }

    fn write_steps(
        &self,
        ino: Ino,
        offset: Option<u64>,
        data: &[u8],
        kill_priv: bool,
    ) -> Result<(u64, usize)> {
        let mut start = offset;
        // Kept from step to step: another one's append between two of ours would be overwritten.
        let mut writing = None;
        let (mut written, mut tries) = (0, 0);
        loop {
            let step = &data[written..data.len().min(written + WRITE_STEP)];
            let offset = start.map(|s| s + written as u64);
            match self.write_step(Request { ino, offset, data: step, kill_priv }, &mut writing) {
                Ok(at) => {
                    start.get_or_insert(at);
                    written += step.len();
                }
                // Others took the room that there was: make some, a few times.
                Err(e)
                    if e.is(Code::NoSpace)
                        && tries < 3
                        && self.make_room(step.len() as u64).is_ok_and(|made| made) =>
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

    /// One transaction of a write; returns the offset written at.
    fn write_step<'w>(
        &'w self,
        request: Request<'_>,
        writing: &mut Option<Writing<'w>>,
    ) -> Result<u64> {
        let mut plans = 0;
        loop {
            // From the first plan on, no other writer of this file comes between.
            let way = self.way_of(&request, writing.is_some())?;
            match way {
                Way::Nothing(at) => return Ok(at),
                Way::AfterCut => self.finish_cut(request.ino)?,
                Way::Within => {
                    if let Some(at) = self.write_within(&request)? {
                        return Ok(at);
                    }
                    // It has outgrown the inode.
                    writing.get_or_insert_with(|| self.writers.enter(request.ino));
                }
                Way::Objects(None) => {
                    *writing = Some(self.writers.enter(request.ino));
                }
                Way::Objects(Some(mut plan)) => {
                    self.room_for(&request, plan.bytes())?;
                    let written = self.carry_out(request.ino, &mut plan, request.data)?;
                    let done = self.reading_first(|| self.point_to(&request, &plan, &written))?;
                    if done {
                        written.tail.into_iter().for_each(|tail| self.tails.put(tail));
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

    /// Checks the file, and finds out how it is to be written to; with a plan if one is wanted.
    fn way_of(&self, request: &Request<'_>, planned: bool) -> Result<Way<'_>> {
        self.reading_first(|| {
            let inode = self.inode(request.ino)?;
            let _section = Section::begin();
            let slot = inode.read();
            let (at, end) = target(request, &slot.inode)?;
            let core = &slot.inode.core;
            let small = matches!(core.data_form, Form::Empty | Form::Inline);
            if request.data.is_empty() {
                return Ok(Way::Nothing(at));
            }
            if core.flags & FLAG_CUT != 0 {
                return Ok(Way::AfterCut);
            }
            if small && self.fits_inline(&slot.inode, end) {
                return Ok(Way::Within);
            }
            let len = request.data.len();
            let plan = || self.plan_write(request.ino, &slot.inode, request.offset, len);
            planned.then(plan).transpose().map(Way::Objects)
        })
    }

    /// Makes room for the objects of a write, unless it is promised to the range.
    fn room_for(&self, request: &Request<'_>, bytes: u64) -> Result<()> {
        self.begin_write(request, bytes + 4096).map(drop)
    }

    fn begin_write(&self, request: &Request<'_>, bytes: u64) -> Result<Txn<'_>> {
        match self.begin_space(bytes, records::WRITE) {
            Err(e) if e.is(Code::NoSpace) && self.is_promised(request)? => {
                self.begin(records::WRITE)
            }
            other => other,
        }
    }

    /// Whether the range is preallocated: its space is there though the volume is full.
    fn is_promised(&self, request: &Request<'_>) -> Result<bool> {
        let (Some(from), len) = (request.offset, request.data.len() as u64) else {
            return Ok(false);
        };
        let inode = self.inode(request.ino)?;
        let slot = inode.read();
        let extents = self.extents_in(request.ino, &slot.inode, from, from + len)?;
        let promised = extents.iter().filter(|e| e.is_prealloc());
        let covered: u64 = promised.map(|e| e.end().min(from + len) - e.offset.max(from)).sum();
        Ok(covered == len)
    }

    /// A write in the inode, one transaction. `None`, and nothing done: it does not fit any more.
    fn write_within(&self, request: &Request<'_>) -> Result<Option<u64>> {
        let Request { ino, data, .. } = *request;
        self.reading_first(|| {
            let mut txn = self.begin_write(request, data.len() as u64 * 2 + 4096)?;
            let inode = self.inode(ino)?;
            let mut locked = inode.write();
            let (at, end) = target(request, locked.inode())?;
            let core = locked.inode().core;
            let small = matches!(core.data_form, Form::Empty | Form::Inline);
            if core.flags & FLAG_CUT != 0 || !small || !self.fits_inline(locked.inode(), end) {
                return Ok(None);
            }
            txn.check_memory()?;
            let capability = self.plan_drop_capability(ino, locked.inode())?;
            let within = core.flags & FLAG_CAPABILITY == 0;
            self.before_change(&mut txn, &mut locked, within)?;
            self.write_inline(&mut txn, &mut locked, at, data)?;
            let dropped = self.drop_capability(&mut txn, &mut locked, capability)?;
            self.note_write(&mut txn, &mut locked, end, request.kill_priv)?;
            self.finish(&mut txn, &mut locked, dropped)?;
            txn.stamp(&mut locked)?;
            txn.commit()?;
            Ok(Some(at))
        })
    }

    /// The transaction of a write by objects. `false`, and nothing done: the file is not what it
    /// was when the write was planned.
    fn point_to(
        &self,
        request: &Request<'_>,
        plan: &WritePlan<'_>,
        written: &Written<'_>,
    ) -> Result<bool> {
        // The room for its objects has been taken; this is for records.
        let mut txn = self.begin_write(request, 4096)?;
        let inode = self.inode(request.ino)?;
        let mut locked = inode.write();
        let (_, end) = target(request, locked.inode())?;
        if locked.inode().core.flags & FLAG_CUT != 0
            || !self.is_as_seen(request.ino, locked.inode(), plan)?
        {
            return Ok(false);
        }
        self.replace_by(&mut txn, &mut locked, written, end, request.kill_priv)?;
        txn.stamp(&mut locked)?;
        txn.commit()?;
        Ok(true)
    }

    /// The whole write inside one transaction: for a file that others do not leave alone.
    #[cold]
    fn write_inside(&self, request: &Request<'_>) -> Result<u64> {
        loop {
            let mut txn = self.begin_write(request, request.data.len() as u64 * 2 + 4096)?;
            let inode = self.inode(request.ino)?;
            let mut locked = inode.write();
            let (at, end) = target(request, locked.inode())?;
            if locked.inode().core.flags & FLAG_CUT != 0 {
                drop((locked, txn));
                self.finish_cut(request.ino)?;
                continue;
            }
            let len = request.data.len();
            let mut plan = self.plan_write(request.ino, locked.inode(), request.offset, len)?;
            let written = self.carry_out(request.ino, &mut plan, request.data)?;
            self.replace_by(&mut txn, &mut locked, &written, end, request.kill_priv)?;
            txn.stamp(&mut locked)?;
            txn.commit()?;
            return Ok(at);
        }
    }

    /// Makes a locked file point to what was written, and notes the write in its core.
    fn replace_by(
        &self,
        txn: &mut Txn<'_>,
        locked: &mut Locked<'_>,
        written: &Written<'_>,
        end: u64,
        kill_priv: bool,
    ) -> Result<()> {
        txn.check_memory()?;
        let capability = self.plan_drop_capability(locked.ino(), locked.inode())?;
        self.before_change(txn, locked, false)?;
        let new = &written.extents;
        if let Some((first, last)) = new.first().zip(new.last()) {
            self.outgrow_inline(txn, locked)?;
            self.replace_extents(txn, locked, first.offset, last.end(), new)?;
        }
        let dropped = self.drop_capability(txn, locked, capability)?;
        self.note_write(txn, locked, end, kill_priv)?;
        self.finish(txn, locked, dropped)
    }

    /// Size, times and set-id bits after a write.
    fn note_write(
        &self,
        txn: &mut Txn<'_>,
        locked: &mut Locked<'_>,
        end: u64,
        kill_priv: bool,
    ) -> Result<()> {
        let (ino, time) = (locked.ino(), now());
        let core = &mut locked.edit(self.table(ino)?, txn.epoch).core;
        core.size = core.size.max(end);
        core.mtime = time;
        core.ctime = time;
        if kill_priv {
            // Of the writer's groups nothing is known here. A mount sends a SETATTR before.
            perm::kill_set_id(core, true);
        }
        let core: Core = *core;
        txn.log_core(locked, Item::Core { ino, core });
        Ok(())
    }

    fn write_inline(
        &self,
        txn: &mut Txn<'_>,
        locked: &mut Locked<'_>,
        offset: u64,
        data: &[u8],
    ) -> Result<()> {
        let (ino, offset) = (locked.ino(), offset as usize);
        let inode = locked.edit(self.table(ino)?, txn.epoch);
        let mut bytes = std::mem::take(&mut inode.data).into_vec();
        bytes.resize(bytes.len().max(offset + data.len()), 0);
        bytes[offset..offset + data.len()].copy_from_slice(data);
        inode.data = bytes.into();
        inode.core.data_form = Form::Inline;
        txn.log(Item::DataFork { ino, form: Form::Inline, bytes: &inode.data });
        Ok(())
    }

    /// Contents that were inline are on the device now: the fork is empty.
    pub(crate) fn outgrow_inline(&self, txn: &mut Txn<'_>, locked: &mut Locked<'_>) -> Result<()> {
        if locked.inode().core.data_form != Form::Inline {
            return Ok(());
        }
        let ino = locked.ino();
        // What follows goes to the map: a failure to read it must come before this change.
        self.read_records(ino, &[], &[], None)?;
        let inode = locked.edit(self.table(ino)?, txn.epoch);
        inode.core.data_form = Form::Empty;
        inode.data = Box::default();
        txn.log(Item::DataFork { ino, form: Form::Empty, bytes: &[] });
        Ok(())
    }
}

/// Where a write begins and ends in this file.
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
