//! An inode's visible state as data.

use super::Times;
use shoal::raw::{Generation, Ino, Time};

/// An inode's attributes and the hash of its contents.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeState {
    /// Number.
    pub ino: Ino,
    /// Generation.
    pub generation: Generation,
    /// Mode with type bits.
    pub mode: u32,
    /// Links; of a directory always 1 here (how many `stat` shows is the volume's choice).
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number.
    pub rdev: u32,
    /// Size.
    pub size: u64,
    /// Hash of a regular file's contents.
    pub content: u64,
    /// Hash of the extended attributes.
    pub xattrs: u64,
    /// Target of a symlink.
    pub target: Vec<u8>,
    /// Times, when they are compared at all.
    pub times: Option<Times>,
}

impl NodeState {
    /// The same without its change time.
    pub(super) fn without_ctime(&self) -> NodeState {
        let times = self.times.map(|times| Times { ctime: Time::default(), ..times });
        NodeState { times, ..self.clone() }
    }
}
