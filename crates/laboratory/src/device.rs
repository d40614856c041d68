//! The block device of `--device`: what must be true of it before it is overwritten.

use crate::error::{LabError, Result};
use rustix::fs::{OFlags, SeekFrom, open, seek};
use rustix::io::Errno;
use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// Returns the device's path without links, as the kernel and mount(8) name it.
///
/// # Errors
/// It is not there, is no block device, may not be written, is in use by a mount, by swap or by
/// another device, or has fewer bytes than `needed`.
pub(crate) fn checked(path: &Path, needed: u64) -> Result<PathBuf> {
    let refused = |why: &dyn std::fmt::Display| LabError::failed("--device", path.display(), why);
    let found = fs::metadata(path).map_err(|e| refused(&e))?;
    if !found.file_type().is_block_device() {
        let why = "is no block device: for images in a folder there are --scratch and --disk";
        return Err(refused(&why));
    }
    // Exclusive, which is about devices what O_EXCL is without O_CREAT.
    let flags = OFlags::RDWR | OFlags::EXCL | OFlags::CLOEXEC;
    let device = open(path, flags, rustix::fs::Mode::empty()).map_err(|error| match error {
        Errno::BUSY => refused(&"is in use: unmount it, or what lies on it (lsblk shows it)"),
        error => refused(&error),
    })?;
    let bytes = seek(&device, SeekFrom::End(0)).map_err(|e| refused(&e))?;
    if bytes < needed {
        let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
        let why = format!(
            "has {:.1} GiB, and a run of this size needs {:.1} GiB (--smoke and --quick need less)",
            gib(bytes),
            gib(needed)
        );
        return Err(refused(&why));
    }
    fs::canonicalize(path).map_err(|e| refused(&e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_device_is_refused_by_name() {
        let says = |path: &str| checked(Path::new(path), 1).expect_err("refused").to_string();
        assert!(says("/dev/shoal-none").contains("No such file"), "{}", says("/dev/shoal-none"));
        for path in ["/proc/self/stat", "/", "/dev/null"] {
            assert!(says(path).starts_with(&format!("--device {path}: is no block device")));
        }
    }
}
