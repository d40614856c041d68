//! Making a volume smaller, while it is not in use.
//!
//! | step | action | after a crash |
//! | --- | --- | --- |
//! | 1 | open the volume, which recovers it; free what waits to be freed | as after any |
//! | 2 | move everything out of the last segments (`vacate.rs`) | the old size; some of it is moved |
//! | 3 | close it | the same |
//! | 4 | open it with fewer segments: a checkpoint publishes the usage table and, in the superblock, the geometry; then the other copy of the superblock | one of the two sizes: the checkpoint writes nothing after the new end, and before it only to free segments |
//! | 5 | close it | the new size |
//! | 6 | cut the file off | the new size; the file may be longer, which is no harm |
//!
//! Step 4 reads the table as any open does and refuses if a segment that goes is not free in it, so
//! that a mistake in step 2 loses nothing. The lock and the claim of the device last from step 1 to
//! 6.

use crate::storage::is_bucket;
use crate::types::OpenOptions;
use crate::vacate::{Emptied, Vacate, Watch};
use crate::volume::Volume;
use shoal_base::{Code, Error, Result, SegNo, limits};
use shoal_device::{Device, FileDevice, OpenMode};
use std::path::Path;
use std::sync::Arc;

/// Sizes of a volume that has become smaller, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shrunk {
    /// Size before.
    pub before: u64,
    /// Size now: the same if it was stopped.
    pub now: u64,
}

/// The sizes that a volume can have, and the work that this takes, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShrinkPlan {
    /// Size now.
    pub before: u64,
    /// Size to which it would shrink.
    pub wanted: u64,
    /// The smallest size for what it holds, about.
    pub least: u64,
    /// Live bytes to be moved, at least.
    pub moved: u64,
}

/// Makes the volume in a file or on a block device smaller: `size` bytes, rounded down to whole
/// segments, or, 0, as small as it can be. A file is cut off; a device stays as it is, with a
/// smaller volume on it. `watch` gets the bytes moved and the total, and returns whether to go on;
/// if not, the volume keeps its size.
///
/// # Errors
/// `Invalid` if it would not become smaller by at least a segment, or smaller than any volume;
/// `NoSpace` if what it holds does not fit, with the least size in the message; damage, if
/// something cannot be moved; those of [`Volume::open`]. The volume has its earlier size then.
pub fn shrink(path: &Path, size: u64, options: &OpenOptions, watch: Watch<'_>) -> Result<Shrunk> {
    if is_bucket(path) {
        let message = format!(
            "{}: the size of a volume in a bucket is only a limit; free space is not stored",
            path.display()
        );
        return Err(Error::refused(Code::NotSupported, message));
    }
    let device = FileDevice::open_with(path, OpenMode::ReadWrite, &options.claim())?;
    let device = Arc::new(device);
    let options = OpenOptions { background: false, ..options.clone() };
    let open = |segments| {
        let mut volume = Volume::open_sized(device.clone(), &options, segments)?;
        volume.belongs_to(device.clone());
        Ok(volume)
    };
    let length = if device.is_block() { 0 } else { device.capacity() };
    let shrunk = Shrink { open: &open, length }.run(size, watch)?;
    if shrunk.now < shrunk.before {
        device.cut(shrunk.now)?;
    }
    Ok(shrunk)
}

/// As [`shrink`], on a device, which stays as it is.
pub fn shrink_on(
    device: &Arc<dyn Device>,
    size: u64,
    options: &OpenOptions,
    watch: Watch<'_>,
) -> Result<Shrunk> {
    let options = OpenOptions { background: false, ..options.clone() };
    let open = |segments| Volume::open_sized(device.clone(), &options, segments);
    Shrink { open: &open, length: 0 }.run(size, watch)
}

impl ShrinkPlan {
    /// Returns what it would take to make a volume smaller: `size` bytes or, 0, as small as it
    /// can be. Changes nothing.
    ///
    /// # Errors
    /// Those of [`shrink`] that are known in advance.
    pub fn of(volume: &Volume, size: u64) -> Result<ShrinkPlan> {
        let (store, geometry) = (&volume.state.store, *volume.state.store.geometry());
        let least = store.room().segments_min();
        let wanted = match size {
            0 => u64::from(least),
            size => size / geometry.segment_size,
        };
        let bytes = |segments: u64| segments * geometry.segment_size;
        let (name, before, least) =
            (store.device().describe(), geometry.bytes(), bytes(u64::from(least)));
        let refused = |code, why: String| Err(Error::refused(code, format!("{name} {why}")));
        if wanted >= u64::from(geometry.segments) {
            return match size {
                0 => refused(Code::NoSpace, format!("has {before} bytes, and cannot be smaller")),
                _ => refused(
                    Code::Invalid,
                    format!("has {before} bytes, and {size} would not make it smaller"),
                ),
            };
        }
        if wanted < limits::SEGMENTS_MIN {
            let most = bytes(limits::SEGMENTS_MIN);
            return refused(
                Code::Invalid,
                format!("has segments of {} bytes: give at least {most}", geometry.segment_size),
            );
        }
        if bytes(wanted) < least {
            return refused(
                Code::NoSpace,
                format!("cannot have {size} bytes: its contents need at least {least}"),
            );
        }
        let end = SegNo(wanted as u32);
        let moved = store.space().vacating(end).occupied().live;
        Ok(ShrinkPlan { before, wanted: bytes(wanted), least, moved })
    }
}

impl Volume {
    /// Refuses a volume of which not everything is known.
    fn may_shrink(&self) -> Result<()> {
        let store = &self.state.store;
        store.writable()?;
        let damage = store.orphans().damage().first();
        match (damage, store.space().counts().accounting_errors()) {
            (None, 0) => Ok(()),
            (damage, errors) => {
                let why = damage.cloned().unwrap_or(format!("{errors} accounting errors"));
                let name = store.device().describe();
                let message = format!("{name} is damaged ({why}): shoal fsck --repair first");
                Err(Error::refused(Code::Io, message))
            }
        }
    }
}

/// Making a volume smaller.
struct Shrink<'a> {
    /// Opens the volume, from then on with so many segments; 0: as many as it has.
    open: &'a dyn Fn(u32) -> Result<Volume>,
    /// Length of the file that it is in; 0: it is in none.
    length: u64,
}

impl Shrink<'_> {
    fn run(&self, size: u64, watch: Watch<'_>) -> Result<Shrunk> {
        let volume = (self.open)(0)?;
        let before = volume.state.store.geometry().bytes();
        let segment = volume.state.store.geometry().segment_size;
        if size != 0 && size / segment * segment == before && self.length > before {
            // Interrupted before the file was cut off, or a file that always was longer.
            volume.close()?;
            return Ok(Shrunk { before: self.length, now: before });
        }
        let emptied = self.empty(&volume, size, watch);
        // Also after a failure: what was moved is moved.
        let closed = volume.close();
        let Some(segments) = emptied? else { return Ok(Shrunk { before, now: before }) };
        closed?;
        (self.open)(segments)?.close()?;
        Ok(Shrunk { before, now: u64::from(segments) * segment })
    }

    /// Empties the segments that go. Returns the number of those that stay; `None` if it was
    /// stopped.
    fn empty(&self, volume: &Volume, size: u64, watch: Watch<'_>) -> Result<Option<u32>> {
        volume.may_shrink()?;
        let vacate = Vacate(&volume.state);
        vacate.reap()?;
        let geometry = *volume.state.store.geometry();
        let plan = ShrinkPlan::of(volume, size)?;
        let mut end = (plan.wanted / geometry.segment_size) as u32;
        loop {
            let lacking = match vacate.empty_from(SegNo(end), watch)? {
                Emptied::Whole => return Ok(Some(end)),
                Emptied::Stopped => return Ok(None),
                Emptied::Lacking(bytes) => bytes.div_ceil(geometry.segment_size) as u32,
            };
            // As small as it can be: a little larger than was estimated.
            let next = end + lacking.max(end / 128).max(1);
            if size == 0 && next < geometry.segments {
                end = next;
                continue;
            }
            let name = volume.state.store.device().describe();
            let end = u64::from(end) * geometry.segment_size;
            let least = u64::from(next.min(geometry.segments)) * geometry.segment_size;
            let message = format!(
                "{name} cannot have {end} bytes: its contents need about {least}, as it is \
                 stored; it has its earlier size"
            );
            return Err(Error::refused(Code::NoSpace, message));
        }
    }
}
