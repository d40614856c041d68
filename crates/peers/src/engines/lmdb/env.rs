//! Opening an LMDB environment: a memory map of a file, which Rust cannot check.

use crate::error::Result;
use heed::{Env, EnvFlags, EnvOpenOptions};
use std::path::Path;

/// Addresses that are reserved for the file, so its largest size: it takes what is used.
const MAP_BYTES: usize = 256 << 30;
/// Databases in it.
const DATABASES: u32 = 3;

/// Opens the environment in a folder, without syncs, and makes it if it is not there.
pub(super) fn open(folder: &Path) -> Result<Env> {
    let mut options = EnvOpenOptions::new();
    options.map_size(MAP_BYTES).max_dbs(DATABASES);
    // SAFETY: the flag is unsafe because a crash of the machine can destroy the file. Nothing reads
    // the file of a run that has crashed.
    unsafe { options.flags(EnvFlags::NO_SYNC) };
    // SAFETY: the mapped file must not change but by LMDB itself. It is in a folder that this run
    // has made and no other program knows. Locks are on.
    Ok(unsafe { options.open(folder)? })
}
