//! Checkers: each one rule that must hold of a volume in any state, without a model.

use crate::model::State;
use crate::walk::Walk;
use shoal::{FileKind, Volume};
use std::collections::BTreeMap;

/// Runs every checker over a quiet volume and what a walk over all of it found.
pub fn all(volume: &Volume, walk: &Walk) -> Result<(), String> {
    own_check_is_clean(volume)?;
    links_are_names(&walk.state)?;
    directories_count_entries(&walk.state)?;
    names_are_known(volume, &walk.state)?;
    space_adds_up(volume)?;
    // Opened read-only after a crash, orphans are still there, and counted.
    if volume.statfs().read_only { Ok(()) } else { inodes_are_counted(volume, &walk.state) }
}

/// The volume's own full check finds nothing.
pub fn own_check_is_clean(volume: &Volume) -> Result<(), String> {
    let report = volume.check(&mut |_, _| {}).map_err(|e| format!("check failed: {e}"))?;
    match report.problems.first() {
        None => Ok(()),
        Some(first) => {
            let n = report.problems.len();
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
        let found = volume.parents_of(*ino).map_err(|e| format!("parents of {ino}: {e}"))?;
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
    let dying = volume.root_list().into_iter().filter(|root| root.deleted);
    let there = state.nodes.len() as u64 + dying.map(|root| root.inodes).sum::<u64>();
    if used == there { Ok(()) } else { Err(format!("statfs: {used} inodes used, {there} found")) }
}

/// Waits until what is freed behind the calls has been: only then are inodes counted as they are
/// found.
pub fn wait_for_reaping(volume: &Volume) -> Result<(), String> {
    while volume.is_reaping() {
        volume.reap_some().map_err(|e| format!("reaping: {e}"))?;
    }
    Ok(())
}

/// Orphans have been freed, and nothing lives on in memory alone. Only right when nothing is held.
pub fn nothing_waits_to_be_freed(volume: &Volume) -> Result<(), String> {
    let info = volume.info();
    match (info.orphans, info.detached, volume.is_reaping()) {
        (0, 0, false) => Ok(()),
        counts => Err(format!("left: {counts:?} orphan slots, detached files, reaping at all")),
    }
}

/// What was in deleted roots can be freed, and is gone then; nothing else is.
pub fn deleted_roots_can_be_freed(volume: &Volume, walk: &Walk) -> Result<(), String> {
    if !volume.root_list().iter().any(|root| root.deleted) {
        return Ok(());
    }
    volume.reap_roots(&mut |_| {}).map_err(|e| format!("reaping: {e}"))?;
    if let Some(left) = volume.root_list().into_iter().find(|root| root.deleted) {
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
    use shoal::{Caller, Ino};

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
