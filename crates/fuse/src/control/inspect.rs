//! What goes on inside a mounted volume, asked for page by page.

use super::{Page, ask_page};
use crate::protocol::flags::IOCTL_INSPECT;
use crate::protocol::inspect::*;
use crate::protocol::page::{PAGE, Record};
use crate::protocol::wire::{CounterRecord, InspectHead, OrphanRecord};
use crate::stats::Stat;
use shoal::{Ino, OrphanInfo, RootInfo};
use std::io;
use std::os::fd::AsFd;
use zerocopy::{FromBytes, IntoBytes};

/// What a mounted volume has without a name.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Orphans {
    /// Inodes, by number.
    pub inodes: Vec<OrphanInfo>,
    /// Roots that have been deleted, by number.
    pub roots: Vec<RootInfo>,
}

/// The counters of the mount that `opened` is a file or directory of, since it was mounted.
///
/// # Errors
/// `ENOTTY` when this is no mount of Shoal.
pub fn stats_of(opened: impl AsFd) -> io::Result<Vec<Stat>> {
    let mut stats = Vec::new();
    list(opened, COUNTERS, &mut |record: CounterRecord, tail| {
        let (name, what) = tail.split_at(usize::from(record.name_len).min(tail.len()));
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned().into();
        let (name, what, gauge) = (text(name), text(what), record.gauge != 0);
        stats.push(Stat { name, value: record.value, what, gauge });
    })?;
    Ok(stats)
}

/// Why the volume of the mount that `opened` is a file or directory of takes no changes; `None`: it
/// does.
///
/// # Errors
/// `ENOTTY` when this is no mount of Shoal.
pub fn read_only_reason_of(opened: impl AsFd) -> io::Result<Option<String>> {
    let mut reason = None;
    list(opened, READ_ONLY, &mut |_: CounterRecord, text| {
        reason = Some(String::from_utf8_lossy(text).into_owned());
    })?;
    Ok(reason)
}

/// Discards the free space of the mount that `opened` is a file or directory of. Returns how many
/// bytes that were.
///
/// # Errors
/// `EPERM` unless the caller is the superuser or the user who mounted, and in a mount of one root;
/// `EROFS` when the volume takes no changes, `ENOTTY` when this is no mount of Shoal.
pub fn trim(opened: impl AsFd) -> io::Result<u64> {
    let mut bytes = 0;
    list(opened, TRIM, &mut |record: CounterRecord, _| bytes += record.value)?;
    Ok(bytes)
}

/// What stands in the orphan table of the mount that `opened` is a file or directory of, or lives
/// on in memory alone; and which roots have been deleted and are being freed.
///
/// # Errors
/// `EPERM` unless the caller is the superuser or the user who mounted, `ENOTTY` when this is no
/// mount of Shoal.
pub fn orphans_of(opened: impl AsFd) -> io::Result<Orphans> {
    let mut orphans = Orphans::default();
    list(&opened, ORPHANS, &mut |record: OrphanRecord, path| {
        orphans.inodes.push(OrphanInfo {
            ino: Ino(record.ino),
            state: state_of(record.state),
            slot: record.flags & HAS_SLOT != 0,
            held: record.flags & IS_HELD != 0,
            size: record.size,
            bytes: record.bytes,
            path: (record.flags & HAS_PATH != 0).then(|| path.to_vec()),
        });
    })?;
    list(&opened, ROOTS, &mut |record: OrphanRecord, _| {
        let top = Ino(record.ino);
        let (id, name, inodes) = (top.root().0, Vec::new(), record.size);
        orphans.roots.push(RootInfo { id, name, top, deleted: true, inodes });
    })?;
    Ok(orphans)
}

/// Asks for a list, page by page.
fn list<R: Record>(opened: impl AsFd, what: u32, each: &mut dyn FnMut(R, &[u8])) -> io::Result<()> {
    let mut page = Page([0; PAGE]);
    let mut cookie = 0;
    loop {
        let ask = InspectHead { what, cookie, ..InspectHead::default() };
        // A page is longer than its head.
        let _ = ask.write_to_prefix(&mut page.0);
        ask_page::<IOCTL_INSPECT>(&opened, &mut page)?;
        let head = InspectHead::read_from_prefix(&page.0).map_or(ask, |(head, _)| head);
        records(&page.0).for_each(|(record, tail)| each(record, tail));
        if head.flags & IS_END != 0 || head.cookie <= cookie {
            return Ok(());
        }
        cookie = head.cookie;
    }
}
