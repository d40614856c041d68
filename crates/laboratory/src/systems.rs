//! The systems that are measured.

/// A filesystem.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum System {
    /// Shoal's library on a volume of its own.
    Library,
    /// Shoal's library by a session of a mount.
    Session,
    /// A mount of Shoal by one process: requests come by rings where the kernel has them.
    Mount,
    /// A mount of Shoal as it is by default, with a keeper.
    Default,
    Tmpfs,
    Xfs,
    XfsParent,
    Ext4,
    Ext4Orphan,
    Btrfs,
    /// A study that needs no filesystem.
    Memory,
}

impl System {
    /// The name in raw files and reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            System::Library => "Shoal, library",
            System::Session => "Shoal, session",
            System::Mount => "Shoal, mount",
            System::Default => "Shoal, default mount",
            System::Tmpfs => "tmpfs",
            System::Xfs => "XFS",
            System::XfsParent => "XFS, parent pointers",
            System::Ext4 => "ext4",
            System::Ext4Orphan => "ext4, orphan file",
            System::Btrfs => "btrfs",
            System::Memory => "memory",
        }
    }

    /// It is a mount of Shoal, or by a session of one.
    pub(crate) fn has_server(self) -> bool {
        matches!(self, System::Mount | System::Default | System::Session)
    }

    /// The program that makes it, and that may be missing.
    pub(crate) fn maker(self) -> Option<&'static str> {
        match self {
            System::Xfs | System::XfsParent => Some("mkfs.xfs"),
            System::Ext4 | System::Ext4Orphan => Some("mkfs.ext4"),
            System::Btrfs => Some("mkfs.btrfs"),
            _ => None,
        }
    }
}
