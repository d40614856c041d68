//! Places of the files that a served volume has for others: in a folder of running programs, named
//! after the volume or the mount.

use shoal_base::{Code, Error, Result};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The folder's name, in that of running programs.
const FOLDER: &str = "shoal";
/// The superuser's folder of running programs.
const RUN: &str = "/run";
/// Extension of sockets, and of links to them.
const SOCKET: &str = "sock";

/// Returns the folder of this user; `None` if there is none for running programs.
fn folder() -> Option<PathBuf> {
    let running = match rustix::process::geteuid().is_root() {
        true => PathBuf::from(RUN),
        false => PathBuf::from(std::env::var_os("XDG_RUNTIME_DIR")?),
    };
    Some(running.join(FOLDER))
}

/// Returns the place of a file of a volume that this user serves, by the volume's UUID and an
/// extension; `None` if there is no folder for running programs.
pub fn own_file(volume: &str, extension: &str) -> Option<PathBuf> {
    folder().map(|folder| folder.join(name_of(volume, extension)))
}

fn name_of(volume: &str, extension: &str) -> String {
    format!("{}.{extension}", volume.replace('-', ""))
}

/// Makes the folder of a file. Others may enter it, if they may enter the one above.
///
/// # Errors
/// Those of `mkdir(2)`.
pub fn make_folder(file: &Path) -> std::io::Result<()> {
    let Some(folder) = file.parent() else { return Ok(()) };
    std::fs::DirBuilder::new().recursive(true).mode(0o755).create(folder)?;
    if Some(folder) == self::folder().as_deref() {
        // Made by an older server, it was for this user alone.
        std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755))?;
    }
    Ok(())
}

/// Returns the place of the name of a mount's socket, by the number of its filesystem (`st_dev`),
/// which everybody sees who has the mount: a link to the socket.
pub fn own_link(device: u64) -> Option<PathBuf> {
    folder().map(|folder| folder.join(link_of(device)))
}

/// Returns the places at which a mount may have left its link: of the superuser, and of this user.
pub fn links(device: u64) -> impl Iterator<Item = PathBuf> {
    of_both(own_link(device), link_of(device))
}

fn link_of(device: u64) -> String {
    format!("{}:{}.{SOCKET}", rustix::fs::major(device), rustix::fs::minor(device))
}

/// Returns the place of the socket of a volume that this user serves, and makes its folder.
///
/// # Errors
/// `ENOENT` if there is no folder for running programs; `EIO` if it cannot be made.
pub fn default_socket(volume: &str) -> Result<PathBuf> {
    let none = || {
        let message = "there is no folder for the socket (XDG_RUNTIME_DIR): give its place";
        Error::refused(Code::NotFound, message)
    };
    let socket = own_file(volume, SOCKET).ok_or_else(none)?;
    let failed = |error: std::io::Error| {
        let message = format!("folder of the socket {}: {error}", socket.display());
        Error::refused(Code::Io, message)
    };
    make_folder(&socket).map_err(failed)?;
    Ok(socket)
}

/// Returns the places at which a volume may be served: by the superuser, and by this user.
pub fn sockets(volume: &str) -> impl Iterator<Item = PathBuf> {
    of_both(own_file(volume, SOCKET), name_of(volume, SOCKET))
}

/// Returns the superuser's file of a name, and this user's if that is another.
fn of_both(own: Option<PathBuf>, name: String) -> impl Iterator<Item = PathBuf> {
    let of_root = PathBuf::from(RUN).join(FOLDER).join(name);
    let own = own.filter(|own| *own != of_root);
    std::iter::once(of_root).chain(own)
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "01-23";

    #[test]
    fn the_own_socket_is_one_of_those_that_are_looked_for() {
        if let Some(own) = own_file(UUID, SOCKET) {
            assert!(sockets(UUID).any(|place| place == own));
            assert!(own.ends_with("shoal/0123.sock"));
        }
    }
}
