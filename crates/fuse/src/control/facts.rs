//! Facts about a mounted volume, and the change of the mount's options.

use super::{Call, find};
use crate::mount::{code_of, kernel, options::MountOptions, refused};
use crate::protocol::control::{Kind, NO_ATIME, READ_ONLY};
use rustix::fs::{Mode, OFlags, StatVfsMountFlags};
use rustix::io::Errno as Os;
use shoal::raw::{Code, Error, Label, Result};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// Returns the facts about the mount that `opened` is in, by name; a server of another version may
/// know others.
///
/// # Errors
/// `EPERM` unless the caller is the superuser or the user who mounted, `EINVAL` when the server is
/// of a version that does not know the question, `ENOTTY` when this is no mount of Shoal.
pub fn facts_of(opened: impl AsFd) -> io::Result<BTreeMap<String, String>> {
    let mut facts = BTreeMap::new();
    Call::new(Kind::Facts, 0).list(opened, &mut |entry| {
        let [name, value] = entry.texts.map(|text| String::from_utf8_lossy(text).into_owned());
        facts.insert(name, value);
    })?;
    Ok(facts)
}

/// Changes the label of the volume in the mount that `opened` is in. It is durable on return.
///
/// # Errors
/// `EPERM` unless the caller is the superuser or the user who mounted, and in a mount of one
/// subvolume; `EROFS` when the volume or the mount is read-only, `ENOTTY` when this is no mount of
/// Shoal.
pub fn set_label(opened: impl AsFd, label: Label) -> io::Result<()> {
    let mut call = Call::new(Kind::SetLabel, 0);
    call.name(label.as_str().as_bytes())?;
    call.send(opened)
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
    let failed = |error: io::Error| refused(code_of(&error), &what, &error);
    let top = open_top(&dir).map_err(failed)?;
    let facts = facts_of(&top).map_err(failed)?;
    let now = MountOptions::served(facts.get("options").map_or("", String::as_str))?;
    let (read_only, noatime) = (is_yes(&facts, "read_only"), is_yes(&facts, "noatime"));
    let now = MountOptions { read_only, noatime, ..now };
    let wanted = now.changed_by(list, &what)?;
    let flags =
        if wanted.read_only { READ_ONLY } else { 0 } | if wanted.noatime { NO_ATIME } else { 0 };
    let ask = || {
        let mut call = Call::new(Kind::Remount, flags);
        call.send(&top).map_err(|error| match Os::from_io_error(&error) {
            Some(Os::ROFS) => Error::refused(Code::ReadOnly, why_read_only(&what, &top, &facts)),
            Some(Os::BUSY) => {
                let message = format!("{what}: a change of a tree is in progress: try again later");
                Error::refused(Code::Busy, message)
            }
            _ => refused(code_of(&error), &what, &error),
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
fn why_read_only(what: &str, top: &OwnedFd, facts: &BTreeMap<String, String>) -> String {
    if is_yes(facts, "opened_read_only") {
        return format!(
            "{what} for writing: its server has opened the volume read-only: unmount it, and mount \
             it again without ro"
        );
    }
    let reason = super::read_only_reason_of(top).ok().flatten().unwrap_or_default();
    format!("{what} for writing: the volume takes no changes: {reason}")
}
