//! Facts about a mount, and the change of its options ([`crate::protocol::control`]).
//!
//! A remount has two halves. The kernel refuses changes by a flag of its own, which the program
//! sets that asks ([`crate::remount`]): to read-only before it asks here, to writable after it. So
//! no request of the kernel meets a server that refuses what the kernel has let through.

use super::{Context, Next};
use crate::protocol::Errno;
use crate::protocol::control::{Answer, Cursor, Entry, NO_ATIME, READ_ONLY};
use shoal::raw::{Ino, Label};

/// Longest value, in bytes; a longer one is cut.
const VALUE_MAX: usize = 4096;

/// Lists the facts; the cursor is the number of a row.
pub(crate) fn list(cx: &Context<'_>, cursor: u64, answer: &mut Answer<'_>) -> Option<Cursor> {
    let rows = rows(cx);
    let rest = rows.iter().enumerate().skip(usize::try_from(cursor).unwrap_or(usize::MAX));
    for (row, (name, value)) in rest {
        let value = &value.as_bytes()[..value.floor_char_boundary(VALUE_MAX)];
        if !answer.push(&Entry { texts: [name.as_bytes(), value], ..Entry::default() }) {
            return Some([row as u64, 0, 0]);
        }
    }
    None
}

fn rows(cx: &Context<'_>) -> Vec<(&'static str, String)> {
    let about = &cx.session.about;
    let info = cx.volume.info();
    let yes = |is: bool| if is { "yes" } else { "no" }.to_owned();
    let mut rows = vec![
        ("server", std::process::id().to_string()),
        ("keeper", cx.session.keeper().map(|pid| pid.to_string()).unwrap_or_default()),
        ("shoal", env!("CARGO_PKG_VERSION").to_owned()),
        ("read_only", yes(about.is_read_only())),
        ("noatime", yes(about.is_noatime())),
        ("id", info.id),
        ("label", info.label),
        ("created", info.created.to_string()),
        ("version", info.version.to_string()),
        ("features", info.features.join(",")),
        ("size", (info.segment_size * u64::from(info.segments)).to_string()),
        ("checkpoint", info.checkpoint.to_string()),
        ("cache", info.cache_bytes.to_string()),
    ];
    rows.extend(info.checkpoint_age.map(|age| ("checkpoint_age", age.to_string())));
    let scrubbed = about.last_scrub().map(|end| end.elapsed().as_secs());
    rows.extend(scrubbed.map(|age| ("scrub_age", age.to_string())));
    if let Some(facts) = about.facts() {
        rows.push(("source", facts.source.clone()));
        rows.push(("options", facts.options.clone()));
        rows.push(("opened_read_only", yes(facts.read_only)));
        rows.push(("uptime", facts.since.elapsed().as_secs().to_string()));
    }
    rows
}

/// Changes the label of the volume.
///
/// # Errors
/// `EPERM` in a mount of one subvolume, `EINVAL` for a text that cannot be a label.
pub(crate) fn set_label(cx: &Context<'_>, text: &[u8]) -> Next {
    if cx.session.top != Ino::ROOT {
        return Err(Errno::EPERM);
    }
    let text = str::from_utf8(text).map_err(|_| Errno::EINVAL)?;
    let label = Label::new(text).map_err(|_| Errno::EINVAL)?;
    cx.volume.maintenance().set_label(label)?;
    Ok(None)
}

/// Changes the state of the mount, as far as it is not the kernel's. A mount that becomes
/// read-only has everything on disk when this returns, with a checkpoint, so that nothing has to
/// be replayed.
///
/// # Errors
/// `EROFS` if the volume takes no changes, `EBUSY` while a change of a tree is in progress; then
/// nothing has changed.
pub(crate) fn remount(cx: &Context<'_>, flags: u32) -> Next {
    let about = &cx.session.about;
    let (read_only, noatime) = (flags & READ_ONLY != 0, flags & NO_ATIME != 0);
    let before = about.is_read_only();
    if !read_only {
        let opened = about.facts().is_some_and(|facts| facts.read_only);
        if opened || cx.volume.read_only_reason().is_some() {
            return Err(Errno::EROFS);
        }
        about.set(false, noatime);
    } else if !about.set(true, noatime) {
        return Err(Errno::EBUSY);
    }
    cx.volume.files().set_noatime(read_only || noatime);
    // A volume that was opened read-only has nothing to write.
    if read_only && !before {
        cx.volume.sync()?;
        cx.volume.maintenance().checkpoint()?;
    }
    tracing::info!(read_only, noatime, "remounted");
    Ok(None)
}
