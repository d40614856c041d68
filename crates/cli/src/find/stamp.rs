//! The times of a file.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::time::UNIX_EPOCH;

use shoal::raw::{Attr, Time};

/// The times of a file in a volume or on this machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    /// Last access.
    pub access: Time,
    /// Birth; `None`: not known.
    pub birth: Option<Time>,
    /// Last change of the inode.
    pub change: Time,
    /// Last change of the contents.
    pub modify: Time,
}

impl From<&Attr> for Times {
    fn from(attr: &Attr) -> Times {
        let Attr { atime, btime, ctime, mtime, .. } = *attr;
        Times { access: atime, birth: Some(btime), change: ctime, modify: mtime }
    }
}

impl From<&Metadata> for Times {
    fn from(found: &Metadata) -> Times {
        let time = |sec, nsec: i64| Time { sec, nsec: nsec as u32 };
        let born = found.created().ok().and_then(|born| born.duration_since(UNIX_EPOCH).ok());
        Times {
            access: time(found.atime(), found.atime_nsec()),
            birth: born.map(|it| time(it.as_secs() as i64, it.subsec_nanos().into())),
            change: time(found.ctime(), found.ctime_nsec()),
            modify: time(found.mtime(), found.mtime_nsec()),
        }
    }
}

/// One of the times of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stamp {
    /// Last access.
    Access,
    /// Birth.
    Birth,
    /// Last change of the inode.
    Change,
    /// Last change of the contents.
    Modify,
}

impl Stamp {
    /// Returns this time of a file.
    pub(crate) fn of(self, attr: &Attr) -> Time {
        match self {
            Stamp::Access => attr.atime,
            Stamp::Birth => attr.btime,
            Stamp::Change => attr.ctime,
            Stamp::Modify => attr.mtime,
        }
    }

    /// Returns this time of several; `None`: it is not known.
    pub(crate) fn among(self, times: &Times) -> Option<Time> {
        match self {
            Stamp::Access => Some(times.access),
            Stamp::Birth => times.birth,
            Stamp::Change => Some(times.change),
            Stamp::Modify => Some(times.modify),
        }
    }
}
