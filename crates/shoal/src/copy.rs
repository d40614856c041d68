//! Copying a file.

use crate::error::{Doing, Result};
use crate::raw::Code;
use crate::{AsPath, Dir, File, FileOptions};

/// Bytes that are copied at a time.
const PIECE: usize = 1 << 20;

impl Dir {
    /// Copies the contents and the permission bits of a file to another file of this directory,
    /// which is made, or replaced in place as by [`Dir::write`]. Returns the size. Holes stay
    /// holes. The bytes are copied: both files take space.
    ///
    /// # Errors
    /// `NotFound`, `IsADirectory`, `PermissionDenied`, `StorageFull`; `InvalidInput` when both are
    /// the same file. After an error a part may have been written.
    pub fn copy(&self, from: impl AsPath, to: impl AsPath) -> Result<u64> {
        self.copy_into(from, self, to)
    }

    /// As [`Dir::copy`], to a path below another directory, which may be in another volume and have
    /// other credentials.
    ///
    /// # Errors
    /// Those of [`Dir::copy`].
    pub fn copy_into(&self, from: impl AsPath, to_dir: &Dir, to: impl AsPath) -> Result<u64> {
        let source = self.open(from)?;
        let found = source.metadata()?;
        let options = FileOptions::new().write(true).create(true).mode(found.permissions());
        let target = options.open(to_dir, to.as_path())?;
        if self.volume().is_same(to_dir.volume()) && source.ino() == target.ino() {
            return Err(Code::Invalid.into()).doing("copy to itself", to.as_path());
        }
        target.set_len(0)?;
        let size = copy_data(&source, &target)?;
        // The umask, and the bits of a file that was there.
        target.set_permissions(found.permissions())?;
        Ok(size)
    }
}

/// Copies what is no hole, and the size.
fn copy_data(source: &File, target: &File) -> Result<u64> {
    let mut buf = Vec::new();
    let (mut at, mut size) = (0, source.metadata()?.len());
    while let Some(begin) = source.seek_data(at)? {
        let end = source.seek_hole(begin)?.unwrap_or(size);
        at = begin;
        while at < end {
            buf.resize(PIECE.min(usize::try_from(end - at).unwrap_or(PIECE)), 0);
            let read = source.read_at(&mut buf, at)?;
            if read == 0 {
                // Truncated meanwhile.
                break;
            }
            target.write_all_at(&buf[..read], at)?;
            at += read as u64;
        }
        size = size.max(at);
        if at < end {
            break;
        }
    }
    target.set_len(size)?;
    Ok(size)
}
