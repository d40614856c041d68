//! Full volumes: what may be refused and when, and that what is removed can be used again.

use super::{Sim, open};
use crate::device::FaultyDevice;
use crate::exec::{Lockstep, is_batch_limit};
use crate::op::{Change, Op, Place, Target, Who};
use crate::rng::Rng;
use shoal::raw::{Caller, Code, Error, Fallocate, Ino, Volume, mkfs_on};
use shoal_base::limits::NODE_SIZE;
use shoal_device::Device;
use std::sync::Arc;

/// Refusals of a run after which the whole volume is compared, at most.
const COMPARED_MAX: u64 = 12;
/// Segments that may be open for one kind of thing or another, and so be free but not for all.
const OPEN_MAX: u64 = 6;
/// Bytes written at a time to fill a volume.
const CHUNK: usize = 256 << 10;

impl Sim {
    /// No operation may be refused but for lack of space, near the end of it, and never one that
    /// frees some.
    pub(super) fn judge_refusal(&mut self, op: &Op, error: &Error) -> Result<(), String> {
        self.report.refused += 1;
        if is_batch_limit(op, error) {
            return Ok(());
        }
        if error.code() != Code::NoSpace || frees(&self.run, op) {
            return Err(format!("{op}: {error}"));
        }
        let fs = self.volume().statfs();
        let wanted = match op {
            Op::Write { data, .. } | Op::Append { data, .. } => u64::from(data.len),
            Op::Fallocate { len, .. } | Op::CopyRange { len, .. } => *len,
            Op::RootCreate { .. } => 8 * NODE_SIZE as u64,
            Op::Batch { changes, .. } => changes.iter().map(Change::len).sum(),
            Op::SetXattr { data, .. } => u64::from(data.len),
            _ => 0,
        };
        // Of small volumes, open segments are much.
        let open = if self.settings.full { OPEN_MAX * self.settings.mkfs.segment_size } else { 0 };
        if fs.bytes_available > self.settings.capacity / 10 + 2 * wanted + open {
            let live = self.run.model.data_bytes();
            return Err(format!("{op}: {error}, with {live} bytes of data in {fs:?}"));
        }
        let compares = self.settings.full && self.report.refused <= COMPARED_MAX;
        match compares && self.run.slots.iter().all(Option::is_none) {
            true => self.compare_whole(&format!("after {op} was refused")),
            false if compares => self.compare_shown(&format!("after {op} was refused")).map(drop),
            false => Ok(()),
        }
    }

    /// Everything is removed: then as much can be written as on a volume just made.
    pub(super) fn empty_and_use_again(&mut self) -> Result<(), String> {
        let (top, who) = (Target::Path(Vec::new()), Who::Root);
        let names = self.run.model.entries(self.run.model.root()).into_iter().flatten();
        let names: Vec<_> = names.map(|(name, _)| name.clone()).collect();
        let roots = self.run.model.roots();
        for name in names {
            let at = Place { dir: top.clone(), name: name.clone() };
            self.step(&match roots.contains(&name) {
                true => Op::RootDelete { who, name },
                false => Op::RemoveTree { who, at },
            })?;
        }
        self.step(&Op::Reap { slices: 0 })?;
        match self.run.model.entries(self.run.model.root()) {
            Ok(entries) if entries.is_empty() => {}
            left => return Err(format!("not everything could be removed: {left:?}")),
        }
        let device = Arc::new(FaultyDevice::new(self.settings.capacity).forgetful());
        mkfs_on(Arc::clone(&device) as Arc<dyn Device>, &self.settings.mkfs)
            .map_err(|e| format!("mkfs: {e}"))?;
        let fresh = fill(&open(&device, &self.settings)?)?;
        let again = fill(self.volume())?;
        // A segment less: where the streams stand open differs.
        match again + self.settings.mkfs.segment_size >= fresh {
            true => Ok(()),
            false => Err(format!("emptied, it takes {again} bytes; a fresh one {fresh}")),
        }
    }
}

/// Returns whether an operation frees space.
pub(super) fn frees(run: &Lockstep, op: &Op) -> bool {
    match op {
        Op::Unlink { .. }
        | Op::Rmdir { .. }
        | Op::RemoveTree { .. }
        | Op::Close { .. }
        | Op::RootDelete { .. }
        | Op::Reap { .. }
        | Op::RemoveXattr { .. }
        | Op::Fallocate { mode: Fallocate::PunchHole, .. } => true,
        Op::Truncate { file, size, .. } => {
            let node = run.resolve(file).and_then(|ino| run.model.node(ino));
            node.is_some_and(|node| *size <= node.size())
        }
        _ => false,
    }
}

/// Writes one file until no more fits, and removes it. Returns how much fitted.
fn fill(volume: &Volume) -> Result<u64, String> {
    let (who, name) = (Caller::root(), b"fills");
    let file = volume
        .namespace()
        .create(&who, Ino::ROOT, name, 0o600)
        .map_err(|e| format!("create: {e}"))?;
    // Of bytes that cannot be compressed: else it would depend on what is left of other objects.
    let mut rng = Rng::new(7);
    let chunk: Vec<u8> = (0..CHUNK).map(|_| rng.next() as u8).collect();
    let mut written = 0;
    loop {
        match volume.files().append(file.ino, &chunk, false) {
            Ok((_, more)) => written += more as u64,
            Err(e) if e.is(Code::NoSpace) => break,
            Err(e) => return Err(format!("filling it: {e}")),
        }
    }
    volume
        .namespace()
        .unlink(&who, Ino::ROOT, name)
        .map_err(|e| format!("unlink when full: {e}"))?;
    Ok(written)
}
