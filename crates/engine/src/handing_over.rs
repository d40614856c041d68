//! An open volume that passes from one process to the next. Other openers never find it free.

use crate::volume::Volume;
use shoal_base::Result;
use std::fs::File;

/// Returns descriptors that keep the locks of a volume after this process has ended, for a
/// successor ([`OpenOptions::files`](crate::OpenOptions)). None for a volume that was not opened by
/// a path.
pub fn lock_files(volume: &Volume) -> Result<Vec<File>> {
    volume.device.as_ref().map_or_else(|| Ok(Vec::new()), |device| device.files())
}

/// Stops everything that writes to a volume, after a checkpoint, so that a successor can open it at
/// once. No call may be in progress, and none may follow. The volume counts as not closed; its
/// recovery has nothing to replay.
pub fn hand_over(volume: &Volume) -> Result<()> {
    volume.stop();
    let store = &volume.state.store;
    if store.writable().is_ok() {
        store.checkpoints().write()?;
    }
    if let Ok(journal) = store.journal() {
        journal.shutdown();
    }
    Ok(())
}
