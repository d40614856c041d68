//! The place that a volume is copied to: what is there, and whether it may be overwritten.

use super::place::Place;
use super::{CopyKind, Source, stamp};
use crate::identity::uuid;
use crate::types::OpenOptions;
use crate::volume::Volume;
use shoal_base::{Code, Epoch, Error, Result};
use shoal_device::Device;
use shoal_format::copy_mark::{COPIES as MARKS, CopyMark, SIZE as MARK_SIZE};
use shoal_format::superblock::{BLOCK, COPIES, MAGIC, Superblock};
use std::sync::Arc;

/// The part of a volume that a destination has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Base {
    /// Stamp of the state; zero for none.
    pub stamp: [u8; 16],
    /// Its epoch. All that was written until it ended is there, in the segments that are done.
    pub epoch: Epoch,
    /// Segments below this number are done.
    pub done: u32,
}

/// A destination.
pub(super) struct Destination {
    /// Open for writing; `None`: it is up to date.
    pub device: Option<Arc<dyn Device>>,
    pub kind: CopyKind,
    pub base: Base,
    /// Number of the newest mark.
    pub sequence: u64,
    /// It reads as zeros where nothing was written.
    pub is_sparse: bool,
    /// It may hold something where the source holds nothing.
    pub free: bool,
}

/// Contents of a destination.
enum Found {
    /// Nothing, or nothing of a volume.
    Other,
    Volume(Box<Superblock>, Arc<dyn Device>),
    Unfinished(CopyMark),
}

fn look(place: &dyn Place) -> Result<Found> {
    if place.is_missing() {
        return Ok(Found::Other);
    }
    let device = match place.read() {
        Err(error) if error.code() == Code::NotFound => return Ok(Found::Other),
        device => device?,
    };
    match shoal_txn::read_superblock(&*device) {
        Ok(sb) => return Ok(Found::Volume(Box::new(sb), device)),
        // One that this Shoal does not understand, or with a damaged superblock.
        Err(error) if has_magic(&*device)? => return Err(error),
        Err(_) => {}
    }
    Ok(shoal_txn::unfinished_copy(&*device)?.map_or(Found::Other, Found::Unfinished))
}

fn has_magic(device: &dyn Device) -> Result<bool> {
    for addr in COPIES {
        let mut raw = [0; 8];
        if device.capacity() >= addr + BLOCK as u64 {
            device.read_at(&mut raw, addr)?;
            if raw == MAGIC {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

impl Destination {
    /// Finds out what is at a destination, and opens it for what has to be copied.
    pub(super) fn find(
        place: &dyn Place,
        source: &Source,
        force: bool,
        options: &OpenOptions,
    ) -> Result<Destination> {
        let size = source.superblock.geometry.bytes();
        let found = match look(place) {
            // It may be damaged, and the one who gives the command knows it.
            Ok(Found::Volume(..)) | Err(_) if force => Found::Other,
            found => found?,
        };
        match found {
            Found::Volume(sb, device) => match state_of(&sb, device, source, options)? {
                State::At(stamp) if Some(stamp) == source.stamp() => {
                    Ok(Destination::of(None, CopyKind::Same, Base::whole(source)))
                }
                State::At(stamp) => {
                    let done = source.superblock.geometry.segments;
                    let base = Base { stamp: stamp.number, epoch: stamp.epoch, done };
                    let device = place.reopen(size)?;
                    Ok(Destination::of(Some(device), CopyKind::Increment, base))
                }
                State::Unknown(why) => {
                    let message = format!("{}: {why}; --force copies everything", place.name());
                    Err(Error::refused(Code::Exists, message))
                }
            },
            Found::Unfinished(mark) if mark.volume == source.superblock.id => {
                let stamp = stamp::Stamp { number: mark.stamp, epoch: mark.epoch };
                let is_base = source.remembers(&stamp)
                    && mark.geometry.segment_size == source.superblock.geometry.segment_size;
                let base = match is_base {
                    true => Base { stamp: mark.stamp, epoch: mark.epoch, done: mark.done },
                    false => Base::whole(source),
                };
                let device = place.reopen(size)?;
                let found = Destination::of(Some(device), CopyKind::Continued, base);
                Ok(Destination { sequence: mark.sequence, ..found })
            }
            Found::Unfinished(mark) if !force => {
                let message = format!(
                    "{}: holds an unfinished copy of another volume ({}); --force overwrites it",
                    place.name(),
                    uuid(&mark.volume)
                );
                Err(Error::refused(Code::Exists, message))
            }
            Found::Unfinished(_) | Found::Other => Destination::whole(place, source, force),
        }
    }

    fn of(device: Option<Arc<dyn Device>>, kind: CopyKind, base: Base) -> Destination {
        Destination { device, kind, base, sequence: 0, is_sparse: false, free: true }
    }

    /// Makes a new file, or uses what may be overwritten.
    fn whole(place: &dyn Place, source: &Source, force: bool) -> Result<Destination> {
        let (device, existed) = place.create(source.superblock.geometry.bytes(), force)?;
        let destination = Destination::of(Some(device), CopyKind::Whole, Base::whole(source));
        Ok(Destination { is_sparse: !existed, free: existed, ..destination })
    }
}

impl Base {
    /// Nothing is there.
    fn whole(source: &Source) -> Base {
        let stamp = source.stamp().map_or([0; 16], |stamp| stamp.number);
        Base { stamp, epoch: source.epoch, done: 0 }
    }
}

/// The state of a volume that is at the destination.
enum State {
    At(stamp::Stamp),
    /// Why it is no base for an increment.
    Unknown(String),
}

fn state_of(
    sb: &Superblock,
    device: Arc<dyn Device>,
    source: &Source,
    options: &OpenOptions,
) -> Result<State> {
    let unknown = |why: &str| Ok(State::Unknown(why.to_owned()));
    let (own, theirs) = (source.superblock.geometry, sb.geometry);
    if sb.id != source.superblock.id {
        let id = uuid(&sb.id);
        let name = match sb.label.as_str() {
            "" => id,
            label => format!("'{label}', {id}"),
        };
        return Ok(State::Unknown(format!("holds another volume ({name})")));
    }
    let is_alike = own.segment_size == theirs.segment_size && own.inode_size == theirs.inode_size;
    if !sb.clean || !is_alike {
        return unknown("has been changed since it was copied, which would be lost");
    }
    let read_only = OpenOptions { read_only: true, background: false, ..options.clone() };
    let volume = Volume::open_on(device, &read_only)?;
    let epoch = volume.state.store.checkpoints().with_newest(|image| image.checkpoint.epoch);
    let stamps = stamp::read(&volume)?;
    let newest = stamps.last();
    let is_changed = newest.is_some_and(|stamp| stamp.epoch != epoch);
    match newest {
        Some(stamp) if !is_changed && source.remembers(stamp) => Ok(State::At(*stamp)),
        // It went through the source's present state, and on.
        _ if source.stamp().is_some_and(|stamp| stamps.contains(&stamp)) => unknown(
            "is newer than the volume to be copied, and what has changed in it since would be \
             lost: exchange SOURCE and DEST",
        ),
        Some(_) if stamps.iter().any(|stamp| source.remembers(stamp)) => {
            let changed = if is_changed { "has" } else { "and its source have both" };
            let why = format!("{changed} been changed since it was copied, which would be lost");
            Ok(State::Unknown(why))
        }
        _ => unknown(
            "the volume to be copied does not remember this copy: it was repaired, or replaced by \
             an older one, or copied often since",
        ),
    }
}

/// Notes how much is there, durably.
pub(super) fn note(
    device: &dyn Device,
    source: &Source,
    base: &Base,
    sequence: &mut u64,
) -> Result<()> {
    *sequence += 1;
    let mark = CopyMark {
        done: base.done,
        volume: source.superblock.id,
        stamp: base.stamp,
        epoch: base.epoch,
        geometry: source.superblock.geometry,
        sequence: *sequence,
    };
    device.write_at(&mark.encode(), mark.addr())?;
    device.flush()
}

/// Makes the destination no volume. Durable: there must be no mark while there is a superblock.
pub(super) fn clear_superblocks(device: &dyn Device) -> Result<()> {
    COPIES.iter().try_for_each(|addr| device.write_at(&[0; BLOCK], *addr))?;
    device.flush()
}

/// Removes the mark, durably, before there is a superblock.
pub(super) fn clear_mark(device: &dyn Device) -> Result<()> {
    MARKS.iter().try_for_each(|addr| device.write_at(&[0; MARK_SIZE], *addr))?;
    device.flush()
}
