//! Quotas of directory trees in a mounted volume.

use super::Call;
use crate::protocol::control::{Entry, HAS_PATH, IS_EXACT, Kind, NO_LIMIT, SET_BYTES, SET_INODES};
use rustix::fs::StatVfsMountFlags;
use rustix::io::Errno as Os;
use shoal::raw::{Ino, Quota, QuotaLimits};
use std::io;
use std::os::fd::AsFd;

/// A quota of a mounted volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QuotaFound {
    /// Its use and its limits.
    pub quota: Quota,
    /// Path of the directory from the top of the mount; `None` for users who are not told.
    pub path: Option<Vec<u8>>,
}

/// Gives the opened directory a quota, or changes its limits; `Some(None)`: no limit, `None`: as
/// before. As [`shoal::raw::Quotas::set`].
///
/// # Errors
/// `EPERM` unless the caller is the superuser, `ENOTDIR`, `EROFS`, `ENOSPC` if the volume is full
/// or has 1,024 quotas, `ENOTTY` when this is no mount of Shoal.
pub fn set_quota(
    dir: impl AsFd,
    bytes: Option<Option<u64>>,
    inodes: Option<Option<u64>>,
) -> io::Result<()> {
    writable(&dir)?;
    let flag = |limit: Option<Option<u64>>, flag: u32| limit.map_or(0, |_| flag);
    let flags = flag(bytes, SET_BYTES) | flag(inodes, SET_INODES);
    let mut call = Call::new(Kind::SetQuota, flags);
    for (number, limit) in call.head.numbers.iter_mut().zip([bytes, inodes]) {
        *number = limit.map_or(0, |limit| limit.unwrap_or(NO_LIMIT));
    }
    call.send(dir)
}

/// Removes the quota of the opened directory.
///
/// # Errors
/// `ENODATA` if it has none; those of [`set_quota`].
pub fn remove_quota(dir: impl AsFd) -> io::Result<()> {
    writable(&dir)?;
    Call::new(Kind::RemoveQuota, 0).send(dir)
}

/// Returns the quota of the tree that an opened file is in; `None`: it is in none.
///
/// # Errors
/// `ENOTTY` when this is no mount of Shoal.
pub fn quota_of(opened: impl AsFd) -> io::Result<Option<QuotaFound>> {
    let mut call = Call::new(Kind::Quota, 0);
    Ok(read(&mut call, opened)?.pop())
}

/// Returns the quotas of the mount that `opened` is in, by directory.
///
/// # Errors
/// `EPERM` unless the caller is the superuser or the user who mounted, `ENOTTY` when this is no
/// mount of Shoal.
pub fn quotas_of(opened: impl AsFd) -> io::Result<Vec<QuotaFound>> {
    read(&mut Call::new(Kind::Quotas, 0), opened)
}

fn read(call: &mut Call, opened: impl AsFd) -> io::Result<Vec<QuotaFound>> {
    let mut found = Vec::new();
    call.list(opened, &mut |entry| found.extend(found_in(&entry)))?;
    Ok(found)
}

fn found_in(entry: &Entry<'_>) -> Option<QuotaFound> {
    let ([dir, bytes, inodes], [path, limits]) = (entry.numbers, entry.texts);
    let ([of_bytes, of_inodes], []) = limits.as_chunks::<8>() else {
        return None;
    };
    let limit = |raw: &[u8; 8]| Some(u64::from_le_bytes(*raw)).filter(|limit| *limit != NO_LIMIT);
    let limits = QuotaLimits { bytes: limit(of_bytes), inodes: limit(of_inodes) };
    let is_exact = entry.flags & IS_EXACT != 0;
    let quota = Quota { dir: Ino(dir), limits, bytes, inodes, is_exact };
    let path = (entry.flags & HAS_PATH != 0).then(|| path.to_vec());
    Some(QuotaFound { quota, path })
}

/// The server does not know of a read-only view.
fn writable(dir: impl AsFd) -> io::Result<()> {
    match rustix::fs::fstatvfs(&dir)?.f_flag.contains(StatVfsMountFlags::RDONLY) {
        true => Err(Os::ROFS.into()),
        false => Ok(()),
    }
}
