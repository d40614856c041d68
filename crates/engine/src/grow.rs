//! Making a volume larger.

use crate::identity::identify;
use crate::types::OpenOptions;
use crate::volume::Volume;
use shoal_base::Result;
use std::path::Path;

/// Sizes of a volume that has grown, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grown {
    /// Size before.
    pub before: u64,
    /// Size now.
    pub now: u64,
}

/// Makes the volume in a file or on a block device larger: `size` bytes, or, 0, as large as the
/// file or device is. The volume is opened, which recovers it if it was not closed, and closed. A
/// crash at any moment leaves it at one of the two sizes.
///
/// # Errors
/// `Invalid` if it would not become larger by at least a segment, or larger than segments of its
/// size allow; `NoSpace` for a block device that is too small; those of [`Volume::open`].
pub fn grow(path: &Path, size: u64, options: &OpenOptions) -> Result<Grown> {
    // Where there is no volume, the open says so.
    let before = identify(path).ok().flatten().map_or(0, |found| found.bytes);
    let volume = Volume::open(path, &OpenOptions { grow: Some(size), ..options.clone() })?;
    let info = volume.info();
    volume.close()?;
    Ok(Grown { before, now: info.segment_size * u64::from(info.segments) })
}
