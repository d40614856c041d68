//! Extended attributes of local files, by system calls.
//!
//! What a local filesystem does not have, or does not let us see, is not there. What it does not
//! let us set is refused, which does not end the copy; also when it has no room for it, because
//! some have a place for attributes that is full long before the disk is.

use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::fs::{self, XattrFlags};
use rustix::io::{Errno, Result};

use super::side::{Attribute, Kept, Outcome, is_kept};
use crate::failure::Reason;

/// Bytes for a list of names or a value at the first try: enough for almost all.
const ROOM: usize = 1 << 10;

/// Something that has attributes.
pub(super) enum Held<'a> {
    /// An open file or directory.
    Fd(BorrowedFd<'a>),
    /// Something that cannot be opened, by a path that does not depend on how deep it lies.
    Path(Vec<u8>),
}

impl<'a> Held<'a> {
    /// A name in an open directory. Behind it the name itself is meant, not where a symlink leads.
    pub(super) fn name(dir: BorrowedFd<'a>, name: &[u8]) -> Held<'a> {
        let mut path = format!("/proc/self/fd/{}/", dir.as_raw_fd()).into_bytes();
        path.extend_from_slice(name);
        Held::Path(path)
    }

    /// All attributes that copies keep.
    pub(super) fn all(&self) -> Outcome<Vec<Attribute>> {
        let mut found = Vec::new();
        for name in self.names()?.into_iter().filter(|name| is_kept(name)) {
            match whole(|room| self.get(&name, room)) {
                Ok(value) => found.push(Attribute { name, value }),
                // Removed since, or not for us.
                Err(Errno::NODATA | Errno::ACCESS | Errno::PERM | Errno::OPNOTSUPP) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(found)
    }

    /// Gives it the attributes that it is to have.
    pub(super) fn apply(&self, kept: &mut Kept<'_>) -> Outcome<()> {
        let there = self.names()?;
        kept.apply(there, &mut |it| self.set(it).map_err(refusal), &mut |name| {
            self.remove(name).map_err(refusal)
        })
    }

    fn names(&self) -> Outcome<Vec<Vec<u8>>> {
        let list = match whole(|room| self.list(room)) {
            Ok(list) => list,
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::ACCESS | Errno::PERM) => Vec::new(),
            // Without /proc what cannot be opened cannot be asked.
            Err(Errno::NOENT | Errno::NOTDIR) if matches!(self, Held::Path(_)) => Vec::new(),
            Err(error) => return Err(error.into()),
        };
        let names = list.split(|byte| *byte == 0).filter(|name| !name.is_empty());
        Ok(names.map(<[u8]>::to_vec).collect())
    }

    fn list(&self, room: &mut [u8]) -> Result<usize> {
        match self {
            Held::Fd(fd) => fs::flistxattr(fd, room),
            Held::Path(path) => fs::llistxattr(path.as_slice(), room),
        }
    }

    fn get(&self, name: &[u8], room: &mut [u8]) -> Result<usize> {
        match self {
            Held::Fd(fd) => fs::fgetxattr(fd, name, room),
            Held::Path(path) => fs::lgetxattr(path.as_slice(), name, room),
        }
    }

    fn set(&self, it: &Attribute) -> Result<()> {
        let flags = XattrFlags::empty();
        match self {
            Held::Fd(fd) => fs::fsetxattr(fd, it.name.as_slice(), &it.value, flags),
            Held::Path(path) => {
                fs::lsetxattr(path.as_slice(), it.name.as_slice(), &it.value, flags)
            }
        }
    }

    fn remove(&self, name: &[u8]) -> Result<()> {
        match self {
            Held::Fd(fd) => fs::fremovexattr(fd, name),
            Held::Path(path) => fs::lremovexattr(path.as_slice(), name),
        }
    }
}

/// Why an attribute is not kept; never a reason to end the copy.
fn refusal(error: Errno) -> Reason {
    match error {
        Errno::NOSPC | Errno::DQUOT => Reason::Text("no room for attributes there".into()),
        error => error.into(),
    }
}

/// Reads something whose length is not known, and may change between two calls.
fn whole(mut read: impl FnMut(&mut [u8]) -> Result<usize>) -> Result<Vec<u8>> {
    let mut bytes = vec![0; ROOM];
    loop {
        match read(&mut bytes) {
            Ok(len) => {
                bytes.truncate(len);
                return Ok(bytes);
            }
            Err(Errno::RANGE) => {
                let len = read(&mut [])?;
                bytes.resize(len.max(bytes.len() + 1), 0);
            }
            Err(error) => return Err(error),
        }
    }
}
