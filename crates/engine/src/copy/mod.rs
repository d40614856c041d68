//! A copy of a whole volume, to a file, a block device or a bucket, that can go on after an
//! interruption, and be brought up to date by what has changed.
//!
//! Problem: a volume of terabytes must get to another place, again and again, and each time only
//! what has changed since; nobody may have to compare all of it.
//!
//! Rule: the destination has the same bytes at the same addresses. Nothing but the superblock is
//! written in place, so an object that has once been copied stays right for as long as the source
//! uses it, and every pointer has the epoch in which its target was written (after ZFS's
//! incremental send). Everything younger than an epoch is found by following the younger pointers
//! (`young.rs`); no other block of metadata is read.
//!
//! That is right only if the destination has a state that the source went through, to the byte. A
//! *stamp* (`stamp.rs`) proves it: a random number that the source stores just before it is closed
//! and copied, with the epoch of the checkpoint that follows. A source that remembers a stamp
//! descends from the state that it names; a destination whose newest stamp has the epoch of its
//! newest checkpoint has not been changed since. So it does not matter which of the two was copied
//! to the other first.
//!
//! | destination | is written |
//! | --- | --- |
//! | has a state that the source remembers | what is younger |
//! | has a mark of an unfinished copy of such a state | what is younger in the segments done; the others |
//! | empty, or overwritten by force | the segments in use |
//!
//! *While it is written, the destination is no volume.* Its superblocks are zero before anything
//! else is overwritten, and are written after everything else is durable. A mark is written only
//! while they are zero, and removed before they are not, so an old mark never counts.
//!
//! The copy continues under an incarnation of its own, for the reason given in `dump.rs`.
//!
//! Cost: reads and writes what is copied, in [`transfer::THREADS`] threads with
//! [`transfer::PIECE`] bytes of memory each; a bit of memory for each 4096 bytes of the segments
//! in which an increment copies anything.

mod destination;
mod place;
mod stamp;
mod transfer;
mod young;

use crate::dump::{Moved, own_superblocks};
use crate::types::OpenOptions;
use crate::volume::Volume;
use destination::{Base, Destination};
use place::{Named, Open, Place};
use shoal_base::{Code, Epoch, Error, Result};
use shoal_device::Device;
use shoal_format::superblock::Superblock;
use shoal_format::usage::SegKind;
use stamp::Stamp;
use std::path::Path;
use std::sync::Arc;
use transfer::{Share, Unit};

/// Attempts to close a volume with a stamp of its newest checkpoint: others may come between, for
/// space.
const TRIES: usize = 3;

/// How a destination was brought up to date.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CopyKind {
    /// Everything in use was copied.
    Whole,
    /// An unfinished copy was continued.
    Continued,
    /// The changes since the last copy were copied.
    Increment,
    /// Nothing had changed.
    Same,
}

/// Result of a copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Copied {
    /// How.
    pub kind: CopyKind,
    /// Bytes that were copied.
    pub bytes: u64,
    /// Bytes of the segments in use in the source.
    pub used: u64,
    /// Set if the next copy to this destination can be an increment.
    pub stamped: bool,
}

/// A volume to be copied, closed and read-only.
struct Source {
    device: Arc<dyn Device>,
    volume: Volume,
    superblock: Superblock,
    /// Epoch of its newest checkpoint.
    epoch: Epoch,
    /// The stamps that it remembers, the newest last.
    stamps: Vec<Stamp>,
}

impl Source {
    /// Opens a volume that was closed.
    fn read(device: Arc<dyn Device>, options: &OpenOptions) -> Result<Source> {
        let superblock = shoal_txn::read_superblock(&*device)?;
        let read_only = OpenOptions { read_only: true, background: false, ..options.clone() };
        let volume = Volume::open_on(device.clone(), &read_only)?;
        let epoch = volume.state.store.checkpoints().with_newest(|image| image.checkpoint.epoch);
        let stamps = stamp::read(&volume)?;
        Ok(Source { device, volume, superblock, epoch, stamps })
    }

    /// Opens a volume as it is to be copied: closed, and with a stamp of that state if it can be
    /// written.
    fn open(place: &dyn Place, options: &OpenOptions) -> Result<Source> {
        for _ in 0..TRIES {
            // Whatever is open for reading must be closed before it is opened for writing.
            let is_clean = shoal_txn::read_superblock(&*place.read()?)?.clean;
            if is_clean {
                let source = Source::read(place.read()?, options)?;
                if source.stamp().is_some() {
                    return Ok(source);
                }
            }
            let stamped = place.volume().and_then(|volume| {
                stamp::write(&volume)?;
                volume.close()
            });
            match stamped {
                Err(error) if is_clean && is_for_readers_only(&error) => {
                    (options.notice)(&format!(
                        "{}: cannot be written, so what changes after this copy cannot be found \
                         by the next one",
                        place.name()
                    ));
                    break;
                }
                written => written?,
            }
        }
        Source::read(place.read()?, options)
    }

    /// The stamp of its present state.
    fn stamp(&self) -> Option<Stamp> {
        self.stamps.last().copied().filter(|stamp| stamp.epoch == self.epoch)
    }

    /// Returns whether it went through the state of this stamp.
    fn remembers(&self, stamp: &Stamp) -> bool {
        self.stamps.contains(stamp)
    }

    /// The segments in use, but for the one with the superblock.
    fn used(&self) -> Vec<u32> {
        let usage = self.volume.state.store.space().usage().into_iter();
        let used = usage.filter(|(segment, kind, ..)| segment.0 != 0 && *kind != SegKind::Free);
        used.map(|(segment, ..)| segment.0).collect()
    }
}

fn is_for_readers_only(error: &Error) -> bool {
    matches!(error.code(), Code::ReadOnly | Code::Access | Code::NotPermitted | Code::NotSupported)
}

/// Makes a volume in a file, on a block device or in a bucket the same as another one, which is
/// opened and closed for it. Only what the destination does not have is copied.
///
/// While this runs, and after an interruption until it is called again, the destination is no
/// volume.
///
/// # Errors
/// Those of [`Volume::open`]: above all, neither may be in use; `Exists` for a destination with
/// another volume, or that was changed since it was copied, unless `force`, with which everything
/// is copied; `NoSpace` for one that is too small; damage that is met in the source.
pub fn copy_volume(
    source: &Path,
    destination: &Path,
    force: bool,
    options: &OpenOptions,
    moved: Moved<'_>,
) -> Result<Copied> {
    if place::is_same(source, destination) {
        let message = format!("{}: is the volume to be copied itself", destination.display());
        return Err(Error::refused(Code::Invalid, message));
    }
    let (from, to) = (Named { path: source, options }, Named { path: destination, options });
    copy_between(&from, &to, force, options, moved)
}

/// As [`copy_volume`], between devices that are open.
pub fn copy_volume_on(
    source: &Arc<dyn Device>,
    destination: &Arc<dyn Device>,
    force: bool,
    options: &OpenOptions,
    moved: Moved<'_>,
) -> Result<Copied> {
    let (from, to) = (Open { device: source, options }, Open { device: destination, options });
    copy_between(&from, &to, force, options, moved)
}

fn copy_between(
    from: &dyn Place,
    to: &dyn Place,
    force: bool,
    options: &OpenOptions,
    moved: Moved<'_>,
) -> Result<Copied> {
    let source = Source::open(from, options)?;
    let destination = Destination::find(to, &source, force, options)?;
    // In the order of the addresses where nothing may depend on how threads run.
    let threads = if options.background { transfer::THREADS } else { 1 };
    let copied = fill(&source, &destination, threads, moved)?;
    if let Some(device) = &destination.device {
        device.close()?;
    }
    Ok(copied)
}

/// Copies what the destination does not have.
fn fill(
    source: &Source,
    destination: &Destination,
    threads: usize,
    moved: Moved<'_>,
) -> Result<Copied> {
    let Destination { device, kind, base, sequence, is_sparse, free } = destination;
    let used = source.used();
    let geometry = source.superblock.geometry;
    let copied = Copied {
        kind: *kind,
        bytes: 0,
        used: used.len() as u64 * geometry.segment_size,
        stamped: source.stamp().is_some(),
    };
    let Some(device) = device else { return Ok(copied) };
    let device = &**device;

    // First: a source that is damaged there must not cost the copy that there is.
    let young = match base.epoch == source.epoch {
        true => young::Blocks::default(),
        false => young::find(source, base.epoch + 1)?,
    };
    let mut sequence = *sequence;
    destination::clear_superblocks(device)?;
    destination::note(device, source, base, &mut sequence)?;
    if *free {
        discard(device, &used, &geometry)?;
    }
    let unit = |segment, share| Unit { segment, share };
    let mut units = Vec::new();
    for (segment, bits) in young.by_segment() {
        // What is not done is copied as a whole.
        if segment != 0 && segment < base.done {
            units.push(unit(segment, Share::Blocks(bits)));
        }
    }
    units.extend(used.iter().filter(|n| **n >= base.done).map(|n| unit(*n, Share::Whole)));
    let transfer = transfer::Transfer {
        source: &*source.device,
        to: device,
        geometry,
        is_sparse: *is_sparse,
        threads,
    };
    let mut progress = |done| {
        device.flush()?;
        destination::note(device, source, &Base { done, ..*base }, &mut sequence)
    };
    let bytes = transfer.run(&units, &mut progress, moved)?;
    device.flush()?;
    destination::clear_mark(device)?;
    own_superblocks(device, &source.superblock)?;
    Ok(Copied { bytes, ..copied })
}

/// Gives back what the destination holds where the source holds nothing any more.
fn discard(device: &dyn Device, used: &[u32], geometry: &shoal_format::Geometry) -> Result<()> {
    let ends = used.iter().copied().chain([geometry.segments]);
    let mut free_from = 1;
    for used in ends {
        if free_from < used {
            let (from, count) = (u64::from(free_from), u64::from(used - free_from));
            device.discard(from * geometry.segment_size, count * geometry.segment_size)?;
        }
        free_from = used + 1;
    }
    Ok(())
}
