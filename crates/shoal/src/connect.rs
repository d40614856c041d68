//! Finding the process that serves a volume.

use crate::raw::{self, Code, Error, Result};
use shoal_session::Session;
use shoal_session::place::sockets;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Place of the text, below the top of a mount, that says where its sessions begin.
const TEXT: &str = ".shoal/session";

/// Returns whether a process serves the volume at a path.
pub(crate) fn is_served(path: &Path) -> bool {
    raw::identify(path).ok().flatten().is_some_and(|it| sockets(&it.id).any(|it| it.exists()))
}

/// Connects to the process that serves a volume: the one in a file, on a device or in a bucket, the
/// one that a directory is mounted from, or the one behind a socket.
pub(crate) fn connect(place: &Path) -> Result<Session> {
    let found = match std::fs::metadata(place) {
        Ok(found) => Some(found),
        // A volume in a bucket is no file.
        Err(_) if raw::is_bucket(place) => None,
        Err(error) => {
            let message = format!("{}: {error}", place.display());
            return Err(Error::refused(Code::NotFound, message));
        }
    };
    match found {
        Some(found) if found.file_type().is_socket() => Session::connect(place),
        Some(found) if found.is_dir() => Session::connect(&of_mount(place, &found)?),
        _ => of_volume(place),
    }
}

/// Finds the socket of a mount by a directory in it.
fn of_mount(dir: &Path, found: &std::fs::Metadata) -> Result<PathBuf> {
    let failed = |why: &str| {
        let message = format!("{}: {why}", dir.display());
        Error::refused(Code::NotFound, message)
    };
    let dir = std::fs::canonicalize(dir).map_err(|error| failed(&error.to_string()))?;
    let is_same =
        |above: &&Path| std::fs::metadata(above).is_ok_and(|above| above.dev() == found.dev());
    let top = dir.ancestors().take_while(is_same).last().unwrap_or(&dir);
    let text = std::fs::read(top.join(TEXT)).map_err(|_| {
        failed("this is not in a mounted volume that serves sessions (mount -o session=...)")
    })?;
    let path = text.strip_suffix(b"\n").unwrap_or(&text);
    Ok(crate::path::to_path_buf(path))
}

/// Connects to a process that has the volume open.
fn of_volume(volume: &Path) -> Result<Session> {
    let failed = |why: &str| {
        let message = format!("{}: {why}", volume.display());
        Error::refused(Code::NotFound, message)
    };
    let Some(identity) = raw::identify(volume)? else {
        return Err(failed("no volume of Shoal"));
    };
    let mut refused = None;
    for socket in sockets(&identity.id).filter(|socket| socket.exists()) {
        match Session::connect(&socket) {
            Ok(session) => return Ok(session),
            Err(error) => refused = Some(error),
        }
    }
    let not_served = "no process serves it: mount it, or start 'shoal serve', or open it";
    Err(refused.unwrap_or_else(|| failed(not_served)))
}
