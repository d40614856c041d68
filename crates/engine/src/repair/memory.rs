//! Estimate of a repair's memory, made before the repair begins.
//!
//! Problem: a repair prepares all changes in memory before it writes (`fsck.rs`). On a machine with
//! too little memory the kernel would kill it, or other processes.
//!
//! Rule: the need is estimated from the counts of the check, reported if it is large, and compared
//! with the limit ([`OpenOptions::memory_bytes`]).
//!
//! | what | bytes |
//! | --- | --- |
//! | map of inodes | an entry for each inode, rounded up to a power of two |
//! | rebuilt trees: those with a lost node | a node and a cell for each leaf |
//! | names without entry | name, message |
//! | names without parent pointer | name, message, changed inode |
//! | problems | message, changed inode block |
//! | cache | as given |
//!
//! This is an estimate: the contents of a lost node are known only once it has been rebuilt.

use super::{Name, Node};
use crate::repair::Mending;
use crate::types::{CheckReport, OpenOptions};
use shoal_base::limits::NODE_SIZE;
use shoal_base::{Code, Error, Ino, Result};
use shoal_format::node::TreeId;
use std::mem::size_of;

/// Bytes of a leaf's cell.
const CELL: u64 = 256;
/// Bytes of a restored name and its message.
const NAME: u64 = size_of::<Name>() as u64 + 256;
/// Bytes of a changed inode block in memory.
const BLOCK: u64 = 16 << 10;

/// Maximum initial capacity of the map of inodes: a larger count may be wrong.
pub(crate) const INODES_AT_ONCE: u64 = 1 << 24;

/// Need that is not worth a message, in bytes.
const LITTLE: u64 = 1 << 30;

impl Mending<'_> {
    /// Returns the number of inodes, limited by the size of the metadata: the count of a damaged
    /// volume may be wrong.
    pub(crate) fn inodes_at_most(self) -> u64 {
        inodes_at_most(self.0.store.roots().inodes(), self.0.store.space().counts().meta_bytes())
    }
}

fn inodes_at_most(said: u64, meta_bytes: u64) -> u64 {
    said.min(meta_bytes / shoal_format::inode::CORE as u64)
}

/// Returns the size in bytes of the map of inodes, including its old table if it must grow.
fn map_bytes(inodes: u64) -> u64 {
    let buckets = (inodes.saturating_mul(8) / 7).max(4).next_power_of_two();
    let old = if inodes > INODES_AT_ONCE { buckets / 2 } else { 0 };
    (buckets + old).saturating_mul(size_of::<(Ino, Node)>() as u64 + 1)
}

/// Returns the estimated need of a repair in bytes, from the report of a check.
pub(crate) fn needed(checked: &CheckReport, inodes: u64, cache_bytes: u64) -> u64 {
    let mut bytes = cache_bytes.saturating_add(map_bytes(inodes));
    let is_lost = |tree: TreeId| checked.problems.iter().any(|p| p.rule == tree.name());
    for tree in TreeId::ALL.into_iter().filter(|tree| is_lost(*tree)) {
        bytes += checked.leaves[tree as usize] * (NODE_SIZE as u64 + CELL);
    }
    if !checked.problems.is_empty() {
        let (names, pointers) = (checked.dirents, checked.parents.max(checked.inodes));
        bytes += pointers.saturating_sub(names) * NAME;
        bytes += names.saturating_sub(pointers) * (NAME + BLOCK / 32);
    }
    bytes + checked.problems.len() as u64 * BLOCK
}

/// Reports the need of a repair, if it is large.
///
/// # Errors
/// `ENOMEM` if it exceeds the limit.
pub(crate) fn allow(bytes: u64, options: &OpenOptions) -> Result<()> {
    let (needs, may) = (human(bytes), human(options.memory_bytes));
    if options.memory_bytes > 0 && bytes > options.memory_bytes {
        let message = format!(
            "a repair takes about {needs} of memory, and may take {may}: nothing has been changed"
        );
        return Err(Error::refused(Code::NoMemory, message));
    }
    if bytes > LITTLE {
        (options.notice)(&format!("the repair takes about {needs} of memory"));
    }
    Ok(())
}

fn human(bytes: u64) -> String {
    match bytes {
        0..0x4000_0000 => format!("{} MiB", bytes.div_ceil(1 << 20)),
        _ => format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Problem;

    #[test]
    fn what_is_lost_takes_memory() {
        let mut checked = CheckReport { inodes: 1000, dirents: 999, ..CheckReport::default() };
        checked.leaves[TreeId::Dirents as usize] = 100;
        let clean = needed(&checked, 1000, 0);
        assert_eq!(clean, map_bytes(1000));
        let problem = |rule| Problem { rule, message: String::new() };
        checked.problems.push(problem("inode-mode"));
        let bad = needed(&checked, 1000, 0);
        assert!((clean + 1..clean + 100_000).contains(&bad), "{bad}");
        checked.problems.push(problem(TreeId::Dirents.name()));
        checked.dirents = 0;
        let lost = needed(&checked, 1000, 0);
        assert!(lost > bad + 100 * NODE_SIZE as u64, "{lost}");
    }

    #[test]
    fn absurd_counts_of_inodes_are_not_believed() {
        assert_eq!(inodes_at_most(u64::MAX, 11_600), 100);
        assert_eq!(inodes_at_most(7, 11_600), 7);
        assert!(map_bytes(u64::MAX / 16) > 0);
    }

    #[test]
    fn more_than_allowed_is_refused_with_both_figures() {
        let options = OpenOptions { memory_bytes: 3 << 30, ..OpenOptions::default() };
        assert!(allow(3 << 30, &options).is_ok());
        let refused = allow(5 << 30, &options).expect_err("more than allowed");
        assert_eq!(refused.code(), Code::NoMemory);
        let text = refused.to_string();
        assert!(text.contains("5.0 GiB") && text.contains("3.0 GiB"), "{text}");
        assert!(allow(u64::MAX, &OpenOptions::default()).is_ok(), "no limit");
    }
}
