//! On whose behalf calls are made.

use crate::raw;
use std::sync::Arc;

/// The user, groups and umask that calls are checked against.
///
/// The program chooses them freely, because a program that can open a volume can read all of it
/// anyway. They are for programs that act for users, and they determine the owner of new files.
#[derive(Clone, Debug)]
pub struct Credentials(pub(crate) raw::Caller);

impl Credentials {
    /// The credentials of this process: effective user and group, supplementary groups, umask (022
    /// if it cannot be read).
    pub fn current() -> Credentials {
        let uid = rustix::process::geteuid().as_raw();
        let gid = rustix::process::getegid().as_raw();
        let groups = rustix::process::getgroups().unwrap_or_default();
        let groups = groups.into_iter().map(|group| group.as_raw()).collect::<Vec<_>>();
        Credentials::user(uid, gid).groups(groups).umask(umask().unwrap_or(0o022))
    }

    /// The superuser, who may do everything, with umask 022.
    pub fn root() -> Credentials {
        Credentials::user(0, 0)
    }

    /// A user and their group, without supplementary groups, with umask 022.
    pub fn user(uid: u32, gid: u32) -> Credentials {
        Credentials(raw::Caller { umask: 0o022, ..raw::Caller::user(uid, gid) })
    }

    /// Sets the supplementary groups.
    #[must_use]
    pub fn groups(mut self, groups: impl Into<Arc<[u32]>>) -> Credentials {
        self.0.groups = groups.into();
        self
    }

    /// Sets the umask: permission bits that new files do not get.
    #[must_use]
    pub fn umask(mut self, umask: u32) -> Credentials {
        self.0.umask = umask & 0o777;
        self
    }

    /// The user's number.
    pub fn uid(&self) -> u32 {
        self.0.uid
    }

    /// The group's number.
    pub fn gid(&self) -> u32 {
        self.0.gid
    }
}

/// The umask of this process. The system call that returns it sets it too, for all threads.
fn umask() -> Option<u32> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:"))?;
    u32::from_str_radix(line.trim(), 8).ok()
}
