//! Access control lists of files in a mount.

use rustix::fs::{XattrFlags, getxattr, removexattr, setxattr};
use rustix::io::Errno;
use shoal::raw::{AclChange, FileKind, Result};

use super::{OpenFile, error_of};
use crate::acl::{ACCESS, DEFAULT};

/// Bytes of a list, at most.
const LIST_MAX: usize = 64 << 10;

impl OpenFile {
    /// Returns a list as stored; `None` if the file has none. A symlink has none.
    pub(crate) fn list(&self, name: &str) -> Result<Option<Vec<u8>>> {
        if self.attr.kind == FileKind::Symlink {
            return Ok(None);
        }
        let mut room = vec![0; LIST_MAX];
        match getxattr(self.path(), name, &mut room[..]) {
            Ok(len) => {
                room.truncate(len);
                Ok(Some(room))
            }
            // The last one in a mount without extended attributes.
            Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(None),
            Err(error) => Err(error_of(error.into())),
        }
    }

    /// Changes a list; the file must be able to have it.
    pub(crate) fn change_acl(&self, change: &AclChange) -> Result<()> {
        let (access, default) = (self.list(ACCESS)?, self.list(DEFAULT)?);
        let changed = change.applied(self.attr.mode, access.as_deref(), default.as_deref())?;
        let name = if change.is_of_default() { DEFAULT } else { ACCESS };
        let done = match changed {
            Some(list) => setxattr(self.path(), name, &list, XattrFlags::empty()),
            None if default.is_none() => Ok(()),
            None => removexattr(self.path(), name),
        };
        done.map_err(|error| error_of(error.into()))
    }
}
