//! Copying between files of one volume.

use crate::files::Files;
use crate::records::WRITE_STEP as STEP;
use crate::types::FileKind;
use shoal_base::timing::Call;
use shoal_base::{Code, Error, Ino, Result};

impl Files<'_> {
    /// Copies up to `len` bytes and returns their number (fewer at the end of the source). As with
    /// a write, each MiB is copied completely or not at all after a crash.
    pub fn copy_range(
        self,
        from: Ino,
        from_offset: u64,
        to: Ino,
        to_offset: u64,
        len: u64,
    ) -> Result<u64> {
        self.0.measured(Call::CopyRange, || self.copy(from, from_offset, to, to_offset, len))
    }

    fn copy(self, from: Ino, from_offset: u64, to: Ino, to_offset: u64, len: u64) -> Result<u64> {
        let (source, target) = (self.0.attr(from)?, self.0.attr(to)?);
        for kind in [source.kind, target.kind] {
            match kind {
                FileKind::Regular => {}
                FileKind::Directory => return Err(Error::Code(Code::IsDirectory)),
                _ => return Err(Error::Code(Code::Invalid)),
            }
        }
        let size = source.size;
        let len = len.min(size.saturating_sub(from_offset));
        let ends = from_offset.checked_add(len).zip(to_offset.checked_add(len));
        let (from_end, to_end) = ends.ok_or(Error::Code(Code::Overflow))?;
        if from == to && from_offset < to_end && to_offset < from_end {
            return Err(Error::Code(Code::Invalid));
        }
        let mut buf = vec![0; STEP.min(len as usize)];
        let mut copied = 0;
        while copied < len {
            let at = to_offset + copied;
            let want = (STEP as u64).min(len - copied) as usize;
            let got = self.read(from, from_offset + copied, &mut buf[..want])?;
            if got == 0 {
                break;
            }
            match self.write(to, at, &buf[..got], false) {
                Ok(n) => copied += n as u64,
                Err(e) if copied == 0 => return Err(e),
                Err(_) => break,
            }
        }
        Ok(copied)
    }
}
