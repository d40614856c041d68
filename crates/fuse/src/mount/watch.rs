//! Reaction of a mount to a volume that becomes read-only at work, after a failed write or flush of
//! the device or because of damage.
//!
//! The volume refuses changes at once (`EROFS`). A thread here notices it soon after, logs the
//! reason, and makes the mount itself read-only, so that `statvfs` and the list of mounts show it
//! too. The kernel refuses that while a file is open for writing, so the thread tries again, at
//! growing intervals.
//!
//! *Why a thread.* The kernel first writes back its dirty data of the mount, by requests to the
//! server. The thread here answers none.

use crate::notices::Notices;
use crate::table;
use crate::transport::Threads;
use rustix::fs::{CWD, Mode, OFlags, major, minor};
use rustix::io::Errno as Os;
use rustix::mount::{FsPickFlags, fsconfig_reconfigure, fsconfig_set_flag, fspick};
use shoal::raw::Volume;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Interval at which the volume is polled.
const EVERY: Duration = Duration::from_millis(500);
/// Longest interval between two attempts.
const LONGEST: Duration = Duration::from_secs(30);

/// Starts the thread. It ends with the mount.
pub(super) fn start(
    volume: Arc<Volume>,
    notices: Arc<Notices>,
    dir: &Path,
    threads: &Threads,
) -> io::Result<()> {
    // Identifies the mount: there may be another one on the same directory by then.
    let Some(entry) = table::mount_at(dir)? else { return Ok(()) };
    let (dir, device) = (dir.to_owned(), entry.device);
    threads.start("shoal-watch".to_owned(), move || watch(&volume, &notices, &dir, &device))
}

fn watch(volume: &Volume, notices: &Notices, dir: &Path, device: &str) {
    let ended = |after| notices.wait_for_end(after);
    let reason = loop {
        if ended(EVERY) {
            return;
        }
        if let Some(reason) = volume.read_only_reason() {
            break reason;
        }
    };
    let shown = dir.display();
    tracing::error!(dir = %shown, %reason, "the volume has become read-only");
    let mut pause = EVERY;
    loop {
        match make_read_only(dir, device) {
            Ok(()) => {
                tracing::warn!(dir = %shown, "the mount is read-only now");
                return;
            }
            Err(Os::BUSY) if pause == EVERY => {
                tracing::warn!(dir = %shown, "the mount becomes read-only when no file is open \
                    for writing any more");
            }
            Err(Os::BUSY) => {}
            Err(error) => {
                tracing::warn!(dir = %shown, %error, "the mount is not shown as read-only; \
                    changes are refused all the same");
                return;
            }
        }
        if ended(pause) {
            return;
        }
        pause = (pause * 2).min(LONGEST);
    }
}

/// Makes the file system that is mounted on `dir` read-only, wherever else it is mounted too.
fn make_read_only(dir: &Path, device: &str) -> Result<(), Os> {
    // By descriptor, so that the mount that was checked is the one that changes.
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let top = rustix::fs::openat(CWD, dir, flags, Mode::empty())?;
    let found = rustix::fs::fstat(&top)?.st_dev;
    if format!("{}:{}", major(found), minor(found)) != device {
        return Err(Os::STALE);
    }
    let pick = FsPickFlags::FSPICK_CLOEXEC | FsPickFlags::FSPICK_EMPTY_PATH;
    let picked = fspick(&top, "", pick)?;
    fsconfig_set_flag(&picked, "ro")?;
    fsconfig_reconfigure(&picked)
}
