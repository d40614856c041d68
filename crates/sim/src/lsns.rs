//! Check that inodes have the LSNs of their last changes after a crash.
//!
//! The model knows which inodes a call changes, not their LSNs: after each operation the volume is
//! asked for those. After a crash each inode has the LSN that it had then. Or it has a newer one
//! than all of the operation before the last: recovery completed something, or the last operation
//! was cut off between two of its records.

use crate::model::Model;
use shoal::raw::{Ino, Volume};
use std::collections::BTreeMap;

/// LSNs that a volume reported since a history began.
pub struct Lsns {
    /// End of the journal after `k` operations.
    ends: Vec<u64>,
    /// By inode: LSNs, and after how many operations each was new.
    known: BTreeMap<Ino, Vec<(usize, u64)>>,
}

impl Lsns {
    /// The beginning of a history.
    pub fn new(volume: &Volume, model: &Model) -> Result<Lsns, String> {
        let mut lsns = Lsns { ends: Vec::new(), known: BTreeMap::new() };
        lsns.end(volume, model.state().nodes.into_keys())?;
        Ok(lsns)
    }

    /// An operation has ended that may have changed these inodes.
    pub fn end(
        &mut self,
        volume: &Volume,
        inodes: impl IntoIterator<Item = Ino>,
    ) -> Result<(), String> {
        let k = self.ends.len();
        for ino in inodes {
            let Ok(lsn) = volume.attributes().change_lsn(ino) else { continue };
            let known = self.known.entry(ino).or_default();
            if lsn > volume.staged_lsn() {
                return Err(format!("inode {ino} was changed at LSN {}, which is to come", lsn.0));
            }
            if known.last().is_none_or(|(_, last)| *last != lsn.0) {
                known.push((k, lsn.0));
            }
        }
        self.ends.push(volume.staged_lsn().0);
        Ok(())
    }

    /// A volume has recovered with these inodes, in the state after `k` operations. Returns what is
    /// wrong.
    pub fn differ(
        &self,
        volume: &Volume,
        inodes: impl Iterator<Item = Ino>,
        k: usize,
    ) -> Result<(), String> {
        let since = self.ends[k.saturating_sub(1)];
        for ino in inodes {
            let found = volume
                .attributes()
                .change_lsn(ino)
                .map_err(|e| format!("LSN of inode {ino}: {e}"))?
                .0;
            let known = self.known.get(&ino).into_iter().flatten();
            let known = known.take_while(|(at, _)| *at <= k).last();
            if let Some((at, lsn)) = known
                && found != *lsn
                && found < since
            {
                return Err(format!(
                    "inode {ino} has LSN {found}; since operation {at} of {k} it had {lsn}"
                ));
            }
        }
        Ok(())
    }
}
