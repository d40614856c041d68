//! Opening the file or block device of a volume: its type, mode and the errors for people.

use crate::device::failure;
use crate::lock::busy;
use shoal_base::{Code, Error, Result};
use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

/// The access mode of an open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpenMode {
    /// For a mount: no other process may have the volume open.
    ReadWrite,
    /// For inspection: other readers may have the volume open, but no writer.
    ReadOnly,
}

/// Opens the file. Returns whether it is a block device.
pub(crate) fn open(path: &Path, mode: OpenMode, create: bool) -> Result<(File, bool)> {
    let read_write = mode == OpenMode::ReadWrite;
    let kind = std::fs::metadata(path).map(|m| m.file_type());
    let block = kind.as_ref().is_ok_and(|k| k.is_block_device());
    let name = path.display();
    if let Ok(kind) = kind
        && !block
        && !kind.is_file()
    {
        let what = if kind.is_dir() { "a directory" } else { "not a file" };
        let code = if kind.is_dir() { Code::IsDirectory } else { Code::Invalid };
        let message = format!("{name} is {what}: a volume lives in a file or on a block device");
        return Err(Error::refused(code, message));
    }
    let mut options = OpenOptions::new();
    options.read(true).write(read_write).create(create);
    // A volume contains files of all its users, so a new one is accessible to its owner only.
    options.mode(0o600);
    if block && read_write {
        // On a block device O_EXCL makes the kernel refuse while it is mounted or part of a RAID.
        options.custom_flags(rustix::fs::OFlags::EXCL.bits() as i32);
    }
    let file = options.open(path).map_err(|e| match e.kind() {
        ErrorKind::NotFound => {
            Error::refused(Code::NotFound, format!("{name} does not exist: check the path"))
        }
        ErrorKind::PermissionDenied => {
            let message = format!("{name} cannot be opened: permission denied; check its mode");
            Error::refused(Code::Access, message)
        }
        _ if block && e.raw_os_error() == Some(Code::Busy.errno()) => busy(&name.to_string(), None),
        _ => failure("open", name.to_string(), 0, 0, e.raw_os_error().unwrap_or(0)),
    })?;
    Ok((file, block))
}
