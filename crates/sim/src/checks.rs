//! Checkers: each one rule that must hold of a volume in any state, without a model.

use crate::model::State;
use crate::walk::Walk;
use shoal::raw::{Caller, FileKind, TotalsScan, Volume};
use std::collections::BTreeMap;

/// Runs every checker over a quiet volume and what a walk over all of it found.
pub fn all(volume: &Volume, walk: &Walk) -> Result<(), String> {
    own_check_is_clean(volume)?;
    links_are_names(&walk.state)?;
    directories_count_entries(&walk.state)?;
    names_are_known(volume, &walk.state)?;
    totals_are_sums(volume, &walk.state)?;
    quotas_are_sums(volume, &walk.state)?;
    space_adds_up(volume)?;
    // Opened read-only after a crash, orphans are still there, and counted.
    if volume.statfs().read_only { Ok(()) } else { inodes_are_counted(volume, &walk.state) }
}

/// The volume's own full check finds nothing. Opened read-only after a crash, it may find that the
/// second superblock was being written: nobody has written it again since.
pub fn own_check_is_clean(volume: &Volume) -> Result<(), String> {
    let report = volume.check(&mut |_, _| {}).map_err(|e| format!("check failed: {e}"))?;
    let read_only = volume.statfs().read_only;
    let torn = |rule: &str| read_only && rule == "superblock-copy";
    let problems = report.problems.iter().filter(|problem| !torn(problem.rule));
    match problems.clone().next() {
        None => Ok(()),
        Some(first) => {
            let n = problems.count();
            Err(format!("check found {n} problems, first: {}: {}", first.rule, first.message))
        }
    }
}

/// A file's link count is the number of its names.
pub fn links_are_names(state: &State) -> Result<(), String> {
    let mut names: BTreeMap<_, u32> = BTreeMap::new();
    for child in state.entries.values() {
        *names.entry(*child).or_default() += 1;
    }
    for (ino, node) in state.nodes.iter().filter(|(ino, _)| **ino != state.root) {
        let count = names.get(ino).copied().unwrap_or(0);
        if node.nlink != count {
            return Err(format!("inode {ino} has {count} names, nlink {}", node.nlink));
        }
    }
    Ok(())
}

/// Each inode says itself under which names it is.
pub fn names_are_known(volume: &Volume, state: &State) -> Result<(), String> {
    let mut names: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for ((dir, name), child) in &state.entries {
        names.entry(*child).or_default().push((*dir, name.clone()));
    }
    for ino in state.nodes.keys().filter(|ino| **ino != state.root) {
        let found =
            volume.paths().parents_of(*ino).map_err(|e| format!("parents of {ino}: {e}"))?;
        let mut found: Vec<_> = found.into_iter().map(|p| (p.dir, p.name)).collect();
        found.sort();
        if Some(&found) != names.get(ino) {
            return Err(format!("inode {ino} says {found:?}, its names are {:?}", names.get(ino)));
        }
    }
    Ok(())
}

/// A directory's size is the number of its entries.
pub fn directories_count_entries(state: &State) -> Result<(), String> {
    let mut entries: BTreeMap<_, u64> = BTreeMap::new();
    for (dir, _) in state.entries.keys() {
        *entries.entry(*dir).or_default() += 1;
    }
    for (ino, node) in &state.nodes {
        let directory = FileKind::from_mode(node.mode) == Some(FileKind::Directory);
        let count = entries.get(ino).copied().unwrap_or(0);
        if directory && node.size != count {
            return Err(format!("directory {ino} has {count} entries, size {}", node.size));
        }
    }
    Ok(())
}

/// The totals of the top are the sums over all inodes, by a walk and by a scan. Those of each
/// directory in it are the same by both.
pub fn totals_are_sums(volume: &Volume, state: &State) -> Result<(), String> {
    let both = |dir| {
        let totals = |walk_max| {
            let scan = TotalsScan { walk_max, ..TotalsScan::of(dir) };
            volume.bulk().totals(&Caller::root(), scan).map_err(|e| format!("totals of {dir}: {e}"))
        };
        let (scanned, walked) = (totals(Some(0))?, totals(Some(u64::MAX))?);
        match scanned == walked {
            true => Ok(scanned),
            false => Err(format!("directory {dir}: a scan finds {scanned:?}, a walk {walked:?}")),
        }
    };
    let kind = |ino| state.nodes.get(ino).and_then(|node| FileKind::from_mode(node.mode));
    let (mut files, mut dirs, mut bytes) = (0, 0, 0_u64);
    for (ino, node) in &state.nodes {
        match kind(ino) {
            Some(FileKind::Regular) => files += 1,
            Some(FileKind::Directory) => dirs += 1,
            _ => {}
        }
        if matches!(kind(ino), Some(FileKind::Regular | FileKind::Symlink)) {
            // Two sparse files can have more than fits.
            bytes = bytes.saturating_add(node.size);
        }
    }
    let all = both(state.root)?;
    let counted = (all.files, all.dirs, all.inodes(), all.bytes);
    let found = (files, dirs, state.nodes.len() as u64, bytes);
    if counted != found {
        return Err(format!("totals {counted:?}, found {found:?} (files, dirs, inodes, bytes)"));
    }
    for ((dir, _), child) in &state.entries {
        if *dir == state.root && kind(child) == Some(FileKind::Directory) {
            both(*child)?;
        }
    }
    Ok(())
}

/// The use of a quota of a subvolume's top is that of everything below, and of unlinked inodes that
/// are not freed yet.
pub fn quotas_are_sums(volume: &Volume, state: &State) -> Result<(), String> {
    let info = volume.info();
    let waits = (info.orphans, info.detached, volume.maintenance().is_reaping());
    volume.quotas().settle().map_err(|e| format!("counting the use of quotas: {e}"))?;
    for quota in volume.quotas().list() {
        let (mut inodes, mut bytes) = (0, 0);
        for ino in state.nodes.keys().filter(|ino| ino.root() == quota.dir.root()) {
            let counted = volume.quotas().bytes_of(*ino).map_err(|e| format!("{ino}: {e}"))?;
            (inodes, bytes) = (inodes + 1, bytes + counted);
        }
        let found = (inodes, bytes);
        let is_right = match waits {
            (0, 0, false) => (quota.inodes, quota.bytes) == found,
            _ => quota.inodes >= inodes && quota.bytes >= bytes,
        };
        // Opened read-only, numbers that an older session has left wrong stay so.
        let is_known = quota.is_exact || volume.statfs().read_only;
        if !is_right || !is_known {
            return Err(format!("{quota:?}, found {found:?} (inodes, bytes), and {waits:?}"));
        }
    }
    Ok(())
}

/// `statfs` is possible: available ≤ free ≤ total.
pub fn space_adds_up(volume: &Volume) -> Result<(), String> {
    let fs = volume.statfs();
    if fs.bytes_available > fs.bytes_free || fs.bytes_free > fs.bytes_total {
        return Err(format!("statfs is impossible: {fs:?}"));
    }
    Ok(())
}

/// `statfs` counts the inodes that there are, those of deleted roots included. Only right when
/// nothing is held without a name.
pub fn inodes_are_counted(volume: &Volume, state: &State) -> Result<(), String> {
    let used = volume.statfs().inodes_used;
    let dying = volume.subvolumes().list().into_iter().filter(|root| root.deleted);
    let there = state.nodes.len() as u64 + dying.map(|root| root.inodes).sum::<u64>();
    if used == there { Ok(()) } else { Err(format!("statfs: {used} inodes used, {there} found")) }
}

/// Orphans have been freed, and nothing lives on in memory alone. Only right when nothing is held.
pub fn nothing_waits_to_be_freed(volume: &Volume) -> Result<(), String> {
    let info = volume.info();
    match (info.orphans, info.detached, volume.maintenance().is_reaping()) {
        (0, 0, false) => Ok(()),
        counts => Err(format!("left: {counts:?} orphan slots, detached files, reaping at all")),
    }
}

/// Checks that the contents of deleted subvolumes can be freed, and nothing else goes with them.
pub fn deleted_roots_can_be_freed(volume: &Volume, walk: &Walk) -> Result<(), String> {
    if !volume.subvolumes().list().iter().any(|root| root.deleted) {
        return Ok(());
    }
    volume.maintenance().reap_roots(&mut |_| {}).map_err(|e| format!("reaping: {e}"))?;
    if let Some(left) = volume.subvolumes().list().into_iter().find(|root| root.deleted) {
        return Err(format!("root {} is left after reaping: {} inodes", left.id, left.inodes));
    }
    let now = crate::walk::walk(volume, walk.state.root, true)?;
    if now.digest() != walk.digest() {
        let lines = crate::model::diff(&walk.state, &now.state, 12);
        return Err(format!("reaping changed what is alive:\n    {}", lines.join("\n    ")));
    }
    all(volume, &now).map_err(|e| format!("after reaping: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Model, entry_hash};
    use shoal::raw::Ino;

    #[test]
    fn checkers_see_what_they_are_for() {
        let mut model = Model::new(Ino(1), 0o755, 0, 0);
        let file = model.create(&Caller::root(), (Ino(1), b"f"), 0o644, None).unwrap();
        let good = model.state();
        links_are_names(&good).unwrap();
        directories_count_entries(&good).unwrap();
        let mut bad = good.clone();
        bad.nodes.get_mut(&file).unwrap().nlink = 2;
        assert!(links_are_names(&bad).is_err());
        let mut bad = good.clone();
        bad.nodes.get_mut(&Ino(1)).unwrap().size = 2;
        assert!(directories_count_entries(&bad).is_err());
        let hash = entry_hash(Ino(1), b"f", file);
        assert!(hash != entry_hash(Ino(2), b"f", file) && hash != entry_hash(Ino(1), b"g", file));
        assert_ne!(good.digest(), bad.digest());
    }
}
