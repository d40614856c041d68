//! Where the socket of a volume's sessions is.

use std::path::PathBuf;

/// Folder of sockets, in that of running programs.
const FOLDER: &str = "shoal";

/// Returns the place of the socket of a volume that this user serves, by the volume's UUID; `None` if there is no folder
/// for running programs.
pub fn own_socket(volume: &str) -> Option<PathBuf> {
    let running = match rustix::process::geteuid().is_root() {
        true => PathBuf::from("/run"),
        false => PathBuf::from(std::env::var_os("XDG_RUNTIME_DIR")?),
    };
    Some(running.join(FOLDER).join(name_of(volume)))
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
