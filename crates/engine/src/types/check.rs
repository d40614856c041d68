//! Results of a check.

/// A problem found by a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Stable short name of the rule, for example `dirent-child-missing`.
    pub rule: &'static str,
    /// Description of the problem, with the object and its place.
    pub message: String,
}

/// Result of a check.
#[derive(Clone, Debug, Default)]
pub struct CheckReport {
    /// Inodes in use.
    pub inodes: u64,
    /// Directories.
    pub directories: u64,
    /// Directory entries.
    pub dirents: u64,
    /// Extents.
    pub extents: u64,
    /// Attributes, parent pointers among them.
    pub attributes: u64,
    /// Parent pointers.
    pub parents: u64,
    /// Bytes of file data whose checksum was verified.
    pub data_bytes: u64,
    /// Tree nodes and inode blocks read.
    pub blocks: u64,
    /// Leaves of each kind of tree, in the order of their numbers. Too low if an inner node cannot
    /// be read.
    pub leaves: [u64; 4],
    /// Problems found; empty if the volume is clean.
    pub problems: Vec<Problem>,
}

/// Progress callback: the stage's name, work done and total work, in nanoseconds of processor time.
pub type Progress<'a> = &'a mut (dyn FnMut(&str, u64, u64) + Send);
