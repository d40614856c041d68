//! Finding the process that serves a volume.

use shoal_engine::{self as raw, Code, Error, Result};
use shoal_session::place::sockets;
use shoal_session::{Calls, Remote, Session};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// Returns whether a process serves the volume at a path.
pub fn is_served(path: &Path) -> bool {
    raw::identify(path).ok().flatten().is_some_and(|it| sockets(&it.id).any(|it| it.exists()))
}

/// Connects to the process that serves a volume: the one in a file, on a device or in a bucket, the
/// one that a directory is mounted from, or the one behind a socket.
///
/// # Errors
/// `ENOENT` if nobody serves it, and those of [`Session::connect`].
pub fn connect(place: &Path) -> Result<Remote<Session>> {
    let found = match std::fs::metadata(place) {
        Ok(found) => Some(found),
        // A volume in a bucket is no file.
        Err(_) if raw::is_bucket(place) => None,
        Err(error) => {
            let code = match error.kind() {
                std::io::ErrorKind::PermissionDenied => Code::Access,
                _ => Code::NotFound,
            };
            return Err(Error::refused(code, format!("{}: {error}", place.display())));
        }
    };
    let session = match found {
        Some(found) if found.file_type().is_socket() => Session::connect(place),
        Some(found) if found.is_dir() => Session::of_mount(found.dev(), || {
            format!(
                "{}: this is not in a mounted volume that serves sessions here (mount -o \
                 session=...)",
                place.display()
            )
        }),
        _ => of_volume(place),
    };
    session.map(Remote)
}

/// Connects to the server of a mount by the number of its filesystem (`st_dev`).
///
/// # Errors
/// `ENOENT` if it has no socket here, and those of [`Session::connect`].
pub fn connect_mount(device: u64) -> Result<Remote<Session>> {
    let none = || "the server of this mount has no socket here (mount -o session=...)".to_owned();
    Session::of_mount(device, none).map(Remote)
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
    let here = match std::fs::metadata(volume) {
        Ok(found) => raw::place_of_file(&found),
        // A bucket.
        Err(_) => volume.to_string_lossy().trim_end_matches('/').to_owned(),
    };
    let mut refused = None;
    for socket in sockets(&identity.id).filter(|socket| socket.exists()) {
        let session = match Session::connect(&socket) {
            Ok(session) => session,
            Err(error) => {
                refused = Some(error);
                continue;
            }
        };
        if hex(session.volume()) != identity.id.replace('-', "") {
            refused = Some(failed("the socket at its place is another volume's"));
            continue;
        }
        let remote = Remote(session);
        let there = remote.stored_in(remote.0.caller())?;
        match there.as_ref() == Some(&here) {
            true => return Ok(remote.0),
            // It has the same id.
            false => refused = Some(failed("no process serves it, but one serves a copy of it")),
        }
    }
    let not_served = "no process serves it: mount it, or start 'shoal serve', or open it";
    Err(refused.unwrap_or_else(|| failed(not_served)))
}

fn hex(id: [u8; 16]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}
