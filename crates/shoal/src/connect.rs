//! Finding the process that serves a volume.

use crate::raw::{self, Code, Error, Result};
use shoal_session::Session;
use shoal_session::place::{links, sockets};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

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
            let code = match error.kind() {
                std::io::ErrorKind::PermissionDenied => Code::Access,
                _ => Code::NotFound,
            };
            return Err(Error::refused(code, format!("{}: {error}", place.display())));
        }
    };
    match found {
        Some(found) if found.file_type().is_socket() => Session::connect(place),
        Some(found) if found.is_dir() => of_mount(place, found.dev()),
        _ => of_volume(place),
    }
}

/// Connects to the server of the mount that a directory is in.
fn of_mount(dir: &Path, device: u64) -> Result<Session> {
    let mut refused = None;
    for link in links(device).filter(|link| link.exists()) {
        match Session::connect(&link) {
            // A link that a killed server has left may lead to another mount by now.
            Ok(session) if session.device() == device => return Ok(session),
            Ok(_) => {}
            Err(error) => refused = Some(error),
        }
    }
    let message = format!(
        "{}: this is not in a mounted volume that serves sessions here (mount -o session=...)",
        dir.display()
    );
    Err(refused.unwrap_or_else(|| Error::refused(Code::NotFound, message)))
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
            Ok(session) if hex(session.volume()) == identity.id.replace('-', "") => {
                return Ok(session);
            }
            Ok(_) => refused = Some(failed("the socket at its place is another volume's")),
            Err(error) => refused = Some(error),
        }
    }
    let not_served = "no process serves it: mount it, or start 'shoal serve', or open it";
    Err(refused.unwrap_or_else(|| failed(not_served)))
}

fn hex(id: [u8; 16]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}
