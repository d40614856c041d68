//! The place where a volume is mounted, found by the volume's path.

use rustix::io::Errno;
use std::fs::{self, Metadata};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Words of a refusal that names the process.
const IN_USE: &str = " is in use by ";

/// Returns whether two names are of one file or of one device.
pub(crate) fn is_same(one: &Metadata, other: &Metadata) -> bool {
    let both = |is: fn(&Metadata) -> bool| is(one) && is(other);
    (one.dev(), one.ino()) == (other.dev(), other.ino())
        || both(|it| it.file_type().is_block_device()) && one.rdev() == other.rdev()
}

/// Returns the directory where a volume is mounted, by any of its names. `None`: nowhere, as far as
/// can be seen from here.
pub(crate) fn of_volume(volume: &Path) -> Option<PathBuf> {
    let found = fs::metadata(volume).ok();
    let is_it = |source: &Path| match (&found, fs::metadata(source)) {
        (Some(found), Ok(source)) => is_same(found, &source),
        // A bucket.
        (None, Err(_)) => source == volume,
        _ => false,
    };
    let mounts = shoal_fuse::mounts().ok()?;
    // Under a name of its own (-o fsname) the server knows the volume.
    let has_name = |source: &Path| !source.exists() && !shoal::raw::is_bucket(source);
    // Of a server that was killed the mount may still be there, and answers nothing.
    let is_dead = |dir: &Path| {
        let error = fs::metadata(dir).err();
        error.is_some_and(|error| error.raw_os_error() == Some(Errno::NOTCONN.raw_os_error()))
    };
    let mount = mounts.into_iter().find(|(dir, source)| {
        let source = Path::new(source);
        let is_named = is_it(source) || has_name(source) && serves(dir, volume) == Some(true);
        is_named && !is_dead(dir)
    });
    mount.map(|(dir, _)| dir)
}

/// Returns whether a mount is of a volume, which is in use then: a copy of it has the same id.
fn serves(dir: &Path, volume: &Path) -> Option<bool> {
    let file = fs::File::open(volume).ok()?;
    let locked = rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockShared);
    let is_in_use = locked == Err(Errno::WOULDBLOCK);
    let id = shoal::raw::identify(volume).ok().flatten().filter(|_| is_in_use)?.id;
    let mount = fs::File::open(dir).ok()?;
    Some(*shoal_fuse::facts_of(mount.into()).ok()?.get("id")? == id)
}

/// Adds to a refusal of a volume in use where it is mounted, in place of the command of the process
/// that has it.
pub(crate) fn explained(volume: &str, refusal: &str) -> Option<String> {
    let dir = of_volume(Path::new(volume))?;
    let dir = crate::text::printable(dir.as_os_str().as_bytes()).into_owned();
    let (rest, remedy) = refusal.rsplit_once(": ").filter(|_| refusal.contains(IN_USE))?;
    let process = rest.split(" (").next()?;
    Some(format!("{process}, mounted at {dir}: {remedy}"))
}
