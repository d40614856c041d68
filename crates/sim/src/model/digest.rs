//! Hashes of one node and of one entry. A state's digest is the wrapping sum of both over all that
//! can be reached, so a change costs the nodes it touches and order does not matter.

use super::node_state::NodeState;
use shoal::raw::{Ino, Time};
use shoal_base::checksum;

/// Hash of an inode's attributes and contents (a directory's entries are hashed on their own).
pub fn node_hash(node: &NodeState) -> u64 {
    let mut bytes = Vec::with_capacity(160);
    for number in [
        node.ino.0,
        u64::from(node.generation.0),
        u64::from(node.mode) << 32 | u64::from(node.nlink),
        u64::from(node.uid) << 32 | u64::from(node.gid),
        u64::from(node.rdev),
        node.size,
        node.content,
        node.xattrs,
    ] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    if let Some(times) = &node.times {
        for Time { sec, nsec } in [times.atime, times.mtime, times.ctime, times.btime] {
            bytes.extend_from_slice(&sec.to_le_bytes());
            bytes.extend_from_slice(&nsec.to_le_bytes());
        }
    }
    bytes.extend_from_slice(&node.target);
    // Zero means "not reachable" to the model.
    checksum(&bytes).max(1)
}

/// Hash of a directory entry.
pub fn entry_hash(dir: Ino, name: &[u8], child: Ino) -> u64 {
    let mut bytes = Vec::with_capacity(16 + name.len());
    bytes.extend_from_slice(&dir.0.to_le_bytes());
    bytes.extend_from_slice(&child.0.to_le_bytes());
    bytes.extend_from_slice(name);
    checksum(&bytes)
}
