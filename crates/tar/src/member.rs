//! Members of an archive.

/// Type of a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Regular file.
    File,
    /// One more name of a member before; its name is [`Member::link`].
    HardLink,
    /// Symbolic link to [`Member::link`].
    Symlink,
    /// Character device.
    CharDevice,
    /// Block device.
    BlockDevice,
    /// Directory.
    Directory,
    /// Pipe.
    Fifo,
    /// A kind that is not understood, and why; its contents are skipped.
    Other(&'static str),
}

/// A stretch of a sparse file that is not a hole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// Place in the file, in bytes.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

/// A file in an archive, without its contents.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Member {
    /// Path, as it is written in the archive; of a directory usually with a slash at the end.
    pub name: Vec<u8>,
    /// Type.
    pub kind: Kind,
    /// Permission bits, with set-id and sticky.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Name of the owner; may be empty.
    pub user: Vec<u8>,
    /// Name of the group; may be empty.
    pub group: Vec<u8>,
    /// Size of the file in bytes, holes included.
    pub size: u64,
    /// Last change of the contents: seconds since 1970, and nanoseconds.
    pub mtime: (i64, u32),
    /// Target of a symlink, or name of the member that a hard link is to.
    pub link: Vec<u8>,
    /// Major and minor number of a device.
    pub device: (u32, u32),
    /// Extended attributes: names and values.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// Access control list as text.
    pub acl: Option<Vec<u8>>,
    /// Default access control list of a directory, as text.
    pub default_acl: Option<Vec<u8>>,
    /// Stretches of a sparse file, in order; the archive has the bytes of these alone.
    pub sparse: Option<Vec<Extent>>,
}

impl Member {
    /// A member of no size, owned by root, of 1970.
    pub fn new(name: Vec<u8>, kind: Kind) -> Member {
        Member {
            name,
            kind,
            mode: 0,
            uid: 0,
            gid: 0,
            user: Vec::new(),
            group: Vec::new(),
            size: 0,
            mtime: (0, 0),
            link: Vec::new(),
            device: (0, 0),
            xattrs: Vec::new(),
            acl: None,
            default_acl: None,
            sparse: None,
        }
    }
}

/// Returns the bytes of all stretches if they are a map of a file of this size.
pub(crate) fn data_of(extents: &[Extent], size: u64) -> Option<u64> {
    let (mut end, mut sum) = (0u64, 0u64);
    for extent in extents {
        if extent.offset < end {
            return None;
        }
        end = extent.offset.checked_add(extent.len).filter(|end| *end <= size)?;
        sum += extent.len;
    }
    Some(sum)
}
