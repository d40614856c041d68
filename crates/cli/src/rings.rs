//! Files of journal rings: what has returned and is not on the device yet, of mounts with a keeper.
//!
//! Such a file is named after its volume, in the user's folder of running programs. It is removed
//! when the volume is closed. One that is left, because keeper and server were killed, has the last
//! changes of its volume: whoever opens that next, with a mount or without, must open it with the
//! file, or they are lost.

use std::fs::{DirBuilder, File};
use std::io::Read;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use shoal::raw::{Code, RingMemory, identify, is_bucket};

use crate::failure::{Failure, Result};

/// Folder of rings, in that of running programs.
const FOLDER: &str = "shoal";

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
    let running = match rustix::process::geteuid().is_root() {
        true => PathBuf::from("/run"),
        false => PathBuf::from(std::env::var_os("XDG_RUNTIME_DIR")?),
    };
    Some(running.join(FOLDER).join(format!("{}.ring", id.replace('-', ""))))
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
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path.parent()?);
    let opened = made
        .map_err(|error| error.to_string())
        .and_then(|()| RingMemory::open(&path).map_err(|error| error.to_string()));
    match opened {
        Ok(memory) => Some((memory, path)),
        Err(error) => {
            tracing::warn!(error, path = %path.display(), "the ring has no file: what is not \
                synced is lost if the keeper is killed together with its server");
            None
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
        let _ = std::fs::remove_file(&self.path);
        GivenUp::beside(&self.path).remove();
    }
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
