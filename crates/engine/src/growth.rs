//! The size of a volume that becomes larger, and the room for it. The open itself does it, by a
//! checkpoint ([`shoal_txn::Recovery::run`]).
//!
//! *Why when it is opened*: the number of segments is then a constant of the session, as all that
//! is found by a segment's number expects. A mount in use grows with its next server, which a
//! take-over starts in some tens of milliseconds.

use shoal_base::{Code, Error, Result, limits};
use shoal_device::{Device, FileDevice};
use shoal_format::superblock::Superblock;

/// Makes the device as large as the volume shall be.
pub(crate) fn make_room(device: &mut FileDevice, size: u64) -> Result<()> {
    let sb = shoal_txn::read_superblock(device)?;
    let segments = segments(device, &sb, size)?;
    device.extend(u64::from(segments) * sb.geometry.segment_size)
}

/// Returns the number of segments that a volume of so many bytes has; 0: of those of its device.
pub(crate) fn segments(device: &dyn Device, sb: &Superblock, size: u64) -> Result<u32> {
    let (geometry, name) = (&sb.geometry, device.describe());
    let size = if size == 0 { device.capacity() } else { size };
    let (segments, before) = (size / geometry.segment_size, geometry.bytes());
    let refused = |message| Err(Error::refused(Code::Invalid, message));
    if segments <= u64::from(geometry.segments) {
        let least = before + geometry.segment_size;
        return refused(format!(
            "{name} has {before} bytes, and {size} would not make it larger: give at least {least}"
        ));
    }
    match u32::try_from(segments) {
        Ok(segments) if segments <= limits::SEGMENTS_MAX => Ok(segments),
        _ => {
            let most = geometry.segment_size * u64::from(limits::SEGMENTS_MAX);
            refused(format!(
                "{name} has segments of {} bytes, which allow {most} bytes: copy it to a volume \
                 made with larger ones",
                geometry.segment_size
            ))
        }
    }
}
