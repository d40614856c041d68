//! Counters, orphans and free space of a mounted volume.

use super::Call;
use crate::protocol::control::{Entry, GAUGE, HAS_PATH, HAS_SLOT, IS_HELD, Kind, state_of};
use crate::stats::Stat;
use shoal::raw::{Ino, OrphanInfo, RootInfo};
use std::io;
use std::os::fd::AsFd;

/// Unlinked inodes and deleted subvolumes of a mounted volume.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Orphans {
    /// Inodes, by number.
    pub inodes: Vec<OrphanInfo>,
    /// Deleted subvolumes, by number.
    pub roots: Vec<RootInfo>,
}

/// Returns the counters, since the mount, of the mount that `opened` is in.
///
/// # Errors
/// `ENOTTY` when this is no mount of Shoal.
pub fn stats_of(opened: impl AsFd) -> io::Result<Vec<Stat>> {
    let mut stats = Vec::new();
    Call::new(Kind::Counters, 0).list(opened, &mut |entry| {
        let [name, what] =
            entry.texts.map(|text| String::from_utf8_lossy(text).into_owned().into());
        let ([value, ..], gauge) = (entry.numbers, entry.flags & GAUGE != 0);
        stats.push(Stat { name, value, what, gauge });
    })?;
    Ok(stats)
}

/// Returns the reason why the volume of the mount that `opened` is in is read-only; `None`: it is
/// not.
///
/// # Errors
/// `ENOTTY` when this is no mount of Shoal.
pub fn read_only_reason_of(opened: impl AsFd) -> io::Result<Option<String>> {
    let mut reason = None;
    Call::new(Kind::ReadOnly, 0).list(opened, &mut |entry| {
        reason = Some(String::from_utf8_lossy(entry.texts[0]).into_owned());
    })?;
    Ok(reason)
}

/// Discards the free space of the mount that `opened` is in. Returns the number of bytes.
///
/// # Errors
/// `EPERM` unless the caller is the superuser or the user who mounted, and in a mount of one
/// subvolume; `EROFS` when the volume is read-only, `ENOTTY` when this is no mount of Shoal.
pub fn trim(opened: impl AsFd) -> io::Result<u64> {
    let mut bytes = 0;
    Call::new(Kind::Trim, 0).list(opened, &mut |entry| bytes += entry.numbers[0])?;
    Ok(bytes)
}

/// Returns the orphans of the mount that `opened` is in, those in memory alone included, and the
/// deleted subvolumes whose space is being freed.
///
/// # Errors
/// `EPERM` unless the caller is the superuser or the user who mounted, `ENOTTY` when this is no
/// mount of Shoal.
pub fn orphans_of(opened: impl AsFd) -> io::Result<Orphans> {
    let mut orphans = Orphans::default();
    Call::new(Kind::Orphans, 0).list(&opened, &mut |Entry { numbers, flags, texts }| {
        let [ino, size, bytes] = numbers;
        orphans.inodes.push(OrphanInfo {
            ino: Ino(ino),
            state: state_of(flags),
            slot: flags & HAS_SLOT != 0,
            held: flags & IS_HELD != 0,
            size,
            bytes,
            path: (flags & HAS_PATH != 0).then(|| texts[0].to_vec()),
        });
    })?;
    Call::new(Kind::Deleted, 0).list(&opened, &mut |entry| {
        let [top, inodes, _] = entry.numbers;
        let (id, name, top) = (Ino(top).root().0, Vec::new(), Ino(top));
        orphans.roots.push(RootInfo { id, name, top, deleted: true, inodes });
    })?;
    Ok(orphans)
}
