//! Facts about a mounted volume, and the change of the mount's options.

use super::{calls_by, find};
use crate::mount::{code_of, kernel, options::MountOptions, refused};
use rustix::fs::{Mode, OFlags, StatVfsMountFlags};
use rustix::io::Errno as Os;
use shoal::raw::{Caller, Code, Error, Result};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

/// Returns the facts about the mount that an open file is in, by name.
///
/// # Errors
/// `EPERM` unless the caller is the superuser or the user who mounted, `EINVAL` when this is no
/// mount of Shoal.
pub fn facts_of(opened: OwnedFd) -> Result<BTreeMap<String, String>> {
    calls_by(opened).all_facts(&Caller::root())
}

/// Changes the options of the mount on `dir`: the words of a list for `-o`, as mount(8) passes
/// them on. Read-only or writable, access times, and the flags that every file system has can
/// change; another option is refused by name, unless it has its value already.
///
/// A mount that becomes read-only has everything on disk when this returns.
///
/// # Errors
/// `EBUSY` if files are open for writing, `EROFS` for a mount that cannot become writable, `EINVAL`
/// for an option that cannot change, `EPERM` unless the caller is the superuser.
pub fn remount(dir: &Path, list: &[String]) -> Result<()> {
    let dir = find(dir)?;
    let what = format!("cannot remount {}", dir.display());
    let top = open_top(&dir).map_err(|error| refused(code_of(&error), &what, &error))?;
    let (calls, who) = (calls_by(top), Caller::root());
    let failed = |error: Error| Error::refused(error.code(), format!("{what}: {error}"));
    let facts = calls.all_facts(&who).map_err(failed)?;
    let now = MountOptions::served(facts.get("options").map_or("", String::as_str))?;
    let (read_only, noatime) = (is_yes(&facts, "read_only"), is_yes(&facts, "noatime"));
    let now = MountOptions { read_only, noatime, ..now };
    let wanted = now.changed_by(list, &what)?;
    let ask = || {
        calls.remount(&who, wanted.read_only, wanted.noatime).map_err(|error| match error.code() {
            Code::ReadOnly => {
                let reason = calls.read_only_reason(&who).ok().flatten().unwrap_or_default();
                Error::refused(Code::ReadOnly, why_read_only(&what, &reason, &facts))
            }
            Code::Busy => {
                let message = format!("{what}: a change of a tree is in progress: try again later");
                Error::refused(Code::Busy, message)
            }
            _ => failed(error),
        })
    };
    let tell_kernel = || {
        kernel::remount(&dir, &wanted).map_err(|error| match Os::from_io_error(&error) {
            Some(Os::BUSY) => {
                Error::refused(Code::Busy, format!("{what}: files are open for writing"))
            }
            _ => refused(code_of(&error), &what, &error),
        })
    };
    if !wanted.read_only {
        ask()?;
        return tell_kernel();
    }
    tell_kernel()?;
    ask().inspect_err(|_| {
        if !now.read_only {
            // The first error is the one to report.
            let _ = kernel::remount(&dir, &now);
        }
    })
}

/// Makes the mount on `dir` read-only, and leaves its other options. As [`remount`].
pub fn remount_read_only(dir: &Path) -> Result<()> {
    let flags = rustix::fs::statvfs(dir)
        .map_err(|os| refused(code_of(&os.into()), &dir.display().to_string(), &os.into()))?
        .f_flag;
    let list = [
        (StatVfsMountFlags::NOSUID, "nosuid"),
        (StatVfsMountFlags::NODEV, "nodev"),
        (StatVfsMountFlags::NOEXEC, "noexec"),
        (StatVfsMountFlags::SYNCHRONOUS, "sync"),
        (StatVfsMountFlags::empty(), "ro"),
    ];
    let list = list.into_iter().filter(|(flag, _)| flags.contains(*flag));
    remount(dir, &list.map(|(_, name)| name.to_owned()).collect::<Vec<_>>())
}

fn open_top(dir: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(dir, flags, Mode::empty())?)
}

fn is_yes(facts: &BTreeMap<String, String>, name: &str) -> bool {
    facts.get(name).is_some_and(|value| value == "yes")
}

/// Returns the message for a mount that cannot become writable.
fn why_read_only(what: &str, reason: &str, facts: &BTreeMap<String, String>) -> String {
    if is_yes(facts, "opened_read_only") {
        return format!(
            "{what} for writing: its server has opened the volume read-only: unmount it, and mount \
             it again without ro"
        );
    }
    format!("{what} for writing: the volume takes no changes: {reason}")
}
