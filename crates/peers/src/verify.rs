//! The check of a store that was closed and opened again: a measurement of creates whose files are
//! not there is none.

use crate::engine::Engine;
use crate::error::{PeerError, Result};
use crate::records::{FILES_PER_DIR, NewFile};

/// A directory's time may be older than that of its last create: clocks differ in resolution.
const CLOCK_NS: u64 = 1_000_000_000;

/// Checks that there are the files 0 to `files`, exclusive, and no more; that every `step`-th name
/// leads to its inode, and back; that the directories changed at `since_ns` or later.
pub(crate) fn verify(engine: &dyn Engine, files: u64, step: u64, since_ns: u64) -> Result<()> {
    for dir in 0..files.div_ceil(FILES_PER_DIR) {
        let expected = (files - dir * FILES_PER_DIR).min(FILES_PER_DIR);
        let found = engine.count(dir)?;
        if found != expected {
            let message = format!("directory {dir} has {found} entries instead of {expected}");
            return Err(PeerError::new(message));
        }
        if engine.modified_ns(dir)? + CLOCK_NS < since_ns {
            return Err(PeerError::new(format!("mtime of directory {dir} was not changed")));
        }
    }
    for index in (0..files).step_by(step as usize) {
        let (dir, NewFile { name, .. }) = (index / FILES_PER_DIR, NewFile::of(index));
        let ino = engine.child(dir, &name)?;
        let back = ino.map(|ino| engine.parent(ino)).transpose()?.flatten();
        if back != Some((dir, name)) {
            let name = name.escape_ascii();
            let message = format!(
                "\"{name}\" leads to {ino:?}, and that back to directory and name {back:?}"
            );
            return Err(PeerError::new(message));
        }
    }
    Ok(())
}
