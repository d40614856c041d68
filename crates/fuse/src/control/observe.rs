//! Histograms of a mount's operations, and the load of its users and processes.

use super::Call;
use crate::observe::top::Load;
use crate::protocol::control::{Entry, IN_VOLUME, IS_PROCESS, Kind};
use crate::protocol::histogram::{histogram, words};
use shoal::raw::Timing;
use std::io;
use std::os::fd::AsFd;

/// An operation, with the durations since the mount.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Operation {
    /// Name: `lookup`, `device_read`.
    pub name: String,
    /// It is a part of the work inside the volume; otherwise a request of the kernel.
    pub in_volume: bool,
    /// Durations.
    pub timing: Timing,
}

/// Users and processes by their load, the most requests first.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Loads {
    /// Users.
    pub users: Vec<Load>,
    /// Threads of processes.
    pub processes: Vec<Load>,
}

/// Returns the operations that there have been in the mount that `opened` is in.
///
/// # Errors
/// `ENOTTY` when this is no mount of Shoal, `EINVAL` when its server is of an older version.
pub fn operations_of(opened: impl AsFd) -> io::Result<Vec<Operation>> {
    let mut operations = Vec::new();
    Call::new(Kind::Operations, 0).list(opened, &mut |entry| {
        operations.push(Operation {
            name: String::from_utf8_lossy(entry.texts[0]).into_owned(),
            in_volume: entry.flags & IN_VOLUME != 0,
            timing: histogram(entry.texts[1], entry.numbers),
        });
    })?;
    Ok(operations)
}

/// Returns the load of users and processes in the mount that `opened` is in, as far as it has been
/// watched: from the first call on, while there is another one every ten seconds.
///
/// # Errors
/// `EPERM` unless the caller is the superuser or the user who mounted, `ENOTTY` when this is no
/// mount of Shoal.
pub fn loads_of(opened: impl AsFd) -> io::Result<Loads> {
    let mut loads = Loads::default();
    Call::new(Kind::Top, 0).list(opened, &mut |Entry { numbers, flags, texts }| {
        let [key, requests, took_ns] = numbers;
        let mut words = words(texts[0]);
        let mut next = || words.next().unwrap_or(0);
        let load = Load {
            key: key as u32,
            uid: next() as u32,
            requests,
            uncertain: next(),
            took_ns,
            read: next(),
            written: next(),
        };
        match flags & IS_PROCESS {
            0 => loads.users.push(load),
            _ => loads.processes.push(load),
        }
    })?;
    Ok(loads)
}
