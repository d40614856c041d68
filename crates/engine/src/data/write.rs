//! Writing.
//!
//! Each window of 128 KiB of a file is written as few objects. A write takes neighbouring extents
//! along when they are not much larger than itself, as a log-structured merge does: a thousand
//! appends of 4 KiB leave about one extent for each window and a few at the end, and each byte is
//! rewritten a few times at most.

use crate::attr::attr_of;
use crate::clock::now;
use crate::perm;
use crate::volume::Inner;
use shoal_base::limits::{EXTENT_MAX, FILE_SIZE_MAX};
use shoal_base::{Code, Error, Ino, Result};
use shoal_format::extent::Extent;
use shoal_format::inode::{Core, FLAG_CAPABILITY, FLAG_CUT, Form, Inode};
use shoal_format::item::Item;
use shoal_itable::Locked;
use shoal_txn::Txn;

/// Bytes of a window: objects do not cross their boundaries.
const WINDOW: u64 = EXTENT_MAX as u64;
/// Bytes written in one transaction.
pub(super) const STEP: usize = 1 << 20;
/// Extents of a window at which a write into it joins them all.
const PIECES_MAX: usize = 8;

impl Inner {
    /// Writes `data` at `offset`. `kill_priv`: clears set-id bits as for an unprivileged writer.
    /// Returns how much was written: less than all only when space ran out on the way.
    pub fn write(&self, ino: Ino, offset: u64, data: &[u8], kill_priv: bool) -> Result<usize> {
        self.write_steps(ino, Some(offset), data, kill_priv).map(|(_, written)| written)
    }

    /// Writes at the end of the file, wherever that is; returns the offset.
    pub fn append(&self, ino: Ino, data: &[u8], kill_priv: bool) -> Result<u64> {
        self.write_steps(ino, None, data, kill_priv).map(|(offset, _)| offset)
    }

    fn write_steps(
        &self,
        ino: Ino,
        offset: Option<u64>,
        data: &[u8],
        kill_priv: bool,
    ) -> Result<(u64, usize)> {
        let mut start = offset;
        let (mut written, mut tries) = (0, 0);
        loop {
            let step = &data[written..data.len().min(written + STEP)];
            let at = start.map(|s| s + written as u64);
            match self.write_step(ino, at, step, kill_priv) {
                Ok(at) => {
                    start.get_or_insert(at);
                    written += step.len();
                }
                // Others took the room that there was: make some, a few times.
                Err(e) if e.is(Code::NoSpace) && tries < 3 => {
                    self.make_room()?;
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
    fn write_step(
        &self,
        ino: Ino,
        offset: Option<u64>,
        data: &[u8],
        kill_priv: bool,
    ) -> Result<u64> {
        // Neighbours taken along, headers and records come on top.
        let mut txn = match self.begin_space(data.len() as u64 * 2 + 4096) {
            Err(e) if e.is(Code::NoSpace) && self.is_promised(ino, offset, data.len())? => {
                self.begin()?
            }
            other => other?,
        };
        let inode = self.inode(ino)?;
        let mut locked = inode.write();
        let core = locked.inode().core;
        attr_of(ino, locked.inode())?;
        match core.kind() {
            8 => {}
            4 => return Err(Error::Code(Code::IsDirectory)),
            _ => return Err(Error::Code(Code::Invalid)),
        }
        let given = offset;
        let offset = offset.unwrap_or(core.size);
        let end = offset.checked_add(data.len() as u64).filter(|end| *end <= FILE_SIZE_MAX);
        let end = end.ok_or(Error::Code(Code::FileTooBig))?;
        if data.is_empty() {
            return Ok(offset);
        }
        if core.flags & FLAG_CUT != 0 {
            drop((locked, txn));
            self.finish_cut(ino)?;
            return self.write_step(ino, given, data, kill_priv);
        }
        txn.check_memory()?;
        let small = matches!(core.data_form, Form::Empty | Form::Inline);
        let within = small && self.fits_inline(locked.inode(), end);
        self.before_change(&mut txn, &mut locked, within && core.flags & FLAG_CAPABILITY == 0)?;
        self.write_locked(&mut txn, &mut locked, offset, data)?;
        let dropped = self.drop_capability(&mut txn, &mut locked)?;
        let (time, lsn) = (now(), txn.lsn_before());
        let core = &mut locked.edit(self.table(ino)?, txn.epoch).core;
        core.size = core.size.max(end);
        core.mtime = time;
        core.ctime = time;
        core.lsn = lsn;
        if kill_priv {
            // Of the writer's groups nothing is known here. A mount sends a SETATTR before.
            perm::kill_set_id(core, true);
        }
        let core: Core = *core;
        txn.log(Item::Core { ino, core });
        self.finish(&mut txn, &mut locked, dropped)?;
        txn.commit()?;
        Ok(offset)
    }

    /// Whether the range is preallocated: its space is there though the volume is full.
    fn is_promised(&self, ino: Ino, offset: Option<u64>, len: usize) -> Result<bool> {
        let Some(from) = offset else { return Ok(false) };
        let inode = self.inode(ino)?;
        let slot = inode.read();
        let extents = self.extents_in(ino, &slot.inode, from, from + len as u64)?;
        let promised = extents.iter().filter(|e| e.is_prealloc());
        let covered: u64 =
            promised.map(|e| e.end().min(from + len as u64) - e.offset.max(from)).sum();
        Ok(covered == len as u64)
    }

    /// Puts `data` at `offset` of a locked inode, without touching its size and times.
    fn write_locked(
        &self,
        txn: &mut Txn<'_>,
        locked: &mut Locked<'_>,
        offset: u64,
        data: &[u8],
    ) -> Result<()> {
        let end = offset + data.len() as u64;
        let form = locked.inode().core.data_form;
        let small = matches!(form, Form::Empty | Form::Inline);
        if small && self.fits_inline(locked.inode(), end) {
            return self.write_inline(txn, locked, offset, data);
        }
        let new = self.write_windows(locked.ino(), locked.inode(), offset, data)?;
        let Some((first, last)) = new.first().zip(new.last()) else { return Ok(()) };
        let (from, to) = (first.offset, last.end());
        self.outgrow_inline(txn, locked)?;
        self.replace_extents(txn, locked, from, to, &new)
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

    /// Writes the objects for `data` at `offset`, window by window, with what they take along; the
    /// extents cover one range without gaps between `data`'s, possibly holes before it.
    fn write_windows(
        &self,
        ino: Ino,
        inode: &Inode,
        offset: u64,
        data: &[u8],
    ) -> Result<Vec<Extent>> {
        let mut new = Vec::with_capacity(data.len() / EXTENT_MAX + 2);
        let end = offset + data.len() as u64;
        // Inline contents all fit in the first window; they go out with the first object there.
        if inode.core.data_form == Form::Inline && offset >= WINDOW && !inode.data.is_empty() {
            new.push(self.write_object(ino, 0, &[&inode.data])?);
        }
        let mut at = offset;
        while at < end {
            let window = at / WINDOW * WINDOW;
            let to = end.min(window + WINDOW);
            let part = &data[(at - offset) as usize..(to - offset) as usize];
            new.extend(self.write_window(ino, inode, window, at, part)?);
            at = to;
        }
        Ok(new)
    }

    fn write_window(
        &self,
        ino: Ino,
        inode: &Inode,
        window: u64,
        at: u64,
        data: &[u8],
    ) -> Result<Vec<Extent>> {
        let to = at + data.len() as u64;
        if inode.core.data_form == Form::Inline && window == 0 {
            return self.write_over_inline(ino, inode, at, data);
        }
        let around = self.extents_in(ino, inode, window, window + WINDOW)?;
        let pieces = |extents: &[Extent], from: u64, to: u64| -> Vec<Extent> {
            let inside = extents.iter().filter(|e| e.offset < to && e.end() > from);
            inside.filter(|e| !e.is_prealloc()).map(|e| e.slice(from, to)).collect()
        };
        let left = pieces(&around, window, at);
        let right = pieces(&around, to, window + WINDOW);
        // A window that has been filled up is complete: it becomes one object.
        let join_all = left.len() + right.len() >= PIECES_MAX || to == window + WINDOW;
        let (mut first, mut last, mut size) = (left.len(), 0, data.len() as u64);
        let mut edge = at;
        while first > 0 {
            let piece = &left[first - 1];
            if piece.end() != edge || (!join_all && u64::from(piece.len) > size * 2) {
                break;
            }
            (edge, size, first) = (piece.offset, size + u64::from(piece.len), first - 1);
        }
        let start = edge;
        edge = to;
        while let Some(piece) = right.get(last) {
            if piece.offset != edge || (!join_all && u64::from(piece.len) > size * 2) {
                break;
            }
            (edge, size, last) = (piece.end(), size + u64::from(piece.len), last + 1);
        }
        let before = self.read_pieces(ino, &left[first..])?;
        let after = self.read_pieces(ino, &right[..last])?;
        let parts: [&[u8]; 3] = [&before, data, &after];
        let parts: Vec<&[u8]> = parts.into_iter().filter(|p| !p.is_empty()).collect();
        Ok(vec![self.write_object(ino, start, &parts)?])
    }

    /// The first window of a file whose contents were inline: they are written with the new bytes.
    fn write_over_inline(
        &self,
        ino: Ino,
        inode: &Inode,
        at: u64,
        data: &[u8],
    ) -> Result<Vec<Extent>> {
        let old = &inode.data[..];
        let (at, end) = (at as usize, at as usize + data.len());
        if at > old.len() + 4096 && !old.is_empty() {
            // Far behind: a hole stays between.
            let first = self.write_object(ino, 0, &[old])?;
            return Ok(vec![first, self.write_object(ino, at as u64, &[data])?]);
        }
        let mut bytes = old.to_vec();
        bytes.resize(old.len().max(end), 0);
        bytes[at..end].copy_from_slice(data);
        Ok(vec![self.write_object(ino, 0, &[&bytes])?])
    }

    fn read_pieces(&self, ino: Ino, pieces: &[Extent]) -> Result<Vec<u8>> {
        let mut bytes = vec![0; pieces.iter().map(|p| p.len as usize).sum()];
        let mut at = 0;
        for piece in pieces {
            let end = at + piece.len as usize;
            self.read_extent(ino, piece, 0, &mut bytes[at..end])?;
            at = end;
        }
        Ok(bytes)
    }
}
