//! The identity of a volume, read without opening it: for those who look for one by its label or
//! id, among devices that may be in use.

use crate::storage::{self, is_bucket};
use crate::types::OpenOptions;
use shoal_base::{Code, Error, Result};
use shoal_device::OpenMode;
use shoal_format::superblock::{COPIES, SIZE, Superblock};
use std::fs::File;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::Path;

/// Formats a volume's id.
pub(crate) fn uuid(id: &[u8; 16]) -> String {
    let hex: String = id.iter().map(|b| format!("{b:02x}")).collect();
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

/// The identity of a volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    /// Volume id, as a UUID string.
    pub id: String,
    /// Label, empty for none.
    pub label: String,
    /// Format version.
    pub version: u32,
    /// Size in bytes.
    pub bytes: u64,
    /// Seconds since 1970 at which it was made.
    pub created: i64,
}

impl Identity {
    fn of(sb: &Superblock) -> Identity {
        Identity {
            id: uuid(&sb.id),
            label: sb.label.to_string(),
            version: shoal_format::features::VERSION,
            bytes: sb.geometry.bytes(),
            created: sb.created,
        }
    }
}

/// Reads the identity of the volume in a file, on a device or in a bucket, which may be in use.
/// Takes no lock, reads two sectors and writes nothing; so what it says may be old. `None`: there
/// is no volume.
///
/// # Errors
/// Those of reading; damage of both superblocks; `EOPNOTSUPP` for a volume of a version or with
/// features that this code does not know.
pub fn identify(path: &Path) -> Result<Option<Identity>> {
    if is_bucket(path) {
        let device = storage::open(path, OpenMode::ReadOnly, &OpenOptions::default())?;
        return shoal_txn::read_superblock(&*device).map(|sb| Some(Identity::of(&sb)));
    }
    let failed = |error: std::io::Error| {
        let code = match error.raw_os_error() {
            Some(errno) => Code::ALL.iter().copied().find(|code| code.errno() == errno),
            None => None,
        };
        let reason = error.to_string();
        let reason = reason.split(" (os error").next().unwrap_or_default().to_lowercase();
        Error::refused(code.unwrap_or(Code::Io), format!("{}: {reason}", path.display()))
    };
    let kind = std::fs::metadata(path).map_err(failed)?.file_type();
    if kind.is_fifo() || kind.is_char_device() || kind.is_socket() {
        // Opening or reading it might never end.
        return Ok(None);
    }
    let file = File::open(path).map_err(failed)?;
    let (mut newest, mut broken): (Option<Superblock>, _) = (None, None);
    for addr in COPIES {
        let mut raw = [0; SIZE];
        match file.read_exact_at(&mut raw, addr) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => break,
            Err(error) => return Err(failed(error)),
        }
        match Superblock::decode(&raw, addr) {
            Ok(Some(sb)) if newest.is_none_or(|it| it.sequence < sb.sequence) => newest = Some(sb),
            Ok(_) => {}
            Err(error) => broken = Some(error),
        }
    }
    match (newest, broken) {
        (Some(sb), _) => Ok(Some(Identity::of(&sb))),
        (None, Some(error)) => Err(error),
        (None, None) => Ok(None),
    }
}
