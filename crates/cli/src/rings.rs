//! Files of journal rings: what has returned and is not on the device yet, of mounts with a keeper.
//!
//! Such a file is named after its volume, in the user's folder of running programs. It is removed
//! when the volume is closed. One that is left, because keeper and server were killed, has the last
//! changes of its volume: whoever opens that next, with a mount or without, must open it with the
//! file, or they are lost.
//!
//! A ring takes 48 MiB of memory, and that of a volume which has been removed meanwhile is never
//! asked for. So a file beside it notes the place of the volume, and the next mount of any volume
//! removes rings whose volume is gone for certain: its folder is there, the same one as then, and
//! has no such volume. An unplugged disk or a filesystem that is not mounted is another case.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use shoal::raw::{Code, RingMemory, identify, is_bucket};
use shoal_session::place::{make_folder, own_file};

use crate::failure::{Failure, Result};

/// Extension of the note of a ring's volume.
const NOTE: &str = "volume";

/// Returns the path of a volume's ring; `None` if there is no volume, or no place for it.
fn path_of(volume: &Path) -> Option<PathBuf> {
    // A volume in a bucket has none, and reading its id takes requests.
    if is_bucket(volume) {
        return None;
    }
    path_of_id(&identify(volume).ok().flatten()?.id)
}

/// The same by the volume's id.
fn path_of_id(id: &str) -> Option<PathBuf> {
    own_file(id, "ring")
}

/// File with the reason why the keeper gave up a volume's last mount, beside the ring's file.
/// `shoal info` shows it.
#[derive(Debug)]
pub(crate) struct GivenUp(PathBuf);

impl GivenUp {
    /// Largest number of bytes that are read.
    const MAX: u64 = 4096;

    /// Returns the file of a volume, which need not exist; `None` if a ring can have no file.
    pub(crate) fn of(volume: &Path) -> Option<GivenUp> {
        path_of(volume).map(|ring| GivenUp::beside(&ring))
    }

    /// The same by the volume's id, without a read of the volume.
    pub(crate) fn of_id(id: &str) -> Option<GivenUp> {
        path_of_id(id).map(|ring| GivenUp::beside(&ring))
    }

    fn beside(ring: &Path) -> GivenUp {
        GivenUp(ring.with_extension("given-up"))
    }

    /// Writes the reason.
    pub(crate) fn write(&self, text: &str) {
        if let Err(error) = std::fs::write(&self.0, text) {
            tracing::warn!(%error, path = %self.0.display(), "shoal info will not have the reason");
        }
    }

    /// Returns the reason; `None` if the last mount was not given up.
    pub(crate) fn read(&self) -> Option<String> {
        let mut text = Vec::new();
        File::open(&self.0).ok()?.take(GivenUp::MAX).read_to_end(&mut text).ok()?;
        Some(String::from_utf8_lossy(&text).into_owned())
    }

    /// Removes the file: the volume is served again, or has been closed.
    pub(crate) fn remove(&self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Opens the ring of a volume, and makes it if need be. `None`: it can have no file.
pub(crate) fn make(volume: &Path) -> Option<(RingMemory, PathBuf)> {
    let path = path_of(volume)?;
    let folder = path.parent()?;
    // Others find the sockets of sessions in it; a ring's file is for this user alone.
    let made = make_folder(&path);
    remove_of_gone(folder);
    let opened = made
        .map_err(|error| error.to_string())
        .and_then(|()| RingMemory::open(&path).map_err(|error| error.to_string()));
    match opened {
        Ok(memory) => {
            note(&path, volume);
            Some((memory, path))
        }
        Err(error) => {
            tracing::warn!(error, path = %path.display(), "the ring has no file: changes that are \
                not synced are lost if the keeper is killed together with its server");
            None
        }
    }
}

/// Removes the file of a ring, which its owner has locked, and the note of its volume.
pub(crate) fn remove(ring: &Path) {
    let _ = std::fs::remove_file(ring);
    let _ = std::fs::remove_file(ring.with_extension(NOTE));
}

/// Notes beside a ring where its volume is.
fn note(ring: &Path, volume: &Path) {
    // Without a note the ring stays until the volume is opened.
    if let Some(home) = Home::of(volume) {
        let _ = std::fs::write(ring.with_extension(NOTE), home.line());
    }
}

/// Removes the rings of volumes that are gone.
fn remove_of_gone(folder: &Path) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let ring = entry.path();
        if ring.extension().is_none_or(|extension| extension != "ring") {
            continue;
        }
        let text = std::fs::read(ring.with_extension(NOTE)).unwrap_or_default();
        let id = ring.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        let is_gone = Home::parse(&text).is_some_and(|home| home.has_lost(id));
        // One in use belongs to a mount, whose volume somebody has removed.
        if is_gone && let Ok(_locked) = RingMemory::open(&ring) {
            tracing::info!(ring = %ring.display(), "removed: its volume is gone");
            remove(&ring);
            GivenUp::beside(&ring).remove();
        }
    }
}

/// Place of a volume in a file: its path, and the identity of its folder.
#[derive(PartialEq, Eq, Debug)]
struct Home {
    volume: PathBuf,
    device: u64,
    inode: u64,
}

impl Home {
    /// Returns the place of a volume; `None` for a device, whose file comes and goes with it.
    fn of(volume: &Path) -> Option<Home> {
        let volume = volume.canonicalize().ok()?;
        let folder = std::fs::metadata(volume.parent()?).ok()?;
        let is_file = std::fs::metadata(&volume).is_ok_and(|found| found.is_file());
        is_file.then(|| Home { volume, device: folder.dev(), inode: folder.ino() })
    }

    fn line(&self) -> Vec<u8> {
        let numbers = format!("{} {} ", self.device, self.inode);
        [numbers.as_bytes(), self.volume.as_os_str().as_bytes()].concat()
    }

    fn parse(line: &[u8]) -> Option<Home> {
        let mut parts = line.splitn(3, |byte| *byte == b' ');
        let mut number = || std::str::from_utf8(parts.next()?).ok()?.parse().ok();
        let (device, inode) = (number()?, number()?);
        let volume = Path::new(OsStr::from_bytes(parts.next()?)).to_owned();
        volume.is_absolute().then_some(Home { volume, device, inode })
    }

    /// Returns whether the folder is the same one, and the volume with an id is not in its place.
    fn has_lost(&self, id: &str) -> bool {
        let folder = self.volume.parent().and_then(|folder| std::fs::metadata(folder).ok());
        let is_same =
            folder.is_some_and(|found| (found.dev(), found.ino()) == (self.device, self.inode));
        is_same
            && match std::fs::symlink_metadata(&self.volume) {
                Err(error) => error.kind() == ErrorKind::NotFound,
                // A damaged volume may have no id that can be read.
                Ok(_) => {
                    let there = identify(&self.volume).ok().flatten();
                    there.is_some_and(|there| there.id.replace('-', "") != id)
                }
            }
    }
}

/// A ring that a killed mount has left.
#[derive(Debug)]
pub(crate) struct Kept {
    /// Its memory, for the open of the volume.
    pub memory: Arc<RingMemory>,
    path: PathBuf,
}

impl Kept {
    /// Finds the ring that a volume was left with. One that is in use belongs to a mount, which is
    /// found out when the volume is opened.
    pub(crate) fn find(volume: &Path) -> Result<Option<Kept>> {
        let Some(path) = path_of(volume).filter(|path| path.exists()) else { return Ok(None) };
        match RingMemory::open(&path) {
            Ok(memory) => Ok(Some(Kept { memory: Arc::new(memory), path })),
            Err(error) if error.code() == Code::Busy => Ok(None),
            Err(error) => Err(Failure::volume(path.display(), &error)),
        }
    }

    /// Removes it: its volume has been closed.
    pub(crate) fn remove(self) {
        // While it is locked: nobody else has opened it.
        remove(&self.path);
        GivenUp::beside(&self.path).remove();
    }
}

/// Returns whether a volume whose server has ended has a ring with its last changes. One in use is
/// that of the server, whose process is not quite gone, or of one that has begun since.
pub(crate) fn is_left(volume: &Path) -> bool {
    path_of(volume).filter(|path| path.exists()).is_some_and(|path| {
        RingMemory::open(&path)
            .map_or_else(|error| error.code() == Code::Busy, |memory| memory.holds_records())
    })
}

/// Refuses a repair of a volume whose last changes are in a ring: it does not know them.
pub(crate) fn refuse_unread(volume: &Path) -> Result<()> {
    match Kept::find(volume)? {
        Some(kept) if kept.memory.holds_records() => {
            let why = format!(
                "its last changes are in {}, left by a mount that was killed: mount it once, or \
                 remove that file to do without them",
                kept.path.display()
            );
            Err(Failure::usage(volume.display(), why))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_is_gone_only_if_its_folder_shows_it() {
        let folder = std::env::temp_dir().join(format!("shoal-home-{}", std::process::id()));
        std::fs::create_dir(&folder).expect("a folder");
        let volume = folder.join("v w");
        let wish = shoal::raw::MkfsOptions { size: 64 << 20, ..Default::default() };
        shoal::raw::mkfs(&volume, &wish).expect("a volume");
        let id = identify(&volume).expect("read").expect("a volume").id.replace('-', "");
        let home = Home::of(&volume).expect("a file");
        assert_eq!(Home::parse(&home.line()), Some(home));
        let home = Home::of(&volume).expect("a file");
        assert!(!home.has_lost(&id) && home.has_lost("of another"));
        // Damaged: it may be that volume.
        std::fs::write(&volume, "").expect("write");
        assert!(!home.has_lost(&id));
        std::fs::remove_file(&volume).expect("remove");
        assert!(home.has_lost(&id));
        // As when another filesystem is mounted there, or none any more.
        assert!(
            !Home { inode: home.inode + 1, ..Home::parse(&home.line()).expect("a home") }
                .has_lost(&id)
        );
        std::fs::remove_dir(&folder).expect("remove");
        assert!(!home.has_lost(&id));
        assert_eq!(Home::of(Path::new("/dev/null")), None);
        for bad in ["", "1 2", "1 2 relative", "x 2 /v"] {
            assert_eq!(Home::parse(bad.as_bytes()), None, "{bad}");
        }
    }
}
