//! Places of the socket of a volume's sessions.

use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Folder of sockets, in that of running programs.
const FOLDER: &str = "shoal";

/// Returns the folder of sockets of this user; `None` if there is none for running programs.
fn folder() -> Option<PathBuf> {
    let running = match rustix::process::geteuid().is_root() {
        true => PathBuf::from("/run"),
        false => PathBuf::from(std::env::var_os("XDG_RUNTIME_DIR")?),
    };
    Some(running.join(FOLDER))
}

/// Makes the folder of a socket. Others may enter it, if they may enter the one above.
///
/// # Errors
/// Those of `mkdir(2)`.
pub fn make_folder(socket: &Path) -> std::io::Result<()> {
    let Some(folder) = socket.parent() else { return Ok(()) };
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
    let of_root = PathBuf::from("/run").join(FOLDER).join(link_of(device));
    let own = own_link(device).filter(|own| *own != of_root);
    std::iter::once(of_root).chain(own)
}

fn link_of(device: u64) -> String {
    format!("{}:{}.sock", rustix::fs::major(device), rustix::fs::minor(device))
}

/// Returns the place of the socket of a volume that this user serves, by the volume's UUID; `None`
/// if there is no folder for running programs.
pub fn own_socket(volume: &str) -> Option<PathBuf> {
    folder().map(|folder| folder.join(name_of(volume)))
}

/// Returns the places at which a volume may be served: by the superuser, and by this user.
pub fn sockets(volume: &str) -> impl Iterator<Item = PathBuf> {
    let of_root = PathBuf::from("/run").join(FOLDER).join(name_of(volume));
    let own = own_socket(volume).filter(|own| *own != of_root);
    std::iter::once(of_root).chain(own)
}

fn name_of(volume: &str) -> String {
    format!("{}.sock", volume.replace('-', ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "01-23";

    #[test]
    fn the_own_socket_is_one_of_those_that_are_looked_for() {
        if let Some(own) = own_socket(UUID) {
            assert!(sockets(UUID).any(|place| place == own));
            assert!(own.ends_with("shoal/0123.sock"));
        }
    }
}
